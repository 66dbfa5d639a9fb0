"""Cases that count, by what a project's files say of them: quarantine and clusters."""

from __future__ import annotations

from array import array
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.results.samples import Sample

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Project


@dataclass(frozen=True, slots=True)
class Roll:
    """Which cases count, and which of them belong together."""

    clusters: Mapping[str, str] = field(default_factory=dict)
    """Clusters by case, of the cases that have one."""
    quarantined: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    """The cases that were asked for; None for all."""

    def counts(self, case: str) -> bool:
        """Whether a case is asked for and not set aside."""
        return case not in self.quarantined and (self.only is None or case in self.only)

    def kept(self, sample: Sample) -> Sample:
        """Return a sample without the cases that do not count."""
        if self.only is None:
            return sample  # those in quarantine never came in
        found = Sample(missing=sample.missing, single=sample.single)
        values = array("d")
        for case, value in zip(sample.cases, sample.values, strict=True):
            if case in self.only:
                found.cases.append(case)
                values.append(value)
        found.values = values
        return found

    def clusters_of(self, cases: Sequence[str]) -> list[str] | None:
        """Return the cluster of each case, every other case its own; None if none has one."""
        if not any(case in self.clusters for case in cases):
            return None
        return [
            f"cluster {self.clusters[case]}" if case in self.clusters else f"case {case}"
            for case in cases
        ]


def roll_of(
    project: Project,
    name: str,
    tags: Sequence[str] = (),
    *,
    stored: sqlite3.Connection | None = None,
) -> Roll:
    """Read the datasets of an experiment once; one that is gone has the clusters `stored`."""
    aside = frozenset(entry.case for entry in project.quarantine.cases if entry.experiment == name)
    experiment = project.experiments.get(name)
    if experiment is None or not experiment.file.data:
        known = _clusters(stored, name) if stored is not None and experiment is None else {}
        return Roll(known, aside, frozenset() if tags else None)
    clusters: dict[str, str] = {}
    wanted: set[str] = set()
    for case in project.cases(experiment):
        if case.cluster is not None:
            clusters[case.id] = case.cluster
        if tags and any(tag in tags for tag in case.tags):
            wanted.add(case.id)
    return Roll(clusters, aside, frozenset(wanted) if tags else None)


def _clusters(connection: sqlite3.Connection, experiment: str) -> dict[str, str]:
    rows = connection.execute(
        "select distinct c.case_id, c.cluster from cell c join run r on r.id = c.run_id "
        "where r.experiment = ? and c.cluster is not null",
        (experiment,),
    )
    return dict(rows.fetchall())
