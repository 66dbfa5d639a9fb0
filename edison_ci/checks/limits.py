"""Checks of limits: words, characters, sentences, tokens, cost and latency."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from edison_ci.checks.evaluation import Grade, quote, refuse_long
from edison_ci.checks.options import Check, Count, Range, TrimmedCheck
from edison_ci.numeric import fixed

if TYPE_CHECKING:
    from edison_ci.checks.evaluation import ParsedAnswer


LONGEST_PROSE = 200_000
"""Characters in which sentences are counted."""
_BLOCK = 1_000_000

# The look-behind prevents an attempt at each dot of a long row of dots.
_END = re.compile(
    r"(?<![.!?\u2026])(?P<marks>[.!?\u2026]++)[\"'\u201d\u2019\u00bb)\]*_]*+(?=\s|\Z)"
    r"|[\u3002\uff01\uff1f]++|\n[ \t\r]*+\n\s*+"
)
_MARKED = re.compile(
    r"^[ \t]*+(?:[-*+\u2022\u2023\u25e6\u2013]|\(?(?:[0-9]{1,3}|[A-Za-z])[.)]|#{1,6})[ \t]++",
    re.MULTILINE,
)
"""The mark of an item of a list or of a heading."""
_HAS_WORD = re.compile(r"\w")
_NEXT = re.compile(r"\s*+(\w?)")
_LAST_WORD = re.compile(r"[\w.]*\Z")
_LOOK_BACK = 12
_SHORTENED = """
    mr mrs ms dr prof st jr sr vs etc cf fig no nr approx dept est inc ltd co ext max min pp vol
    bzw ca usw vgl bspw abs
"""
_ABBREVIATIONS = frozenset(_SHORTENED.split())


def count_words(text: str) -> int:
    """Return the number of words, separated by white space."""
    count = len(text[:_BLOCK].split())
    for at in range(_BLOCK, len(text), _BLOCK):  # in blocks, to save memory
        count += len(text[at : at + _BLOCK].split())
        if not text[at - 1].isspace() and not text[at].isspace():
            count -= 1  # the same word on both sides of the cut
    return count


def count_sentences(text: str) -> int:
    """Return the number of sentences: they end at . ! ? or an empty line, and contain a word.

    An item of a list and a heading are at least one sentence each.
    """
    text = _apart(text)
    count = start = 0
    for end in _END.finditer(text):
        if end["marks"] and not end["marks"].strip(".\u2026") and not _ends(text, end):
            continue
        if _HAS_WORD.search(text, start, end.end()):
            count += 1
        start = end.end()
    return count + (1 if _HAS_WORD.search(text, start) else 0)


def _apart(text: str) -> str:
    """Return a text with an empty line around each heading and item of a list, without marks."""
    if _MARKED.search(text) is None:
        return text
    lines: list[str] = []
    inside = False
    for line in text.split("\n"):
        mark = _MARKED.match(line)
        unindented = bool(line[:1].strip())
        if mark or (inside and unindented):
            lines.append("")
        lines.append(line if mark is None else line[mark.end() :])
        inside = mark is not None or (inside and not unindented)
    return "\n".join(lines)


def _ends(text: str, end: re.Match[str]) -> bool:
    """Whether a full stop ends a sentence: not after an abbreviation or initials.

    Lower case after it does not tell: many people write no capitals. After dots it does.
    """
    following = _NEXT.match(text, end.end())
    if end["marks"] != ".":
        return not (following and following[1].islower())
    if not following or not following[1]:
        return True
    before = _LAST_WORD.search(text[max(end.start() - _LOOK_BACK, 0) : end.start()])
    word = before.group().lower() if before else ""
    return word not in _ABBREVIATIONS and not _initials(word)


def _initials(word: str) -> bool:
    """Whether a word is single letters with dots between them, such as J or e.g or p.m."""
    letters = word.split(".")
    return word != "i" and all(len(part) == 1 and part.isalpha() for part in letters)


_LETTERS = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*+")
_VOWELS = re.compile(r"[aeiouyàáâäæèéêëìíîïòóôöøœùúûüý]+")


def flesch(text: str) -> float | None:
    """Return the reading ease of Flesch (1948), for English; None without words."""
    words = _LETTERS.findall(text)
    if not words:
        return None
    sentences = max(count_sentences(text), 1)
    syllables = sum(_syllables(word.lower()) for word in words)
    return 206.835 - 1.015 * len(words) / sentences - 84.6 * syllables / len(words)


def _syllables(word: str) -> int:
    """Return the number of groups of vowels, without a silent final e."""
    groups = len(_VOWELS.findall(word))
    if word.endswith("e") and not word.endswith(("le", "ee", "ye")) and groups > 1:
        groups -= 1
    return max(groups, 1)


_BYTES_PER_TOKEN = 4


class _Counted(Range):
    min: Count | None = Field(None, description="Fewest allowed.")
    max: Count | None = Field(None, description="Most allowed.")

    def _grade_count(self, number: int, noun: str) -> Grade:
        return self._within(number, f"the answer has {number:,} {noun}{'' if number == 1 else 's'}")


class Words(_Counted):
    """The answer has a number of words in this range."""

    check: ClassVar[str] = "words"
    example: ClassVar[str] = "words: {max: 120}"

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the number of words is in the range."""
        return self._grade_count(count_words(answered.text), "word")


class Chars(_Counted, TrimmedCheck):
    """The answer has a number of characters in this range."""

    check: ClassVar[str] = "chars"
    example: ClassVar[str] = "chars: {min: 20, max: 280}"

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the number of characters, without surrounding space, is in the range."""
        text = answered.text if self.exact else answered.text.strip()
        return self._grade_count(len(text), "character")


class Sentences(_Counted):
    """The answer has a number of sentences in this range."""

    check: ClassVar[str] = "sentences"
    example: ClassVar[str] = "sentences: {max: 3}"

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the number of sentences is in the range."""
        refuse_long(answered, self.check, LONGEST_PROSE)
        return self._grade_count(count_sentences(answered.text), "sentence")


class Tokens(_Counted):
    """The answer has a number of output tokens in this range."""

    check: ClassVar[str] = "tokens"
    example: ClassVar[str] = "tokens: {max: 500}"

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the provider's count, or else bytes / 4, is in the range."""
        tokens = answered.completion.tokens_out
        if tokens is not None:
            return self._grade_count(tokens, "token")
        size = len(answered.completion.text.encode("utf-8", "surrogatepass"))
        tokens = -(-size // _BYTES_PER_TOKEN)
        message = f"the answer has about {tokens:,} tokens (estimated, the provider gave no count)"
        return self._within(tokens, message)


class Latency(Check):
    """The answer took at most this long."""

    check: ClassVar[str] = "latency"
    main: ClassVar[str | None] = "max_ms"
    example: ClassVar[str] = "latency: {max_ms: 2000}"
    max_ms: int = Field(ge=1, le=3_600_000, description="Most milliseconds allowed.")

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the call took no longer."""
        took = answered.completion.latency_ms
        if took <= self.max_ms:
            return Grade(1.0, f"the answer took {took:,} ms")
        return Grade(0.0, f"the answer took {took:,} ms; at most {self.max_ms:,} ms allowed")


class Cost(Check):
    """The answer cost at most this much."""

    check: ClassVar[str] = "cost"
    main: ClassVar[str | None] = "max_usd"
    example: ClassVar[str] = "cost: {max_usd: 0.01}"
    max_usd: float = Field(ge=0, le=1_000, description="Most dollars allowed.")

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the call cost no more."""
        cost = f"${fixed(answered.cost_microusd / 1e6, 6)}"
        if answered.cost_microusd <= round(self.max_usd * 1e6):
            return Grade(1.0, f"the answer cost {cost}")
        return Grade(0.0, f"the answer cost {cost}; at most ${self.max_usd:g} allowed")


class FinishReason(Check):
    """The model stopped for this reason."""

    check: ClassVar[str] = "finish_reason"
    example: ClassVar[str] = "finish_reason: stop"
    value: Literal["stop", "length", "content_filter", "tool_calls", "other"] = Field(
        "stop", description="The reason."
    )

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the model stopped for the reason."""
        reason = answered.completion.finish_reason
        if reason == self.value:
            return Grade(1.0, f"the model stopped for {self.value}")
        return Grade(0.0, f"the model stopped for {quote(reason)}, not for {self.value}")
