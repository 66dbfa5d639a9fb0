"""How did a prompt do over its whole life, other names and suggestions included?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.results.version_results import measured_as, results_by_version, with_measured
from edison_ci.store.suggestions import OPEN, Status, Suggestion, list_suggestions

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.results.version_results import Result
    from edison_ci.results.versions import History, Version


class Life(NamedTuple):
    """A version with what is known of it."""

    version: Version
    result: Result | None = None
    suggestion: Suggestion | None = None
    """The suggestion that made it."""
    in_production: bool = False


class Lineage(NamedTuple):
    """All versions of a prompt, newest first, and what is suggested for it."""

    lives: list[Life]
    open: list[Suggestion]


def lineage_of(history: History, connection: sqlite3.Connection | None) -> Lineage:
    """Return the life of a prompt; without results it is what Git tells."""
    prompt, versions, former = history.prompt, history.versions(), history.former()
    results: dict[tuple[str, str], Result] = {}
    suggestions: list[Suggestion] = []
    if connection is not None:
        found = results_by_version(
            connection, prompt.id, [version.hash for version in reversed(versions)]
        )
        versions = with_measured(versions, found, prompt.id)
        results = {("", version): result for version, result in found.items()}
        results |= _of_former(connection, former, next(iter(found.values()), None))
        _add_twins(connection, prompt.id, versions, results)
        names = dict.fromkeys([str(prompt.id), *(one.former for one in former if one.former)])
        for name in names:
            suggestions += list_suggestions(connection, prompt=name)
    made = {one.new_hash: one for one in suggestions if one.status is Status.APPLIED}
    # What was only suggested is no version that the prompt ever had.
    only_tried = {one.new_hash for one in suggestions if one.new_hash not in made}
    versions = [one for one in versions if one.data is not None or one.hash not in only_tried]
    promoted = promoted_version(versions, prompt.header.production)
    lives = [
        Life(
            version,
            results.get((version.former or "", version.hash)),
            made.get(version.hash),
            promoted is not None and version is promoted,
        )
        for version in [*former, *versions][::-1]
    ]
    return Lineage(lives, [one for one in suggestions if one.status in OPEN])


def promoted_version(versions: Sequence[Version], told: str) -> Version | None:
    """Return the version that a prompt says is in production; None if it says none that is here."""
    for version in versions:
        if told and (told == version.label or version.hash.startswith(told)):
            return version
    return None


def _of_former(
    connection: sqlite3.Connection, former: Sequence[Version], newest: Result | None
) -> dict[tuple[str, str], Result]:
    found: dict[tuple[str, str], Result] = {}
    for name in dict.fromkeys(version.former for version in former if version.former):
        hashes = [version.hash for version in former[::-1] if version.former == name]
        results = results_by_version(connection, name, hashes, newest)
        found |= {(name, version): result for version, result in results.items()}
    return found


def _add_twins(
    connection: sqlite3.Connection,
    prompt: str,
    versions: Sequence[Version],
    results: dict[tuple[str, str], Result],
) -> None:
    """Add what was measured of the very same text under another name."""
    newest = next(iter(results.values()), None)
    for version in versions[::-1]:
        if ("", version.hash) in results:
            continue
        for name in measured_as(connection, version.hash, prompt)[:1]:
            found = results_by_version(connection, name, [version.hash], newest)
            if version.hash in found:
                results["", version.hash] = found[version.hash]
