"""Which pieces of material does a message show in blocks with a key?

A message with material begins with the line `Key of this message: KEY`; each piece stands between
`<data:TAG "NAME" KEY>` and `</data:TAG KEY>`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from edison_ci.records import Json

_KEY = re.compile(r"\AKey of this message: ([0-9a-f]{16,64})\n")


class Block(NamedTuple):
    """A piece of material."""

    tag: str
    name: str
    text: str
    as_json: bool

    @property
    def value(self) -> Json:
        """The piece as it was before it was written down."""
        if not self.as_json:
            return self.text
        try:
            value: Json = json.loads(self.text)
        except ValueError:
            return self.text
        return value


def blocks_in(said: str) -> list[Block] | None:
    """Return the pieces of a message in their order; None if it is not of this form."""
    found = _KEY.match(said)
    if found is None:
        return None
    key = found[1]
    block = re.compile(
        rf'^<data:(\w+)(?: ("(?:[^"\\\n]|\\.)*"))?( json)? {key}>\n(.*?)\n</data:\1 {key}>$',
        re.M | re.S,
    )
    return [
        Block(tag, json.loads(name) if name else "", text, bool(as_json))
        for tag, name, as_json, text in block.findall(said)
    ]
