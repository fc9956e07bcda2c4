"""CT2: `prepare`, and the steps of training through the accelerator."""
