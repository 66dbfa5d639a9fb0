"""Configurations of other tools in, files of a project out, and what became of each key."""
