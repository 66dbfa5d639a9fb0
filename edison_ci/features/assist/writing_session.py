"""Sessions of writing cases: the dataset that they are added to, its cases, and who writes.

Golden cases are what people wrote: generated ones go into another kind of file, which the
experiment is made to use. The file is read again before it is written, so that rows that came in
meanwhile stay and are not repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.api import sessions as run_sessions
from edison_ci.api.case_edits import (
    add_rows,
    listed,
    new_file,
    open_file,
    open_unlisted,
    write_edited,
)
from edison_ci.cli import lookup, sessions
from edison_ci.cli.terminal import Terminal
from edison_ci.config.cases import CaseFeed
from edison_ci.config.experiment import DatasetEntry
from edison_ci.errors import ConfigError, UsageError
from edison_ci.features.assist import generation
from edison_ci.records import canonical_json
from edison_ci.results.case_likeness import KnownCases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.api.case_edits import EditedFile
    from edison_ci.cli.options import CliState
    from edison_ci.config.load import Experiment, Project
    from edison_ci.documents.dataset_text import Row
    from edison_ci.execute.run_options import RunContext
    from edison_ci.features.assist.case_commands import WritingOptions
    from edison_ci.features.assist.case_replies import CaseForm
    from edison_ci.features.assist.drafting import Drafter
    from edison_ci.features.assist.generation import (
        Writers,
    )
    from edison_ci.records import Case, Json

    Decided = tuple[list[dict[str, Json]], list[EditedFile]]


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
        return next((entry for entry in self.experiment.file.data if entry.path == self.path), None)

    def cases(self) -> Iterator[Case]:
        """Yield the cases of the experiment, and those of the file if it does not use them yet.

        Raises ConfigError at the end if a row is invalid.
        """
        entries = tuple(
            entry.model_copy(update={"take": None, "where": {}})
            for entry in self.experiment.file.data
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
        names: list[Json] = [str(new.id) for file in edited for _, new in file.changes if new]
        for file in edited:
            write_edited(self.project, file, action, {"cases": names})
        return len(names)


@dataclass(frozen=True, slots=True)
class WritingSession:
    """An experiment for which cases are written: its dataset, its cases, and who writes."""

    terminal: Terminal
    file: GeneratedRows
    cases: tuple[Case, ...]
    context: RunContext
    drafters: tuple[Drafter, ...]
    verifier: Drafter | None
    fixed: Mapping[str, Json]
    """Inputs that all cases share."""
    action: str
    options: WritingOptions

    @classmethod
    def open(
        cls, state: CliState, options: WritingOptions, action: str, kind: str
    ) -> WritingSession:
        """Return the session of a command; raises UsageError."""
        terminal, project = Terminal(state), lookup.open_project(state, options.experiment)
        experiment = lookup.find_experiment(project, options.experiment)
        run_sessions.require_editor(project, action)
        name = "generated" if kind == "synthetic" else kind
        path = options.path or f"{project.file.paths.datasets}/{experiment.id}-{name}.jsonl"
        file = GeneratedRows(project, experiment, path, kind)
        file.check()
        cases = tuple(file.cases())
        context = run_sessions.run_context(project, offline=state.offline)
        drafters = generation.writers_of(project, options.writers, context)
        verifier = None
        if options.verify_by:
            (verifier,) = generation.writers_of(project, [options.verify_by], context)
            if {drafter.first.name for drafter in drafters} == {verifier.first.name}:
                raise UsageError(
                    f"{options.verify_by} writes the cases itself",
                    hint="another model has to agree: --verify-by NAME",
                )
        fixed = lookup.parse_variables(experiment.prompts[0], options.values)
        return cls(terminal, file, cases, context, drafters, verifier, fixed, action, options)

    @property
    def project(self) -> Project:
        """The project."""
        return self.file.project

    @property
    def experiment(self) -> Experiment:
        """The experiment."""
        return self.file.experiment

    @property
    def seed(self) -> int:
        """The seed of slots and replies."""
        return len(self.cases) if self.options.seed is None else self.options.seed

    def known(self, form: CaseForm, diversity: int) -> KnownCases:
        """Return the cases that are there."""
        return KnownCases((case.inputs for case in self.cases), form.types, diversity)

    def writers(self, form: CaseForm, brief: str, diversity: int) -> Writers:
        """Return the models that write, with what they are asked for."""
        return generation.Writers(
            self.project,
            self.experiment,
            form,
            self.drafters,
            brief,
            diversity,
            self.seed,
            self.cases,
            budget_microusd=sessions.microusd(self.options.budget),
        )
