"""Judges: grades by a model; their instructions, requests, replies and combination."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
