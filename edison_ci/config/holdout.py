"""The holdout: which cases are kept from a refiner, so that they can show whether a change helps.

Cases of one cluster stay together; a case without a cluster is one of its own. Up to 200 clusters
the share is exact: the clusters with the lowest hashes, ranked over all cases of the datasets,
whatever `where`, `take` or a command line choose of them. Of more clusters each is decided by its
own hash, so that a large dataset need not be read before its first case is known.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.config.cases import (
    MOST_RANKED,
    CaseFeed,
    is_holdout,
    lowest_units,
    unit_of,
)
from edison_ci.config.experiment import Split

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import Case


@dataclass(frozen=True, slots=True)
class Holdout:
    """The cases of an experiment that are held out."""

    split: Split
    ranked: frozenset[str] | None = None
    """The clusters that are held out; None if there are too many, and their hashes decide."""
    known: Mapping[str, bool] = field(default_factory=dict)
    """Whether a case was held out from earlier refinements, by its id; this decides first."""

    def has(self, case: Case) -> bool:
        """Whether a case is held out."""
        side = self.known.get(case.id)
        if side is not None:
            return side
        return is_holdout(case, self.split) if self.ranked is None else unit_of(case) in self.ranked

    def as_json(self) -> dict[str, Any]:
        """Return it as it is stored with a run, whose cases show what was known before."""
        kept: dict[str, Any] = {"holdout": self.split.holdout, "seed": self.split.seed}
        if self.ranked is not None:
            kept["clusters"] = sorted(self.ranked)
        return kept

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Holdout:
        """Return a holdout from its stored form; one of an older program has no clusters."""
        clusters = kept.get("clusters")
        split = Split(holdout=kept["holdout"], seed=kept["seed"])
        return cls(split, None if clusters is None else frozenset(map(str, clusters)))


def holdout_of(
    project: Project,
    experiment: Experiment,
    split: Split | None = None,
    known: Mapping[str, bool] | None = None,
) -> Holdout:
    """Return the holdout of an experiment; `known` has the cases that earlier refinements decided.

    A new case of a cluster joins the others: those that a refiner may have seen, if there are any.
    """
    split, known = split or experiment.file.split or Split(), known or {}
    sides: dict[str, bool | None] = {}
    for case in _whole(project, experiment):
        unit, side = unit_of(case), known.get(case.id)
        before = sides.setdefault(unit, side)
        if side is not None:
            sides[unit] = side if before is None else side and before
        if len(sides) > MOST_RANKED:
            return Holdout(split, None, known)
    held = {unit for unit, side in sides.items() if side}
    shown = {unit for unit, side in sides.items() if side is False}
    return Holdout(split, lowest_units(split, {*sides}, held, shown), known)


def _whole(project: Project, experiment: Experiment) -> Iterable[Case]:
    """Yield all cases of the datasets, each file once, before anything is chosen of them."""
    everything: dict[str, Any] = {"where": {}, "take": None}
    entries = {
        (entry.path, *sorted(entry.map.items())): entry.model_copy(update=everything)
        for entry in experiment.file.data
    }
    return CaseFeed(project.tree, tuple(entries.values()), experiment.types())
