"""HTML and SVG elements: text is escaped by markupsafe, and unsafe attributes are refused.

Invisible characters in a text are spelled out before it is escaped. Style and event-handler
attributes, which the content security policy of the pages forbids, and links that run code raise
ValueError: they are bugs of the caller.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

import markupsafe
from markupsafe import Markup

from edison_ci.numeric import fixed
from edison_ci.sanitize import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_VOID = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "wbr"})
_SHAPES = frozenset({"circle", "line", "path", "polygon", "polyline", "rect", "use"})
_ATTRIBUTE = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")
_LINKS = frozenset({"href", "src", "action"})
_SCHEMES = frozenset({"", "http", "https"})
_NOT_XML = re.compile("[\ufffe\uffff]")

Child: TypeAlias = "str | int | float | Iterable[Child] | None"
Value: TypeAlias = "str | int | float | bool | None"


def escape(text: str) -> Markup:
    """Escape a text for HTML and XML, with invisible characters spelled out."""
    return markupsafe.escape(_NOT_XML.sub("\ufffd", clean(str(text))))


def element(name: str, /, *children: Child, **attributes: Value) -> Markup:
    """Return an element; `class_` becomes class, `stroke_width` becomes stroke-width."""
    start = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{start}>")
    inner = join(children)
    if not inner and name in _SHAPES:
        return Markup(f"<{start}/>")
    return Markup(f"<{start}>{inner}</{name}>")


def join(children: Iterable[Child]) -> Markup:
    """Concatenate markup, escaped texts and numbers; None is left out."""
    return Markup("".join(_pieces(children)))


def code_spans(text: str) -> Markup:
    """Return a sentence with the text between backticks as code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return escape(text)
    return join(element("code", piece) if i % 2 else piece for i, piece in enumerate(pieces))


def _pieces(children: Iterable[Child]) -> Iterator[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
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
        raise ValueError(f"the attribute {name!r} is not allowed on pages")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    text = value if isinstance(value, str) else number(value)
    if name in _LINKS and urlsplit(text.strip()).scheme not in _SCHEMES:
        raise ValueError(f"the link {text!r} is not allowed on pages")
    return f' {name}="{escape(text)}"'


def number(value: float) -> str:
    """Return a coordinate with at most one decimal, the same text on every machine."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a coordinate")
    return fixed(value, 1).removesuffix(".0")
