"""The table of cases on the page of a dataset: search, slices, and links to their answers."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.config.case_facts import NONE, SIZES, length_of, level_of, words_in
from edison_ci.documents.marks import Fault
from edison_ci.errors import EdisonError
from edison_ci.records import plain_text
from edison_ci.results.case_grid import case_results
from edison_ci.safety.redaction import keep_text, redact_case, redactor
from edison_ci.web.page_context import MOST_CELLS, PER_PAGE
from edison_ci.web.pages.case_values import ValueColumns, case_files, columns_of, usual_columns
from edison_ci.web.workspace import project_of, searchable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from edison_ci.config.load import Project
    from edison_ci.records import Case
    from edison_ci.results.case_grid import CaseResult
    from edison_ci.web.page_context import Args, PageContext

_ORDER = {"difficulty": ("easy", "medium", "hard", NONE), "length": SIZES}
_MOST_CHOICES = 100


def slices_of(case: Case) -> dict[str, tuple[str, ...]]:
    """Return the values of a case by the dimension of a slice."""
    return {
        "kind": (str(case.kind),),
        "difficulty": (level_of(case.difficulty),),
        "length": (length_of(words_in(case)),),
        "tag": case.tags or (NONE,),
    }


class CaseFilter(NamedTuple):
    """Which cases are listed, and which values of them."""

    text: str
    slices: tuple[tuple[str, str], ...]
    """Dimensions and values that a case must have."""
    page: int
    shown: tuple[str, ...]

    @classmethod
    def of(cls, args: Args) -> CaseFilter:
        """Return the filter in the arguments of an address."""
        slices = ((name, args.text(name)) for name in ("kind", "difficulty", "length", "tag"))
        shown = tuple(name for part in args.texts("show") for name in part.split(","))
        return cls(
            args.text("q"), tuple(pair for pair in slices if pair[1]), args.whole("at", 1), shown
        )

    @property
    def args(self) -> dict[str, str]:
        """The arguments of its address, without the page."""
        return {"q": self.text, **dict(self.slices), "show": ",".join(self.shown)}


class CaseTable(NamedTuple):
    """A page of the cases of a dataset."""

    cases: tuple[Case, ...]
    total: int
    """Cases that fit the filter."""
    page: int
    choices: Mapping[str, list[tuple[str, int]]]
    """The values of each dimension with the number of cases, of all cases."""
    columns: ValueColumns
    results: Mapping[str, CaseResult]
    """What the run found of these cases."""
    searches_texts: bool


def case_table(
    context: PageContext, name: str, run_id: str, filters: CaseFilter
) -> CaseTable | None:
    """Return the cases of an experiment's dataset; None while they are read.

    Raises LookupError where the files are missing, invalid or too large.
    """
    project = project_of(context)
    if project is None or not searchable(project, name):
        raise LookupError(name)
    files, quick = case_files(project, project.experiments[name])
    return context.computed(
        lambda own: _read(own, project, name, run_id, filters),
        *("cases of", name, run_id, filters, files),
        cells=0 if quick else MOST_CELLS,
    )


def _read(
    context: PageContext, project: Project, name: str, run_id: str, filters: CaseFilter
) -> CaseTable:
    redact = redactor(project.file.settings)
    plain = redact is keep_text  # a search in texts that are redacted would find what is hidden
    fits = partial(_fits, filters=filters, text=filters.text.casefold(), in_texts=plain)
    usual = usual_columns(project, project.experiments[name])
    try:
        cases, total, page, counts = _page(project.cases(project.experiments[name]), filters, fits)
    except (Fault, EdisonError) as error:
        raise LookupError(name) from error
    shown = tuple(redact_case(case, redact) for case in cases)
    return CaseTable(
        shown,
        total,
        page,
        {dimension: _choices(dimension, values) for dimension, values in counts.items()},
        columns_of({case.id: case for case in shown}, usual, filters.shown),
        case_results(context.connection, run_id, [case.id for case in shown]),
        plain,
    )


def _page(
    cases: Iterable[Case],
    filters: CaseFilter,
    fits: Callable[[Case, dict[str, tuple[str, ...]]], bool],
) -> tuple[list[Case], int, int, dict[str, Counter[str]]]:
    """Return the cases of the page, how many fit, the number of the page, and all slices."""
    counts: dict[str, Counter[str]] = {}
    rows: list[Case] = []
    last: list[Case] = []
    total, first = 0, (filters.page - 1) * PER_PAGE
    for case in cases:
        slices = slices_of(case)
        for dimension, values in slices.items():
            counts.setdefault(dimension, Counter()).update(values)
        if not fits(case, slices):
            continue
        if total % PER_PAGE == 0:
            last = []
        last.append(case)
        if first <= total < first + PER_PAGE:
            rows.append(case)
        total += 1
    if rows or not total:
        return rows, total, filters.page, counts
    return last, total, -(-total // PER_PAGE), counts  # beyond the end is the last page


def _fits(
    case: Case,
    slices: dict[str, tuple[str, ...]],
    *,
    filters: CaseFilter,
    text: str,
    in_texts: bool,
) -> bool:
    if any(value not in slices[dimension] for dimension, value in filters.slices):
        return False
    if not text or any(text in part.casefold() for part in (case.id, *case.tags)):
        return True
    values = (*case.inputs.values(), case.expected) if in_texts else ()
    return any(text in plain_text(value).casefold() for value in values if value is not None)


def _choices(dimension: str, counts: Counter[str]) -> list[tuple[str, int]]:
    order = _ORDER.get(dimension)
    if order is None:
        return counts.most_common(_MOST_CHOICES)
    return [(value, counts[value]) for value in order if value in counts]
