"""Results opened for commands that only read, and numbers in their tables.

They open the file read-only and read one state of it, while runs go on writing.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from edison_ci.cli.terminal import ODD, Ink
from edison_ci.config.load import find_root, inspect_project, load_project
from edison_ci.config.project_files import only_errors
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import ConfigError, UsageError
from edison_ci.names import did_you_mean
from edison_ci.results.comparable import measured_experiments
from edison_ci.rounding import fixed, whole
from edison_ci.store.database import reading

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.cli.options import State
    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.load import Project

_BARS, _PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
_LONGEST = 60


def project_at(state: State) -> Project:
    """Return the project at hand."""
    return load_project(state.entered(find_root(state.folder)))


def readable_at(state: State, terminal: Terminal) -> Project:
    """Return the project at hand as far as it can be read: what is stored can be shown anyway.

    Only edison.yaml must be valid, which says where the results are.
    """
    root = state.entered(find_root(state.folder))
    project, problems = inspect_project(WorkingTree(root), root=root)
    wrong = only_errors(problems)
    if project is None:
        raise ConfigError(wrong)
    if wrong:
        more = f" (and {len(wrong) - 1} more: edison validate)" if len(wrong) > 1 else ""
        place = terminal.place(wrong[0].where)
        terminal.note(Ink("warning:", ODD), f" {place}: {wrong[0].message}{more}")
        terminal.note("  what is stored is shown all the same, without what such files say")
    return project


@contextlib.contextmanager
def results_of(project: Project) -> Iterator[sqlite3.Connection]:
    """Open the results of a project as they are now, for reading only."""
    with reading(project.root / project.file.results) as connection:
        yield connection


def experiments_meant(
    connection: sqlite3.Connection, project: Project, name: str | None
) -> list[str]:
    """Return the experiment that was named, or every one that has a complete run."""
    measured = measured_experiments(connection)
    if name is None:
        return measured
    known = [*dict.fromkeys([*measured, *project.experiments])]
    if name not in known:
        hint = did_you_mean(name, known, label="experiments")
        raise UsageError(f"there is no experiment {name!r}", hint=hint)
    return [name] if name in measured else []


def sparkline(values: Sequence[float | None], *, from_zero: bool = False) -> str:
    """Return numbers as a line of bars, low to high; what is missing is a blank."""
    values = values[-_LONGEST:]
    known = [value for value in values if value is not None]
    if not known:
        return ""
    bars = _BARS if _draws(_BARS) else _PLAIN_BARS
    low, high = (0.0 if from_zero else min(known)), max(known)
    width = high - low
    if width <= 0:
        return "".join(" " if value is None else bars[3 if high else 0] for value in values)
    top = len(bars) - 1
    return "".join(
        " " if value is None else bars[whole(top * (value - low) / width)] for value in values
    )


def _draws(text: str) -> bool:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def price(microusd: float | None) -> str:
    """Return what one answer costs; cents are too coarse for it."""
    if microusd is None:
        return "-"
    if microusd == 0:
        return "$0"
    return f"${fixed(microusd / 1e6, 6 if microusd < 10_000 else 4, grouped=True)}"


def simulated_mark(simulated: int, of: int) -> str:
    """Return the mark of numbers that the simulator took part in."""
    if not simulated:
        return ""
    return "simulated" if simulated >= of else "partly simulated"
