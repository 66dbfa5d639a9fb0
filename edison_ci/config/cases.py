"""Which cases does an experiment have?"""

from __future__ import annotations

import hashlib
import heapq
import json
import operator
import re
import unicodedata
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.config.prompt_header import fits
from edison_ci.config.rows import MAX_PROBLEMS, RESERVED, Columns, RowReader
from edison_ci.errors import Location, Problem
from edison_ci.frozen import dataclass
from edison_ci.names import did_you_mean, mixed_scripts, odd_character
from edison_ci.records import Case, CaseId, Json, canonical_json
from edison_ci.shape import short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from edison_ci.config.dataset_entry import DatasetEntry, Split
    from edison_ci.documents.files import Tree

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
    """Streams the cases of several dataset files, once through, keeping what was wrong."""

    tree: Tree
    entries: tuple[DatasetEntry, ...]
    types: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def __iter__(self) -> Iterator[Case]:
        kept: set[int] = set()
        for index, entry in enumerate(self.entries):
            cases = self._of_entry(index, entry, kept)
            yield from cases if entry.take is None else sample(cases, entry.take)

    def _of_entry(self, index: int, entry: DatasetEntry, kept: set[int]) -> Iterator[Case]:
        """Yield the cases of one entry; `kept` has the ids of the entries before it."""
        seen: set[int] = set()
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
            key = hash(case.id)
            wanted = keep is None or keep(case)
            if key in seen or (wanted and key in kept):
                if len(repeated) < MAX_PROBLEMS:
                    where = reader.locate(("id",))
                    repeated.append(
                        _Repeated(case.id, reader.number, case.line, where, "id" in row)
                    )
                else:
                    reader.suppressed += 1
                continue
            seen.add(key)
            if wanted:
                if several:
                    kept.add(key)
                yield case
        if repeated:
            self._report_repeated(repeated, index, reader)
        if reader.suppressed:
            message = f"{reader.suppressed:,} further problems in this file"
            self.problems.append(
                Problem(Location(entry.path), "more", message, "mend the first ones")
            )

    def _types(self) -> list[tuple[str, str]]:
        return [(name, kind) for name, kind in self.types.items() if kind]

    def _report_repeated(self, repeated: list[_Repeated], index: int, reader: RowReader) -> None:
        """Report ids used before, naming the first row of each by reading the files once more."""
        firsts = self._first_rows({row.id for row in repeated}, index)
        for row in repeated:
            entry, line = firsts.get(row.id, (index, row.line))
            first, hint = f"{self.entries[entry].path}:{line}", "give each case its own id"
            if (entry, line) == (index, row.line):
                # Two ids with the same 64-bit hash: as good as impossible, and never silent.
                message = f"row {row.number}: id {row.id!r} cannot be told from another"
            elif row.given:
                message = f"row {row.number}: id {row.id!r} is used twice, first in {first}"
            else:
                message = f"row {row.number}: it repeats a case, first in {first}"
                hint = "remove one of them, or give them ids"
            reader.report(Problem(row.where, "duplicate-id", message, hint))

    def _first_rows(self, wanted: set[CaseId], last: int) -> dict[CaseId, tuple[int, int]]:
        """Return the number of the dataset and the line in which each id is first used."""
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
    """A row whose id was seen before."""

    id: CaseId
    number: int
    line: int
    where: Location
    given: bool
    """Whether the id is written in the row."""


def sample(cases: Iterable[Case], count: int) -> list[Case]:
    """Return a stable sample: the cases whose ids hash lowest, in the order of the file."""
    ranked = heapq.nsmallest(
        count, ((_rank(case.id), index, case) for index, case in enumerate(cases))
    )
    return [case for _, _, case in sorted(ranked, key=operator.itemgetter(1))]


def is_holdout(case: Case, split: Split) -> bool:
    """Whether the refiner never sees this case; adding rows never moves old ones."""
    return fraction(f"{split.seed}:{case.cluster or case.id}") < split.holdout


def fraction(text: str) -> float:
    """Return a number in [0, 1) that depends only on the text."""
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _rank(case_id: str) -> bytes:
    return hashlib.sha256(case_id.encode()).digest()


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
    hint = "the prompt's inputs declare its type"
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
        raise _BadRowError(("id",), "id", f"id {short(value)} contains {odd}", "type it again")
    return CaseId(value)


def _look_alike(text: str) -> str:
    """Describe a character that has a plainer form, such as a full-width letter; '' if none."""
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
