"""Signs of a jailbreak or of injected instructions in a text, in six languages.

Patterns find what is said plainly: instructions that are dropped, a model without limits, a special
mode, a role to play, hidden instructions that are asked for, orders that a text gives to the model
that reads it. A story or a pretext they do not find. `benchmarks/jailbreaks.py` measures both.

A text is folded first: no accents, no invisible characters, letters that only look Latin as Latin
ones. Then words with digits for letters, and words spelt with gaps, are read as words too. Every
pattern takes time linear in the length of any text: each repetition is bounded.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

DROPS = "drops instructions"
NO_LIMITS = "a model without limits"
MODE = "a special mode"
ROLE = "a role to play"
REVEALS = "hidden instructions"
ORDERS = "orders to the model"
MARKS = "marks of a chat"
SIGNS = (DROPS, NO_LIMITS, MODE, ROLE, REVEALS, ORDERS, MARKS)


@cache
def patterns_by_language() -> dict[str, dict[str, str]]:
    """Return the patterns of words of each language, by what they are for."""
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return {
        language: {role: "".join(pieces) for role, pieces in patterns.items()}
        for language, patterns in data.items()
    }


_LOOK_BACK = 45
_CHAT_MARKS = (
    r"(?i)<\|(?:im_start|im_end|system|endoftext|eot_id|start_header_id|end_header_id)\|>|\[/?inst\]|"
    r"<</?sys>>|<(?:start|end)_of_turn>"
)
_DAN = r"\b(?:[Aa]s|I am|I'm|[Cc]all me|[Yy]ou are|[Aa]ct(?:ing)? as) (?:now )?(?:DAN|STAN|DUDE)\b"


class _Sign(NamedTuple):
    what: str
    pattern: re.Pattern[str]
    own: re.Pattern[str] | None
    """The words between, one of which must be of this kind; None if any will do."""
    later: re.Pattern[str] | None
    """Or the words after it."""
    denied: re.Pattern[str]


@cache
def _signs_by_start() -> dict[str, tuple[_Sign, ...]]:
    """Return the signs of all languages by the first letters of their first words.

    So a pattern is tried only at words that it can start with, which are few.
    """
    signs: dict[str, tuple[_Sign, ...]] = {}
    for words in patterns_by_language().values():
        denied = re.compile(rf"\b(?:{words['denied']})(?: [^.!?]{{0,25}})?$")
        own = re.compile(rf"\b(?:{words['own']})\b")
        later = re.compile(rf" (?:{words['later']})\b")
        former = rf"(?P<former>(?:(?:{words['former']}) |[ld]'){{0,7}})"
        between = r"(?:[\w']{1,20},? ){0,6}"
        for what, start, rest in (
            (DROPS, words["drop"], rf" {former}(?:{words['rules']})"),
            (DROPS, words["drop"], f" (?:{words['everything']})"),
            (NO_LIMITS, words["free"], ""),
            (MODE, words["mode"], ""),
            (ROLE, words["role"], ""),
            (REVEALS, words["reveal"], f" {between}(?:[ld]')?(?:{words['secret']})"),
            (ORDERS, words["orders"], ""),
        ):
            pattern = re.compile(rf"(?:{start}){rest}(?!\w)")
            owned = "former" in pattern.groupindex
            sign = _Sign(what, pattern, own if owned else None, later if owned else None, denied)
            for letters in {_WORD.findall(text)[0] for text in literal_starts(start)}:
                signs[letters] = (*signs.get(letters, ()), sign)
    return signs


_LETTERS = 3
_WORD = re.compile(rf"\b[\w']{{1,{_LETTERS}}}")


def literal_starts(pattern: str) -> Iterator[str]:
    """Yield the literal text that each alternative of a pattern starts with."""
    for branch in _branches(pattern):
        if branch.startswith("(?:"):
            end = _closing(branch)
            yield from literal_starts(branch[3:end])
            if branch[end + 1 : end + 2] == "?":
                yield from literal_starts(branch[end + 2 :])
        else:
            literal = re.match(r"(?:[a-z' ](?![?{*]))*", branch)
            text = literal[0] if literal else ""
            if len(text) < _LETTERS and not text.endswith(" ") and text != branch:
                raise ValueError(f"{branch!r} starts with less than {_LETTERS} letters")
            yield text


def _branches(pattern: str) -> list[str]:
    """Return the alternatives of a pattern, split where no group is open."""
    branches, depth = [""], 0
    for letter in pattern:
        depth += (letter == "(") - (letter == ")")
        if letter == "|" and depth == 0:
            branches.append("")
        else:
            branches[-1] += letter
    return branches


def _closing(pattern: str) -> int:
    """Return the place of the bracket that closes the first one."""
    depth = 0
    for place, letter in enumerate(pattern):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place
    raise ValueError(pattern)


def find_jailbreaks(text: str) -> Iterator[str]:
    """Yield the signs of a jailbreak in a text, each of them once."""
    yield from dict.fromkeys(_signs(text))


def _signs(text: str) -> Iterator[str]:
    visible = text if text.isascii() else _visible(text)
    if re.search(_CHAT_MARKS, visible):
        yield MARKS
    if re.search(_DAN, visible):
        yield NO_LIMITS
    starts = _signs_by_start()
    for folded in _readings(visible):
        for word in _WORD.finditer(folded):
            for sign in starts.get(word[0], ()):
                if (match := sign.pattern.match(folded, word.start())) and _counts(match, sign):
                    yield sign.what


def _counts(match: re.Match[str], sign: _Sign) -> bool:
    """Whether a match is about rules of the model, and the words before do not deny it."""
    if sign.own is not None and sign.later is not None:
        after = sign.later.match(match.string, match.end())
        if after is None and sign.own.search(match["former"]) is None:
            return False
    before = match.string[max(0, match.start() - _LOOK_BACK) : match.start()]
    return sign.denied.search(before.rstrip()) is None


_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
_TAGS = {0xE0000 + code: code for code in range(0x20, 0x7F)}
_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0445\u0443\u0456\u0455\u0458\u0501\u051b\u051d\u04bb\u0432\u043a\u043c\u043d\u0442"
    "\u03b1\u03b5\u03bf\u03c1\u03bd\u03b9\u03ba\u03c4\u03c5\u0251\u0261\u0131\u0269\u0578\u057d\u0585\u2019\u2018\u02bc\u00b4`",
    "aeopcxyisjdqwhbkmhtaeopvikuuagiinuo'''''",
)
_GAP = re.compile(r"[\s_*~\-\u2010-\u2015|+/\\\"\u00ab\u00bb\u201c\u201d\u201e()\[\]{}<>#=]+")
_SPELT = re.compile(r"(?<!\w)\w([ .,_*|\-])\w(?!\w)(?:\1\w(?!\w))*")
_SPELT_OUT = re.compile(r"(?<!\w)\w([ .,_*|\-])(?:\w\1){3,}\w(?!\w)")
_LEET = str.maketrans("0134578@$!", "oieastbasi")
_MIXED = re.compile(r"[a-z][0134578@$!]{1,2}[a-z]|(?<![\w.])[0134578@$!]{1,2}[a-z]{2}")


def _visible(text: str) -> str:
    """Return a text without invisible characters; hidden tags as the letters they encode."""
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", text.translate(_TAGS)))


def _readings(text: str) -> Iterator[str]:
    """Yield a text folded, and again with digits as letters and with spelt words joined."""
    folded = text.casefold()
    if not folded.isascii():
        folded = unicodedata.normalize("NFD", folded)
        folded = re.sub("[\u0300-\u036f]", "", folded).translate(_LOOKALIKES)
    plain = _GAP.sub(" ", folded)
    yield plain
    if _MIXED.search(plain):
        yield plain.translate(_LEET)
    if _SPELT_OUT.search(folded):
        yield _GAP.sub(" ", _SPELT.sub(lambda match: re.sub(r"\W", "", match[0]), folded))
