"""Drafts that a model writes and a person accepts: objectives, rubrics and prompts."""
