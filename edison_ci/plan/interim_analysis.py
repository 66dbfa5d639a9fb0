"""Interim analyses: when a run is analysed before its end, and what is measured for each analysis.

There are two kinds, both fixed before the first call. `if_unclear: more_repeats` has three
analyses, at 1, 2 and 3 times the repeats of every case. `adaptive_sampling` takes the cases in
random order and has an analysis after each batch of them.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from edison_ci.config.experiment import Stop
    from edison_ci.config.gates import Gate
    from edison_ci.records import Case

Kind: TypeAlias = Literal["repeats", "cases"]

REPEATS_ANALYSES = 3
"""`more_repeats` has analyses at 1, 2 and 3 times the repeats (STATS 9)."""
BATCH = 20
MOST_ANALYSES = 500
"""Batches grow with the cases, so that analyses never take longer than the calls."""
INFERRED = ("composite", "pass_rate", "criterion.", "check.", "grader.")
"""Metrics that are compared with the base by inference over cases; the others as they are."""
_READ_AHEAD = 1_000
"""Cases, or clusters, that are read ahead."""


@dataclass(frozen=True, slots=True)
class InterimAnalysis:
    """One analysis of a run that may continue after it."""

    kind: Kind
    number: int
    """1 and up."""
    of: int
    """Analyses that are planned at most."""
    at: int
    """Measured so far: repeats of every case, or cases."""
    most: int
    """Measured at the last analysis."""
    seed: str = ""
    """Of the order in which cases are taken."""
    final: bool = False
    """Whether nothing more is measured after it."""

    @property
    def last(self) -> bool:
        """Whether no analysis can follow."""
        return self.final or self.at >= self.most

    def as_json(self) -> dict[str, Any]:
        """Return the analysis as it is stored with a decision."""
        return {
            name: value for name, value in asdict(self).items() if name not in ("seed", "final")
        }


def interim_kind(gates: Iterable[Gate], stop: Stop) -> Kind | None:
    """Return the kind of interim analyses of a comparison; None without any.

    With both, cases are sampled: an inconclusive end has used up the error that repeats would need.
    """
    kinds: tuple[Kind, ...] = ("cases", "repeats") if stop.adaptive_sampling else ("repeats",)
    gates = tuple(gates)
    return next((k for k in kinds if any(takes_part(gate, k) for gate in gates)), None)


def takes_part(gate: Gate, kind: Kind) -> bool:
    """Whether a gate is decided at interim analyses.

    Sampling needs differences from -1 to 1: scores and passes have them, amounts do not.
    """
    if gate.no_worse_than != "base" or gate.use == "human" or gate.slices is not None:
        return False
    if kind == "repeats":
        return gate.if_unclear == "more_repeats"
    return gate.metric.startswith(INFERRED)


def is_inferred(gate: Gate) -> bool:
    """Whether a gate infers from cases, so that repeated analyses need a correction.

    Shares, latencies and limits of amounts are compared as they are.
    """
    if gate.counts:
        return False
    inferred: tuple[str, ...] = (*INFERRED, "win_rate", "flips")
    if gate.no_worse_than is not None:
        inferred = (*inferred, "cost_usd.mean", "tokens.mean")
    return gate.metric.startswith(inferred)


def repeats_analysis(number: int, repeats: int) -> InterimAnalysis:
    """Return one of the three analyses of `more_repeats`, given the repeats of the first."""
    return InterimAnalysis(
        "repeats", number, REPEATS_ANALYSES, number * repeats, REPEATS_ANALYSES * repeats
    )


def count_analyses(cases: int) -> int:
    """Return the number of analyses for a number of cases."""
    return math.ceil(cases / batch_size(cases))


def rounds(kind: Kind, cases: int) -> tuple[float, int]:
    """Return how much is measured at the first and at the last interim analysis, in whole runs."""
    if kind == "repeats":
        return 1, REPEATS_ANALYSES
    return min(1.0, batch_size(cases) / max(cases, 1)), 1


def both_sides(kind: Kind, cases: int, calls: int) -> tuple[int, int]:
    """Return the calls of a comparison at its first and last analysis, given those of one side."""
    least, most = rounds(kind, cases)
    return math.ceil(2 * least * calls), 2 * most * calls


def batch_size(cases: int) -> int:
    """Return how many cases are measured between two analyses."""
    return max(BATCH, math.ceil(cases / MOST_ANALYSES))


def sort_key(seed: str, case_id: str, cluster: str | None) -> bytes:
    """Return a pseudo-random sort key of a case, the same for a whole cluster."""
    unit = f"case {case_id}" if cluster is None else f"cluster {cluster}"
    return hashlib.sha256(f"{seed}:{unit}".encode("utf-8", "surrogatepass")).digest()


def batches_of(cases: Iterable[tuple[str, str | None]], *, seed: str, size: int) -> list[list[str]]:
    """Return cases, given with their clusters, in the batches in which they were measured."""
    units: dict[bytes, list[str]] = {}
    for case_id, cluster in cases:
        units.setdefault(sort_key(seed, case_id, cluster), []).append(case_id)
    ordered = [units[key] for key in sorted(units)]
    return [
        [case for unit in ordered[start : start + size] for case in unit]
        for start in range(0, len(ordered), size)
    ]


def random_batches(
    cases: Callable[[], Iterable[Case]],
    clusters: Mapping[str, str],
    *,
    seed: str,
    size: int,
    read_ahead: int = _READ_AHEAD,
) -> Iterator[list[Case]]:
    """Yield the cases in batches, in random order, with few of them in memory at a time.

    Clusters, given by case, stay together; `size` is the number of cases or clusters in a batch.
    """

    def key_of(case: Case) -> bytes:
        return sort_key(seed, case.id, clusters.get(case.id))

    read_ahead = max(read_ahead // size, 1) * size
    after = b""
    while units := _next_units(map(key_of, cases()), after, read_ahead):
        keys = sorted(units)
        cases_by_unit: dict[bytes, list[Case]] = {key: [] for key in keys}
        for case in cases():
            members = cases_by_unit.get(key_of(case))
            if members is not None:
                members.append(case)
        for start in range(0, len(keys), size):
            yield [case for key in keys[start : start + size] for case in cases_by_unit[key]]
        after = keys[-1]


def _next_units(sort_keys: Iterable[bytes], after: bytes, count: int) -> set[bytes]:
    """Return the sort keys of the next cases or clusters."""
    smallest: set[bytes] = set()
    for key in sort_keys:
        if key > after:
            smallest.add(key)
            if len(smallest) >= 2 * count:
                smallest = set(heapq.nsmallest(count, smallest))
    return set(heapq.nsmallest(count, smallest))
