"""What is a dataset made of: tags, difficulty, kinds and lengths?"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci.config.cases import is_holdout
from edison_ci.config.facets import NONE, length_of, level_of, words_in
from edison_ci.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.config.dataset_entry import Split
    from edison_ci.records import Case


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
        self.tags.update(set(case.tags) or {NONE})
        self.difficulty[level_of(case.difficulty)] += 1
        self.kind[case.kind] += 1
        self.length[length_of(words)] += 1


def count(cases: Iterable[Case], split: Split | None) -> Counts:
    """Count the cases of a dataset."""
    found = Counts()
    for case in cases:
        found.add(case, split)
    return found
