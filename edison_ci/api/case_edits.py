"""Edits of the cases of a dataset file: changed, removed and added rows, in the file's own format.

All other rows stay byte for byte. A file is read again before anything is written: if a row would
not be read back as it was meant, or another row would change, nothing is written.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.access.site import Role, Site
from edison_ci.config.cases import CaseFeed
from edison_ci.config.experiment import DataLimits, DatasetEntry
from edison_ci.config.load import inspect_project
from edison_ci.config.project_files import only_errors
from edison_ci.documents.dataset_text import new_dataset_text, read_dataset_text
from edison_ci.documents.decoding import decode
from edison_ci.documents.files import OverlayTree, place_in, read, replace_file
from edison_ci.documents.marks import Fault
from edison_ci.documents.secrets import secrets_in
from edison_ci.documents.text_diff import diff_of
from edison_ci.documents.yaml_edit import with_listed
from edison_ci.errors import ConfigError, Location, UsageError
from edison_ci.spelling import did_you_mean
from edison_ci.store.audit import write_audit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.documents.dataset_text import DatasetText, Row
    from edison_ci.documents.files import Tree
    from edison_ci.documents.marks import Json
    from edison_ci.documents.yaml_edit import Edit, Given
    from edison_ci.records import Case

MOST_BYTES = 100_000_000
"""Most bytes of a dataset that is edited; it is held in memory."""
_FIELDS = ("expected", "tags", "difficulty", "cluster", "metadata")


@dataclass(frozen=True, slots=True)
class EditableFile:
    """A dataset file with all its cases, in their order."""

    project: Project
    entry: DatasetEntry
    """Without what selects cases: all rows of the file can be edited."""
    types: dict[str, str]
    data: bytes
    text: DatasetText
    cases: tuple[Case, ...]

    def find(self, case_id: str) -> int | None:
        """Return the index of a case; None if the file does not have it."""
        return next((i for i, case in enumerate(self.cases) if case.id == case_id), None)


class EditedFile(NamedTuple):
    """A dataset file before and after an edit."""

    path: str
    before: bytes
    after: bytes
    diff: str
    """Of the lines of the file."""
    changes: tuple[tuple[Case | None, Case | None], ...]
    """Each case before and after; None before it is added, and after it is removed."""


def open_file(
    project: Project, experiment: Experiment, path: str, *, max_bytes: int = MOST_BYTES
) -> EditableFile:
    """Return a dataset file of an experiment; raises UsageError, or ConfigError for bad rows."""
    entry = next(listed for listed in experiment.file.data if listed.path == path)
    types = experiment.types()
    return _opened(project, _all_rows(entry), types, read_file(project.tree, path, max_bytes))


def read_file(tree: Tree, path: str, max_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a dataset; raises UsageError."""
    try:
        return read(tree, path, max_bytes=max_bytes)
    except Fault as fault:
        raise UsageError(fault.message, hint=fault.hint, where=Location(path)) from None


def _all_rows(entry: DatasetEntry) -> DatasetEntry:
    return entry.model_copy(update={"take": None, "where": {}})


def _opened(
    project: Project, entry: DatasetEntry, types: dict[str, str], data: bytes
) -> EditableFile:
    cases = _read_cases(OverlayTree(project.tree, entry.path, data), entry, types)
    try:
        text = read_dataset_text(entry.path, data)
    except Fault as fault:  # pragma: no cover - the cases were read from the same text
        where = Location(entry.path, fault.at[0] + 1, fault.at[1] + 1)
        raise UsageError(fault.message, hint=fault.hint, where=where) from None
    assert len(text.rows) == len(cases), "every row is a case"
    return EditableFile(project, entry, types, data, text, cases)


def _read_cases(tree: Tree, entry: DatasetEntry, types: dict[str, str]) -> tuple[Case, ...]:
    feed = CaseFeed(tree, (entry,), types)
    cases = tuple(feed)
    if feed.problems:
        raise ConfigError(feed.problems)
    return cases


def case_file(project: Project, experiments: Iterable[Experiment], case_id: str) -> EditableFile:
    """Return the file that has a case; raises UsageError if there is none, or more than one."""
    paths: dict[str, Experiment] = {}
    for experiment in experiments:
        for entry in experiment.file.data:
            paths.setdefault(entry.path, experiment)
    homes, ids = [], set[str]()
    for path, experiment in paths.items():
        entry = next(listed for listed in experiment.file.data if listed.path == path)
        # Problems of other files do not matter; those of the file itself are found when it opens.
        feed = CaseFeed(project.tree, (_all_rows(entry),), experiment.types())
        names = {str(case.id) for case in feed}
        ids |= names
        if case_id in names:
            homes.append((experiment, path))
    if len(homes) == 1:
        return open_file(project, *homes[0])
    if homes:
        named = ", ".join(path for _, path in homes)
        hint = "name its experiment with --experiment"
        raise UsageError(f"{len(homes)} files have the case {case_id!r}: {named}", hint=hint)
    raise UsageError(
        f"there is no case {case_id!r}",
        hint=did_you_mean(case_id, ids) or "list them with edison dataset show",
    )


def change_cases(file: EditableFile, changes: Mapping[int, Case]) -> EditedFile:
    """Return the file with changed cases; raises UsageError."""
    rows = {index: _changed_row(file, index, case) for index, case in sorted(changes.items())}
    for row in rows.values():
        refuse_secrets(row)
    cases = [changes.get(index, case) for index, case in enumerate(file.cases)]
    pairs = tuple((file.cases[index], changes[index]) for index in rows)
    text = file.text
    ways = (text.changes(rows), text.rewritten(rows)) if rows else ([],)
    return _first_that_reads(file, cases, pairs, *ways)


def remove_cases(file: EditableFile, indexes: Sequence[int]) -> EditedFile:
    """Return the file without some cases; raises UsageError."""
    gone = sorted(set(indexes))
    if len(gone) == len(file.cases):
        hint = "remove the file, and its entry in the experiment"
        raise UsageError(f"no case would be left in {file.entry.path}", hint=hint)
    cases = [case for index, case in enumerate(file.cases) if index not in set(gone)]
    pairs = tuple((file.cases[index], None) for index in gone)
    return _first_that_reads(file, cases, pairs, [file.text.removal(index) for index in gone])


def add_rows(file: EditableFile, rows: Sequence[Row]) -> EditedFile:
    """Return the file with further rows, whose inputs are nested under `input`.

    Raises UsageError if the file cannot hold them, and ConfigError if they are no cases.
    """
    for row in rows:
        refuse_secrets(row)
    raw = [_raw_row(file, row) for row in rows]
    edits = [file.text.addition(raw)]
    after, entry = file.text.edited(edits), file.entry
    cases = _read_cases(OverlayTree(file.project.tree, entry.path, after), entry, file.types)
    new = cases[len(file.cases) :]
    same = [dict(case.inputs) for case in new] == [row["input"] for row in rows]
    if not same or not _same_cases(cases[: len(file.cases)], file.cases):
        raise _not_read_back(entry.path)
    diff = file.text.diff(entry.path, edits)
    return EditedFile(entry.path, file.data, after, diff, tuple((None, case) for case in new))


def new_file(
    project: Project, experiment: Experiment, path: str, rows: Sequence[Row], kind: str
) -> tuple[EditedFile, EditedFile]:
    """Return a new dataset file, and the experiment with an entry for it.

    Raises UsageError, and ConfigError if the project would be invalid.
    """
    for row in rows:
        refuse_secrets(row)
    raw = [_flat_row(row) for row in rows] if path.endswith(".csv") else list(rows)
    data = new_dataset_text(path, raw)
    whole = DatasetEntry(path=path, limits=DataLimits(max_rows=len(rows), max_bytes=len(data)))
    cases = _read_cases(OverlayTree(project.tree, path, data), whole, experiment.types())
    edited = EditedFile(path, b"", data, "", tuple((None, case) for case in cases))
    return edited, listed(project, experiment, edited, len(rows), kind)


def open_unlisted(project: Project, experiment: Experiment, path: str) -> EditableFile:
    """Return a dataset file that its experiment does not list yet; raises as open_file."""
    entry = DatasetEntry(path=path)
    return _opened(project, entry, experiment.types(), read_file(project.tree, path))


def listed(
    project: Project, experiment: Experiment, dataset: EditedFile, rows: int, kind: str
) -> EditedFile:
    """Return the experiment with an entry for a dataset; raises ConfigError."""
    entry: dict[str, Given] = {"path": dataset.path}
    if kind != "golden":
        entry["kind"] = kind
    limits, size = DataLimits(), len(dataset.after)
    # With room for as much again, so that the file can be edited.
    wide = {"max_rows": 2 * rows} if rows > limits.max_rows else {}
    wide |= {"max_bytes": 2 * size} if size > limits.max_bytes else {}
    if wide:
        entry["limits"] = wide
    before = read(project.tree, experiment.path)
    text = decode(before)
    after = with_listed(text, "dataset", "datasets", entry).encode()
    tree = OverlayTree(project.tree, dataset.path, dataset.after)
    _refuse_invalid(project, OverlayTree(tree, experiment.path, after))
    diff = diff_of(experiment.path, text, decode(after))
    return EditedFile(experiment.path, before, after, diff, ())


def _flat_row(row: Row) -> Row:
    inputs = row["input"]
    assert isinstance(inputs, dict)
    others = {name: value for name, value in row.items() if name != "input"}
    if "metadata" in others:
        raise UsageError("a CSV file has no metadata", hint="import into a .jsonl or .yaml file")
    named = {"id": others.pop("id"), **inputs, **others}
    return {name: _cell(name, value) for name, value in named.items()}


def _refuse_invalid(project: Project, tree: Tree) -> None:
    """Raise ConfigError with what an edit makes invalid."""
    _, before = inspect_project(project.tree)
    _, problems = inspect_project(tree)
    old = {(problem.where.file, problem.code, problem.message) for problem in before}
    wrong = [now for now in only_errors(problems)
             if (now.where.file, now.code, now.message) not in old]  # fmt: skip
    if wrong:
        raise ConfigError(wrong)


def refuse_secrets(row: Row) -> None:
    """Raise UsageError if a row has a text that looks like a secret."""
    for fault in secrets_in(json.dumps(row, ensure_ascii=False)):
        raise UsageError(fault.message, hint=fault.hint)


def write_edited(
    project: Project, edited: EditedFile, action: str, told: Mapping[str, Json]
) -> None:
    """Replace the file in one step, with an audit entry; raises RoleError, UsageError."""
    site = Site(project.root, project.file)
    actor = site.require(Role.EDITOR, action, edited.path)
    target = place_in(site.root, edited.path)
    entry = site.entry(actor, action, edited.path, after=dict(told))

    def just_before() -> None:
        now = target.read_bytes() if target.exists() else b""
        if now != edited.before:
            raise UsageError(
                f"{edited.path} was changed meanwhile",
                hint="run the command again; nothing is lost",
            )
        write_audit(site.results, entry)

    replace_file(site.root, edited.path, edited.after, just_before=just_before)


def _first_that_reads(
    file: EditableFile,
    expected: Sequence[Case],
    pairs: tuple[tuple[Case | None, Case | None], ...],
    *ways: Sequence[Edit],
) -> EditedFile:
    """Return the file after the first way of editing that is read back as it is wanted."""
    entry = file.entry
    for edits in ways:
        after = file.text.edited(edits)
        tree = OverlayTree(file.project.tree, entry.path, after)
        try:
            cases = _read_cases(tree, entry, file.types)
        except ConfigError as error:
            if any(problem.code == "size" for problem in error.problems):
                raise
            continue
        if _same_cases(cases, expected):
            diff = file.text.diff(entry.path, edits) if edits else ""
            return EditedFile(entry.path, file.data, after, diff, pairs)
    raise _not_read_back(entry.path)


def _same_cases(cases: Sequence[Case], expected: Sequence[Case]) -> bool:
    if len(cases) != len(expected):
        return False
    return all(
        dataclasses.replace(case, line=0, id=other.id) == dataclasses.replace(other, line=0)
        for case, other in zip(cases, expected, strict=True)
    )


def _not_read_back(path: str) -> UsageError:
    return UsageError(
        f"{path} is written in a way that cannot be edited safely",
        hint="edit the file by hand, then run edison validate",
        where=Location(path),
    )


def as_entered(value: Json) -> str:
    """Return a value as the text of a field; empty for none."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _columns(file: EditableFile, inputs: Mapping[str, Json]) -> dict[str, Json]:
    """Return inputs by the names that the file has for them."""
    columns = {name: column for column, name in file.entry.map.items()}
    return {columns.get(name, name): value for name, value in inputs.items()}


def _changed_row(file: EditableFile, index: int, case: Case) -> Row:
    """Return the raw row of a case after a change."""
    raw, before = file.text.rows[index], file.cases[index]
    changed = {
        name: getattr(case, name) for name in ("id", *_FIELDS)
        if getattr(case, name) != getattr(before, name)
    }  # fmt: skip
    inputs = None if case.inputs == before.inputs else _columns(file, case.inputs)
    if file.text.header:
        cells = {name: _cell(name, value) for name, value in {**(inputs or {}), **changed}.items()}
        _refuse_lost(file, cells, [*file.text.header, "tags"])  # that column is added
        return {**raw, **cells}
    row = dict(raw)
    if inputs is not None and isinstance(raw.get("input"), dict):
        row["input"] = inputs
    elif inputs is not None:
        for name in _columns(file, before.inputs).keys() - inputs.keys():
            del row[name]
        row |= inputs
    for name, value in changed.items():
        field = list(value) if name == "tags" else dict(value) if name == "metadata" else value
        if field in (None, [], {}):
            row.pop(name, None)
        else:
            row[name] = field
    return row


def _raw_row(file: EditableFile, row: Row) -> Row:
    """Return a new row as the file writes it."""
    inputs = row["input"]
    assert isinstance(inputs, dict)
    named = _columns(file, inputs)
    if not file.text.header:
        return {**row, "input": named}
    others = {name: value for name, value in row.items() if name != "input"}
    cells = {name: _cell(name, value) for name, value in {**named, **others}.items()}
    header = file.text.header
    # An id is a hash of the content if there is no column for it; tags may be left out.
    kept = {name: cell for name, cell in cells.items() if name in header or name not in _OPTIONAL}
    _refuse_lost(file, kept, header)
    return dict(kept)


_OPTIONAL = ("id", "tags")


def _cell(name: str, value: Json) -> str:
    return ";".join(map(str, value)) if name == "tags" and isinstance(value, list | tuple) else (
        as_entered(value)
    )  # fmt: skip


def _refuse_lost(file: EditableFile, cells: Mapping[str, str], header: Sequence[str]) -> None:
    for name in cells:
        if name not in header:
            raise UsageError(
                f"{file.entry.path} has no column {name!r}",
                hint=f"its columns: {', '.join(header)}",
                where=Location(file.entry.path, 1),
            )
