"""Drafts: the values between reading a foreign configuration and writing files of a project.

A grade consists of components, made from assertions: checks with their arguments and settings,
graders, screens and comparisons.
"""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.project import slug
from edison_ci.features.importing.conditions import HOLE_KEY, shift_holes
from edison_ci.features.importing.fidelity import Status
from edison_ci.features.importing.templates import Argument, ConversionError, convert
from edison_ci.records import canonical_json
from edison_ci.templating.templates import as_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from edison_ci.documents.marks import Json
    from edison_ci.features.importing.fidelity import Fidelity, Node
    from edison_ci.features.importing.source import Source


_LOOP = re.compile(r"\{%-?\s*for\s+\w+\s+in\s+(\w+)")
REFERENCES = frozenset(
    ["equals", "contains", "icontains", "starts_with", "similar", "levenshtein", "rouge_n", "bleu"]
)
"""Checks whose argument can be the expected output of a case."""
_GRADED = frozenset(["similar", "levenshtein", "rouge_n", "bleu", "tool_call_f1"])


class Message(NamedTuple):
    """One message of a prompt; its text is a template of this tool."""

    role: str
    text: str


@dataclass(slots=True)
class PromptDraft:
    """A prompt to write."""

    id: str
    labels: tuple[str, ...]
    """Names by which providers and tests can select it."""
    messages: list[Message]
    header: dict[str, Json] = field(default_factory=dict)
    """Front matter besides the id."""
    variables: frozenset[str] = frozenset()

    @property
    def lists(self) -> frozenset[str]:
        """Variables that a loop iterates over."""
        return frozenset(name for m in self.messages for name in _LOOP.findall(m.text))


@dataclass(slots=True)
class ModelDraft:
    """A model to write."""

    name: str
    entry: dict[str, Json]
    ids: tuple[str, ...]
    """Names by which tests can select it: its id and its label."""
    prompts: tuple[str, ...] | None = None
    """Labels of the prompts that it gets; all if None."""
    shared: dict[str, Json] = field(default_factory=dict)
    """`output` and `tools`, which belong to prompts in a project."""
    node: Node | None = None
    mark: str = ""
    """Placeholder in the report until the model has a name."""
    omit_defaults: bool = False
    """Whether parameters that are not given are not sent."""

    @property
    def offline(self) -> bool:
        """Whether it is simulated."""
        return self.entry.get("provider") == "sim"


@dataclass(frozen=True, slots=True)
class GraderText:
    """A grader prompt; HOLE in its text is replaced by the argument."""

    kind: str
    messages: tuple[Message, ...]
    by: str | None
    """Name of the model; None for the judge of the project."""


@dataclass(frozen=True, slots=True)
class GradeComponent:
    """One component of the grade of one case."""

    kind: str
    """check, grader, screen or pairwise."""
    key: str
    """Equal for components that differ in their arguments only."""
    check: dict[str, Json] | None = None
    """Entry of a check, with {"<hole>": N} in place of argument N."""
    arguments: tuple[Argument, ...] = ()
    grader: GraderText | None = None
    settings: tuple[tuple[str, Json], ...] = ()
    """name, weight and threshold, if given."""
    reference: bool = False
    """Whether its argument can be the expected output of a case."""
    node: Node | None = None
    """The assertion that it comes from."""


@dataclass(slots=True)
class CaseDraft:
    """One test after expansion: one case."""

    node: Node
    variables: dict[str, Json]
    description: str = ""
    metadata: dict[str, Json] = field(default_factory=dict)
    components: list[GradeComponent] = field(default_factory=list)
    models: tuple[str, ...] = ()
    """Names of the models that answer it."""
    prompts: tuple[str, ...] | None = None
    """Ids of the prompts to run it with; all if None."""
    dropped: bool = False
    """Whether it had assertions, and none of them is left."""
    expected: Json = None
    number: int = 1
    """Number of the test that it comes from."""


class ConversionResult(NamedTuple):
    """The result of converting one assertion: a component if there is one, and a note."""

    component: GradeComponent | None
    status: Status
    note: str = ""
    about: str = ""
    """The place in the project that it was converted to."""


class Names:
    """Allocates unique names."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def free(self, base: str, *, separator: str = "-") -> str:
        """Return the name, with a number if it is used already."""
        name, number = base, 2
        while name in self._taken:
            name, number = f"{base}{separator}{number}", number + 1
        self._taken.add(name)
        return name


def file_name(text: str, otherwise: str) -> str:
    """Return a text as a name of a file: letters, digits and dashes; `otherwise` if empty."""
    return slug(text) or otherwise


def model_name(text: str) -> str:
    """Return a text as the name of a model; dots and underscores are kept."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return plain[:60] or "model"


class Scope(NamedTuple):
    """The test around an assertion."""

    variables: Collection[str]
    """Names of the variables of the case."""
    provider: Node | None = None
    """The grading model, from the options."""
    rubric_prompt: Node | None = None
    transform: Node | None = None
    """How the answer is changed before its assertions see it."""


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
        target = self.source.follow(child)
        return target.value if target is not None else None

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


def unsupported(note: str) -> ConversionResult:
    """Return that an assertion has no counterpart, and why."""
    return ConversionResult(None, Status.UNSUPPORTED, note)


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
    items = [text_argument(text) for text in value]
    if any(item.template is not None for item in items):
        templates = tuple(item.template or convert(str(item.value)) for item in items)
        return Argument([item.value for item in items], None, templates)
    return Argument([item.value for item in items])


def _comma_separated(text: str) -> list[str]:
    """Return the pieces between commas; quotes keep a comma inside a piece."""
    pieces = re.findall(r'\s*(?:"((?:[^"]|"")*)"|([^,]*))\s*(?:,|\Z)', text)
    return [(quoted or plain).strip().replace('""', '"') for quoted, plain in pieces]


def read_settings(assertion: AssertionNode) -> dict[str, Json]:
    """Return the name, weight and threshold of an assertion, if given."""
    settings: dict[str, Json] = {}
    metric = assertion.node.get("metric")
    if metric is not None and isinstance(metric.value, str) and "{{" not in metric.value:
        settings["name"] = model_name(metric.value)
    weight, threshold = assertion.number("weight"), assertion.number("threshold")
    if weight is not None:
        settings["weight"] = min(max(weight, 0.0), 100.0)
    if threshold is not None:
        settings["threshold"] = threshold
    return settings


def with_settings(result: ConversionResult, assertion: AssertionNode) -> ConversionResult:
    """Return a component with the settings of its assertion, negated if that is."""
    if result.component is None:
        return result
    component, settings = result.component, read_settings(assertion)
    own = dict(component.settings)
    scored = {next(iter(component.check))} & _GRADED if component.check is not None else True
    if not scored or assertion.kind == "levenshtein":
        settings.pop("threshold", None)  # a limit, or without effect
    settings = {**own, **settings}
    entry = component.check
    if entry is not None and assertion.negated:
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
        ((name, check),) = shift_holes(component.check, len(arguments)).items()
        inner = {key: tidy(value) for key, value in component.settings if key != "name"}
        entries.append({name: {**check, **inner}})
        arguments += component.arguments
    options: dict[str, Json] = {"value": entries}
    if threshold is not None:
        options["threshold"] = min(max(threshold, 0.0), 1.0)
    entry: dict[str, Json] = {"mean_of": options}
    ordered = tuple(sorted(settings.items()))
    key = component_key(["set", entry, ordered])
    return GradeComponent("check", key, entry, tuple(arguments), settings=ordered)
