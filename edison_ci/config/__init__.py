"""Configuration: the files of a project, read, checked and turned into values."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
