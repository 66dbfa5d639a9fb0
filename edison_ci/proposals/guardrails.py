"""Guardrails: rules that a diff must pass before it is measured.

A refiner is an external model that has read untrusted texts, so its reply counts as a suggestion of
a small change to the instructions and nothing more. Each rule reports what it found and its limit.
All rules are checked, so that everything can be corrected at once. The details are sent back to the
refiner: changing their wording changes its requests.
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
from edison_ci.documents.text_diff import PatchRefused
from edison_ci.proposals.candidate import Candidate, change_of
from edison_ci.store.suggestions import Guardrail, MadeBy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from edison_ci.config.experiment import Refine
    from edison_ci.config.prompt import Prompt
    from edison_ci.proposals.candidate import Change, RefineTarget
    from edison_ci.records import Case, Json


# A prompt that contains its test cases scores well on them and proves nothing. So a change must not
# add long runs of words from a case. The words of the change are few and are held in memory; the
# cases, which may be many, are streamed once. In scripts without spaces between words (_UNSPACED) a
# character counts as half a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_TEMPLATE = (("{{", "}}"), ("{%", "%}"), ("{#", "#}"))
_FULL, _HALF = 2, 1


class _Windows(NamedTuple):
    """Runs of words, and their lengths."""

    sizes: frozenset[int]
    runs: frozenset[tuple[str, ...]]


def words_of(text: str) -> list[str]:
    """Return the words of a text for comparison: case-folded, without punctuation."""
    return _WORD.findall(text.casefold())


def copied_run(lines: Iterable[str], before: str, texts: Iterable[str], *, longest: int) -> str:
    """Return a run of more than `longest` words that the lines share with a text, or ''.

    Runs that the prompt had before do not count.
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
    before_runs = {
        tuple(old[start : start + size]) for size in sizes for start in range(len(old) - size + 1)
    }
    return _Windows(sizes, frozenset(runs - before_runs))


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
    """Yield, from each word on, the shortest run that counts as `least` words."""
    unspaced = re.compile(f"[{_UNSPACED}]")
    worths = [_HALF if unspaced.match(word) else _FULL for word in words]
    worth = stop = 0
    for start, left in enumerate(worths):
        while worth < _FULL * least and stop < len(words):
            worth += worths[stop]
            stop += 1
        if worth < _FULL * least:
            return
        yield tuple(words[start:stop])
        worth -= left


def texts_of(cases: Iterable[Case]) -> Iterator[str]:
    """Yield the inputs and expected outputs of cases."""
    for case in cases:
        for value in (*case.inputs.values(), case.expected):
            if value is not None:
                yield _text(value)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


WIDER = {MadeBy.REFINE: 1, MadeBy.OPTIMIZE: 4}
"""Factor on the limits of length and lines, by origin of the change.

A search finds a chain of small changes, each within the limits of one refinement; four of them are
about what a person can still review in one pull request. All other rules are the same for both.
"""
APPLIES = "applies"
"""Name of the first rule: the diff applies. Without that, no other rule can be checked."""
_MOST_LISTED = 3
_EXPRESSION = {
    "jinja": re.compile(r"\{\{.*?\}\}", re.S),
    "braces": re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}"),
}
_HEADING = re.compile(r"^# (system|user|assistant)\s*$", re.M)
_LOGIC = re.compile(r"\{%.*?%\}|\{#.*?#\}", re.S)
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Characters that are invisible although their category is a letter or mark."""
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
NEEDED = "\u200c\u200d\ufe0f"
"""Joiners that some scripts and emoji need: allowed if the prompt already uses them."""


class RuleResult(NamedTuple):
    """Result of one rule for a change."""

    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class GuardrailContext:
    """What the rules need besides the change itself."""

    cases: Callable[[], Iterable[Case]] = tuple
    """Reads the cases of the experiment."""
    answers: tuple[str, ...] = ()
    """Answers in the refiner's request."""
    known: Mapping[str, str] = field(default_factory=dict)
    """Prompt versions that must not be suggested again, with the reason."""
    made_by: MadeBy = MadeBy.REFINE
    """Origin of the change, which decides its limits."""
    further: Callable[[Change], Iterable[Guardrail]] = lambda _: ()
    """Returns further broken rules of the change."""

    @property
    def wider(self) -> int:
        """Factor on the limits of length and lines."""
        return WIDER[self.made_by]


@dataclass(frozen=True, slots=True)
class Rule:
    """A guardrail."""

    name: str
    description: str
    limit: str
    """Keys of `refine` that configure it; empty if none does."""
    check: Callable[[Change, GuardrailContext], RuleResult | None]
    """Returns None where the rule does not apply."""


def check_diff(
    target: RefineTarget, diff: str, note: str, background: GuardrailContext
) -> Candidate:
    """Apply a diff and check every guardrail."""
    try:
        change = change_of(target, diff)
    except PatchRefused as refused:
        return Candidate(diff, note, (Guardrail(APPLIES, False, refused.reason),))
    return Candidate(str(change.patch), note, check_change(change, background), change)


def check_change(change: Change, background: GuardrailContext) -> tuple[Guardrail, ...]:
    """Return the results of all guardrails for a change."""
    lines = len(change.patch.added) + len(change.patch.removed)
    path = change.target.prompt.path
    rails = [Guardrail(APPLIES, True, f"{lines} lines of {path}, where it says")]
    for rule in RULES:
        result = rule.check(change, background)
        if result is not None:
            rails.append(Guardrail(rule.name, *result))
    return (*rails, *background.further(change))


class SizeLimits(NamedTuple):
    """How much of a prompt one refinement may change."""

    chars: int
    lines: int


def size_limits(target: RefineTarget) -> SizeLimits:
    """Return how much longer or shorter a prompt may become, and how many lines may differ."""
    limits, text = target.limits, target.text
    return SizeLimits(
        max(int(limits.max_length_change * len(text)), limits.max_length_chars),
        max(int(limits.max_lines_change * _count(text)), limits.max_lines),
    )


def _length(change: Change, background: GuardrailContext) -> RuleResult:
    before = len(change.target.text)
    grown = len(change.text) - before
    most = size_limits(change.target).chars * background.wider
    return RuleResult(abs(grown) <= most, f"{grown:+,} characters of {before:,}; at most {most:,}")


def _lines(change: Change, background: GuardrailContext) -> RuleResult:
    before = _count(change.target.text)
    lines = len(change.patch.added) + len(change.patch.removed)
    most = size_limits(change.target).lines * background.wider
    return RuleResult(lines <= most, f"{lines} lines added or removed of {before}; at most {most}")


def _removed_run(change: Change, _: GuardrailContext) -> RuleResult:
    run, most = change.patch.longest_removal, change.target.limits.max_removed_run
    return RuleResult(run <= most, f"{run} lines in a row removed; at most {most}")


def _count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _is_locked(part: str, limits: Refine) -> bool:
    return part not in limits.allow


def _front_matter(change: Change, _: GuardrailContext) -> RuleResult:
    same = _front(change.target.text) == _front(change.text)
    if same or not _is_locked("front_matter", change.target.limits):
        return RuleResult(True, "as it was" if same else "changed, which refine.allow permits")
    return RuleResult(False, "the front matter changed; it is locked")


def _front(text: str) -> str:
    """Return the front matter with its delimiters; empty if there is none."""
    lines = text.split("\n")
    marks = [number for number, line in enumerate(lines) if line.rstrip() == "---"]
    return "\n".join(lines[: marks[1] + 1]) if len(marks) > 1 and not marks[0] else ""


def _roles(change: Change, _: GuardrailContext) -> RuleResult:
    before, after = (_HEADING.findall(text) for text in (change.target.text, change.text))
    same = before == after
    if same and change.prompt is not None:  # a new code fence can hide a heading
        before, after = (
            [section.role for section in prompt.sections]
            for prompt in (change.target.prompt, change.prompt)
        )
        same = before == after
    if same or not _is_locked("roles", change.target.limits):
        return RuleResult(True, ", ".join(after) or "none")
    sections = f"the sections were {', '.join(before)} and would be {', '.join(after) or 'none'}"
    return RuleResult(False, f"{sections}; role headings are locked")


def _few_shots(change: Change, _: GuardrailContext) -> RuleResult | None:
    if change.prompt is None:
        return None
    before, after = _shots(change.target.prompt), _shots(change.prompt)
    if before == after or not _is_locked("few_shots", change.target.limits):
        return RuleResult(True, f"{len(after) // 2} pairs")
    return RuleResult(False, "a few-shot example changed; they are locked")


def _shots(prompt: Prompt) -> list[tuple[str, str]]:
    """Return role and text of the few-shot messages before the last question."""
    messages = [section for section in prompt.sections if section.role != "system"]
    return [(section.role, section.template.source) for section in messages[:-1]]


def _variables(change: Change, _: GuardrailContext) -> RuleResult | None:
    if change.prompt is None:
        return None
    before, after = (_expressions(p) for p in (change.target.prompt, change.prompt))
    if before == after or not _is_locked("variables", change.target.limits):
        return RuleResult(True, f"{after.total()} used")
    differences = [f"{what} {_quote_names(names)}" for what, names in _differing(before, after)]
    return RuleResult(False, f"{' and '.join(differences)}; variables are locked")


def _differing(before: Counter[str], after: Counter[str]) -> Iterator[tuple[str, Counter[str]]]:
    for what, names in (("drops", before - after), ("adds", after - before)):
        if names:
            yield what, names


def _quote_names(names: Iterable[str]) -> str:
    listed = [*names]
    more = ", ..." if len(listed) > _MOST_LISTED else ""
    return ", ".join(map(brief, listed[:_MOST_LISTED])) + more


def _expressions(prompt: Prompt) -> Counter[str]:
    pattern = _EXPRESSION[prompt.header.syntax]
    expressions: Counter[str] = Counter()
    for section in prompt.sections:
        expressions.update(
            "".join(expression.split()) for expression in pattern.findall(section.template.source)
        )
    return expressions


def _logic(change: Change, _: GuardrailContext) -> RuleResult | None:
    if change.target.prompt.header.syntax == "braces":
        return None
    before, after = (Counter(_LOGIC.findall(text)) for text in (change.target.text, change.text))
    added = after - before
    if not added:
        return RuleResult(True, "none added")
    return RuleResult(
        False, f"adds {_quote_names(added)}; a refinement changes words, not template logic"
    )


def _valid(change: Change, _: GuardrailContext) -> RuleResult:
    if change.experiment is not None:
        return RuleResult(True, "the project is valid with it")
    problems = "; ".join(
        f"line {p.where.line}: {p.message}" for p in change.problems[:_MOST_LISTED]
    )
    return RuleResult(False, problems or "the project is not valid with it")


def _output(change: Change, _: GuardrailContext) -> RuleResult | None:
    if change.prompt is None:
        return None
    before, after = change.target.prompt.expect, change.prompt.expect
    same = before == after or not _is_locked("front_matter", change.target.limits)
    if same:
        return RuleResult(True, f"{after}, as before")
    forms = f"answers had to be {before} and would have to be {after}"
    return RuleResult(False, f"{forms}: the text asks for another form than before")


def _new(change: Change, background: GuardrailContext) -> RuleResult | None:
    if change.prompt is None:
        return None
    if change.prompt.version == change.target.prompt.version:
        return RuleResult(False, "nothing that reaches the model changes")
    earlier = background.known.get(change.prompt.version)
    return RuleResult(earlier is None, earlier or "not tried before")


def _invisible(change: Change, _: GuardrailContext) -> RuleResult:
    before = change.target.text
    needed = "".join(character for character in NEEDED if character in before)
    for line in change.patch.added:
        if unseen := unseen_in(line, but=needed):
            return RuleResult(False, f"adds {unseen}, which cannot be seen")
    return RuleResult(True, "none added")


def unseen_in(text: str, *, but: str = "") -> str:
    """Return the first invisible character, with its name; empty if there is none."""
    for character in text:
        if _unseen(character) and character not in but:
            return f"U+{ord(character):04X} ({unicodedata.name(character, 'no name').lower()})"
    return ""


def _unseen(character: str) -> bool:
    if character in " \t" or (character.isascii() and character.isprintable()):
        return False
    hidden = unicodedata.category(character) in _HIDDEN or character in _BLANK
    return hidden or _SELECTORS.match(character) is not None


def _secrets(change: Change, _: GuardrailContext) -> RuleResult:
    secret = next(secrets_in("\n".join(change.patch.added)), None)
    return RuleResult(secret is None, "none" if secret is None else secret.message)


def _copied_text(change: Change, background: GuardrailContext) -> RuleResult:
    longest = change.target.limits.max_copied_words

    def texts() -> Iterator[str]:
        yield from background.answers
        yield from texts_of(background.cases())

    run = copied_run(change.patch.added, change.target.text, texts(), longest=longest)
    if not run:
        return RuleResult(True, f"no more than {longest} words in a row are those of a case")
    # The refiner wrote these words itself, so quoting them reveals nothing of a case.
    return RuleResult(
        False, f"copies more than {longest} words of a case or its answer: {brief(run)}"
    )


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
        "Only a limited number of consecutive lines is removed.",
        "max_removed_run",
        _removed_run,
    ),
    Rule("front_matter", "The front matter is unchanged.", "allow", _front_matter),
    Rule("roles", "The role headings are unchanged.", "allow", _roles),
    Rule("few_shots", "Few-shot examples are unchanged.", "allow", _few_shots),
    Rule(
        "variables",
        "The same variables are used, equally often and with the same filters.",
        "allow",
        _variables,
    ),
    Rule("template_logic", "No template block or comment is added.", "", _logic),
    Rule(
        "output",
        "The expected form of answers (`expect`) stays the same.",
        "allow (front_matter)",
        _output,
    ),
    Rule(
        "copied_text",
        "No long run of words is copied from a case or from an answer that the refiner saw.",
        "max_copied_words",
        _copied_text,
    ),
    Rule("invisible", "No invisible character is added.", "", _invisible),
    Rule("secrets", "Nothing that looks like a key or a token is added.", "", _secrets),
    Rule(
        "new",
        "It changes what reaches the model, and was not measured or rejected before.",
        "",
        _new,
    ),
)
"""Every guardrail except the first (`applies`: the diff applies exactly, to this one file)."""
