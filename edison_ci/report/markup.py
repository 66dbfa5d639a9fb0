"""HTML and SVG in which no text can ever be taken for markup.

Text becomes markup in one place only, `element`, which escapes it. Attributes that a strict content
security policy forbids (styles, handlers) and addresses that run code are refused: they are bugs of
ours, wherever the text came from. `Html` says so itself (`__html__`), so a template that escapes
everything takes it as it is.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from edison_ci.rounding import fixed
from edison_ci.sanitize import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

_VOID = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "wbr"})
_SHAPES = frozenset({"circle", "line", "path", "polygon", "polyline", "rect", "use"})
_ATTRIBUTE = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")
_SCHEMES = frozenset({"", "http", "https"})
_NOT_XML = re.compile("[\ufffe\uffff]")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_SPECIAL = re.compile("[&<>\"']")


class Html(str):
    """Text that is markup already."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return itself; this is what templates ask for before they escape a value."""
        return str(self)


Child: TypeAlias = "str | int | float | Iterable[Child] | None"
Value: TypeAlias = "str | int | float | bool | None"


def escape(text: str) -> Html:
    """Return a text as markup that shows it; what hides or turns text around is spelt out."""
    harmless = _NOT_XML.sub("\ufffd", clean(text))
    return Html(_SPECIAL.sub(lambda found: _ESCAPES[found.group()], harmless))


def element(name: str, /, *children: Child, **attributes: Value) -> Html:
    """Return an element; `class_` is class, `stroke_width` is stroke-width."""
    opened = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Html(f"<{opened}>")
    inner = joined(children)
    if not inner and name in _SHAPES:
        return Html(f"<{opened}/>")
    return Html(f"<{opened}>{inner}</{name}>")


def joined(children: Iterable[Child], between: str = "") -> Html:
    """Return pieces one after the other: markup as it is, text escaped, nothing for None."""
    return Html(between.join(_pieces(children)))


def _pieces(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            yield child
        elif isinstance(child, str):
            yield escape(child)
        elif isinstance(child, int | float):
            yield number(child)
        else:
            yield from _pieces(child)


def _attribute(key: str, value: Value) -> str:
    name = key.rstrip("_").replace("_", "-")
    if not _ATTRIBUTE.fullmatch(name) or name == "style" or name.lower().startswith("on"):
        raise ValueError(f"{name!r} is no attribute that our pages may have")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    text = value if isinstance(value, str) else number(value)
    if name in ("href", "src", "action") and urlsplit(text.strip()).scheme not in _SCHEMES:
        raise ValueError(f"{text!r} is no address that our pages may link to")
    return f' {name}="{escape(text)}"'


def number(value: float) -> str:
    """Return a coordinate: one decimal at most, and the same text on every machine."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is no coordinate")
    return fixed(value, 1).removesuffix(".0")
