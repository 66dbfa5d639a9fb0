"""Fences: texts that reach a judge without becoming instructions.

Each piece of material stands in a block whose first and last line carry a key. The key is a hash
over everything the judge is sent, the piece itself included: equal calls have equal keys, and a
text that knows its own key would have to contain a part of its own hash. What merely looks like a
block's edge is broken by a visible backslash, and invisible characters are written out.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.records import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.records import Case, Json

KEY_LINE = "Key of this message: "
TAGS = ("input", "reference", "answer", "first", "second", "text", "prompt", "example", "earlier")
_KEY_CHARS = 16
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Controls, marks of direction, tags, half pairs. Joiners stay: scripts and emoji need them."""
_EDGE = re.compile(rf"<(?=\s{{0,9}}/?\s{{0,9}}data:(?:{'|'.join(TAGS)})\b)", re.I)
_ODD = re.compile(r"[^A-Za-z0-9_.\- ]")
_MAX_NAME = 60
"""A column may be called anything; what reaches the edge of a block is a plain, short name."""
_KEY = re.compile(re.escape(KEY_LINE.rstrip(": ")), re.I)


class Piece(NamedTuple):
    """A piece of material: what it is, its name if it has one, and its text."""

    tag: str
    """One of TAGS. On a page it is `<data:TAG KEY>`: answers have tags of their own."""
    text: str
    name: str = ""
    as_json: bool = False
    """Whether the text is JSON because the value was not a text."""


def visible(text: str) -> str:
    r"""Return the text with what nobody can see written as \u{...}."""
    plain = text.replace("\r\n", "\n")
    if plain.isascii() and plain.isprintable():
        return plain
    return _INVISIBLE.sub(lambda found: f"\\u{{{ord(found.group()):x}}}", plain)


def harmless(text: str) -> str:
    """Return the text as a judge may see it: nothing invisible, and no edge of a block."""
    return _KEY.sub(
        lambda found: found.group().replace(" ", "\\ ", 1), _EDGE.sub(r"<\\", visible(text))
    )


def pieces_of(case: Case) -> Iterator[Piece]:
    """Yield the inputs of a case and the answer it expects."""
    for name, value in case.inputs.items():
        yield _piece("input", value, name)
    if case.expected is not None:
        yield _piece("reference", case.expected)


def _piece(tag: str, value: Json, name: str = "") -> Piece:
    if isinstance(value, str):
        return Piece(tag, value, name)
    return Piece(tag, json.dumps(value, ensure_ascii=False), name, as_json=True)


def fenced(told: str, pieces: Sequence[Piece], closing: str, *, seed: Json = None) -> str:
    """Return the message that shows the pieces to a judge who was told this."""
    shown = [
        piece._replace(text=harmless(piece.text), name=_ODD.sub("?", piece.name)[:_MAX_NAME])
        for piece in pieces
    ]
    key = _key(told, shown, seed)
    blocks = [_block(piece, key) for piece in shown]
    return "\n\n".join([f"{KEY_LINE}{key}", *blocks, closing])


def _block(piece: Piece, key: str) -> str:
    name = f" {json.dumps(piece.name, ensure_ascii=False)}" if piece.name else ""
    form = " json" if piece.as_json else ""
    return f"<data:{piece.tag}{name}{form} {key}>\n{piece.text}\n</data:{piece.tag} {key}>"


def _key(told: str, pieces: Sequence[Piece], seed: Json) -> str:
    sent: list[object] = [told, [list(piece) for piece in pieces], seed]
    identity = canonical_json(sent).encode()
    key, round_number = "", 0
    # Nobody will see a second round: a text would have to contain 64 bits of its own hash.
    while not key or any(key in piece.text or key in piece.name for piece in pieces):
        key = hashlib.sha256(b"%d:" % round_number + identity).hexdigest()[:_KEY_CHARS]
        round_number += 1
    return key
