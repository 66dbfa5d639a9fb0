"""Judges: grades by a model; their instructions, requests, replies and combination."""
