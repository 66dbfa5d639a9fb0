"""A repository, as commands of the core have it."""

from tests.cli.conftest import repo

__all__ = ["repo"]
