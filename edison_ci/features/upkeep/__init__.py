"""Upkeep of the results file: retention, forgetting, backups, and bundles of whole projects."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
