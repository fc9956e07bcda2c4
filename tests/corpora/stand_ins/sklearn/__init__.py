"""A stand-in for `sklearn`."""
