"""Cases as a model writes them: the form of the reply, and what makes a row unusable.

A reply is read row by row. A row that does not fit the inputs of the prompts, that cannot be
rendered, holds a secret or has another length or language than ordered is left out with a reason;
the others are kept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.checks import language
from edison_ci.config import case_facts
from edison_ci.config import prompt as config_prompt
from edison_ci.documents import json_text, marks, secrets
from edison_ci.features.assist import drafting
from edison_ci.judges import replies
from edison_ci.records import Case, CaseId, canonical_json
from edison_ci.templating import templates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Experiment
    from edison_ci.config.prompt import Prompt
    from edison_ci.features.assist.case_slots import CaseSlot
    from edison_ci.features.assist.drafting import DraftTask
    from edison_ci.records import Json

_PLAIN = {"string": "string", "number": "number", "boolean": "boolean"}
"""Types that a schema of every vendor has; lists and objects come as JSON in a text."""
_MOST_TEXT = 20_000
_MOST_TAGS = 3
_MOST_ROWS = 1_000
_TAG = re.compile(r"[^a-z0-9]+")
_LONGEST_TAG = 30
_MOST_WHY = 300


class Unusable(Exception):
    """Why a row is left out."""


class WrittenRow(NamedTuple):
    """A row of a reply, not yet checked."""

    slot: int
    item: dict[str, Json]


class WrittenCase(NamedTuple):
    """A row that fits."""

    inputs: dict[str, Json]
    expected: Json
    tags: tuple[str, ...]
    why: str = ""


def _read(items: Sequence[Json]) -> tuple[WrittenRow, ...]:
    rows = [
        WrittenRow(slot, item)
        for item in items[:_MOST_ROWS]
        if isinstance(item, dict) and isinstance(slot := item.get("slot"), int)
    ]
    if not rows:
        raise drafting.DoesNotFit("no case names its slot")
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class CaseForm:
    """What a case of an experiment looks like."""

    prompts: tuple[Prompt, ...]
    types: Mapping[str, str]
    """The type of each input that a model writes."""
    fixed: Mapping[str, Json]
    """Inputs that all cases share."""
    expected: str
    """`text`, `json`, or `none` where nothing is expected."""
    languages: frozenset[str] = frozenset()
    lengths: frozenset[str] = frozenset()

    def task(self, name: str, *, why: bool = False) -> DraftTask[tuple[WrittenRow, ...]]:
        """Return the task to write such cases; `why` asks for a reason with each."""
        text: Json = {"type": "string"}
        inputs: dict[str, Json] = {
            name: {"type": _PLAIN.get(kind, "string")} for name, kind in self.types.items()
        }
        keys: dict[str, Json] = {
            "slot": {"type": "integer"},
            "input": replies.object_schema(**inputs),
        }
        if self.expected != "none":
            keys["expected"] = {"type": ["string", "null"]}
        keys["tags"] = {"type": "array", "items": text}
        if why:
            keys["why"] = text
        return drafting.list_task(name, "cases", keys, _read)

    def described(self) -> str:
        """Describe the inputs and the expected answer to a model."""
        lines = []
        for name, kind in self.types.items():
            form = kind if kind in _PLAIN else f"{kind}, as JSON in a text"
            lines.append(f"- input {name}: {form}")
        if self.expected == "json":
            lines.append("- expected: JSON in a text, in the form of the examples; or null")
        elif self.expected == "text":
            lines.append("- expected: what a right answer is or contains; or null if open")
        return "\n".join(lines)

    def read(self, slot: CaseSlot, item: Mapping[str, Json]) -> WrittenCase:
        """Return the case of a row; raises Unusable."""
        values = item.get("input")
        if not isinstance(values, dict):
            raise Unusable("without inputs")
        if more := sorted(values.keys() - self.types.keys() - self.fixed.keys()):
            raise Unusable(f"with the unknown input {more[0][:40]!r}")
        inputs = {name: _value(name, values.get(name), kind) for name, kind in self.types.items()}
        inputs |= self.fixed
        expected = self._expected(item.get("expected"))
        case = Case(CaseId("draft"), inputs, expected)
        why = item.get("why")
        self._check(case, slot, why)
        tags = (slot.tag, _slug(slot.topic), "edge" if slot.edge else "", *_tags(item))
        return WrittenCase(
            inputs,
            expected,
            tuple(dict.fromkeys(tag for tag in tags if tag)),
            " ".join(why.split())[:_MOST_WHY] if isinstance(why, str) else "",
        )

    def _expected(self, answer: Json) -> Json:
        if self.expected == "none" or answer is None:
            return None
        if not isinstance(answer, str) or len(answer) > _MOST_TEXT:
            raise Unusable("with an expected answer that is no text, or too long")
        if not answer.strip():  # which every answer contains
            return None
        if self.expected == "text":
            return _clean("expected", answer)
        try:
            return json_text.parse_json(answer)
        except marks.Fault:
            raise Unusable("with an expected answer that is not JSON") from None

    def _check(self, case: Case, slot: CaseSlot, why: Json) -> None:
        if any(secrets.secrets_in(canonical_json([case.inputs, case.expected, why]))):
            raise Unusable("with a secret")
        for prompt in self.prompts:
            try:
                prompt.render(case.variables)
            except (templates.MissingValueError, templates.RenderError) as error:
                raise Unusable(f"that {prompt.id} cannot use: {error}") from None
        if (
            slot.length
            and slot.bound
            and (size := case_facts.length_of(case_facts.words_in(case))) not in self.lengths
        ):
            raise Unusable(f"of length {size}, which was not ordered")
        if slot.language and slot.bound:
            texts = (case.inputs[name] for name in self.types)
            spoken = {language.language_of(text) for text in texts if isinstance(text, str)} - {
                None
            }
            if spoken and not spoken & self.languages:
                names = ", ".join(sorted(map(str, spoken)))
                raise Unusable(f"in the language {names}, which was not ordered")


def form_of(
    experiment: Experiment,
    cases: Sequence[Case],
    fixed: Mapping[str, Json],
    *,
    languages: Sequence[str] = (),
    lengths: Sequence[str] = (),
) -> CaseForm:
    """Return the form of the cases of an experiment, by its prompts and its first cases.

    An input that has one and the same value in all of at least three cases keeps it.
    """
    names = {name for prompt in experiment.prompts for name in (prompt.required | {*prompt.inputs})}
    names |= {name for case in cases for name in case.inputs}
    declared = experiment.types()
    shared = dict(fixed)
    for name in sorted(names - fixed.keys()):
        values = [case.inputs.get(name) for case in cases]
        if len(values) >= 3 and all(value == values[0] for value in values) and len(names) > 1:
            shared[name] = values[0]
    types = {name: declared.get(name) or _seen(name, cases) for name in sorted(names - {*shared})}
    expected = [case.expected for case in cases if case.expected is not None]
    form = "json" if any(not isinstance(value, str) for value in expected) else "text"
    return CaseForm(
        experiment.prompts,
        types,
        {name: value for name, value in shared.items() if value is not None},
        "none" if cases and not expected else form,
        frozenset(languages),
        frozenset(lengths),
    )


def _seen(name: str, cases: Sequence[Case]) -> str:
    """Return the type of an input that no prompt declares, as the cases have it."""
    value = next((case.inputs[name] for case in cases if name in case.inputs), "")
    kinds = ("boolean", "number", "list", "object")
    return next((kind for kind in kinds if config_prompt.fits(value, kind)), "string")


def _value(name: str, value: Json, kind: str) -> Json:
    if value is None:
        raise Unusable(f"without the input {name!r}")
    if kind not in _PLAIN and isinstance(value, str):
        try:
            value = json_text.parse_json(value)
        except marks.Fault:
            raise Unusable(f"whose input {name!r} is not JSON") from None
    if not config_prompt.fits(value, kind):
        raise Unusable(f"whose input {name!r} is not a {kind}")
    if len(canonical_json(value)) > _MOST_TEXT:
        raise Unusable(f"whose input {name!r} is too long")
    return _clean(name, value) if isinstance(value, str) else value


def _clean(name: str, text: str) -> str:
    if "\x00" in text or (not text.isprintable() and any(0xD800 <= ord(c) < 0xE000 for c in text)):
        raise Unusable(f"whose {name!r} has characters that no file can hold")
    return text


def _tags(item: Mapping[str, Json]) -> list[str]:
    tags = item.get("tags")
    texts = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    return [slug for slug in map(_slug, texts[:_MOST_TAGS]) if slug]


def _slug(text: str) -> str:
    return _TAG.sub("-", text.lower()).strip("-")[:_LONGEST_TAG].strip("-")
