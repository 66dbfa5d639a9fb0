"""The results file: answers, costs, runs and cells, in one SQLite database."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
