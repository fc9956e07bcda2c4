"""ipdb, for scripts that only stop in it when they are asked to."""
