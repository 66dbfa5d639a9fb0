"""Generated cases as rows of a dataset file, which the experiment is made to use.

Golden cases are what people wrote: generated ones go into a file of their own kind. The file is
read again before it is written, so that rows that came in meanwhile stay and are not repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.api.case_edits import (
    add_rows,
    listed,
    new_file,
    open_file,
    open_unlisted,
    write_edited,
)
from edison_ci.config.cases import CaseFeed
from edison_ci.config.experiment import DatasetEntry
from edison_ci.errors import ConfigError, UsageError
from edison_ci.records import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.api.case_edits import EditedFile
    from edison_ci.config.load import Experiment, Project
    from edison_ci.documents.dataset_text import Row
    from edison_ci.records import Case, Json


@dataclass(frozen=True, slots=True)
class GeneratedRows:
    """A dataset file of an experiment that generated cases are added to."""

    project: Project
    experiment: Experiment
    path: str
    kind: str

    def check(self) -> None:
        """Raise UsageError if generated cases do not belong into the file."""
        if not self.project.file.settings.allow_synthetic_datasets:
            raise UsageError(
                "generated data is not allowed in this project",
                hint="settings: {allow_synthetic_datasets: true} in edison.yaml allows it",
            )
        if not self.path.endswith(".jsonl"):
            raise UsageError(f"{self.path} is not a .jsonl file", hint="name one: --dataset FILE")
        entry = self._entry
        if entry is not None and entry.kind != self.kind:
            raise UsageError(
                f"{self.path} has {entry.kind} cases", hint=f"{self.kind} ones need another file"
            )
        if entry is not None and entry.map:
            raise UsageError(f"{self.path} is renamed by map", hint="name another file")

    @property
    def _entry(self) -> DatasetEntry | None:
        return next((each for each in self.experiment.file.data if each.path == self.path), None)

    def cases(self) -> Iterator[Case]:
        """Yield the cases of the experiment, and those of the file if it does not use them yet.

        Raises ConfigError at the end if a row is invalid.
        """
        entries = tuple(
            each.model_copy(update={"take": None, "where": {}})
            for each in self.experiment.file.data
        )
        if self._entry is None and self.project.tree.exists(self.path):
            entries = (*entries, DatasetEntry(path=self.path))
        feed = CaseFeed(self.project.tree, entries, self.experiment.types())
        yield from feed
        if feed.problems:
            raise ConfigError(feed.problems)

    def new(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that the experiment does not have, as its files are now."""
        ids, inputs = set[str](), set[str]()
        for case in self.cases():
            ids.add(str(case.id))
            inputs.add(canonical_json(dict(case.inputs)))
        return [
            row
            for row in rows
            if row["id"] not in ids and canonical_json(row["input"]) not in inputs
        ]

    def edited(self, rows: Sequence[Row]) -> list[EditedFile]:
        """Return the files with the rows that are new; none if there is none.

        The dataset comes first: if the experiment is not written, the next command finds the rows.
        """
        rows = self.new(rows)
        project, experiment, path = self.project, self.experiment, self.path
        if not rows:
            return []
        if self._entry is not None:
            return [add_rows(open_file(project, experiment, path), rows)]
        if not project.tree.exists(path):
            return [*new_file(project, experiment, path, rows, self.kind)]
        file = open_unlisted(project, experiment, path)
        dataset = add_rows(file, rows)
        count = len(file.cases) + len(rows)
        return [dataset, listed(project, experiment, dataset, count, self.kind)]

    def write(self, edited: Sequence[EditedFile], action: str) -> int:
        """Write the files, and return the number of new rows; raises UsageError."""
        names: list[Json] = [str(new.id) for each in edited for _, new in each.changes if new]
        for each in edited:
            write_edited(self.project, each, action, {"cases": names})
        return len(names)
