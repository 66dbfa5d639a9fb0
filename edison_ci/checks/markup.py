"""Readers of XML and HTML, which say why a text is neither.

Both read the text once, resolve nothing outside of it, and build no tree.
"""

from __future__ import annotations

import re
from typing import NoReturn
from xml.parsers import expat

LONGEST_HTML = 500_000

_EMPTY = "area base br col embed hr img input link meta param source track wbr"
_LEFT_OPEN = "html head body p li dt dd option optgroup rp rt colgroup thead tbody tfoot tr td th"
_CLOSED = """
    a abbr address article aside audio b bdi bdo blockquote button canvas caption cite code data
    datalist del details dfn dialog div dl em fieldset figcaption figure footer form h1 h2 h3 h4 h5
    h6 header hgroup i iframe ins kbd label legend main map mark menu meter nav noscript object ol
    output picture pre progress q s samp script search section select slot small span strong style
    sub summary sup svg table template textarea time title u ul var video
"""
_VOID = frozenset(_EMPTY.split())
_MAY_STAY_OPEN = frozenset(_LEFT_OPEN.split())
_KNOWN = _VOID | _MAY_STAY_OPEN | frozenset(_CLOSED.split())
_RAW = {
    name: re.compile(rf"</{name}\s*+>", re.IGNORECASE)
    for name in ("script", "style", "textarea", "title")
}
_MARK = re.compile(r"<(?:(/?)([A-Za-z][^\s/>]*+)|(!--|[!?]))")  # any other < is text
_UNTIL_QUOTE = re.compile(r"[^\"'>]*+")


class NotMarkupError(ValueError):
    """A text is not valid markup; the message says why."""


def check_xml(text: str) -> None:
    """Raise NotMarkupError unless a text is one well-formed XML document without entities."""
    parser = expat.ParserCreate("utf-8")
    parser.EntityDeclHandler = _refuse_entity
    try:
        parser.Parse(text.encode(), True)
    except UnicodeEncodeError:
        raise NotMarkupError("not XML: a lone surrogate is not a character") from None
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        place = f"line {error.lineno}, column {error.offset + 1}"
        raise NotMarkupError(f"not XML: {reason} ({place})") from None


def _refuse_entity(name: str, *_: object) -> NoReturn:
    """Raise: an entity may expand to gigabytes, or to a file of this machine."""
    raise NotMarkupError(f"the XML declares an entity ({name[:40]}), which is not read")


def check_html(text: str) -> None:
    """Raise NotMarkupError unless a text starts and ends with balanced tags of HTML."""
    if not text.startswith("<") or not text.endswith(">"):
        raise NotMarkupError("not HTML: it does not start and end with a tag")
    reader = _Html(text)
    reader.read()
    if not reader.known:
        raise NotMarkupError("not HTML: none of its tags is an element of HTML")


class _Html:
    """Reads tag by tag and keeps a stack of open tags."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._open: list[str] = []
        self.known = False
        """Whether there was an element of HTML."""

    def read(self) -> None:
        while mark := _MARK.search(self._text, self._at):
            if mark[2]:
                self._tag(mark)
            elif mark[3] == "!--":
                self._at = self._after("-->", mark.end(), "a comment")
            else:
                self._at = self._after(">", mark.end(), "a declaration")
        left = [name for name in self._open if name not in _MAY_STAY_OPEN]
        if left:
            raise NotMarkupError(f"not HTML: <{left[-1][:40]}> is never closed")

    def _tag(self, mark: re.Match[str]) -> None:
        name = mark[2].lower()
        self._at = end = self._end_of_tag(mark.end())
        self.known = self.known or name in _KNOWN
        if mark[1]:
            self._close(name, mark.start())
        elif name not in _VOID and self._text[end - 2] != "/":
            self._open.append(name)
            if name in _RAW:
                inside = _RAW[name].search(self._text, end)
                if inside is None:
                    raise NotMarkupError(f"not HTML: <{name}> is never closed")
                self._at = inside.start()

    def _close(self, name: str, at: int) -> None:
        while self._open and self._open[-1] != name and self._open[-1] in _MAY_STAY_OPEN:
            self._open.pop()
        if name in _VOID or not self._open or self._open.pop() != name:
            line = self._text.count("\n", 0, at) + 1
            raise NotMarkupError(f"not HTML: </{name[:40]}> in line {line} closes nothing")

    def _end_of_tag(self, at: int) -> int:
        """Return the position after the > that is not inside of quotes."""
        while True:
            match = _UNTIL_QUOTE.match(self._text, at)
            at = match.end() if match else at
            if at >= len(self._text):
                raise NotMarkupError("not HTML: a tag has no end")
            if self._text[at] == ">":
                return at + 1
            at = self._after(self._text[at], at + 1, "a quoted value")

    def _after(self, mark: str, start: int, what: str) -> int:
        end = self._text.find(mark, start)
        if end < 0:
            raise NotMarkupError(f"not HTML: {what} has no end")
        return end + len(mark)
