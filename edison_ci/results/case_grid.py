"""The grid of a run: its cases by prompts with models, and single cases with their answers.

Only the cells of the cases on a page are read; `case_query` has which cases these are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.numeric import mean_or_none
from edison_ci.records import CellStatus
from edison_ci.results.case_query import CaseQuery, find_cases, find_live_cases
from edison_ci.results.components import ComponentName
from edison_ci.results.explanation import expected_form, failure_of
from edison_ci.results.scores import Totals, totals_by_model
from edison_ci.store.answers import answer_at, answers_at
from edison_ci.store.cells import cells_by_id
from edison_ci.store.judgments import judged_cells
from edison_ci.store.manual_grades import flagged_cells, own_grades
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from edison_ci.results.case_query import Remember
    from edison_ci.store.answers import CachedAnswer
    from edison_ci.store.cells import CellRow
    from edison_ci.store.manual_grades import ManualGrade
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
        return outcome_word(self.status, self.passed)


def outcome_word(status: str, passed: float | None) -> str:
    """Return the outcome of an answer in a word."""
    if status != CellStatus.OK or passed is None:
        return "ungraded" if status == CellStatus.OK else str(status)
    return "pass" if passed else "fail"


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
    """Return every answer to a case in a run, the base before the candidate."""
    rows = connection.execute(
        f"select {_COLUMNS} from cell "
        "where run_id = ? and case_id = ? order by prompt, model, side, repeat",
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
    neighbours = []
    for sign, order in (("<", "desc"), (">", "asc")):
        row = connection.execute(
            f"select case_id from run_case where run_id = ? and case_id {sign} ? "
            f"order by case_id {order} limit 1",
            (run_id, case),
        ).fetchone()
        neighbours.append(None if row is None else str(row[0]))
    return Neighbours(*neighbours)


def sibling_cell(connection: sqlite3.Connection, cell: CellRow, case: str) -> str | None:
    """Return the id of the answer to another case with the same prompt and model, if possible."""
    row = connection.execute(
        "select id from cell where run_id = ? and case_id = ? and side = ? "
        "order by model <> ?, prompt <> ?, repeat limit 1",
        (cell.run_id, case, cell.side, cell.model, cell.prompt),
    ).fetchone()
    return None if row is None else str(row[0])


_LIVE_CELLS = 2_000
"""Cells of a running run that are read for its prompts and models."""


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
    """None while the run is in progress."""


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
        cases = find_cases(connection, run_id, query, remember)
    else:
        cases = find_live_cases(connection, run_id, query)
    reader = _BoxReader(connection, find_run(connection, run_id), query, columns)
    return CaseGrid(
        query=query,
        columns=columns,
        rows=reader.rows(cases.cases),
        total=cases.total,
        choices=_choices(connection, run_id, every),
        settled=settled,
        searched=cases.searched,
        flagged=frozenset(flag.cell_id for flag in flagged_cells(connection, run_id)),
    )


def _columns(connection: sqlite3.Connection, run_id: str, side: str) -> list[Column]:
    columns = [
        Column(totals.prompt, totals.model, totals.version, totals)
        for totals in totals_by_model(connection, run_id, side)
    ]
    if columns:
        return columns
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
        self._places = {(column.prompt, column.model): at for at, column in enumerate(columns)}
        self._forms = {
            column.version: expected_form(run, None, query.side, column.version)
            for column in columns
        }

    def rows(self, cases: Sequence[str]) -> tuple[CaseRow, ...]:
        """Return cases with their answers."""
        names_json = json.dumps([*cases])
        repeats_by_box = self._repeats(names_json)
        worst = {key: worst_of(repeats) for key, (repeats, _, _) in repeats_by_box.items()}
        reasons = self._reasons(worst.values())
        calls = {key: repeats_by_box[key][2][repeat.id] for key, repeat in worst.items()}
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
                (self._run.id, names_json),
            )
        )

        def box(case: str, place: int) -> Box | None:
            key = case, place
            if key not in repeats_by_box:
                return None
            repeats, version, _ = repeats_by_box[key]
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

    def _repeats(self, names_json: str) -> dict[tuple[str, int], _Repeats]:
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
            (names_json, *named, self._run.id, self._query.side),
        )
        repeats_by_box: dict[tuple[str, int], _Repeats] = {}
        for case, prompt, model, version, request_hash, answer_no, *repeat in cells:
            place = self._places.get((prompt, model))
            if place is None:
                continue
            repeats, _, calls = repeats_by_box.setdefault((case, place), ([], version, {}))
            repeats.append(RepeatResult(*repeat))
            calls[repeat[0]] = None if answer_no is None else (request_hash, answer_no)
        return repeats_by_box

    def _reasons(self, worst: Iterable[RepeatResult]) -> dict[str, str]:
        """Return why answers fail, by cell."""
        failing = [
            repeat.id for repeat in worst if repeat.status != CellStatus.OK or repeat.passed == 0
        ]
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


class CaseResult(NamedTuple):
    """What a run found of a case, over its prompts, models and repeats."""

    composite: float | None
    passed: int
    failed: int

    @property
    def word(self) -> str:
        """Outcome in a word."""
        return "fail" if self.failed else "pass" if self.passed else "ungraded"


def case_results(
    connection: sqlite3.Connection, run_id: str, cases: Sequence[str]
) -> dict[str, CaseResult]:
    """Return what a run found of cases, by case; those that it did not have are left out."""
    rows = connection.execute(
        "select case_id, composite, passed, failed from rollup_case where run_id = ? "
        "and side = 'head' and case_id in (select value from json_each(?))",
        (run_id, json.dumps([*cases])),
    )
    return {case: CaseResult(*result) for case, *result in rows}


def case_hashes(
    connection: sqlite3.Connection, run_id: str, cases: Sequence[str]
) -> dict[str, str | None]:
    """Return the hash of the content that cases had in a run, by case."""
    rows = connection.execute(
        "select w.value, (select case_hash from cell where run_id = ? and case_id = w.value "
        "limit 1) from json_each(?) w",
        (run_id, json.dumps([*cases])),
    )
    return dict(rows.fetchall())


class CellActions(NamedTuple):
    """What a person can do with the answers of a page of the grid, by cell."""

    gradable: frozenset[str]
    mine: dict[str, ManualGrade]
    """Their last grade of each."""
    judged: frozenset[str]
    """Cells with a reply of a judge or grader."""


def cell_actions(connection: sqlite3.Connection, grid: CaseGrid, grader: str | None) -> CellActions:
    """Return what a person can do with the answers of a grid; None may not grade."""
    boxes = [box for row in grid.rows for box in row.boxes if box is not None]
    judged = judged_cells(connection, [box.worst.id for box in boxes])
    if grader is None:
        return CellActions(frozenset(), {}, judged)
    able = (CellStatus.OK, CellStatus.MALFORMED)
    gradable = frozenset(
        box.worst.id for box in boxes if box.worst.status in able and box.text is not None
    )
    return CellActions(gradable, own_grades(connection, grader, gradable), judged)
