"""Random samples: which cases come first, and whether those seen are a random sample.

The order is that of hashes of a seed and the case, so it is independent of the results of a case:
taking cases from its beginning without a gap gives a random sample, at any point of stopping.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

FEWEST_LABELS = 20
"""Number of labels below which the mean of the labels is used alone."""
MOST_LEFT_OUT = 0.05
"""Share of the cases that may have been passed over, as STATS 7 allows it of missing cases."""


def random_rank(seed: int, name: str) -> str:
    """Return by what a case is sorted in the random order of a seed."""
    return hashlib.sha256(f"{seed}:{name}".encode("utf-8", "surrogatepass")).hexdigest()


def random_order(names: Iterable[str], seed: int = 0) -> list[str]:
    """Return names in the random order of a seed; those that are added later move no others."""
    return sorted(set(names), key=lambda name: random_rank(seed, name))


@dataclass(frozen=True, slots=True)
class RandomSample:
    """The cases that represent all of them."""

    cases: frozenset[str]
    of: int
    """All cases."""
    picked: int
    """Graded cases outside of the sample: they were picked by hand."""
    left_out: int
    """Cases before the end of the sample that were passed over."""

    @property
    def n(self) -> int:
        """Cases in the sample."""
        return len(self.cases)


def random_sample(names: Iterable[str], seen: Collection[str], seed: int = 0) -> RandomSample:
    """Return the graded cases from the start of the order, nearly without a gap."""
    order = random_order(names, seed)
    end = found = 0
    for place, name in enumerate(order, 1):
        if name in seen:
            found += 1
            if place - found <= MOST_LEFT_OUT * place:
                end = place
    cases = frozenset(name for name in order[:end] if name in seen)
    return RandomSample(cases, len(order), found - len(cases), end - len(cases))
