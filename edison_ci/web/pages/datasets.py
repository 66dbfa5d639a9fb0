"""The pages of datasets: kinds of cases, how good they are as questions, and their faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.config.facets import content_hash
from edison_ci.documents.marks import Fault
from edison_ci.errors import EdisonError
from edison_ci.results.dataset_health import (
    Flakiness,
    Health,
    QuestionQuality,
    examine,
    flakiness_of,
    quality_of,
    weigh,
)
from edison_ci.results.run_lists import cases_of, cells_of, experiments, last_whole
from edison_ci.results.run_result import RunResult
from edison_ci.store.questions import count_judged, last_judged, scores_of
from edison_ci.store.runs import find_run
from edison_ci.web.cache import AGAIN_S, aside, remembered
from edison_ci.web.page_context import AT_ONCE, MOST_CELLS, Crumb, Look, Page, Paging
from edison_ci.web.pages.experiment import named
from edison_ci.web.workspace import project_of, searchable

if TYPE_CHECKING:
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
        total = cases_of(look.connection, last_whole(look.connection, name))
        judged = count_judged(look.connection, name)
        found.append({"name": name, "cases": total, "judged": judged})
    return Page("datasets", "Datasets", {"datasets": found}, area="datasets")


def dataset(look: Look) -> Page:
    """Return the cases of an experiment: kinds, question quality and health."""
    name = named(look)
    run_id = last_whole(look.connection, name)
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
            "kinds": _kinds(RunResult(look.connection, find_run(look.connection, run_id))),
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


def _kinds(result: RunResult) -> dict[str, list[tuple[str, int]]]:
    """Return the slices of all cases of a run, with their sizes, by what they are cut by."""
    found: dict[str, list[tuple[str, int]]] = {kind: [] for kind in _KINDS}
    for each in result.breakdown.facets:
        if not each.prompt and not each.model:
            found.setdefault(each.facet, []).append((each.value, each.cases))
    return {kind: values for kind, values in found.items() if values}


def _diagnosis(look: Look, name: str, run_id: str) -> Diagnosis | None:
    """Return what is known of the cases; None while it is worked out."""
    project = project_of(look)
    if project is None or not searchable(project, name):
        return Diagnosis(None, None, quality_of(scores_of(look.connection, name), _any))
    newest = last_judged(look.connection, name)
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
