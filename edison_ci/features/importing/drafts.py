"""Drafts: the values between reading a foreign configuration and writing files of a project."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.project import slug
from edison_ci.features.importing.templates import render_or_empty

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edison_ci.documents.marks import Json
    from edison_ci.features.importing.fidelity import Node, Status
    from edison_ci.features.importing.templates import ConvertedTemplate


_LOOP = re.compile(r"\{%-?\s*for\s+\w+\s+in\s+(\w+)")


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
class Argument:
    """An argument: data, or a template over the case."""

    value: Json
    template: ConvertedTemplate | None = None
    items: tuple[ConvertedTemplate, ...] = ()
    """For a list, the template of each of its texts."""

    @property
    def is_data(self) -> bool:
        """Whether it is the same for all cases."""
        return self.template is None and not self.items

    @property
    def variables(self) -> frozenset[str]:
        """Variables that it requires."""
        templates = (*self.items, *((self.template,) if self.template is not None else ()))
        return frozenset(name for each in templates for name in each.required)

    def fill(self, values: Mapping[str, Json]) -> Json:
        """Return the argument for a case."""
        if self.items:
            return [render_or_empty(item, values) for item in self.items]
        if self.template is None:
            return self.value
        if self.template.is_variable:
            (name,) = self.template.variables
            return values.get(name, "")
        return render_or_empty(self.template, values)


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

    def free(self, wanted: str, *, separator: str = "-") -> str:
        """Return the name, with a number if it is used already."""
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}{separator}{number}", number + 1
        self._taken.add(name)
        return name


def file_name(text: str, otherwise: str) -> str:
    """Return a text as a name of a file: letters, digits and dashes; `otherwise` if empty."""
    return slug(text) or otherwise


def model_name(text: str) -> str:
    """Return a text as the name of a model; dots and underscores are kept."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return plain[:60] or "model"
