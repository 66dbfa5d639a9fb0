"""Samples of stored cells: values of a metric, of one side or of both, case by case.

Cells are streamed case by case, in the order of the index that keeps them apart, and only numbers
are kept. The unit is the case. Cells in error and skipped cells are missing; a malformed answer is
worth nothing; a blocked one takes its draw out of both sides of a pair. Cases in quarantine, and
cases to which a check does not apply, are left out.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.rounding import mean, snap, weighted_mean
from edison_ci.stats.arrays import TOLERANCE
from edison_ci.stats.composite import Weighted, paired_composite
from edison_ci.store.runs import COUNTED

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence


Composites: TypeAlias = dict[tuple[str, int], tuple[float | None, float | None]]


class _Part(NamedTuple):
    kind: str
    name: str
    score: float | None
    weight: float


def same_criteria(sample: TwoSidedSample, subject: Subject) -> Composites:
    """Return composites of base and head for the case and draw of each pair that needs it.

    A judge may leave a criterion out. If it is a hard one, and missing on one side only, that side
    would look better than it is; so both sides are weighed by what both have (STATS 2).
    """
    connection, places = sample.connection, [sample.place(subject, side) for side in SIDES]
    graded = f"{_CELLS} and c.status = 'ok'"
    judged = any(
        connection.execute(
            f"select exists (select 1 from (select c.id from cell c where {graded} limit 20) c "
            "join part p on p.cell_id = c.id and p.kind = 'criterion')",
            place,
        ).fetchone()[0]
        for place in places
    )
    if not judged:
        return {}
    incomplete = {
        row
        for place in places
        for row in connection.execute(
            "select distinct c.case_id, c.draw from cell c join part p on p.cell_id = c.id and "
            f"p.kind = 'criterion' and p.score is null where {graded} and c.composite is not null",
            place,
        )
    }
    found: Composites = {}
    for case, draw in sorted(incomplete):
        base, head = (_parts(connection, {**place, "case": case, "draw": draw}) for place in places)
        if base and head:
            found[case, draw] = _composites(base, head)
    return found


def _parts(connection: sqlite3.Connection, values: Mapping[str, object]) -> list[_Part]:
    """Return the parts of a cell; none if it has no composite anyway."""
    rows = connection.execute(
        "select p.kind, p.name, p.score, p.weight from cell c join part p on p.cell_id = c.id "
        f"where {_CELLS} and c.status = 'ok' and c.case_id = :case and c.draw = :draw "
        "and c.composite is not null",
        values,
    )
    return [_Part(*row) for row in rows]


def _composites(base: list[_Part], head: list[_Part]) -> tuple[float | None, float | None]:
    scores = [{p.name: p.score for p in side if p.kind == "criterion"} for side in (base, head)]
    criteria = [Weighted(p.name, p.weight) for p in head if p.kind == "criterion"]
    rubrics = paired_composite(scores[0], scores[1], criteria)
    return _composite(base, rubrics.base.value), _composite(head, rubrics.head.value)


def _composite(parts: list[_Part], rubric: float | None) -> float | None:
    """Return the weighted mean of what counts, with the rubric's score replaced."""
    weighted: list[tuple[float, float]] = []
    for part in parts:
        value = rubric if part.kind == "rubric" else part.score
        if part.kind not in COUNTED:
            continue
        if value is None:
            if part.kind == "rubric":
                return None
            continue
        weighted.append((part.weight, value))
    return weighted_mean(weighted)


Kind: TypeAlias = Literal["score", "pass", "amount", "latency", "share", "wins"]

_PART = "left join part p on p.cell_id = c.id and p.kind = :kind and p.name = :part"
_ANSWER = "left join answer a on a.address = c.address and a.take = c.take"
_ANSWERED = "c.status in ('ok', 'malformed', 'blocked')"
_LOOKED_AT = 20
"""Graded cells that are looked at for the names of criteria: each cell has all of them."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that gates decide on."""

    name: str
    kind: Kind
    said: str
    """What it is called in a sentence."""
    value: str = "null"
    """SQL of its value in a cell; null is missing."""
    join: str = ""
    status: str = "c.status"
    """SQL of the cell's status; `inapplicable` takes the whole case out of this metric."""
    parameters: Mapping[str, str] = field(default_factory=dict)


def metric_of(sample: TwoSidedSample, name: str) -> Metric:
    """Return a metric of a gate as the cells of a sample have it."""
    if name in _PLAIN:
        return _PLAIN[name]
    family, _, rest = name.partition(".")
    if family == "safety":
        return Metric(name, "share", rest)
    part = _criterion(sample, rest) if family == "criterion" else rest
    return Metric(
        name,
        "score",
        part,
        value=_scored("p.score"),
        join=_PART,
        # A check without what it needs is skipped for the case, which is then not missing.
        status="case when p.status = 'skipped' then 'inapplicable' else c.status end",
        parameters={"kind": family, "part": part},
    )


def _scored(value: str, *, blocked: str = "null") -> str:
    """Return the SQL of a score: a malformed answer is an answer, and is worth nothing."""
    return (
        f"case c.status when 'ok' then {value} when 'malformed' then 0 "
        f"when 'blocked' then {blocked} end"
    )


_PLAIN = {
    "composite": Metric("composite", "score", "Quality", value=_scored("c.composite")),
    # What is blocked does not pass; in a pair it is missing, which the pairing sees to.
    "pass_rate": Metric("pass_rate", "pass", "Pass rate", value=_scored("c.passed", blocked="0")),
    "win_rate": Metric("win_rate", "wins", "Win rate"),
    "errors": Metric("errors", "share", "errors"),
    "cost_usd.mean": Metric(
        "cost_usd.mean",
        "amount",
        "Cost",
        value=f"case when {_ANSWERED} then a.cost_microusd / 1000000.0 end",
        join=_ANSWER,
    ),
    "tokens.mean": Metric(
        "tokens.mean",
        "amount",
        "Tokens",
        value=f"case when {_ANSWERED} then a.tokens_in + a.tokens_out end",
        join=_ANSWER,
    ),
    "latency_ms.p95": Metric("latency_ms.p95", "latency", "Latency (p95)"),
}


def _criterion(sample: TwoSidedSample, wanted: str) -> str:
    """Return the full name of a criterion that is written by name or by slug."""
    rows = sample.connection.execute(
        "select distinct p.name from (select id from cell where run_id in (?, ?) "
        "and status = 'ok' limit ?) c join part p on p.cell_id = c.id and p.kind = 'criterion'",
        (sample.head.run_id, sample.base.run_id, _LOOKED_AT),
    )
    names = [name for (name,) in rows]
    if wanted in names:
        return wanted
    return next((name for name in names if _slug(name) == _slug(wanted)), wanted)


def _slug(name: str) -> str:
    return "-".join(name.lower().split())


Side: TypeAlias = Literal["head", "base"]
SIDES: tuple[Side, Side] = ("base", "head")
_ALL_DRAWS = 1 << 40


class Subject(NamedTuple):
    """What is gated: a prompt with a model."""

    prompt: str
    model: str


class _Draw(NamedTuple):
    """A draw of a case with its value; two of equal answer are one and the same answer."""

    number: int
    value: float
    address: str
    take: int | None


class _Match(NamedTuple):
    """The draws of one case that count, on both sides."""

    case: str
    base: list[_Draw]
    head: list[_Draw]


@dataclass(slots=True)
class Sample:
    """One side: a number for each case, the mean over its draws."""

    cases: list[str] = field(default_factory=list)
    values: array[float] = field(default_factory=lambda: array("d"))
    missing: int = 0
    """Cases without a value."""
    single: bool = True
    """Whether no case has more than one draw."""


@dataclass(slots=True)
class Paired:
    """Both sides of the same cases, draws kept apart."""

    cases: list[str] = field(default_factory=list)
    base: list[tuple[float, ...]] = field(default_factory=list)
    head: list[tuple[float, ...]] = field(default_factory=list)
    missing: int = 0
    """Cases that lack a side."""
    base_only: list[float] = field(default_factory=list)
    """Base values of the cases whose head is missing."""
    same_answers: bool = True
    """Whether every pair is one and the same answer, graded the same."""


class Share(NamedTuple):
    """How many of how many."""

    hits: int
    of: int

    @property
    def value(self) -> float | None:
        """The share; None of nothing."""
        return self.hits / self.of if self.of else None


@dataclass(frozen=True, slots=True)
class CellSource:
    """Where the cells of one side of a sample are stored: a side of a run, or some of it."""

    run_id: str
    side: str
    version: str = ""
    """The first digits of the prompts' version; empty for any."""
    subjects: Mapping[Subject, Subject] | None = None
    """What the sample calls each prompt with a model, and its stored names; None for all of them
    under their own names."""

    def stored(self, subject: Subject) -> Subject:
        """Return the names under which cells of a subject are stored."""
        return subject if self.subjects is None else self.subjects.get(subject, _NO_SUBJECT)

    def named(self, stored: Subject) -> Subject | None:
        """Return what the sample calls a stored subject; None if it leaves it out."""
        if self.subjects is None:
            return stored
        return next((name for name, each in self.subjects.items() if each == stored), None)


_NO_SUBJECT = Subject("", "")


@dataclass(frozen=True, slots=True)
class TwoSidedSample:
    """Cells of a base and of a head, read metric by metric; those of one run have both."""

    connection: sqlite3.Connection
    base: CellSource
    head: CellSource
    left_out: frozenset[str] = frozenset()
    """Cases that do not count: those in quarantine, and those that are not the same on both."""
    draws: int | None = None
    """Draws of a case that count; None for all."""

    @classmethod
    def of_run(
        cls, connection: sqlite3.Connection, run_id: str, left_out: Collection[str] = frozenset()
    ) -> TwoSidedSample:
        """Return the two sides of one run."""
        base, head = (CellSource(run_id, side) for side in SIDES)
        return cls(connection, base, head, frozenset(left_out))

    @property
    def run_id(self) -> str | None:
        """The run whose two sides these are; None if they were put together."""
        whole = self.base == CellSource(self.head.run_id, "base")
        return self.head.run_id if whole and self.head.subjects is None else None

    def source(self, side: str) -> CellSource:
        """Return where the cells of a side are stored."""
        return self.base if side == "base" else self.head

    def cases(self) -> list[tuple[str, str | None]]:
        """Return the cases of the head's run with their clusters."""
        return self.connection.execute(
            "select case_id, max(cluster) from cell where run_id = ? group by case_id",
            (self.head.run_id,),
        ).fetchall()

    def planned(self, subject: Subject, side: Side) -> list[str]:
        """Return the cases that a side has a cell of, in order."""
        rows = self.connection.execute(
            f"select distinct c.case_id from cell c where {_CELLS} order by c.case_id",
            self.place(subject, side),
        )
        return [case for (case,) in rows if case not in self.left_out]

    def contents(self, subject: Subject, side: Side) -> list[tuple[str, str]]:
        """Return the hash of what each case asks and expects; empty where it is not known."""
        return self.connection.execute(
            "select c.case_id, min(coalesce(c.case_hash, '')) from cell c "
            f"where {_CELLS} group by c.case_id",
            self.place(subject, side),
        ).fetchall()

    def one_version(self, subjects: Iterable[Subject]) -> bool:
        """Whether both sides ask with the same prompts."""
        for prompt in {subject.prompt for subject in subjects}:
            versions = {
                version
                for side in SIDES
                for name, version in self._versions(self.source(side))
                if name is not None and name.prompt == prompt
            }
            if len(versions) != 1:
                return False
        return True

    def _versions(self, source: CellSource) -> list[tuple[Subject | None, str]]:
        rows = self.connection.execute(
            "select distinct prompt, model, version from cell where run_id = ? and side = ?",
            (source.run_id, source.side),
        )
        return [
            (source.named(Subject(prompt, model)), version)
            for prompt, model, version in rows
            if version.startswith(source.version)
        ]

    def subjects(self, side: Side) -> tuple[Subject, ...]:
        """Return the prompts and models that a side has cells of."""
        source = self.source(side)
        if source.subjects is not None:
            return tuple(sorted(source.subjects))
        rows = self.connection.execute(
            "select distinct prompt, model from cell where run_id = ? and side = ? order by 1, 2",
            (source.run_id, source.side),
        )
        return tuple(Subject(*row) for row in rows)

    def common_subjects(self) -> tuple[Subject, ...]:
        """Return the prompts and models that both sides have."""
        base = self.subjects("base")
        return tuple(subject for subject in self.subjects("head") if subject in base)

    def days_apart(self) -> bool:
        """Whether two answers of a pair, not the same one, were given more than 24 hours apart."""
        rows = (
            row
            for subject in self.common_subjects()
            for row in self.connection.execute(
                _APART,
                {
                    **self.place(subject, "head"),
                    **{f"base_{k}": v for k, v in self.place(subject, "base").items()},
                },
            )
        )
        return any(case not in self.left_out for (case,) in rows)

    def passing(self, side: Side) -> dict[str, bool | None]:
        """Return of each case whether it passes: all its answers do, whatever draw or model."""
        return together(
            passing(self.connection, f"cell c where {_CELLS}", self.place(subject, side))
            for subject in self.subjects(side)
        )

    def sample(self, metric: Metric, subjects: Iterable[Subject], side: Side = "head") -> Sample:
        """Return the value of each case on one side; over several subjects, their mean."""
        totals = _Totals()
        for subject in subjects:
            for case, rows in self._by_case(metric, subject, side):
                if any(row[2] == "inapplicable" for row in rows):
                    continue
                totals.add(case, [v for row in rows if (v := _value(metric, row[3])) is not None])
        return totals.sample()

    def pairs(self, metric: Metric, subjects: Sequence[Subject]) -> Paired:
        """Return both sides of each case (STATS 6).

        A subject's draws may be more on one side. Over several subjects only draws that both sides
        have count: draws of different models cannot stand in for each other.
        """
        if len(subjects) != 1:
            return self._overall(metric, subjects)
        found = Paired()
        for case, base, head in self._matched(metric, subjects[0]):
            if not base or not head:
                found.missing += 1
                if base:
                    found.base_only.append(mean([draw.value for draw in base]))
                continue
            found.same_answers = found.same_answers and base == head
            found.cases.append(case)
            found.base.append(tuple(draw.value for draw in base))
            found.head.append(tuple(draw.value for draw in head))
        return found

    def latencies(self, subjects: Iterable[Subject], side: Side) -> array[float]:
        """Return the latency in milliseconds of each answer that no recording gave."""
        found = array("d")
        for subject in subjects:
            rows = self.connection.execute(
                "select distinct c.case_id, c.address, c.take, a.latency_ms from cell c "
                "join answer a on a.address = c.address and a.take = c.take "
                f"where {_CELLS} and a.cost_kind <> 'replayed'",
                self.place(subject, side),
            )
            found.extend(row[3] for row in rows if row[0] not in self.left_out)
        return found

    def errors(self, subjects: Iterable[Subject], side: Side) -> Share:
        """Return the cells in error, of those that were asked."""
        rows = self._counted(
            f"select c.case_id, c.status = 'error' from cell c where {_CELLS} "
            "and c.status <> 'skipped'",
            [self.place(subject, side) for subject in subjects],
        )
        return _share(rows)

    def flagged(self, kind: str, subjects: Iterable[Subject], side: Side) -> Share:
        """Return the answers with a finding of a screen, of those that it has seen.

        A screen by a model sees nothing that a pattern has blocked, nor what it failed on.
        """
        by_model = kind in ("moderation", "toxicity")
        stopped = (
            "and not exists (select 1 from part b where b.cell_id = c.id and b.kind = 'safety' "
            "and b.name in ('pii', 'jailbreak', 'secrets') and b.reason = 'block')"
        )
        rows = self._counted(
            "select c.case_id, p.name is not null from cell c left join part p "
            "on p.cell_id = c.id and p.kind = 'safety' and p.name = :kind "
            f"where {_CELLS} and c.status in ('ok', 'malformed', 'blocked') "
            f"and p.status is not 'error' {stopped if by_model else ''}",
            [{**self.place(subject, side), "kind": kind} for subject in subjects],
        )
        return _share(rows)

    # --- reading ----------------------------------------------------------------------------------

    def _counted(self, query: str, chosen: list[dict[str, str | int]]) -> Iterator[int]:
        for values in chosen:
            for case, hit in self.connection.execute(query, values):
                if case not in self.left_out:
                    yield hit

    def place(self, subject: Subject, side: Side) -> dict[str, str | int]:
        """Return the values of `_CELLS` that choose the cells of a subject on a side."""
        source = self.source(side)
        prompt, model = source.stored(subject)
        return {
            "draws": _ALL_DRAWS if self.draws is None else self.draws,
            "run": source.run_id,
            "side": source.side,
            "prompt": prompt,
            "model": model,
            "version": source.version,
        }

    def _by_case(
        self, metric: Metric, subject: Subject, side: Side
    ) -> Iterator[tuple[str, list[_Row]]]:
        """Yield the draws of each case that may gate, in the order of their ids."""
        rows = self.connection.execute(
            f"select c.case_id, c.draw, {metric.status}, {metric.value}, c.address, c.take "
            f"from cell c {metric.join} where {_CELLS} order by c.case_id, c.draw",
            {**self.place(subject, side), **metric.parameters},
        )
        for case, draws in groupby(rows, key=itemgetter(0)):
            if case not in self.left_out:
                yield case, list(draws)

    def _matched(self, metric: Metric, subject: Subject) -> Iterator[_Match]:
        """Yield each case of either side with the draws that count."""
        fair: Composites = {}
        if metric.name == "composite":
            fair = same_criteria(self, subject)
        sides = (self._by_case(metric, subject, side) for side in SIDES)
        for case, base, head in _aligned(*sides):
            statuses = {row[2] for row in (*base, *head)}
            if "inapplicable" in statuses:
                continue
            blocked: set[int] = set()
            if "blocked" in statuses:
                blocked = {row[1] for row in (*base, *head) if row[2] == "blocked"}
            if fair:
                base, head = (_corrected(s, fair, index) for index, s in enumerate((base, head)))
            yield _Match(case, *(_draws(metric, side, blocked) for side in (base, head)))

    def _overall(self, metric: Metric, subjects: Iterable[Subject]) -> Paired:
        sides, alone, same = (_Totals(), _Totals()), _Totals(), True
        for subject in subjects:
            for case, base, head in self._matched(metric, subject):
                common = {draw.number for draw in base} & {draw.number for draw in head}
                kept = [[d for d in side if d.number in common] for side in (base, head)]
                same = same and kept[0] == kept[1]
                for totals, draws in zip(sides, kept, strict=True):
                    totals.add(case, [draw.value for draw in draws])
                alone.add(case, [draw.value for draw in base])
        found, (base_side, head_side) = alone.sample(), (totals.sample() for totals in sides)
        paired = set(base_side.cases)
        return Paired(
            cases=base_side.cases,
            base=[(value,) for value in base_side.values],
            head=[(value,) for value in head_side.values],
            missing=base_side.missing,
            base_only=[
                v for c, v in zip(found.cases, found.values, strict=True) if c not in paired
            ],
            same_answers=same,
        )


def passing(
    connection: sqlite3.Connection, cells: str, values: Sequence[str] | Mapping[str, str | int]
) -> dict[str, bool | None]:
    """Return of each case whether it passes; `cells` is a table `c` and a condition on it.

    A case whose answers could not be graded neither passes nor fails.
    """
    rows = connection.execute(
        "select c.case_id, min(case c.status when 'ok' then c.passed when 'malformed' then 0 end) "
        f"from {cells} and c.status in ('ok', 'malformed') group by c.case_id",
        values,
    )
    return {case: None if passed is None else bool(passed) for case, passed in rows}


def together(sides: Iterable[Mapping[str, bool | None]]) -> dict[str, bool | None]:
    """Return of each case whether it passes everywhere."""
    found: dict[str, bool | None] = {}
    for side in sides:
        for case, passed in side.items():
            known = found.get(case)
            found[case] = passed if known is None else known and passed is not False
    return found


_Row: TypeAlias = tuple[str, int, str, float | None, str, int | None]
"""Case, draw, status, value, and address and take of the answer."""
_CELLS = (
    "c.run_id = :run and c.side = :side and c.prompt = :prompt and c.model = :model "
    "and c.draw < :draws and (:version = '' or substr(c.version, 1, length(:version)) = :version)"
)


_APART = f"""
select c.case_id from cell c join cell b on b.run_id = :base_run and b.side = :base_side
  and b.prompt = :base_prompt and b.model = :base_model and b.case_id = c.case_id
join answer new on new.address = c.address and new.take = c.take
join answer old on old.address = b.address and old.take = b.take
where {_CELLS} and (c.address <> b.address or c.take <> b.take)
  and abs(julianday(new.created_at) - julianday(old.created_at)) > 1
"""


class _Totals:
    """Adds up the draws of cases, whatever the order they come in."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._sums, self._counts = array("d"), array("L")

    def add(self, case: str, values: list[float]) -> None:
        index = self._index.setdefault(case, len(self._index))
        if index == len(self._sums):
            self._sums.append(0.0)
            self._counts.append(0)
        self._sums[index] += math.fsum(values)
        self._counts[index] += len(values)

    def sample(self) -> Sample:
        found = Sample()
        for case in sorted(self._index):
            index = self._index[case]
            count = self._counts[index]
            if not count:
                found.missing += 1
                continue
            found.cases.append(case)
            found.values.append(snap(self._sums[index] / count))
            found.single = found.single and count == 1
        return found


def _draws(metric: Metric, rows: list[_Row], blocked: set[int]) -> list[_Draw]:
    """Return the draws of a case that have a value and are not blocked on either side."""
    return [
        _Draw(number, value, address, take)
        for _, number, _, raw, address, take in rows
        if number not in blocked and (value := _value(metric, raw)) is not None
    ]


def _corrected(rows: list[_Row], fair: Composites, index: int) -> list[_Row]:
    """Return draws with the composites that are fair to both sides; index 0 is the base."""
    return [
        (*row[:3], fair[row[0], row[1]][index], *row[4:]) if (row[0], row[1]) in fair else row
        for row in rows
    ]


def _value(metric: Metric, raw: float | None) -> float | None:
    """Return a value that can be counted with; what is not on its scale is missing."""
    if raw is None or not math.isfinite(raw):
        return None
    high = 1.0 if metric.kind in ("score", "pass") else math.inf
    return float(raw) if -TOLERANCE <= raw <= high + TOLERANCE else None


def _share(hits: Iterable[int]) -> Share:
    found = total = 0
    for hit in hits:
        found += hit
        total += 1
    return Share(found, total)


def _aligned(
    base: Iterator[tuple[str, list[_Row]]], head: Iterator[tuple[str, list[_Row]]]
) -> Iterator[tuple[str, list[_Row], list[_Row]]]:
    """Walk two sorted sides together; SQLite sorts text as Python does."""
    left, right = next(base, None), next(head, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None
            yield *left, []
            left = next(base, None)
        elif left is None or right[0] < left[0]:
            yield right[0], [], right[1]
            right = next(head, None)
        else:
            yield *left, right[1]
            left, right = next(base, None), next(head, None)
