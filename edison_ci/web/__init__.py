"""Results pages, served by Datasette."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
