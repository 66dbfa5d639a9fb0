"""Importers: configurations of other tools as files of a project, with a report on each key."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
