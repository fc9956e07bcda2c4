"""CT4 and CT5: what one process prints, downloads and writes."""
