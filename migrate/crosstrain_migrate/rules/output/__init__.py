"""CT4 and CT5: what one process says and writes."""
