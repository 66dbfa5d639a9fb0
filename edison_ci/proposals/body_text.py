"""Texts of pull requests and comments, cut to what a forge accepts."""

from __future__ import annotations

import re

MAX_BODY_CHARS = 60_000
"""The longest body that is sent. GitHub refuses more than 65,536 characters."""

_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})(.*)")
_DETAILS = re.compile(r"<(/?)details\b", re.IGNORECASE)


def utf16_length(text: str) -> int:
    """Return the number of UTF-16 units: how JavaScript counts, never less than other counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def truncate(text: str, limit: int = MAX_BODY_CHARS, *, elsewhere: str = "") -> str:
    """Return Markdown of at most `limit` characters, cut between lines, with open blocks closed.

    `elsewhere` names the place of the full text.
    """
    if utf16_length(text) <= limit:
        return text
    lines = text.split("\n")
    kept, closing = _leading_lines(lines, limit - 400 - utf16_length(elsewhere))
    left = lines[len(kept) :]
    rows = sum(line.lstrip().startswith("|") for line in left)
    what = f"{rows:,} more rows" if rows else f"{len(left):,} more lines"
    where = f", see {elsewhere}" if elsewhere else ""
    return "\n".join([*kept, *closing, "", f"… {what}{where}", ""])


def _leading_lines(lines: list[str], room: int) -> tuple[list[str], list[str]]:
    """Return as many lines as there is room for, and the lines that close their open blocks."""
    kept: list[str] = []
    fence, open_details = "", 0
    for line in lines:
        room -= utf16_length(line) + 1
        if room < 0:
            break
        kept.append(line)
        fence, open_details = _open_marks(line, fence, open_details)
    closing = [fence] if fence else []
    closing += ["", *["</details>"] * min(open_details, 20)] if open_details > 0 else []
    return kept, closing


def _open_marks(line: str, fence: str, open_details: int) -> tuple[str, int]:
    found = _FENCE.match(line)
    if fence:
        closes = found and found[1].startswith(fence) and not found[2].strip()
        return ("" if closes else fence), open_details
    if found:
        return found[1], open_details
    for tag in _DETAILS.findall(line):
        open_details += -1 if tag else 1
    return "", max(open_details, 0)
