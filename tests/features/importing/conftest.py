"""A repository with a GitHub, as commands of the core have it."""

from tests.cli.conftest import bare, github, repo

__all__ = ["bare", "github", "repo"]
