"""The simulator: models that only simulate, and are labelled so, to try everything offline."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
