"""Checks: grades that need no model. An entry in YAML is the object that runs."""
