"""CT6: numbers that every process shares."""
