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
from array import array
from collections import Counter
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.prompt import fits
from edison_ci.config.rows import MAX_PROBLEMS, RESERVED, Columns, RowReader
from edison_ci.documents.marks import Fault, Json
from edison_ci.errors import Location, Problem
from edison_ci.records import Case, CaseId, canonical_json
from edison_ci.safety import redaction
from edison_ci.shape import short
from edison_ci.spelling import did_you_mean, mixed_scripts, odd_character

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set

    from edison_ci.config.experiment import DatasetEntry, Split
    from edison_ci.config.screens import TextScreens
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
        _WRITTEN_ONE_WAY.fullmatch(case_id) and not _CONTENT_ID.fullmatch(case_id)
        for case_id in ids
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
    ends: dict[int, int] = {}
    for text in texts:
        at = data.find(text)
        while at >= 0:
            start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            end = len(data) if end < 0 else end + 1
            ends[start] = end
            at = data.find(text, end)
    for start, end in sorted(ends.items()):
        yield data[start:end]


# Every case is remembered by a hash while a dataset is read. A set or dict of integers takes about
# 100 bytes for each of a million; this takes 12 to 24, for two microseconds more.
_FEW = 1 << 11
"""Hashes that are kept in a dict; a power of 2, as is every later number of slots."""


class HashIndex:
    """Different 64-bit hashes, numbered in the order in which they were added."""

    def __init__(self) -> None:
        self._few: dict[int, int] | None = {}
        """Their numbers, as long as they are few."""
        self._hashes = array("q")
        self._slots = array("I")
        """Open addressing: 0 is free, any other value the number of a hash, plus 1."""

    def __len__(self) -> int:
        """Return how many different hashes there are."""
        return len(self._hashes if self._few is None else self._few)

    def __contains__(self, key: int) -> bool:
        """Whether a hash was added."""
        if self._few is not None:
            return key in self._few
        return bool(self._slots[self._slot(key)])

    def add(self, key: int) -> int:
        """Return the number of a hash, which is the next one if it is new."""
        few = self._few
        if few is not None:
            number = few.setdefault(key, len(few))
            if number == _FEW:
                self._hashes.extend(few)
                self._few = None
                self._grow(4 * _FEW)
            return number
        slot = self._slot(key)
        if number := self._slots[slot]:
            return number - 1
        self._hashes.append(key)
        self._slots[slot] = len(self._hashes)
        if 2 * len(self._hashes) > len(self._slots):
            self._grow(2 * len(self._slots))
        return len(self._hashes) - 1

    def _slot(self, key: int) -> int:
        """Return the slot that has a hash, or the free one where it belongs."""
        slots, hashes = self._slots, self._hashes
        last = len(slots) - 1
        slot = key & last
        while (number := slots[slot]) and hashes[number - 1] != key:
            slot = (slot + 1) & last
        return slot

    def _grow(self, size: int) -> None:
        slots = array("I", bytes(4 * size))
        last = size - 1
        for number, key in enumerate(self._hashes, 1):
            slot = key & last
            while slots[slot]:
                slot = (slot + 1) & last
            slots[slot] = number
        self._slots = slots


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


MOST_RANKED = 200
"""Clusters up to which the share is exact."""


class Units:
    """The clusters of the cases of datasets, as far as a holdout needs them."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        """All of them, or one more than can be ranked."""

    def add(self, case: Case) -> bool:
        """Add the cluster of a case; return whether further ones are needed."""
        self.names.add(unit_of(case))
        return self.ranked

    @property
    def ranked(self) -> bool:
        """Whether they are few enough for an exact share."""
        return len(self.names) <= MOST_RANKED


class HoldoutCount:
    """How many of some cases are held out, counted while they are read for another reason."""

    def __init__(self, split: Split | None) -> None:
        self._split = split
        self._by_hash = 0
        self._by_unit: Counter[str] = Counter()

    def add(self, case: Case) -> None:
        """Count a case."""
        if self._split is None:
            return
        self._by_hash += is_holdout(case, self._split)
        if len(self._by_unit) <= MOST_RANKED:
            self._by_unit[unit_of(case)] += 1

    def of(self, units: Units) -> int:
        """Return the number of held-out cases; `units` are the clusters of all datasets."""
        if self._split is None or not units.ranked:
            return self._by_hash
        return sum(self._by_unit[name] for name in lowest_units(self._split, units.names))


@dataclass(slots=True)
class CaseFeed:
    """Streams the cases of several dataset files once, and collects their problems."""

    tree: Tree
    entries: tuple[DatasetEntry, ...]
    types: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    redact: Redact | None = None
    """Applied to every case before anything else gets it, if the experiment redacts inputs."""
    units: Units | None = None
    """Gets the cluster of every case, also of those that are not chosen."""

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
        keep, kind, types, units = _condition(entry), entry.kind, self._types(), self.units
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
            if units is not None and not units.add(case):
                units = None
            key, before = hash(case.id), len(seen)
            selected = keep is None or keep(case)
            if seen.add(key) < before or (several and selected and key in kept):
                if len(repeated) < MAX_PROBLEMS:
                    where = reader.locate(("id",))
                    repeated.append(
                        _Repeated(case.id, reader.number, case.line, where, "id" in row)
                    )
                else:
                    reader.suppressed += 1
                continue
            if selected:
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

    def _first_rows(self, ids: set[CaseId], last: int) -> dict[CaseId, tuple[int, int]]:
        """Return dataset number and line of the first use of each id."""
        firsts: dict[CaseId, tuple[int, int]] = {}
        for index, entry in enumerate(self.entries[: last + 1]):
            reader = RowReader(self.tree, entry, self.types, [])
            for row in reader:
                with suppress(_BadRowError):
                    case = _case(row, entry.kind, self._types())
                    if case.id in ids:
                        firsts.setdefault(case.id, (index, reader.line))
                if len(firsts) == len(ids):
                    return firsts
        return firsts


class _Repeated(NamedTuple):
    """A row with a repeated id."""

    id: CaseId
    number: int
    line: int
    where: Location
    given: bool
    """Whether the id is written in the row."""


def redaction_by(inputs: TextScreens) -> Redact | None:
    """Return what an experiment with these screens of inputs applies to its cases; None if off."""
    return redaction.redactor(screens=inputs) if inputs.active() else None


def sample(cases: Iterable[Case], count: int) -> list[Case]:
    """Return a stable sample: the cases with the lowest hashes of their ids, in file order."""
    ranked = heapq.nsmallest(
        count, ((_rank(case.id), index, case) for index, case in enumerate(cases))
    )
    return [case for _, _, case in sorted(ranked, key=operator.itemgetter(1))]


def unit_of(case: Case) -> str:
    """Return the cluster of a case; without one it is a cluster of its own."""
    return case.cluster or case.id


def is_holdout(case: Case, split: Split) -> bool:
    """Whether a case of many clusters is held out; adding rows does not change old ones."""
    return fraction(f"{split.seed}:{unit_of(case)}") < split.holdout


def lowest_units(
    split: Split,
    names: Set[str],
    held: Set[str] = frozenset(),
    shown: Set[str] = frozenset(),
) -> frozenset[str]:
    """Return the clusters to hold out, of few: `held`, and new ones with the lowest hashes.

    Those in `shown` cannot be held out any more.
    """
    # At least one cluster is left to learn from.
    count = min(int(split.holdout * len(names) + 0.5), max(len(names) - 1, 0))
    new = sorted(names - held - shown, key=lambda name: fraction(f"{split.seed}:{name}"))
    return frozenset({*held, *new[: max(count - len(held), 0)]})


def fraction(text: str) -> float:
    """Return a pseudo-random number in [0, 1) that depends only on the text."""
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _rank(case_id: str) -> bytes:
    return hashlib.sha256(case_id.encode()).digest()


def case_of(row: Columns, kind: str, types: dict[str, str]) -> Case:
    """Return the case of a row; raises Fault."""
    try:
        return _case(
            row,
            kind,
            [(name, kind_of_input) for name, kind_of_input in types.items() if kind_of_input],
        )
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
    for name, input_type in types:
        if name in inputs and not fits(inputs[name], input_type):
            raise _wrong_type(name, inputs[name], input_type, nested=isinstance(nested, dict))
    expected, case_id = get("expected"), get("id")
    tags, difficulty, cluster, metadata = (
        get("tags"),
        get("difficulty"),
        get("cluster"),
        get("metadata"),
    )
    return Case(
        _content_id(inputs, expected) if case_id is None else _checked_id(case_id),
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


def _wrong_type(name: str, value: Json, input_type: str, *, nested: bool) -> _BadRowError:
    written = json.dumps(value, ensure_ascii=False)[:40]
    path = ("input", name) if nested else (name,)
    hint = "its type is declared in inputs of the prompt"
    return _BadRowError(path, "type", f"{name} is {written}, not a {input_type}", hint)


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
    odd = next(alone, None)
    return odd_character(odd) if odd else "a combining character"


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
    tests = [_test(key, allowed) for key, allowed in entry.where.items()]
    return (lambda case: all(test(case) for test in tests)) if tests else None


def _test(key: str, allowed: tuple[Any, ...]) -> Callable[[Case], bool]:
    if key == "tags":
        return lambda case: any(tag in allowed for tag in case.tags)
    if key == "kind":
        return lambda case: case.kind in allowed
    if key == "id":
        return lambda case: case.id in allowed
    if key == "difficulty":
        sign, level = allowed
        compare = _COMPARE[sign]
        return lambda case: case.difficulty is not None and compare(case.difficulty, level)
    name = key.removeprefix("metadata.")
    return lambda case: any(_same(case.metadata.get(name), value) for value in allowed)


def _same(value: Json, other: Json) -> bool:
    """Whether two values are equal in JSON, where true is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)
