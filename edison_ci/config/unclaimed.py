"""Is there anything wrong with datasets that no readable experiment names?

An experiment with an error of its own says nothing about its data, and a dataset may be written
before its experiment is. Their rows are checked all the same, so that all problems come at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.config.cases import CaseFeed
from edison_ci.config.dataset_entry import DataLimits, DatasetEntry

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.errors import Problem

_SUFFIXES = (".jsonl", ".csv", ".yaml", ".yml")
_LIMITS = DataLimits.model_construct(max_rows=100_000)


def unclaimed_data(project: Project) -> list[Problem]:
    """Return the problems of the rows; a file too large to be looked at unasked is left alone."""
    claimed = {entry.path for e in project.experiments.values() for entry in e.file.data}
    claimed |= {r.calibration.labels for r in project.rubrics.values() if r.calibration}
    folder = project.file.paths.datasets
    problems: list[Problem] = []
    for name in project.tree.names(folder):
        path = f"{folder}/{name}"
        if path in claimed or name.startswith(".") or not name.endswith(_SUFFIXES):
            continue
        feed = CaseFeed(project.tree, (DatasetEntry(path=path, limits=_LIMITS),))
        for _ in feed:
            pass
        problems += [problem for problem in feed.problems if problem.code != "size"]
    return problems
