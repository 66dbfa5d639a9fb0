"""Which answers does something in the results still point to?

A table with the columns `address` and `take` points to answers; one that has `cell_id` as well does
so for a cell. So a table that is added later is known here without anybody remembering it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

_ANSWERS = ("answer", "answer_text")
_REMARKS = ("manual_grade",)


def columns(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """Return the columns of every table."""
    rows = connection.execute(
        "select t.name, c.name from sqlite_schema t, pragma_table_info(t.name) c "
        "where t.type = 'table' and t.name not like 'sqlite_%'"
    )
    found: dict[str, set[str]] = {}
    for table, column in rows:
        found.setdefault(table, set()).add(column)
    return found


def pointing(
    connection: sqlite3.Connection, *, cells: str | None = None, remarks: bool = True
) -> str:
    """Return SQL for (address, take) of every answer in use.

    `cells` is SQL for a set of cell ids: then only what these cells use counts. Without `remarks`
    what people said of an answer is no use of it: they saw it, and nobody paid for it twice.
    """
    parts = []
    for table, names in sorted(columns(connection).items()):
        if table in _ANSWERS or not {"address", "take"} <= names:
            continue
        if table in _REMARKS and not remarks:
            continue
        key = "id" if table == "cell" else "cell_id"
        if cells is not None and key not in names:
            continue
        where = f" and {key} in ({cells})" if cells is not None else ""
        parts.append(f"select address, take from {table} where take is not null{where}")
    return " union all ".join(parts)
