"""Samples of stored cells: values of a metric, of one side or of both, case by case.

Cells are streamed case by case, in the order of the index, and only numbers are kept in memory. The
unit is the case. Cells in error and skipped cells are missing; a malformed answer scores 0; a
blocked one takes its repeat out of both sides of a pair. An answer of the head that is lost in any
of these ways counts as the worst wherever it could help the head to pass. Cases in quarantine, and
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
from edison_ci.numeric import snap
from edison_ci.records import Side
from edison_ci.results.metrics import (
    CELLS,
    SENT,
    Composites,
    Metric,
    PassCounts,
    flips_between,
    paired_composites,
    pass_counts,
)
from edison_ci.stats.arrays import TOLERANCE
from edison_ci.store.answers import TIMED

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from edison_ci.stats.flips import CaseFlips


SIDES = (Side.BASE, Side.HEAD)
LostAs: TypeAlias = float | Literal["base"]
_ALL_REPEATS = 1 << 40
_MOST_COMMON = 1_000
"""Values of pairs that are remembered: with more, hardly two cases have the same."""


class Variant(NamedTuple):
    """A prompt with a model: what is measured, compared and gated."""

    prompt: str
    model: str


class _Repeat(NamedTuple):
    """A repeat of a case with its value, and the answer that it rests on."""

    number: int
    value: float
    request_hash: str
    answer_no: int | None


class _Match(NamedTuple):
    """The repeats of one case that count, on both sides."""

    case: str
    base: list[_Repeat]
    head: list[_Repeat]
    lost: frozenset[int]
    """Repeats that the base has, and of which the head has lost the answer."""
    base_all: list[_Repeat]
    """Repeats of the base, with those that the head has lost."""

    def with_lost(self, value: LostAs) -> tuple[list[_Repeat], list[_Repeat]]:
        """Return both sides with answers that the head has lost at a value, or at the base's."""
        if not self.lost:
            return self.base, self.head
        lost = [repeat for repeat in self.base_all if repeat.number in self.lost]
        if value != "base":
            lost = [_Repeat(repeat.number, value, "", None) for repeat in lost]
        return self.base_all, [*self.head, *lost]


@dataclass(slots=True)
class Sample:
    """One side: a number for each case, the mean over its repeats."""

    cases: list[str] = field(default_factory=list)
    """Empty if their names were left out."""
    values: array[float] = field(default_factory=lambda: array("d"))
    missing: int = 0
    """Cases without a value."""
    lost: int = 0
    """Answers without a value, of cases with one too."""
    single: bool = True
    """Whether no case has more than one repeat."""


@dataclass(slots=True)
class Paired:
    """Both sides of the same cases, repeats kept apart."""

    cases: list[str] = field(default_factory=list)
    base: list[tuple[float, ...]] = field(default_factory=list)
    head: list[tuple[float, ...]] = field(default_factory=list)
    missing: int = 0
    """Cases that lack a side."""
    lost: int = 0
    """Cases of the base of which the head has lost an answer."""
    same_answers: bool = True
    """Whether every pair is one and the same answer, graded the same."""
    _common: dict[tuple[float, ...], tuple[float, ...]] = field(default_factory=dict)
    """Values that many cases have, such as one pass: they need to be in memory once."""

    def add(self, case: str, base: list[_Repeat], head: list[_Repeat]) -> None:
        """Take a case with the repeats of both sides."""
        self.same_answers = self.same_answers and base == head
        self.cases.append(case)
        self.base.append(self._shared(tuple(repeat.value for repeat in base)))
        self.head.append(self._shared(tuple(repeat.value for repeat in head)))

    def _shared(self, values: tuple[float, ...]) -> tuple[float, ...]:
        if len(self._common) < _MOST_COMMON:
            return self._common.setdefault(values, values)
        return self._common.get(values, values)


class Share(NamedTuple):
    """A count of hits among a total."""

    hits: int
    of: int

    @property
    def value(self) -> float | None:
        """The share; None if the total is 0."""
        return self.hits / self.of if self.of else None


@dataclass(frozen=True, slots=True)
class CellSource:
    """Where the cells of one side of a sample are stored: a side of a run, or some of it."""

    run_id: str
    side: Side
    version: str = ""
    """The first digits of the prompts' version; empty for any."""
    variants: Mapping[Variant, Variant] | None = None
    """Stored names by the names that the sample uses; None for all under their own names."""

    def stored_name(self, variant: Variant) -> Variant:
        """Return the names under which cells of a variant are stored."""
        return variant if self.variants is None else self.variants.get(variant, _NO_VARIANT)

    def sample_name(self, stored: Variant) -> Variant | None:
        """Return the name of a stored variant in the sample; None if it is left out."""
        if self.variants is None:
            return stored
        return next((name for name, variant in self.variants.items() if variant == stored), None)


_NO_VARIANT = Variant("", "")


@dataclass(frozen=True, slots=True)
class TwoSidedSample:
    """Cells of a base and of a head, read metric by metric; those of one run have both."""

    connection: sqlite3.Connection
    base: CellSource
    head: CellSource
    left_out: frozenset[str] = frozenset()
    """Cases that do not count: those in quarantine, and those that are not the same on both."""
    repeats: int | None = None
    """Repeats of a case that count; None for all."""

    @classmethod
    def of_run(
        cls, connection: sqlite3.Connection, run_id: str, left_out: Collection[str] = frozenset()
    ) -> TwoSidedSample:
        """Return the two sides of one run."""
        base, head = (CellSource(run_id, side) for side in SIDES)
        return cls(connection, base, head, frozenset(left_out))

    @property
    def run_id(self) -> str | None:
        """The run whose two sides these are; None if they are of two runs."""
        whole = self.base == CellSource(self.head.run_id, Side.BASE)
        return self.head.run_id if whole and self.head.variants is None else None

    def source(self, side: Side) -> CellSource:
        """Return where the cells of a side are stored."""
        return self.base if side == Side.BASE else self.head

    def cases(self) -> list[tuple[str, str | None]]:
        """Return the cases of the head's run with their clusters."""
        return self.connection.execute(
            "select case_id, max(cluster) from cell where run_id = ? group by case_id",
            (self.head.run_id,),
        ).fetchall()

    def case_ids(self, variant: Variant, side: Side) -> list[str]:
        """Return the cases of which a side has a cell, in order."""
        rows = self.connection.execute(
            f"select distinct c.case_id from cell c where {CELLS} order by c.case_id",
            self.place(variant, side),
        )
        return [case for (case,) in rows if case not in self.left_out]

    def contents(self, variant: Variant, side: Side) -> list[tuple[str, str]]:
        """Return the hash of input and expected output of each case; empty where unknown."""
        return self.connection.execute(
            "select c.case_id, min(coalesce(c.case_hash, '')) from cell c "
            f"where {CELLS} group by c.case_id",
            self.place(variant, side),
        ).fetchall()

    def one_version(self, variants: Iterable[Variant]) -> bool:
        """Whether both sides have the same versions of the prompts."""
        for prompt in {variant.prompt for variant in variants}:
            versions = {
                version
                for side in SIDES
                for name, version in self._versions(self.source(side))
                if name is not None and name.prompt == prompt
            }
            if len(versions) != 1:
                return False
        return True

    def _versions(self, source: CellSource) -> list[tuple[Variant | None, str]]:
        rows = self.connection.execute(
            "select distinct prompt, model, version from cell where run_id = ? and side = ?",
            (source.run_id, source.side),
        )
        return [
            (source.sample_name(Variant(prompt, model)), version)
            for prompt, model, version in rows
            if version.startswith(source.version)
        ]

    def variants(self, side: Side) -> tuple[Variant, ...]:
        """Return the prompts and models that a side has cells of."""
        source = self.source(side)
        if source.variants is not None:
            return tuple(sorted(source.variants))
        rows = self.connection.execute(
            "select distinct prompt, model from cell where run_id = ? and side = ? order by 1, 2",
            (source.run_id, source.side),
        )
        return tuple(Variant(*row) for row in rows)

    def common_variants(self) -> tuple[Variant, ...]:
        """Return the prompts and models that both sides have."""
        base = self.variants(Side.BASE)
        return tuple(variant for variant in self.variants(Side.HEAD) if variant in base)

    def is_days_apart(self) -> bool:
        """Whether two different answers of a pair were given more than 24 hours apart."""
        rows = (
            row
            for variant in self.common_variants()
            for row in self.connection.execute(
                _APART,
                {
                    **self.place(variant, Side.HEAD),
                    **{f"base_{k}": v for k, v in self.place(variant, Side.BASE).items()},
                },
            )
        )
        return any(case not in self.left_out for (case,) in rows)

    def flips(
        self, variants: Sequence[Variant], clusters: Mapping[str, str] | None = None
    ) -> tuple[dict[str, tuple[bool, bool]], CaseFlips]:
        """Return whether base and head pass each case that both graded, and how many flip."""
        counts = [[self._pass_counts(variant, side) for variant in variants] for side in SIDES]
        return flips_between(counts[0], counts[1], self.left_out, clusters)

    def _pass_counts(self, variant: Variant, side: Side) -> PassCounts:
        return pass_counts(self.connection, f"cell c where {CELLS}", self.place(variant, side))

    def sample(
        self,
        metric: Metric,
        variants: Iterable[Variant],
        side: Side = Side.HEAD,
        *,
        lost_as: float | None = None,
        named: bool = True,
    ) -> Sample:
        """Return the value of each case on one side; over several variants, their mean.

        Lost answers are left out, or count as `lost_as`. The names of the cases, which take most of
        the memory, may be left out too.
        """
        chosen = tuple(variants)
        totals, lost = _Totals(named=named or len(chosen) > 1), 0
        for variant in chosen:
            for case, rows in self._by_case(metric, variant, side):
                if any(row[2] == "inapplicable" for row in rows):
                    continue
                values = [v for row in rows if (v := _value(metric, row[3])) is not None]
                gone = sum(_is_lost(metric, row) for row in rows)
                lost += gone
                totals.add(case, values if lost_as is None else [*values, *[lost_as] * gone])
        sample = totals.sample()
        sample.lost = lost
        if metric.kind == "pass":  # people may disagree about an answer
            sample.single = sample.single and all(value in (0.0, 1.0) for value in sample.values)
        return sample

    def pairs(
        self, metric: Metric, variants: Sequence[Variant], *, lost_as: LostAs | None = None
    ) -> Paired:
        """Return both sides of each case (STATS 6).

        A variant's repeats may be more on one side. Over several variants only repeats that both
        sides have count: repeats of different models cannot replace each other. Answers that
        the head has lost are left out, or count as `lost_as`.
        """
        if len(variants) != 1:
            return self._overall(metric, variants, lost_as)
        pairs = Paired()
        for match in self._match(metric, variants[0]):
            pairs.lost += bool(match.lost)
            base, head = match.base, match.head
            if lost_as is not None:
                base, head = match.with_lost(lost_as)
            if base and head:
                pairs.add(match.case, base, head)
            else:
                pairs.missing += 1
        return pairs

    def latencies(self, variants: Iterable[Variant], side: Side) -> array[float]:
        """Return the latency in milliseconds of each answer; recordings do not count."""
        latencies = array("d")
        for variant in variants:
            rows = self.connection.execute(
                "select distinct c.case_id, c.request_hash, c.answer_no, a.latency_ms from cell c "
                "join answer a on a.request_hash = c.request_hash and a.answer_no = c.answer_no "
                f"where {CELLS} and a.cost_kind <> 'replayed' and {TIMED}",
                self.place(variant, side),
            )
            latencies.extend(row[3] for row in rows if row[0] not in self.left_out)
        return latencies

    def errors(self, variants: Iterable[Variant], side: Side) -> Share:
        """Return the cells in error, of those that were asked."""
        rows = self._counted(
            f"select c.case_id, c.status = 'error' from cell c where {CELLS} "
            "and c.status <> 'skipped'",
            [self.place(variant, side) for variant in variants],
        )
        return _share(rows)

    def flagged(self, kind: str, variants: Iterable[Variant], side: Side) -> Share:
        """Return the answers with a finding of a screen, of those that were screened.

        A screen by a model does not see what a pattern has blocked, and may fail. An answer with a
        finding of one screen counts for `any`, even if the others failed.
        """
        if kind == "any":
            of_answers = "p.cell_id = c.id and p.kind = 'safety' and p.name not like 'input%'"
            hit = f"exists (select 1 from component p where {of_answers} and p.status = 'ok')"
            failed = f"exists (select 1 from component p where {of_answers} and p.status = 'error')"
            query = (
                f"select c.case_id, {hit} from cell c where {CELLS} and {SENT} "
                f"and c.status in ('ok', 'malformed', 'blocked') and ({hit} or not {failed})"
            )
        else:
            screened = f"and {SENT}"
            if kind in ("moderation", "toxicity"):
                screened += (
                    " and not exists (select 1 from component b where b.cell_id = c.id and b.kind "
                    "= 'safety' and b.name in ('pii', 'jailbreak', 'secrets') "
                    "and b.reason like 'block: %')"
                )
            query = (
                "select c.case_id, p.name is not null from cell c left join component p "
                "on p.cell_id = c.id and p.kind = 'safety' and p.name = :kind "
                f"where {CELLS} and c.status in ('ok', 'malformed', 'blocked') "
                f"and p.status is not 'error' {'' if kind.startswith('input_') else screened}"
            )
        chosen = [{**self.place(variant, side), "kind": kind} for variant in variants]
        return _share(self._counted(query, chosen))

    def _counted(self, query: str, chosen: list[dict[str, str | int]]) -> Iterator[int]:
        for values in chosen:
            for case, hit in self.connection.execute(query, values):
                if case not in self.left_out:
                    yield hit

    def place(self, variant: Variant, side: Side) -> dict[str, str | int]:
        """Return the values of `CELLS` that choose the cells of a variant on a side."""
        source = self.source(side)
        prompt, model = source.stored_name(variant)
        return {
            "repeats": _ALL_REPEATS if self.repeats is None else self.repeats,
            "run": source.run_id,
            "side": source.side,
            "prompt": prompt,
            "model": model,
            "version": source.version,
        }

    def _by_case(
        self, metric: Metric, variant: Variant, side: Side
    ) -> Iterator[tuple[str, list[_Row]]]:
        """Yield the repeats of each case that may gate, in the order of their ids."""
        rows = self.connection.execute(
            f"select c.case_id, c.repeat, {metric.status}, {metric.value}, c.request_hash, "
            f"c.answer_no from cell c {metric.join} where {CELLS} order by c.case_id, c.repeat",
            {**self.place(variant, side), **metric.parameters},
        )
        for case, repeats in groupby(rows, key=itemgetter(0)):
            if case not in self.left_out:
                yield case, list(repeats)

    def _match(self, metric: Metric, variant: Variant) -> Iterator[_Match]:
        """Yield each case of either side with the repeats that count."""
        fair: Composites = {}
        if metric.name == "composite":
            fair = paired_composites(self, variant)
        sides = (self._by_case(metric, variant, side) for side in SIDES)
        for case, base, head in _aligned(*sides):
            statuses = {row[2] for row in (*base, *head)}
            if "inapplicable" in statuses:
                continue
            if fair:
                base, head = (
                    _with_composites(s, fair, index) for index, s in enumerate((base, head))
                )
            yield _matched(metric, case, base, head)

    def _overall(
        self, metric: Metric, variants: Iterable[Variant], lost_as: LostAs | None
    ) -> Paired:
        sides, lost, same = (_Totals(), _Totals()), set(), True
        for variant in variants:
            for match in self._match(metric, variant):
                if match.lost:
                    lost.add(match.case)
                base, head = match.base, match.head
                if lost_as is not None:
                    base, head = match.with_lost(lost_as)
                common = {repeat.number for repeat in base} & {repeat.number for repeat in head}
                kept = [[d for d in side if d.number in common] for side in (base, head)]
                same = same and kept[0] == kept[1]
                for totals, repeats in zip(sides, kept, strict=True):
                    totals.add(match.case, [repeat.value for repeat in repeats])
        base_side, head_side = (totals.sample() for totals in sides)
        return Paired(
            cases=base_side.cases,
            base=[(value,) for value in base_side.values],
            head=[(value,) for value in head_side.values],
            missing=base_side.missing,
            lost=len(lost),
            same_answers=same,
        )


_Row: TypeAlias = tuple[str, int, str, float | None, str, int | None]
"""Case, repeat, status, value, and request hash and number of the answer."""

_APART = f"""
select c.case_id from cell c join cell b on b.run_id = :base_run and b.side = :base_side
  and b.prompt = :base_prompt and b.model = :base_model and b.case_id = c.case_id
join answer new on new.request_hash = c.request_hash and new.answer_no = c.answer_no
join answer old on old.request_hash = b.request_hash and old.answer_no = b.answer_no
where {CELLS} and (c.request_hash <> b.request_hash or c.answer_no <> b.answer_no)
  and abs(julianday(new.created_at) - julianday(old.created_at)) > 1
"""


class _Totals:
    """Sums of the repeats of cases, exact in any order.

    Cases of one variant come in the order of their ids, so that a list of them is enough, and none
    where their names do not matter. They are looked up by id only once another variant has the same
    cases again.
    """

    def __init__(self, *, named: bool = True) -> None:
        self._named = named
        self._cases: list[str] = []
        self._index: dict[str, int] | None = None
        self._sums, self._counts = array("d"), array("L")

    def add(self, case: str, values: list[float]) -> None:
        index = self._place(case)
        if index == len(self._sums):
            if self._named:
                self._cases.append(case)
            self._sums.append(0.0)
            self._counts.append(0)
        self._sums[index] += math.fsum(values)
        self._counts[index] += len(values)

    def _place(self, case: str) -> int:
        if not self._named:
            return len(self._sums)
        if self._index is None:
            if not self._cases or self._cases[-1] < case:
                return len(self._cases)
            self._index = {name: index for index, name in enumerate(self._cases)}
        return self._index.setdefault(case, len(self._cases))

    def sample(self) -> Sample:
        sample = Sample()
        order: Iterable[int] = range(len(self._sums))
        if self._index is not None:
            order = sorted(order, key=self._cases.__getitem__)
        for index in order:
            count = self._counts[index]
            if not count:
                sample.missing += 1
                continue
            if self._named:
                sample.cases.append(self._cases[index])
            sample.values.append(snap(self._sums[index] / count))
            sample.single = sample.single and count == 1
        return sample


def _matched(metric: Metric, case: str, base: list[_Row], head: list[_Row]) -> _Match:
    """Return the repeats of a case that have a value and are not blocked on either side."""
    blocked = [{row[1] for row in side if row[2] == "blocked"} for side in (base, head)]
    bases, heads = _repeats(metric, base, blocked[0]), _repeats(metric, head, blocked[1])
    numbers = {repeat.number for repeat in bases}
    lost = blocked[1].union(row[1] for row in head if _is_lost(metric, row)) if head else numbers
    if blocked[0]:
        heads = [repeat for repeat in heads if repeat.number not in blocked[0]]
    both = bases
    if blocked[1]:
        both = [repeat for repeat in bases if repeat.number not in blocked[1]]
    return _Match(case, both, heads, frozenset(lost & numbers), bases)


def _is_lost(metric: Metric, row: _Row) -> bool:
    """Whether an answer has no value although it should have one."""
    if metric.complete:
        return _value(metric, row[3]) is None
    return row[2] in ("error", "skipped")


def _repeats(metric: Metric, rows: list[_Row], blocked: set[int]) -> list[_Repeat]:
    """Return the repeats of a case that have a value and are not blocked."""
    return [
        _Repeat(number, value, request_hash, answer_no)
        for _, number, _, raw, request_hash, answer_no in rows
        if number not in blocked and (value := _value(metric, raw)) is not None
    ]


def _with_composites(rows: list[_Row], fair: Composites, index: int) -> list[_Row]:
    """Return repeats with the composites that are fair to both sides; index 0 is the base."""
    return [
        (*row[:3], fair[row[0], row[1]][index], *row[4:]) if (row[0], row[1]) in fair else row
        for row in rows
    ]


def _value(metric: Metric, raw: float | None) -> float | None:
    """Return a value on its scale; any other is missing."""
    if raw is None or not math.isfinite(raw):
        return None
    high = 1.0 if metric.kind in ("score", "pass", "flips") else math.inf
    return float(raw) if -TOLERANCE <= raw <= high + TOLERANCE else None


def _share(hits: Iterable[int]) -> Share:
    hit_count = total = 0
    for hit in hits:
        hit_count += hit
        total += 1
    return Share(hit_count, total)


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
