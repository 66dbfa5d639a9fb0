"""Plans: what a run would do, and what it would cost."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
