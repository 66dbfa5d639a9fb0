"""A repository, and its GitHub."""

from tests.cli.conftest import bare, github, repo

__all__ = ["bare", "github", "repo"]
