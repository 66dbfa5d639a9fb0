"""Writes the table of keys in docs/pages.md."""

from __future__ import annotations

from edison_ci.web.pages.home import GROUPS


def table() -> str:
    """Return every key with what it does."""
    rows = ["", "| where | key | does |", "| --- | --- | --- |"]
    for where, keys in GROUPS:
        rows += [f"| {where.lower()} | `{key}` | {what} |" for key, what in keys]
    return "\n".join([*rows, "", ""])
