"""Requests for a form of answers, read in the instructions of a prompt.

Each "JSON" and each response tag is judged by the words around it in its sentence: whether somebody
is told to write it, whether it is forbidden, or whether it is only spoken of.
"""

from __future__ import annotations

import re
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config import instructions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.config.expected_form import Part
    from edison_ci.config.instructions import Sentence, Token

OPENING = instructions.OPENING
_JSON = re.compile(r"(?<![A-Za-z0-9_])json(?![A-Za-z0-9_])", re.IGNORECASE)
_MOST_MENTIONS = 100
"""Mentions of JSON in a message that are read."""
_MOST_WORDS = 60
"""Characters of a prompt that are quoted where a form was found."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A place of a prompt that names a form of answers."""

    form: str
    """json or response."""
    line: int
    words: str
    """The words around it."""
    requested: bool


def mentions_in(parts: Sequence[Part]) -> tuple[Mention, ...]:
    """Return every place that names JSON or an opening response tag, and whether it asks for it."""
    if not any(_JSON.search(part.text) or OPENING in part.text for part in parts):
        return ()
    return tuple(
        mention
        for index, part in enumerate(parts)
        for mention in _mentions(part, last=index == len(parts) - 1)
    )


def _mentions(part: Part, *, last: bool) -> Iterator[Mention]:
    text = instructions.without_templates(part.text)
    for match in islice(_JSON.finditer(text), _MOST_MENTIONS, _MOST_MENTIONS + 1):
        text = text[: match.start()]
    requested = {"json": set[int](), "response": set[int]()}
    if part.role == "assistant":  # an example of an answer
        requested["response"].update(_bare_tags(text))
    else:
        directions = instructions.instructions_in(text)
        for sentence in instructions.sentences(directions):
            requested["json"].update(_asked_in(sentence))
            requested["response"].update(_tags_asked_in(sentence, part.text))
        requested["json"].update(_cues(directions) if last else ())
        _add_fences(text, directions, requested)
    found = [(match.start(), match.end(), "json") for match in _JSON.finditer(text)]
    found += [(m.start(), m.end(), "response") for m in re.finditer(OPENING, text)]
    for start, end, form in sorted(found):
        line = part.line + text.count("\n", 0, start)
        yield Mention(form, line, _around(part.text, start, end), start in requested[form])


def _around(text: str, start: int, end: int) -> str:
    """Return the words of a line around a place."""
    first = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    if stop - first > _MOST_WORDS:
        first = max(first, start - _MOST_WORDS // 2)
        first = text.find(" ", first, start) + 1 or first
        stop = min(stop, first + _MOST_WORDS)
        space = text.rfind(" ", end, stop)
        stop = space if space > 0 else stop
    return text[first:stop].strip(" \t-*#>")


# ---- what a sentence says of JSON

_SPACELESS = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
_MOST_BETWEEN = 3
"""Unknown words between a deed and what it hands over: "return one well chosen JSON object"."""
_NEAR = 3
_FAR = 60
"""Words of a sentence on each side of JSON that are read."""


def _asked_in(sentence: Sentence) -> Iterator[int]:
    """Yield where a sentence asks for JSON."""
    if not _JSON.search(sentence.text):
        return
    if _SPACELESS.search(sentence.text):
        words, text = instructions.lexicon(), sentence.text
        spoken_of = any(pattern.search(text) for pattern in words.mention)
        if not spoken_of and any(pattern.search(text) for pattern in words.request):
            yield from (sentence.start + match.start() for match in _JSON.finditer(text))
        return
    tokens = instructions.lexicon().tokens(sentence.text)
    for at, token in enumerate(tokens):
        if token.text == "json" and _Reading.of(tokens, at, sentence.end_mark).is_request():
            yield sentence.start + token.start


def _tags_asked_in(sentence: Sentence, text: str) -> Iterator[int]:
    """Yield where a sentence asks for response tags: wherever they are not data or forbidden."""
    if OPENING not in sentence.text:
        return
    bare = {sentence.start + at for at in _bare_tags(sentence.text)}
    tokens = instructions.lexicon().tokens(sentence.text)
    for at, (before, token) in enumerate(pairwise(tokens), start=1):
        where = sentence.start + before.start
        if (before.text, token.text) != ("<", "response") or _is_filled(text, where):
            continue
        if where in bare or _Reading.of(tokens, at, sentence.end_mark).is_tag_request():
            yield where


def _bare_tags(text: str) -> Iterator[int]:
    """Yield the opening tags of a text that has no words but tags."""
    without = instructions.TAG.sub("", text.replace(instructions.CLOSING, ""))
    if len(instructions.WORD.findall(without)) < instructions.FEW or "\n" in text:
        yield from (match.start() for match in re.finditer(OPENING, text))


def _is_filled(text: str, start: int) -> bool:
    """Whether a variable of the case stands between the tags."""
    start += len(OPENING)
    inner = (
        text[start : text.find(instructions.CLOSING, start)].strip()
        if instructions.CLOSING in text[start:]
        else ""
    )
    return bool(inner) and not instructions.TEMPLATE.sub("", inner).strip()


_CUE = re.compile(r"\W*(?:[\w ]{0,40}\()?(?:your |the )?json(?: \w+)?\W*", re.IGNORECASE)


def _cues(directions: str) -> Iterator[int]:
    """Yield the JSON of a last line "JSON:", which the answer continues."""
    text = directions.rstrip()
    line = text[text.rfind("\n") + 1 :]
    if _CUE.fullmatch(line) and line.rstrip().endswith(":"):
        match = _JSON.search(line)
        if match is not None:
            yield len(text) - len(line) + match.start()


def _add_fences(text: str, directions: str, requested: dict[str, set[int]]) -> None:
    """Add the forms of fenced examples that are introduced as the form of an answer."""
    for fence in instructions.FENCE.finditer(text):
        lead = directions[: fence.start()].rstrip().rpartition("\n")[2]
        if not _introduces_form(lead):
            continue
        for match in _JSON.finditer(text, fence.start("language"), fence.end("language")):
            requested["json"].add(match.start())
        for match in re.compile(OPENING).finditer(text, fence.start("code"), fence.end("code")):
            requested["response"].add(match.start())


def _introduces_form(lead: str) -> bool:
    tokens = instructions.lexicon().tokens(lead)
    classes = frozenset[str]().union(*(token.classes for token in tokens))
    if classes & {"receive", "not", "actor"}:
        return False
    label = len(tokens) <= _NEAR + 1 and bool(classes & {"answer"})
    deed = bool(classes & {"ask", "use", "answer", "must"})
    return label or (deed and bool(classes & {"form", "like"}))


class _Reading:
    """What one sentence says of JSON, or of a tag, at one of its words."""

    def __init__(self, tokens: Sequence[Token], at: int, end_mark: str) -> None:
        self.tokens, self.at, self.question = tokens, at, end_mark == "?"

    @classmethod
    def of(cls, tokens: Sequence[Token], at: int, end_mark: str) -> _Reading:
        """Return the reading of a word; what is far from it does not count, so that it is fast."""
        first = max(at - _FAR, 0)
        return cls(tokens[first : at + _FAR], at - first, end_mark)

    def _has(self, at: int, *names: str) -> bool:
        return 0 <= at < len(self.tokens) and not self.tokens[at].classes.isdisjoint(names)

    def _text(self, at: int) -> str:
        return self.tokens[at].text if 0 <= at < len(self.tokens) else ""

    def is_request(self) -> bool:
        """Whether it asks for JSON as the form of the answer."""
        negation = self._negation()
        if negation == "forbidden" or self._is_listed() or self._is_topic():
            return False
        if negation == "excepted":
            return not self._is_told_of_others(self._clause_start())
        return negation == "wrapped" or self._is_governed()

    def is_tag_request(self) -> bool:
        """Whether it asks for response tags, or only shows them."""
        if self._negation() == "forbidden":
            return False
        before = range(self.at)
        received = any(self._has(at, "receive") for at in before)
        deed = any(self._has(at, "ask", "use", "task") for at in before)
        return deed or not (received or self._is_told_of_others(0) or self.question)

    def _is_filler(self, at: int) -> bool:
        """Whether a word before JSON leaves its part as it is: "a list of", a mark."""
        article = self._has(at, "indefinite") and not self._has(at, "as")
        joined = self._has(at, "of") and self._has(at - 1, "shape")
        return article or joined or self._text(at) in ("'", '"', "*", "_", "`")

    # ---- negation

    def _negation(self) -> str:
        """Return forbidden, excepted ("nothing but JSON"), wrapped, or an empty text."""
        excepted = ""
        wrapped = asked = False
        for at in range(self.at - 1, -1, -1):
            if self._text(at) and self._text(at) in ";:(—–)":  # noqa: RUF001  # dashes
                break
            if self._text(at) == "," and not (self._continues_list(at) or self._contrasts(at + 1)):
                break
            if self._has(at, "except"):
                excepted = "contrast" if self._has(at, "contrast") else "exception"
            elif self._has(at, "not"):
                if not self._is_cancelled(at, asked=asked):
                    return self._negated(excepted, wrapped=wrapped)
            elif self._begins_deed(at) and not excepted:
                break
            wrapped = wrapped or self._has(at, "wrap")
            asked = asked or self._has(at, "ask")
        if excepted == "exception":
            return self._excepted_later()
        return "forbidden" if self._is_denied_after() else ""

    def _begins_deed(self, at: int) -> bool:
        """Whether what is before a word has nothing to do with JSON: "and return", "just"."""
        only = self._has(at, "only") and self.at - at <= _NEAR
        return only or (self._has(at, "and") and self._has(at + 1, "ask", "use", "task", "only"))

    def _negated(self, excepted: str, *, wrapped: bool) -> str:
        if excepted:
            return "excepted"
        return "wrapped" if wrapped and not self._has(self.at - 1, "as", "with") else "forbidden"

    def _contrasts(self, at: int) -> bool:
        return self._has(at, "except")

    def _excepted_later(self) -> str:
        """Return whether "outside JSON" is followed by a negation, as in German."""
        later = any(self._has(at, "not") for at in range(self.at, len(self.tokens)))
        return "excepted" if later else "forbidden"

    def _is_cancelled(self, at: int, *, asked: bool) -> bool:
        """Whether a negation is none: "do not forget to", "if it is not known return"."""
        forget = any(self._has(at + step, "forget") for step in (-1, 1, 2))
        conditional = any(self._has(at - step, "if") for step in range(1, _NEAR + 2))
        return forget or (asked and conditional)

    def _continues_list(self, at: int) -> bool:
        """Whether a comma separates what is negated together: "no lists, tables or JSON"."""
        words = range(at + 1, self.at)
        verbs = any(self._has(word, "ask", "use", "only", "must", "be") for word in words)
        joined = any(self._has(word, "or") for word in words) or self._has(self.at + 1, "or")
        return joined and not verbs

    def _is_denied_after(self) -> bool:
        """Whether JSON is followed by "is not allowed" or "nicht"."""
        after = self._after_shape()
        if self._has(after, "be", "must"):
            for at in range(after, after + _NEAR + 1):
                if self._text(at) in instructions.BOUNDARIES:
                    return False
                if self._has(at, "not", "banned"):
                    return True
            return False
        if self._has(after, "not"):
            return self._has(after + 1, "be", "must") or after + 1 == len(self.tokens)
        return self._has(after, "banned")

    # ---- topics

    def _after_shape(self) -> int:
        """Return the place after "JSON object", "JSON format" and the like."""
        at = self.at + 1
        while self._has(at, "shape", "form") or self._text(at) == "-":
            at += 1
        return at

    def _is_listed(self) -> bool:
        """Whether it is one of several formats: "JSON, XML or CSV"."""
        joined = self._text(self.at + 1) in (",", "/") or self._has(self.at + 1, "or")
        if joined and (self._has(self.at + 2, "formats") or self._has(self.at + 3, "formats")):
            return not self._has(self.at + 2, "not")
        before = self._text(self.at - 1) in (",", "/") or self._has(self.at - 1, "or")
        return before and self._has(self.at - 2, "formats")

    def _is_topic(self) -> bool:
        after = self.at + 2 if self._text(self.at + 1) == "-" else self.at + 1
        return self._has(after, "topic")

    # ---- who writes it

    def _clause_start(self) -> int:
        for at in range(self.at - 1, -1, -1):
            if self._text(at) and self._text(at) in instructions.BOUNDARIES:
                return at + 1
        return 0

    def _is_told_of_others(self, start: int) -> bool:
        """Whether a clause begins with somebody or something else: "our API ..."."""
        if self._has(start, "self", "must") or not self._has(start, "subject", "actor"):
            return False
        for at in range(start, min(start + 2 * _NEAR, self.at)):
            if self._has(at, "answer", "self"):
                return self._is_owned(at)
            if self._has(at, "actor") and self._text(at + 1) != "'":
                return True
        return False

    def _is_deed_of_others(self, at: int) -> bool:
        """Whether the verb at a place is what somebody else does."""
        before = at - 1
        if any(self._has(place, "demand") for place in range(max(at - _NEAR - 1, 0), at)):
            return True
        while self._has(before, "must", "can", "be", "only", "relative") and not self._has(
            before, "self", "and"
        ):
            before -= 1
        other = self._has(before, "actor") and not self._has(before, "self", "answer")
        return other and not self._is_persona(before)

    def _is_persona(self, end: int) -> bool:
        """Whether the model is told what it is: "you are an API that ..."."""
        for at in range(end, -1, -1):
            if self._has(at, "persona"):
                return True
            if self._has(at, "about") and not self._has(at, "relative", "indefinite"):
                return False
        return False

    def _is_owned(self, at: int) -> bool:
        """Whether an answer is somebody else's: "the user's answer", "the API response"."""
        return any(
            self._has(place, "actor") and not self._has(place, "self")
            for place in range(max(at - _NEAR - 1, 0), at)
        )

    # ---- what governs it

    def _is_governed(self) -> bool:
        """Whether the nearest word that can ask for JSON does so."""
        approach = _Approach.of(self)
        if approach.located:
            return False
        between = 0
        obliged = False
        for at in range(approach.start, -1, -1):
            text = self._text(at)
            if text in instructions.BOUNDARIES:
                if text == ":":
                    return self._is_label(at)
                if text == "(" or (text == "," and (approach.formed or self._has(at - 1, "shape"))):
                    continue
                return self._stands_alone(approach, at + 1, obliged=obliged)
            verdict = self._governs(approach, at, between, obliged=obliged)
            if verdict is not None:
                return verdict
            obliged = obliged or self._has(at, "must")
            between += text.isalpha()
        return self._stands_alone(approach, 0, obliged=obliged)

    def _governs(self, approach: _Approach, at: int, between: int, *, obliged: bool) -> bool | None:
        """Return what a word before JSON makes of it; None if another word decides."""
        near = between <= _MOST_BETWEEN
        if self._has(at, "receive"):
            return False
        if approach.target:
            return True if self._converts(at, approach.target) else None
        handed = approach.formed or approach.with_
        own = not self._is_deed_of_others(at)
        persona = self._has(at - 1, "self") or self._is_persona(at)
        rules: tuple[tuple[str, bool, bool], ...] = (  # class, whether it decides, what it says
            ("wrap", near and not approach.formed, True),
            ("ask", True, own and (handed or near)),
            ("want", approach.formed or near, True),
            ("use", True, own and (handed or (near and not approach.definite))),
            ("ask_third", True, persona and (handed or near)),
            ("answer", True, not self._is_owned(at) and (approach.formed or near or obliged)),
            ("task", approach.formed, own),
            ("whether", True, False),
            ("about", not (approach.formed or self._has(at, "indefinite")), False),
        )
        return next(
            (says for name, decides, says in rules if decides and self._has(at, name)), None
        )

    def _converts(self, at: int, target: str) -> bool:
        """Whether a verb is to make JSON of something: "convert it to JSON"."""
        verb = any(
            self._text(at) in verbs and target in to
            for verbs, to in instructions.lexicon().converts
        )
        return verb and not self._is_deed_of_others(at)

    def _is_label(self, colon: int) -> bool:
        """Whether it follows "Output format:"."""
        label = range(max(colon - _NEAR - 1, 0), colon)
        named = any(self._has(at, "answer", "form", "ask", "only") for at in label)
        other = any(self._has(at, "actor", "receive", "not") for at in label)
        return named and not other

    def _stands_alone(self, approach: _Approach, start: int, *, obliged: bool) -> bool:
        """Whether JSON is asked for without a verb before it: "as JSON", "JSON only"."""
        if self.question or self._is_told_of_others(start):
            return False
        if obliged:
            return not approach.definite
        after = self._after_shape()
        last = range(after, min(after + _NEAR, len(self.tokens)))
        if approach.only or any(self._has(at, "only") for at in last):
            return True
        if any(self._has(at, "ask") for at in last) and not approach.definite:
            return True
        named = self._has(self.at + 1, "answer") or self._has(after, "answer")
        short = len(self.tokens) <= _NEAR + 1
        opens = start == approach.start + 1
        listed = opens and self._has(after + (self._text(after) == ","), "with")
        listed = listed and not any(
            self._has(at, "be", "receive") for at in range(after, len(self.tokens))
        )
        titled = short and (named or approach.shaped)
        if (titled or listed) and not approach.definite:
            return True
        ends = "".join(token.text for token in self.tokens[-1:])
        subject = start <= approach.start and self._has(start, "subject")
        return approach.formed and not (subject or ends == ":")


class _Approach(NamedTuple):
    """The words right before JSON: "as a valid JSON object", "in the JSON"."""

    start: int
    """The last word before them."""
    formed: bool
    """Whether they make it a form: "as JSON", "in JSON format"."""
    with_: bool
    target: str
    """The word before it that may name a target: "to JSON"."""
    definite: bool
    only: bool
    shaped: bool
    located: bool
    """Whether they make it a place: "in the JSON"."""

    @classmethod
    def of(cls, reading: _Reading) -> _Approach:
        """Return the words right before the JSON of a reading."""
        at, definite, only = reading.at - 1, False, False
        after = reading.at + (2 if reading._text(reading.at + 1) == "-" else 1)
        shaped = False
        formed = reading._has(after, "form")
        targets = frozenset[str]().union(
            *(
                to
                for verbs, to in instructions.lexicon().converts
                if any(token.text in verbs for token in reading.tokens[: reading.at])
            )
        )
        while at >= 0 and reading._text(at) not in targets:
            if reading._has(at, "ask", "answer", "receive"):
                break
            if reading._has(at, "shape", "form"):
                shaped, formed = True, formed or reading._has(at, "form")
            elif reading._has(at, "only"):
                only = True
            elif reading._has(at, "definite") and not reading._has(at, "indefinite"):
                definite = True
            elif not reading._is_filler(at):
                break
            at -= 1
        pointed = definite and not formed
        form = (reading._has(at, "as") and not pointed) or (
            reading._has(at, "in_the") and (formed or shaped)
        )
        located = pointed and reading._has(at, "as", "in_the")
        target = reading._text(at) if reading._text(at) in targets and not form else ""
        return cls(
            start=at - 1 if form or target or reading._has(at, "with") else at,
            formed=form,
            with_=reading._has(at, "with"),
            target=target,
            definite=pointed,
            only=only or reading._has(at, "only"),
            shaped=shaped,
            located=located,
        )
