"""Telling what a run found: to people, to other programs, and to a pull request."""
