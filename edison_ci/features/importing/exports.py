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
    found = [*cases]
    names = Counter(str(case.name) for case in found)
    made = Export(name, kept=frozenset(kept))
    for case in found:
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


# --- recognition ----------------------------------------------------------------------------------


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
    for name, each in FORMATS.items():
        if each.fits(keys):
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
    found = traces.conversation(traces.messages_of(value, "user"))
    if found is None:
        raise Fault("missing", "the messages have none of a user", "every case needs an input")
    inputs: Fields = {TEXT: found.message}
    if found.system:
        inputs["system"] = found.system
    if found.history:
        inputs["history"] = [{"role": each.role, "content": each.text} for each in found.history]
    return inputs


def _answer(value: Json) -> Json:
    """Return an expected output; that of a chat is the text of its last message."""
    value = _text_or_json(value)
    last = value[-1] if isinstance(value, list) and _is_chat(value) else value
    if _is_chat([last]) and (found := traces.messages_of(last, "assistant", marks=False)):
        return found[0].text
    return value


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({number:,})" for name, number in counts.items())


# --- promptfoo ------------------------------------------------------------------------------------

_EXPECTED = (
    "equals",
    "similar",
    "factuality",
    "contains",
    "icontains",
    "starts-with",
    "levenshtein",
    "rouge-n",
    "bleu",
    "gleu",
    "meteor",
)
"""Assertions whose value is what the answer should be or have; the first one counts."""


def _promptfoo(rows: Sequence[SourceRow]) -> Export:
    """Return each test once, whatever number of providers, prompts and repeats it had."""
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
    if rest:
        made.notes.append(
            f"assertions that are no expected output: {_listed(rest)}; "
            "edison import promptfoo makes checks of them"
        )
    return made


def _expected(asserts: Json) -> tuple[Json, list[str]]:
    """Return the value of the assertion that says most, and the types of the others."""
    given = (
        [each for each in asserts if isinstance(each, dict)] if isinstance(asserts, list) else []
    )
    ranked = [
        each
        for kind in _EXPECTED
        for each in given
        if each.get("type") == kind and each.get("value") not in (None, "")
    ]
    chosen = ranked[0] if ranked else None
    others = [str(each.get("type"))[:50] for each in given if each is not chosen]
    return (chosen["value"] if chosen else None), others


# --- DeepEval -------------------------------------------------------------------------------------

_GOLDEN_LISTS = ("context", "retrieval_context")
_GOLDEN_KEPT = (
    *_GOLDEN_LISTS,
    "expected_tools",
    "expectations",
    "comments",
    "source_file",
    "user_description",
    "persona",
    "turns",
)
_GOLDEN_RUN = (
    "actual_output",
    "tools_called",
    "token_cost",
    "input_token_count",
    "output_token_count",
)
_GOLDEN = frozenset({"additional_metadata", "custom_column_key_values"})


def _deepeval(rows: Sequence[SourceRow]) -> Export:
    answers, others, cases = 0, Counter[str](), []
    for where, fields in rows:
        given = {key: value for key, value in fields.items() if value not in (None, "")}
        answers += any(key in given for key in _GOLDEN_RUN)
        metadata = _mapping(given.pop("additional_metadata", None))
        metadata |= _mapping(given.pop("custom_column_key_values", None))
        inputs: Fields = {
            key: _golden_value(key, given[key])
            for key in (TEXT, "scenario", *_GOLDEN_KEPT)
            if key in given
        }
        others.update(
            given.keys() - {*inputs, *_GOLDEN_RUN, "expected_output", "expected_outcome", "name"}
        )
        expected = given.get("expected_output", given.get("expected_outcome"))
        cases.append(_Case(where, inputs, given.get("name"), expected, metadata=metadata))
    made = _export("deepeval", cases, _GOLDEN_KEPT)
    if answers:
        made.notes.append(
            f"answers, called tools and costs of {counted(answers, 'golden')} are not imported"
        )
    if others:
        made.notes.append(f"unknown fields are not imported: {_listed(others)}")
    return made


def _golden_value(key: str, value: Json) -> Json:
    """Return a value of a golden; CSV and JSONL files have the texts of a list joined by |."""
    if key in _GOLDEN_LISTS and isinstance(value, str):
        return [*value.split("|")]
    return value if key == TEXT else _text_or_json(value)


# --- Inspect --------------------------------------------------------------------------------------

_SAMPLE_SETUP = ("sandbox", "files", "setup")


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
        setup.update(each for each in _SAMPLE_SETUP if fields.get(each))
    made = _export("inspect", cases.values(), ("choices", *_CHAT))
    made.notes.append(
        f"{counted(len(rows), 'sample')} of {counted(len(cases), 'case')}; answers, "
        "scores and events are not imported"
    )
    if setup:
        made.notes.append(f"the surroundings of samples are not imported: {_listed(setup)}")
    return made


# --- Vally ----------------------------------------------------------------------------------------

_STIMULUS = frozenset({"name", "prompt", "turns", "tags", "graders", "rubric"})


def _vally(rows: Sequence[SourceRow]) -> Export:
    cases, graders, others, conversations = [], Counter[str](), Counter[str](), 0
    for where, fields in rows:
        prompt = fields.get("prompt")
        if not isinstance(prompt, str):
            if not isinstance(fields.get("turns"), list):
                raise Fault("missing", "a stimulus has no prompt", "every stimulus needs one")
            conversations += 1
            continue
        given = fields.get("graders")
        listed = (
            [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
        )
        named = [
            _mapping(each.get("config")) for each in listed if each.get("type") == "output-contains"
        ]
        texts = [each.get("substring") for each in named if not each.get("negate")]
        graders.update(str(each.get("type"))[:50] for each in listed)
        if len(texts) == 1:
            graders["output-contains"] -= 1
        others.update(fields.keys() - _STIMULUS)
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
    if graders := +graders:
        made.notes.append(f"graders are not imported: {_listed(graders)}; write them as checks")
    if others:
        made.notes.append(f"fields that are not imported: {_listed(others)}")
    if conversations:
        made.notes.append(
            f"{counted(conversations, 'case')} with several turns left out: a case has one input"
        )
    return made


# --- Langfuse and LangSmith -----------------------------------------------------------------------

_ITEM_KEPT = ("sourceTraceId", "sourceObservationId")


def _langfuse(rows: Sequence[SourceRow]) -> Export:
    cases, archived, others = [], 0, Counter[str]()
    for where, fields in rows:
        if fields.get("status") == "ARCHIVED":
            archived += 1
            continue
        metadata = _text_or_json(fields.get("metadata"))
        if not isinstance(metadata, dict):
            metadata = {} if metadata in (None, "") else {"metadata": metadata}
        metadata |= {key: fields[key] for key in _ITEM_KEPT if fields.get(key)}
        others.update(
            key
            for key, value in fields.items()
            if value not in (None, "")
            and key not in {"id", "input", "expectedOutput", "metadata", *_ITEM_KEPT}
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
    if others:
        made.notes.append(f"fields that are not imported: {_listed(others)}")
    return made


_EXAMPLE = re.compile(r"(in|out)puts?(?:$|[._](.+))", re.DOTALL)
_EXAMPLE_OTHER = frozenset(
    {
        "id",
        "metadata",
        "split",
        "splits",
        "dataset_split",
        "created_at",
        "modified_at",
        "source_run_id",
        "dataset_id",
        "dataset_name",
        "name",
        "attachments",
        "attachment_urls",
    }
)


def _is_langsmith(keys: set[str]) -> bool:
    found = {match[1] for key in keys if (match := _EXAMPLE.fullmatch(key))}
    plain = keys & {"inputs", "outputs"} or any("." in key or "_" in key for key in keys)
    known = all(_EXAMPLE.fullmatch(key) or key in _EXAMPLE_OTHER for key in keys)
    return found == {"in", "out"} and bool(plain) and known


def _langsmith(rows: Sequence[SourceRow]) -> Export:
    cases, others = [], Counter[str]()
    for where, fields in rows:
        found: dict[str, Fields] = {"in": {}, "out": {}}
        for key, value in fields.items():
            match, told = _EXAMPLE.fullmatch(key), _text_or_json(value)
            if match is None or told in (None, ""):
                continue
            if match[2]:
                found[match[1]][match[2]] = told
            else:
                found[match[1]] |= told if isinstance(told, dict) else {f"{match[1]}put": told}
        outputs = found["out"]
        expected = next(iter(outputs.values())) if len(outputs) == 1 else outputs or None
        splits = _text_or_json(
            next(
                (fields[key] for key in ("splits", "split", "dataset_split") if fields.get(key)),
                None,
            )
        )
        tags = [str(each) for each in splits] if isinstance(splits, list) else [str(splits or "")]
        others.update(
            key
            for key, value in fields.items()
            if value not in (None, "")
            and not _EXAMPLE.fullmatch(key)
            and key not in ("id", "metadata", "splits", "split", "dataset_split")
        )
        cases.append(
            _Case(
                where,
                _input(found["in"]),
                expected=_answer(expected),
                tags=[f"split:{tag}" for tag in tags if tag],
                metadata=_mapping(fields.get("metadata")),
                id=fields.get("id") or None,
            )
        )
    made = _export("langsmith", cases, _CHAT)
    if others:
        made.notes.append(f"fields that are not imported: {_listed(others)}")
    return made


class _Format(NamedTuple):
    title: str
    fits: Callable[[set[str]], bool]
    """Whether the keys of all objects are those of the format."""
    read: Callable[[Sequence[SourceRow]], Export]
    hint: str


FORMATS: dict[str, _Format] = {
    "promptfoo": _Format(
        "promptfoo",
        lambda keys: {"testCase", "vars", "promptIdx"} <= keys,
        _promptfoo,
        "write them with promptfoo eval -o results.json",
    ),
    "deepeval": _Format(
        "DeepEval",
        lambda keys: bool(keys & {TEXT, "scenario"}) and keys >= _GOLDEN,
        _deepeval,
        "write them with EvaluationDataset.save_as",
    ),
    "inspect": _Format(
        "Inspect",
        lambda keys: False,
        _inspect,
        "a log has its samples unless log_samples is false",
    ),
    "vally": _Format("Vally", lambda keys: False, _vally, "list them under stimuli"),
    "langfuse": _Format(
        "Langfuse",
        lambda keys: {TEXT, "expectedOutput"} <= keys,
        _langfuse,
        "export the items of a dataset",
    ),
    "langsmith": _Format(
        "LangSmith", _is_langsmith, _langsmith, "export the examples of a dataset"
    ),
}
