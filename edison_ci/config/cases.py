"""The cases of an experiment, read from its dataset files."""

from __future__ import annotations

import hashlib
import heapq
import io
import json
import mmap
import operator
import re
import unicodedata
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.config.hash_index import HashIndex
from edison_ci.config.prompt import fits
from edison_ci.documents import csv_text
from edison_ci.documents.decoding import text_lines
from edison_ci.documents.json_text import json_marks, parse_json
from edison_ci.documents.marks import Document, Fault, Json, Mark
from edison_ci.documents.yaml_text import YamlLimits, stream_yaml_list
from edison_ci.errors import Location, Problem
from edison_ci.records import Case, CaseId, canonical_json
from edison_ci.safety import redaction
from edison_ci.shape import short
from edison_ci.spelling import did_you_mean, mixed_scripts, odd_character

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from edison_ci.config.experiment import DatasetEntry, Split
    from edison_ci.documents.files import Tree
    from edison_ci.safety.redaction import Redact


# In a JSONL file the line of a case contains its id, so only lines with the text of the id are
# parsed, by the same code that reads whole datasets.
_CONTENT_ID = re.compile(r"[0-9a-f]{16}")
_WRITTEN_ONE_WAY = re.compile(r"[ !#-.0-\[\]-~]+")
"""Ids that JSON writes unescaped; others have several spellings."""


def supports_lookup(ids: Collection[str], entries: Sequence[DatasetEntry]) -> bool:
    """Whether the lines of these cases can be found by the text of their ids.

    The id of a row without one is a hash of its content, which is not in the text.
    """
    return all(
        _WRITTEN_ONE_WAY.fullmatch(each) and not _CONTENT_ID.fullmatch(each) for each in ids
    ) and all(entry.path.endswith(".jsonl") and not entry.map for entry in entries)


def look_up_cases(feed: CaseFeed, ids: Collection[str]) -> CaseFeed:
    """Return the cases on lines that contain one of the ids; their line numbers are lost."""
    return replace(feed, tree=_FilteredTree(feed.tree, ids))


class _FilteredTree:
    """A tree of files reduced to the lines that contain one of the texts."""

    def __init__(self, tree: Tree, texts: Collection[str]) -> None:
        self._tree = tree
        self._texts = [json.dumps(text).encode() for text in texts]

    def open(self, path: str, *, max_bytes: int | None = None) -> BinaryIO:
        with self._tree.open(path, max_bytes=max_bytes) as stream:
            if stream.seek(0, io.SEEK_END) == 0:
                return io.BytesIO()
            try:
                data: bytes | mmap.mmap = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError):  # a file of a commit is in memory
                stream.seek(0)
                data = stream.read()
            return io.BytesIO(b"".join(_lines(data, self._texts)))

    def names(self, folder: str) -> list[str]:
        return self._tree.names(folder)

    def exists(self, path: str) -> bool:
        return self._tree.exists(path)


def _lines(data: bytes | mmap.mmap, texts: Sequence[bytes]) -> Iterator[bytes]:
    """Yield each line that contains one of the texts, once and in order."""
    found: dict[int, int] = {}
    for text in texts:
        at = data.find(text)
        while at >= 0:
            start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            end = len(data) if end < 0 else end + 1
            found[start] = end
            at = data.find(text, end)
    for start, end in sorted(found.items()):
        yield data[start:end]


# Rows are read one at a time in every format, so that memory does not grow with their number. A bad
# row becomes a problem with line and column, and reading continues.
MAX_ROW_BYTES = 1_000_000
MAX_PROBLEMS = 20
_GIVE_UP = 10_000
"""Reading of a file stops after this number of bad rows."""

Columns: TypeAlias = "dict[str, Json]"

RESERVED = ("id", "input", "expected", "tags", "difficulty", "cluster", "metadata")
CSV_RESERVED = ("id", "expected", "tags", "difficulty", "cluster")
_TAG_SEPARATOR = re.compile(r"[;|]")
_YAML_ROW = YamlLimits(nodes=10_000, repeated=10_000_000)


@dataclass(slots=True)
class RowReader:
    """Reads the rows of one dataset file as mappings."""

    tree: Tree
    entry: DatasetEntry
    types: dict[str, str]
    """Declared types of inputs; other CSV cells are texts."""
    problems: list[Problem]
    form: str = ""
    """.csv, .jsonl or .yaml, if the name of the file does not say so."""
    delimiter: str = ","
    """Between the fields of a CSV file."""
    number: int = 0
    """Number of the last row read, counted from 1."""
    line: int = 0
    """Its first line."""
    suppressed: int = 0
    _count: int = 0
    _told_by: str | Mark | csv_text.CsvRow = ""
    """Source of positions inside it: its JSON text, marks or record."""
    _header: list[str] = field(default_factory=list)
    """Columns of a CSV file, by the names that `map` gives them."""

    def locate(self, place: tuple[str | int, ...], *, key: bool = False) -> Location:
        """Return the location of a value (or its key) of the last row read."""
        path, told_by = self.entry.path, self._told_by
        if self._count >= MAX_PROBLEMS:
            return Location(path, self.line, 1)  # it will not be shown
        if isinstance(told_by, Mark):
            return Document(path, None, told_by).locate(place, key=key)
        if isinstance(told_by, str):
            return Document(path, None, json_marks(told_by), self.line).locate(place, key=key)
        named = [self._header.index(str(step)) for step in place if step in self._header]
        line, column = told_by.place(named[-1] if named else 0)
        return Location(path, line + 1, column + 1)

    def __iter__(self) -> Iterator[Columns]:
        try:
            stream = self.tree.open(self.entry.path)
        except Fault as fault:
            self._problem(Location(self.entry.path), fault)
            return
        with stream:
            try:
                for row in self._rows(stream):
                    yield row
                    if self._count > _GIVE_UP:
                        raise self._nonsense()
            except Fault as fault:
                where = Location(self.entry.path, fault.at[0] + 1, fault.at[1] + 1)
                self.problems.append(Problem(where, fault.code, fault.message, fault.hint))

    def _rows(self, stream: BinaryIO) -> Iterator[Columns]:
        limits = self.entry.limits
        size = stream.seek(0, 2)
        stream.seek(0)
        if size > limits.max_bytes:
            raise Fault(
                "size",
                f"{self.entry.path} has {size:,} bytes; at most {limits.max_bytes:,}",
                "raise limits: {max_bytes: ...} of the dataset in the experiment",
            )
        form = self.form or self.entry.path
        if form.endswith(".csv"):
            return self._csv(stream)
        rows = self._jsonl(stream) if form.endswith(".jsonl") else self._yaml(stream)
        return self._renamed(rows) if self.entry.map else rows

    def _renamed(self, rows: Iterator[Columns]) -> Iterator[Columns]:
        for row in rows:
            nested = row.get("input")
            try:
                if isinstance(
                    nested, dict
                ):  # a copy, because a YAML alias repeats the same mapping
                    row = {**row, "input": self._with_names(nested)}
                else:
                    row = self._with_names(row)
            except Fault as fault:
                self._bad_row(self.locate(()), fault)
            else:
                yield row

    def _with_names(self, row: Columns) -> Columns:
        return dict(zip(self._checked_names(list(row)), row.values(), strict=True))

    def _checked_names(self, columns: list[str]) -> list[str]:
        """Return the columns renamed by `map`; two must not get the same name."""
        names = [self.entry.map.get(column, column) for column in columns]
        if len(set(names)) < len(names):
            name = next(name for index, name in enumerate(names) if name in names[:index])
            hint = "rename the other column in map too"
            raise Fault("map", f"map makes two columns {name!r}", hint)
        return names

    # --- formats ----------------------------------------------------------------------------------

    def _jsonl(self, stream: BinaryIO) -> Iterator[Columns]:
        path, most = self.entry.path, self.entry.limits.max_rows
        for line, text in enumerate(text_lines(stream, longest=MAX_ROW_BYTES), 1):
            if not isinstance(text, Fault) and text.isspace():
                continue
            self.number, self.line = self.number + 1, line
            if self.number > most:
                raise self._too_many()
            try:
                if isinstance(text, Fault):
                    raise text
                self._told_by = source = text.rstrip("\r\n")
                value = parse_json(source)
                if not isinstance(value, dict):
                    at = (0, len(source) - len(source.lstrip()))
                    raise Fault("type", "the row is not an object", 'write {"input": {...}}', at=at)
            except Fault as fault:
                if fault.code == "syntax" and fault.at[1] >= len(source.rstrip()):
                    fault.hint = "each row is one JSON object on one line"
                self._bad_row(Location(path, line, fault.at[1] + 1), fault)
            else:
                yield value

    def _csv(self, stream: BinaryIO) -> Iterator[Columns]:
        most = self.entry.limits.max_rows
        table = csv_text.CsvTable(text_lines(stream, longest=MAX_ROW_BYTES), self.delimiter)
        for name in sorted(self.entry.map.keys() - set(table.header)):
            raise Fault(
                "map",
                f"map names a column {name!r} that is not there",
                f"columns: {', '.join(table.header)}",
            )
        self._header = self._checked_names(table.header)
        for record in table.rows():
            self.number, self.line, self._told_by = record.number, record.line + 1, record
            if self.number > most:
                raise self._too_many()
            try:
                if record.fault is not None:
                    raise record.fault
                row = self._csv_row(dict(zip(self._header, record.fields, strict=True)))
            except _BadCellError as bad:
                self._bad_row(self.locate((bad.column,)), bad.fault)
            except Fault as fault:
                self._bad_row(self.locate(()), fault)
            else:
                yield row

    def _csv_row(self, cells: dict[str, str]) -> dict[str, Json]:
        row: dict[str, Json] = {"input": {}}
        inputs: dict[str, Json] = {}
        for name, cell in cells.items():
            if name not in CSV_RESERVED:
                kind = self.types.get(name, "string")
                if kind == "string":
                    inputs[name] = cell
                elif cell.strip():
                    inputs[name] = _typed(name, cell, kind)
            elif name == "tags":
                row["tags"] = [tag.strip() for tag in _TAG_SEPARATOR.split(cell) if tag.strip()]
            elif name == "difficulty" and cell.strip():
                row["difficulty"] = _typed(name, cell, "number")
            elif cell and name != "difficulty":
                row[name] = cell
        row["input"] = inputs
        return row

    def _yaml(self, stream: BinaryIO) -> Iterator[Columns]:
        path, most = self.entry.path, self.entry.limits.max_rows
        for number, item in enumerate(stream_yaml_list(stream, limits=_YAML_ROW), 1):
            self.number, self.line, self._told_by = number, item.mark.line + 1, item.mark
            if number > most:
                raise self._too_many()
            for fault in item.faults:
                self._bad_row(Location(path, fault.at[0] + 1, fault.at[1] + 1), fault)
            if item.faults:
                continue
            if isinstance(item.value, dict):
                yield item.value
            else:
                fault = Fault("type", "the row is not a map", "write - input: {...}")
                self._bad_row(self.locate(()), fault)

    # --- problems ---------------------------------------------------------------------------------

    def _problem(self, where: Location, fault: Fault) -> None:
        self.report(Problem(where, fault.code, fault.message, fault.hint))

    def _bad_row(self, where: Location, fault: Fault) -> None:
        message = f"row {self.number}: {fault.message}"
        self.report(Problem(where, fault.code, message, fault.hint))
        if self._count > _GIVE_UP:
            raise self._nonsense()

    def _nonsense(self) -> Fault:
        message = "too many bad rows; the rest is not read"
        return Fault("more", message, "fix the first ones", at=(self.line - 1, 0))

    def _too_many(self) -> Fault:
        return Fault(
            "size",
            f"{self.entry.path} has more than {self.entry.limits.max_rows:,} rows",
            "raise limits: {max_rows: ...} of the dataset in the experiment",
            at=(self.line - 1, 0),
        )

    def report(self, problem: Problem) -> None:
        """Add a problem; after the first twenty of a file, only count it."""
        self._count += 1
        if self._count <= MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.suppressed += 1


def _typed(name: str, cell: str, kind: str) -> Json:
    try:
        value = parse_json(cell)
    except Fault:
        value = None
    wanted = {"number": (int, float), "boolean": (bool,), "list": (list,), "object": (dict,)}[kind]
    if not isinstance(value, wanted) or (kind == "number" and isinstance(value, bool)):
        message = f"{name} is {cell[:40]!r}, not a {kind}"
        raise _BadCellError(name, Fault("type", message, "written as in JSON"))
    return value


class _BadCellError(Exception):
    """A cell that does not have the type of its column."""

    def __init__(self, column: str, fault: Fault) -> None:
        super().__init__(fault.message)
        self.column, self.fault = column, fault


STATIC = Case(id=CaseId("static"), inputs={})
"""The one case of an experiment whose prompts have no variables."""

_KNOWN = frozenset(RESERVED)
_MAX_ID = 200
_PLAIN_ID = re.compile(r"[!-~](?:[ -~]{0,198}[!-~])?\Z")
_NO_METADATA: dict[str, Json] = {}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}


class _BadRowError(Exception):
    def __init__(
        self, path: tuple[str | int, ...], code: str, message: str, hint: str = ""
    ) -> None:
        super().__init__(message)
        self.path, self.code, self.message, self.hint = path, code, message, hint


@dataclass(slots=True)
class CaseFeed:
    """Streams the cases of several dataset files once, and collects their problems."""

    tree: Tree
    entries: tuple[DatasetEntry, ...]
    types: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    redact: Redact | None = None
    """Applied to every case before anything else gets it, if the experiment redacts inputs."""

    def __iter__(self) -> Iterator[Case]:
        kept = HashIndex()
        for index, entry in enumerate(self.entries):
            cases = self._of_entry(index, entry, kept)
            taken = cases if entry.take is None else sample(cases, entry.take)
            if self.redact is None:
                yield from taken
            else:
                yield from (redaction.redact_case(case, self.redact) for case in taken)

    def _of_entry(self, index: int, entry: DatasetEntry, kept: HashIndex) -> Iterator[Case]:
        """Yield the cases of one entry; `kept` has the ids of earlier entries."""
        seen = HashIndex()
        several = len(self.entries) > 1
        reader = RowReader(self.tree, entry, self.types, self.problems)
        keep, kind, types = _condition(entry), entry.kind, self._types()
        repeated: list[_Repeated] = []
        for row in reader:
            try:
                case = _case(row, kind, types)
            except _BadRowError as bad:
                where = reader.locate(bad.path, key=bad.code == "unknown-key")
                message = f"row {reader.number}: {bad.message}"
                reader.report(Problem(where, bad.code, message, bad.hint))
                continue
            case.line = reader.line
            key, before = hash(case.id), len(seen)
            wanted = keep is None or keep(case)
            if seen.add(key) < before or (several and wanted and key in kept):
                if len(repeated) < MAX_PROBLEMS:
                    where = reader.locate(("id",))
                    repeated.append(
                        _Repeated(case.id, reader.number, case.line, where, "id" in row)
                    )
                else:
                    reader.suppressed += 1
                continue
            if wanted:
                if several:
                    kept.add(key)
                yield case
        if repeated:
            self._report_repeated(repeated, index, reader)
        if reader.suppressed:
            message = f"{reader.suppressed:,} further problems in this file"
            self.problems.append(
                Problem(Location(entry.path), "more", message, "fix the first ones")
            )

    def _types(self) -> list[tuple[str, str]]:
        return [(name, kind) for name, kind in self.types.items() if kind]

    def _report_repeated(self, repeated: list[_Repeated], index: int, reader: RowReader) -> None:
        """Report repeated ids with the first row of each, which needs a second pass."""
        firsts = self._first_rows({row.id for row in repeated}, index)
        for row in repeated:
            entry, line = firsts.get(row.id, (index, row.line))
            first, hint = f"{self.entries[entry].path}:{line}", "give each case its own id"
            if (entry, line) == (index, row.line):
                # Two ids with the same 64-bit hash: practically impossible, but never silent.
                message = f"row {row.number}: id {row.id!r} cannot be distinguished from another"
            elif row.given:
                message = f"row {row.number}: id {row.id!r} is used twice, first in {first}"
            else:
                message = f"row {row.number}: the case is a duplicate, first in {first}"
                hint = "remove one of them, or give them ids"
            reader.report(Problem(row.where, "duplicate-id", message, hint))

    def _first_rows(self, wanted: set[CaseId], last: int) -> dict[CaseId, tuple[int, int]]:
        """Return dataset number and line of the first use of each id."""
        found: dict[CaseId, tuple[int, int]] = {}
        for index, entry in enumerate(self.entries[: last + 1]):
            reader = RowReader(self.tree, entry, self.types, [])
            for row in reader:
                with suppress(_BadRowError):
                    case = _case(row, entry.kind, self._types())
                    if case.id in wanted:
                        found.setdefault(case.id, (index, reader.line))
                if len(found) == len(wanted):
                    return found
        return found


class _Repeated(NamedTuple):
    """A row with a repeated id."""

    id: CaseId
    number: int
    line: int
    where: Location
    given: bool
    """Whether the id is written in the row."""


def sample(cases: Iterable[Case], count: int) -> list[Case]:
    """Return a stable sample: the cases with the lowest hashes of their ids, in file order."""
    ranked = heapq.nsmallest(
        count, ((_rank(case.id), index, case) for index, case in enumerate(cases))
    )
    return [case for _, _, case in sorted(ranked, key=operator.itemgetter(1))]


def is_holdout(case: Case, split: Split) -> bool:
    """Whether a case is held out from refinement; adding rows does not change old ones."""
    return fraction(f"{split.seed}:{case.cluster or case.id}") < split.holdout


def fraction(text: str) -> float:
    """Return a pseudo-random number in [0, 1) that depends only on the text."""
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _rank(case_id: str) -> bytes:
    return hashlib.sha256(case_id.encode()).digest()


def case_of(row: Columns, kind: str, types: dict[str, str]) -> Case:
    """Return the case of a row; raises Fault."""
    try:
        return _case(row, kind, [(name, wanted) for name, wanted in types.items() if wanted])
    except _BadRowError as bad:
        raise Fault(bad.code, bad.message, bad.hint) from None


def _case(value: Columns, kind: str, types: list[tuple[str, str]]) -> Case:
    get = value.get
    nested = get("input")
    inputs: dict[str, Json]
    if isinstance(nested, dict):
        inputs = nested
        if not _KNOWN.issuperset(value):
            raise _unknown_key(value)
    else:
        inputs = {k: v for k, v in value.items() if k not in _KNOWN or k == "input"}
    for name, wanted in types:
        if name in inputs and not fits(inputs[name], wanted):
            raise _wrong_type(name, inputs[name], wanted, nested=isinstance(nested, dict))
    expected, given = get("expected"), get("id")
    tags, difficulty, cluster, metadata = (
        get("tags"),
        get("difficulty"),
        get("cluster"),
        get("metadata"),
    )
    return Case(
        _content_id(inputs, expected) if given is None else _checked_id(given),
        inputs,
        expected,
        () if tags is None else _tags(tags),
        None if difficulty is None else _difficulty(difficulty),
        None if cluster is None else _cluster(cluster),
        _NO_METADATA if metadata is None else _metadata(metadata),
        kind,
    )


def _unknown_key(value: Columns) -> _BadRowError:
    key = next(key for key in value if key not in _KNOWN)
    hint = did_you_mean(key[:_MAX_ID], RESERVED) or "put variables under input"
    return _BadRowError((key,), "unknown-key", f"unknown key {short(key)}", hint)


def _wrong_type(name: str, value: Json, wanted: str, *, nested: bool) -> _BadRowError:
    shown = json.dumps(value, ensure_ascii=False)[:40]
    path = ("input", name) if nested else (name,)
    hint = "its type is declared in inputs of the prompt"
    return _BadRowError(path, "type", f"{name} is {shown}, not a {wanted}", hint)


def _content_id(inputs: dict[str, Json], expected: Json) -> CaseId:
    digest = hashlib.sha256(canonical_json([inputs, expected]).encode())
    return CaseId(digest.hexdigest()[:16])


def _checked_id(value: Json) -> CaseId:
    if not isinstance(value, str):
        message = f"id is {json.dumps(value, ensure_ascii=False)[:40]}, not a text"
        raise _BadRowError(("id",), "type", message, "quote it")
    if _PLAIN_ID.match(value):
        return CaseId(value)
    if not value or value != value.strip() or len(value) > _MAX_ID:
        message = f"id {short(value)} is empty, padded or over {_MAX_ID} characters"
        raise _BadRowError(("id",), "id", message, "write a short name")
    odd = odd_character(value, ascii_only=False) or mixed_scripts(value) or _look_alike(value)
    if odd:
        raise _BadRowError(("id",), "id", f"id {short(value)} contains {odd}", "retype it")
    return CaseId(value)


def _look_alike(text: str) -> str:
    """Describe a character with a plainer form, such as a full-width letter; '' if none."""
    if unicodedata.is_normalized("NFKC", text):
        return ""
    alone = (c for c in text if not unicodedata.is_normalized("NFKC", c))
    found = next(alone, None)
    return odd_character(found) if found else "a combining character"


def _tags(value: Json) -> tuple[str, ...]:
    if isinstance(value, list):
        for tag in value:
            if not isinstance(tag, str) or not tag:
                break
        else:
            return tuple(value)  # type: ignore[arg-type]  # texts, all of them
    raise _BadRowError(("tags",), "type", "tags is not a list of texts", 'write ["a", "b"]')


def _difficulty(value: Json) -> int:
    if type(value) is not int or not 1 <= value <= 5:
        message = f"difficulty is {json.dumps(value, ensure_ascii=False)[:40]}; allowed: 1 to 5"
        raise _BadRowError(("difficulty",), "range", message)
    return value


def _cluster(value: Json) -> str:
    if not isinstance(value, str) or not value:
        raise _BadRowError(("cluster",), "type", "cluster is not a text", "quote it")
    return value


def _metadata(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise _BadRowError(("metadata",), "type", "metadata is not an object", "write {...}")
    return value


def _condition(entry: DatasetEntry) -> Callable[[Case], bool] | None:
    tests = [_test(key, wanted) for key, wanted in entry.where.items()]
    return (lambda case: all(test(case) for test in tests)) if tests else None


def _test(key: str, wanted: tuple[Any, ...]) -> Callable[[Case], bool]:
    if key == "tags":
        return lambda case: any(tag in wanted for tag in case.tags)
    if key == "kind":
        return lambda case: case.kind in wanted
    if key == "id":
        return lambda case: case.id in wanted
    if key == "difficulty":
        sign, level = wanted
        compare = _COMPARE[sign]
        return lambda case: case.difficulty is not None and compare(case.difficulty, level)
    name = key.removeprefix("metadata.")
    return lambda case: any(_same(case.metadata.get(name), value) for value in wanted)


def _same(one: Json, other: Json) -> bool:
    """Whether two values are equal in JSON, where true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
