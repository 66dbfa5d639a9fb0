"""Documents as Markdown: safe quoting of untrusted text, tables, and sections cut to a limit.

Names of cases, prompts and models, and quotes in sentences, may contain Markdown, HTML, mentions,
references that close issues, tracking links and invisible characters. Such text is written as
inline code on one line, cut to a length; plain words of a sentence stay plain.

GitHub refuses comments and summaries that are too long. A report is a list of sections, the most
important first; what does not fit is left out row by row from the end, and counted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.report.document import Bullets, Code, Estimate, Name, Notice, Sentence, Status
from edison_ci.sanitize import line, lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from edison_ci.report.document import Block, Inline, Section


MOST = 120
"""Most characters of a name."""
MOST_PROSE = 600
_TICKS = re.compile("`+")
_MANY_TICKS = re.compile("`{10,}")
"""GitHub knows no code span with more than 80 backticks: long runs are spelled out."""
_SIDE_BY_SIDE = re.compile("(?<=`)\0+(?=`)")
_QUOTED = re.compile("`([^`]+)`")
_PLAIN = re.compile(r"[(\"']*+[^\W_]*+(?:[.,'%+=-][^\W_]++|[+-])*+[%)\"'.,;:?]*+")
_LINKED = re.compile(r"(?i)www[.]|^\W*[a-z]+-[0-9]|[0-9a-f]{7,}")
"""What forges turn into links: URLs, issue keys (GH-12), commit ids."""
_OPENING = re.compile(r"[0-9]+[.)]|[+=<>-]+")
"""What starts a list or a rule at the beginning of a line."""

_ALONE = frozenset("<=>")
"""Signs that are plain text between two spaces, as in p < 0.001."""


def code(text: str, *, most: int = MOST) -> str:
    """Return text as inline code that its content cannot end."""
    spelled = _MANY_TICKS.sub(lambda ticks: r"\u{60}" * len(ticks.group()), line(text))
    quoted = shortened(spelled, most) or "(empty)"
    runs = [len(run) for run in _TICKS.findall(quoted)]
    fence = "`" * (max(runs, default=0) + 1)
    blank = " " if runs or quoted[0] == quoted[-1] == " " else ""
    return f"{fence}{blank}{quoted}{blank}{fence}"


def prose(text: str, *, most: int = MOST_PROSE) -> str:
    """Return a sentence in which everything but plain words is inline code."""
    sentence = shortened(line(text), most)
    pieces: list[str] = []
    for index, piece in enumerate(_QUOTED.split(sentence)):
        if index % 2:
            pieces.append(code(piece, most=most))
        else:
            pieces.append(" ".join(_word(word) for word in piece.split(" ")))
    # Adjacent code spans would merge into one.
    whole = _SIDE_BY_SIDE.sub(" ", "\0".join(pieces)).replace("\0", "")
    first, blank, rest = whole.strip().partition(" ")
    return f"{code(first) if _OPENING.fullmatch(first) else first}{blank}{rest}"


def _word(word: str) -> str:
    if not word or word in _ALONE or (_PLAIN.fullmatch(word) and not _LINKED.search(word)):
        return word
    bare = word.rstrip(".,;:?")  # punctuation at the end stays outside of the code
    return code(bare) + word[len(bare) :] if bare else code(word)


def shortened(text: str, most: int) -> str:
    """Cut a text to `most` characters, with dots where it was cut."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def row(cells: Iterable[str]) -> str:
    """Return a table row with bars in cells escaped."""
    bar = r"\|"  # in tables this escape works inside code as well
    return f"| {' | '.join(cell.replace('|', bar) for cell in cells)} |"


def fenced(text: str, *, most: int = 2_000, language: str = "") -> str:
    """Return text as a fenced code block that its content cannot end."""
    plain = lines(text.replace("\r\n", "\n")).strip("\n")
    spelled = _MANY_TICKS.sub(lambda ticks: r"\u{60}" * len(ticks.group()), plain)
    quoted = shortened(spelled, most) or "(empty)"
    fence = "`" * max([2, *(len(run) for run in _TICKS.findall(quoted))])
    return f"{fence}`{language}\n{quoted}\n{fence}`"


def inline(text: Inline) -> str:
    """Return a text with its marks; our own wording is Markdown already."""
    if isinstance(text, Name):
        return code(text.text)
    if isinstance(text, Sentence):
        # Emphasis of nothing would be a rule.
        return prose(text.text) or code(text.text)
    if isinstance(text, Status):
        return text.word
    if isinstance(text, Estimate):
        return text.text
    return text if isinstance(text, str) else "".join(map(inline, text))


def block(content: Block) -> str:
    """Return a paragraph, list or preformatted text."""
    if isinstance(content, Code):
        return fenced(content.text, most=content.most, language=content.language)
    if isinstance(content, Bullets):
        return "\n".join(f"- {inline(item)}" for item in content.items)
    if isinstance(content, Notice):
        return f"> **{content.label}.** {inline(content.text)}"
    return inline(content)


_RESERVED = 200
"""Characters reserved for the notes about what was left out."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Size limit of a text, and where the rest can be found."""

    most: int | None = None
    size: Callable[[str], int] = len
    elsewhere: str = "the report"


def document_text(title: str, sections: Iterable[Section]) -> str:
    """Return a whole document."""
    return f"# {prose(title)}\n\n{fit([*sections])}".rstrip() + "\n"


def fit(sections: Sequence[Section], limit: Limit | None = None) -> str:
    """Return the sections as Markdown, as much as fits."""
    limit = limit or Limit()
    if limit.most is None:
        return "".join(_section_text(section, _rows(section), limit) for section in sections)
    room, kept = limit.most - _RESERVED, 0
    for section in sections:
        need = limit.size(_section_text(section, [], limit))
        if need > room:
            break
        room -= need
        kept += 1
    text = ""
    for section in sections[:kept]:
        lines, room = _fitting(_rows(section), room, limit.size)
        text += _section_text(section, lines, limit)
    if kept < len(sections):
        left = len(sections) - kept
        text += f"… {left:,} more sections, see {limit.elsewhere}\n"
    return text


def _rows(section: Section) -> list[str]:
    table = section.table
    return [] if table is None else [row(map(inline, cells)) for cells in table.brief.rows]


def _fitting(lines: list[str], room: int, size: Callable[[str], int]) -> tuple[list[str], int]:
    kept: list[str] = []
    for text in lines:
        need = size(text) + 1
        if need > room:
            return kept, 0  # later sections are less important
        room -= need
        kept.append(text)
    return kept, room


def _section_text(section: Section, lines: Sequence[str], limit: Limit) -> str:
    inside = [text for text in map(block, section.blocks) if text]
    table = section.table
    if table is not None and table.rows:
        names = [column.name for column in table.columns if not column.detail]
        inside.append("\n".join([row(names), row("---" for _ in names), *lines]))
        left = len(table.rows) - len(lines)
        if left:
            inside.append(f"… {left:,} more rows, see {limit.elsewhere}")
    if section.fold and inside:
        inside = [f"<details><summary>{section.fold}</summary>", *inside, "</details>"]
    blocks = [f"{'#' * section.level} {inline(section.title)}"] if section.title else []
    return "".join(f"{text}\n\n" for text in (*blocks, *inside))
