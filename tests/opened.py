"""A results file opened by a test, and closed again."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[sqlite3.Connection]:
    """Open a file, commit what was done, and close it, which `with sqlite3.connect` does not."""
    with closing(sqlite3.connect(path, **options)) as connection, connection:
        yield connection
