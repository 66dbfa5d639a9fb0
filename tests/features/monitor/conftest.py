"""A server that the base of a proposal trusts, as commands of the core have it."""

from tests.cli.conftest import ours

__all__ = ["ours"]
