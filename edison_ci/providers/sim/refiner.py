"""Which small change to a prompt does a simulated refiner propose?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.providers.sim.features import Playbook, Stance
from edison_ci.providers.sim.knowledge import Task
from edison_ci.providers.sim.playbooks import PLAYBOOKS, understood
from edison_ci.providers.sim.prompt_text import PromptText, parse_prompt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from edison_ci.providers.sim.judge import Criterion

LENGTH_SHARE, LENGTH_CHARS = 0.15, 300
LINES_SHARE, LINES_COUNT = 0.20, 4


class Improvement(NamedTuple):
    """A new prompt text and what it is meant to do."""

    text: str
    note: str


@dataclass(frozen=True, slots=True)
class _Room:
    """How much may still be changed."""

    chars: int
    lines: int

    def after(self, chars: int, lines: int) -> _Room:
        return _Room(self.chars - chars, self.lines - lines)

    def fits(self, chars: int, lines: int) -> bool:
        return chars <= self.chars and lines <= self.lines


_HELPS: dict[Task, dict[str, tuple[str, ...]]] = {
    Task.SUPPORT: {
        "helpfulness": ("next_step", "fact"),
        "empathy": ("empathy",),
        "accuracy": ("fact", "policy_only", "guard"),
        "conciseness": ("brief",),
    },
    Task.STORY: {
        "originality": ("fresh", "show", "guard"),
        "imagery": ("imagery", "show"),
        "coherence": ("ending", "length"),
        "brief": ("words", "length", "tone", "guard", "language"),
    },
    Task.EXTRACTION: {
        "correctness": ("grand_total", "plain_total", "own_number", "guard"),
        "completeness": ("keys", "json_only"),
        "formatting": ("json_only", "iso_date", "keys", "plain_total", "iso_currency"),
        "restraint": ("nulls", "guard"),
    },
    Task.CODE: {
        "correctness": ("correct", "guard"),
        "edge cases": ("edge",),
        "readability": ("docstring", "hints"),
        "instruction following": ("block", "name", "quiet", "guard"),
    },
}
"""Which features a weak criterion points to, the most telling first."""
_MENDS: dict[Task, dict[str, tuple[str, ...]]] = {
    Task.SUPPORT: {"icontains": ("fact",), "words": ("brief",)},
    Task.STORY: {"contains_all": ("words",), "words": ("length",)},
    Task.EXTRACTION: {
        "is_json": ("json_only",),
        "json_schema": ("json_only", "keys", "plain_total", "nulls"),
        "total": ("grand_total", "plain_total"),
        "date": ("iso_date",),
        "currency": ("iso_currency",),
        "invoice-number": ("own_number",),
        "vendor": ("keys",),
    },
    Task.CODE: {"regex": ("block",), "defines-function": ("name", "block")},
}
"""The same for checks, by the names that they have in the examples."""
_ORDER: dict[Task, tuple[str, ...]] = {
    Task.SUPPORT: ("fact", "next_step", "empathy", "brief", "policy_only", "signed", "guard"),
    Task.STORY: ("imagery", "fresh", "ending", "words", "show", "length", "tone", "guard"),
    Task.EXTRACTION: ("json_only", "plain_total", "iso_date", "keys", "grand_total", "nulls"),
    Task.CODE: ("correct", "edge", "docstring", "block", "hints", "name", "quiet", "guard"),
}
"""What to try when the weak criteria leave room."""
_TASK_SIGNS = {
    Task.CODE: re.compile(r"\bpython\b|\bsignature\b"),
    Task.EXTRACTION: re.compile(r"\binvoice|\bextract\b|\bdocument\b"),
    Task.STORY: re.compile(r"\bstory\b|\bfiction\b|\btale\b"),
    Task.SUPPORT: re.compile(r"\bcustomer\b|\breply\b|\bpolicy\b"),
}
_BULLET = re.compile(r"^(\s*)([-*]|\d+\.) ")
_SWAPS = (("Use ", "Please use "), ("Keep ", "Always keep "), ("Write ", "Please write "))


def improved(prompt_text: str, weak_criteria: Sequence[Criterion], rng: Random) -> Improvement:
    """Return the prompt with one to four lines added or reworded, inside the guardrails.

    The weakest criteria decide, in their order. When nothing is missing a line is put in other
    words, which changes no quality: a refiner does not know that it has run out of ideas.
    """
    prompt = parse_prompt(prompt_text)
    task = task_of_prompt(prompt.instructions)
    room = room_for(prompt_text)
    lines, note = _without_opposites(prompt, task, room)
    if lines is not None:
        return Improvement(prompt.with_lines(lines), note)
    additions = _additions(prompt, task, weak_criteria, rng, room)
    if not additions:
        return _reworded(prompt, rng)
    names = " and ".join(criterion.name for criterion in weak_criteria) or "the whole"
    text = prompt.with_lines(_inserted(prompt, additions))
    what = "an instruction" if len(additions) == 1 else f"{len(additions)} instructions"
    return Improvement(text, f"Adds {what} for what {names} found missing in answers.")


def helped(prompt_text: str) -> tuple[str, ...]:
    """Return the criteria, in lower case, that the refiner knows how to help in such a prompt."""
    return tuple(_HELPS.get(task_of_prompt(parse_prompt(prompt_text).instructions), {}))


def task_of_prompt(instructions: str) -> Task:
    """Return the task that a prompt is about."""
    lowered = instructions.lower()
    for task, sign in _TASK_SIGNS.items():
        if sign.search(lowered):
            return task
    return Task.OTHER


def room_for(prompt_text: str) -> _Room:
    """Return what the guardrails allow for a prompt."""
    count = prompt_text.count("\n") + (not prompt_text.endswith("\n"))
    chars = int(max(LENGTH_SHARE * len(prompt_text), LENGTH_CHARS))
    return _Room(chars, int(max(LINES_SHARE * count, LINES_COUNT)))


def _without_opposites(prompt: PromptText, task: Task, room: _Room) -> tuple[list[str] | None, str]:
    """Return the lines with one that asks for the opposite of a quality put right, if any."""
    playbook: Playbook = PLAYBOOKS[task]
    for index in prompt.instruction_lines:
        line = prompt.lines[index]
        stances = understood(task, line).stances
        wrong = [name for name, stance in stances.items() if stance is Stance.AGAINST]
        if not wrong:
            continue
        found = _BULLET.match(line)
        new = (found[0] if found else "") + playbook.feature(wrong[0]).lines[0]
        if room.fits(abs(len(new) - len(line)), 2):
            lines = [*prompt.lines]
            lines[index] = new
            return lines, f"Takes back what asked for the opposite: {line.strip()}"
    return None, ""


def _additions(
    prompt: PromptText, task: Task, weak: Sequence[Criterion], rng: Random, room: _Room
) -> list[str]:
    """Return new instructions for the weak criteria, as many as fit."""
    stances = understood(task, prompt.instructions).stances
    names = _wanted(task, weak)
    missing = [name for name in names if stances.get(name) is Stance.SILENT]
    choices = [PLAYBOOKS[task].feature(name).lines for name in missing]
    if task is Task.OTHER:
        choices = [_from_words(criterion) for criterion in weak]
    added: list[str] = []
    for lines in choices:
        line = rng.choice(lines)
        cost = len(line) + len("- \n")
        if line not in "\n".join(prompt.lines) and room.fits(cost, 1):
            added.append(line)
            room = room.after(cost, 1)
    return added


def _wanted(task: Task, weak: Sequence[Criterion]) -> list[str]:
    helps = {**_HELPS.get(task, {}), **_MENDS.get(task, {})}
    lists = [helps.get(criterion.name.lower().strip(), ()) for criterion in weak]
    # The best idea for each criterion first, then the second best ones, then the rest.
    turns = [names[turn] for turn in range(5) for names in lists if turn < len(names)]
    rest = (feature.name for feature in PLAYBOOKS[task].features)
    return list(dict.fromkeys([*turns, *_ORDER.get(task, ()), *rest]))


def _from_words(criterion: Criterion) -> tuple[str, ...]:
    """Return an instruction made of a criterion's own words."""
    sentence = criterion.description.split(". ")[0].strip().rstrip(".")
    wish = sentence or criterion.name
    return (f"Mind this above all: {wish}.", f"A good answer is one that does this: {wish}.")


def _inserted(prompt: PromptText, additions: list[str]) -> list[str]:
    """Return the lines with the additions after the first paragraph of the main section."""
    section = prompt.main_section
    place = section.start
    while place < section.stop and not prompt.lines[place].strip():
        place += 1
    while place < section.stop and prompt.lines[place].strip() and not _is_data(prompt, place):
        place += 1
    return [*prompt.lines[:place], *(f"- {line}" for line in additions), *prompt.lines[place:]]


def _is_data(prompt: PromptText, index: int) -> bool:
    """Return whether a line begins with the case: a variable, or a label before one."""
    return re.match(r"\s*(?:[\w -]{0,30}:\s*)?\{[{%]", prompt.lines[index]) is not None


def _reworded(prompt: PromptText, rng: Random) -> Improvement:
    """Return the prompt with one line in other words."""
    lines = [*prompt.lines]
    places = [index for index in prompt.instruction_lines if len(lines[index]) > 10]
    if not places:
        return Improvement(prompt.with_lines(lines), "Nothing to change was found.")
    index = rng.choice(places)
    mark = _BULLET.match(lines[index])
    head, rest = (mark[0], lines[index][mark.end() :]) if mark else ("", lines[index])
    for old, new in _SWAPS:
        if rest.startswith(old):
            lines[index] = head + new + rest[len(old) :]
            return Improvement(prompt.with_lines(lines), "Says one thing more clearly.")
    lines[index] = f"{lines[index].rstrip()} This matters."
    return Improvement(prompt.with_lines(lines), "Stresses one thing.")
