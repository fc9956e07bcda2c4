"""The documentation: every command that it shows is run, and what it shows is what came."""
