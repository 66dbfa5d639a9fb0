"""Queries of the results that take long, which are logged with their text, without values."""

from __future__ import annotations

import logging
import sqlite3
from time import perf_counter
from typing import Any, cast

logger = logging.getLogger(__name__)

SLOW_S = 1.0
_LONGEST = 300


def _log_if_slow(sql: str, began: float) -> None:
    took = perf_counter() - began
    if took >= SLOW_S:
        data = {"took_ms": round(1_000 * took), "sql": " ".join(sql.split())[:_LONGEST]}
        logger.info("slow query", extra=data)


class ReadingConnection(sqlite3.Connection):
    """A connection that logs its slow queries."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement up to its first row."""
        began = perf_counter()
        try:
            return super().execute(sql, parameters)
        finally:
            _log_if_slow(sql, began)


class _Timed:
    """A connection that something else opened."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement up to its first row."""
        began = perf_counter()
        try:
            return self._connection.execute(sql, parameters)
        finally:
            _log_if_slow(sql, began)


def timed(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Return a connection that logs its slow queries, on top of one that does not."""
    return cast("sqlite3.Connection", _Timed(connection))
