"""What only a device can show: `make gpu-check` runs these. CROSSTRAIN_TEST_DEVICE=cpu tries them out without one."""
