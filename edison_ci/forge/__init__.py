"""GitHub and plain Git: comments on pull requests, events of a job, and proposed changes."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
