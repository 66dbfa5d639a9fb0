"""Repositories with a GitHub, as commands of the core have them."""

from tests.cli.conftest import bare, github, kept, repo

__all__ = ["bare", "github", "kept", "repo"]
