"""Rows of any CSV, JSON, JSONL or YAML file, mapped to the cases of an experiment.

The file may be hostile: it is read by the strict readers of datasets, within limits, and nothing of
it is used unless all of it can be read. A file of another tool becomes the columns of its cases
(`exports`). Columns get the names of inputs and of the keys of a case; what has no name is left
out, and reported. A log of Inspect in the format `.eval` is a ZIP file with one JSON file for each
sample: the number of members, the size of each and of all together are limited, and nothing is
unpacked to the disk.
"""

from __future__ import annotations

import csv
import io
import json
import re
import struct
import zipfile
import zlib
from dataclasses import field
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config import case_facts, cases, experiment, rows
from edison_ci.documents import decoding, files, json_text, secrets
from edison_ci.documents.marks import Document, Fault, Json, Mark
from edison_ci.documents.yaml_text import YamlLimits, read_yaml
from edison_ci.errors import ConfigError, Location, Problem, UsageError
from edison_ci.features.importing import exports
from edison_ci.shape import short
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from edison_ci.documents.files import Tree
    from edison_ci.records import Case

SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".eval")
TABLE = "table"
"""Name of the format that no tool has: each row is a case."""
MAX_BYTES = 100_000_000
MAX_ROWS = 1_000_000
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
_FORMS = {".tsv": ".csv", ".ndjson": ".jsonl", ".json": ".json"}
_SNIFFED_LINES = 20
_TAGS = re.compile(r"[;|]")
_METADATA = "metadata."
_ALIASES = {"expected": ("expected_output", "expected_answer")}
_MOST_PROBLEMS = 20
_MOST_COLUMNS = 1_000
_YAML_BYTES = 10_000_000
_YAML = YamlLimits(nodes=1_000_000, repeated=10_000_000, merge=True)
_NOWHERE = Mark(0, 0, 0, 0, None)
MOST_MEMBERS = 100_000
"""Files in a log of Inspect at most."""
SAMPLE_BYTES = 50_000_000
"""Of one sample; a case is much smaller, but a sample has all events of its run."""
ALL_SAMPLE_BYTES = 1_000_000_000
_SAMPLE = re.compile(r"samples/(.+)_epoch_([0-9]{1,9})\.json", re.DOTALL)
_END = struct.Struct("<4s4H2LH")
_LOCAL = struct.Struct("<4s5H3L2H")
_ZSTD = 93
_WHOLE = "is the file whole?"
_FROM_INSPECT = "is it a log that Inspect wrote?"
_CONVERT = "convert it: inspect log convert FILE --to json --output-dir FOLDER"


@dataclass(slots=True)
class Table:
    """The rows of a file."""

    rows: list[exports.SourceRow] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    delimiter: str = ""
    """Name of what separates the fields of a CSV file."""
    format: str = TABLE
    kept: frozenset[str] = frozenset()
    """Columns that become metadata where no input has their name."""
    notes: list[str] = field(default_factory=list)
    """What of the file is in no column."""


def read_table(
    tree: Tree, path: str, delimiter: str | None = None, chosen: str | None = None
) -> Table:
    """Return the rows of a file; raises ConfigError with all its problems, or UsageError.

    `chosen` is the name of the format; without it the format is recognised.
    """
    suffix = path[path.rindex(".") :]
    form = _FORMS.get(suffix, suffix)
    try:
        table = _document_table(tree, path, form, chosen) or (
            _json_table(tree, path)
            if form == ".json"
            else _streamed_table(tree, path, form, delimiter)
        )
        _read_format(table, path, form, chosen)
    except Fault as fault:
        where = Location(path, fault.at[0] + 1, fault.at[1] + 1)
        raise ConfigError([Problem(where, fault.code, fault.message, fault.hint)]) from None
    if not table.rows:
        raise UsageError(f"{path} has no rows", hint="each row is one case")
    table.columns = [*dict.fromkeys(name for row in table.rows for name in row.fields)]
    if len(table.columns) > _MOST_COLUMNS:
        raise UsageError(
            f"{path} has {len(table.columns):,} columns; at most {_MOST_COLUMNS:,}",
            hint="is it a list of cases?",
        )
    return table


def _streamed_table(tree: Tree, path: str, form: str, delimiter: str | None) -> Table:
    limits = experiment.DataLimits(max_rows=MAX_ROWS, max_bytes=MAX_BYTES)
    entry = experiment.DatasetEntry.model_construct(path=path, map={}, limits=limits)
    table = Table()
    if form == ".csv":
        with tree.open(path) as stream:
            table.delimiter = delimiter or _sniffed(stream)
    between = DELIMITERS.get(table.delimiter, ",")
    reader = rows.RowReader(tree, entry, {}, [], form, between)
    for row in reader:
        fields = _flat(row) if form == ".csv" else row
        table.rows.append(exports.SourceRow(Location(path, reader.line), fields))
    if reader.problems:
        raise ConfigError([_about_import(problem) for problem in reader.problems])
    return table


def _about_import(problem: Problem) -> Problem:
    """Return a problem with a hint that fits: the limits of an import cannot be raised."""
    if problem.code != "size" or not problem.hint.startswith("raise limits"):
        return problem
    return Problem(problem.where, problem.code, problem.message, "import it in parts")


def _sniffed(stream: BinaryIO) -> str:
    """Return the separator that divides the first lines into the most columns, equally."""
    lines = []
    for line in decoding.text_lines(stream, longest=rows.MAX_ROW_BYTES):
        if isinstance(line, Fault):
            raise line
        if line.strip():
            lines.append(line)
        if len(lines) == _SNIFFED_LINES:
            break
    best, most = "comma", 1
    for name, sign in DELIMITERS.items():
        try:
            records = [*csv.reader(io.StringIO("".join(lines), newline=""), delimiter=sign)]
        except csv.Error:
            continue
        width = len(records[0]) if records else 0
        # The last record may continue beyond the lines that were read.
        if width > most and all(len(record) == width for record in records[:-1] or records):
            best, most = name, width
    if most > 1:
        return best
    # No separator divides all rows equally: take the one that the header has most of.
    header = lines[0] if lines else ""
    return max(DELIMITERS, key=lambda name: header.count(DELIMITERS[name]))


def _json_table(tree: Tree, path: str) -> Table:
    """Return the objects of a list, of the only list in an object, or the only object."""
    value = json_text.parse_json(decoding.decode(files.read(tree, path, max_bytes=MAX_BYTES)))
    if isinstance(value, dict):
        lists = [entry for entry in value.values() if isinstance(entry, list)]
        value = lists[0] if len(lists) == 1 and "input" not in value else [value]
    if not isinstance(value, list):
        raise Fault("type", "the file is not a list of rows", "write [{...}, {...}]")
    if len(value) > MAX_ROWS:
        raise Fault("size", f"more than {MAX_ROWS:,} rows", "import it in parts")
    table = Table()
    for number, row in enumerate(value, 1):
        if not isinstance(row, dict):
            raise Fault("type", f"row {number} is not an object", 'write {"name": "value"}')
        size = len(json.dumps(row, ensure_ascii=False).encode("utf-8"))
        if size > rows.MAX_ROW_BYTES:
            message = f"row {number} is longer than {rows.MAX_ROW_BYTES:,} bytes"
            raise Fault("size", message, "shorten it")
        table.rows.append(exports.SourceRow(Location(path), row))
    return table


def _document_table(tree: Tree, path: str, form: str, chosen: str | None) -> Table | None:
    """Return the objects in a document of another tool; None if it is none."""
    if chosen == TABLE:
        return None
    if form == ".eval":
        with tree.open(path, max_bytes=MAX_BYTES) as stream:
            return Table(read_samples(stream, Location(path)), format="inspect")
    if form == ".json":
        text = decoding.decode(files.read(tree, path, max_bytes=MAX_BYTES))
        foreign = exports.objects_of(
            json_text.parse_json(text, constants=True), Document(path, None, _NOWHERE)
        )
    elif form in (".yaml", ".yml") and not _is_list(tree, path):
        document = read_yaml(files.read(tree, path, max_bytes=_YAML_BYTES), path, limits=_YAML)
        if document.problems:
            raise ConfigError(document.problems)
        foreign = exports.objects_of(document.value, document)
    else:
        return None
    if foreign is None:
        return None
    return Table(foreign.rows, format=foreign.name, notes=foreign.notes)


def read_samples(stream: BinaryIO, where: Location) -> list[exports.SourceRow]:
    """Return each sample once, of its first epoch; raises Fault."""
    _refuse_listing(stream)
    try:
        with zipfile.ZipFile(stream) as archive:
            return [
                exports.SourceRow(where, sample)
                for member in _first_epochs(archive)
                for sample in [_sample(archive, member, stream)]
            ]
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise Fault("syntax", f"the ZIP file is damaged ({error})", _FROM_INSPECT) from None


def _refuse_listing(stream: BinaryIO) -> None:
    """Raise, by the last bytes, for an archive whose listing would exhaust the memory."""
    size = stream.seek(0, 2)
    stream.seek(max(0, size - _END.size))
    end = stream.read()
    stream.seek(0)
    if len(end) < _END.size or not end.startswith(b"PK\5\6"):
        raise Fault("syntax", "it is not a ZIP file", _FROM_INSPECT)
    if _END.unpack(end)[4] > MOST_MEMBERS:
        raise Fault("size", f"it has more than {MOST_MEMBERS:,} files", "import it in parts")


def _first_epochs(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    first: dict[str, tuple[int, zipfile.ZipInfo]] = {}
    for member in archive.infolist():
        if named := _SAMPLE.fullmatch(member.filename):
            sample = (int(named[2]), member)
            first[named[1]] = min(first.get(named[1], sample), sample, key=lambda pair: pair[0])
    if sum(member.file_size for _, member in first.values()) > ALL_SAMPLE_BYTES:
        raise Fault("size", f"it unpacks to over {ALL_SAMPLE_BYTES:,} bytes", "import it in parts")
    return [member for _, member in first.values()]


def _sample(archive: zipfile.ZipFile, member: zipfile.ZipInfo, stream: BinaryIO) -> exports.Fields:
    value = json_text.parse_json(
        decoding.decode(_unpacked(archive, member, stream)), constants=True
    )
    if not isinstance(value, dict):
        raise Fault("type", f"{member.filename[:80]!r} is not a sample", _FROM_INSPECT)
    return value


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, stream: BinaryIO) -> bytes:
    if member.file_size > SAMPLE_BYTES:
        message = f"{member.filename[:80]!r} unpacks to over {SAMPLE_BYTES:,} bytes"
        raise Fault("size", message, "leave the sample out")
    if member.compress_type != _ZSTD:
        try:
            with archive.open(member) as source:
                return source.read(SAMPLE_BYTES)
        except NotImplementedError:
            name = f"{member.filename[:80]!r}"
            raise Fault("type", f"{name} is compressed in an unknown way", _CONVERT) from None
    # Python 3.14 is the first whose zipfile knows what Inspect packs with.
    stream.seek(member.header_offset)
    head = stream.read(_LOCAL.size)
    if len(head) != _LOCAL.size:
        raise zipfile.BadZipFile("a file in it is cut off")
    name_bytes, extra_bytes = _LOCAL.unpack(head)[-2:]
    stream.seek(name_bytes + extra_bytes, 1)
    data = unpack_zstd(stream.read(member.compress_size), member.file_size)
    if zlib.crc32(data) != member.CRC:
        raise zipfile.BadZipFile("a file in it has another checksum")
    return data


def unpack_zstd(data: bytes, size: int) -> bytes:
    """Return unpacked Zstandard data of so many bytes; raises Fault if it is damaged."""
    from zstandard import ZstdDecompressor, ZstdError  # only for such logs

    try:
        with ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            unpacked: bytes = reader.read(size + 1)
    except ZstdError as error:
        raise Fault("syntax", f"the Zstandard data is damaged: {error}", _WHOLE) from None
    if len(unpacked) > size:
        raise Fault("size", f"it unpacks to over {size:,} bytes", "shorten it")
    if len(unpacked) < size:
        raise Fault("syntax", "the Zstandard data is damaged: it ends too early", _WHOLE)
    return unpacked


def _is_list(tree: Tree, path: str) -> bool:
    """Whether a YAML file is a list, by its first line that says something."""
    with tree.open(path) as stream:
        for line in decoding.text_lines(stream, longest=rows.MAX_ROW_BYTES):
            if isinstance(line, Fault):
                return True  # the reader of lists reports it
            if (text := line.strip()) and not text.startswith(("#", "---", "%")):
                return text.startswith(("-", "["))
    return True


def _read_format(table: Table, path: str, form: str, chosen: str | None) -> None:
    """Make columns of the rows: those of a case in the files of other tools."""
    name = table.format if table.format != TABLE else ""
    if chosen != TABLE:
        name = name or exports.format_of(table.rows)
    if chosen not in (None, TABLE, name):
        about = (
            f"it is one of {exports.FORMATS[name].title}"
            if name
            else exports.FORMATS[str(chosen)].hint
        )
        raise Fault("type", f"this is not a file of {exports.FORMATS[str(chosen)].title}", about)
    if name:
        made = exports.read_export(name, table.rows)
        table.rows, table.format, table.kept = made.rows, name, made.kept
        table.notes += made.notes
    elif form != ".csv":
        table.rows = [exports.SourceRow(row.where, _flat(row.fields)) for row in table.rows]
    for number, row in enumerate(table.rows if name else (), 1):
        size = len(json.dumps(row.fields, ensure_ascii=False).encode("utf-8"))
        if size > rows.MAX_ROW_BYTES:
            message = f"case {number} is longer than {rows.MAX_ROW_BYTES:,} bytes"
            raise Fault("size", message, "shorten it")


def _flat(row: Mapping[str, Json]) -> dict[str, Json]:
    """Return the columns of a row, with those under `input`."""
    nested = row.get("input")
    if not isinstance(nested, dict):
        return dict(row)
    others = {name: value for name, value in row.items() if name != "input"}
    metadata = others.pop("metadata", None)
    if isinstance(metadata, dict):
        others |= {f"{_METADATA}{name}": value for name, value in metadata.items()}
    return {**{f"input.{n}" if n in others else n: value for n, value in nested.items()}, **others}


@dataclass(frozen=True, slots=True)
class CaseShape:
    """What the cases of an experiment consist of."""

    inputs: dict[str, str]
    """Types of the inputs, of the prompts and of the cases that are there; '' if unknown."""
    needed: tuple[str, ...]
    """Inputs that every case needs."""

    @property
    def names(self) -> list[str]:
        """All names that a column can get."""
        return [*self.inputs, *rows.CSV_RESERVED]


def guessed_names(table: Table, shape: CaseShape, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the name of each column; '' for one that is left out.

    A column that is not given gets the name that it has itself, in any spelling. In the file of
    another tool, the one text of a case becomes the one input that no column is named after.
    """
    columns = table.columns
    for column, name in chosen.items():
        if column not in columns:
            hint = did_you_mean(column, columns, label="columns")
            raise UsageError(f"there is no column {column!r}", hint=hint)
        check_name(name, shape)
    by_spelling = {_plain(name): name for name in shape.names}
    by_spelling |= {alias: name for name, aliases in _ALIASES.items() for alias in aliases}
    names_by_column: dict[str, str] = dict.fromkeys(columns, "")
    taken = {name for name in chosen.values() if name}
    for column in columns:
        name = column if column.startswith(_METADATA) else by_spelling.get(_plain(column), "")
        if column in chosen:
            names_by_column[column] = chosen[column]
        elif name and name not in taken:
            names_by_column[column] = name
            taken.add(name)
    if table.format != TABLE:
        _place_rest(names_by_column, table, shape, chosen)
    names = [name for name in names_by_column.values() if name]
    for name in names:
        if names.count(name) > 1:
            both = ", ".join(repr(column) for column in columns if names_by_column[column] == name)
            raise UsageError(f"{both} are both {name!r}", hint=f"leave one out: --map {column}=")
    return names_by_column


def _place_rest(
    names: dict[str, str], table: Table, shape: CaseShape, chosen: Mapping[str, str]
) -> None:
    """Give names to the columns of another tool's cases that have none."""
    free = [column for column, name in names.items() if not name and column not in chosen]
    missing = missing_inputs(names, shape)
    texts = [column for column in free if column in (exports.TEXT, "prompt")] or [
        column for column in free if column not in table.kept and "." not in column
    ]
    if len(missing) == len(texts) == 1:
        names[texts[0]] = missing[0]
    for column in free:
        if not names[column] and column in table.kept:
            names[column] = f"{_METADATA}{column}"


def check_name(name: str, shape: CaseShape) -> None:
    """Raise UsageError if a column cannot get this name; '' leaves it out."""
    if name and name not in shape.names and not re.fullmatch(rf"{_METADATA}[\w-]{{1,50}}", name):
        hint = did_you_mean(name, shape.names, label="names") + "; or metadata.NAME"
        raise UsageError(f"{short(name)} is not a part of a case", hint=hint)


def missing_inputs(names: Mapping[str, str], shape: CaseShape) -> list[str]:
    """Return the inputs that no column has."""
    return [name for name in shape.needed if name not in names.values()]


def _plain(name: str) -> str:
    return re.sub(r"[^0-9a-z]+", "_", name.casefold()).strip("_")


class ImportRules(NamedTuple):
    """How rows become cases."""

    names: Mapping[str, str]
    tags: tuple[str, ...] = ()
    prefix: str = ""
    """Beginning of numbered ids; without one, rows without an id get a hash as their id."""


class Duplicate(NamedTuple):
    """A row that is there already."""

    row: int
    where: Location
    case: str
    """Id of the first case that is the same."""
    same_id: bool
    """Whether the id is the same; otherwise input and expected answer are."""

    def __str__(self) -> str:
        place = f"line {self.where.line}" if self.where.line else f"row {self.row}"
        what = f"the id {self.case!r} is used" if self.same_id else f"the same as {self.case!r}"
        return f"{place}: {what}"


@dataclass(slots=True)
class ImportedCases:
    """The cases of a file."""

    rows: list[dict[str, Json]] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)


def imported_cases(
    table: Table, rules: ImportRules, shape: CaseShape, present_cases: Iterable[Case]
) -> ImportedCases:
    """Return the rows as cases, and those that are there already; raises ConfigError."""
    imported, problems = ImportedCases(), list[Problem]()
    contents, ids = dict[str, str](), set[str]()
    for case in present_cases:
        contents.setdefault(case_facts.content_hash(case), str(case.id))
        ids.add(str(case.id))
    numbers = _numbers(rules.prefix, ids)
    for number, row in enumerate(table.rows, 1):
        try:
            made = _case_row(row.fields, rules, shape)
            case = cases.case_of(made, "golden", shape.inputs)
            content = case_facts.content_hash(case)
            if made.get("id") in ids or content in contents:
                same_id = made.get("id") in ids
                name = str(made["id"]) if same_id else contents[content]
                imported.duplicates.append(Duplicate(number, row.where, name, same_id))
                continue
            if "id" not in made:
                made = {"id": next(numbers) if rules.prefix else str(case.id), **made}
            for fault in secrets.secrets_in(json.dumps(made, ensure_ascii=False)):
                raise Fault(fault.code, fault.message, fault.hint)
        except Fault as fault:
            problems.append(
                Problem(row.where, fault.code, f"row {number}: {fault.message}", fault.hint)
            )
            if len(problems) == _MOST_PROBLEMS:
                break
            continue
        contents[content] = str(made["id"])
        ids.add(str(made["id"]))
        imported.rows.append(made)
    if problems:
        raise ConfigError(problems)
    return imported


def _numbers(prefix: str, ids: Collection[str]) -> Iterator[str]:
    """Yield free ids: the prefix with the numbers after the highest that is there."""
    ends = (row.removeprefix(prefix) for row in ids if row.startswith(prefix))
    used = [int(end) for end in ends if re.fullmatch(r"[0-9]{1,15}", end)]
    number = max(used, default=0)
    while True:
        number += 1
        yield f"{prefix}{number}"


def _case_row(columns: Mapping[str, Json], rules: ImportRules, shape: CaseShape) -> dict[str, Json]:
    inputs, row, metadata = dict[str, Json](), dict[str, Json](), dict[str, Json]()
    for column, value in columns.items():
        name = rules.names.get(column, "")
        if not name or value is None:
            continue
        if name.startswith(_METADATA):
            metadata[name.removeprefix(_METADATA)] = value
        elif name in rows.CSV_RESERVED:
            if value != "":
                row[name] = _KEYS[name](value) if name in _KEYS else value
        elif (typed := _input(name, value, shape.inputs[name])) is not None:
            inputs[name] = typed
    for name in shape.needed:
        if name not in inputs:
            raise Fault("missing", f"{name} is missing", "every case needs it")
    tags = row.pop("tags", [])
    assert isinstance(tags, list)
    made: dict[str, Json] = {**({"id": row.pop("id")} if "id" in row else {}), "input": inputs}
    made |= {name: row[name] for name in ("expected",) if name in row}
    if all_tags := [*dict.fromkeys([*map(str, tags), *rules.tags])]:
        made["tags"] = [*all_tags]
    made |= {name: row[name] for name in ("difficulty", "cluster") if name in row}
    return {**made, "metadata": metadata} if metadata else made


def _input(name: str, value: Json, kind: str) -> Json:
    """Return the value of an input; a text is read as JSON where another type is declared."""
    if kind in ("", "string") or not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return json_text.parse_json(value)
    except Fault:
        raise Fault(
            "type", f"{name} is {short(value)}, not a {kind}", "written as in JSON"
        ) from None


def _id(value: Json) -> Json:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if whole else value.strip() if isinstance(value, str) else value


def _tags(value: Json) -> Json:
    if isinstance(value, str):
        return [tag.strip() for tag in _TAGS.split(value) if tag.strip()]
    if not isinstance(value, list) or not all(isinstance(tag, str) and tag for tag in value):
        raise Fault("type", "tags is not a list of texts", 'write ["a", "b"], or a;b in a cell')
    return value


def _difficulty(value: Json) -> Json:
    whole = isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,3}\s*", value)
    return int(str(value)) if whole else value


_KEYS = {"id": _id, "tags": _tags, "difficulty": _difficulty}
