"""A run split at random: its answers to each case stand in for a base and a head.

Nothing differs between the two halves but chance, so what gates say of them is what they say when
nothing was changed. A copy of the run is split; the results file itself stays as it is.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import closing, contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.store.database import open_database
from edison_ci.store.merge import extract

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class SplitRun:
    """A copy of a run whose cells can be dealt to base and head again and again."""

    connection: sqlite3.Connection
    run_id: str
    chance: random.Random

    def deal(self) -> None:
        """Deal the answers to each case at random, half of them to each side."""
        cells = self.connection.execute(
            "select prompt, model, case_id, id from cell where run_id = ? order by 1, 2, 3, 4",
            (self.run_id,),
        )
        dealt = []
        for _, group in groupby(cells.fetchall(), key=itemgetter(0, 1, 2)):
            ids = [row[3] for row in group]
            self.chance.shuffle(ids)
            dealt += [
                ("head" if place % 2 else "base", place // 2, cell)
                for place, cell in enumerate(ids)
            ]
        self.connection.executemany("update cell set side = ?, repeat = ? where id = ?", dealt)


@contextmanager
def split_run(results: Path, run_id: str) -> Iterator[SplitRun]:
    """Copy a run into a file of its own, which is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "split.db")
        extract(results, [run_id], copy)
        with closing(open_database(copy)) as connection:
            yield SplitRun(connection, run_id, random.Random(run_id))
