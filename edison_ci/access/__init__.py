"""Access: what a job is, and the terms on which a proposal is evaluated."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
