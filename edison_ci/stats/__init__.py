"""Statistics of scores: pure mathematics, a module for each subject."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
