"""Human review: grading answers, and proposing, deciding and syncing suggestions."""
