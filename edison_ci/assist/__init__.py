"""Drafts that a model writes and a person accepts: objectives, rubrics and prompts."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
