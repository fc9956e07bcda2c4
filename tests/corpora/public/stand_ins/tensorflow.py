"""tensorflow, for scripts that import it and only use it to read downloaded weights."""
