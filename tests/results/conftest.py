"""Results files to read: that of the showcase, and one to which tests add cells."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.decide.conftest import results
from tests.web.conftest import Stored, project, stored, worker_id

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["connection", "project", "results", "stored", "worker_id"]


@pytest.fixture
def connection(stored: Stored) -> Iterator[sqlite3.Connection]:
    """The results of the showcase, which the tests do not change."""
    with closing(sqlite3.connect(stored.project / ".edison" / "results.db")) as found:
        yield found
