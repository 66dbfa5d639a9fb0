"""The cases that count in an experiment, and the clusters of those that are not independent."""

from __future__ import annotations

from array import array
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.results.samples import Sample
from edison_ci.stats.scores import units_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Project


@dataclass(frozen=True, slots=True)
class CaseFilter:
    """Which cases count, and the clusters of those that are not independent."""

    clusters: Mapping[str, str] = field(default_factory=dict)
    """Clusters by case, of the cases that have one."""
    quarantined: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    """The cases that were selected; None for all."""

    def counts(self, case: str) -> bool:
        """Whether a case is selected and not in quarantine."""
        return case not in self.quarantined and (self.only is None or case in self.only)

    def apply(self, sample: Sample) -> Sample:
        """Return a sample without the cases that do not count."""
        if self.only is None:
            return sample  # a sample has no cases in quarantine
        filtered = Sample(missing=sample.missing, single=sample.single)
        values = array("d")
        for case, value in zip(sample.cases, sample.values, strict=True):
            if case in self.only:
                filtered.cases.append(case)
                values.append(value)
        filtered.values = values
        return filtered

    def clusters_of(self, cases: Sequence[str]) -> tuple[str, ...] | None:
        """Return the cluster of each case, every other case its own; None if none has one."""
        return units_of(cases, self.clusters)


def case_filter_of(
    project: Project, name: str, stored: sqlite3.Connection, tags: Sequence[str] = ()
) -> CaseFilter:
    """Return the filter of an experiment: its quarantine and tags of now, its stored clusters."""
    aside = frozenset(entry.case for entry in project.quarantine if entry.experiment == name)
    experiment = project.experiments.get(name)
    tagged: set[str] = set()
    if tags and experiment is not None and experiment.file.data:
        cases = project.cases(experiment)
        tagged = {case.id for case in cases if any(tag in tags for tag in case.tags)}
    return CaseFilter(_clusters(stored, name), aside, frozenset(tagged) if tags else None)


def _clusters(connection: sqlite3.Connection, experiment: str) -> dict[str, str]:
    """Return the cluster that each case has in the newest run with it."""
    # With max() SQLite takes the other columns from the row that has the maximum.
    rows = connection.execute(
        "select case_id, cluster from (select c.case_id, c.cluster, max(r.created_at) from cell c "
        "join run r on r.id = c.run_id where r.experiment = ? group by c.case_id) "
        "where cluster is not null",
        (experiment,),
    )
    return dict(rows.fetchall())
