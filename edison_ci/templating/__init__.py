"""Templates of prompts: a restricted Jinja2, its variables, and rendering."""
