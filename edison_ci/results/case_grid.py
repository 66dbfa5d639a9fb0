"""The grid of a run: its cases by prompts with models, filtered, sorted and searched, page by page.

A run may have a hundred thousand cases, so none of this goes through them all. Orders are indexes
of the sums of cases; filters are marks, lists of cases that were written when the run ended. Of
several lists the shortest is read and the others are searched by index. An order is followed
until the page is full, or, where few cases fit, these few are sorted. Only the cells of the cases
on the page are read.

A text is searched in the names of all cases, and in as many answers as there is time for; the grid
reports how many, and a query can search all of them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.numeric import mean_or_none
from edison_ci.records import CellStatus
from edison_ci.results.explanation import expected_form, failure_of
from edison_ci.results.rollups import Totals, totals_by_model
from edison_ci.results.scores import ComponentName
from edison_ci.store.answers import answer_at, answers_at
from edison_ci.store.cells import cells_by_id
from edison_ci.store.manual_grades import flagged_cells
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Hashable, Iterable, Sequence

    Remember = Callable[[Hashable, Callable[[], int]], int]
    """A cache: returns the number kept under a key, or works it out and keeps it."""

    from edison_ci.store.answers import CachedAnswer
    from edison_ci.store.cells import CellRow
    from edison_ci.store.runs import Run


_COLUMNS = "id, case_id, side, prompt, version, model, repeat, status, composite, passed"


class CaseAnswer(NamedTuple):
    """An answer to a case, without its text."""

    id: str
    """Of its cell."""
    case: str
    side: str
    prompt: str
    version: str
    model: str
    repeat: int
    status: str
    composite: float | None
    passed: int | None

    @property
    def word(self) -> str:
        """Outcome of the repeat."""
        if self.status != CellStatus.OK or self.passed is None:
            return "ungraded" if self.status == CellStatus.OK else self.status
        return "pass" if self.passed else "fail"


class CaseKind(NamedTuple):
    """What kind of case a case was in a run."""

    tags: tuple[str, ...]
    difficulty: int | None
    kind: str
    words: int


class Neighbours(NamedTuple):
    """What comes before and after something; None at either end."""

    before: str | None
    after: str | None


def answers_to(connection: sqlite3.Connection, run_id: str, case: str) -> list[CaseAnswer]:
    """Return every answer to a case in a run, head before base."""
    rows = connection.execute(
        f"select {_COLUMNS} from cell "
        "where run_id = ? and case_id = ? order by side desc, prompt, model, repeat",
        (run_id, case),
    )
    return [CaseAnswer(*row) for row in rows]


def case_kind(connection: sqlite3.Connection, run_id: str, case: str) -> CaseKind | None:
    """Return what kind of case a case of a run was; None if that was not stored."""
    row = connection.execute(
        "select tags, difficulty, kind, words from run_case where run_id = ? and case_id = ?",
        (run_id, case),
    ).fetchone()
    if row is None:
        return None
    tags, *rest = row
    return CaseKind(tuple(json.loads(tags)), *rest)


def neighbouring_cases(connection: sqlite3.Connection, run_id: str, case: str) -> Neighbours:
    """Return the cases of a run before and after a case, by name."""
    found = []
    for sign, order in (("<", "desc"), (">", "asc")):
        row = connection.execute(
            f"select case_id from run_case where run_id = ? and case_id {sign} ? "
            f"order by case_id {order} limit 1",
            (run_id, case),
        ).fetchone()
        found.append(None if row is None else str(row[0]))
    return Neighbours(*found)


def sibling_cell(connection: sqlite3.Connection, cell: CellRow, case: str) -> str | None:
    """Return the id of the answer to another case with the same prompt and model, if possible."""
    row = connection.execute(
        "select id from cell where run_id = ? and case_id = ? and side = ? "
        "order by model <> ?, prompt <> ?, repeat limit 1",
        (cell.run_id, case, cell.side, cell.model, cell.prompt),
    ).fetchone()
    return None if row is None else str(row[0])


METRICS = ("grade", "tokens", "cost", "latency")
SORTS = ("worst", "best", "name", "tokens", "cost", "latency")
"""Orders of cases, the usual one first; by an amount, from high to low."""
MOST_ANSWERS = 500
"""Answers in which a text is searched unless a query is `deep`."""
_LIVE_CELLS = 2_000
"""Cells of a running run that are read for its prompts and models."""

# --- the query ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CaseQuery:
    """Which cases of a run are wanted, in which order, and which of them at once."""

    side: str = "head"
    metric: str = "grade"
    """One of METRICS: the number that is shown of each answer."""
    sort: str = SORTS[0]
    """One of SORTS."""
    tag: str = ""
    prompt: str = ""
    """With `model`: the columns that are wanted; empty for all."""
    model: str = ""
    status: str = ""
    """Cases with a cell that ended so."""
    failed: bool = False
    """Cases that fail in `component`, or as a whole without one."""
    flagged: bool = False
    component: ComponentName | None = None
    """Whose scores are wanted beside the composite."""
    text: str = ""
    deep: bool = False
    """Whether the text is searched in every answer, however long that takes."""
    offset: int = 0
    """Cases before the page; beyond the end it is the last page."""
    limit: int = 20

    @property
    def filtered(self) -> bool:
        """Whether some cases may be left out."""
        return bool(self.tag or self.status or self.failed or self.flagged or self.text)

    def offset_in(self, total: int) -> int:
        """Return how many cases of a total come before the page."""
        return min(self.offset, max(total - 1, 0) // self.limit * self.limit)


# --- the grid -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RepeatResult:
    """One answer to a case, with a prompt and a model."""

    id: str
    number: int
    status: str
    composite: float | None
    passed: int | None
    cost_microusd: int | None
    tokens_in: int | None
    tokens_out: int | None
    latency_ms: int | None
    component: float | None
    """Score of the component in the query."""


@dataclass(frozen=True, slots=True)
class Box:
    """A case with a prompt and a model, over its repeats."""

    repeats: tuple[RepeatResult, ...]
    text: str | None = None
    """Beginning of its worst answer, as it is graded; None without one, or if it is withheld."""
    reason: str = ""
    """Why its worst answer does not pass; empty if it does."""

    @property
    def worst(self) -> RepeatResult:
        """The repeat that is shown: in error, failed, or else with the lowest score."""
        return worst_of(self.repeats)

    @property
    def word(self) -> str:
        """Outcome in a word: failed if any repeat fails."""
        statuses = [repeat.status for repeat in self.repeats]
        for status in (CellStatus.ERROR, CellStatus.BLOCKED, CellStatus.MALFORMED):
            if status in statuses:
                return status
        if set(statuses) == {CellStatus.SKIPPED}:
            return CellStatus.SKIPPED
        if any(repeat.passed == 0 for repeat in self.repeats):
            return "fail"
        return "pass" if any(repeat.passed == 1 for repeat in self.repeats) else "ungraded"

    @property
    def passes(self) -> int:
        """How many of its repeats pass."""
        return sum(repeat.passed == 1 for repeat in self.repeats)

    def mean(self, name: str) -> float | None:
        """Return the mean of a number over the repeats that have it."""
        values = [getattr(repeat, name) for repeat in self.repeats]
        return mean_or_none([value for value in values if value is not None])


def worst_of(repeats: Sequence[RepeatResult]) -> RepeatResult:
    """Return the worst of the answers to a case; of equal ones the first."""
    return min(
        repeats,
        key=lambda repeat: (
            repeat.status in (CellStatus.OK, CellStatus.SKIPPED),
            repeat.passed != 0,
            1.0 if repeat.composite is None else repeat.composite,
            repeat.number,
        ),
    )


@dataclass(frozen=True, slots=True)
class CaseRow:
    """A case."""

    case: str
    tags: tuple[str, ...]
    boxes: tuple[Box | None, ...]
    """One for each column; None where nothing was asked."""


@dataclass(frozen=True, slots=True)
class Column:
    """A prompt with a model."""

    prompt: str
    model: str
    version: str
    totals: Totals | None
    """None while the run goes on."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the filters of a query can name."""

    tags: tuple[str, ...]
    prompts: tuple[str, ...]
    models: tuple[str, ...]
    components: tuple[ComponentName, ...]
    sides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CaseGrid:
    """One page of the cases of a run."""

    query: CaseQuery
    columns: tuple[Column, ...]
    rows: tuple[CaseRow, ...]
    total: int
    """Cases that fit the query, on all pages."""
    choices: Choices
    settled: bool
    """Whether the sums are there that filters and sorting need."""
    searched: int | None
    """In the answers to how many cases a text was searched; None for all of them."""
    flagged: frozenset[str]
    """Cells that a person flagged for review."""

    def is_flagged(self, box: Box) -> bool:
        """Whether a person flagged an answer in a box for review."""
        return any(repeat.id in self.flagged for repeat in box.repeats)


def case_grid(
    connection: sqlite3.Connection,
    run_id: str,
    query: CaseQuery,
    remember: Remember | None = None,
) -> CaseGrid:
    """Return the page of cases of a query.

    Counts of cases that fit several filters are cached by `remember`, which must drop them when the
    rollups of the run are written again.
    """
    every = _columns(connection, run_id, query.side)
    settled = any(column.totals is not None for column in every)
    columns = tuple(
        column
        for column in every
        if query.prompt in ("", column.prompt) and query.model in ("", column.model)
    )
    if settled:
        found = find_cases(connection, run_id, query, remember)
    else:
        found = find_live_cases(connection, run_id, query)
    reader = _BoxReader(connection, find_run(connection, run_id), query, columns)
    return CaseGrid(
        query=query,
        columns=columns,
        rows=reader.rows(found.cases),
        total=found.total,
        choices=_choices(connection, run_id, every),
        settled=settled,
        searched=found.searched,
        flagged=frozenset(each.cell_id for each in flagged_cells(connection, run_id)),
    )


def _columns(connection: sqlite3.Connection, run_id: str, side: str) -> list[Column]:
    found = [
        Column(totals.prompt, totals.model, totals.version, totals)
        for totals in totals_by_model(connection, run_id, side)
    ]
    if found:
        return found
    rows = connection.execute(
        "select distinct prompt, model, version from (select prompt, model, version from cell "
        "where run_id = ? and side = ? limit ?) order by 1, 2",
        (run_id, side, _LIVE_CELLS),
    )
    return [Column(prompt, model, version, None) for prompt, model, version in rows]


_Repeats = tuple[list[RepeatResult], str, dict[str, tuple[str, int] | None]]
"""The repeats of a case in a column, the version of the prompt, and each cell's call."""


class _BoxReader:
    """Reads the cells of the cases on a page."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        run: Run,
        query: CaseQuery,
        columns: Sequence[Column],
    ) -> None:
        self._connection, self._run, self._query = connection, run, query
        self._places = {(each.prompt, each.model): at for at, each in enumerate(columns)}
        self._forms = {
            each.version: expected_form(run, None, query.side, each.version) for each in columns
        }

    def rows(self, cases: Sequence[str]) -> tuple[CaseRow, ...]:
        """Return cases with their answers."""
        wanted = json.dumps([*cases])
        found = self._repeats(wanted)
        worst = {key: worst_of(repeats) for key, (repeats, _, _) in found.items()}
        reasons = self._reasons(worst.values())
        calls = {key: found[key][2][each.id] for key, each in worst.items()}
        texts = answers_at(
            self._connection,
            [
                call
                for key, call in calls.items()
                if call is not None and worst[key].status != CellStatus.BLOCKED
            ],
        )
        tags = dict(
            self._connection.execute(
                "select case_id, tags from run_case where run_id = ? and case_id in "
                "(select value from json_each(?))",
                (self._run.id, wanted),
            )
        )

        def box(case: str, place: int) -> Box | None:
            key = case, place
            if key not in found:
                return None
            repeats, version, _ = found[key]
            call = calls[key]
            answer = texts.get(call) if call is not None else None
            form = self._forms.get(version, "none")
            reason = reasons.get(worst[key].id, "")
            return Box(tuple(repeats), beginning_of(answer, form), reason)

        return tuple(
            CaseRow(
                case,
                tuple(json.loads(tags[case])) if case in tags else (),
                tuple(box(case, place) for place in range(len(self._places))),
            )
            for case in cases
        )

    def _repeats(self, wanted: str) -> dict[tuple[str, int], _Repeats]:
        """Return the answers of cases by case and column."""
        component = self._query.component
        score, joined, named = "null", "", []
        if component is not None:
            score, named = "p.score", [component.kind, component.name]
            joined = "left join component p on p.cell_id = c.id and p.kind = ? and p.name = ? "
        cells = self._connection.execute(
            "select c.case_id, c.prompt, c.model, c.version, c.request_hash, c.answer_no, c.id, "
            "c.repeat, c.status, c.composite, c.passed, a.cost_microusd, a.tokens_in, "
            f"a.tokens_out, a.latency_ms, {score} from json_each(?) w "
            "cross join cell c on c.case_id = w.value left join answer a on "
            f"a.request_hash = c.request_hash and a.answer_no = c.answer_no {joined}"
            "where c.run_id = ? and c.side = ? order by c.repeat",
            (wanted, *named, self._run.id, self._query.side),
        )
        found: dict[tuple[str, int], _Repeats] = {}
        for case, prompt, model, version, request_hash, answer_no, *repeat in cells:
            place = self._places.get((prompt, model))
            if place is None:
                continue
            repeats, _, calls = found.setdefault((case, place), ([], version, {}))
            repeats.append(RepeatResult(*repeat))
            calls[repeat[0]] = None if answer_no is None else (request_hash, answer_no)
        return found

    def _reasons(self, worst: Iterable[RepeatResult]) -> dict[str, str]:
        """Return why answers fail, by cell."""
        failing = [each.id for each in worst if each.status != CellStatus.OK or each.passed == 0]
        cells = cells_by_id(self._connection, failing)
        return {name: failure_of(cell) for name, cell in cells.items()}


MOST_READ = 4_000
"""Characters of an answer from which its beginning is shown."""


def answer_beginning(connection: sqlite3.Connection, cell_id: str, form: str) -> str | None:
    """Return the beginning of an answer as it is graded: without thinking and tags.

    None if there is no text, or if it is withheld because the answer was blocked. `form` is what
    the prompt expects of an answer.
    """
    row = connection.execute(
        "select request_hash, answer_no from cell where id = ? and status <> 'blocked'", (cell_id,)
    ).fetchone()
    return beginning_of(None if row is None else answer_at(connection, *row), form)


def beginning_of(answer: CachedAnswer | None, form: str) -> str | None:
    """Return the beginning of a stored answer; see `answer_beginning`."""
    if answer is None:
        return None
    raw = answer.completion.text
    if form.endswith("json"):  # whether it is JSON makes no difference to what is shown
        form = form.removesuffix("json").removesuffix("+") or "none"
    output = parse_output(raw, form)
    return (raw if output.malformed else output.text)[:MOST_READ]


def _choices(connection: sqlite3.Connection, run_id: str, columns: Sequence[Column]) -> Choices:
    tags = connection.execute(
        "select value from rollup_slice where run_id = ? and side = 'head' and prompt = '' "
        "and model = '' and dimension = 'tag' and value <> '(none)' order by value",
        (run_id,),
    )
    components = connection.execute(
        "select distinct kind, name from rollup_component where run_id = ? "
        "and kind in ('criterion', 'check', 'grader') order by kind desc, name",
        (run_id,),
    )
    sides = connection.execute(
        "select side from rollup_run where run_id = ? order by side desc", (run_id,)
    )
    return Choices(
        tags=tuple(tag for (tag,) in tags),
        prompts=tuple(sorted({column.prompt for column in columns})),
        models=tuple(sorted({column.model for column in columns})),
        components=tuple(ComponentName(*component) for component in components),
        sides=tuple(side for (side,) in sides),
    )


# --- the place of a case in a list ----------------------------------------------------------------


class ListedCase(NamedTuple):
    """A case of a list, and the page of the list that it is on, from 1."""

    case: str
    page: int


class ListPlace(NamedTuple):
    """The place of a case in a list of cases: filtered and ordered."""

    position: int
    """From 1; 0 if the case has left the list since."""
    total: int
    before: ListedCase | None
    after: ListedCase | None


def place_in_list(
    connection: sqlite3.Connection,
    run_id: str,
    query: CaseQuery,
    case: str,
    remember: Remember | None = None,
) -> ListPlace:
    """Return the place of a case on the page of a query.

    A case that has left the list, for instance because its flag was removed, is followed by the
    first one of the page.
    """

    def page(offset: int) -> FoundCases:
        asked = replace(query, offset=offset)
        if settled:
            return find_cases(connection, run_id, asked, remember)
        return find_live_cases(connection, run_id, asked)

    settled = bool(totals_by_model(connection, run_id, query.side))
    found, limit = page(query.offset), query.limit
    offset = query.offset_in(found.total)
    number, before, after = offset // limit + 1, None, None
    if case not in found.cases:
        first = ListedCase(found.cases[0], number) if found.cases else None
        return ListPlace(0, found.total, None, first)
    at = found.cases.index(case)
    if at:
        before = ListedCase(found.cases[at - 1], number)
    elif offset:
        before = ListedCase(page(offset - limit).cases[-1], number - 1)
    if at + 1 < len(found.cases):
        after = ListedCase(found.cases[at + 1], number)
    elif offset + limit < found.total:
        after = ListedCase(page(offset + limit).cases[0], number + 1)
    return ListPlace(offset + at + 1, found.total, before, after)


# --- the cases that fit ---------------------------------------------------------------------------

_ORDERS = {
    "worst": ("worst", ("lowest", "composite", "case_id")),
    "best": ("best", ("-composite", "-case_id")),
    "tokens": ("tokens", ("-tokens", "-case_id")),
    "cost": ("cost", ("-cost_microusd", "-case_id")),
    "latency": ("latency", ("-latency_ms", "-case_id")),
}
"""The index of each order, and its columns; with a minus, from high to low. Where numbers are the
same, names run in the same direction, so that an index can be read either way."""
_MARK = "{0}.run_id = :run and {0}.side = :side and {0}.kind = :kind{1} and {0}.value = :value{1}"
_NAMED = "{case} like :name escape '~'"
_SAID = (
    "exists (select 1 from cell c join answer_text x on x.request_hash = c.request_hash and "
    "x.answer_no = c.answer_no "
    "where c.run_id = :run and c.case_id = {case} and c.side = :side and c.status <> 'blocked' "
    "and instr(lower(x.text), lower(:text)))"
)


_FLAGGED = "{case} in (select value from json_each(:flagged))"


class FoundCases(NamedTuple):
    """The cases of a page, and how many there are in all."""

    cases: list[str]
    total: int
    searched: int | None = None
    """In the answers to how many cases a text was searched; None for all of them."""


class _Mark(NamedTuple):
    """A list of cases."""

    kind: str
    value: str


def find_live_cases(connection: sqlite3.Connection, run_id: str, query: CaseQuery) -> FoundCases:
    """Return cases of a run that goes on: by name, as there are no sums yet."""
    where, about = "k.run_id = :run", {"run": run_id, "tag": query.tag, "name": _like(query.text)}
    if query.text:
        where += f" and {_NAMED.format(case='k.case_id')}"
    if query.tag:
        where += " and exists (select 1 from json_each(k.tags) j where j.value = :tag)"
    if query.flagged:
        where += f" and {_FLAGGED.format(case='k.case_id')}"
        about["flagged"] = json.dumps(_flagged(connection, run_id, query))
    (total,) = connection.execute(
        f"select count(*) from run_case k where {where}", about
    ).fetchone()
    rows = connection.execute(
        f"select k.case_id from run_case k where {where} order by k.case_id "
        "limit :most offset :offset",
        {**about, "most": query.limit, "offset": query.offset_in(total)},
    )
    return FoundCases([case for (case,) in rows], total)


def find_cases(
    connection: sqlite3.Connection,
    run_id: str,
    query: CaseQuery,
    remember: Remember | None = None,
) -> FoundCases:
    """Return cases of a run that has ended."""
    chosen = _Chosen(connection, run_id, query, remember)
    if not query.text:
        return FoundCases(chosen.page(), chosen.total)
    most = chosen.total if query.deep else chosen.cases_with(MOST_ANSWERS)
    fitting = chosen.with_text(most)
    offset = query.offset_in(len(fitting))
    shown = fitting[offset : offset + query.limit]
    return FoundCases(shown, len(fitting), most if most < chosen.total else None)


class _Chosen:
    """The cases of a side of a run that have all the marks of a query."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        run_id: str,
        query: CaseQuery,
        remember: Remember | None,
    ) -> None:
        self._connection, self._query = connection, query
        self._about: dict[str, Any] = {"run": run_id, "side": query.side, "text": query.text}
        self._about["name"] = _like(query.text)
        self._every = self._marked(_Mark("all", ""))
        self._listed = self._every
        """How many cases have the rarest of the marks."""
        self._marks = self._rarest_first(_marks(query))
        self.total = self._listed
        if query.flagged:  # these change after a run has ended, and are few
            flagged = _flagged(connection, run_id, query)
            self._about["flagged"] = json.dumps(flagged)
            self._listed = min(self._listed, len(flagged))
            self.total = self._count(self._from_marks())
        elif len(self._marks) > 1 or query.status == CellStatus.OK:
            key = ("cases", run_id, query.side, query.status, *_marks(query))
            count = partial(self._count, self._from_marks())
            self.total = count() if remember is None else remember(key, count)

    def cases_with(self, answers: int) -> int:
        """Return how many cases have that many answers in total."""
        (cells,) = self._connection.execute(
            "select coalesce(sum(cells), 0) from rollup_run where run_id = :run and side = :side",
            self._about,
        ).fetchone()
        return self.total if not cells else min(self.total, answers * self._every // cells)

    def page(self) -> list[str]:
        """Return the cases of the page; in the second half they are counted from the end."""
        limit, offset = self._query.limit, self._query.offset_in(self.total)
        after = max(self.total - offset - limit, 0)
        if offset <= after:
            return self._ordered(limit, offset)
        most = min(limit, self.total - offset)
        return self._ordered(most, after, backwards=True)[::-1]

    def with_text(self, searched: int) -> list[str]:
        """Return the cases with a text in their name, or in an answer to one of the first."""
        said = f"({_SAID} or {_NAMED})"
        if searched >= self.total:
            return self._ordered(-1, 0, also=said)
        first = self._ordered(searched, 0)
        about = dict(self._about)
        sql = f"select {said.format(case=':case')}"
        found = []
        for case in first:
            about["case"] = case
            if self._connection.execute(sql, about).fetchone()[0]:
                found.append(case)
        known = set(first)
        return found + [case for case in self._ordered(-1, 0, also=_NAMED) if case not in known]

    def _rarest_first(self, marks: Sequence[_Mark]) -> list[int]:
        """Name the marks in the values of queries; return their numbers, the rarest first."""
        counts = []
        for number, mark in enumerate(marks):
            self._about |= {f"kind{number}": mark.kind, f"value{number}": mark.value}
            counts.append(self._marked(mark))
        self._listed = min(counts, default=self._every)
        return sorted(range(len(marks)), key=counts.__getitem__)

    def _marked(self, mark: _Mark) -> int:
        """Return how many cases have a mark."""
        row = self._connection.execute(
            "select cases from rollup_marked where run_id = ? and side = ? and kind = ? "
            "and value = ?",
            (self._about["run"], self._about["side"], *mark),
        ).fetchone()
        return 0 if row is None else int(row[0])

    def _count(self, source: str) -> int:
        row = self._connection.execute(f"select count(*) from {source}", self._about).fetchone()
        return int(row[0])

    def _also(self, case: str, marks: Sequence[int]) -> str:
        """Return the condition that a case has further marks."""
        found = ""
        for number in marks:
            same = f"{_MARK.format('o', number)} and o.case_id = {case}"
            found += f" and exists (select 1 from rollup_mark o where {same})"
        if self._query.flagged:
            found += f" and {_FLAGGED.format(case=case)}"
        if self._query.status == CellStatus.OK:
            found += (
                " and exists (select 1 from rollup_case o where o.run_id = :run "
                f"and o.side = :side and o.case_id = {case} and o.ok > 0)"
            )
        return found

    def _from_marks(self) -> str:
        """Return where cases come from that have every mark, the rarest gone through."""
        if not self._marks:
            also = self._also("m.case_id", ())
            return f"rollup_case m where m.run_id = :run and m.side = :side{also}"
        mark = _MARK.format("m", self._marks[0])
        return f"rollup_mark m where {mark}{self._also('m.case_id', self._marks[1:])}"

    def _ordered(
        self, most: int, offset: int, *, backwards: bool = False, also: str = ""
    ) -> list[str]:
        query, limit = self._query, " limit :most offset :offset"
        more = f" and {also.format(case='{0}.case_id')}" if also else ""
        if query.sort == "name":
            order = "m.case_id desc" if backwards else "m.case_id"
            sql = f"select m.case_id from {self._from_marks()}{more.format('m')} order by {order}"
        else:
            index, columns = _ORDERS[query.sort]
            order = ", ".join(_term(column, backwards=backwards) for column in columns)
            # Number of cases that the order passes until the page is full.
            passed = (offset + most) * self._every / max(self.total, 1)
            if most >= 0 and passed > self._listed:
                sql = (
                    f"select k.case_id from {_joined(self._from_marks())}{more.format('k')} "
                    f"order by {order}"
                )
            else:
                sql = (
                    f"select k.case_id from rollup_case k indexed by rollup_case_{index} "
                    "where k.run_id = :run and k.side = :side"
                    f"{more.format('k')}{self._also('k.case_id', self._marks)} order by {order}"
                )
        rows = self._connection.execute(
            sql + limit, {**self._about, "most": most, "offset": offset}
        )
        return [case for (case,) in rows]


def _marks(query: CaseQuery) -> list[_Mark]:
    found = []
    if query.tag:
        found.append(_Mark("tag", query.tag))
    if query.failed:
        found.append(_Mark("failed", query.component.key if query.component else ""))
    if query.status not in ("", CellStatus.OK):
        found.append(_Mark("status", query.status))
    return found


def _flagged(connection: sqlite3.Connection, run_id: str, query: CaseQuery) -> list[str]:
    """Return the cases with an answer that a person flagged for review."""
    found = {each.case_id for each in flagged_cells(connection, run_id) if each.side == query.side}
    return sorted(found)


def _joined(source: str) -> str:
    """Return the same cases with their sums, read one by one."""
    table, _, rest = source.partition(" where ")
    return (
        f"{table} cross join rollup_case k where k.run_id = :run and k.side = :side "
        f"and k.case_id = m.case_id and {rest}"
    )


def _term(column: str, *, backwards: bool) -> str:
    """Return how to sort by a column; what has no number comes last, or backwards first."""
    name = column.removeprefix("-")
    down = column.startswith("-") is not backwards
    said = ""
    if name in ("lowest", "latency_ms") and down is backwards:  # else SQLite puts them there
        said = " nulls first" if down else " nulls last"
    return f"k.{name}{' desc' if down else ''}{said}"


def _like(text: str) -> str:
    """Return the pattern of names that have a text in them, in capitals or not."""
    plain = text.replace("~", "~~").replace("%", "~%").replace("_", "~_")
    return f"%{plain}%"
