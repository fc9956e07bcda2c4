"""Chemistry, of which nothing is needed."""
