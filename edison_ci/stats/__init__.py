"""Statistics of scores: pure mathematics, a module for each subject."""
