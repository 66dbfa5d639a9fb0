"""Features: each whole in one folder, attached to the core by what it declares."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
