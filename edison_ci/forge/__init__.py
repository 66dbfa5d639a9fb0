"""Git and GitHub: where results are shown, and changes offered."""
