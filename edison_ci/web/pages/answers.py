"""The pages of answers: one answer with its grade, and the answers to a case side by side."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.access.site import Role
from edison_ci.api.try_grid import find_try
from edison_ci.documents.secrets import redacted
from edison_ci.documents.text_diff import matcher
from edison_ci.errors import UsageError
from edison_ci.records import CellStatus, Side
from edison_ci.report.markup import element, join
from edison_ci.results.case_grid import (
    CaseAnswer,
    answers_to,
    case_kind,
    neighbouring_cases,
    sibling_cell,
)
from edison_ci.results.case_query import ListedCase, place_in_list
from edison_ci.results.explanation import CellExplanation, explain
from edison_ci.results.run_result import labels_of
from edison_ci.results.sent_prompt import sent_prompt
from edison_ci.web.page_context import (
    SHOWN_ID,
    Crumb,
    Page,
    PageContext,
    requested_cell,
    requested_run,
)
from edison_ci.web.pages.run import case_query, count_cache, crumbs_of, list_args
from edison_ci.web.workspace import project_of, searchable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from markupsafe import Markup

    from edison_ci.api.try_grid import TryGrid
    from edison_ci.config.rubric import Criterion
    from edison_ci.store.cells import CellRow, Component
    from edison_ci.store.judgments import JudgeScoreRow
    from edison_ci.store.manual_grades import ManualGrade
    from edison_ci.store.runs import Run


def cell(context: PageContext) -> Page:
    """Return an answer: input, output, grade, and how the grade came about."""
    run, row = requested_cell(context, context.path["cell"])
    project, searched = project_of(context), searchable(project_of(context), run.experiment)
    explained = explain(context.connection, project if searched else None, run, row)
    siblings = answers_to(context.connection, run.id, row.case_id)
    near = _neighbours(context, run, row.case_id)

    def neighbour(listed: ListedCase | None) -> str | None:
        """Return the address of the answer to a case of the list."""
        other = listed and sibling_cell(context.connection, row, listed.case)
        if listed is None or other is None:
            return None
        return context.links.to("cell", other[:SHOWN_ID], **near.args(listed.page))

    return Page(
        "cell",
        f"{row.case_id} with {row.model}, {run.experiment}",
        {
            **_case_values(context, run, row.case_id, near, neighbour),
            "cell": row,
            "known": explained,
            "sent": sent_prompt(project, explained),
            "word": next(sibling.word for sibling in siblings if sibling.id == row.id),
            "label": run.labels.get(row.prompt) if row.side == Side.HEAD else None,
            "siblings": siblings,
            "others": [sibling for sibling in siblings if sibling.id != row.id],
            "reasons": reasons_of(explained),
            "raw_differs": _raw_differs(explained),
            "own": feature.ask("own_grade", context, run, row, explained.people),
            "rerun": requested_rerun(context, row),
            "messages": context.messages,
            "missing_case": _why_no_case(context, explained, searched),
        },
        crumbs=_crumbs(context, run, near),
        area="home",
    )


@dataclass(frozen=True, slots=True)
class OwnGrade:
    """The visitor's grade of an answer, and the criteria they can score."""

    mine: ManualGrade | None
    """Their latest grade."""
    criteria: Sequence[Criterion]


@dataclass(frozen=True, slots=True)
class _Way:
    """The way to the previous and the next case, along the list that the page was opened from."""

    before: ListedCase | None
    after: ListedCase | None
    words: str = ""
    """Place in the list; empty if the page was not opened from a list."""
    listed: dict[str, Any] = field(default_factory=dict)
    page: int = 0

    def args(self, page: int | None = None) -> dict[str, Any]:
        """Return the arguments of an address that lead along the list, from a page of it."""
        return {**self.listed, "page": page or self.page} if self.page else {}


def _neighbours(context: PageContext, run: Run, case: str) -> _Way:
    """Return the way along the list in the address; without one, by name."""
    if not context.args.text("page"):
        near = neighbouring_cases(context.connection, run.id, case)
        before, after = (None if name is None else ListedCase(name, 0) for name in near)
        return _Way(before, after)
    query, page = case_query(context.args), context.args.whole("page", 1)
    remember = count_cache(context, run)
    place = place_in_list(context.connection, run.id, query, case, remember)
    words = f"{place.position:,} of {place.total:,}" if place.position else "not in the list now"
    return _Way(place.before, place.after, words, list_args(query), page)


def _case_values(
    context: PageContext,
    run: Run,
    case: str,
    way: _Way,
    address: Callable[[ListedCase | None], str | None],
) -> dict[str, Any]:
    """Return the values of every page about a case; `address` leads to a case of the list."""
    return {
        "run": run,
        "marks": labels_of(run),
        "facts": case_kind(context.connection, run.id, case),
        "before": address(way.before),
        "after": address(way.after),
        "place": way.words,
        "listed": way.args(),
    }


def _crumbs(context: PageContext, run: Run, way: _Way) -> tuple[Crumb, ...]:
    """Return the breadcrumbs of a page about a case; the last one leads back to the list."""
    back = context.links.to("run", run.id, **way.args()) + ("#cases" if way.page else "")
    return crumbs_of(context, run, Crumb(f"run {run.id}", back))


class Reason(NamedTuple):
    """A component of a grade, with what its judges said."""

    component: Component
    judges: tuple[JudgeScoreRow, ...]

    @property
    def word(self) -> str:
        """Outcome in a word."""
        component = self.component
        if component.status != CellStatus.OK:
            return str(component.status)
        if component.kind in ("safety", "flag"):
            return "flag"
        if component.passed is None:
            return "scored"
        return "pass" if component.passed else "fail"


def reasons_of(explained: CellExplanation) -> list[Reason]:
    """Return the components of a grade, failing ones first."""
    return grade_reasons(explained.cell, explained.judge_scores)


def grade_reasons(cell: CellRow, judge_scores: Iterable[JudgeScoreRow]) -> list[Reason]:
    """Return the components of a cell with what judges said, failing ones first."""
    judges: dict[str, list[JudgeScoreRow]] = {}
    for judge_score in judge_scores:
        judges.setdefault(judge_score.criterion, []).append(judge_score)
    reasons = [
        Reason(
            component,
            tuple(judges.get(component.name, ())) if component.kind == "criterion" else (),
        )
        for component in cell.components
    ]
    return sorted(reasons, key=lambda component: _URGENCY.get(component.word, 1))


_URGENCY = {"error": 0, "fail": 0, "flag": 0, "pass": 2}
"""Order of outcomes in a list of reasons."""


def _raw_differs(explained: CellExplanation) -> bool:
    """Whether the text of an answer is not what is graded."""
    return (
        explained.output is not None
        and explained.output.raw.strip() != explained.output.text.strip()
    )


def _why_no_case(context: PageContext, explained: CellExplanation, searched: bool) -> str:
    """Return why the input is not shown; empty if it is."""
    if explained.case is not None:
        return ""
    if context.root is None:
        return "The project files with the inputs are not available here."
    if not searched:
        command = f"edison explain {explained.cell.id[:SHOWN_ID]}"
        return f"The dataset is too large to search here: {command}"
    return "The case was changed or removed after the run, so its input is unknown."


_WORDS = re.compile(r"(\S+)(\s*)")
MOST_WORDS = 3_000
"""The time of a comparison grows with the square of the length."""


def word_diff(before: str, after: str, *, most: int = MOST_WORDS) -> Markup | None:
    """Return the later text with insertions and deletions marked; None if one is too long.

    Whitespace is that of the later text; its changes are not shown.
    """
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if max(len(old), len(new)) > most:
        return None
    return join(_pieces(old, new))


def _pieces(old: list[tuple[str, str]], new: list[tuple[str, str]]) -> Iterator[Markup | str]:
    words = [word for word, _ in old], [word for word, _ in new]
    for tag, i1, i2, j1, j2 in matcher(*words).get_opcodes():
        removed, added = _text(old[i1:i2]), _text(new[j1:j2])
        if tag == "equal":
            yield added
            continue
        if removed.strip():
            yield element("del", removed.rstrip())
            yield " "
        if added.strip():
            yield element("ins", added.rstrip())
        yield added[len(added.rstrip()) :]


def _text(words: list[tuple[str, str]]) -> str:
    return "".join(word + blank for word, blank in words)


MOST = 4
"""Most answers side by side."""


@dataclass(frozen=True, slots=True)
class ComparedAnswerView:
    """One of the answers side by side."""

    about: CaseAnswer
    known: CellExplanation
    text: str
    changes: Markup | None
    """Word diff to the first answer; None for the first, or without `diff`."""
    own: OwnGrade | None
    """The visitor's grade; None if they may not grade."""

    @property
    def reasons(self) -> list[Reason]:
        """Why it has its grade."""
        return reasons_of(self.known)

    @property
    def flagged(self) -> bool:
        """Whether a person has flagged it."""
        return any(grade.flagged for grade in self.known.people if grade.origin is None)


def case(context: PageContext) -> Page:
    """Return up to four answers to a case side by side."""
    run = requested_run(context, context.path["run"])
    name = context.args.text("case")
    siblings = answers_to(context.connection, run.id, name)
    if not siblings:
        raise UsageError(
            f"run {run.id} has no case {name!r}", hint="open it from the page of the run"
        )
    selected = _selected_answers(siblings, context.args.texts("pick"))
    near = _neighbours(context, run, name)
    differ = context.args.flag("diff")
    compared = _compared_answers(context, run, selected, differ=differ)

    def again(**changes: Any) -> str:
        kept = {"case": name, "pick": context.args.texts("pick"), "diff": differ}
        return context.links.to("run", run.id, "case", **{**near.args(), **kept, **changes})

    def neighbour(listed: ListedCase | None) -> str | None:
        if listed is None:
            return None
        return again(case=listed.case, pick=[], page=listed.page or "")

    return Page(
        "case",
        f"{name}, {run.experiment}",
        {
            **_case_values(context, run, name, near, neighbour),
            "case": name,
            "siblings": siblings,
            "picks": context.args.texts("pick"),
            "selected": {answer.id for answer in selected},
            "compared": compared,
            "input": next((answer.known.case for answer in compared if answer.known.case), None),
            "differ": differ,
            "again": again,
            "most": MOST,
            "editable": context.may(Role.EDITOR) and project_of(context) is not None,
        },
        crumbs=_crumbs(context, run, near),
        area="home",
    )


def _selected_answers(siblings: list[CaseAnswer], picks: list[str]) -> list[CaseAnswer]:
    """Return the selected answers, or the first repeat of each prompt, model and side."""
    chosen = [answer for answer in siblings if answer.id[:SHOWN_ID] in picks]
    if not chosen:
        chosen = [answer for answer in siblings if answer.repeat == 0]
    if len(chosen) == 1:  # only further repeats to compare with
        chosen = siblings
    return chosen[:MOST]


def _compared_answers(
    context: PageContext, run: Run, selected: list[CaseAnswer], *, differ: bool
) -> list[ComparedAnswerView]:
    project = project_of(context)
    usable = project if searchable(project, run.experiment) else None
    views: list[ComparedAnswerView] = []
    for position, answer in enumerate(selected):
        # The case is the same for all answers, so it is read once.
        source = usable if position == 0 else None
        _, cell = requested_cell(context, answer.id)
        explained = explain(context.connection, source, run, cell)
        text = redacted(explained.text or "")
        changes = word_diff(views[0].text, text) if differ and views else None
        own = feature.ask("own_grade", context, run, explained.cell, explained.people)
        views.append(ComparedAnswerView(answer, explained, text, changes, own))
    return views


class Rerun(NamedTuple):
    """Whether the visitor may request another answer, and the one that was requested."""

    allowed: bool
    grid: TryGrid | None = None
    forgotten: bool = False
    """Whether the page names an answer whose grade is no longer in memory."""


def requested_rerun(context: PageContext, cell: CellRow) -> Rerun:
    """Return what a page shows about another answer for its cell."""
    actor = context.actor
    if actor is None or not context.may(Role.EDITOR):
        return Rerun(False)
    key = context.args.text("again")
    grid = find_try(key, actor.name) if key else None
    if grid is not None and grid.about != f"cell {cell.id[:12]}":
        grid = None
    return Rerun(cell.side == Side.HEAD, grid, bool(key) and grid is None)
