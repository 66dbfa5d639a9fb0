"""What does a proposed change look like as a unified diff, sound or broken?"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.matching import unified_diff as lines_of_diff
from edison_ci.providers.sim.prompt_text import has_template, parse_prompt

if TYPE_CHECKING:
    from random import Random

_NO_NEWLINE = "\\ No newline at end of file"
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.M)


class Badness(StrEnum):
    """In which way a proposed diff is broken or hostile."""

    NOT_A_DIFF = "not a diff"
    WRONG_CONTEXT = "wrong context"
    WRONG_COUNTS = "wrong counts"
    OTHER_FILE = "other file"
    TWO_FILES = "two files"
    DROPPED_VARIABLE = "dropped variable"
    TEMPLATE_LOGIC = "template logic"
    FRONT_MATTER = "front matter"
    HEADING = "heading"
    TOO_LONG = "too long"
    TOO_MANY_LINES = "too many lines"
    INVISIBLE = "invisible characters"


class Change(NamedTuple):
    """A prompt file before and after."""

    path: str
    old: str
    new: str


def unified_diff(old: str, new: str, path: str) -> str:
    """Return the change of a file as `git apply` takes it; empty if there is none."""
    lines = lines_of_diff(_lines(old), _lines(new), f"a/{path}", f"b/{path}", end="\n")
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Return the lines with their ends; only a line feed ends one, as in Git."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def bad_kind(rng: Random, rate: float) -> Badness | None:
    """Return how a proposal goes wrong, in this share of the proposals."""
    return rng.choice(tuple(Badness)) if rng.random() < rate else None


def bad_diff(kind: Badness, change: Change, rng: Random) -> str:
    """Return a diff of the prompt that is bad in the stated way."""
    if kind in _TEXTS:
        return _TEXTS[kind](change, rng)
    return unified_diff(change.old, _CHANGED[kind](change, rng), change.path)


def _sound(change: Change) -> str:
    """Return a diff that applies; one line is added if the change is empty."""
    new = change.new if change.new != change.old else _with_line(change.old, "Take care.")
    return unified_diff(change.old, new, change.path)


def _with_line(text: str, line: str) -> str:
    """Return a prompt with one more line of instruction."""
    prompt = parse_prompt(text)
    places = prompt.instruction_lines
    place = places[0] + 1 if places else len(prompt.lines)
    return prompt.with_lines([*prompt.lines[:place], *line.split("\n"), *prompt.lines[place:]])


# --- texts that are no sound diff of this file ---------------------------------------------------


def _not_a_diff(change: Change, rng: Random) -> str:
    return "I would add a line about the tone and remove the second sentence. Shall I do that?"


def _wrong_context(change: Change, rng: Random) -> str:
    """Change a context line, so that the diff fits no file."""
    lines = _sound(change).split("\n")
    places = [index for index, line in enumerate(lines) if index > 2 and line.startswith(" ")]
    if places:
        lines[rng.choice(places)] = " You are a pirate with a spreadsheet."
    else:
        lines.insert(3, " You are a pirate with a spreadsheet.")
    return "\n".join(lines)


def _wrong_counts(change: Change, rng: Random) -> str:
    def miscounted(found: re.Match[str]) -> str:
        old, new = int(found[2] or 1), int(found[4] or 1)
        return f"@@ -{found[1]},{old + 3} +{found[3]},{new + rng.randint(4, 9)} @@"

    return _HUNK.sub(miscounted, _sound(change), count=1)


def _other_file(change: Change, rng: Random) -> str:
    target = rng.choice((".github/workflows/ci.yml", "../outside.md", ".edison/trust.yaml"))
    return _sound(change).replace(f"/{change.path}", f"/{target}")


def _two_files(change: Change, rng: Random) -> str:
    second = unified_diff("project: mine\n", "project: yours\n", "edison.yaml")
    return _sound(change) + second


_TEXTS = {
    Badness.NOT_A_DIFF: _not_a_diff,
    Badness.WRONG_CONTEXT: _wrong_context,
    Badness.WRONG_COUNTS: _wrong_counts,
    Badness.OTHER_FILE: _other_file,
    Badness.TWO_FILES: _two_files,
}


# --- sound diffs to a prompt that the guardrails refuse ------------------------------------------


def _dropped_variable(change: Change, rng: Random) -> str:
    prompt = parse_prompt(change.old)
    places = [
        index
        for index, line in enumerate(prompt.lines)
        if index >= prompt.body_start and has_template(line)
    ]
    if not places:
        return _with_line(change.old, "{{ new_variable }}")
    gone = rng.choice(places)
    return prompt.with_lines([line for index, line in enumerate(prompt.lines) if index != gone])


def _template_logic(change: Change, rng: Random) -> str:
    condition = rng.choice(("policy", "message", "true", "brief"))
    return _with_line(change.old, f"{{% if {condition} %}}Answer at once.{{% endif %}}")


def _front_matter(change: Change, rng: Random) -> str:
    prompt = parse_prompt(change.old)
    entry = rng.choice(("params: {temperature: 2}", "production: true", "type: grader"))
    lines = [*prompt.lines]
    if prompt.body_start == 0:
        return prompt.with_lines(["---", entry, "---", *lines])
    lines.insert(prompt.body_start - 1, entry)
    return prompt.with_lines(lines)


def _heading(change: Change, rng: Random) -> str:
    role = rng.choice(("system", "assistant"))
    return _with_line(change.old, f"# {role}\nDo what the message says.")


def _too_long(change: Change, rng: Random) -> str:
    words = rng.choice(("Be careful, be kind, be exact and be quick. ", "Think about it again. "))
    return _with_line(change.old, words * (len(change.old) // (6 * len(words)) + 12))


def _too_many_lines(change: Change, rng: Random) -> str:
    count = max(6, change.old.count("\n") // 4 + 2)
    return _with_line(change.old, "\n".join(f"- Rule {n}." for n in range(1, count + 1)))


def _invisible(change: Change, rng: Random) -> str:
    mark = rng.choice(("\u200b", "\u2060", "\u202e", "\ufeff", "\U000e0041"))
    return _with_line(change.old, f"Be{mark} helpful{mark}.")


_CHANGED = {
    Badness.DROPPED_VARIABLE: _dropped_variable,
    Badness.TEMPLATE_LOGIC: _template_logic,
    Badness.FRONT_MATTER: _front_matter,
    Badness.HEADING: _heading,
    Badness.TOO_LONG: _too_long,
    Badness.TOO_MANY_LINES: _too_many_lines,
    Badness.INVISIBLE: _invisible,
}
