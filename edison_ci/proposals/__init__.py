"""Proposals: a change of a file as a diff that keeps guardrails, a branch and a pull request."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
