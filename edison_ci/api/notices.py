"""Notices: events for recipients, written in the transaction that stores the fact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from edison_ci import feature
from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from edison_ci.access.site import Site
    from edison_ci.config.sections import Occasion

Level = Literal["info", "warn", "alert"]


@dataclass(frozen=True, slots=True)
class Notice:
    """An event that recipients are notified of."""

    occasion: Occasion
    title: str
    """One line, without a period."""
    sentences: tuple[str, ...] = ()
    """What happened and what to do; no texts of prompts, cases or answers."""
    experiment: str | None = None
    run_id: str | None = None
    condition: str | None = None
    """The condition that an alert is about; its issue is found again by it."""
    level: Level = "info"
    open: bool = True
    """Whether the condition holds; False when it has ended."""
    at: str = ""
    """ISO-8601 UTC; empty for now."""
    also: tuple[Occasion, ...] = ()
    """Other occasions that it is as well; a recipient gets it once."""
    issues_only: bool = False
    """Whether other notices cover it: only issues, one for each condition, follow it."""
    texts: tuple[str, ...] = ()
    """Texts of prompts, cases or answers, for recipients with `texts: true`."""


def notify(connection: sqlite3.Connection, site: Site, notice: Notice) -> None:
    """Hand a notice to the features that deliver it, in the current transaction."""
    feature.call("notice", connection, site, notice)


def lines_of(message: Mapping[str, Any]) -> list[str]:
    """Return the paragraphs of a message for people, the title aside."""
    lines = [str(sentence) for sentence in message["sentences"]]
    for part in message["notices"]:
        lines.append(f"{part['at']}: {part['title']}")
    return [*lines, *map(str, message["texts"])]


def about(message: Mapping[str, Any]) -> str:
    """Return where a message comes from, in one line."""
    named = [("project", "project"), ("experiment", "experiment"), ("run_id", "run")]
    parts = [f"{word} {message[key]}" for key, word in named if message[key]]
    return ", ".join([*parts, str(message["at"])])
