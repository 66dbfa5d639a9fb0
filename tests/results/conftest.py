"""The results that pages are tried on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.web.conftest import Stored, project, stored, worker_id

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["connection", "project", "stored", "worker_id"]


@pytest.fixture
def connection(stored: Stored) -> Iterator[sqlite3.Connection]:
    """The results of the showcase, which the tests do not change."""
    with closing(sqlite3.connect(stored.project / ".edison" / "results.db")) as found:
        yield found
