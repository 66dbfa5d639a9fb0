"""Screens of texts for personal data, jailbreaks and secrets, without a model."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
