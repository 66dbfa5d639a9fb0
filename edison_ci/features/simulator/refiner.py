"""Replies of the simulated refiner: small diffs of a prompt.

It reads what a real refiner reads: a prompt file, in a block `prompt` named by its path or in a
code fence, and the weak criteria, as JSON after `Criteria:` or by their names; other material is
ignored. It replies with a note and a unified diff of that one file: as JSON `{"note", "diff"}` if
the material is in blocks or JSON is requested, else as text with a fence.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.experiment import Refine
from edison_ci.documents.text_diff import unified_diff as lines_of_diff
from edison_ci.features.simulator.assignment import MAX_CHARS, find_task, parse_blocks
from edison_ci.features.simulator.judge import Criterion, criteria_in
from edison_ci.features.simulator.options import (
    Pace,
    SimOptions,
    draw_key,
    make_completion,
    random_stream,
)
from edison_ci.features.simulator.tasks import (
    Stance,
    Task,
    load_data,
    task_data,
    understanding_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from edison_ci.records import Completion, Request

_HEADING = re.compile(r"# (system|user|assistant)\s*$")
_FENCE = re.compile(r" {0,3}(?:```|~~~)")
_TEMPLATE = re.compile(r"\{\{[^{}]{0,500}\}\}|\{%[^{}]{0,500}%\}|\{#[^{}]{0,500}#\}")
_BRACES = re.compile(r"\{[A-Za-z_]\w*\}")


@dataclass(frozen=True, slots=True)
class PromptText:
    """The lines of a prompt file, with its headings."""

    lines: tuple[str, ...]
    """Without their line ends."""
    body_start: int
    """Index of the first line after the front matter."""
    headings: tuple[int, ...]
    newline: str
    ends_with_newline: bool

    @property
    def main_section(self) -> range:
        """Indexes of the lines of the last user section, or of a body without headings."""
        users = [index for index in self.headings if self.lines[index].startswith("# user")]
        start = users[-1] + 1 if users else self.body_start
        later = [index for index in self.headings if index >= start]
        return range(start, later[0] if later else len(self.lines))

    @property
    def instruction_lines(self) -> tuple[int, ...]:
        """Indexes of lines outside of the few-shots that have text and no variable."""
        sections = [self.main_section]
        systems = [index for index in self.headings if self.lines[index].startswith("# system")]
        for start in systems:
            later = [index for index in self.headings if index > start]
            sections.append(range(start + 1, later[0] if later else len(self.lines)))
        return tuple(
            index
            for section in sections
            for index in section
            if self.lines[index].strip() and not has_template(self.lines[index])
        )

    @property
    def instructions(self) -> str:
        """The text of the body without template syntax."""
        body = "\n".join(self.lines[self.body_start :])
        return _BRACES.sub(" ", _TEMPLATE.sub(" ", body))

    def with_lines(self, lines: list[str]) -> str:
        """Return the file with other lines."""
        return self.newline.join(lines) + (self.newline if self.ends_with_newline else "")


def has_template(line: str) -> bool:
    """Whether a line has template syntax."""
    return bool(_TEMPLATE.search(line) or _BRACES.search(line) or "{%" in line or "%}" in line)


def parse_prompt(text: str) -> PromptText:
    """Return a prompt file as lines; any text is accepted."""
    newline = "\r\n" if 0 < text.count("\n") == text.count("\r\n") else "\n"
    ends_with_newline = text.endswith(newline)
    lines = tuple(text.removesuffix(newline).split(newline))
    body_start = 0
    if lines[0].strip() == "---":
        ends = [index for index in range(1, len(lines)) if lines[index].strip() == "---"]
        body_start = ends[0] + 1 if ends else 0
    headings = []
    fenced = False
    for index in range(body_start, len(lines)):
        if _FENCE.match(lines[index]):
            fenced = not fenced
        elif not fenced and _HEADING.match(lines[index]):
            headings.append(index)
    return PromptText(lines, body_start, tuple(headings), newline, ends_with_newline)


_LIMITS = Refine()
_LONGEST_WISH = 80
"""Characters of a criterion that are repeated in an instruction."""


class Improvement(NamedTuple):
    """A new prompt text and a note on its purpose."""

    text: str
    note: str


@dataclass(frozen=True, slots=True)
class _Room:
    """The remaining size of a change."""

    chars: int
    lines: int

    def fits(self, chars: int, lines: int) -> bool:
        return chars <= self.chars and lines <= self.lines


_BULLET = re.compile(r"^(\s*)([-*]|\d+\.) ")


def improve(
    prompt_text: str, weak_criteria: Sequence[Criterion], rng: Random, *, rank: int = 0
) -> Improvement:
    """Return the prompt with one instruction added or reworded, inside the guardrails.

    One at a time, so that what is measured is the effect of this instruction. The weakest criteria
    decide, in their order; `rank` 1 asks for the second best idea, and so on. If nothing is missing
    a line is reworded, which changes no quality: a refiner does not know that it has no more ideas.
    """
    prompt = parse_prompt(prompt_text)
    task = task_of_prompt(prompt.instructions)
    room = room_for(prompt_text)
    lines, note = _without_opposites(prompt, task, room)
    if lines is not None:
        return Improvement(prompt.with_lines(lines), note)
    addition = _addition(prompt, task, weak_criteria, rng, rank)
    if addition is None:
        return _reword(prompt, rng)
    names = " and ".join(criterion.name for criterion in weak_criteria)
    why = f"Answers score lowest on {names}." if names else "The prompt does not ask for this yet."
    return Improvement(
        prompt.with_lines(_insert(prompt, addition)), f'{why} The new instruction: "{addition}"'
    )


def known_criteria(prompt_text: str) -> tuple[str, ...]:
    """Return the criteria, in lower case, that the refiner can improve in such a prompt."""
    return tuple(task_data(task_of_prompt(parse_prompt(prompt_text).instructions)).criteria)


def task_of_prompt(instructions: str) -> Task:
    """Return the task of a prompt."""
    lowered = instructions.lower()
    return find_task(lambda data: data.prompt_sign.search(lowered))


def room_for(prompt_text: str) -> _Room:
    """Return the size of a change that the guardrails allow for a prompt."""
    count = prompt_text.count("\n") + (not prompt_text.endswith("\n"))
    chars = int(max(_LIMITS.max_length_change * len(prompt_text), _LIMITS.max_length_chars))
    return _Room(chars, int(max(_LIMITS.max_lines_change * count, _LIMITS.max_lines)))


def _without_opposites(prompt: PromptText, task: Task, room: _Room) -> tuple[list[str] | None, str]:
    """Return the lines with an instruction against a quality corrected, or None."""
    for index in prompt.instruction_lines:
        line = prompt.lines[index]
        stances = understanding_of(task, line).stances
        wrong = [name for name, stance in stances.items() if stance is Stance.AGAINST]
        if not wrong:
            continue
        bullet = _BULLET.match(line)
        new = (bullet[0] if bullet else "") + task_data(task).feature(wrong[0]).lines[0]
        if room.fits(abs(len(new) - len(line)), 2):
            lines = [*prompt.lines]
            lines[index] = new
            return lines, f'Replaces "{line.strip()}", which asks for the opposite.'
    return None, ""


def _addition(
    prompt: PromptText, task: Task, weak: Sequence[Criterion], rng: Random, rank: int
) -> str | None:
    """Return a new instruction for the weak criteria; None if none fits."""
    stances = understanding_of(task, prompt.instructions).stances
    names = _wanted_features(task, weak)
    missing = [name for name in names if stances.get(name) is Stance.SILENT]
    choices = [task_data(task).feature(name).lines for name in missing]
    if task is Task.OTHER:
        choices = [_from_words(criterion) for criterion in weak]
    written = "\n".join(prompt.lines)
    room = room_for(prompt.with_lines([*prompt.lines]))
    new = [
        [line for line in lines if line not in written and room.fits(len(f"- {line}\n"), 1)]
        for lines in choices
    ]
    ideas = [lines for lines in new if lines]
    return rng.choice(ideas[rank % len(ideas)]) if ideas else None


def _wanted_features(task: Task, weak: Sequence[Criterion]) -> list[str]:
    data = task_data(task)
    helps = {name: entry.improved_by for name, entry in data.criteria.items()} | data.checks
    lists = [helps.get(criterion.name.lower().strip(), ()) for criterion in weak]
    # The best idea for each criterion first, then the second best ones, then the rest.
    turns = [names[turn] for turn in range(5) for names in lists if turn < len(names)]
    rest = (feature.name for feature in data.features)
    return list(dict.fromkeys([*turns, *data.order, *rest]))


def _from_words(criterion: Criterion) -> tuple[str, ...]:
    """Return instructions made of the words of a criterion."""
    sentence = criterion.description.split(". ")[0].strip().rstrip(".")
    wish = sentence if 0 < len(sentence) <= _LONGEST_WISH else criterion.name
    return (f"Mind this above all: {wish}.", f"A good answer is one that does this: {wish}.")


def _insert(prompt: PromptText, addition: str) -> list[str]:
    """Return the lines with the addition after the first paragraph of the main section."""
    section = prompt.main_section
    place = section.start
    while place < section.stop and not prompt.lines[place].strip():
        place += 1
    while place < section.stop and prompt.lines[place].strip() and not _is_data(prompt, place):
        place += 1
    return [*prompt.lines[:place], f"- {addition}", *prompt.lines[place:]]


def _is_data(prompt: PromptText, index: int) -> bool:
    """Whether a line begins with data of the case: a variable, or a label before one."""
    return re.match(r"\s*(?:[\w -]{0,30}:\s*)?\{[{%]", prompt.lines[index]) is not None


def _reword(prompt: PromptText, rng: Random) -> Improvement:
    """Return the prompt with one line reworded."""
    lines = [*prompt.lines]
    places = [index for index in prompt.instruction_lines if len(lines[index]) > 10]
    if not places:
        return Improvement(prompt.with_lines(lines), "Nothing to change was found.")
    index = rng.choice(places)
    mark = _BULLET.match(lines[index])
    head, rest = (mark[0], lines[index][mark.end() :]) if mark else ("", lines[index])
    for old, new in load_data("refining")["swaps"]:
        if rest.startswith(old):
            lines[index] = head + new + rest[len(old) :]
            return Improvement(
                prompt.with_lines(lines), "Rewords one instruction; nothing is missing."
            )
    lines[index] = f"{lines[index].rstrip()} This matters."
    return Improvement(prompt.with_lines(lines), "Stresses one instruction; nothing is missing.")


_NO_NEWLINE = "\\ No newline at end of file"
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.M)


class DiffFault(StrEnum):
    """How a proposed diff is broken or hostile."""

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
    """Return the change of a file as a diff for `git apply`; empty if there is none."""
    lines = lines_of_diff(_lines(old), _lines(new), f"a/{path}", f"b/{path}", end="\n")
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Return the lines with their line feeds; other characters end no line, as in Git."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def draw_diff_fault(rng: Random, rate: float) -> DiffFault | None:
    """Return the fault of a diff with probability `rate`, else None."""
    return rng.choice(tuple(DiffFault)) if rng.random() < rate else None


def faulty_diff(kind: DiffFault, change: Change, rng: Random) -> str:
    """Return a diff of the prompt with this fault."""
    if kind in _DIFF_FAULTS:
        return _broken_diff(kind, change, rng)
    lines = load_data("refining")["refused_lines"].get(kind.name.lower())
    new = _with_line(change.old, rng.choice(lines)) if lines else _refused(kind, change.old, rng)
    return unified_diff(change.old, new, change.path)


def _valid_diff(change: Change) -> str:
    """Return a diff that applies; one line is added if the change is empty."""
    new = change.new if change.new != change.old else _with_line(change.old, "Take care.")
    return unified_diff(change.old, new, change.path)


def _with_line(text: str, line: str) -> str:
    """Return a prompt with one more line of instruction."""
    prompt = parse_prompt(text)
    places = prompt.instruction_lines
    place = places[0] + 1 if places else len(prompt.lines)
    return prompt.with_lines([*prompt.lines[:place], *line.split("\n"), *prompt.lines[place:]])


_DIFF_FAULTS = (
    DiffFault.NOT_A_DIFF,
    DiffFault.WRONG_CONTEXT,
    DiffFault.WRONG_COUNTS,
    DiffFault.OTHER_FILE,
    DiffFault.TWO_FILES,
)
"""Texts that are not a valid diff of the file; the others change it in a way that is refused."""


def _broken_diff(kind: DiffFault, change: Change, rng: Random) -> str:
    if kind is DiffFault.NOT_A_DIFF:
        return "I would add a line about the tone and remove the second sentence. Shall I do that?"
    diff = _valid_diff(change)
    if kind is DiffFault.WRONG_CONTEXT:
        return _with_wrong_context(diff.split("\n"), rng)
    if kind is DiffFault.WRONG_COUNTS:
        return _HUNK.sub(lambda header: _miscounted(header, rng), diff, count=1)
    if kind is DiffFault.OTHER_FILE:
        target = rng.choice((".github/workflows/ci.yml", "../outside.md", ".edison/trust.yaml"))
        return diff.replace(f"/{change.path}", f"/{target}")
    return diff + unified_diff("project: mine\n", "project: yours\n", "edison.yaml")


def _with_wrong_context(lines: list[str], rng: Random) -> str:
    wrong = " You are a pirate with a spreadsheet."
    places = [index for index, line in enumerate(lines) if index > 2 and line.startswith(" ")]
    if places:
        lines[rng.choice(places)] = wrong
    else:
        lines.insert(3, wrong)
    return "\n".join(lines)


def _miscounted(header: re.Match[str], rng: Random) -> str:
    old, new = int(header[2] or 1), int(header[4] or 1)
    return f"@@ -{header[1]},{old + 3} +{header[3]},{new + rng.randint(4, 9)} @@"


def _refused(kind: DiffFault, text: str, rng: Random) -> str:
    """Return the prompt with a change that the guardrails refuse."""
    if kind is DiffFault.TOO_LONG:
        words = rng.choice(load_data("refining")["padding"])
        return _with_line(text, words * (len(text) // (6 * len(words)) + 12))
    if kind is DiffFault.TOO_MANY_LINES:
        count = max(6, text.count("\n") // 4 + 2)
        return _with_line(text, "\n".join(f"- Rule {n}." for n in range(1, count + 1)))
    prompt = parse_prompt(text)
    lines = [*prompt.lines]
    if kind is DiffFault.FRONT_MATTER:
        entry = rng.choice(load_data("refining")["entries"])
        if prompt.body_start == 0:
            return prompt.with_lines(["---", entry, "---", *lines])
        lines.insert(prompt.body_start - 1, entry)
        return prompt.with_lines(lines)
    places = [i for i in range(prompt.body_start, len(lines)) if has_template(lines[i])]
    if not places:
        return _with_line(text, "{{ new_variable }}")
    del lines[rng.choice(places)]
    return prompt.with_lines(lines)


PACE = Pace(400.0, 12.0)
_FENCED = re.compile(r"^(```+|~~~+)[^\n]*\n(.*?)^\1\s*$", re.M | re.S)
_LOOKS_LIKE_A_PROMPT = re.compile(r"\A---\n|^# (?:system|user)\s*$|\{\{.{1,200}\}\}", re.M)
_PATH = re.compile(r"\b(?:[\w.-]+/)+[\w.-]+\.md\b")
_ID = re.compile(r"\A---\n(?:[^\n]*\n)*?id:\s*([\w.-]+)\s*$", re.M)
_JSON = re.compile(r"\bjson\b", re.I)
_REFUSED = "you wrote before was refused"


class RefineTask(NamedTuple):
    """The prompt to refine, and its weak criteria."""

    path: str
    text: str
    weak: tuple[Criterion, ...]
    as_json: bool
    rank: int = 0
    """How many better ideas other replies have: those to repeats, and refused ones."""


def refine(request: Request, options: SimOptions | None = None) -> Completion:
    """Return a proposal, determined by the hash of the request and the seed."""
    options = options or SimOptions()
    rng = random_stream(draw_key(request), options.seed, "refine")
    task = parse_task(request)
    proposal = improve(task.text, task.weak, rng, rank=task.rank)
    diff = unified_diff(task.text, proposal.text, task.path)
    fault = draw_diff_fault(rng, options.bad_diff_rate)
    if fault is not None:
        diff = faulty_diff(fault, Change(task.path, task.text, proposal.text), rng)
    reply = f"{proposal.note}\n\n```diff\n{diff}```"
    if task.as_json:
        reply = json.dumps({"note": proposal.note, "diff": diff}, ensure_ascii=False)
    return make_completion(request, options, reply, PACE, rng)


def parse_task(request: Request) -> RefineTask:
    """Return the task of a request."""
    message = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
    system = "\n".join(m.content for m in request.messages if m.role == "system")
    message, system = message[:MAX_CHARS], system[:MAX_CHARS]
    blocks = parse_blocks(message)
    block = next((block for block in blocks or () if block.tag == "prompt"), None)
    text = block.text if block is not None else _prompt_in(message)
    rest = message.replace(text, "\n") if text != message else ""
    around = f"{system}\n{rest}"
    path = block.name if block is not None else ""
    path = path if _PATH.fullmatch(path) else _path(around, text)
    weak = [*criteria_in(system), *criteria_in(rest)] or [*_criteria_by_name(around, text)]
    structured = blocks is not None or request.response_format is not None
    as_json = structured or bool(_JSON.search(around))
    rank = request.repeat + rest.count(_REFUSED)
    return RefineTask(path, text, tuple(weak), as_json, rank)


def _prompt_in(message: str) -> str:
    """Return the text of the fence that looks most like a prompt; all without fences."""
    fenced = [fence[2] for fence in _FENCED.finditer(message)]
    likely = [text for text in fenced if _LOOKS_LIKE_A_PROMPT.search(text)]
    return (likely or fenced or [message])[0]


def _path(around: str, text: str) -> str:
    if path := _PATH.search(around):
        return path[0]
    name = _ID.match(text)
    return f"prompts/{name[1] if name else 'prompt'}.md"


def _criteria_by_name(around: str, text: str) -> Iterator[Criterion]:
    """Yield the criteria of the task that a message names, in its order."""
    lowered = around.lower()
    places: Sequence[tuple[int, str]] = sorted(
        (place, name) for name in known_criteria(text) if (place := lowered.find(name)) >= 0
    )
    for _, name in places:
        yield Criterion(name.capitalize())
