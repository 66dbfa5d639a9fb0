"""Writes the parts of docs/database.md that come from the migrations; cog calls it."""

from __future__ import annotations

import re
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from docs.reference import code, table
from docs.sample import build
from edison_ci.store.database import migrations, open_database

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

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
    with _empty() as connection:
        return "\n".join(_table(connection, name) for name in _names(connection, "table"))


@contextmanager
def _empty() -> Iterator[sqlite3.Connection]:
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(open_database(Path(folder) / "results.db")) as connection,
    ):
        yield connection


def _table(connection: sqlite3.Connection, name: str) -> str:
    said = notes()[name]
    keys = {
        row[3]: (row[2], row[4]) for row in connection.execute(f"pragma foreign_key_list({name})")
    }
    rows = []
    for _, column, kind, needed, _, key in connection.execute(f"pragma table_info({name})"):
        meaning = said.columns.get(column, "")
        if column in keys:
            parent = f"[`{keys[column][0]}`](#{keys[column][0]})"
            meaning = f"{meaning}; {parent}" if meaning else parent
        marks = f"{kind.lower()}{', key' if key else ''}{'' if needed or key else ', or null'}"
        rows.append((code(column), marks, meaning))
    about = f"{said.about[:1].upper()}{said.about[1:]}.\n\n" if said.about else ""
    return f"### {name}\n\n{about}{table(('column', 'type', 'meaning'), rows)}"


def views() -> str:
    """Return every view with the names of its columns."""
    rows = []
    with _empty() as connection:
        for name in _names(connection, "view"):
            columns = [row[1] for row in connection.execute(f"pragma table_info({name})")]
            rows.append((code(name), notes()[name].about, ", ".join(map(code, columns))))
    return table(("view", "has", "columns"), rows)


def diagram() -> str:
    """Return which tables name which others, as a diagram."""
    lines = ["erDiagram"]
    with _empty() as connection:
        for name in _names(connection, "table"):
            columns = {row[1] for row in connection.execute(f"pragma table_info({name})")}
            for row in connection.execute(f"pragma foreign_key_list({name})"):
                many = "||--o|" if name == "answer" else "||--o{"
                lines.append(f"    {row[2]} {many} {name} : {row[3]}")
            if {"address", "take"} <= columns and name != "answer":
                many = "||--o|" if name == "answer_text" else "|o--o{"
                lines.append(f'    answer {many} {name} : "address, take"')
            if name in ("attempt", "event"):
                lines.append(f"    run |o--o{{ {name} : run_id")
    text = "\n".join(lines)
    return f"```mermaid\n{text}\n```\n"


def query(sql: str) -> str:
    """Return a question and what a small results file answers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.db"
        build(path)
        with closing(open_database(path)) as connection:
            cursor = connection.execute(sql)
            head = tuple(column[0] for column in cursor.description)
            rows = [tuple(_shown(value) for value in row) for row in cursor]
    return f"```sql\n{sql.strip()}\n```\n\n{table(head, rows)}"


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _names(connection: sqlite3.Connection, kind: str) -> list[str]:
    rows = connection.execute(
        "select name from sqlite_schema where type = ? and name not like 'sqlite_%' order by rowid",
        (kind,),
    )
    return [name for (name,) in rows]


__all__ = ["diagram", "query", "tables", "views"]
