"""Edits without an idea behind them: the control of an experiment on refinement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.simulator.refiner import parse_prompt

if TYPE_CHECKING:
    from random import Random

_NEUTRAL = (
    "Take the time you need.",
    "Think before you start.",
    "This is part of our daily work.",
    "Thank you for your help.",
    "Do this as well as you can.",
    "We look forward to the result.",
    "You will find everything below.",
    "Have a look at the following.",
    "Begin whenever you are ready.",
    "What you need is given here.",
)
_SWAPS = (
    ("Write", "Compose"),
    ("write", "draft"),
    ("this", "the following"),
    ("You are", "You work as"),
    ("answer", "reply to"),
    ("Answer", "Reply"),
    ("Extract", "Read out"),
    ("an online shop", "a shop on the web"),
)


def random_edit(prompt_text: str, rng: Random) -> str:
    """Return the prompt after one aimless edit of an instruction; variables stay as they are."""
    prompt = parse_prompt(prompt_text)
    places = prompt.instruction_lines
    if not places:
        return prompt_text
    lines = [*prompt.lines]
    index = rng.choice(places)
    kind = rng.randrange(5)
    if kind == 1:
        lines[index] = _in_other_words(lines[index])
    elif kind == 2:
        lines[index] = _swapped(lines[index], rng)
    elif kind == 3:
        lines[index] = _without_a_word(lines[index], rng)
    elif kind == 4:
        lines[index] = f"{rng.choice(_NEUTRAL)} {lines[index]}"
    if lines == [*prompt.lines]:
        lines.insert(index + 1, rng.choice(_NEUTRAL))
    return prompt.with_lines(lines)


def _in_other_words(line: str) -> str:
    for old, new in _SWAPS:
        if old in line:
            return line.replace(old, new, 1)
    return f"{line} Thank you."


def _swapped(line: str, rng: Random) -> str:
    """Return a line with two neighbouring words exchanged."""
    words = line.split(" ")
    if len(words) < 3:
        return line
    place = rng.randrange(len(words) - 1)
    words[place], words[place + 1] = words[place + 1], words[place]
    return " ".join(words)


def _without_a_word(line: str, rng: Random) -> str:
    """Return a line that lost one of its words."""
    words = line.split(" ")
    if len(words) < 4:
        return line
    del words[rng.randrange(len(words))]
    return " ".join(words)
