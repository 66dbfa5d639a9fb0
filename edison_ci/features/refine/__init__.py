"""Refinement: small changes of prompts by a model, measured; loops of them, and searches."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
