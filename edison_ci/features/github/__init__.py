"""GitHub: comments on pull requests, annotations, checks of roles, sign-in and workflows."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
