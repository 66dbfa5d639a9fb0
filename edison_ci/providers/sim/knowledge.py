"""Which cases of the shipped examples does the simulator know, and which one is this?"""

from __future__ import annotations

import json
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edison_ci.frozen import dataclass
from edison_ci.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.records import Json

MAX_CHARS = 100_000
"""The simulator reads no further into a text than this."""
_DISTINCTIVE = 12
_TEXTS = Path(__file__).parent / "texts"


class Task(StrEnum):
    """What the simulator can be asked to do."""

    SUPPORT = "support"
    STORY = "story"
    EXTRACTION = "extraction"
    CODE = "code"
    OTHER = "other"


_TEMPLATES = {
    Task.SUPPORT: "customer-support",
    Task.STORY: "creative-writing",
    Task.EXTRACTION: "data-extraction",
    Task.CODE: "code-generation",
}
KEY = {
    Task.SUPPORT: "message",
    Task.STORY: "brief",
    Task.EXTRACTION: "document",
    Task.CODE: "task",
}
"""The input by which a case of a task is recognised."""


@dataclass(frozen=True, slots=True)
class KnownCase:
    """A case of a shipped example, with its right answer where it has one."""

    id: str
    task: Task
    inputs: Mapping[str, Json]
    expected: Json
    tags: frozenset[str]
    difficulty: int
    adversarial: bool

    @property
    def key(self) -> str:
        """The input by which the case is recognised."""
        return str(self.inputs[KEY[self.task]])

    def is_in(self, text: str) -> bool:
        """Return whether a message is about this case."""
        if self.key not in text:
            return False
        if self.task is Task.CODE:
            return str(self.inputs["function"]) in text
        if len(self.key) >= _DISTINCTIVE:
            return True
        return all(value in text for value in strings_in(self.inputs))


def strings_in(value: Json | Mapping[str, Json]) -> Iterator[str]:
    """Yield every text inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)
    elif value is not None and not isinstance(value, bool | int | float):
        for item in value.values():
            yield from strings_in(item)


@cache
def known_cases(task: Task) -> tuple[KnownCase, ...]:
    """Return the known cases of a task, longest first; none if the examples are not installed."""
    template = _TEMPLATES.get(task)
    if template is None:
        return ()
    folder = shipped("examples") / template / "datasets"
    cases = [
        _case(task, json.loads(line), adversarial=path.stem == "adversarial")
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    return tuple(sorted(cases, key=lambda case: -len(case.key)))


def _case(task: Task, row: dict[str, Any], *, adversarial: bool) -> KnownCase:
    return KnownCase(
        id=row["id"],
        task=task,
        inputs=row["input"],
        expected=row.get("expected"),
        tags=frozenset(row.get("tags", ())),
        difficulty=int(row.get("difficulty", 3)),
        adversarial=adversarial,
    )


def find_case(text: str) -> KnownCase | None:
    """Return the known case that a message is about."""
    said = text[:MAX_CHARS]
    for key, case in _by_key():
        if key in said and case.is_in(said):
            return case
    return None


@cache
def _by_key() -> tuple[tuple[str, KnownCase], ...]:
    return tuple((case.key, case) for task in _TEMPLATES for case in known_cases(task))


def case_of(task: Task, inputs: Mapping[str, Json]) -> KnownCase | None:
    """Return the known case that has these inputs."""
    wanted, function = inputs.get(KEY.get(task, "")), inputs.get("function", "")
    if not isinstance(wanted, str) or not isinstance(function, str):
        return None
    return _by_inputs(task).get((wanted, function))


@cache
def _by_inputs(task: Task) -> dict[tuple[str, str], KnownCase]:
    return {(case.key, str(case.inputs.get("function", ""))): case for case in known_cases(task)}


@cache
def texts(name: str) -> Any:
    """Return a collection of sentences that the simulator writes with."""
    return json.loads((_TEXTS / f"{name}.json").read_text(encoding="utf-8"))
