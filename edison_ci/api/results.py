"""Results: what runs found, and reports on them."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING

from edison_ci.report.html.page import result_html
from edison_ci.report.writing import Sources, rendered
from edison_ci.results.cells import Cells, cases_of
from edison_ci.results.report import report_of
from edison_ci.results.run_result import RunResult
from edison_ci.store.database import open_reader, reading
from edison_ci.store.owners import is_alive
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.store.runs import Run


class Result(RunResult):
    """A run with its results open: what was not read yet is read when it is asked for."""

    def __init__(self, project: Project, run: Run) -> None:
        connection = open_reader(project.root / project.file.results)
        super().__init__(connection, run)
        weakref.finalize(self, connection.close)

    def _repr_html_(self) -> str:
        """Return the run as a notebook shows it."""
        return result_html(self, Cells(self.connection).failing(self))


def result(project: Project, wanted: str = "latest") -> Result:
    """Return what a run found, by id, `latest` or the name of an experiment.

    A run whose process died is shown as paused.
    """
    with contextlib.closing(open_reader(project.root / project.file.results)) as reader:
        found = find_run(reader, wanted)
    locks = project.root / ".edison" / "locks"
    seen = found.as_seen(alive=found.owner is not None and is_alive(locks, found.owner))
    return Result(project, seen)


def render_report(project: Project, wanted: str = "latest", *, format: str = "md") -> str:
    """Return the report on a run as Markdown (`md`), `json`, `junit` or `sarif`."""
    with reading(project.root / project.file.results) as reader:
        found = report_of(reader, [result(project, wanted).run])
        private = project.file.settings.private
        sources = Sources(cases=lambda view: cases_of(reader, view), reasons=not private)
        return rendered(found, format, sources)
