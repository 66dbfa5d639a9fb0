"""The pages of datasets: slices, health, discrimination and quality of the questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.case_facts import content_hash
from edison_ci.config.dataset_about import DatasetAbout
from edison_ci.documents.marks import Fault
from edison_ci.errors import EdisonError
from edison_ci.features.datasets.case_discrimination import discrimination_of
from edison_ci.features.datasets.case_table import CaseFilter, case_table
from edison_ci.features.datasets.health import (
    Health,
    QuestionQuality,
    examine,
    judged_cases,
    stored_quality,
    weigh,
)
from edison_ci.features.datasets.question_writers import board_of_writers, costs_by_writer
from edison_ci.numeric import snap
from edison_ci.report.charts.drawing import Unit
from edison_ci.report.charts.estimates import Range, interval
from edison_ci.report.charts.heatmap import Field, HeatMap, heatmap
from edison_ci.report.components import fluid_figure
from edison_ci.results.case_history import Flakiness, flakiness_of
from edison_ci.results.coverage import coverage_of
from edison_ci.results.run_lists import (
    FoundCase,
    cases_of,
    cells_of,
    experiments,
    find_cases,
    last_whole,
    tags_of,
)
from edison_ci.results.run_result import RunResult
from edison_ci.web.cache import REFRESH_S
from edison_ci.web.page_context import (
    MOST_CELLS,
    PER_PAGE,
    Args,
    Crumb,
    Page,
    PageContext,
    Paging,
    paged,
    requested_run,
)
from edison_ci.web.pages.experiment import requested_experiment
from edison_ci.web.workspace import project_of, searchable

if TYPE_CHECKING:
    from markupsafe import Markup

    from edison_ci.config.load import Project
    from edison_ci.features.datasets.case_discrimination import (
        CaseDiscrimination,
        DatasetDiscrimination,
    )
    from edison_ci.features.datasets.question_writers import WritersBoard
    from edison_ci.results.coverage import Coverage

_AT_ONCE_BYTES = 200_000
_NOTHING = DatasetAbout.model_construct()
_KINDS = ("kind", "difficulty", "length", "tag")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Health, flakiness, question quality and discrimination of the cases of an experiment."""

    health: Health | None
    """None if the dataset is not accessible or too large."""
    flaky: Flakiness | None
    quality: QuestionQuality
    apart: DatasetDiscrimination | None = None
    writers: WritersBoard | None = None
    """None if no case was generated."""
    coverage: Coverage | None = None


class DatasetFile(NamedTuple):
    """A file of cases of an experiment."""

    path: str
    kind: str
    about: DatasetAbout


@dataclass(frozen=True, slots=True)
class DatasetLine:
    """The cases of an experiment, in the list of datasets."""

    name: str
    files: tuple[DatasetFile, ...]
    cases: int | None
    """In the newest complete run; None before the first one."""
    tags: tuple[tuple[str, int], ...]
    judged: int

    def has(self, text: str) -> bool:
        """Whether a text is in the name, a file, a tag, or what is said about a file."""
        parts = [self.name, *(tag for tag, _ in self.tags)]
        parts += [part for file in self.files for part in (file.path, file.kind)]
        in_about = any(file.about.has(text) for file in self.files)
        return in_about or any(text in part.casefold() for part in parts)


def datasets(context: PageContext) -> Page:
    """Return the datasets of the experiments, by a text in their names, descriptions and tags."""
    text = context.args.text("q")
    ran, project = experiments(context.connection), project_of(context)
    names = dict.fromkeys([*ran, *(() if project is None else project.experiments)])
    lines = [_line(context, project, name, ran=name in ran) for name in sorted(names)]
    matching = [line for line in lines if line.has(text.casefold())]
    listing = paged(context, matching, "datasets", q=text)
    values = {"datasets": listing.rows, "q": text, "any": bool(lines), **listing.values}
    return Page("datasets", "Datasets", values, area="datasets")


def _line(context: PageContext, project: Project | None, name: str, *, ran: bool) -> DatasetLine:
    run_id = last_whole(context.connection, name) if ran else None
    return DatasetLine(
        name=name,
        files=_files(project, name),
        cases=None if run_id is None else cases_of(context.connection, run_id),
        tags=() if run_id is None else tuple(tags_of(context.connection, run_id)),
        judged=judged_cases(context.connection, name).cases,
    )


def _files(project: Project | None, name: str) -> tuple[DatasetFile, ...]:
    experiment = None if project is None else project.experiments.get(name)
    if project is None or experiment is None:
        return ()
    return tuple(
        DatasetFile(entry.path, entry.kind, project.abouts.get(entry.path, _NOTHING))
        for entry in experiment.file.data
    )


def dataset(context: PageContext) -> Page:
    """Return the dataset of an experiment: slices, question quality and health."""
    name = requested_experiment(context)
    run_id = last_whole(context.connection, name)
    ready = _diagnosis(context, name, run_id)
    diagnosis = ready or Diagnosis(None, None, QuestionQuality())
    paging = Paging.of(context.args, len(diagnosis.quality.questions))
    listed = _listed(context, name, run_id)
    order = context.args.choice("order", tuple(ORDERS))

    def again(**changes: Any) -> str:
        kept = {"order": "" if order == "best" else order, "cases": context.args.text("cases")}
        return context.links.to("dataset", name, **{**kept, **changes})

    return Page(
        "dataset",
        f"Dataset of {name}",
        {
            "experiment": name,
            "run_id": run_id,
            "files": _files(project_of(context), name),
            **listed,
            "kinds": _kinds(RunResult(context.connection, requested_run(context, run_id))),
            "waiting": ready is None,
            "health": diagnosis.health,
            "flaky": diagnosis.flaky,
            "quality": diagnosis.quality,
            "questions": diagnosis.quality.questions[
                paging.offset : paging.offset + paging.per_page
            ],
            "paging": paging,
            "again": again,
            "apart": diagnosis.apart,
            "writers": diagnosis.writers,
            "coverage": diagnosis.coverage,
            "coverage_map": None if diagnosis.coverage is None else _map(diagnosis.coverage),
            "orders": ORDERS,
            "order": order,
            **_cases(context, name, diagnosis.apart, order),
        },
        crumbs=(Crumb("Datasets", context.links.to("datasets")),),
        area="datasets",
        refresh_s=REFRESH_S if ready is None or listed["reading"] else None,
    )


def _listed(context: PageContext, name: str, run_id: str) -> dict[str, Any]:
    """Return the table of cases; without the files, the cases of the run by name or tag."""
    filters = CaseFilter.of(context.args)
    try:
        table = case_table(context, name, run_id, filters)
    except LookupError:
        return {"q": filters.text, "found": _found(context, name), "table": None, "reading": False}
    at = Paging(table.page, table.total) if table is not None else None

    def leafed(*, page: int) -> str:
        kept = {**filters.args, "at": page if page > 1 else ""}
        return f"{context.links.to('dataset', name, **kept)}#list"

    values = {"chosen": filters, "sliced": dict(filters.slices), "at": at, "leafed": leafed}
    return {"table": table, "reading": table is None, **values}


ORDERS = {
    "best": "the best first",
    "worst": "the worst first",
    "easy": "the easiest first",
    "case": "by name",
}
"""Orders of the cases by how far they tell models apart."""


class DiscriminatingCase(NamedTuple):
    """A case with its correlation as a chart."""

    of: CaseDiscrimination
    chart: Markup


def _cases(
    context: PageContext, name: str, apart: DatasetDiscrimination | None, order: str
) -> dict[str, Any]:
    """Return the page of cases by how far they tell apart; it turns apart from the questions."""
    ordered = _ordered(apart.cases if apart is not None else [], order)
    paging = Paging.of(Args({"page": [context.args.text("cases")]}), len(ordered))
    visible = ordered[paging.offset : paging.offset + paging.per_page]

    def turned(page: int) -> str:
        kept = {"order": "" if order == "best" else order, "page": context.args.text("page")}
        return f"{context.links.to('dataset', name, cases=page, **kept)}#apart"

    return {
        "cases_paging": paging,
        "turned": turned,
        "cases": [DiscriminatingCase(case, _chart(case)) for case in visible],
    }


def _ordered(cases: list[CaseDiscrimination], order: str) -> list[CaseDiscrimination]:
    if order == "best":
        return cases
    if order == "worst":
        measured = [case for case in cases if case.found.value is not None]
        return [*(case for case in cases if case.found.value is None), *reversed(measured)]
    if order == "easy":
        return sorted(cases, key=lambda case: (-snap(case.score), case.case))
    return sorted(cases, key=lambda case: case.case)


def _chart(case: CaseDiscrimination) -> Markup:
    low, high = case.found.interval or (None, None)
    return interval(
        Range(case.case, case.found.value, low, high, unit=Unit.CORRELATION, least=-1.0)
    ).svg


_TAGS = 20


def _map(coverage: Coverage) -> Markup | None:
    """Return the cases of each tag by difficulty as a heat map; None without tags."""
    rows = coverage.rows(_TAGS)
    if not rows:
        return None
    shades = tuple((tag, tuple(Field(float(n)) for n in counts)) for tag, counts in rows)
    names = tuple(f"difficulty {n}" for n in range(1, 6))
    most = 2.0 * coverage.at_least
    return fluid_figure(
        heatmap, HeatMap("Cases by tag and difficulty", names, shades, unit=Unit.COUNT, most=most)
    )


def _found(context: PageContext, name: str) -> list[FoundCase]:
    text = context.args.text("q")
    return find_cases(context.connection, name, text, most=PER_PAGE) if text else []


def _kinds(result: RunResult) -> dict[str, list[tuple[str, int]]]:
    """Return the slices of a run with their sizes, by dimension."""
    sizes: dict[str, list[tuple[str, int]]] = {kind: [] for kind in _KINDS}
    for part in result.breakdown.slices:
        if not part.prompt and not part.model:
            sizes.setdefault(part.dimension, []).append((part.value, part.cases))
    return {kind: values for kind, values in sizes.items() if values}


def _diagnosis(context: PageContext, name: str, run_id: str) -> Diagnosis | None:
    """Return the diagnosis of a dataset; None while it is computed."""
    project = project_of(context)
    if project is None or not searchable(project, name):
        return Diagnosis(None, None, stored_quality(context.connection, name))
    newest = judged_cases(context.connection, name).newest_at
    files = [(project.root / e.path).stat() for e in project.experiments[name].file.data]
    stamps = tuple(file.st_mtime_ns for file in files)
    cells = cells_of(context.connection, name)
    quick = sum(file.st_size for file in files) <= _AT_ONCE_BYTES
    return context.computed(
        lambda own: _work(own, project, name, small=cells <= MOST_CELLS),
        *("dataset", name, run_id, newest, stamps),
        cells=cells if quick else MOST_CELLS,
    )


def _work(context: PageContext, project: Project, name: str, *, small: bool) -> Diagnosis:
    experiment = project.experiments[name]
    try:
        examined = examine(lambda: project.cases(experiment), content_hash)
    except (Fault, EdisonError, OSError):
        return Diagnosis(None, None, stored_quality(context.connection, name))
    quality = stored_quality(context.connection, name, examined.has)
    coverage = coverage_of(project.cases(experiment), experiment.file.coverage)
    if not small:
        return Diagnosis(examined.health, None, quality, coverage=coverage)
    health = weigh(context.connection, name, examined)
    apart = discrimination_of(context.connection, name, examined.has)
    return Diagnosis(
        health,
        flakiness_of(context.connection, name),
        quality,
        apart,
        board_of_writers(
            name,
            project.cases(experiment),
            (quality, apart),
            costs_by_writer(context.connection, project),
        ),
        coverage,
    )
