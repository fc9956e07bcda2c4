"""One module for each kind of transformation."""
