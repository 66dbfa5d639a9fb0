"""Changes of the eval suite between head and base, and the runs that belong together.

A comparison whose material differs is measured twice, on the material of head and on that of the
base. Both runs keep what they were planned on, and which places differ, so what changed can be told
from what is stored.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.results.snapshot import kept_against, kept_snapshot, material_of
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from edison_ci.store.runs import Run


# A comparison on changed material takes two runs, and a pull request may touch several
# experiments.
_LOOKED_THROUGH = 500
"""Runs among which others of the same change are looked for."""


def companion_of(connection: sqlite3.Connection, run: Run) -> Run | None:
    """Return the run on the base's material that was made for the same comparison, if any."""
    if run.base_commit is None or material_of(run) == "base":
        return None
    for other in _before(connection, run):
        if other.experiment != run.experiment:
            continue
        same = other.base_commit == run.base_commit and material_of(other) == "base"
        return other if same else None
    return None


def runs_of_change(connection: sqlite3.Connection, run: Run) -> list[Run]:
    """Return the newest run of each experiment on the same commit and base, by name.

    What was run on files that no commit has stands alone: nobody knows what belongs to it.
    """
    found = {run.experiment: run}
    if run.commit_id is not None:
        for other in _before(connection, run):
            alike = (other.commit_id, other.base_commit) == (run.commit_id, run.base_commit)
            if alike and material_of(other) == "head":
                found.setdefault(other.experiment, other)
    return [found[name] for name in sorted(found)]


def _before(connection: sqlite3.Connection, run: Run) -> list[Run]:
    """Return the runs that were started before this one, newest first."""
    rows = connection.execute(
        "select id from run where (created_at, rowid) < (select created_at, rowid from run "
        "where id = ?) order by created_at desc, rowid desc limit ?",
        (run.id, _LOOKED_THROUGH),
    )
    return [find_run(connection, run_id) for (run_id,) in rows.fetchall()]


class MaterialChange(NamedTuple):
    """One thing that both sides are measured with, and that the change has changed."""

    place: str
    before: str
    after: str


_SUBJECT = frozenset({"prompts", "models"})
"""Keys of an experiment that say what is measured, not with what."""
_NOTHING = "-"
_LONGEST = 60
_DEEPEST = 6
_DIGEST = re.compile(r"[0-9a-f]{64}")


def replaced_in(run: Run) -> tuple[str, ...]:
    """Return what of a run is compared with a former self of another name."""
    return tuple(map(str, kept_against(run).get("replaced", ())))


def material_changes(
    connection: sqlite3.Connection, run: Run, companion: Run | None
) -> tuple[MaterialChange, ...]:
    """Return what of a run's material is not as at the base, the cases first.

    `companion` is the run on the base's material; without it only the places are known.
    """
    found: list[MaterialChange] = []
    if companion is not None:
        old, new = _material(companion), _material(run)
        found += _cases(connection, companion, run)
        for place in sorted({*old, *new}):
            found += _differing(place, old.get(place), new.get(place))
    told = [change.place for change in found]
    for place in map(str, kept_against(run).get("changed", ())):
        if not any(each.startswith(place) for each in told):
            found.append(MaterialChange(place, "as it was", "edited"))
    return tuple(found)


def _material(run: Run) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for place, value in kept_snapshot(run).items():
        if place == "command line" or place.startswith("base: ") or _plays(value):
            continue
        if isinstance(value, dict) and value.get("experiment") == run.experiment:
            value = {key: each for key, each in value.items() if key not in _SUBJECT}
        told[place] = value
    return told


def _plays(value: Any) -> bool:
    """Whether this is a prompt, or a model that only generates: they are what is measured."""
    if not isinstance(value, list) or len(value) != 2:
        return False
    first, second = value
    version = isinstance(first, str) and _DIGEST.fullmatch(first) is not None
    return (version and isinstance(second, str)) or (isinstance(first, dict) and second is None)


def _differing(
    place: str, old: Any, new: Any, key: str = "", depth: int = 0
) -> Iterator[MaterialChange]:
    if old == new:
        return
    deeper = depth < _DEEPEST and not _is_margin(old) and not _is_margin(new)
    if deeper and isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            below = f"{key}.{name}" if key else str(name)
            yield from _differing(place, old.get(name), new.get(name), below, depth + 1)
    elif deeper and isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differing(place, one, other, f"{key}[{index}]", depth + 1)
    else:
        where = f"{place}: {key}" if key else place
        yield MaterialChange(where, _short(old), _short(new))


def _is_margin(value: Any) -> bool:
    return isinstance(value, dict) and {"relative", "value"} <= value.keys()


def _short(value: Any) -> str:
    if value is None:
        return _NOTHING
    if _is_margin(value):
        return f"{100 * float(value['value']):g}{'%' if value['relative'] else 'pp'}"
    if isinstance(value, str):
        text = value[:8] if _DIGEST.fullmatch(value) else value
    elif isinstance(value, list) and any(isinstance(each, list | dict) for each in value):
        return f"{len(value):,} entries" if len(value) != 1 else "1 entry"
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _cases(connection: sqlite3.Connection, before: Run, after: Run) -> Iterator[MaterialChange]:
    counts = connection.execute(
        "with old as (select case_id, max(coalesce(case_hash, '')) as content from cell "
        "where run_id = :old and side = 'head' group by case_id), "
        "new as (select case_id, max(coalesce(case_hash, '')) as content from cell "
        "where run_id = :new and side = 'head' group by case_id) "
        "select (select count(*) from old), (select count(*) from new), "
        "(select count(*) from old where case_id not in (select case_id from new)), "
        "(select count(*) from new where case_id not in (select case_id from old)), "
        "(select count(*) from old join new using (case_id) where old.content <> new.content)",
        {"old": before.id, "new": after.id},
    ).fetchone()
    was, now, gone, added, edited = counts
    if gone or added or edited:
        told = [f"{n:,} {word}" for n, word in ((gone, "removed"), (added, "added"),
                                                (edited, "edited")) if n]  # fmt: skip
        yield MaterialChange("cases", f"{was:,}", f"{now:,} ({', '.join(told)})")
