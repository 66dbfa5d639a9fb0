"""The project with results that the pages of the core have."""

from tests.web.conftest import project, worker_id

__all__ = ["project", "worker_id"]
