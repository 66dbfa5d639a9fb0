"""Checks: grades without a model. An entry in YAML is the object that runs."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
