"""Which stored run may stand in for a base that was not measured together with the head?

The newest whole run of the commit that the head grew from, graded by the same material, whose
answers are not more than a day from those of the head. Filtered, simulated and replayed runs never
do. Where there is none, it is said why, and what to type.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.decide.verdict import Stored
from edison_ci.errors import UsageError
from edison_ci.repository import Repository
from edison_ci.results.comparable import differing_material, yardstick
from edison_ci.results.comparison_sample import LINEUP, Choice, line_up
from edison_ci.results.operands import OWN_MATERIAL
from edison_ci.results.samples import Evidence
from edison_ci.store.database import open_reader
from edison_ci.store.runs import IMPORT, NO_TRIAL, find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from edison_ci.config.load import Project
    from edison_ci.store.runs import Run

_LOOKED_AT = 20
_LISTED = 3
_APART = (
    "select 1 from temp.cell h join temp.cell b on b.side = 'base' and b.prompt = h.prompt "
    "and b.model = h.model and b.case_id = h.case_id "
    "join answer new on new.address = h.address and new.take = h.take "
    "join answer old on old.address = b.address and old.take = b.take "
    "where h.side = 'head' and (h.address <> b.address or h.take <> b.take) "
    "and abs(julianday(new.created_at) - julianday(old.created_at)) > 1 limit 1"
)
"""A pair of answers, not the same one, more than 24 hours apart."""


class _Origin(NamedTuple):
    """The commit that the head grew from."""

    branch: str
    commit: str


@contextlib.contextmanager
def stored_base(project: Project, run: Run, quarantined: frozenset[str]) -> Iterator[Stored]:
    """Yield the stored cells that a run is compared with, set beside its own."""
    try:
        origin = _origin(project)
    except UsageError as error:
        yield Stored(told=_nothing(error.message, run, "REF"))
        return
    # A connection of its own: what is set side by side stands before the stored cells.
    with contextlib.closing(open_reader(project.root / project.file.results)) as reader:
        found = _comparable(reader, run, origin)
        if isinstance(found, str):
            yield Stored(told=_nothing(found, run, origin.branch))
            return
        at = f"{origin.branch} at {origin.commit[:8]}"
        about = {
            "run_id": found.run.id,
            "side": found.side,
            "ref": origin.branch,
            "commit": origin.commit,
        }
        told = f"The base is run {found.run.id}, of {at}, measured before."
        yield Stored(Evidence(reader, LINEUP, quarantined), told, about)


def _nothing(reason: str, run: Run, ref: str) -> str:
    said = f"No base to compare with: {reason}."
    return f"{said} Get one with `edison run {run.experiment} --against {ref}`."


def _origin(project: Project) -> _Origin:
    repository = Repository.find(project.root)
    if repository is None:
        raise UsageError("this project is not in a Git repository")
    branch = repository.default_branch()
    if branch is None:
        raise UsageError("there is no commit yet")
    return _Origin(branch, repository.base_for(branch, fetch=False))


def _comparable(reader: sqlite3.Connection, run: Run, origin: _Origin) -> Choice | str:
    """Return the stored run of a commit that a run is set beside, or why there is none."""
    at = f"{origin.branch} at {origin.commit[:8]}"
    first = ""
    for choice in _candidates(reader, run, origin):
        reason = _unfit(choice.run) or _graded_otherwise(choice.run, run)
        reason = reason or _apart(reader, choice, run)
        if not reason:
            return choice
        first = first or f"run {choice.run.id}, of {at}, {reason}"
    return first or f"no complete run of {at} is stored"


def _candidates(reader: sqlite3.Connection, run: Run, origin: _Origin) -> list[Choice]:
    rows = reader.execute(
        "select id, iif(commit_id = :commit, 'head', 'base') from run where experiment = :name "
        "and id <> :own and complete = 1 and status = 'COMPLETED' "
        f"and (commit_id = :commit or base_commit = :commit) and {OWN_MATERIAL} = 'head' "
        f"and {NO_TRIAL} "
        "order by created_at desc, rowid desc limit :most",
        {
            "commit": origin.commit,
            "name": run.experiment,
            "own": run.id,
            "most": _LOOKED_AT,
        },
    )
    return [Choice(origin.branch, find_run(reader, name), side) for name, side in rows.fetchall()]


def _unfit(run: Run) -> str:
    if run.partial:
        return "has only some of the cases, and such runs never serve as base"
    if run.simulated:
        return "is simulated, and such runs never serve as base"
    elsewhere = {"replay": "answers from a recording", IMPORT: "came in with a bundle"}
    return elsewhere.get(run.trigger, "")


def _graded_otherwise(old: Run, new: Run) -> str:
    different = differing_material(old, new)
    if not different and yardstick(old) != yardstick(new):
        different = ["objective"]
    if not different:
        return ""
    more = ", ..." if len(different) > _LISTED else ""
    return f"was measured with another {', '.join(different[:_LISTED])}{more}"


def _apart(reader: sqlite3.Connection, choice: Choice, run: Run) -> str:
    """Set both side by side; returns why that does not do."""
    for what in ("prompt", "model"):
        query = f"select distinct {what} from main.cell where run_id = ? and side = ?"
        sides = ((choice.run.id, choice.side), (run.id, "head"))
        old, new = (set(reader.execute(query, side).fetchall()) for side in sides)
        if not old & new:
            return f"has no {what} of this one"
    try:
        lineup = line_up(reader, choice, Choice("head", run))
    except UsageError:
        return "has no case of this one"
    if not lineup.matching.paired:
        return "has too few cases of this one"
    if reader.execute(_APART).fetchone() is not None:
        return "has answers more than 24 hours from these"
    return ""
