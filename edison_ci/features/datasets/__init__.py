"""Datasets: their statistics, health and edits, and judges of their questions."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
