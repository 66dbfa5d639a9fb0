"""Gates: from the numbers of a run to a verdict."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
