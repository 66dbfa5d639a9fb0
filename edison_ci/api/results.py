"""Runs from Python: start, resume, regrade and read them, and render reports."""

from __future__ import annotations

import contextlib
import weakref
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.access.site import Role, Site
from edison_ci.api.evaluation import (
    GradingRequest,
    ResumeRequest,
    RunOrder,
    RunRequest,
    evaluate,
    regrade_run,
    resume_run,
    select_experiments,
)
from edison_ci.api.recordings import Recording
from edison_ci.api.reports import details_of
from edison_ci.api.sessions import SessionFactory, require_editor
from edison_ci.errors import UsageError
from edison_ci.execute.run_options import RunOptions
from edison_ci.report.files import Sources
from edison_ci.report.html import result_html
from edison_ci.report.reporters import rendered, reporter
from edison_ci.results.cells import Cells, cases_of
from edison_ci.results.report import report_of
from edison_ci.results.run_result import RunResult
from edison_ci.results.stored_runs import current_run
from edison_ci.store.database import open_for_reading, open_reader
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Project
    from edison_ci.store.runs import Run


def run(
    project: Project,
    experiments: Sequence[str] = (),
    *,
    against: str | None = None,
    options: RunOptions | None = None,
    factory: SessionFactory | None = None,
) -> list[Result]:
    """Evaluate experiments, all by default, and return the result of each run.

    With `against`, a Git ref, head and base are measured on the same cases and gates compare them.
    """
    require_editor(project, "run")
    request = RunRequest(
        tuple(select_experiments(project, experiments)),
        against,
        options or RunOptions(trigger="library"),
        factory or SessionFactory(),
    )
    return [result(project, end.run_id) for end in evaluate(project, request)]


def replay(
    project: Project, recording: str | Path, experiments: Sequence[str] = ()
) -> list[Result]:
    """Evaluate experiments with the answers of a recording, without model calls."""
    require_editor(project, "run")
    order = RunOrder(
        tuple(select_experiments(project, experiments)),
        recording=Recording.open(project, Path(recording)),
    )
    ended = evaluate(project, order.request(SessionFactory()))
    return [result(project, outcome.run_id) for outcome in ended]


def resume(
    project: Project,
    wanted: str = "latest",
    *,
    budget_microusd: int | None = None,
    factory: SessionFactory | None = None,
) -> Result:
    """Resume a stopped run; `budget_microusd` is the budget of the whole run."""
    stored = result(project, wanted).run
    request = ResumeRequest(budget_microusd)
    ended = resume_run(project, stored, request, factory or SessionFactory())
    return result(project, ended.run_id)


def regrade(
    project: Project,
    wanted: str = "latest",
    *,
    options: RunOptions | None = None,
    factory: SessionFactory | None = None,
) -> Result:
    """Grade the stored answers of a run with the current checks, rubric and judges."""
    chosen = options or RunOptions()
    request = GradingRequest(
        chosen.budget_microusd, chosen.allow_code, chosen.wait, reuse=chosen.reuse
    )
    ended = regrade_run(project, wanted, request, factory or SessionFactory())
    return result(project, ended.run_id)


class Result(RunResult):
    """The result of a run with an open connection; parts are read lazily."""

    def __init__(self, project: Project, run: Run) -> None:
        connection = open_reader(project.root / project.file.results)
        super().__init__(connection, run)
        weakref.finalize(self, connection.close)

    def _repr_html_(self) -> str:
        """Return the run as HTML for a notebook."""
        return result_html(self)


def result(project: Project, wanted: str = "latest") -> Result:
    """Return the result of a run, by id, `latest` or the name of an experiment.

    A run whose process has died is paused.
    """
    with contextlib.closing(open_reader(project.root / project.file.results)) as reader:
        run = find_run(reader, wanted)
    return Result(project, current_run(project.root / ".edison" / "locks", run))


def render_report(project: Project, wanted: str = "latest", *, format: str = "md") -> str:
    """Render the report of a run as text, in a format of `edison report` or of a plugin."""
    site = Site(project.root, project.file)
    if reporter(format).texts:
        site.require(Role.VIEWER, f"report --format {format}")
    viewer = site.actor().may(Role.VIEWER)
    with open_for_reading(project.root / project.file.results) as reader:
        report = report_of(reader, [result(project, wanted).run])
        private = project.file.settings.private
        sources = Sources(
            cases=lambda view: cases_of(reader, view),
            reasons=not private,
            cells=Cells(reader, texts=not private),
            details=partial(details_of, project, report, quotes=viewer),
        )
        content = rendered(report, format, sources)
        if isinstance(content, bytes):
            hint = "write it to a file: edison report --out FILE"
            raise UsageError(f"the format {format!r} is binary", hint=hint)
        return "".join(content)
