"""Drafts that a model writes and a person accepts: projects, rubrics, prompts and cases."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
