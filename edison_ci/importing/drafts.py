"""The values that travel between reading a foreign configuration and writing our files."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.project import slug
from edison_ci.importing.templates import filled_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edison_ci.documents.marks import Json
    from edison_ci.importing.fidelity import Node, Status
    from edison_ci.importing.templates import Converted


_LOOP = re.compile(r"\{%-?\s*for\s+\w+\s+in\s+(\w+)")


class Message(NamedTuple):
    """One message of a prompt, its text a template of ours."""

    role: str
    text: str


@dataclass(slots=True)
class PromptDraft:
    """A prompt to be written."""

    id: str
    labels: tuple[str, ...]
    """Names by which providers and tests may choose it."""
    messages: list[Message]
    header: dict[str, Json] = field(default_factory=dict)
    """Front matter besides the id."""
    variables: frozenset[str] = frozenset()

    @property
    def lists(self) -> frozenset[str]:
        """Variables that a loop goes over."""
        return frozenset(name for m in self.messages for name in _LOOP.findall(m.text))


@dataclass(slots=True)
class ModelDraft:
    """A model to be written."""

    name: str
    entry: dict[str, Json]
    ids: tuple[str, ...]
    """Names by which tests may choose it: its id and its label."""
    prompts: tuple[str, ...] | None = None
    """Labels of the prompts it takes; all if None."""
    shared: dict[str, Json] = field(default_factory=dict)
    """`output` and `tools`, which belong to prompts here."""
    node: Node | None = None
    mark: str = ""
    """What stands for it in the report until it has a name."""

    @property
    def offline(self) -> bool:
        """Whether it is simulated."""
        return self.entry.get("provider") == "sim"


@dataclass(frozen=True, slots=True)
class Wanted:
    """An argument: data, or a template over the case."""

    value: Json
    template: Converted | None = None
    items: tuple[Converted, ...] = ()
    """Of a list, the template that each of its texts is."""

    @property
    def is_data(self) -> bool:
        """Whether it is the same whatever the case says."""
        return self.template is None and not self.items

    @property
    def variables(self) -> frozenset[str]:
        """Variables that it needs."""
        templates = (*self.items, *((self.template,) if self.template is not None else ()))
        return frozenset(name for each in templates for name in each.required)

    def filled(self, values: Mapping[str, Json]) -> Json:
        """Return the argument for a case."""
        if self.items:
            return [filled_text(item, values) for item in self.items]
        if self.template is None:
            return self.value
        if self.template.is_variable:
            (name,) = self.template.variables
            return values.get(name, "")
        return filled_text(self.template, values)


@dataclass(frozen=True, slots=True)
class GraderText:
    """A prompt that grades; HOLE in its text is where its argument goes."""

    kind: str
    messages: tuple[Message, ...]
    by: str | None
    """Name of the model; None for the judge of the project."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the grade of one case."""

    kind: str
    """check, grader, screen or pairwise."""
    key: str
    """Equal for parts that differ in nothing but their arguments."""
    check: dict[str, Json] | None = None
    """Entry of a check, with {"<hole>": N} where an argument goes."""
    arguments: tuple[Wanted, ...] = ()
    grader: GraderText | None = None
    settings: tuple[tuple[str, Json], ...] = ()
    """name, weight and threshold, as far as they are given."""
    reference: bool = False
    """Whether its argument is what one would call the expected output."""
    node: Node | None = None
    """Where it comes from."""


@dataclass(slots=True)
class Draft:
    """One test after expansion: one case."""

    node: Node
    variables: dict[str, Json]
    description: str = ""
    metadata: dict[str, Json] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    models: tuple[str, ...] = ()
    """Names of the models that answer it."""
    prompts: tuple[str, ...] | None = None
    """Ids of the prompts it is for; all if None."""
    threshold: float | None = None
    expected: Json = None
    number: int = 1
    """Which test it comes from."""


class Told(NamedTuple):
    """What became of something: a part of the grade perhaps, and what to say of it."""

    part: Part | None
    status: Status
    note: str = ""
    about: str = ""
    """What it went to, in one word: check contains, grader."""


class Names:
    """Gives out names that are free."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def free(self, wanted: str, *, separator: str = "-") -> str:
        """Return the name, or the name with a number."""
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}{separator}{number}", number + 1
        self._taken.add(name)
        return name


def file_name(text: str, otherwise: str) -> str:
    """Return a text as a name of a file or model: letters, digits, dots and dashes."""
    return slug(text) or otherwise


def model_name(text: str) -> str:
    """Return a text as the name of a model; dots and underscores stay."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return plain[:60] or "model"
