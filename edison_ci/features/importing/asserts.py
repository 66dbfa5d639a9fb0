"""Assertions of promptfoo tests as checks, graders and other components of a grade."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.user_schemas import schema_faults
from edison_ci.documents.marks import Fault
from edison_ci.features.importing.conditions import HOLE_KEY, Part, shift_holes
from edison_ci.features.importing.drafts import (
    Argument,
    ConversionResult,
    GradeComponent,
    GraderText,
    model_name,
)
from edison_ci.features.importing.fidelity import Status
from edison_ci.features.importing.javascript import javascript_condition, transformed_text
from edison_ci.features.importing.patterns import javascript_pattern
from edison_ci.features.importing.prompts import (
    HOLE,
    KINDS,
    NEEDS,
    ConversionError,
    chat_messages,
    grader_messages,
    has_hole,
    read_messages,
)
from edison_ci.features.importing.python_code import python_condition
from edison_ci.features.importing.source import CODE_NOTE, UnusableReference
from edison_ci.features.importing.templates import convert
from edison_ci.records import canonical_json
from edison_ci.templating.templates import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from edison_ci.documents.marks import Json
    from edison_ci.features.importing.drafts import Message
    from edison_ci.features.importing.fidelity import Fidelity, Node
    from edison_ci.features.importing.providers import Providers
    from edison_ci.features.importing.source import Source

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
    """The default threshold in promptfoo."""
    note: str


_MEASURES = {
    "similar": _Measure(
        "similar", 0.75, "compared with local embeddings (extra embeddings): scores differ"
    ),
    "rouge-n": _Measure("rouge_n", 0.75, "words are split differently: scores differ a little"),
    "bleu": _Measure("bleu", 0.5, "computed by sacrebleu (extra metrics): scores differ a little"),
}


def _text(given: AssertionNode) -> ConversionResult:
    value = given.value()
    if isinstance(value, dict | list):
        if given.kind != "equals":
            raise ConversionError("its value is not a string")
        wanted = Argument(json.dumps(value, ensure_ascii=False))
        return check_component("json_path", {"path": "$", "value": hole(), "exact": True}, wanted)
    wanted, note = text_argument(value), ""
    options: dict[str, Json] = {"value": hole()}
    if given.kind in ("equals", "starts-with"):
        options["exact"] = True
    if given.kind == "regex" and wanted.template is None:
        pattern, note = javascript_pattern(str(wanted.value))
        wanted = Argument(pattern)
    elif given.kind == "regex":
        note = "the pattern may mean something else in Python than in JavaScript"
    result = check_component(_NAMES[given.kind], options, wanted)
    return approximate(result, note) if note else result


def _list(given: AssertionNode) -> ConversionResult:
    options: dict[str, Json] = {"value": hole()}
    if given.kind.startswith("i"):
        options["ignore_case"] = True
    return check_component(_NAMES[given.kind], options, list_argument(given.value(), given.kind))


_WHOLE_NOTES = {
    "is-html": "read by other rules",
    "is-refusal": "found by other words",
    "is-xml": "",
}


def _whole(given: AssertionNode) -> ConversionResult:
    options: dict[str, Json] = {} if given.kind == "is-refusal" else {"exact": True}
    result = check_component(_NAMES[given.kind], options)
    if given.kind == "is-sql":
        return approximate(result, _sql_note(given.value() if given.has("value") else None))
    note = _WHOLE_NOTES[given.kind]
    if given.has("value"):
        note = "its value (required elements) is not checked"
    return approximate(result, note) if note else result


_SQL_AGREEMENT = {"Sqlite": 95, "TransactSQL": 94}
"""Percent of 311 generated statements on which both have the same verdict; docs/importing.md."""


def _sql_note(value: Json) -> str:
    """Say how the verdict differs: another parser, and one dialect."""
    options = value if isinstance(value, dict) else {}
    dialect = str(options.get("databaseType") or "MySQL")[:30]
    note = (
        f"parsed by SQLite, not by node-sql-parser for {dialect}: the verdict is the same on about "
        f"{_SQL_AGREEMENT.get(dialect, 93)}% of statements; syntax of other databases and several "
        "statements fail"
    )
    lists = [key for key in ("allowedTables", "allowedColumns") if options.get(key)]
    return f"{note}; {' and '.join(lists)} are not checked" if lists else note


_DRAFT_7 = "http://json-schema.org/draft-07/schema#"
"""The draft by which promptfoo reads a schema that names none."""


def _is_json(given: AssertionNode, option: str = "exact") -> ConversionResult:
    if not given.has("value"):
        return check_component("is_json", {option: True})
    schema = given.value()
    if isinstance(schema, str):  # a schema may be written as a text of JSON
        schema = _parse_json(schema)
    if not isinstance(schema, dict):
        raise ConversionError("its schema is not a map")
    schema = {"$schema": _DRAFT_7, **schema}
    for fault in schema_faults(schema, "the schema"):
        raise ConversionError(fault.message)
    return check_component("json_schema", {"value": schema, option: True})


def _parse_json(text: str) -> Json:
    try:
        value: Json = json.loads(text)
    except ValueError:
        return None
    return value


def _contains_json(given: AssertionNode) -> ConversionResult:
    note = "promptfoo also takes what is nearly JSON, such as keys without quotes"
    return approximate(_is_json(given, "anywhere"), note)


def _contains_markup(_: AssertionNode) -> ConversionResult:
    pattern = r"<([A-Za-z][A-Za-z0-9:-]*)[^<>]*>[\s\S]*</\1\s*>|<[A-Za-z][^<>]*/>"
    return approximate(
        check_component("regex", {"value": pattern}),
        "it matches tags, not only valid markup",
    )


def _limit(given: AssertionNode) -> ConversionResult:
    threshold = given.number()
    if threshold is None:
        raise ConversionError("without a threshold it only measures, which every run does")
    if given.kind == "latency":
        return check_component("latency", {"max_ms": min(max(1, math.floor(threshold)), 3_600_000)})
    return check_component("cost", {"max_usd": threshold})


def _words(given: AssertionNode) -> ConversionResult:
    value = given.value()
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return check_component("words", {"min": value, "max": value})
    limits = (
        {k: v for k, v in value.items() if k in ("min", "max")} if isinstance(value, dict) else {}
    )
    if not limits or not all(type(each) is int for each in limits.values()):
        raise ConversionError("its value is neither a number nor {min, max}")
    return check_component("words", dict(limits))


def _finish_reason(given: AssertionNode) -> ConversionResult:
    value = given.value()
    if value not in ("stop", "length", "content_filter", "tool_calls"):
        raise ConversionError("allowed: stop, length, content_filter, tool_calls")
    return check_component("finish_reason", {"value": value})


def _measure(given: AssertionNode) -> ConversionResult:
    measure = _MEASURES[given.kind.partition(":")[0]]
    value = given.value()
    if isinstance(value, list):
        if len(value) != 1:
            raise ConversionError("it has several references: write any_of with one check for each")
        value = value[0]
    result = check_component(measure.name, {"value": hole()}, text_argument(value))
    return approximate(with_threshold(result, measure.threshold), measure.note)


def _levenshtein(given: AssertionNode) -> ConversionResult:
    most = given.number()
    edits = 5 if most is None else math.floor(most)
    if edits < 0:
        raise ConversionError("no answer has fewer than 0 edits")
    options: dict[str, Json] = {"value": hole(), "max_edits": edits, "exact": True}
    return check_component("levenshtein", options, text_argument(given.value()))


_CONDITIONS = {"javascript": javascript_condition, "python": python_condition}


def _code(given: AssertionNode) -> ConversionResult:
    """Return the checks of a simple expression; raises ConversionError for other code."""
    child = given.node.get("value")
    code = child.value if child is not None else None
    if not isinstance(code, str) or code.startswith("file://"):
        raise ConversionError(CODE_NOTE)
    condition = _CONDITIONS[given.kind](code)
    if isinstance(condition, bool):
        always: dict[str, Json] = {"chars": {"min": 0}}
        entry = always if condition else {"not": {"value": always}}
        said = "true" if condition else "false"
        return approximate(_as_result(Part(entry)), f"it is {said} of every answer of text")
    if given.negated and given.kind == "javascript" and "&&" in code:
        raise ConversionError("what it returns for an empty answer is not known")
    return _as_result(condition)


def _as_result(part: Part) -> ConversionResult:
    (name,) = part.entry
    component = GradeComponent("check", "", part.entry, part.arguments)
    result = ConversionResult(component, Status.MAPPED, "", f"@experiments checks {name}")
    return approximate(result, "; ".join(sorted(part.notes))) if part.notes else result


def _tools_f1(given: AssertionNode) -> ConversionResult:
    value = given.value()
    names = value if isinstance(value, list) else [v.strip() for v in str(value).split(",")]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConversionError("its value is not a list of tools")
    tools: list[Json] = [{"tool": name} for name in names]
    return with_threshold(check_component("tool_call_f1", {"value": tools}), 1.0)


def _tools_valid(_: AssertionNode) -> ConversionResult:
    note = "it checks that a tool was called, not that the arguments fit the schema"
    return approximate(check_component("finish_reason", {"value": "tool_calls"}), note)


CHECKS: dict[str, Callable[[AssertionNode], ConversionResult]] = {
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
    "javascript": _code,
    "python": _code,
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
"""Converters of the types of assertions that become checks."""

UNSUPPORTED_TYPES = {
    "perplexity": "providers return no token probabilities",
    "perplexity-score": "providers return no token probabilities",
    "classifier": "there is no classifier check; use a grader",
    "contains-sql": "is_sql parses the whole answer, or one code fence",
    "webhook": "no check calls a service; `command` runs a program with settings.allow_code",
    "pi": "the scorer of Pi Labs is not supported; use a grader",
    "max-score": "no output is selected; `edison leaderboard --recommend` compares models",
    "meteor": "METEOR is not supported; chrf and token_f1 are similar",
    "gleu": "GLEU is not supported; bleu and chrf are similar",
    "guardrails": "results of guardrails are not stored; use `safety` to screen answers",
    "conversation-relevance": "a case is a single exchange",
    "search-rubric": "graders have no search",
}
"""Types of assertions without a counterpart, and why."""


_KNOWN = frozenset(
    {
        "type",
        "value",
        "threshold",
        "weight",
        "metric",
        "provider",
        "rubricPrompt",
        "config",
        "transform",
    }
)
_REMARKS = frozenset({"reason", "description"})
_OUTPUT = re.compile(r"\{\{-?\s*(?:output|completion)\s*-?\}\}")
_RUBRIC = re.compile(r"\{\{-?\s*(?:rubric|criteria|ideal)\s*(?:\|[^}]*)?-?\}\}")
_LONGEST = 10_000
_STAND_IN = "the_output_to_grade"


class Scope(NamedTuple):
    """The test around an assertion."""

    variables: Collection[str]
    """Names of the variables of the case."""
    provider: Node | None = None
    """The grading model, from the options."""
    rubric_prompt: Node | None = None
    transform: Node | None = None
    """How the answer is changed before its assertions see it."""


def _transformed(given: AssertionNode, code: str) -> ConversionResult:
    """Return an assertion on a changed answer; raises ConversionError."""
    how = {"equals": "equals", "contains": "contains", "starts-with": "starts_with"}.get(given.kind)
    if how is None:
        raise ConversionError(f"its transform has no counterpart here: {CODE_NOTE}")
    value = given.value()
    if isinstance(value, dict | list):
        raise ConversionError("its value is not a string")
    condition = transformed_text(code, how, as_text(value))
    if isinstance(condition, bool):
        raise ConversionError("it is the same for every answer")
    return _as_result(condition)


@dataclass(frozen=True, slots=True)
class AssertionReader:
    """Turns assertions into components of the grade."""

    source: Source
    providers: Providers

    @property
    def _fidelity(self) -> Fidelity:
        return self.source.fidelity

    def read(self, node: Node, scope: Scope) -> list[GradeComponent]:
        """Return the components of a list of assertions, and report each of them."""
        found = self.source.follow(node)
        if found is None:
            return []
        if isinstance(found.value, list):
            self._fidelity.mark_visited(found)
            return [
                component for child in found.children() for component in self.read(child, scope)
            ]
        kind = found.value.get("type") if isinstance(found.value, dict) else None
        if not isinstance(kind, str):
            self._fidelity.add_unsupported(found, "an assertion must be a map with a type")
            return []
        if kind == "assert-set":
            return self._set(found, scope)
        result = self._one(AssertionNode(found, self.source), scope)
        note = result.note if result.component is not None else f"{kind}: {result.note}"
        self._fidelity.add(result.status, found, result.about, note)
        if result.component is None:
            return []
        self._report_metric(found)
        return [replace(result.component, node=found)]

    def _report_metric(self, node: Node) -> None:
        """Report a metric whose name is another one here."""
        metric = node.get("metric")
        if metric is None or not isinstance(metric.value, str):
            return
        if "{{" in metric.value:
            note = "a name with variables is not supported: the check is named after its type"
            self._fidelity.add_approximated(metric, "", note)
        elif (name := model_name(metric.value)) != metric.value:
            self._fidelity.add_mapped(metric, "", f"called {name}")

    def _one(self, given: AssertionNode, scope: Scope) -> ConversionResult:
        for child in given.node.children():
            if child.name == "contextTransform":
                return ConversionResult(None, Status.UNSUPPORTED, f"{child.name}: {CODE_NOTE}")
            if child.name in _REMARKS:
                self._fidelity.add_mapped(child, "", "a remark, without effect")
            elif child.name not in _KNOWN:
                self._fidelity.add_unsupported(child, "unknown option of an assertion")
        try:
            return with_settings(self._of_kind(given, scope), given)
        except ConversionError as refusal:
            return ConversionResult(None, Status.UNSUPPORTED, refusal.note)
        except UnusableReference as refused:
            return ConversionResult(None, Status.UNSUPPORTED, str(refused))
        except Fault as fault:
            return ConversionResult(None, Status.UNSUPPORTED, f"{fault.message} ({fault.hint})")

    def _of_kind(self, given: AssertionNode, scope: Scope) -> ConversionResult:
        kind = given.kind
        if kind == "ruby":
            return ConversionResult(None, Status.UNSUPPORTED, CODE_NOTE)
        if (code := given.transform(scope)) is not None:
            return _transformed(given, code)
        if kind in CHECKS:
            if (provider := given.node.get("provider")) is not None:
                if kind.startswith("similar"):
                    note = "compared with local embeddings; `by` names a model of models.yaml"
                    self._fidelity.add_approximated(provider, "", note)
                else:
                    self._fidelity.add_mapped(provider, "", "without effect: it uses no model")
            if (config := given.node.get("config")) is not None:
                self._fidelity.add_unsupported(config, "this check has no such options")
            return CHECKS[kind](given)
        if kind in KINDS:
            return self._grader(given, scope)
        if kind == "moderation":
            note = (
                "any finding blocks the answer; the judge of the project screens for all categories"
            )
            component = GradeComponent("screen", component_key("moderation"))
            return ConversionResult(
                component, Status.APPROXIMATED, note, "@experiments safety.moderation"
            )
        if kind == "select-best":
            note = "each model is compared with the first in pairs; the criterion is not used"
            component = GradeComponent("pairwise", component_key("pairwise"))
            return ConversionResult(
                component, Status.APPROXIMATED, note, "@experiments judges.pairwise"
            )
        why = UNSUPPORTED_TYPES.get(kind, f"there is no check like {kind}")
        return ConversionResult(None, Status.UNSUPPORTED, why)

    # --- by a model -------------------------------------------------------------------------------

    def _grader(self, given: AssertionNode, scope: Scope) -> ConversionResult:
        kind = given.kind
        lacking = [name for name in NEEDS.get(kind, ()) if name not in scope.variables]
        if lacking:
            raise ConversionError(
                f"its grader needs a variable {lacking[0]!r}, which the test does not have"
            )
        messages = grader_messages(kind, negate=given.negated)
        own = None
        if has_hole(messages) and not given.negated:
            own = self._own_words(given, scope)
        messages = own or messages
        arguments: tuple[Argument, ...] = ()
        if has_hole(messages):
            value = given.value()
            if isinstance(value, list):
                value = "\n".join(f"- {each}" for each in value)
            arguments = (text_argument(value),)
            if len(str(arguments[0].value)) > _LONGEST:
                raise ConversionError(f"its value is longer than {_LONGEST:,} characters")
        by = self._judge(given, scope)
        grader = GraderText(f"not-{kind}" if given.negated else kind, messages, by)
        settings: tuple[tuple[str, Json], ...] = (("threshold", 0.7 if kind == "g-eval" else 0.5),)
        key = component_key([grader.kind, by, [list(message) for message in messages]])
        component = GradeComponent(
            "grader", key, None, arguments, grader, settings, kind == "factuality"
        )
        note = (
            "its own prompt; the reply must be a score" if own else "a grader prompt of this tool"
        )
        return ConversionResult(
            component, Status.APPROXIMATED, note, f"@experiments judges.graders {grader.kind}"
        )

    def _own_words(self, given: AssertionNode, scope: Scope) -> tuple[Message, ...] | None:
        """Return the grader prompt of the configuration; None if it has none."""
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
                messages = chat_messages(value, keep=frozenset({"output"}))
        except (ConversionError, UnusableReference, Fault) as error:
            self._fidelity.add_unsupported(node, f"{error}; the default grader prompt is used")
            return None
        self._fidelity.add_approximated(node, "prompts", "its reply must be a score, or yes or no")
        return tuple(
            message._replace(text=_RUBRIC.sub(HOLE, message.text).replace(_STAND_IN, "output"))
            for message in messages
        )

    def _judge(self, given: AssertionNode, scope: Scope) -> str | None:
        node = given.node.get("provider") or scope.provider
        if node is None:
            return None
        if (embedding := node.get("embedding")) is not None:
            self._fidelity.add_approximated(embedding, "", "`similar` uses local embeddings")
        inner = node.get("text")
        if inner is not None and isinstance(node.value, dict) and "id" not in node.value:
            self._fidelity.mark_visited(node)
            node = inner
        found = self.source.follow(node)
        model = self.providers.read_one(found) if found is not None else None
        return model.name if model is not None else None

    # --- sets -------------------------------------------------------------------------------------

    def _set(self, node: Node, scope: Scope) -> list[GradeComponent]:
        self._fidelity.mark_visited(node)
        kind, inner, given = node.get("type"), node.get("assert"), AssertionNode(node, self.source)
        assert kind is not None
        components = self.read(inner, scope) if inner is not None else []
        checks = [component for component in components if component.kind == "check"]
        others = [component for component in components if component.kind != "check"]
        for name in ("threshold", "weight", "metric"):
            self._fidelity.mark_visited(node.get(name))
        if not checks:
            note = (
                "its members are separate components"
                if others
                else "none of its members is supported"
            )
            self._fidelity.add_approximated(
                kind, "@experiments judges.graders" if others else "", note
            )
            return others
        try:
            settings, threshold = read_settings(given), given.number()
        except ConversionError as refusal:
            self._fidelity.add_unsupported(kind, refusal.note)
            return components
        settings.pop("threshold", None)
        self._report_metric(node)
        report_joined_metrics(checks, self._fidelity)
        whole = mean_of(checks, threshold, settings)
        if others:
            note = "members graded by a model are separate components"
            self._fidelity.add_approximated(kind, "@experiments checks mean_of", note)
        else:
            self._fidelity.add_mapped(kind, "@experiments checks mean_of")
        return [replace(whole, node=node), *others]


REFERENCES = frozenset(
    ["equals", "contains", "icontains", "starts_with", "similar", "levenshtein", "rouge_n", "bleu"]
)
"""Checks whose argument can be the expected output of a case."""
_GRADED = frozenset(["similar", "levenshtein", "rouge_n", "bleu", "tool_call_f1"])


@dataclass(frozen=True, slots=True)
class AssertionNode:
    """An assertion, and the reader of the files that it names."""

    node: Node
    source: Source

    @property
    def kind(self) -> str:
        """Its type without not-."""
        assert isinstance(self.node.value, dict)
        return str(self.node.value["type"]).removeprefix("not-")

    @property
    def negated(self) -> bool:
        """Whether its type starts with not-."""
        assert isinstance(self.node.value, dict)
        return str(self.node.value["type"]).startswith("not-")

    def transform(self, scope: Scope) -> str | None:
        """Return the code that changes the answer before; None if there is none."""
        node = self.node.get("transform") or scope.transform
        return str(node.value) if node is not None else None

    def has(self, name: str) -> bool:
        """Whether it has this key."""
        return self.node.get(name) is not None

    def value(self) -> Json:
        """Return its value, from a file if it names one.

        Raises ConversionError and UnusableReference.
        """
        child = self.node.get("value")
        if child is None:
            raise ConversionError("it has no value")
        if isinstance(child.value, str) and child.value.startswith("file://"):
            path = self.source.path(child.value)
            if path.endswith((".json", ".yaml", ".yml")):
                document = self.source.document(path)
                self.source.fidelity.cover(document)
                return document.value
            return self.source.text(path).rstrip("\n")
        found = self.source.follow(child)
        return found.value if found is not None else None

    def number(self, name: str = "threshold") -> float | None:
        """Return the number of a key; None if it is missing."""
        child = self.node.get(name)
        if child is None or isinstance(child.value, bool):
            return None
        try:
            return float(child.value)  # type: ignore[arg-type]  # other values raise
        except (TypeError, ValueError):
            raise ConversionError(f"its {name} is not a number") from None


def hole(index: int = 0) -> Json:
    """Return the placeholder of an argument that each case may fill in."""
    return {HOLE_KEY: index}


def component_key(value: Any) -> str:
    """Return a string that is equal for equal components."""
    return canonical_json(value)


def check_component(name: str, options: dict[str, Json], *arguments: Argument) -> ConversionResult:
    """Return a check that means the same as the assertion."""
    entry: dict[str, Json] = {name: options}
    reference = name in REFERENCES and bool(arguments)
    component = GradeComponent("check", "", entry, arguments, reference=reference)
    return ConversionResult(component, Status.MAPPED, "", f"@experiments checks {name}")


def approximate(result: ConversionResult, note: str) -> ConversionResult:
    """Return a result marked as approximated."""
    return result._replace(status=Status.APPROXIMATED, note=note)


def with_threshold(result: ConversionResult, threshold: float) -> ConversionResult:
    """Return a result with a threshold."""
    assert result.component is not None
    return result._replace(
        component=replace(result.component, settings=(("threshold", threshold),))
    )


def text_argument(value: Json) -> Argument:
    """Return a value as an argument; Nunjucks templates are converted."""
    text = as_text(value)
    converted = convert(text)
    if converted.faults:
        fault = converted.faults[0]
        raise ConversionError(f"{fault.message}; {fault.hint}")
    return Argument(converted.text, converted if converted.text_is_template else None)


def list_argument(value: Json, kind: str) -> Argument:
    """Return a list of strings as an argument; a single string is split at commas."""
    if isinstance(value, str):
        only = convert(value)
        if only.is_variable:
            return Argument(only.text, only)
        value = [piece for piece in _comma_separated(value) if piece]
    if not isinstance(value, list) or not value:
        raise ConversionError(f"the value of {kind} is not a list of strings")
    items = [text_argument(each) for each in value]
    if any(item.template is not None for item in items):
        templates = tuple(item.template or convert(str(item.value)) for item in items)
        return Argument([item.value for item in items], None, templates)
    return Argument([item.value for item in items])


def _comma_separated(text: str) -> list[str]:
    """Return the pieces between commas; quotes keep a comma inside a piece."""
    pieces = re.findall(r'\s*(?:"((?:[^"]|"")*)"|([^,]*))\s*(?:,|\Z)', text)
    return [(quoted or plain).strip().replace('""', '"') for quoted, plain in pieces]


# --- settings -------------------------------------------------------------------------------------


def read_settings(given: AssertionNode) -> dict[str, Json]:
    """Return the name, weight and threshold of an assertion, if given."""
    settings: dict[str, Json] = {}
    metric = given.node.get("metric")
    if metric is not None and isinstance(metric.value, str) and "{{" not in metric.value:
        settings["name"] = model_name(metric.value)
    weight, threshold = given.number("weight"), given.number("threshold")
    if weight is not None:
        settings["weight"] = min(max(weight, 0.0), 100.0)
    if threshold is not None:
        settings["threshold"] = threshold
    return settings


def with_settings(result: ConversionResult, given: AssertionNode) -> ConversionResult:
    """Return a component with the settings of its assertion, negated if that is."""
    if result.component is None:
        return result
    component, settings = result.component, read_settings(given)
    own = dict(component.settings)
    scored = {next(iter(component.check))} & _GRADED if component.check is not None else True
    if not scored or given.kind == "levenshtein":
        settings.pop("threshold", None)  # a limit, or without effect
    settings = {**own, **settings}
    entry = component.check
    if entry is not None and given.negated:
        name = next(iter(entry))
        if name in _GRADED and isinstance(threshold := settings.get("threshold"), int | float):
            settings["threshold"] = round(1 - threshold, 6)
        entry = {"not": {"value": entry}}
    threshold = settings.get("threshold")
    if isinstance(threshold, int | float):
        settings["threshold"] = min(max(threshold, 0.0), 1.0)
    if settings.get("weight") == 0:
        settings["threshold"] = 0.0  # without weight it never fails a test
    ordered = tuple(sorted(settings.items()))
    key = component_key([component.kind, component.key, entry, ordered])
    return result._replace(component=replace(component, check=entry, settings=ordered, key=key))


# --- sets -----------------------------------------------------------------------------------------


def tidy(value: Json) -> Json:
    """Return a number without a fraction of 0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def report_joined_metrics(components: list[GradeComponent], fidelity: Fidelity) -> None:
    """Report metrics of checks that become part of one check."""
    for component in components:
        metric = component.node.get("metric") if component.node is not None else None
        if metric is not None and "name" in dict(component.settings):
            fidelity.add_approximated(metric, "", "its score is part of the mean, and not shown")


def mean_of(
    components: list[GradeComponent], threshold: float | None, settings: dict[str, Json]
) -> GradeComponent:
    """Return one check for several: all must pass, or their weighted mean reach a threshold."""
    entries: list[Json] = []
    arguments: list[Argument] = []
    for component in components:
        assert component.check is not None
        ((name, options),) = shift_holes(component.check, len(arguments)).items()
        inner = {key: tidy(value) for key, value in component.settings if key != "name"}
        entries.append({name: {**options, **inner}})
        arguments += component.arguments
    given: dict[str, Json] = {"value": entries}
    if threshold is not None:
        given["threshold"] = min(max(threshold, 0.0), 1.0)
    entry: dict[str, Json] = {"mean_of": given}
    ordered = tuple(sorted(settings.items()))
    key = component_key(["set", entry, ordered])
    return GradeComponent("check", key, entry, tuple(arguments), settings=ordered)
