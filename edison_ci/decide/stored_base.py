"""Which stored run may stand in for a base that was not measured together with the head?

The newest whole run of the commit that the head grew from, graded by the same material, whose
answers are not more than a day from those of the head. Filtered, simulated and replayed runs never
do. Where there is none, it is said why, and what to type.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.decide.verdict import Stored
from edison_ci.errors import UsageError
from edison_ci.repository import Repository
from edison_ci.results.comparable import differing_material, yardstick
from edison_ci.results.comparison_sample import Choice, comparison_sample, runs_at_commit
from edison_ci.results.samples import Subject, TwoSidedSample
from edison_ci.store.runs import IMPORT

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

    from edison_ci.config.load import Project
    from edison_ci.store.runs import Run

_LOOKED_AT = 20
_LISTED = 3


class _Origin(NamedTuple):
    """The commit that the head grew from."""

    branch: str
    commit: str


def stored_base(
    connection: sqlite3.Connection, project: Project, run: Run, left_out: Collection[str]
) -> Stored:
    """Return the stored cells that a run is compared with, set beside its own."""
    try:
        origin = _origin(project)
    except UsageError as error:
        return Stored(told=_nothing(error.message, run, "REF"))
    found = _comparable(connection, run, origin)
    if isinstance(found, str):
        return Stored(told=_nothing(found, run, origin.branch))
    choice, cells = found
    at = f"{origin.branch} at {origin.commit[:8]}"
    about = {
        "run_id": choice.run.id,
        "side": choice.side,
        "ref": origin.branch,
        "commit": origin.commit,
    }
    told = f"The base is run {choice.run.id}, of {at}, measured before."
    return Stored(replace(cells, left_out=cells.left_out.union(left_out)), told, about)


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


def _comparable(
    reader: sqlite3.Connection, run: Run, origin: _Origin
) -> tuple[Choice, TwoSidedSample] | str:
    """Return the stored run of a commit with its cells beside those of a run, or why not."""
    at = f"{origin.branch} at {origin.commit[:8]}"
    first = ""
    for choice in _candidates(reader, run, origin):
        reason = _unfit(choice.run) or _graded_otherwise(choice.run, run)
        cells = reason or _beside(reader, choice, run)
        if isinstance(cells, TwoSidedSample):
            return choice, cells
        first = first or f"run {choice.run.id}, of {at}, {cells}"
    return first or f"no complete run of {at} is stored"


def _candidates(reader: sqlite3.Connection, run: Run, origin: _Origin) -> list[Choice]:
    found = runs_at_commit(reader, run, origin.commit, most=_LOOKED_AT)
    return [Choice(origin.branch, one, side) for one, side in found]


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


def _beside(reader: sqlite3.Connection, choice: Choice, run: Run) -> TwoSidedSample | str:
    """Return the cells of both side by side, or why that does not do."""
    sides = (TwoSidedSample.of_run(reader, choice.run.id).subjects(choice.side),
             TwoSidedSample.of_run(reader, run.id).subjects("head"))  # fmt: skip
    for what in Subject._fields:
        old, new = ({getattr(subject, what) for subject in side} for side in sides)
        if not old & new:
            return f"has no {what} of this one"
    try:
        sample = comparison_sample(reader, choice, Choice("head", run))
    except UsageError:
        return "has no case of this one"
    if not sample.matching.paired:
        return "has too few cases of this one"
    if sample.cells.days_apart():
        return "has answers more than 24 hours from these"
    return sample.cells
