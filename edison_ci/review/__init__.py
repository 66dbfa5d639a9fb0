"""People: grading answers, offering a refined prompt, and deciding about it."""
