"""Whoever reads sees one state of the results file, on a connection of anybody's."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from edison_ci.store.audit import AuditEntry, add_audit, count_audit
from edison_ci.store.database import is_current, is_results_file, one_state, open_database

if TYPE_CHECKING:
    from pathlib import Path

ENTRY = AuditEntry("2026-11-15T12:00:00Z", "ada", "git", "gc")


def test_what_is_written_meanwhile_is_seen_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with (
        closing(open_database(path)) as writer,
        closing(sqlite3.connect(path)) as reader,
    ):
        reader.row_factory = sqlite3.Row
        with one_state(reader):
            assert reader.row_factory is None
            assert count_audit(reader) == 0
            add_audit(writer, ENTRY)
            assert count_audit(reader) == 0
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                add_audit(reader, ENTRY)
        assert reader.row_factory is sqlite3.Row
        assert count_audit(reader) == 1


def test_a_results_file_is_told_from_others(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "results.db")) as ours:
        assert is_results_file(ours)
        assert is_current(ours)
        ours.execute("pragma user_version = 999")
        assert not is_current(ours)
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        assert not is_results_file(other)
