"""Runs: calls made, answers stored and graded, from the plan to the verdict."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
