"""Text from files and models in Markdown, shown and not obeyed.

Names of cases, prompts and models, and whatever a sentence quotes, may hold Markdown, HTML,
mentions of people, references that close issues, addresses that tell somebody who reads the
report, and characters that hide or turn text around. Such text stands in code, on one line, cut to
a length; plain words of a sentence stay as they are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci.sanitize import line, lines

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 120
"""Characters of a name that are shown."""
MOST_PROSE = 600
_TICKS = re.compile("`+")
_MANY_TICKS = re.compile("`{10,}")
"""GitHub knows no code between more than 80 of them: so many are spelt out."""
_SIDE_BY_SIDE = re.compile("(?<=`)\0+(?=`)")
_QUOTED = re.compile("`([^`]+)`")
_PLAIN = re.compile(r"[(\"']*+[^\W_]*+(?:[.,'%+=-][^\W_]++|[+-])*+[%)\"'.,;:?]*+")
_LINKED = re.compile(r"(?i)www[.]|^\W*[a-z]+-[0-9]|[0-9a-f]{7,}")
"""What forges make links of: addresses, keys of issues (GH-12), ids of commits."""
_OPENING = re.compile(r"[0-9]+[.)]|[+=-]+")
"""What opens a list, or draws a line, where a line begins."""


def code(text: str, *, most: int = MOST) -> str:
    """Return a text as inline code that nothing in it can end."""
    spelt = _MANY_TICKS.sub(lambda found: r"\u{60}" * len(found.group()), line(text))
    shown = shortened(spelt, most) or "(empty)"
    runs = [len(run) for run in _TICKS.findall(shown)]
    fence = "`" * (max(runs, default=0) + 1)
    blank = " " if runs or shown[0] == shown[-1] == " " else ""
    return f"{fence}{blank}{shown}{blank}{fence}"


def prose(text: str, *, most: int = MOST_PROSE) -> str:
    """Return a sentence of ours whose plain words stay words; whatever else is in it is code."""
    shown = shortened(line(text), most)
    pieces: list[str] = []
    for index, piece in enumerate(_QUOTED.split(shown)):
        if index % 2:
            pieces.append(code(piece, most=most))
        else:
            pieces.append(" ".join(_word(word) for word in piece.split(" ")))
    # Two codes side by side would be one, and end where neither of them does.
    whole = _SIDE_BY_SIDE.sub(" ", "\0".join(pieces)).replace("\0", "")
    first, blank, rest = whole.strip().partition(" ")
    return f"{code(first) if _OPENING.fullmatch(first) else first}{blank}{rest}"


def _word(word: str) -> str:
    if not word or (_PLAIN.fullmatch(word) and not _LINKED.search(word)):
        return word
    bare = word.rstrip(".,;:?")  # what ends a sentence, or a part of it, is ours
    return code(bare) + word[len(bare) :] if bare else code(word)


def shortened(text: str, most: int) -> str:
    """Return at most so many characters of a text, saying so."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def row(cells: Iterable[str]) -> str:
    """Return a row of a table; bars inside cells do not end them."""
    bar = r"\|"  # the one escape that holds inside of code too, if it is in a table
    return f"| {' | '.join(cell.replace('|', bar) for cell in cells)} |"


def fenced(text: str, *, most: int = 2_000) -> str:
    """Return a text of several lines as a block of code that nothing in it can end."""
    plain = lines(text.replace("\r\n", "\n")).strip("\n")
    spelt = _MANY_TICKS.sub(lambda found: r"\u{60}" * len(found.group()), plain)
    shown = shortened(spelt, most) or "(empty)"
    fence = "`" * max([2, *(len(run) for run in _TICKS.findall(shown))])
    return f"{fence}`\n{shown}\n{fence}`"
