"""Checks: grades without a model. An entry in YAML is the object that runs."""
