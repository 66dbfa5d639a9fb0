"""Operation of a project: roles, accounts, trust, sessions, and maintenance of its results."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
