"""Cases in files of other tools: results, goldens, logs, specifications and exports.

The format is recognised by its content. A reader takes what makes a case: inputs, expected output,
tags, metadata. What a file says of runs (answers, scores, times) is left out, and noted.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.api import traces
from edison_ci.config import rows as config_rows
from edison_ci.documents import json_text
from edison_ci.documents.marks import Fault, Json
from edison_ci.documents.yaml_text import read_beside
from edison_ci.errors import Location
from edison_ci.numeric import counted
from edison_ci.records import canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from edison_ci.documents.marks import Document

Fields = dict[str, Json]
TEXT = "input"
"""Column with the text of a case in tools whose cases have one text."""
_PLAIN_NAME = re.compile(r"[!-~](?:[ -~]{0,98}[!-~])?")
_CHAT = ("system", "history")
_FIELDS = read_beside(__file__, "exports.yaml")
"""Fields of each format."""


class SourceRow(NamedTuple):
    """An object of a file, or a record of a CSV file, with the place where it begins."""

    where: Location
    fields: Fields


@dataclass(slots=True)
class Export:
    """The cases of a file of another tool."""

    format: str
    rows: list[SourceRow] = field(default_factory=list)
    """Their columns: inputs, keys of a case, and metadata.NAME."""
    kept: frozenset[str] = frozenset()
    """Columns that become metadata where no input has their name."""
    notes: list[str] = field(default_factory=list)
    """What of the file is in no column."""


class _Case(NamedTuple):
    """What a reader found."""

    where: Location
    inputs: Fields
    name: Json = None
    """Becomes the id if it is plain and no other case has it."""
    expected: Json = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, Json] = MappingProxyType({})
    id: Json = None


def _export(name: str, cases: Iterable[_Case], kept: Iterable[str] = ()) -> Export:
    listed = [*cases]
    names = Counter(str(case.name) for case in listed)
    made = Export(name, kept=frozenset(kept))
    for case in listed:
        columns: Fields = {
            f"input.{key}" if key in config_rows.RESERVED and key != TEXT else key: value
            for key, value in case.inputs.items()
        }
        metadata = dict(case.metadata)
        plain = isinstance(case.name, str) and _PLAIN_NAME.fullmatch(case.name)
        if case.id is not None:
            columns["id"] = case.id
        elif plain and names[str(case.name)] == 1:
            columns["id"] = case.name
        elif case.name:
            metadata.setdefault("name", case.name)
        if case.expected not in (None, ""):
            columns["expected"] = case.expected
        if case.tags:
            columns["tags"] = [*case.tags]
        columns |= {f"metadata.{key}": value for key, value in metadata.items()}
        made.rows.append(SourceRow(case.where, columns))
    return made


class ForeignDocument(NamedTuple):
    """The objects in a document of another tool."""

    name: str
    rows: list[SourceRow]
    notes: list[str]


def objects_of(value: Json, document: Document) -> ForeignDocument | None:
    """Return what a document consists of; None if it is that of no known tool."""
    if not isinstance(value, dict):
        return None
    results = value.get("results")
    if isinstance(results, dict) and isinstance(results.get("results"), list):
        return ForeignDocument("promptfoo", _objects(document, results["results"]), [])
    if isinstance(value.get("eval"), dict) and {"version", "status"} <= value.keys():
        return ForeignDocument("inspect", _objects(document, value.get("samples")), [])
    if isinstance(value.get("stimuli"), list):
        rows = _objects(document, value["stimuli"], "stimuli")
        tags = _mapping(value.get("tags"))
        for row in rows:
            row.fields["tags"] = {**tags, **_mapping(row.fields.get("tags"))}
        others = [key for key in value if key not in ("stimuli", "tags", "name", "description")]
        notes = [f"keys of the file that are not imported: {', '.join(others)}"] if others else []
        return ForeignDocument("vally", rows, notes)
    return None


def _objects(document: Document, value: Json, *path: str) -> list[SourceRow]:
    rows = []
    for number, item in enumerate(value if isinstance(value, list) else []):
        where = document.locate((*path, number)) if path else Location(document.file)
        if not isinstance(item, dict):
            message, at = f"entry {number + 1} is not an object", (where.line or 1, 1)
            raise Fault("type", message, "is the file whole?", at=(at[0] - 1, 0))
        rows.append(SourceRow(where, item))
    return rows


def format_of(rows: Sequence[SourceRow]) -> str:
    """Return the format whose objects or records these are; empty for a plain table."""
    keys = {key for row in rows for key in row.fields}
    for name, format in FORMATS.items():
        if format.fits(keys):
            return name
    return ""


def read_export(name: str, rows: Sequence[SourceRow]) -> Export:
    """Return the cases; raises Fault if the rows are not of the format."""
    if not rows:
        raise Fault("missing", "there are no cases in the file", FORMATS[name].hint)
    return FORMATS[name].read(rows)


def _text_or_json(value: Json) -> Json:
    """Return the value of a cell: exporters write a text as it is, and anything else as JSON."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        try:
            return json_text.parse_json(value)
        except Fault:
            return value
    return value


def _mapping(value: Json) -> Fields:
    value = _text_or_json(value)
    return value if isinstance(value, dict) else {}


def _dicts(value: Json) -> list[Fields]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _input(value: Json) -> Fields:
    """Return inputs: those of an object, of the messages of a chat, or one text."""
    value = _text_or_json(value)
    if _is_chat(value):
        return _chat(value)
    if isinstance(value, dict):
        (only, *others) = value.values() or [None]
        return _chat(only) if not others and _is_chat(only) else value
    return {} if value is None else {TEXT: value}


def _is_chat(value: Json) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and {"role", "content"} <= item.keys() for item in value)
    )


def _chat(value: Json) -> Fields:
    conversation = traces.conversation(traces.messages_of(value, "user"))
    if conversation is None:
        raise Fault("missing", "the messages have none of a user", "every case needs an input")
    inputs: Fields = {TEXT: conversation.message}
    if conversation.system:
        inputs["system"] = conversation.system
    if turns := conversation.history:
        inputs["history"] = [{"role": turn.role, "content": turn.text} for turn in turns]
    return inputs


def _answer(value: Json) -> Json:
    """Return an expected output; that of a chat is the text of its last message."""
    value = _text_or_json(value)
    last = value[-1] if isinstance(value, list) and _is_chat(value) else value
    if _is_chat([last]) and (messages := traces.messages_of(last, "assistant", marks=False)):
        return messages[0].text
    return value


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({number:,})" for name, number in counts.items())


def _note_others(
    made: Export,
    others: Mapping[str, int],
    what: str = "fields that are not imported",
    rest: str = "",
) -> None:
    """Note fields, or what else there is, that no column has."""
    if others:
        made.notes.append(f"{what}: {_listed(others)}{rest}")


def _promptfoo(rows: Sequence[SourceRow]) -> Export:
    """Return each test once, for any number of providers, prompts and repeats."""
    cases: dict[str, _Case] = {}
    rest = Counter[str]()
    for row in rows:
        test = _mapping(row.fields.get("testCase"))
        inputs = row.fields.get("vars")
        if not isinstance(inputs, dict):
            raise Fault("type", "a result has no vars", "write it with promptfoo eval -o FILE.json")
        expected, others = _expected(test.get("assert"))
        key = canonical_json([inputs, expected])
        if key in cases:
            continue
        metadata = {
            name: value
            for name, value in _mapping(test.get("metadata")).items()
            if not name.startswith("_promptfoo")
        }
        tags = metadata.pop("tags", None)
        if isinstance(tags, str):
            tags = [tags]
        elif not isinstance(tags, list) or not all(isinstance(tag, str) and tag for tag in tags):
            metadata |= {} if tags is None else {"tags": tags}
            tags = []
        cases[key] = _Case(
            row.where,
            inputs,
            test.get("description"),
            expected,
            [str(tag) for tag in tags if tag],
            metadata,
        )
        rest.update(others)
    made = _export("promptfoo", cases.values())
    made.notes.append(
        f"{counted(len(rows), 'result')} of {counted(len(cases), 'test')}; "
        "answers and scores are not imported"
    )
    what = "assertions that are no expected output"
    _note_others(made, rest, what, "; for checks of them: edison import promptfoo FILE")
    return made


def _expected(asserts: Json) -> tuple[Json, list[str]]:
    """Return the value of the assertion that says most, and the types of the others."""
    assertions = _dicts(asserts)
    ranked = (
        assertion
        for kind in _FIELDS["promptfoo"]["expected"]
        for assertion in assertions
        if assertion.get("type") == kind and assertion.get("value") not in (None, "")
    )
    chosen = next(ranked, None)
    others = [str(other.get("type"))[:50] for other in assertions if other is not chosen]
    return (chosen["value"] if chosen else None), others


def _deepeval(rows: Sequence[SourceRow]) -> Export:
    answers, others, cases = 0, Counter[str](), []
    golden = _FIELDS["deepeval"]
    for where, fields in rows:
        filled = {key: value for key, value in fields.items() if value not in (None, "")}
        answers += any(key in filled for key in golden["of_runs"])
        metadata: Fields = {}
        for key in golden["metadata"]:
            metadata |= _mapping(filled.pop(key, None))
        inputs: Fields = {
            key: _golden_value(key, filled[key])
            for key in (TEXT, "scenario", *golden["kept"])
            if key in filled
        }
        others.update(filled.keys() - {*inputs, *golden["of_runs"], *golden["of_cases"]})
        expected = filled.get("expected_output", filled.get("expected_outcome"))
        cases.append(_Case(where, inputs, filled.get("name"), expected, metadata=metadata))
    made = _export("deepeval", cases, golden["kept"])
    if answers:
        made.notes.append(
            f"answers, called tools and costs of {counted(answers, 'golden')} are not imported"
        )
    _note_others(made, others, "unknown fields are not imported")
    return made


def _golden_value(key: str, value: Json) -> Json:
    """Return a value of a golden; CSV and JSONL files have the texts of a list joined by |."""
    if key in _FIELDS["deepeval"]["lists"] and isinstance(value, str):
        return [*value.split("|")]
    return value if key == TEXT else _text_or_json(value)


def _inspect(rows: Sequence[SourceRow]) -> Export:
    cases: dict[str, _Case] = {}
    setup = Counter[str]()
    for row in rows:
        fields = row.fields
        key = canonical_json(fields.get("id"))
        if fields.get("input") is None:
            raise Fault("missing", f"the sample {key[:50]} has no input", "is it a log of Inspect?")
        if fields.get("id") is not None and key in cases:
            continue
        value = fields["input"]
        inputs: Fields = {TEXT: value} if isinstance(value, str) else _input(value)
        if fields.get("choices"):
            inputs["choices"] = fields["choices"]
        target = fields.get("target")
        if isinstance(target, list) and len(target) == 1:
            (target,) = target
        cases[key if fields.get("id") is not None else str(len(cases))] = _Case(
            row.where,
            inputs,
            expected=target,
            metadata=_mapping(fields.get("metadata")),
            id=fields.get("id"),
        )
        setup.update(name for name in _FIELDS["inspect"]["setup"] if fields.get(name))
    made = _export("inspect", cases.values(), ("choices", *_CHAT))
    made.notes.append(
        f"{counted(len(rows), 'sample')} of {counted(len(cases), 'case')}; answers, "
        "scores and events are not imported"
    )
    _note_others(made, setup, "the surroundings of samples are not imported")
    return made


def _vally(rows: Sequence[SourceRow]) -> Export:
    cases, graders, others, conversations = [], Counter[str](), Counter[str](), 0
    for where, fields in rows:
        prompt = fields.get("prompt")
        if not isinstance(prompt, str):
            if not isinstance(fields.get("turns"), list):
                raise Fault("missing", "a stimulus has no prompt", "every stimulus needs one")
            conversations += 1
            continue
        listed = _dicts(fields.get("graders"))
        contains = [grader for grader in listed if grader.get("type") == "output-contains"]
        configs = [_mapping(grader.get("config")) for grader in contains]
        texts = [config.get("substring") for config in configs if not config.get("negate")]
        graders.update(str(grader.get("type"))[:50] for grader in listed)
        if len(texts) == 1:
            graders["output-contains"] -= 1
        others.update(fields.keys() - {*_FIELDS["vally"]["known"]})
        tags = [f"{key}:{value}" for key, value in _mapping(fields.get("tags")).items()]
        rubric = fields.get("rubric")
        cases.append(
            _Case(
                where,
                {"prompt": prompt},
                fields.get("name"),
                texts[0] if len(texts) == 1 else None,
                tags,
                {"rubric": rubric} if rubric else {},
            )
        )
    made = _export("vally", cases)
    _note_others(made, +graders, "graders are not imported", "; write them as checks")
    _note_others(made, others)
    if conversations:
        made.notes.append(
            f"{counted(conversations, 'case')} with several turns left out: a case has one input"
        )
    return made


def _langfuse(rows: Sequence[SourceRow]) -> Export:
    cases, archived, others = [], 0, Counter[str]()
    item = _FIELDS["langfuse"]
    for where, fields in rows:
        if fields.get("status") == "ARCHIVED":
            archived += 1
            continue
        metadata = _text_or_json(fields.get("metadata"))
        if not isinstance(metadata, dict):
            metadata = {} if metadata in (None, "") else {"metadata": metadata}
        metadata |= {key: fields[key] for key in item["kept"] if fields.get(key)}
        others.update(
            key
            for key, value in fields.items()
            if value not in (None, "") and key not in {*item["known"], *item["kept"]}
        )
        cases.append(
            _Case(
                where,
                _input(fields.get("input")),
                metadata=metadata,
                expected=_answer(fields.get("expectedOutput")),
                id=fields.get("id") or None,
            )
        )
    made = _export("langfuse", cases, _CHAT)
    if archived:
        made.notes.append(f"{counted(archived, 'archived item')} left out")
    _note_others(made, others)
    return made


_EXAMPLE = re.compile(r"(in|out)puts?(?:$|[._](.+))", re.DOTALL)


def _is_langsmith(keys: set[str]) -> bool:
    sides = {match[1] for key in keys if (match := _EXAMPLE.fullmatch(key))}
    plain = keys & {"inputs", "outputs"} or any("." in key or "_" in key for key in keys)
    others = {key for key in keys if not _EXAMPLE.fullmatch(key)}
    return sides == {"in", "out"} and bool(plain) and others <= {*_FIELDS["langsmith"]["others"]}


def _langsmith(rows: Sequence[SourceRow]) -> Export:
    cases, others = [], Counter[str]()
    example = _FIELDS["langsmith"]
    for where, fields in rows:
        sides: dict[str, Fields] = {"in": {}, "out": {}}
        for key, cell in fields.items():
            match, value = _EXAMPLE.fullmatch(key), _text_or_json(cell)
            if match is None or value in (None, ""):
                continue
            if match[2]:
                sides[match[1]][match[2]] = value
            else:
                sides[match[1]] |= value if isinstance(value, dict) else {f"{match[1]}put": value}
        outputs = sides["out"]
        expected = next(iter(outputs.values())) if len(outputs) == 1 else outputs or None
        named = (fields[key] for key in example["splits"] if fields.get(key))
        splits = _text_or_json(next(named, None))
        tags = [str(split) for split in splits] if isinstance(splits, list) else [str(splits or "")]
        others.update(
            key
            for key, value in fields.items()
            if value not in (None, "")
            and not _EXAMPLE.fullmatch(key)
            and key not in ("id", "metadata", *example["splits"])
        )
        cases.append(
            _Case(
                where,
                _input(sides["in"]),
                expected=_answer(expected),
                tags=[f"split:{tag}" for tag in tags if tag],
                metadata=_mapping(fields.get("metadata")),
                id=fields.get("id") or None,
            )
        )
    made = _export("langsmith", cases, _CHAT)
    _note_others(made, others)
    return made


class _Format(NamedTuple):
    title: str
    hint: str
    fits: Callable[[set[str]], bool]
    """Whether the keys of all objects are those of the format."""
    read: Callable[[Sequence[SourceRow]], Export]


def _has_keys(name: str) -> Callable[[set[str]], bool]:
    """Return what recognises a format by fields that all of its objects have; none without them."""
    required = {*_FIELDS[name].get("keys", ())}
    return lambda keys: bool(required) and required <= keys


_RECOGNISED: dict[str, Callable[[set[str]], bool]] = {
    "deepeval": lambda keys: bool(keys & {TEXT, "scenario"}) and _has_keys("deepeval")(keys),
    "langsmith": _is_langsmith,
}
_READERS = {
    "promptfoo": _promptfoo,
    "deepeval": _deepeval,
    "inspect": _inspect,
    "vally": _vally,
    "langfuse": _langfuse,
    "langsmith": _langsmith,
}
FORMATS = {
    name: _Format(
        _FIELDS[name]["title"],
        _FIELDS[name]["hint"],
        _RECOGNISED.get(name) or _has_keys(name),
        reader,
    )
    for name, reader in _READERS.items()
}
