"""A results file with one run, to which tests add cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from docs.gates import Results
from edison_ci.store.database import open_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Results]:
    connection = open_database(tmp_path / "results.db")
    yield Results.of(connection)
    connection.close()
