"""Templates of prompts: a restricted Jinja2, its variables, and rendering."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
