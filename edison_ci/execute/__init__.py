"""Runs: calls made, answers stored and graded, from the plan to the verdict."""
