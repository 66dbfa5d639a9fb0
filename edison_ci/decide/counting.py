"""What is a dataset made of: tags, difficulty, kinds and lengths?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edison_ci.config.cases import is_holdout
from edison_ci.records import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.config.dataset_entry import Split
    from edison_ci.records import Case, Json

LENGTHS = {"XS": 10, "S": 50, "M": 200, "L": 1_000}
"""Most words of each size; what has more is XL."""
LEVELS = {1: "easy", 2: "easy", 3: "medium", 4: "hard", 5: "hard"}


@dataclass(slots=True)
class Counts:
    """How many cases there are of each kind."""

    cases: int = 0
    expected: int = 0
    """With an expected output."""
    holdout: int = 0
    words: int = 0
    clusters: set[int] = field(default_factory=set)
    """Hashes of the clusters' names."""
    clustered: int = 0
    tags: Counter[str] = field(default_factory=Counter)
    difficulty: Counter[str] = field(default_factory=Counter)
    kind: Counter[str] = field(default_factory=Counter)
    length: Counter[str] = field(default_factory=Counter)

    def add(self, case: Case, split: Split | None) -> None:
        """Count a case."""
        self.cases += 1
        self.expected += case.expected is not None
        self.holdout += split is not None and is_holdout(case, split)
        words = words_in(case)
        self.words += words
        if case.cluster is not None:
            self.clustered += 1
            self.clusters.add(hash(case.cluster))
        self.tags.update(set(case.tags) or {"(none)"})
        self.difficulty[level_of(case)] += 1
        self.kind[case.kind] += 1
        self.length[length_of(words)] += 1


def count(cases: Iterable[Case], split: Split | None) -> Counts:
    """Count the cases of a dataset."""
    found = Counts()
    for case in cases:
        found.add(case, split)
    return found


def level_of(case: Case) -> str:
    """Return how difficult a case is, in words."""
    return "(none)" if case.difficulty is None else LEVELS[case.difficulty]


def words_in(case: Case) -> int:
    """Return the number of words of all inputs together."""
    return sum(len(_text(value).split()) for value in case.inputs.values())


def length_of(words: int) -> str:
    """Return the size of an input of so many words."""
    return next((size for size, most in LENGTHS.items() if words <= most), "XL")


def _text(value: Json) -> str:
    return value if isinstance(value, str) else canonical_json(value)
