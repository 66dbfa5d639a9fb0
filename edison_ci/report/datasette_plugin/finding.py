"""Which cases of a run fit an address, and in which order?

A run may have a hundred thousand cases, so none of this goes through them all. Orders are indexes
of the sums of cases; filters are marks, lists of cases that were written when the run ended. Of
several lists the shortest is gone through and the others are looked up in. An order is followed
until the page is full, or, where few cases fit, these few are sorted.

A text is looked for in the names of all cases, and in as many answers as there is time for; the
page says how many, and the address can ask for all of them.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.report.datasette_plugin.looking import Paging
from edison_ci.report.datasette_plugin.remembering import remembered
from edison_ci.store.grades import flagged_cells

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Hashable, Sequence

    from edison_ci.report.datasette_plugin.looking import Args
    from edison_ci.report.datasette_plugin.wishing import Wish

MOST_ANSWERS = 500
"""Answers in which a text is looked for while somebody waits for a page."""

_ORDERS = {
    ("grade", "worst"): ("worst", ("lowest", "composite", "case_id")),
    ("grade", "best"): ("best", ("-composite", "-case_id")),
    ("tokens", "worst"): ("tokens", ("-tokens", "-case_id")),
    ("tokens", "best"): ("tokens", ("tokens", "case_id")),
    ("cost", "worst"): ("cost", ("-cost_microusd", "-case_id")),
    ("cost", "best"): ("cost", ("cost_microusd", "case_id")),
    ("latency", "worst"): ("latency", ("-latency_ms", "-case_id")),
    ("latency", "best"): ("latency", ("latency_ms", "case_id")),
}
"""The index of each order, and its columns; with a minus, from high to low. Where numbers are the
same, names run in the same direction, so that an index can be read either way."""
_MARK = "{0}.run_id = :run and {0}.side = :side and {0}.kind = :kind{1} and {0}.value = :value{1}"
_NAMED = "{case} like :name escape '~'"
_SAID = (
    "exists (select 1 from cell c join answer_text x on x.address = c.address and x.take = c.take "
    "where c.run_id = :run and c.case_id = {case} and c.side = :side and c.status <> 'blocked' "
    "and instr(lower(x.text), lower(:text)))"
)


_FLAGGED = "{case} in (select value from json_each(:flagged))"


class Found(NamedTuple):
    """The cases of a page."""

    cases: list[str]
    paging: Paging
    searched: int | None = None
    """In the answers to how many cases a text was looked for; None for all of them."""


class _Mark(NamedTuple):
    """A list of cases."""

    kind: str
    value: str


def unsettled(connection: sqlite3.Connection, run_id: str, wish: Wish, args: Args) -> Found:
    """Return cases of a run that goes on: by name, as there are no sums yet."""
    where, about = "k.run_id = :run", {"run": run_id, "tag": wish.tag, "name": _like(wish.text)}
    if wish.text:
        where += f" and {_NAMED.format(case='k.case_id')}"
    if wish.tag:
        where += " and exists (select 1 from json_each(k.tags) j where j.value = :tag)"
    if wish.flagged:
        where += f" and {_FLAGGED.format(case='k.case_id')}"
        about["flagged"] = json.dumps(_flagged(connection, run_id, wish))
    (total,) = connection.execute(
        f"select count(*) from run_case k where {where}", about
    ).fetchone()
    paging = Paging.of(args, total)
    rows = connection.execute(
        f"select k.case_id from run_case k where {where} order by k.case_id "
        "limit :most offset :offset",
        {**about, "most": paging.per_page, "offset": paging.offset},
    )
    return Found([case for (case,) in rows], paging)


def settled(
    connection: sqlite3.Connection, run_id: str, wish: Wish, args: Args, state: Hashable = None
) -> Found:
    """Return cases of a run that has ended; `state` names the numbers it has by now."""
    chosen = Chosen(connection, run_id, wish, state)
    if not wish.text:
        paging = Paging.of(args, chosen.total)
        return Found(chosen.page(paging), paging)
    most = chosen.total if wish.deep else chosen.cases_with(MOST_ANSWERS)
    fitting = chosen.with_text(most)
    paging = Paging.of(args, len(fitting))
    shown = fitting[paging.offset : paging.offset + paging.per_page]
    return Found(shown, paging, most if most < chosen.total else None)


class Chosen:
    """The cases of a side of a run that have every mark that is asked for."""

    def __init__(
        self, connection: sqlite3.Connection, run_id: str, wish: Wish, state: Hashable = None
    ) -> None:
        self._connection, self._wish = connection, wish
        self._about: dict[str, Any] = {"run": run_id, "side": wish.side, "text": wish.text}
        self._about["name"] = _like(wish.text)
        self._every = self._marked(_Mark("all", ""))
        self._listed = self._every
        """How many cases have the rarest of the marks."""
        self._marks = self._rarest_first(_marks(wish))
        self.total = self._listed
        if wish.flagged:  # these change after a run has ended, and are few
            flagged = _flagged(connection, run_id, wish)
            self._about["flagged"] = json.dumps(flagged)
            self._listed = min(self._listed, len(flagged))
            self.total = self._count(self._from_marks())
        elif len(self._marks) > 1 or wish.status == "ok":
            key = ("cases", state, run_id, wish.side, wish.status, *_marks(wish))
            count = partial(self._count, self._from_marks())
            self.total = count() if state is None else remembered(key, count)

    def cases_with(self, answers: int) -> int:
        """Return how many cases have so many answers together."""
        (cells,) = self._connection.execute(
            "select coalesce(sum(cells), 0) from rollup_run where run_id = :run and side = :side",
            self._about,
        ).fetchone()
        return self.total if not cells else min(self.total, answers * self._every // cells)

    def page(self, paging: Paging) -> list[str]:
        """Return the cases of a page; in the second half they are counted from the end."""
        after = max(paging.total - paging.offset - paging.per_page, 0)
        if paging.offset <= after:
            return self._ordered(paging.per_page, paging.offset)
        most = min(paging.per_page, paging.total - paging.offset)
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
        if self._wish.flagged:
            found += f" and {_FLAGGED.format(case=case)}"
        if self._wish.status == "ok":
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
        wish, limit = self._wish, " limit :most offset :offset"
        more = f" and {also.format(case='{0}.case_id')}" if also else ""
        if wish.sort == "name":
            order = "m.case_id desc" if backwards else "m.case_id"
            sql = f"select m.case_id from {self._from_marks()}{more.format('m')} order by {order}"
        else:
            index, columns = _ORDERS[wish.metric, wish.sort]
            order = ", ".join(_term(column, backwards=backwards) for column in columns)
            # Followed, an order passes so many cases until the page is full.
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


def _marks(wish: Wish) -> list[_Mark]:
    found = []
    if wish.tag:
        found.append(_Mark("tag", wish.tag))
    if wish.failed:
        found.append(_Mark("failed", wish.part.key if wish.part else ""))
    if wish.status not in ("", "ok"):
        found.append(_Mark("status", wish.status))
    return found


def _flagged(connection: sqlite3.Connection, run_id: str, wish: Wish) -> list[str]:
    """Return the cases with an answer that somebody wants a second look at."""
    found = {each.case_id for each in flagged_cells(connection, run_id) if each.side == wish.side}
    return sorted(found)


def _joined(source: str) -> str:
    """Return the same cases with their sums, looked up one by one."""
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
