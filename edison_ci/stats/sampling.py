"""Random samples: which cases come first, and whether those seen are a random sample.

The order is that of hashes of a seed and the case, so it has nothing to do with how a case went:
whoever starts at its beginning and leaves nothing out draws a random sample, wherever they stop.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

FEWEST_LABELS = 20
"""Below so many labels the mean of the labels stands alone."""
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
    """The cases that can stand for all of them."""

    cases: frozenset[str]
    of: int
    """All cases."""
    picked: int
    """Cases that were looked at beside the sample: somebody chose them."""
    left_out: int
    """Cases before the end of the sample that were passed over."""

    @property
    def n(self) -> int:
        """Cases in the sample."""
        return len(self.cases)


def random_sample(names: Iterable[str], seen: Collection[str], seed: int = 0) -> RandomSample:
    """Return the cases that were looked at from the start of the order, nearly without a gap."""
    order = random_order(names, seed)
    end = found = 0
    for place, name in enumerate(order, 1):
        if name in seen:
            found += 1
            if place - found <= MOST_LEFT_OUT * place:
                end = place
    cases = frozenset(name for name in order[:end] if name in seen)
    return RandomSample(cases, len(order), found - len(cases), end - len(cases))
