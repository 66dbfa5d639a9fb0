"""Sites: many projects on one server, uploads of runs, shared budgets and caches."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
