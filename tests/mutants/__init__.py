"""Planted mistakes: which test notices each, in `python -m tests.mutants`."""
