"""Crosstrain as a user has it: a wheel in an environment of its own."""
