"""CT1: one Accelerator, and nothing that is moved to a device by hand."""
