"""Interim analyses: how often a run may be looked at, and what is measured for each look.

Two ways, both declared before the first call. `if_unclear: more_draws` looks three times, at 1, 2
and 3 times the draws of every case. `adaptive_sampling` takes the cases in random order and looks
after each batch of them.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from edison_ci.config.decisions import Gate, Stop
    from edison_ci.records import Case

Kind: TypeAlias = Literal["draws", "cases"]

DRAWS_LOOKS = 3
"""`more_draws` looks at 1, 2 and 3 times the draws (STATS 9)."""
BATCH = 20
MOST_LOOKS = 500
"""Of many cases larger batches are made, so that looking never takes longer than asking."""
INFERRED = ("composite", "pass_rate", "criterion.", "check.", "grader.")
"""Metrics that are compared with the base by inference over cases; the others as they are."""
_HELD = 1_000
"""Cases, or clusters, that are read ahead."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a run that may go on after it."""

    kind: Kind
    number: int
    """1 and up."""
    of: int
    """Looks that were planned at most."""
    at: int
    """What is measured by now: draws of every case, or cases."""
    most: int
    """What is measured at the last look."""
    seed: str = ""
    """Of the order in which cases are taken."""
    final: bool = False
    """Whether nothing more is measured, whatever it says."""

    @property
    def last(self) -> bool:
        """Whether no look can follow."""
        return self.final or self.at >= self.most

    def as_json(self) -> dict[str, Any]:
        """Return the look as it is kept with a decision."""
        return {
            name: value for name, value in asdict(self).items() if name not in ("seed", "final")
        }


def kind_of_looks(gates: Iterable[Gate], stop: Stop) -> Kind | None:
    """Return how a comparison is looked at; None if once, at the end.

    With both, cases are sampled: an undecided end has used up the error that further draws need.
    """
    kinds: tuple[Kind, ...] = ("cases", "draws") if stop.adaptive_sampling else ("draws",)
    gates = tuple(gates)
    return next((k for k in kinds if any(takes_part(gate, k) for gate in gates)), None)


def takes_part(gate: Gate, kind: Kind) -> bool:
    """Whether a gate is looked at more than once.

    Sampling needs differences from -1 to 1: scores and passes have them, amounts do not.
    """
    if gate.no_worse_than is None or gate.use == "human":
        return False
    if kind == "draws":
        return gate.if_unclear == "more_draws"
    return gate.metric.startswith(INFERRED)


def is_inferred(gate: Gate) -> bool:
    """Whether a gate infers from cases, so that a second look has its price.

    Shares, latencies and limits of amounts are compared as they are.
    """
    inferred: tuple[str, ...] = (*INFERRED, "win_rate")
    if gate.no_worse_than is not None:
        inferred = (*inferred, "cost_usd.mean", "tokens.mean")
    return gate.metric.startswith(inferred)


def draws_look(number: int, draws: int) -> Look:
    """Return one of the three looks at so many draws a case, 2 and 3 times as many."""
    return Look("draws", number, DRAWS_LOOKS, number * draws, DRAWS_LOOKS * draws)


def looks_at(cases: int) -> int:
    """Return how many looks so many cases make at most."""
    return math.ceil(cases / batch_size(cases))


def rounds(kind: Kind, cases: int) -> tuple[float, int]:
    """Return how much is measured at the first and at the last look, in whole runs."""
    if kind == "draws":
        return 1, DRAWS_LOOKS
    return min(1.0, batch_size(cases) / max(cases, 1)), 1


def both_sides(kind: Kind, cases: int, calls: int) -> tuple[int, int]:
    """Return the calls of a comparison at its first and last look, given those of one side."""
    least, most = rounds(kind, cases)
    return math.ceil(2 * least * calls), 2 * most * calls


def batch_size(cases: int) -> int:
    """Return how many cases are measured between two looks."""
    return max(BATCH, math.ceil(cases / MOST_LOOKS))


def place(seed: str, case_id: str, cluster: str | None) -> bytes:
    """Return what cases are ordered by: as good as random, and the same for a whole cluster."""
    unit = f"case {case_id}" if cluster is None else f"cluster {cluster}"
    return hashlib.sha256(f"{seed}:{unit}".encode("utf-8", "surrogatepass")).digest()


def batches_of(cases: Iterable[tuple[str, str | None]], *, seed: str, size: int) -> list[list[str]]:
    """Return cases, given with their clusters, in the batches in which they were measured."""
    units: dict[bytes, list[str]] = {}
    for case_id, cluster in cases:
        units.setdefault(place(seed, case_id, cluster), []).append(case_id)
    ordered = [units[key] for key in sorted(units)]
    return [
        [case for unit in ordered[start : start + size] for case in unit]
        for start in range(0, len(ordered), size)
    ]


def dealt(
    cases: Callable[[], Iterable[Case]], *, seed: str, size: int, held: int = _HELD
) -> Iterator[list[Case]]:
    """Yield the cases in batches, in random order; few of them are held at a time.

    Clusters stay together, and a batch has so many of them.
    """
    held = max(held // size, 1) * size
    after = b""
    while units := _next_units(cases(), seed, after, held):
        keys = sorted(units)
        found: dict[bytes, list[Case]] = {key: [] for key in keys}
        for case in cases():
            members = found.get(place(seed, case.id, case.cluster))
            if members is not None:
                members.append(case)
        for start in range(0, len(keys), size):
            yield [case for key in keys[start : start + size] for case in found[key]]
        after = keys[-1]


def _next_units(cases: Iterable[Case], seed: str, after: bytes, count: int) -> set[bytes]:
    """Return the places of the next cases or clusters."""
    found: set[bytes] = set()
    for case in cases:
        key = place(seed, case.id, case.cluster)
        if key > after:
            found.add(key)
            if len(found) >= 2 * count:
                found = set(heapq.nsmallest(count, found))
    return set(heapq.nsmallest(count, found))
