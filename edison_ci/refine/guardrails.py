"""Guardrails: what a diff must keep before it is tried.

A refiner is somebody else's model that has read somebody else's texts: what it writes is taken as a
suggestion of a small change to the instructions, and nothing else. Each rule answers for itself,
with what it found and where its limit is. A diff is looked at by all of them, so that whoever wrote
it can mend everything at once.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import brief, secrets_in
from edison_ci.refine.candidate import Candidate, change_of
from edison_ci.refine.patch import PatchRefused
from edison_ci.store.suggestions import Guardrail, MadeBy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from edison_ci.config.decisions import Refine
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Case, Json
    from edison_ci.refine.candidate import Change, Subject


# Scripts that write no blanks between words; there a character counts as half a word.
# A prompt that contains its test cases does well on them and proves nothing. So a run of words
# that a case has, and that the prompt did not have before, may not be long. The words of the
# change are few and are held in memory; the cases, which may be many, are read once.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_TEMPLATE = (("{{", "}}"), ("{%", "%}"), ("{#", "#}"))
_FULL, _HALF = 2, 1


class _Windows(NamedTuple):
    """Runs of words, by the number of words in them."""

    sizes: frozenset[int]
    runs: frozenset[tuple[str, ...]]


def words_of(text: str) -> list[str]:
    """Return the words of a text as they are compared: without case, marks and blanks."""
    return _WORD.findall(text.casefold())


def copied(lines: Iterable[str], before: str, texts: Iterable[str], *, longest: int) -> str:
    """Return a run of more than `longest` words that the lines share with a text; '' if none.

    Runs that stood in the prompt before are its own.
    """
    windows = _windows(lines, before, longest + 1)
    if not windows.runs:
        return ""
    for text in texts:
        words = words_of(text)
        for size in windows.sizes:
            for start in range(len(words) - size + 1):
                run = tuple(words[start : start + size])
                if run in windows.runs:
                    return " ".join(run)
    return ""


def _windows(lines: Iterable[str], before: str, least: int) -> _Windows:
    old = words_of(before)
    runs: set[tuple[str, ...]] = set()
    for line in lines:
        words = words_of(_without_templates(line))
        runs.update(_runs(words, least))
    sizes = frozenset(map(len, runs))
    known = {
        tuple(old[start : start + size]) for size in sizes for start in range(len(old) - size + 1)
    }
    return _Windows(sizes, frozenset(runs - known))


def _without_templates(text: str) -> str:
    for opening, closing in _TEMPLATE:
        pieces, at = [], 0
        while (start := text.find(opening, at)) >= 0:
            end = text.find(closing, start + 2)
            if end < 0:
                break
            pieces.append(text[at:start])
            at = end + 2
        text = " ".join([*pieces, text[at:]])
    return text


def _runs(words: list[str], least: int) -> Iterator[tuple[str, ...]]:
    """Yield the shortest run from each word that is worth so many words."""
    for start in range(len(words)):
        worth = 0
        for stop in range(start, len(words)):
            worth += _HALF if re.match(f"[{_UNSPACED}]", words[stop]) else _FULL
            if worth >= _FULL * least:
                yield tuple(words[start : stop + 1])
                break


def texts_of(cases: Iterable[Case]) -> Iterator[str]:
    """Yield what stands in cases: their inputs and what they expect."""
    for case in cases:
        for value in (*case.inputs.values(), case.expected):
            if value is not None:
                yield _text(value)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


WIDER = {MadeBy.REFINE: 1, MadeBy.OPTIMIZE: 4}
"""How many times further than one reply a change may go, in length and in lines.

What a search finds is a chain of small changes, each of which kept the limits by itself. Four of
them are about what a person can still read in one pull request. Everything else is the same for
both: what is locked, what may not be added, and how many lines in a row may be taken away.
"""
APPLIES = "applies"
"""The rule that comes first: without it there is nothing to look at."""
_LISTED = 3
_EXPRESSION = {
    "jinja": re.compile(r"\{\{.*?\}\}", re.S),
    "braces": re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}"),
}
_HEADING = re.compile(r"^# (system|user|assistant)\s*$", re.M)
_LOGIC = re.compile(r"\{%.*?%\}|\{#.*?#\}", re.S)
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Characters that are letters or marks by their class, and are not seen all the same."""
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_NEEDED = "\u200c\u200d\ufe0f"
"""Joiners, without which some scripts and emoji cannot be written: fine where they were before."""


class Found(NamedTuple):
    """What a rule says of a change."""

    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Background:
    """What has to be known beside the change itself."""

    cases: Callable[[], Iterable[Case]] = tuple
    """Reads the cases of the experiment."""
    answers: tuple[str, ...] = ()
    """Answers that the refiner was shown."""
    known: Mapping[str, str] = field(default_factory=dict)
    """Versions of the prompt that are out of the question, and why."""
    made_by: MadeBy = MadeBy.REFINE
    """Whose change it is, which decides how far it may go."""
    further: Callable[[Change], Iterable[Guardrail]] = lambda _: ()
    """Says which other rules the change breaks, beside those of every change."""

    @property
    def wider(self) -> int:
        """How many times further than one reply the change may go."""
        return WIDER[self.made_by]


@dataclass(frozen=True, slots=True)
class Rule:
    """A guardrail."""

    name: str
    says: str
    """What must hold, for people."""
    limit: str
    """Keys of `refine` that set it; empty if nothing does."""
    look: Callable[[Change, Background], Found | None]
    """Returns None where there is nothing to look at."""


def judged(subject: Subject, diff: str, note: str, background: Background) -> Candidate:
    """Return the candidate that a diff makes, with what every guardrail says of it."""
    try:
        change = change_of(subject, diff)
    except PatchRefused as refused:
        return Candidate(diff, note, (Guardrail(APPLIES, False, refused.reason),))
    return Candidate(str(change.patch), note, rails_of(change, background), change)


def rails_of(change: Change, background: Background) -> tuple[Guardrail, ...]:
    """Return what every guardrail says of a change."""
    lines = len(change.patch.added) + len(change.patch.removed)
    path = change.subject.prompt.path
    rails = [Guardrail(APPLIES, True, f"{lines} lines of {path}, where it says")]
    for rule in RULES:
        found = rule.look(change, background)
        if found is not None:
            rails.append(Guardrail(rule.name, *found))
    return (*rails, *background.further(change))


# --- how much -------------------------------------------------------------------------------------


def _length(change: Change, background: Background) -> Found:
    before, limits = len(change.subject.text), change.subject.limits
    grown = len(change.text) - before
    most = max(int(limits.max_length_change * before), limits.max_length_chars) * background.wider
    return Found(abs(grown) <= most, f"{grown:+,} characters of {before:,}; at most {most:,}")


def _lines(change: Change, background: Background) -> Found:
    before, limits = _count(change.subject.text), change.subject.limits
    lines = len(change.patch.added) + len(change.patch.removed)
    most = max(int(limits.max_lines_change * before), limits.max_lines) * background.wider
    return Found(lines <= most, f"{lines} lines added or removed of {before}; at most {most}")


def _removed_run(change: Change, _: Background) -> Found:
    run, most = change.patch.longest_removal, change.subject.limits.max_removed_run
    return Found(run <= most, f"{run} lines in a row removed; at most {most}")


def _count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


# --- which parts ----------------------------------------------------------------------------------


def _locked(part: str, limits: Refine) -> bool:
    return part not in limits.allow


def _front_matter(change: Change, _: Background) -> Found:
    same = _front(change.subject.text) == _front(change.text)
    if same or not _locked("front_matter", change.subject.limits):
        return Found(True, "as it was" if same else "changed, which refine.allow permits")
    return Found(False, "the front matter changed; it is locked")


def _front(text: str) -> str:
    """Return the front matter with the lines that mark it; empty if there is none."""
    lines = text.split("\n")
    marks = [number for number, line in enumerate(lines) if line.rstrip() == "---"]
    return "\n".join(lines[: marks[1] + 1]) if len(marks) > 1 and not marks[0] else ""


def _roles(change: Change, _: Background) -> Found:
    before, after = (_HEADING.findall(text) for text in (change.subject.text, change.text))
    same = before == after
    if same and change.prompt is not None:  # a code fence may swallow a heading that is still there
        before, after = (
            [section.role for section in prompt.sections]
            for prompt in (change.subject.prompt, change.prompt)
        )
        same = before == after
    if same or not _locked("roles", change.subject.limits):
        return Found(True, ", ".join(after) or "none")
    said = f"the sections were {', '.join(before)} and would be {', '.join(after) or 'none'}"
    return Found(False, f"{said}; role headings are locked")


def _few_shots(change: Change, _: Background) -> Found | None:
    if change.prompt is None:
        return None
    before, after = _shots(change.subject.prompt), _shots(change.prompt)
    if before == after or not _locked("few_shots", change.subject.limits):
        return Found(True, f"{len(after) // 2} pairs")
    return Found(False, "a few-shot example changed; they are locked")


def _shots(prompt: Prompt) -> list[tuple[str, str]]:
    """Return the pairs of questions and answers before the last question."""
    said = [section for section in prompt.sections if section.role != "system"]
    return [(section.role, section.template.source) for section in said[:-1]]


def _variables(change: Change, _: Background) -> Found | None:
    if change.prompt is None:
        return None
    before, after = (_expressions(p) for p in (change.subject.prompt, change.prompt))
    if before == after or not _locked("variables", change.subject.limits):
        return Found(True, f"{after.total()} used")
    said = [f"{what} {_named(names)}" for what, names in _differing(before, after)]
    return Found(False, f"{' and '.join(said)}; variables are locked")


def _differing(before: Counter[str], after: Counter[str]) -> Iterator[tuple[str, Counter[str]]]:
    for what, names in (("drops", before - after), ("adds", after - before)):
        if names:
            yield what, names


def _named(names: Iterable[str]) -> str:
    listed = [*names]
    more = ", ..." if len(listed) > _LISTED else ""
    return ", ".join(map(brief, listed[:_LISTED])) + more


def _expressions(prompt: Prompt) -> Counter[str]:
    pattern = _EXPRESSION[prompt.header.syntax]
    found: Counter[str] = Counter()
    for section in prompt.sections:
        found.update("".join(one.split()) for one in pattern.findall(section.template.source))
    return found


def _logic(change: Change, _: Background) -> Found | None:
    if change.subject.prompt.header.syntax == "braces":
        return None
    before, after = (Counter(_LOGIC.findall(text)) for text in (change.subject.text, change.text))
    added = after - before
    if not added:
        return Found(True, "none added")
    return Found(False, f"adds {_named(added)}; a refinement changes words, not template logic")


# --- what it says ---------------------------------------------------------------------------------


def _valid(change: Change, _: Background) -> Found:
    if change.experiment is not None:
        return Found(True, "the project is valid with it")
    said = "; ".join(f"line {p.where.line}: {p.message}" for p in change.problems[:_LISTED])
    return Found(False, said or "the project is not valid with it")


def _output(change: Change, _: Background) -> Found | None:
    if change.prompt is None:
        return None
    before, after = change.subject.prompt.expect, change.prompt.expect
    same = before == after or not _locked("front_matter", change.subject.limits)
    if same:
        return Found(True, f"{after}, as before")
    said = f"answers had to be {before} and would have to be {after}"
    return Found(False, f"{said}: the prompt says json or <response> otherwise than before")


def _new(change: Change, background: Background) -> Found | None:
    if change.prompt is None:
        return None
    if change.prompt.version == change.subject.prompt.version:
        return Found(False, "nothing that reaches the model changes")
    known = background.known.get(change.prompt.version)
    return Found(known is None, known or "not tried before")


def _invisible(change: Change, _: Background) -> Found:
    before = change.subject.text
    for line in change.patch.added:
        for character in line:
            if _unseen(character) and not (character in _NEEDED and character in before):
                name = unicodedata.name(character, "no name").lower()
                return Found(False, f"adds U+{ord(character):04X} ({name}), which nobody can see")
    return Found(True, "none added")


def _unseen(character: str) -> bool:
    if character in " \t" or (character.isascii() and character.isprintable()):
        return False
    hidden = unicodedata.category(character) in _HIDDEN or character in _BLANK
    return hidden or _SELECTORS.match(character) is not None


def _secrets(change: Change, _: Background) -> Found:
    found = next(secrets_in("\n".join(change.patch.added)), None)
    return Found(found is None, "none" if found is None else found.message)


def _copied(change: Change, background: Background) -> Found:
    longest = change.subject.limits.max_copied_words

    def texts() -> Iterator[str]:
        yield from background.answers
        yield from texts_of(background.cases())

    run = copied(change.patch.added, change.subject.text, texts(), longest=longest)
    if not run:
        return Found(True, f"no more than {longest} words in a row are those of a case")
    # The words are the writer's own, so that telling them tells nothing of a case.
    return Found(False, f"copies more than {longest} words of a case or its answer: {brief(run)}")


RULES = (
    Rule(
        "valid",
        "The project is valid with it, and the prompt within its limits.",
        "",
        _valid,
    ),
    Rule(
        "length",
        "The length changes by at most the larger of a share and a number of characters.",
        "max_length_change, max_length_chars",
        _length,
    ),
    Rule(
        "lines",
        "Added and removed lines are at most the larger of a share and a number.",
        "max_lines_change, max_lines",
        _lines,
    ),
    Rule(
        "removed_run",
        "So many lines in a row are removed at most.",
        "max_removed_run",
        _removed_run,
    ),
    Rule("front_matter", "The front matter stays as it is.", "allow", _front_matter),
    Rule("roles", "The headings of sections stay as they are.", "allow", _roles),
    Rule("few_shots", "Few-shot examples stay as they are.", "allow", _few_shots),
    Rule(
        "variables",
        "The same variables are used, as often and with the same filters.",
        "allow",
        _variables,
    ),
    Rule(
        "template_logic", "No block and no comment of the template language is added.", "", _logic
    ),
    Rule(
        "output",
        "Answers are expected in the same form (`expect`) as before.",
        "allow (front_matter)",
        _output,
    ),
    Rule(
        "copied_text",
        "No long run of words is that of a case or of an answer that the refiner was shown.",
        "max_copied_words",
        _copied,
    ),
    Rule("invisible", "No character is added that nobody can see.", "", _invisible),
    Rule("secrets", "Nothing that looks like a key or a token is added.", "", _secrets),
    Rule(
        "new",
        "It changes what reaches the model, and was not tried or rejected before.",
        "",
        _new,
    ),
)
"""Every guardrail but the first, which is that the diff applies exactly, to this one file."""
