"""The datasets: which kinds of cases are there, how good are they, and what is wrong with them?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.config.facets import content_hash
from edison_ci.documents.marks import Fault
from edison_ci.errors import EdisonError
from edison_ci.frozen import dataclass
from edison_ci.report.datasette_plugin.looking import Crumb, Look, Page, Paging
from edison_ci.report.datasette_plugin.pages.experiment import named
from edison_ci.report.datasette_plugin.remembering import AGAIN_S, aside, remembered
from edison_ci.report.datasette_plugin.runs import AT_ONCE, MOST_CELLS
from edison_ci.report.datasette_plugin.workspace import project_of, searchable
from edison_ci.results.comparable import measured_experiments
from edison_ci.results.dataset_health import (
    Flakiness,
    Health,
    QuestionQuality,
    examine,
    flakiness_of,
    quality_of,
    weigh,
)
from edison_ci.results.run_lists import cases_of, cells_of, experiments, last_of
from edison_ci.store.questions import scores_of
from edison_ci.store.runs import NO_TRIAL

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.config.load import Project

_AT_ONCE_BYTES = 200_000
_KINDS = ("kind", "difficulty", "length", "tag")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is known of the cases of an experiment."""

    health: Health | None
    """None where the dataset is not at hand or too large."""
    flaky: Flakiness | None
    quality: QuestionQuality


def datasets(look: Look) -> Page:
    """Return the experiments with what is known of their cases."""
    found = []
    for name in experiments(look.connection):
        total = cases_of(look.connection, _newest(look.connection, name))
        (judged,) = look.connection.execute(
            "select count(distinct case_id) from question_score where experiment = ?", (name,)
        ).fetchone()
        found.append({"name": name, "cases": total, "judged": judged})
    return Page("datasets", "Datasets", {"datasets": found}, area="datasets")


def dataset(look: Look) -> Page:
    """Return the cases of an experiment: kinds, question quality and health."""
    name = named(look)
    run_id = _newest(look.connection, name)
    known = _diagnosis(look, name, run_id)
    found = known or Diagnosis(None, None, quality_of([], _any))
    paging = Paging.of(look.args, len(found.quality.questions))

    def again(**changes: Any) -> str:
        return look.links.to("dataset", name, **changes)

    return Page(
        "dataset",
        f"Dataset of {name}",
        {
            "experiment": name,
            "run_id": run_id,
            "kinds": _kinds(look.connection, run_id),
            "waiting": known is None,
            "health": found.health,
            "flaky": found.flaky,
            "quality": found.quality,
            "questions": found.quality.questions[paging.offset : paging.offset + paging.per_page],
            "paging": paging,
            "again": again,
        },
        crumbs=(Crumb("Datasets", look.links.to("datasets")),),
        area="datasets",
        refresh_s=AGAIN_S if known is None else None,
    )


def _newest(connection: sqlite3.Connection, name: str) -> str:
    """Return the newest whole run, else the newest."""
    if name in measured_experiments(connection):
        row = connection.execute(
            "select id from run where experiment = ? and complete = 1 "
            f"order by {NO_TRIAL} desc, partial, created_at desc, rowid desc limit 1",
            (name,),
        ).fetchone()
        return str(row[0])
    return last_of(connection, name)


def _kinds(connection: sqlite3.Connection, run_id: str) -> dict[str, list[tuple[str, int]]]:
    rows = connection.execute(
        "select facet, value, cases from rollup_facet where run_id = ? and side = 'head' "
        "and prompt = '' and model = '' order by cases desc, value",
        (run_id,),
    )
    found: dict[str, list[tuple[str, int]]] = {kind: [] for kind in _KINDS}
    for facet, value, cases in rows:
        found.setdefault(facet, []).append((value, cases))
    return {kind: values for kind, values in found.items() if values}


def _diagnosis(look: Look, name: str, run_id: str) -> Diagnosis | None:
    """Return what is known of the cases; None while it is worked out."""
    project = project_of(look)
    if project is None or not searchable(project, name):
        return Diagnosis(None, None, quality_of(scores_of(look.connection, name), _any))
    newest = look.connection.execute(
        "select max(judged_at) from question_score where experiment = ?", (name,)
    ).fetchone()[0]
    files = [(project.root / e.path).stat() for e in project.experiments[name].file.data]
    stamps = tuple(file.st_mtime_ns for file in files)
    cells = cells_of(look.connection, name)
    key = ("dataset", look.links.database, str(look.root), name, run_id, newest, stamps)

    def work(own: Look) -> Diagnosis:
        return _work(own, project, name, small=cells <= MOST_CELLS)

    quick = cells <= AT_ONCE and sum(file.st_size for file in files) <= _AT_ONCE_BYTES
    if look.patient or quick:
        return remembered(key, lambda: work(look))
    return aside(look, key, work)


def _any(case: str, content: str) -> bool:
    del case, content
    return True  # nobody can say whether the case has changed since


def _work(look: Look, project: Project, name: str, *, small: bool) -> Diagnosis:
    experiment = project.experiments[name]
    try:
        examined = examine(lambda: project.cases(experiment), content_hash)
    except (Fault, EdisonError, OSError):
        return Diagnosis(None, None, quality_of(scores_of(look.connection, name), _any))
    quality = quality_of(scores_of(look.connection, name), examined.has)
    if not small:
        return Diagnosis(examined.health, None, quality)
    return Diagnosis(
        weigh(look.connection, name, examined), flakiness_of(look.connection, name), quality
    )
