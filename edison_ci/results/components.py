"""Components of grades (checks, criteria, graders, screens): totals, spreads and findings.

There are several components to each cell, so this is most of what is read when a run ends: once,
in the order of an index, and added up here, as SQLite would sort all of it to group it.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.numeric import TOLERANCE, snap
from edison_ci.results import snapshot
from edison_ci.stats import slices
from edison_ci.store.cells import FORM, UNSCORED

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence

    from edison_ci.results.scores import Totals
    from edison_ci.store.runs import Run


GRADING = ("criterion", "grader", "rubric", "check")
"""Kinds of components that give scores; others only say what they found."""


class ComponentName(NamedTuple):
    """A check, criterion or grader."""

    kind: str
    name: str

    @property
    def key(self) -> str:
        """As marks and request hashes have it."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class ComponentSpread:
    """How the scores of a component are spread with a prompt and a model, cell by cell."""

    prompt: str
    model: str
    name: str
    kind: str
    n: int
    mean: float | None
    low: float | None
    high: float | None
    sd: float | None
    passed: int
    failed: int
    errors: int
    """Answers without a grade of it."""
    bins: tuple[int, ...]
    """Scores in each tenth of the scale."""

    @property
    def component(self) -> ComponentName:
        """Which component it is."""
        return ComponentName(self.kind, self.name)

    @property
    def binary(self) -> bool:
        """Whether every score is 0 or 1.

        Known from the moments: x² = x for 0 and 1 alone, and x² < x for every score between.
        """
        if self.mean is None:
            return True
        squares = (self.sd or 0.0) ** 2 * (self.n - 1) + self.n * self.mean**2
        return math.isclose(squares, self.n * self.mean, rel_tol=1e-9)


@dataclass(frozen=True, slots=True)
class ScoreSpread:
    """How the scores of a component are spread, over all prompts and models."""

    kind: str
    name: str
    counts: tuple[int, ...]
    """Of scores in each tenth of the scale."""
    mean: float | None
    """None without a score."""


def component_spreads(connection: sqlite3.Connection, run_id: str) -> tuple[ComponentSpread, ...]:
    """Return the spreads of head as they were written when the run ended."""
    rows = connection.execute(
        "select prompt, model, name, kind, n, mean, min, max, sd, passed, failed, errors, bins "
        "from rollup_component where run_id = ? and side = 'head' order by prompt, model, kind, "
        "name",
        (run_id,),
    )
    return tuple(ComponentSpread(*(*row[:-1], tuple(json.loads(row[-1])))) for row in rows)


def by_component(
    spreads: Iterable[ComponentSpread],
) -> dict[ComponentName, tuple[ComponentSpread, ...]]:
    """Return spreads by component, each in its order."""
    spreads_by_component: dict[ComponentName, list[ComponentSpread]] = {}
    for spread in spreads:
        spreads_by_component.setdefault(spread.component, []).append(spread)
    return {component: tuple(same) for component, same in spreads_by_component.items()}


def combined_spread(component: ComponentName, spreads: Sequence[ComponentSpread]) -> ScoreSpread:
    """Return the spread of a component over prompts and models."""
    counts = tuple(map(sum, zip(*(spread.bins for spread in spreads), strict=True)))
    scored = [(spread.mean, spread.n) for spread in spreads if spread.mean is not None]
    n = sum(count for _, count in scored)
    mean = math.fsum(mean * count for mean, count in scored) / n if n else None
    return ScoreSpread(*component, counts, mean)


def graded_spreads(spreads: Iterable[ComponentSpread]) -> Iterator[ScoreSpread]:
    """Yield the spreads to draw; a check that only passes or fails has none."""
    spreads_by_component = by_component(
        spread for spread in spreads if spread.kind in GRADING and spread.n
    )
    for component in sorted(
        spreads_by_component, key=lambda component: (component.kind == "check", component)
    ):
        if component.kind != "check" or not all(
            spread.binary for spread in spreads_by_component[component]
        ):
            yield combined_spread(component, spreads_by_component[component])


def live_spreads(connection: sqlite3.Connection, run_id: str) -> Iterator[ScoreSpread]:
    """Yield the same of a run in progress, from its cells."""
    rows = connection.execute(
        "select p.kind, p.name, min(cast(p.score * 10 + 1e-9 as integer), 9), count(*), "
        "sum(p.score), sum(p.score not in (0, 1)) from cell c "
        "join component p on p.cell_id = c.id where c.run_id = ?1 and c.side = 'head' "
        "and p.score is not null and p.kind in ('criterion', 'grader', 'check', 'rubric') "
        "group by 1, 2, 3 order by p.kind = 'check', p.kind, p.name",
        (run_id,),
    )
    for (kind, name), group in groupby(rows, key=lambda row: row[:2]):
        bins = [row[2:] for row in group]
        if kind == "check" and not any(between for *_, between in bins):
            continue
        counts = {at: count for at, count, *_ in bins}
        mean = math.fsum(total for _, _, total, _ in bins) / sum(counts.values())
        yield ScoreSpread(kind, name, tuple(counts.get(i, 0) for i in range(10)), mean)


FAILED = "failed"
"""The kind of mark that a failing case has."""
_BATCH = 1000
_BINS = 10
_FAILS_BELOW = 0.5 - TOLERANCE
"""A score fails below this where the component itself neither passes nor fails."""

# What most rows do not have is null: to make a text of it takes longer than to find it.
_PARTS = f"""
select p.kind, p.name, p.score, p.passed, nullif(p.status, 'ok'), c.rowid,
  case when p.kind = 'safety' then substr(p.reason, 1, instr(p.reason, ':') - 1) end,
  case when p.kind not in ('{UNSCORED}', '{FORM}')
    and (p.passed = 0 or (p.passed is null and p.score < {_FAILS_BELOW})) then c.case_id end
  {{who}}
from cell c join component p on p.cell_id = c.id where c.run_id = ? and c.side = ? order by
  c.case_id
"""
_SCORE, _PASSED, _STATUS, _CELL, _ACTION, _FAILING, _WHO = range(2, 9)
_Rows = list[tuple[Any, ...]]
_Component = tuple[str, str]
"""Kind and name."""


class ComponentTotal(NamedTuple):
    """Totals of a check, criterion or grader over all prompts and models."""

    name: str
    kind: str
    answers: int
    """Answers that it scored."""
    passed: int | None
    """Answers that it passed; None if it has no threshold."""
    mean: float | None
    errors: int
    blocked: int
    """Answers that a screen withheld."""
    redacted: int
    """Answers of which a screen removed a part."""

    @property
    def flagged(self) -> int:
        """Answers that a screen or a judge only flagged."""
        return self.answers - self.blocked - self.redacted

    @property
    def failed(self) -> int | None:
        """Answers that fail it; None without a threshold."""
        return None if self.passed is None else self.answers - self.passed


@dataclass(slots=True)
class _Total:
    """The sums of a component over a side."""

    first: int
    """The first cell that has it."""
    n: int = 0
    total: float = 0.0
    passed: int | None = None
    errors: int = 0
    blocked: int = 0
    redacted: int = 0

    def add(self, rows: _Rows) -> None:
        """Count some more, in their order."""
        self.first = min(self.first, min([row[_CELL] for row in rows]))
        scores = [row[_SCORE] for row in rows if row[_SCORE] is not None]
        self.n += len(scores)
        self.total += math.fsum(scores)
        if passes := [row[_PASSED] for row in rows if row[_PASSED] is not None]:
            self.passed = (self.passed or 0) + sum(passes)
        self.errors += sum([row[_STATUS] == "error" for row in rows])
        self.blocked += sum([row[_ACTION] == "block" for row in rows])
        self.redacted += sum([row[_ACTION] == "redact" for row in rows])

    def of(self, component: _Component) -> ComponentTotal:
        mean = snap(self.total / self.n) if self.n else None
        kind, name = component
        done = (self.errors, self.blocked, self.redacted)
        return ComponentTotal(name, kind, self.n, self.passed, mean, *done)


@dataclass(slots=True)
class _Spread:
    """The scores of a component with a prompt and model."""

    scores: slices.Moments = field(default_factory=lambda: slices.Moments())
    low: float | None = None
    high: float | None = None
    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    bins: list[int] = field(default_factory=lambda: [0] * _BINS)

    def add(self, rows: _Rows) -> None:
        """Count some more, in their order."""
        passes = [row[_PASSED] for row in rows if row[_PASSED] is not None]
        passed = sum(passes)
        self.passed += passed
        self.failed += len(passes) - passed
        states = [row[_STATUS] for row in rows if row[_STATUS] is not None]
        self.errors += states.count("error")
        self.skipped += states.count("skipped")
        scores = [row[_SCORE] for row in rows if row[_SCORE] is not None]
        if not scores:
            return
        self.scores.extend(scores)
        low, high = min(scores), max(scores)
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)
        for score, times in Counter(scores).items():
            self.bins[min(_BINS - 1, max(0, int(score * _BINS + TOLERANCE)))] += times

    def row(self) -> tuple[Any, ...]:
        """Return it as a table has it; digits that depend on the order are rounded away."""
        scores = self.scores
        sd = None if scores.sd is None else snap(scores.sd)
        counts = (self.passed, self.failed, self.errors, self.skipped)
        bins = json.dumps(self.bins, separators=(",", ":"))
        mean = snap(scores.mean) if scores.n else None
        return (scores.n, mean, self.low, self.high, sd, *counts, bins)


def write_components(connection: sqlite3.Connection, run_id: str) -> None:
    """Write the sums of each component, and a mark on every case that fails in one.

    They are kept apart by prompt and model, as in `rollup_model`.
    """
    who: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    query = "select side, prompt, model from rollup_model where run_id = ?"
    for side, *variant in connection.execute(query, (run_id,)):
        who[side].append(tuple(variant))
    for side, keys in who.items():
        _write_side(connection, run_id, side, keys)


def _write_side(
    connection: sqlite3.Connection, run_id: str, side: str, who: list[tuple[str, str]]
) -> None:
    spreads: defaultdict[tuple[str, ...], _Spread] = defaultdict(_Spread)
    totals: dict[_Component, _Total] = {}
    for component, rows in _read_parts(connection, run_id, side, totals, several=len(who) > 1):
        for variant, same in _rows_by_model(rows, who).items():
            spreads[*variant, *component].add(same)
        failing = {row[_FAILING] for row in rows if row[_FAILING] is not None}
        connection.executemany(
            "insert or ignore into rollup_mark (run_id, side, kind, value, case_id) "
            "values (?, ?, ?, ?, ?)",
            [(run_id, side, FAILED, ":".join(component), case) for case in failing],
        )
    connection.executemany(
        "insert into rollup_component (run_id, side, prompt, model, kind, name, n, mean, min, "
        "max, sd, "
        f"passed, failed, errors, skipped, bins) values ({', '.join('?' * 16)})",
        [(run_id, side, *key, *spread.row()) for key, spread in sorted(spreads.items())],
    )
    connection.executemany(
        "insert into rollup_component_total (run_id, side, place, name, kind, n, passed, mean, "
        "errors, "
        f"blocked, redacted) values ({', '.join('?' * 11)})",
        [(run_id, side, place, *total) for place, total in enumerate(_in_cell_order(totals))],
    )


def component_totals(
    connection: sqlite3.Connection, run_id: str, side: str
) -> list[ComponentTotal]:
    """Return the totals of each component of a side, in the order of its cells."""
    totals: dict[_Component, _Total] = {}
    for _ in _read_parts(connection, run_id, side, totals, several=False):
        pass
    return _in_cell_order(totals)


def stored_component_totals(
    connection: sqlite3.Connection, run_id: str, side: str
) -> list[ComponentTotal]:
    """Return the same as it was written when the run ended."""
    rows = connection.execute(
        "select name, kind, n, passed, mean, errors, blocked, redacted from rollup_component_total "
        "where run_id = ? and side = ? order by place",
        (run_id, side),
    )
    return [ComponentTotal(*row) for row in rows]


def _read_parts(
    connection: sqlite3.Connection,
    run_id: str,
    side: str,
    totals: dict[_Component, _Total],
    *,
    several: bool,
) -> Iterator[tuple[_Component, _Rows]]:
    """Add up the parts of a side, and yield the rows of each."""
    query = _PARTS.format(who=", c.prompt, c.model" if several else "")
    cursor = connection.execute(query, (run_id, side))
    while rows := cursor.fetchmany(_BATCH):
        rows_by_component: defaultdict[_Component, _Rows] = defaultdict(list)
        for row in rows:
            rows_by_component[row[0], row[1]].append(row)
        for component, same in rows_by_component.items():
            totals.setdefault(component, _Total(same[0][_CELL])).add(same)
            yield component, same


def _in_cell_order(totals: dict[_Component, _Total]) -> list[ComponentTotal]:
    ranked = sorted((total.first, name, kind) for (kind, name), total in totals.items())
    return [totals[kind, name].of((kind, name)) for _, name, kind in ranked]


def _rows_by_model(rows: _Rows, who: list[tuple[str, str]]) -> dict[tuple[str, str], _Rows]:
    if len(who) == 1:
        return {who[0]: rows}
    rows_by_variant: defaultdict[tuple[str, str], _Rows] = defaultdict(list)
    for row in rows:
        rows_by_variant[row[_WHO], row[_WHO + 1]].append(row)
    return rows_by_variant


_NAMED = ("pii", "jailbreak", "secrets")
"""Screens whose reasons name kinds only; a model's reason may quote the answer."""


class Finding(NamedTuple):
    """Something that a screen or a judge saw in an answer."""

    kind: str
    """Such as pii."""
    by: str
    """`safety` for a screen, `flag` for a judge."""
    action: str
    """`block` when the answer is withheld, `redact` when it was changed, else `flag`."""
    prompt: str
    model: str
    case: str
    what: str = ""
    """What a screen without a model found, such as e-mail; never the text itself."""


class ScreenTotal(NamedTuple):
    """How many answers of a run a screen, or the judges, found something in."""

    name: str
    by: str
    """`safety` for a screen, `flag` for a judge."""
    found: int
    of: int
    """Answers that there are; for inputs, cells."""
    flagged: int
    redacted: int
    blocked: int
    errors: int
    """Answers that it could not screen."""

    @property
    def share(self) -> float | None:
        """Share of the answers in which something was found."""
        return self.found / self.of if self.of else None


def screen_words(name: str) -> str:
    """Return the name of a screen in words: `input_pii` is pii in inputs."""
    rest = name.removeprefix("input_")
    return name if rest == name else f"{rest} in inputs"


def findings_of(connection: sqlite3.Connection, run_id: str) -> tuple[Finding, ...]:
    """Return what screens and judges found in the answers of a run, blocked ones first."""
    rows = connection.execute(
        "select p.name, p.kind, max(case when p.reason like 'block: %' then 2 "
        "when p.reason like 'redact: %' then 0 else 1 end), "
        "c.prompt, c.model, c.case_id, min(p.reason) from cell c join component p on "
        "p.cell_id = c.id and p.kind in ('safety', 'flag') and p.status = 'ok' "
        "where c.run_id = ? and c.side = 'head' group by 1, 2, 4, 5, 6 "
        "order by 3 desc, p.kind desc, p.name, c.prompt, c.model, c.case_id",
        (run_id,),
    )
    findings = []
    for kind, by, action, prompt, model, case, reason in rows.fetchall():
        what = reason.partition(": ")[2] if kind.removeprefix("input_") in _NAMED else ""
        action = ("redact", "flag", "block")[action]
        findings.append(Finding(kind, by, action, prompt, model, case, what))
    return tuple(findings)


def screen_totals(
    connection: sqlite3.Connection,
    run: Run,
    totals: Totals | None,
    components: Iterable[ComponentTotal],
) -> tuple[ScreenTotal, ...]:
    """Return what each screen, and each kind of flag of the judges, found in the answers of a run.

    Screens that found nothing are listed as well: they have looked.
    """
    sent = 0 if totals is None else totals.answered
    if not sent:
        return ()
    flagging = [component for component in components if component.kind in ("safety", "flag")]
    answers = sent
    if any(component.name.startswith("input_") and component.blocked for component in flagging):
        answers -= connection.execute(
            "select count(*) from cell where run_id = ? and side = 'head' "
            "and status = 'blocked' and answer_no is null",
            (run.id,),
        ).fetchone()[0]
    by_name = {component.name: component for component in flagging if component.kind == "safety"}
    silent = [
        ComponentTotal(name, "safety", 0, None, None, 0, 0, 0)
        for name in snapshot.screens_of(run)
        if screen_words(name) not in map(screen_words, by_name)
    ]
    return tuple(
        ScreenTotal(
            screen_words(total.name),
            total.kind,
            total.answers,
            sent if total.name.startswith("input_") else answers,
            total.flagged,
            total.redacted,
            total.blocked,
            total.errors,
        )
        for total in (*flagging, *silent)
    )
