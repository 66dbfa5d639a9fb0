"""The instructions of a prompt: its text without data, quotations and code, in sentences and words.

Words carry the classes of expected_form.toml, by which a reader tells what a sentence says.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORDS = Path(__file__).with_name("expected_form.toml")
OPENING, CLOSING = "<response>", "</response>"

# ---- instructions: a text of the same length in which all else is blank

TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
FENCE = re.compile(
    r"^[ \t]*(?P<mark>`{3,}|~{3,})(?P<language>[^\n`]*)\n(?P<code>.*?)(?:^[ \t]*(?P=mark)|\Z)",
    re.DOTALL | re.MULTILINE,
)
_INLINE = re.compile(r"`([^`\n]{1,300})`")
_QUOTE = re.compile(
    r'"""(?P<a>.*?)"""|"(?P<b>[^"\n]{1,300})"|[“„”](?P<c>[^“”„\n]{1,300})[“”]'
    r"|«(?P<d>[^»\n]{1,300})»|»(?P<e>[^«\n]{1,300})«|「(?P<f>[^」\n]{1,300})」"
    r"|(?<!\w)['\u2018\u201a](?P<g>[^'\u2018\u2019\n]{1,300})['\u2018\u2019](?!\w)",
    re.DOTALL,
)
TAG = re.compile(r"<(?P<name>[A-Za-z][\w-]{0,40})(?: [^<>\n]{0,200})?>")
FEW = 2
"""Words of a quotation that is read as part of the sentence."""


def without_templates(text: str) -> str:
    """Return a text in which what is filled in is blank."""
    return TEMPLATE.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    """Return spaces in place of a text, with its line breaks."""
    return _spaces(match[0])


def _spaces(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def instructions_in(text: str) -> str:
    """Return a text in which all is blank but what the model is told to do."""
    text = FENCE.sub(_blank, text)
    text = _without_data_tags(text)
    text = _INLINE.sub(_plain_or_blank, text)
    text = _QUOTE.sub(_plain_or_blank, text)
    return _without_labelled_data(text)


def _plain_or_blank(match: re.Match[str]) -> str:
    """Keep a word or a tag that is only set off; blank out a quotation or code."""
    inner = next(group for group in match.groups() if group is not None)
    words = inner.replace(OPENING, " ").replace(CLOSING, " ").split()
    tag = OPENING in inner and len(words) <= FEW
    word = len(inner.split()) <= FEW and re.fullmatch(r"[\w \-/]+", inner)
    if not (tag or word):
        return _spaces(match[0])
    before = match[0].index(inner)
    return " " * before + inner + " " * (len(match[0]) - before - len(inner))


def _without_data_tags(text: str) -> str:
    """Blank out what stands between the tags of data."""
    words = lexicon()
    at = 0
    pieces: list[str] = []
    for tag in TAG.finditer(text):
        if tag.start() < at:
            continue
        name = tag["name"].lower()
        parts = set(re.split(r"[_-]", name)) | {name}
        if not parts & words.data_tags or parts & words.instruction_tags:
            continue
        end = text.find(f"</{tag['name']}>", tag.end())
        if end < 0:
            continue
        pieces += text[at : tag.start()], _spaces(text[tag.start() : end])
        at = end
    return "".join([*pieces, text[at:]])


_LABEL = re.compile(
    r"^[^\n:]{0,120}?(?P<noun>[^\W\d_]+)[ \t]*:(?P<data>[ \t]+[^\n]+)$", re.MULTILINE
)


def _without_labelled_data(text: str) -> str:
    """Blank out what follows "Message:" or "Translate this sentence into French:"."""
    words, parts, at = lexicon(), list[str](), 0
    for label in _LABEL.finditer(text):
        lead = words.tokens(text[label.start() : label.start("data")])
        nouns = [token for token in lead if "texts" in token.classes]
        pointed = any(
            "texts" in token.classes and "definite" in before.classes
            for before, token in pairwise(lead)
        )
        short = len(lead) <= FEW + 2 and bool(nouns) and "texts" in lead[-2].classes
        formed = any(token.classes & {"form", "answer"} for token in lead)
        if (short or pointed) and not formed:
            parts += text[at : label.start("data")], _spaces(label["data"])
            at = label.end()
    return "".join([*parts, text[at:]])


# ---- sentences, and the words in them

_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|z\. ?B|d\. ?h|p\. ?ex|p\. ?ej|etc|vs|bzw|no|nr)\.", re.I)
_END = re.compile(
    r"[.!?](?=\s|$|[\"')*])|[;。\uff01\uff1f\uff1b]|\n[ \t]*\n|\n(?=[ \t]*(?:[-*•#>]|\d+[.)]|<))|\n"
)


class Sentence(NamedTuple):
    """A sentence, where it starts in its text, and the mark that ends it."""

    text: str
    start: int
    end_mark: str


def sentences(text: str) -> Iterator[Sentence]:
    """Yield the sentences; a line that is only wrapped goes on."""
    text = _ABBREVIATION.sub(lambda match: match[0].replace(".", " "), text)
    start = 0
    for end in _END.finditer(text):
        if end[0] == "\n":
            before, after = text[start : end.start()].rstrip(), text[end.end() :].lstrip(" \t")
            wrapped = after[:1].islower() and before and before[-1] not in ".!?:;,。"
            if wrapped or (before[-1:] == "," and after[:1].islower()):
                continue
        yield Sentence(text[start : end.start()], start, end[0].strip())
        start = end.end()
    yield Sentence(text[start:], start, "")


class Token(NamedTuple):
    """A word or a mark of a sentence, with the classes of its meaning."""

    text: str
    classes: frozenset[str]
    start: int


WORD = re.compile(r"[^\W\d_]+(?:-(?=form\b)[^\W\d_]+)?|\d+|[^\w\s]")
_NO_CLASSES: frozenset[str] = frozenset()
BOUNDARIES = ",;:()—–{}[]"  # noqa: RUF001  # dashes are what is meant
_MOST_PHRASE = 6


class _Lexicon(NamedTuple):
    """The words of expected_form.toml."""

    classes: dict[tuple[str, ...], frozenset[str]]
    converts: tuple[tuple[frozenset[str], frozenset[str]], ...]
    data_tags: frozenset[str]
    instruction_tags: frozenset[str]
    pronouns: tuple[str, ...]
    mention: tuple[re.Pattern[str], ...]
    request: tuple[re.Pattern[str], ...]

    def tokens(self, text: str) -> list[Token]:
        """Return the words of a text; a phrase is one word."""
        plain = _plain(text)
        found = [(match[0], match.start()) for match in WORD.finditer(plain)]
        tokens: list[Token] = []
        at = 0
        while at < len(found):
            for length in range(min(_MOST_PHRASE, len(found) - at), 0, -1):
                key = tuple(word for word, _ in found[at : at + length])
                classes = self.classes.get(key)
                if classes is not None or length == 1:
                    classes = classes or self._verb_with_pronoun(key[0])
                    tokens.append(Token(" ".join(key), classes, found[at][1]))
                    at += length
                    break
        return tokens

    def _verb_with_pronoun(self, word: str) -> frozenset[str]:
        """Return the classes of a verb that ends in its object: "devuélveme", "presentali"."""
        for pronoun in self.pronouns:
            classes = self.classes.get((word.removesuffix(pronoun),), _NO_CLASSES)
            if word.endswith(pronoun) and classes & {"ask", "use", "task"}:
                return classes
        return _NO_CLASSES


@cache
def _plain_character(character: str) -> str:
    """Return a letter without its accent, in lower case."""
    if character in "\u2019\u02bc`":
        return "'"
    if character == "ß":
        return "s"
    base = unicodedata.normalize("NFKD", character)[:1].lower()
    return base if len(base) == 1 else character


def _plain(text: str) -> str:
    return "".join(map(_plain_character, text))


@cache
def lexicon() -> _Lexicon:
    """Return the words by their classes."""
    data = tomllib.loads(_WORDS.read_text("utf-8"))
    classes: dict[tuple[str, ...], set[str]] = {}
    tables = {k: v for k, v in data.items() if isinstance(v, dict) and k != "patterns"}
    tables["formats"] = {"all": data["formats"]}
    for name, languages in tables.items():
        for words in languages.values():
            for word in words.split():
                key = tuple(WORD.findall(_plain(word.replace("_", " "))))
                classes.setdefault(key, set()).add(name)
    patterns = data["patterns"]
    return _Lexicon(
        {key: frozenset(names) for key, names in classes.items()},
        tuple(
            (frozenset(pair["verbs"].split()), frozenset(pair["to"].split()))
            for pair in data["convert"]
        ),
        frozenset(data["data_tags"].split()),
        frozenset(data["instruction_tags"].split()),
        tuple(data["pronouns"].split()),
        tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns["mention"]),
        tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns["request"]),
    )
