"""Human review: grading answers, editing prompts, and deciding and syncing suggestions."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
