"""Writes the parts of docs/database.md that come from the migrations; cog calls it."""

from __future__ import annotations

import re
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlite_utils import Database

from docs.reference import code, table
from docs.sample import build
from edison_ci.store.database import migrations, open_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlite_utils.db import Table

_OPENING = re.compile(r"create (?:table|view) (\w+)(?: \(| as)\s*(?:-- (.*))?")
_COLUMN = re.compile(r"  (\w+) .*?(?:-- (.*))?$")


class Notes(NamedTuple):
    """What the migrations say about a table or view, and about its columns."""

    about: str
    columns: dict[str, str]


def notes() -> dict[str, Notes]:
    """Return the comments of the migrations, by table or view."""
    found: dict[str, Notes] = {}
    current, above = Notes("", {}), ""
    for line in "\n".join(migrations()).splitlines():
        if opening := _OPENING.match(line):
            current = found[opening[1]] = Notes(opening[2] or "", {})
        elif line.startswith("  -- "):
            above = line.removeprefix("  -- ")
        elif column := _COLUMN.match(line):
            current.columns.setdefault(column[1], column[2] or above)
            above = ""
    return found


def tables() -> str:
    """Return every table with its columns."""
    with _empty() as database:
        return "\n".join(_table(one) for one in _own(database.tables))


@contextmanager
def _empty() -> Iterator[Database]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.db"
        with Database(open_database(path)) as database:
            yield database


def _own(tables: list[Table]) -> list[Table]:
    return [one for one in tables if not one.name.startswith("sqlite_")]


def _table(one: Table) -> str:
    said = notes()[one.name]
    parents = {key.column: f"[`{key.other_table}`](#{key.other_table})" for key in one.foreign_keys}
    rows = []
    for column in one.columns:
        told = (said.columns.get(column.name), parents.get(column.name))
        key = ", key" if column.is_pk else "" if column.notnull else ", or null"
        meaning = "; ".join(text for text in told if text)
        rows.append((code(column.name), f"{column.type.lower()}{key}", meaning))
    about = f"{said.about[:1].upper()}{said.about[1:]}.\n\n" if said.about else ""
    return f"### {one.name}\n\n{about}{table(('column', 'type', 'meaning'), rows)}"


def views() -> str:
    """Return every view with the names of its columns."""
    with _empty() as database:
        rows = [
            (code(view.name), notes()[view.name].about, ", ".join(map(code, view.columns_dict)))
            for view in database.views
        ]
    return table(("view", "has", "columns"), rows)


def diagram() -> str:
    """Return which tables name which others, as a diagram."""
    lines = ["erDiagram"]
    with _empty() as database:
        for one in _own(database.tables):
            many = "||--o|" if one.name == "answer" else "||--o{"
            lines += [
                f"    {key.other_table} {many} {one.name} : {key.column}"
                for key in one.foreign_keys
            ]
            if {"request_hash", "answer_no"} <= one.columns_dict.keys() and one.name != "answer":
                many = "||--o|" if one.name == "answer_text" else "|o--o{"
                lines.append(f'    answer {many} {one.name} : "request_hash, answer_no"')
            if one.name in ("attempt", "event"):
                lines.append(f"    run |o--o{{ {one.name} : run_id")
    text = "\n".join(lines)
    return f"```mermaid\n{text}\n```\n"


def query(sql: str) -> str:
    """Return a question and what a small results file answers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.db"
        build(path)
        with Database(open_database(path)) as database:
            found = list(database.query(sql))
    rows = [tuple(map(_shown, row.values())) for row in found]
    return f"```sql\n{sql.strip()}\n```\n\n{table(tuple(found[0]), rows)}"


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


__all__ = ["diagram", "query", "tables", "views"]
