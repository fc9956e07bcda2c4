"""kornia, for scripts that are asked for no augmentation."""
