"""The form of answers that a prompt asks for, and what is said of it.

A key decides where it is written. `expect: auto` reads instructions, not words: quotations, code,
data and examples are left out (instructions.py), and each mention of a form is judged by the words
around it (form_requests.py), by classes of words in several languages (expected_form.toml).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.config import form_requests

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from edison_ci.config.form_requests import Mention

_LITERAL = re.compile(r"\b[jJ][sS][oO][nN]\b")
_OPENING, _CLOSING = "<response>", "</response>"
_NAMED = re.compile("json|<response>", re.IGNORECASE)
_FEW_LINES = 3


class Part(NamedTuple):
    """A message of a prompt, before rendering."""

    role: str
    text: str
    line: int
    """First line of the text in its file."""


class Detected(NamedTuple):
    """The form of answers: as it is written, or where it was found in a prompt."""

    form: str
    mentions: tuple[Mention, ...] = ()
    """Without a key that decides."""
    written: frozenset[str] | None = frozenset()
    """The forms that a schema requires; None if `expect` decides."""

    @property
    def forms(self) -> frozenset[str]:
        """The forms that answers must have: response, json, both or none."""
        return frozenset(self.form.split("+")) - {"none"}

    @property
    def written_forms(self) -> frozenset[str]:
        """The forms by a key, and not by words of the text."""
        return self.forms if self.written is None else self.written

    def by_words(self, expect: str) -> bool:
        """Whether a form that answers are held to is required by words of a text alone."""
        required = set(expect.split("+")) - {"none"}
        return self.written is not None and bool(required - self.written)


def detect(expect: str, parts: Sequence[Part], *, schema: bool) -> Detected:
    """Return the form of a prompt's answers; `schema`: they have a JSON Schema."""
    if expect == "mentioned":
        return Detected(_literal_form(parts, schema=schema), written=None)
    if expect != "auto":
        return Detected(expect, written=None)
    mentions: tuple[Mention, ...] = ()
    if any(_NAMED.search(part.text) for part in parts):
        mentions = form_requests.mentions_in(parts)
    written = frozenset({"json"} if schema else ())
    requested = {mention.form for mention in mentions if mention.requested}
    return Detected(joined_form(requested | written), mentions, written)


NAMES = {"json": "JSON", "response": "in <response> tags"}


class Note(NamedTuple):
    """What was found of one form: a sentence, and the key that changes it."""

    line: int
    words: str
    sentence: str
    hint: str
    requested: bool


def notes_on(detected: Detected) -> Iterator[Note]:
    """Yield what a prompt says of each form that it names, with words and line."""
    for form, name in NAMES.items():
        mentions = [mention for mention in detected.mentions if mention.form == form]
        if not mentions or form in detected.written_forms:
            continue
        other = joined_form(detected.forms ^ {form})
        first = next((mention for mention in mentions if mention.requested), mentions[0])
        if first.requested:
            sentence = f"answers must be {name}: the prompt says {first.words!r}"
        else:
            sentence = (
                f"answers need not be {name}: the prompt mentions it, but does not ask for it: "
                f"{first.words!r}{_further(mentions)}"
            )
        hint = f"write `expect: {detected.form}` if that is right, else `expect: {other}`"
        yield Note(first.line, first.words, sentence, hint, first.requested)


def _further(mentions: Sequence[Mention]) -> str:
    """Return the lines of the mentions after the first."""
    _, *others = dict.fromkeys(str(mention.line) for mention in mentions)
    return f" (and on line {', '.join(others[:_FEW_LINES])})" if others else ""


def _literal_form(parts: Iterable[Part], *, schema: bool) -> str:
    """Return the form by the words alone: JSON anywhere, or both response tags."""
    text = "\n".join(part.text for part in parts)
    json, response = (
        schema or _LITERAL.search(text) is not None,
        _OPENING in text and _CLOSING in text,
    )
    return joined_form([*["response"] * response, *["json"] * json])


def joined_form(forms: Collection[str]) -> str:
    """Return forms as `expect` has them."""
    return "+".join(form for form in ("response", "json") if form in forms) or "none"
