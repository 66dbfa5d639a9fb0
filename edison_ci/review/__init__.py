"""Human review: grading answers, and proposing, deciding and syncing suggestions."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
