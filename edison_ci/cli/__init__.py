"""Words in, exit code out."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
