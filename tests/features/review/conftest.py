"""A repository and its GitHub, and a desk of reviewers, as the core has them."""

from tests.cli.conftest import bare, github, repo
from tests.web.conftest import desk, one_desk, project, server, stored, worker_id

__all__ = [
    "bare",
    "desk",
    "github",
    "one_desk",
    "project",
    "repo",
    "server",
    "stored",
    "worker_id",
]
