"""Queries of the cases of a run: filtered, sorted and searched, page by page.

A run may have a hundred thousand cases, so none of this goes through them all. Orders are indexes
of the sums of cases; filters are marks, lists of cases that were written when the run ended. Of
several lists the shortest is read and the others are searched by index. An order is followed
until the page is full, or, where few cases fit, these few are sorted. Only the cells of the cases
on the page are read.

A text is searched in the names of all cases, and in as many answers as there is time for; the page
reports how many, and a query can search all of them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.records import CellStatus
from edison_ci.results.scores import totals_by_model
from edison_ci.store.manual_grades import flagged_cells

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Hashable, Sequence

    Remember = Callable[[Hashable, Callable[[], int]], int]
    """A cache: returns the number kept under a key, or works it out and keeps it."""

    from edison_ci.results.components import ComponentName


METRICS = ("grade", "tokens", "cost", "latency")
SORTS = ("worst", "best", "name", "tokens", "cost", "latency")
"""Orders of cases, the usual one first; by an amount, from high to low."""
MOST_ANSWERS = 500
"""Answers in which a text is searched unless a query is `deep`."""


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
    shown: tuple[str, ...] = ()
    """Values of a case that are shown beside its answers; empty for the usual ones."""
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
    cases, limit = page(query.offset), query.limit
    offset = query.offset_in(cases.total)
    number, before, after = offset // limit + 1, None, None
    if case not in cases.cases:
        first = ListedCase(cases.cases[0], number) if cases.cases else None
        return ListPlace(0, cases.total, None, first)
    at = cases.cases.index(case)
    if at:
        before = ListedCase(cases.cases[at - 1], number)
    elif offset:
        before = ListedCase(page(offset - limit).cases[-1], number - 1)
    if at + 1 < len(cases.cases):
        after = ListedCase(cases.cases[at + 1], number)
    elif offset + limit < cases.total:
        after = ListedCase(page(offset + limit).cases[0], number + 1)
    return ListPlace(offset + at + 1, cases.total, before, after)


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
    """Return cases of a run in progress: by name, as there are no sums yet."""
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
    cases = fitting[offset : offset + query.limit]
    return FoundCases(cases, len(fitting), most if most < chosen.total else None)


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
        condition = f"({_SAID} or {_NAMED})"
        if searched >= self.total:
            return self._ordered(-1, 0, also=condition)
        first = self._ordered(searched, 0)
        about = dict(self._about)
        sql = f"select {condition.format(case=':case')}"
        cases = []
        for case in first:
            about["case"] = case
            if self._connection.execute(sql, about).fetchone()[0]:
                cases.append(case)
        searched_cases = set(first)
        return cases + [
            case for case in self._ordered(-1, 0, also=_NAMED) if case not in searched_cases
        ]

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
        condition = ""
        for number in marks:
            same = f"{_MARK.format('o', number)} and o.case_id = {case}"
            condition += f" and exists (select 1 from rollup_mark o where {same})"
        if self._query.flagged:
            condition += f" and {_FLAGGED.format(case=case)}"
        if self._query.status == CellStatus.OK:
            condition += (
                " and exists (select 1 from rollup_case o where o.run_id = :run "
                f"and o.side = :side and o.case_id = {case} and o.ok > 0)"
            )
        return condition

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
    marks = []
    if query.tag:
        marks.append(_Mark("tag", query.tag))
    if query.failed:
        marks.append(_Mark("failed", query.component.key if query.component else ""))
    if query.status not in ("", CellStatus.OK):
        marks.append(_Mark("status", query.status))
    return marks


def _flagged(connection: sqlite3.Connection, run_id: str, query: CaseQuery) -> list[str]:
    """Return the cases with an answer that a person flagged for review."""
    cases = {flag.case_id for flag in flagged_cells(connection, run_id) if flag.side == query.side}
    return sorted(cases)


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
    nulls = ""
    if name in ("lowest", "latency_ms") and down is backwards:  # else SQLite puts them there
        nulls = " nulls first" if down else " nulls last"
    return f"k.{name}{' desc' if down else ''}{nulls}"


def _like(text: str) -> str:
    """Return the pattern of names that have a text in them, in capitals or not."""
    plain = text.replace("~", "~~").replace("%", "~%").replace("_", "~_")
    return f"%{plain}%"
