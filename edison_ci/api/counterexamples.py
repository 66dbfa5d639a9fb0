"""New cases: like one that fails, with what would be right, or written from nothing.

The row is appended to a file of a dataset, in its format, and the file is read again before
anything is written. A page proposes it on a separate branch, with a pull request where there is a
forge; a command writes it to the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.api.case_edits import add_rows, open_file
from edison_ci.config.cases import CaseFeed
from edison_ci.documents.files import OverlayTree
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import Location, UsageError
from edison_ci.proposals.file_proposal import ChangeText, checked_note, propose_file
from edison_ci.results.stored_runs import open_runs
from edison_ci.store.cells import find_cell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.api.case_edits import EditedFile
    from edison_ci.config.experiment import DatasetEntry
    from edison_ci.config.load import Experiment, Project
    from edison_ci.documents.marks import Json
    from edison_ci.proposals.context import ReviewContext
    from edison_ci.proposals.file_proposal import Proposed
    from edison_ci.records import Case

TAG = "counterexample"
_LARGEST = 20_000_000
"""Most bytes of a dataset that a case is added to."""


class CaseEntry(NamedTuple):
    """What a person entered for a new case: each value as the text of its field."""

    inputs: Mapping[str, str]
    expected: str
    note: str = ""
    tags: tuple[str, ...] = (TAG,)
    name: str = ""
    """Its id; one that is free if it is empty."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A case, and the dataset file that has it."""

    project: Project
    experiment: Experiment
    case: Case | None
    """None for a case that is written from nothing."""
    entry: DatasetEntry
    ids: frozenset[str]
    """Ids of all cases of the file."""

    @property
    def free_id(self) -> str:
        """An id for a further case."""
        stem = "case" if self.case is None else f"{str(self.case.id)[:160]}-{TAG}"
        numbered = (f"{stem}-{number}" for number in range(2, len(self.ids) + 3))
        return next(name for name in (stem, *numbered) if name not in self.ids)


def origin_of(project: Project, experiment: Experiment, case_id: str) -> Origin:
    """Return a case with its file; raises UsageError if no file has it."""
    for entry in experiment.file.data:
        if (project.root / entry.path).stat().st_size > _LARGEST:
            raise UsageError(
                f"{entry.path} has more than {_LARGEST:,} bytes",
                hint="add the case to the file by hand",
            )
        original, ids = None, set()
        for case in CaseFeed(project.tree, (_whole(entry),), experiment.types()):
            ids.add(str(case.id))
            if case.id == case_id:
                original = case
        if original is not None:
            return Origin(project, experiment, original, entry, frozenset(ids))
    raise UsageError(
        f"{experiment.id} no longer has the case {case_id!r}", hint="add the case to its dataset"
    )


def origin_of_answer(project: Project, run_id: str, cell: str) -> Origin:
    """Return the case of a stored answer with its file; raises UsageError."""
    with open_runs(project) as runs:
        run = runs.find(run_id)
        row = find_cell(runs.connection, run.id, cell)
    return origin_of(project, project.experiment(run.experiment), row.case_id)


def file_of(project: Project, experiment: Experiment, path: str | None) -> Origin:
    """Return a dataset file for a case from nothing; the first one of the experiment by default."""
    entries = {entry.path: entry for entry in experiment.file.data}
    if not entries:
        raise UsageError(f"{experiment.id} has no dataset", hint="add data: to the experiment")
    entry = entries.get(path or next(iter(entries)))
    if entry is None:
        raise UsageError(
            f"{experiment.id} has no dataset {path!r}", hint=f"it has: {', '.join(entries)}"
        )
    feed = CaseFeed(project.tree, (_whole(entry),), experiment.types())
    ids = frozenset(str(case.id) for case in feed)
    return Origin(project, experiment, None, entry, ids)


def _whole(entry: DatasetEntry) -> DatasetEntry:
    """Return the entry without its sample, which a further case could change."""
    return entry.model_copy(update={"take": None})


def add_counterexample(
    review: ReviewContext, origin: Origin, entered: CaseEntry, person: str
) -> Proposed:
    """Propose a case like another one, with its own input or expected answer."""
    note, path = checked_note(entered.note), origin.entry.path
    edited = extended(origin, entered).edited
    stem = path.rpartition("/")[2].partition(".")[0]
    text = ChangeText(f"edison/cases/{stem}", f"Add a case to {stem}", note, person)
    return propose_file(review, path, before=edited.before, after=edited.after, about=text)


class ExtendedFile(NamedTuple):
    """A dataset file with one more case."""

    edited: EditedFile
    case: str
    """The id of the case."""


def extended(origin: Origin, entered: CaseEntry) -> ExtendedFile:
    """Return the dataset with a new case, as it can be read; raises UsageError, ConfigError."""
    row = (
        _like(origin.case, origin, entered) if origin.case is not None else _fresh(origin, entered)
    )
    file = open_file(origin.project, origin.experiment, origin.entry.path, max_bytes=_LARGEST)
    edited = add_rows(file, [row])
    _refuse_unused(origin, edited.after)
    return ExtendedFile(edited, str(row["id"]))


def _fresh(origin: Origin, entered: CaseEntry) -> dict[str, Json]:
    """Return the row of a case that has nothing but what was entered."""
    needed = {
        name
        for prompt in origin.experiment.prompts
        for name, declared in prompt.inputs.items()
        if not declared.has_default
    }
    if missing := sorted(needed - entered.inputs.keys()):
        raise UsageError(f"the input {missing[0]!r} is missing", hint=f"--set {missing[0]}=VALUE")
    types = origin.experiment.types()
    inputs = {
        name: _value(name, text, "" if types.get(name, "string") == "string" else None)
        for name, text in entered.inputs.items()
    }
    row: dict[str, Json] = {"id": _free(origin, entered), "input": inputs}
    if entered.expected.strip():
        row["expected"] = entered.expected
    return {**row, "tags": [*entered.tags]}


def _free(origin: Origin, entered: CaseEntry) -> str:
    if entered.name in origin.ids:
        raise UsageError(f"there is a case {entered.name!r}", hint="give it another id")
    return entered.name or origin.free_id


def _like(case: Case, origin: Origin, entered: CaseEntry) -> dict[str, Json]:
    if unknown := sorted(entered.inputs.keys() - case.inputs.keys()):
        raise UsageError(
            f"the case has no input {unknown[0]!r}", hint=f"it has: {', '.join(case.inputs)}"
        )
    inputs = {
        name: _value(name, entered.inputs.get(name), old) for name, old in case.inputs.items()
    }
    expected = _expected(entered.expected, case.expected)
    if inputs == dict(case.inputs) and expected == case.expected:
        raise UsageError(
            f"it equals the case {case.id!r}", hint="change the input, or what is expected"
        )
    row: dict[str, Json] = {"id": _free(origin, entered), "input": inputs}
    if expected is not None:
        row["expected"] = expected
    row["tags"] = [*dict.fromkeys([*case.tags, *entered.tags])]
    if case.difficulty is not None:
        row["difficulty"] = case.difficulty
    if case.cluster is not None:
        row["cluster"] = case.cluster
    if case.metadata:
        row["metadata"] = dict(case.metadata)
    return row


def _value(name: str, text: str | None, old: Json) -> Json:
    """Return the value of a field, of the type that the original has."""
    if text is None:
        return old
    if isinstance(old, str):
        return text
    try:
        return parse_json(text)
    except Fault as fault:
        hint = "numbers, lists and objects are written as JSON"
        raise UsageError(f"{name} is not JSON: {fault.message}", hint=hint) from None


def _expected(text: str, old: Json) -> Json:
    if not text.strip():
        return None
    return text if old is None or isinstance(old, str) else _value("expected", text, old)


def _refuse_unused(origin: Origin, data: bytes) -> None:
    """Raise UsageError unless the experiment would use the new case."""
    path = origin.entry.path
    tree = OverlayTree(origin.project.tree, path, data)
    feed = CaseFeed(tree, (_whole(origin.entry),), origin.experiment.types())
    if all(str(case.id) in origin.ids for case in feed):
        raise UsageError(
            f"{origin.experiment.id} would not use the case",
            hint=f"its entry for {path} selects cases with where:",
            where=Location(path),
        )
