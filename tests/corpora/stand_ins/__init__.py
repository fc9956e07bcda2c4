"""Stand-ins for libraries that Accelerate's examples download data and models with: small, seeded, offline."""
