"""Markdown made short enough for a forge, with nothing left open.

GitHub refuses more than 65,536 characters. Length is counted as JavaScript counts it, which is
never less than what anybody else counts.
"""

from __future__ import annotations

import re

LIMIT_CHARS = 65_536
"""What GitHub takes."""
MAX_BODY_CHARS = 60_000
"""What we send at most."""

_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})(.*)")
_DETAILS = re.compile(r"<(/?)details\b", re.IGNORECASE)


def length(text: str) -> int:
    """Return the number of UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def capped(text: str, limit: int = MAX_BODY_CHARS, *, elsewhere: str = "") -> str:
    """Return a text of at most `limit` characters, cut between lines and properly closed.

    `elsewhere` says where all of it can be read.
    """
    if length(text) <= limit:
        return text
    lines = text.split("\n")
    kept, closing = _head(lines, limit - 400 - length(elsewhere))
    left = lines[len(kept) :]
    rows = sum(line.lstrip().startswith("|") for line in left)
    what = f"{rows:,} more rows" if rows else f"{len(left):,} more lines"
    where = f", see {elsewhere}" if elsewhere else ""
    return "\n".join([*kept, *closing, "", f"… {what}{where}", ""])


def _head(lines: list[str], room: int) -> tuple[list[str], list[str]]:
    """Return as many lines as there is room for, and what closes whatever they left open."""
    kept: list[str] = []
    fence, open_details = "", 0
    for line in lines:
        room -= length(line) + 1
        if room < 0:
            break
        kept.append(line)
        fence, open_details = _after(line, fence, open_details)
    closing = [fence] if fence else []
    closing += ["", *["</details>"] * min(open_details, 20)] if open_details > 0 else []
    return kept, closing


def _after(line: str, fence: str, open_details: int) -> tuple[str, int]:
    found = _FENCE.match(line)
    if fence:
        closes = found and found[1].startswith(fence) and not found[2].strip()
        return ("" if closes else fence), open_details
    if found:
        return found[1], open_details
    for tag in _DETAILS.findall(line):
        open_details += -1 if tag else 1
    return "", max(open_details, 0)
