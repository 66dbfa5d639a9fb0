"""The refinement loop: measure and refine a prompt until it no longer improves."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
