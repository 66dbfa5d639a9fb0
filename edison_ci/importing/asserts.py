"""Assertions of a test as components of our grade."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.schemas_of_users import schema_faults
from edison_ci.documents.marks import Fault
from edison_ci.importing.drafts import GraderText, Part, Told, Wanted
from edison_ci.importing.fidelity import Status
from edison_ci.importing.grader_texts import HOLE, KINDS, NEEDS, grader_messages, has_hole
from edison_ci.importing.parts import (
    Given,
    check,
    combined,
    finished,
    hole,
    key_of,
    nearly,
    python_pattern,
    settings_of,
    wanted_list,
    wanted_of,
    with_threshold,
)
from edison_ci.importing.prompts import Refusal, messages_of, read_messages
from edison_ci.importing.source import CODE_NOTE, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from edison_ci.documents.marks import Json
    from edison_ci.importing.drafts import Message
    from edison_ci.importing.fidelity import Fidelity, Node
    from edison_ci.importing.providers import Providers
    from edison_ci.importing.source import Source


_NAMES = {
    "equals": "equals",
    "contains": "contains",
    "icontains": "icontains",
    "starts-with": "starts_with",
    "regex": "regex",
    "contains-any": "contains_any",
    "icontains-any": "contains_any",
    "contains-all": "contains_all",
    "icontains-all": "contains_all",
    "is-xml": "is_xml",
    "is-html": "is_html",
    "is-sql": "is_sql",
    "is-refusal": "refusal",
}


class _Measure(NamedTuple):
    name: str
    threshold: float
    """What passes there if nothing is said."""
    note: str


_MEASURES = {
    "similar": _Measure(
        "similar", 0.75, "compared with local embeddings (extra embeddings): scores differ"
    ),
    "rouge-n": _Measure("rouge_n", 0.75, "words are cut differently: scores differ a little"),
    "bleu": _Measure("bleu", 0.5, "computed by sacrebleu (extra metrics): scores differ a little"),
}


def _text(given: Given) -> Told:
    value = given.value()
    if isinstance(value, dict | list):
        if given.kind != "equals":
            raise Refusal("its value is not a text")
        wanted = Wanted(json.dumps(value, ensure_ascii=False))
        return check("json_path", {"path": "$", "value": hole()}, wanted)
    wanted, note = wanted_of(value), ""
    if given.kind == "regex" and wanted.template is None:
        pattern, note = python_pattern(str(wanted.value))
        wanted = Wanted(pattern)
    told = check(_NAMES[given.kind], {"value": hole()}, wanted)
    return nearly(told, note) if note else told


def _list(given: Given) -> Told:
    options: dict[str, Json] = {"value": hole()}
    if given.kind.startswith("i"):
        options["ignore_case"] = True
    return check(_NAMES[given.kind], options, wanted_list(given.value(), given.kind))


def _whole(given: Given) -> Told:
    told = check(_NAMES[given.kind], {})
    if not given.has("value"):
        return told
    return nearly(told, "its value (required elements, tables, dialect) is not checked")


def _is_json(given: Given) -> Told:
    if not given.has("value"):
        return check("is_json", {})
    schema = given.value()
    if isinstance(schema, str):  # a schema may be written as a text of JSON
        schema = _parsed(schema)
    if not isinstance(schema, dict):
        raise Refusal("its schema is not a map")
    for fault in schema_faults(schema, "the schema"):
        raise Refusal(fault.message)
    return check("json_schema", {"value": schema})


def _parsed(text: str) -> Json:
    try:
        value: Json = json.loads(text)
    except ValueError:
        return None
    return value


def _contains_json(given: Given) -> Told:
    if given.has("value"):
        note = "json_schema wants the whole answer, or one code fence, to be JSON"
        return nearly(_is_json(given), note)
    told = check("regex", {"value": r"\{[\s\S]*\}|\[[\s\S]*\]"})
    return nearly(told, "it looks for brackets, not for JSON that parses")


def _contains_markup(_: Given) -> Told:
    pattern = r"<([A-Za-z][A-Za-z0-9:-]*)[^<>]*>[\s\S]*</\1\s*>|<[A-Za-z][^<>]*/>"
    return nearly(
        check("regex", {"value": pattern}), "it looks for tags, not for markup that parses"
    )


def _limit(given: Given) -> Told:
    threshold = given.number()
    if threshold is None:
        raise Refusal("without a threshold it only measures; every run does that anyway")
    if given.kind == "latency":
        return check("latency", {"max_ms": min(max(1, math.floor(threshold)), 3_600_000)})
    return check("cost", {"max_usd": threshold})


def _words(given: Given) -> Told:
    value = given.value()
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return check("words", {"min": value, "max": value})
    limits = (
        {k: v for k, v in value.items() if k in ("min", "max")} if isinstance(value, dict) else {}
    )
    if not limits or not all(type(each) is int for each in limits.values()):
        raise Refusal("its value is neither a number nor {min, max}")
    return check("words", dict(limits))


def _finish_reason(given: Given) -> Told:
    value = given.value()
    if value not in ("stop", "length", "content_filter", "tool_calls"):
        raise Refusal("the reasons are stop, length, content_filter and tool_calls")
    return check("finish_reason", {"value": value})


def _measure(given: Given) -> Told:
    measure = _MEASURES[given.kind.partition(":")[0]]
    value = given.value()
    if isinstance(value, list):
        if len(value) != 1:
            raise Refusal("several references: write any_of with one check for each")
        value = value[0]
    told = check(measure.name, {"value": hole()}, wanted_of(value))
    return nearly(with_threshold(told, measure.threshold), measure.note)


def _levenshtein(given: Given) -> Told:
    """Return a distance in edits as a share of the characters of the reference."""
    wanted, most = wanted_of(given.value()), given.number()
    most = 5.0 if most is None else most
    length = max(len(str(wanted.value)), 1)
    share = max(0.0, round(1 - most / length, 2)) if wanted.template is None else 0.8
    told = with_threshold(check("levenshtein", {"value": hole()}, wanted), share)
    return nearly(told, f"at most {most:g} edits became {share:g} of the characters unchanged")


def _tools_f1(given: Given) -> Told:
    value = given.value()
    names = value if isinstance(value, list) else [v.strip() for v in str(value).split(",")]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise Refusal("its value is not a list of tools")
    tools: list[Json] = [{"tool": name} for name in names]
    return with_threshold(check("tool_call_f1", {"value": tools}), 1.0)


def _tools_valid(_: Given) -> Told:
    note = "that a tool was called is checked, not whether its arguments fit the schema"
    return nearly(check("finish_reason", {"value": "tool_calls"}), note)


CHECKS: dict[str, Callable[[Given], Told]] = {
    **dict.fromkeys(("equals", "contains", "icontains", "starts-with", "regex"), _text),
    **dict.fromkeys(("contains-any", "contains-all", "icontains-any", "icontains-all"), _list),
    **dict.fromkeys(("is-xml", "is-html", "is-sql", "is-refusal"), _whole),
    "is-json": _is_json,
    "contains-json": _contains_json,
    "contains-xml": _contains_markup,
    "contains-html": _contains_markup,
    "latency": _limit,
    "cost": _limit,
    "word-count": _words,
    "finish-reason": _finish_reason,
    **dict.fromkeys(
        ("similar", "similar:cosine", "similar:dot", "similar:euclidean", "rouge-n", "bleu"),
        _measure,
    ),
    "levenshtein": _levenshtein,
    "tool-call-f1": _tools_f1,
    **dict.fromkeys(
        (
            "is-valid-openai-tools-call",
            "is-valid-openai-function-call",
            "is-valid-function-call",
        ),
        _tools_valid,
    ),
}
"""How each type of assertion becomes a check."""

NONE_LIKE_IT = {
    "perplexity": "providers here return no token probabilities",
    "perplexity-score": "providers here return no token probabilities",
    "classifier": "there is no check by a classifier; a grader can ask a model",
    "contains-sql": "is_sql reads a whole answer, or one in a code fence, only",
    "webhook": "no check calls a service; command runs a program with settings.allow_code",
    "pi": "there is no scorer of Pi Labs; a grader can ask a model",
    "max-score": "outputs are not chosen from; edison recommend compares models",
    "meteor": "there is no METEOR; chrf or token_f1 are near to it",
    "gleu": "there is no GLEU; bleu or chrf are near to it",
    "guardrails": "what guardrails say is not kept; safety screens answers here",
    "conversation-relevance": "a case is one exchange here",
    "search-rubric": "graders have no search",
}
"""What to say of types that nothing here is like."""


_KNOWN = frozenset(
    {"type", "value", "threshold", "weight", "metric", "provider", "rubricPrompt", "config"}
)
_CODE = frozenset({"javascript", "python", "ruby"})
_TRANSFORMS = frozenset({"transform", "contextTransform"})
_OUTPUT = re.compile(r"\{\{-?\s*(?:output|completion)\s*-?\}\}")
_RUBRIC = re.compile(r"\{\{-?\s*(?:rubric|criteria|ideal)\s*(?:\|[^}]*)?-?\}\}")
_LONGEST = 10_000
_STAND_IN = "the_output_to_grade"


class Scope(NamedTuple):
    """What stands around an assertion."""

    variables: Collection[str]
    """Names of the case's variables."""
    provider: Node | None = None
    """Model that grades, from options."""
    rubric_prompt: Node | None = None


@dataclass(frozen=True, slots=True)
class Asserts:
    """Turns assertions into parts of the grade."""

    source: Source
    providers: Providers

    @property
    def _fidelity(self) -> Fidelity:
        return self.source.fidelity

    def read(self, node: Node, scope: Scope) -> list[Part]:
        """Return the parts of a list of assertions, and report each of them."""
        found = self.source.follow(node)
        if found is None:
            return []
        if isinstance(found.value, list):
            self._fidelity.seen(found)
            return [part for child in found.children() for part in self.read(child, scope)]
        kind = found.value.get("type") if isinstance(found.value, dict) else None
        if not isinstance(kind, str):
            self._fidelity.unsupported(found, "an assertion is a map with a type")
            return []
        if kind == "assert-set":
            return self._set(found, scope)
        told = self._one(Given(found, self.source), scope)
        note = told.note if told.part is not None else f"{kind}: {told.note}"
        self._fidelity.say(told.status, found, told.about, note)
        return [replace(told.part, node=found)] if told.part is not None else []

    def _one(self, given: Given, scope: Scope) -> Told:
        for child in given.node.children():
            if child.name in _TRANSFORMS:
                return Told(None, Status.UNSUPPORTED, f"{child.name}: {CODE_NOTE}")
            if child.name not in _KNOWN:
                self._fidelity.unsupported(child, "no such option of an assertion is known")
        try:
            return finished(self._of_kind(given, scope), given)
        except Refusal as refusal:
            return Told(None, Status.UNSUPPORTED, refusal.note)
        except Refused as refused:
            return Told(None, Status.UNSUPPORTED, str(refused))
        except Fault as fault:
            return Told(None, Status.UNSUPPORTED, f"{fault.message} ({fault.hint})")

    def _of_kind(self, given: Given, scope: Scope) -> Told:
        kind = given.kind
        if kind in _CODE:
            return Told(None, Status.UNSUPPORTED, CODE_NOTE)
        if kind in CHECKS:
            if (provider := given.node.get("provider")) is not None:
                self._fidelity.unsupported(provider, "no model takes part in this check")
            if (config := given.node.get("config")) is not None:
                self._fidelity.unsupported(config, "this check has no such options")
            return CHECKS[kind](given)
        if kind in KINDS:
            return self._grader(given, scope)
        if kind == "moderation":
            note = "any hit blocks the answer; the judge of the project screens for all categories"
            part = Part("screen", key_of("moderation"))
            return Told(part, Status.APPROXIMATED, note, "@experiments safety.moderation")
        if kind == "select-best":
            note = "each model is compared with the first, pair by pair; the criterion is not used"
            part = Part("pairwise", key_of("pairwise"))
            return Told(part, Status.APPROXIMATED, note, "@experiments judges.pairwise")
        why = NONE_LIKE_IT.get(kind, f"no check does what {kind} does")
        return Told(None, Status.UNSUPPORTED, why)

    # --- by a model -------------------------------------------------------------------------------

    def _grader(self, given: Given, scope: Scope) -> Told:
        kind = given.kind
        lacking = [name for name in NEEDS.get(kind, ()) if name not in scope.variables]
        if lacking:
            raise Refusal(f"its grader needs a variable {lacking[0]!r}; the test has none")
        messages = grader_messages(kind, negate=given.negated)
        own = None
        if has_hole(messages) and not given.negated:
            own = self._own_words(given, scope)
        messages = own or messages
        arguments: tuple[Wanted, ...] = ()
        if has_hole(messages):
            value = given.value()
            if isinstance(value, list):
                value = "\n".join(f"- {each}" for each in value)
            arguments = (wanted_of(value),)
            if len(str(arguments[0].value)) > _LONGEST:
                raise Refusal(f"its value is longer than {_LONGEST:,} characters")
        by = self._judge(given, scope)
        grader = GraderText(f"not-{kind}" if given.negated else kind, messages, by)
        settings: tuple[tuple[str, Json], ...] = (("threshold", 0.7 if kind == "g-eval" else 0.5),)
        key = key_of([grader.kind, by, [list(message) for message in messages]])
        part = Part("grader", key, None, arguments, grader, settings, kind == "factuality")
        note = "its own words; the reply must be a score" if own else "a grader in our own words"
        return Told(part, Status.APPROXIMATED, note, f"@experiments judges.graders {grader.kind}")

    def _own_words(self, given: Given, scope: Scope) -> tuple[Message, ...] | None:
        """Return the grader prompt that the configuration brings along."""
        node = given.node.get("rubricPrompt") or scope.rubric_prompt
        if node is None:
            return None
        value = node.value
        try:
            if isinstance(value, str) and value.startswith("file://"):
                value = self.source.text(self.source.path(value))
            if isinstance(value, str):
                text = _OUTPUT.sub(f"{{{{ {_STAND_IN} }}}}", value)
                messages = read_messages(text, structured=value.lstrip().startswith("- role"))
            else:
                messages = messages_of(value, keep=frozenset({"output"}))
        except (Refusal, Refused, Fault) as error:
            self._fidelity.unsupported(node, f"{error}; our own words are used")
            return None
        self._fidelity.approximated(node, "prompts", "its reply must be a score, or yes or no")
        return tuple(
            message._replace(text=_RUBRIC.sub(HOLE, message.text).replace(_STAND_IN, "output"))
            for message in messages
        )

    def _judge(self, given: Given, scope: Scope) -> str | None:
        node = given.node.get("provider") or scope.provider
        if node is None:
            return None
        inner = node.get("text")
        if inner is not None and isinstance(node.value, dict) and "id" not in node.value:
            self._fidelity.seen(node)
            node = inner
        found = self.source.follow(node)
        model = self.providers.one(found) if found is not None else None
        return model.name if model is not None else None

    # --- sets -------------------------------------------------------------------------------------

    def _set(self, node: Node, scope: Scope) -> list[Part]:
        self._fidelity.seen(node)
        kind, inner, given = node.get("type"), node.get("assert"), Given(node, self.source)
        assert kind is not None
        parts = self.read(inner, scope) if inner is not None else []
        checks = [part for part in parts if part.kind == "check"]
        others = [part for part in parts if part.kind != "check"]
        for name in ("threshold", "weight", "metric"):
            self._fidelity.seen(node.get(name))
        if not checks:
            note = "its members stand on their own" if others else "nothing of it is left"
            self._fidelity.approximated(kind, "@experiments judges.graders" if others else "", note)
            return others
        try:
            settings, threshold = settings_of(given), given.number()
        except Refusal as refusal:
            self._fidelity.unsupported(kind, refusal.note)
            return parts
        settings.pop("threshold", None)
        entry, exact = combined(checks, threshold)
        note = "its score is that of the worst or best member, not their mean"
        if not exact:
            note = f"that {threshold:g} of it pass cannot be said; every member must pass"
        if others:
            note += "; members that a model grades stand on their own"
        self._fidelity.approximated(kind, f"@experiments checks {next(iter(entry))}", note)
        arguments = tuple(wanted for part in checks for wanted in part.arguments)
        ordered = tuple(sorted(settings.items()))
        key = key_of(["set", entry, ordered])
        return [Part("check", key, entry, arguments, settings=ordered), *others]
