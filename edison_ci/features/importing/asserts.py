"""Assertions of promptfoo tests as checks, graders and other components of a grade."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.user_schemas import schema_faults
from edison_ci.documents.marks import Fault
from edison_ci.documents.yaml_text import read_beside
from edison_ci.features.importing.conditions import Part, javascript_pattern
from edison_ci.features.importing.drafts import (
    AssertionNode,
    ConversionResult,
    GradeComponent,
    GraderText,
    Scope,
    approximate,
    check_component,
    component_key,
    hole,
    list_argument,
    mean_of,
    model_name,
    read_settings,
    report_joined_metrics,
    text_argument,
    unsupported,
    with_settings,
    with_threshold,
)
from edison_ci.features.importing.fidelity import Status
from edison_ci.features.importing.javascript import javascript_condition, transformed_text
from edison_ci.features.importing.prompts import (
    HOLE,
    KINDS,
    NEEDS,
    chat_messages,
    grader_messages,
    has_hole,
    read_messages,
)
from edison_ci.features.importing.python_code import python_condition
from edison_ci.features.importing.source import CODE_NOTE, UnusableReference
from edison_ci.features.importing.templates import Argument, ConversionError
from edison_ci.templating.templates import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edison_ci.documents.marks import Json
    from edison_ci.features.importing.drafts import Message
    from edison_ci.features.importing.fidelity import Fidelity, Node
    from edison_ci.features.importing.providers import Providers
    from edison_ci.features.importing.source import Source

_TABLES = read_beside(__file__, "promptfoo.yaml")["assertions"]


def _text(assertion: AssertionNode) -> ConversionResult:
    value = assertion.value()
    if isinstance(value, dict | list):
        if assertion.kind != "equals":
            raise ConversionError("its value is not a string")
        argument = Argument(json.dumps(value, ensure_ascii=False))
        return check_component("json_path", {"path": "$", "value": hole(), "exact": True}, argument)
    argument, note = text_argument(value), ""
    options: dict[str, Json] = {"value": hole()}
    if assertion.kind in ("equals", "starts-with"):
        options["exact"] = True
    if assertion.kind == "regex" and argument.template is None:
        pattern, note = javascript_pattern(str(argument.value))
        argument = Argument(pattern)
    elif assertion.kind == "regex":
        note = "the pattern may mean something else in Python than in JavaScript"
    result = check_component(_TABLES["names"][assertion.kind], options, argument)
    return approximate(result, note) if note else result


def _list(assertion: AssertionNode) -> ConversionResult:
    options: dict[str, Json] = {"value": hole()}
    if assertion.kind.startswith("i"):
        options["ignore_case"] = True
    return check_component(
        _TABLES["names"][assertion.kind], options, list_argument(assertion.value(), assertion.kind)
    )


def _whole(assertion: AssertionNode) -> ConversionResult:
    options: dict[str, Json] = {} if assertion.kind == "is-refusal" else {"exact": True}
    result = check_component(_TABLES["names"][assertion.kind], options)
    if assertion.kind == "is-sql":
        return approximate(result, _sql_note(assertion.value() if assertion.has("value") else None))
    note = _TABLES["whole_notes"][assertion.kind]
    if assertion.has("value"):
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


def _is_json(assertion: AssertionNode, option: str = "exact") -> ConversionResult:
    if not assertion.has("value"):
        return check_component("is_json", {option: True})
    schema = assertion.value()
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


def _contains_json(assertion: AssertionNode) -> ConversionResult:
    note = "promptfoo also takes what is nearly JSON, such as keys without quotes"
    return approximate(_is_json(assertion, "anywhere"), note)


def _contains_markup(_: AssertionNode) -> ConversionResult:
    pattern = r"<([A-Za-z][A-Za-z0-9:-]*)[^<>]*>[\s\S]*</\1\s*>|<[A-Za-z][^<>]*/>"
    return approximate(
        check_component("regex", {"value": pattern}),
        "it matches tags, not only valid markup",
    )


def _limit(assertion: AssertionNode) -> ConversionResult:
    threshold = assertion.number()
    if threshold is None:
        raise ConversionError("without a threshold it only measures, which every run does")
    if assertion.kind == "latency":
        return check_component("latency", {"max_ms": min(max(1, math.floor(threshold)), 3_600_000)})
    return check_component("cost", {"max_usd": threshold})


def _words(assertion: AssertionNode) -> ConversionResult:
    value = assertion.value()
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return check_component("words", {"min": value, "max": value})
    limits = (
        {k: v for k, v in value.items() if k in ("min", "max")} if isinstance(value, dict) else {}
    )
    if not limits or not all(type(limit) is int for limit in limits.values()):
        raise ConversionError("its value is neither a number nor {min, max}")
    return check_component("words", dict(limits))


def _finish_reason(assertion: AssertionNode) -> ConversionResult:
    value = assertion.value()
    if value not in ("stop", "length", "content_filter", "tool_calls"):
        raise ConversionError("allowed: stop, length, content_filter, tool_calls")
    return check_component("finish_reason", {"value": value})


def _measure(assertion: AssertionNode) -> ConversionResult:
    measure = _TABLES["measures"][assertion.kind.partition(":")[0]]
    value = assertion.value()
    if isinstance(value, list):
        if len(value) != 1:
            raise ConversionError("it has several references: write any_of with one check for each")
        value = value[0]
    result = check_component(measure["name"], {"value": hole()}, text_argument(value))
    return approximate(with_threshold(result, measure["threshold"]), measure["note"])


def _levenshtein(assertion: AssertionNode) -> ConversionResult:
    most = assertion.number()
    edits = 5 if most is None else math.floor(most)
    if edits < 0:
        raise ConversionError("no answer has fewer than 0 edits")
    options: dict[str, Json] = {"value": hole(), "max_edits": edits, "exact": True}
    return check_component("levenshtein", options, text_argument(assertion.value()))


_CONDITIONS = {"javascript": javascript_condition, "python": python_condition}


def _code(assertion: AssertionNode) -> ConversionResult:
    """Return the checks of a simple expression; raises ConversionError for other code."""
    child = assertion.node.get("value")
    code = child.value if child is not None else None
    if not isinstance(code, str) or code.startswith("file://"):
        raise ConversionError(CODE_NOTE)
    condition = _CONDITIONS[assertion.kind](code)
    if isinstance(condition, bool):
        always: dict[str, Json] = {"chars": {"min": 0}}
        entry = always if condition else {"not": {"value": always}}
        verdict = "true" if condition else "false"
        return approximate(_as_result(Part(entry)), f"it is {verdict} of every answer of text")
    if assertion.negated and assertion.kind == "javascript" and "&&" in code:
        raise ConversionError("what it returns for an empty answer is not known")
    return _as_result(condition)


def _as_result(part: Part) -> ConversionResult:
    (name,) = part.entry
    component = GradeComponent("check", "", part.entry, part.arguments)
    result = ConversionResult(component, Status.MAPPED, "", f"@experiments checks {name}")
    return approximate(result, "; ".join(sorted(part.notes))) if part.notes else result


def _tools_f1(assertion: AssertionNode) -> ConversionResult:
    value = assertion.value()
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

UNSUPPORTED_TYPES: Mapping[str, str] = _TABLES["unsupported"]
"""Types of assertions without a counterpart, and why."""


_KEYS = frozenset(_TABLES["keys"])
_REMARKS = frozenset({"reason", "description"})
_OUTPUT = re.compile(r"\{\{-?\s*(?:output|completion)\s*-?\}\}")
_RUBRIC = re.compile(r"\{\{-?\s*(?:rubric|criteria|ideal)\s*(?:\|[^}]*)?-?\}\}")
_LONGEST = 10_000
_STAND_IN = "the_output_to_grade"


def _transformed(assertion: AssertionNode, code: str) -> ConversionResult:
    """Return an assertion on a changed answer; raises ConversionError."""
    how = {"equals": "equals", "contains": "contains", "starts-with": "starts_with"}.get(
        assertion.kind
    )
    if how is None:
        raise ConversionError(f"its transform has no counterpart here: {CODE_NOTE}")
    value = assertion.value()
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
        target = self.source.follow(node)
        if target is None:
            return []
        if isinstance(target.value, list):
            self._fidelity.mark_visited(target)
            return [
                component for child in target.children() for component in self.read(child, scope)
            ]
        kind = target.value.get("type") if isinstance(target.value, dict) else None
        if not isinstance(kind, str):
            self._fidelity.add_unsupported(target, "an assertion must be a map with a type")
            return []
        if kind == "assert-set":
            return self._set(target, scope)
        result = self._convert(AssertionNode(target, self.source), scope)
        note = result.note if result.component is not None else f"{kind}: {result.note}"
        self._fidelity.add(result.status, target, result.about, note)
        if result.component is None:
            return []
        self._report_metric(target)
        return [replace(result.component, node=target)]

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

    def _convert(self, assertion: AssertionNode, scope: Scope) -> ConversionResult:
        for child in assertion.node.children():
            if child.name == "contextTransform":
                return unsupported(f"{child.name}: {CODE_NOTE}")
            if child.name in _REMARKS:
                self._fidelity.add_mapped(child, "", "a remark, without effect")
            elif child.name not in _KEYS:
                self._fidelity.add_unsupported(child, "unknown option of an assertion")
        try:
            return with_settings(self._of_kind(assertion, scope), assertion)
        except ConversionError as refusal:
            return unsupported(refusal.note)
        except UnusableReference as refused:
            return unsupported(str(refused))
        except Fault as fault:
            return unsupported(f"{fault.message} ({fault.hint})")

    def _of_kind(self, assertion: AssertionNode, scope: Scope) -> ConversionResult:
        kind = assertion.kind
        if kind == "ruby":
            return unsupported(CODE_NOTE)
        if (code := assertion.transform(scope)) is not None:
            return _transformed(assertion, code)
        if kind in CHECKS:
            if (provider := assertion.node.get("provider")) is not None:
                if kind.startswith("similar"):
                    note = "compared with local embeddings; `by` names a model of models.yaml"
                    self._fidelity.add_approximated(provider, "", note)
                else:
                    self._fidelity.add_mapped(provider, "", "without effect: it uses no model")
            if (config := assertion.node.get("config")) is not None:
                self._fidelity.add_unsupported(config, "this check has no such options")
            return CHECKS[kind](assertion)
        if kind in KINDS:
            return self._grader(assertion, scope)
        if kind in _TABLES["shared"]:
            shared = _TABLES["shared"][kind]
            component = GradeComponent(shared["kind"], component_key(shared["key"]))
            return ConversionResult(
                component, Status.APPROXIMATED, shared["note"], shared["target"]
            )
        return unsupported(UNSUPPORTED_TYPES.get(kind, f"there is no check like {kind}"))

    def _grader(self, assertion: AssertionNode, scope: Scope) -> ConversionResult:
        kind = assertion.kind
        lacking = [name for name in NEEDS.get(kind, ()) if name not in scope.variables]
        if lacking:
            raise ConversionError(
                f"its grader needs a variable {lacking[0]!r}, which the test does not have"
            )
        messages = grader_messages(kind, negate=assertion.negated)
        own = None
        if has_hole(messages) and not assertion.negated:
            own = self._own_words(assertion, scope)
        messages = own or messages
        arguments: tuple[Argument, ...] = ()
        if has_hole(messages):
            value = assertion.value()
            if isinstance(value, list):
                value = "\n".join(f"- {item}" for item in value)
            arguments = (text_argument(value),)
            if len(str(arguments[0].value)) > _LONGEST:
                raise ConversionError(f"its value is longer than {_LONGEST:,} characters")
        by = self._judge(assertion, scope)
        grader = GraderText(f"not-{kind}" if assertion.negated else kind, messages, by)
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

    def _own_words(self, assertion: AssertionNode, scope: Scope) -> tuple[Message, ...] | None:
        """Return the grader prompt of the configuration; None if it has none."""
        node = assertion.node.get("rubricPrompt") or scope.rubric_prompt
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

    def _judge(self, assertion: AssertionNode, scope: Scope) -> str | None:
        node = assertion.node.get("provider") or scope.provider
        if node is None:
            return None
        if (embedding := node.get("embedding")) is not None:
            self._fidelity.add_approximated(embedding, "", "`similar` uses local embeddings")
        inner = node.get("text")
        if inner is not None and isinstance(node.value, dict) and "id" not in node.value:
            self._fidelity.mark_visited(node)
            node = inner
        target = self.source.follow(node)
        model = self.providers.read_one(target) if target is not None else None
        return model.name if model is not None else None

    def _set(self, node: Node, scope: Scope) -> list[GradeComponent]:
        self._fidelity.mark_visited(node)
        kind, inner, assertion = (
            node.get("type"),
            node.get("assert"),
            AssertionNode(node, self.source),
        )
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
            settings, threshold = read_settings(assertion), assertion.number()
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
