"""Every column of text has a decision: its texts are forgotten, or it holds none."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from edison_ci.features.upkeep.forgetting import FIXED, NAMES, TEXTS, Selection
from edison_ci.store.database import open_database

if TYPE_CHECKING:
    from pathlib import Path


def test_every_column_of_text_is_decided_once(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "results.db")) as connection:
        there = connection.execute(
            "select t.name || '.' || c.name from sqlite_schema t, pragma_table_info(t.name) c "
            "where t.type = 'table' and t.name not like 'sqlite_%' and c.type = 'TEXT' order by 1"
        ).fetchall()
    decided = [
        f"{table}.{column}"
        for kind in (TEXTS, NAMES, FIXED)
        for table, columns in kind.items()
        for column in columns
    ]
    assert sorted(decided) == [name for (name,) in there], "decide what edison admin forget does"


def test_a_text_is_found_however_it_is_written() -> None:
    has = Selection(('Zoë "Q"',)).matches()
    assert has('said ZOË "q".')
    assert has('{"note":"zoë \\"q\\""}')
    assert has('{"note":"zo\\u00eb \\"q\\""}')
    assert has('zoe\u0308 "q"')
    assert not has("Zoe Q")
    assert not has(None)
    assert not Selection().matches()("anything")
