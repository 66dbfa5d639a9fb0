"""Running calls and grading what comes back."""
