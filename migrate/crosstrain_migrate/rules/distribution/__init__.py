"""CT3: distribution and precision by hand, taken out down to the plain script inside."""
