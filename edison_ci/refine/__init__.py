"""Prompt refinement: small diffs by a model, checked by guardrails and measured before review."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
