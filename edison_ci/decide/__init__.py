"""Gates: from the numbers of a run to a verdict."""
