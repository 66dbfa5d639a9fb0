"""The inputs and expected answers of the cases of a page, from the files of the project."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.documents.marks import Fault
from edison_ci.documents.secrets import redacted
from edison_ci.errors import EdisonError
from edison_ci.records import plain_text
from edison_ci.results.case_grid import case_hashes
from edison_ci.results.explanation import unchanged_cases
from edison_ci.web.formats import as_text
from edison_ci.web.page_context import MOST_CELLS
from edison_ci.web.workspace import project_of, searchable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import Case
    from edison_ci.store.runs import Run
    from edison_ci.web.page_context import PageContext

EXPECTED = "expected"
"""The name of the column of what is expected."""
CHOSEN = "-"
"""Beside chosen names: that nothing else is shown."""
_QUICK_BYTES = 200_000
"""A larger dataset is read in the background."""
_FIRST_CASES = 100
"""Cases of which it depends what is shown without a choice, whichever are on the page."""
_MOST_CHARS = 4_000
"""Of a value, from which its beginning is shown."""


class ValueColumns(NamedTuple):
    """The values of cases as columns."""

    names: tuple[str, ...] = ()
    """What there is to choose from: the inputs, and `expected` if a case has it."""
    shown: tuple[str, ...] = ()
    usual: tuple[str, ...] = ()
    """What is shown without a choice."""
    rows: Mapping[str, Mapping[str, str]] = {}
    """Values by case and name; a case that has changed since the run has none."""
    waiting: bool = False
    """Whether they are still being read."""

    def at(self, case: str, name: str) -> str | None:
        """Return a value of a case as text; None if it is unknown, or the case has none."""
        return self.rows.get(case, {}).get(name)


def values_of_cases(
    context: PageContext, run: Run, cases: Sequence[str], chosen: tuple[str, ...] = ()
) -> ValueColumns:
    """Return the values of cases of a run; without a choice, what tells the cases apart.

    Nothing is shown where the files of the project are missing, or too large to be searched.
    """
    project = project_of(context)
    if project is None or not cases or not searchable(project, run.experiment):
        return ValueColumns()
    experiment = project.experiments[run.experiment]
    hashes = case_hashes(context.connection, run.id, cases)
    files, quick = case_files(project, experiment)
    found = context.computed(
        lambda own: (
            unchanged_cases(project, experiment, hashes),
            usual_columns(project, experiment),
        ),
        *("cases", run.id, tuple(hashes.items()), files),
        cells=0 if quick else MOST_CELLS,
    )
    return ValueColumns(waiting=True) if found is None else columns_of(*found, chosen)


def case_files(project: Project, experiment: Experiment) -> tuple[tuple[int, ...], bool]:
    """Return when the files of cases were changed, and whether they are read in no time.

    What is redacted in cases is up to the files of the project and the experiment, so they count.
    """
    paths = ("edison.yaml", experiment.path, *(entry.path for entry in experiment.file.data))
    files = [(project.root / path).stat() for path in paths]
    times = tuple(file.st_mtime_ns for file in files)
    return times, sum(file.st_size for file in files) <= _QUICK_BYTES


def columns_of(
    cases: Mapping[str, Case], usual: Collection[str], chosen: Collection[str]
) -> ValueColumns:
    """Return the values of cases as columns: those that are chosen, or the usual ones."""
    rows = {name: _values(case) for name, case in cases.items()}
    names = tuple(dict.fromkeys(name for row in rows.values() for name in row if name != EXPECTED))
    names += tuple({EXPECTED for row in rows.values() if EXPECTED in row})
    shown = chosen or usual
    return ValueColumns(names, tuple(name for name in names if name in shown), tuple(usual), rows)


def usual_columns(project: Project, experiment: Experiment) -> tuple[str, ...]:
    """Return the input that differs most between the first cases, and what is expected."""
    texts: dict[str, set[str]] = {}
    try:
        for case in islice(project.cases(experiment), _FIRST_CASES):
            for name, value in case.inputs.items():
                texts.setdefault(name, set()).add(plain_text(value))
    except (Fault, EdisonError):
        return ()
    most = max(texts, key=lambda name: (len(texts[name]), sum(map(len, texts[name]))), default=None)
    return (EXPECTED,) if most is None else (most, EXPECTED)


def _values(case: Case) -> dict[str, str]:
    values = {**case.inputs, **({} if case.expected is None else {EXPECTED: case.expected})}
    return {name: redacted(as_text(value))[:_MOST_CHARS] for name, value in values.items()}
