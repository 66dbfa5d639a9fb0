"""Which cases does an experiment have?"""

from __future__ import annotations

import hashlib
import heapq
import json
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edison_ci.config.prompt_header import fits
from edison_ci.config.rows import RESERVED, Row, RowReader
from edison_ci.errors import Location, Problem
from edison_ci.names import did_you_mean, mixed_scripts, odd_character
from edison_ci.records import Case, CaseId, Json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from edison_ci.config.dataset_entry import DatasetEntry, Split
    from edison_ci.documents.files import Tree

STATIC = Case(id=CaseId("static"), inputs={})
"""The one case of an experiment whose prompts have no variables."""

_KNOWN = frozenset(RESERVED)
_MAX_ID = 200
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
        seen: set[int] = set()
        for index, entry in enumerate(self.entries):
            cases = self._of_entry(index, entry, seen)
            yield from cases if entry.take is None else sample(cases, entry.take)

    def _of_entry(self, index: int, entry: DatasetEntry, seen: set[int]) -> Iterator[Case]:
        reader = RowReader(self.tree, entry, self.types, self.problems)
        keep = _condition(entry)
        types = [(name, kind) for name, kind in self.types.items() if kind]
        for row in reader:
            try:
                case = _case(row, entry.kind, types)
            except _BadRowError as bad:
                where = row.locate(bad.path)
                reader.report(
                    Problem(where, bad.code, f"row {row.number}: {bad.message}", bad.hint)
                )
                continue
            key = hash(case.id)
            if key in seen:
                reader.report(self._duplicate(case, row, index, entry))
                continue
            seen.add(key)
            if keep is None or keep(case):
                yield case
        if reader.suppressed:
            self.problems.append(
                Problem(
                    Location(entry.path),
                    "more",
                    f"{reader.suppressed:,} further problems in this file",
                )
            )

    def _duplicate(self, case: Case, row: Row, index: int, entry: DatasetEntry) -> Problem:
        """Return the problem of a repeated id, naming the first row by reading the files again."""
        first = ""
        for earlier in self.entries[: index + 1]:
            reader = RowReader(self.tree, earlier, self.types, [])
            for other in reader:
                try:
                    same = _case(other, earlier.kind, []).id == case.id
                except _BadRowError:
                    continue
                if same:
                    first = f"first in {earlier.path}:{other.line}"
                    break
            if first:
                break
        message = f"row {row.number}: id {case.id!r} is used twice, {first}"
        hint = "give each case its own id"
        if "id" not in row.value:
            message = f"row {row.number} repeats a case, {first}"
            hint = "remove one of them, or give them ids"
        return Problem(row.locate(("id",)), "duplicate-id", message, hint)


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


def _case(row: Row, kind: str, types: list[tuple[str, str]]) -> Case:
    value = row.value
    nested = value.get("input")
    inputs: dict[str, Json]
    if isinstance(nested, dict):
        inputs = nested
        if not value.keys() <= _KNOWN:
            key = next(key for key in value if key not in _KNOWN)
            raise _BadRowError(
                (key,),
                "unknown-key",
                f"unknown key {key!r}",
                did_you_mean(key, RESERVED) or "put variables under input",
            )
    else:
        inputs = {k: v for k, v in value.items() if k not in _KNOWN or k == "input"}
    for name, wanted in types:
        if name in inputs and not fits(inputs[name], wanted):
            shown = json.dumps(inputs[name], ensure_ascii=False)[:40]
            path = ("input", name) if isinstance(nested, dict) else (name,)
            raise _BadRowError(
                path,
                "type",
                f"{name} is {shown}, not a {wanted}",
                "the prompt's inputs declare its type",
            )
    expected = value.get("expected")
    given = value.get("id")
    case_id = _content_id(inputs, expected) if given is None else _checked_id(given)
    return Case(
        CaseId(case_id),
        inputs,
        expected,
        _tags(value.get("tags")),
        _difficulty(value.get("difficulty")),
        _cluster(value.get("cluster")),
        _metadata(value.get("metadata")),
        kind,
        row.line,
    )


def _content_id(inputs: dict[str, Json], expected: Json) -> str:
    text = json.dumps([inputs, expected], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _checked_id(value: Json) -> str:
    if not isinstance(value, str):
        raise _BadRowError(
            ("id",), "type", f"id is {json.dumps(value)[:40]}, not a text", "quote it"
        )
    if not value or value != value.strip() or len(value) > _MAX_ID:
        raise _BadRowError(
            ("id",), "id", f"id {value[:40]!r} is empty, padded or over {_MAX_ID} characters"
        )
    if not value.isascii() or not value.isprintable():
        odd = odd_character(value, ascii_only=False)
        if odd or (odd := mixed_scripts(value)):
            raise _BadRowError(("id",), "id", f"id {value[:40]!r} contains {odd}", "type it again")
    return value


def _tags(value: Json) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(tag, str) and tag for tag in value):
        raise _BadRowError(("tags",), "type", "tags is not a list of texts", 'write ["a", "b"]')
    return tuple(str(tag) for tag in value)


def _difficulty(value: Json) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= 5:
        raise _BadRowError(
            ("difficulty",), "range", f"difficulty is {json.dumps(value)[:40]}; allowed: 1 to 5"
        )
    return value


def _cluster(value: Json) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise _BadRowError(("cluster",), "type", "cluster is not a text", "quote it")
    return value


_NO_METADATA: dict[str, Json] = {}


def _metadata(value: Json) -> dict[str, Json]:
    if value is None:
        return _NO_METADATA
    if not isinstance(value, dict):
        raise _BadRowError(("metadata",), "type", "metadata is not an object")
    return value


def _condition(entry: DatasetEntry) -> Callable[[Case], bool] | None:
    tests: list[Callable[[Case], bool]] = []
    for key, wanted in entry.where.items():
        tests.append(_test(key, wanted))
    if not tests:
        return None
    return lambda case: all(test(case) for test in tests)


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
    return lambda case: name in case.metadata and case.metadata[name] in wanted
