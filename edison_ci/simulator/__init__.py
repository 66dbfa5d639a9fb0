"""The simulator: models that are pretended, and say so, to try the whole tool offline."""
