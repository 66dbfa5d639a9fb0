"""The read model: what stored runs found, in records that every screen and report renders."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
