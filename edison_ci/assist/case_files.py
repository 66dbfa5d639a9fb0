"""Generated cases as rows of a dataset file, which the experiment is made to use.

Golden cases are what people wrote: generated ones go into a file of their own kind. The file is
read again before it is written, so that rows that came in meanwhile stay and are not repeated.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.assist.draft_files import DraftFile
from edison_ci.config.cases import CaseFeed
from edison_ci.config.experiment import DatasetEntry
from edison_ci.documents.decoding import decode
from edison_ci.documents.files import read, replace_file
from edison_ci.documents.yaml_edit import with_listed
from edison_ci.errors import ConfigError, UsageError
from edison_ci.operate.site import Role, Site
from edison_ci.records import canonical_json
from edison_ci.refine.candidate import OverlayTree
from edison_ci.refine.patch import diff_of
from edison_ci.store.audit import write_audit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.documents.yaml_edit import Given
    from edison_ci.records import Case, Json

_LARGEST = 100_000_000


@dataclass(frozen=True, slots=True)
class CaseFile:
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

    @property
    def text(self) -> str:
        """The text of the file; empty if there is none."""
        tree = self.project.tree
        if not tree.exists(self.path):
            return ""
        return decode(read(tree, self.path, max_bytes=_LARGEST))

    def cases(self) -> Iterator[Case]:
        """Yield the cases of the experiment, and those of the file if it does not use them yet.

        Raises ConfigError at the end if a row is invalid.
        """
        entries = tuple(
            each.model_copy(update={"take": None, "where": {}})
            for each in self.experiment.file.data
        )
        if self._entry is None and self.project.tree.exists(self.path):
            entries = (*entries, DatasetEntry.model_validate({"path": self.path}))
        feed = CaseFeed(self.project.tree, entries, self.experiment.types())
        yield from feed
        if feed.problems:
            raise ConfigError(feed.problems)

    def new(self, rows: Sequence[dict[str, Json]]) -> list[dict[str, Json]]:
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

    def with_rows(self, rows: Sequence[dict[str, Json]]) -> str:
        """Return the text of the file with these rows at its end."""
        before = self.text
        start = before if not before or before.endswith("\n") else f"{before}\n"
        return start + "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)

    def experiment_text(self) -> str:
        """Return the text of the experiment with the file among its datasets."""
        before = decode(read(self.project.tree, self.experiment.path))
        if self._entry is not None:
            return before
        entry: dict[str, Given] = {"path": self.path, "kind": self.kind}
        return with_listed(before, "dataset", "datasets", entry)

    @property
    def experiment_diff(self) -> str:
        """The change of the experiment; empty if it uses the file already."""
        path = self.experiment.path
        before = decode(read(self.project.tree, path))
        return diff_of(path, before, self.experiment_text())

    def add(self, rows: Sequence[dict[str, Json]], action: str) -> int:
        """Write the rows that are new, and return their number; raises ConfigError.

        The dataset is written first: if the experiment is not, the next command finds the rows.
        """
        rows = self.new(rows)
        if not rows:
            return 0
        before, text, experiment = self.text, self.with_rows(rows), self.experiment_text()
        changed = OverlayTree(self.project.tree, self.path, text)
        DraftFile(self.project, self.experiment.path, experiment, {self.path: text}).changed()
        feed = CaseFeed(
            changed,
            (self._entry or DatasetEntry.model_validate({"path": self.path}),),
            self.experiment.types(),
        )
        for _ in feed:
            pass
        if feed.problems:
            raise ConfigError(feed.problems)
        site = Site(self.project.root, self.project.file)
        actor = site.require(Role.EDITOR, action, self.path)
        entry = site.entry(actor, action, self.path, after={"cases": [row["id"] for row in rows]})
        site.results.parent.mkdir(parents=True, exist_ok=True)
        target = site.root / self.path
        target.parent.mkdir(parents=True, exist_ok=True)

        def last_look() -> None:
            if self.text != before:
                raise UsageError(f"{self.path} changed meanwhile", hint="repeat the command")
            write_audit(site.results, entry)

        replace_file(target, text.encode("utf-8"), just_before=last_look)
        if self._entry is None:
            replace_file(site.root / self.experiment.path, experiment.encode("utf-8"))
        return len(rows)
