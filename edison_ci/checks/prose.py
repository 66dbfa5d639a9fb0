"""How many words, sentences and syllables does a text have?"""

from __future__ import annotations

import re

LONGEST_PROSE = 200_000
"""Characters in which sentences are looked for."""
_BLOCK = 1_000_000

# The look-behind keeps a long row of dots from being tried at each of its dots.
_END = re.compile(
    r"(?<![.!?\u2026])(?P<marks>[.!?\u2026]++)[\"'\u201d\u2019\u00bb)\]*_]*+(?=\s|\Z)"
    r"|[\u3002\uff01\uff1f]++|\n[ \t\r]*+\n\s*+"
)
_HAS_WORD = re.compile(r"\w")
_NEXT = re.compile(r"\s*+(\w?)")
_LAST_WORD = re.compile(r"[\w.]*\Z")
_LOOK_BACK = 12
_SHORTENED = """
    mr mrs ms dr prof st jr sr vs etc e.g i.e cf fig no nr approx dept est inc ltd co u.s u.k
    z.b d.h bzw ca usw vgl bspw abs
"""
_ABBREVIATIONS = frozenset(_SHORTENED.split())


def count_words(text: str) -> int:
    """Return the number of texts between blanks."""
    count = len(text[:_BLOCK].split())
    for at in range(_BLOCK, len(text), _BLOCK):  # by blocks, so as not to hold millions of words
        count += len(text[at : at + _BLOCK].split())
        if not text[at - 1].isspace() and not text[at].isspace():
            count -= 1  # one word on both sides of the cut
    return count


def count_sentences(text: str) -> int:
    """Return the number of sentences: they end at . ! ? or an empty line, and have a word."""
    count = start = 0
    for found in _END.finditer(text):
        if found["marks"] and not found["marks"].strip(".\u2026") and not _ends(text, found):
            continue
        if _HAS_WORD.search(text, start, found.end()):
            count += 1
        start = found.end()
    return count + (1 if _HAS_WORD.search(text, start) else 0)


def _ends(text: str, found: re.Match[str]) -> bool:
    """Whether a full stop ends a sentence: not after an abbreviation or before a small letter."""
    following = _NEXT.match(text, found.end())
    if following and following[1].islower():
        return False
    before = _LAST_WORD.search(text[max(found.start() - _LOOK_BACK, 0) : found.start()])
    word = before.group().lower() if before else ""
    if found["marks"] != "." or not following or not following[1]:
        return True
    return word not in _ABBREVIATIONS and not _initial(word)


def _initial(word: str) -> bool:
    return len(word) == 1 and word.isalpha() and word != "i"


# --- how easily it reads --------------------------------------------------------------------------

_LETTERS = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*+")
_VOWELS = re.compile(r"[aeiouyàáâäæèéêëìíîïòóôöøœùúûüý]+")


def flesch(text: str) -> float | None:
    """Return the reading ease of Flesch (1948), made for English; None without words."""
    words = _LETTERS.findall(text)
    if not words:
        return None
    sentences = max(count_sentences(text), 1)
    syllables = sum(_syllables(word.lower()) for word in words)
    return 206.835 - 1.015 * len(words) / sentences - 84.6 * syllables / len(words)


def _syllables(word: str) -> int:
    """Return the groups of vowels, without a silent e at the end."""
    groups = len(_VOWELS.findall(word))
    if word.endswith("e") and not word.endswith(("le", "ee", "ye")) and groups > 1:
        groups -= 1
    return max(groups, 1)
