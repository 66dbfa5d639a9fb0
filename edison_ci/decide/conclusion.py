"""Conclusions: what the gates say about a run whose cells are graded, or as far as they are."""

from __future__ import annotations

import json
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.decide.interim import goes_on, unclear_subjects
from edison_ci.decide.verdict import Background, RunDecision, Stored, decide, doubted
from edison_ci.errors import UsageError
from edison_ci.git.repository import Repository
from edison_ci.plan.looks import Look, batch_size, batches_of, draws_look
from edison_ci.results.comparable import differing_material, yardstick
from edison_ci.results.comparison_sample import Choice, comparison_sample, runs_at_commit
from edison_ci.results.decisions import decisions_of, stored_looks, write_decisions
from edison_ci.results.samples import Subject, TwoSidedSample
from edison_ci.store.runs import IMPORT, find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Mapping, Sequence

    from edison_ci.config.decisions import Gate
    from edison_ci.config.load import Project
    from edison_ci.errors import ExitCode
    from edison_ci.plan.baseline import Doubt
    from edison_ci.results.decisions import GateRow
    from edison_ci.store.runs import CellRow, Run


# The looks were declared before the first of them, so they are gone through again, on the cells
# that each of them saw. Nothing is read but stored cells, and nothing is written.
def last_look(connection: sqlite3.Connection, run: Run) -> Look | None:
    """Return the last look that was taken at a run, or at the one whose answers it grades anew."""
    graded = _graded(run)
    if graded is not None:
        return last_look(connection, find_run(connection, graded))
    looks = stored_looks(connection, run.id)
    if not looks:
        return None
    known: dict[str, Any] = max(looks, key=lambda look: int(look["number"]))
    names = ("kind", "number", "of", "at", "most")
    return Look(**{name: known[name] for name in names}, seed=run.plan_hash)


def decide_again(
    connection: sqlite3.Connection,
    gates: Sequence[Gate],
    run: Run,
    background: Background,
) -> RunDecision:
    """Decide a run by its cells, looking as often as was looked."""
    cells = TwoSidedSample.of_run(connection, run.id)
    last = last_look(connection, run) if background.has_base else None
    if last is None:
        return decide(cells, gates, background)
    if last.kind == "cases":
        look = replace(last, final=True)
        return decide(cells, gates, replace(background, look=look))
    decided = RunDecision.of(())
    for number in range(1, last.number + 1):
        look = draws_look(number, last.at // last.number)
        now = replace(background, look=look, before=decided.rows)
        decided = decide(cells, gates, now)
        if not goes_on(decided.rows, look):
            break
    return decided


def look_of_cell(connection: sqlite3.Connection, run: Run, cell: CellRow) -> Look | None:
    """Return the look before which a cell was asked for; None if the run was looked at once."""
    last = last_look(connection, run)
    if last is None:
        return None
    if last.kind == "draws":
        draws = last.at // last.number
        return draws_look(cell.draw // draws + 1, draws)
    cases = TwoSidedSample.of_run(connection, run.id).cases()
    batches = batches_of(cases, seed=last.seed, size=batch_size(last.most))
    done = 0
    for number, batch in enumerate(batches, 1):
        done += len(batch)
        if cell.case_id in batch:
            return replace(last, number=number, at=done)
    return None


def _graded(run: Run) -> str | None:
    """Return the run whose answers a run grades anew."""
    try:
        return json.loads(run.snapshot).get("command line", {}).get("regrade")  # type: ignore[no-any-return]  # written by a session
    except (ValueError, AttributeError):
        return None


# The newest whole run of the commit that the head grew from, graded by the same material, whose
# answers are not more than a day from those of the head. Filtered, simulated and replayed runs
# never do. Where there is none, it is said why, and what to type.
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


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be decided about a run whose cells are all graded."""

    run_id: str
    gates: tuple[Gate, ...]
    clusters: Mapping[str, str]
    quarantined: frozenset[str]
    has_base: bool
    now: str
    look: Look | None = None
    """Which of several looks this is; None for the only one."""
    unlicensed: Mapping[str, str] = field(default_factory=dict)
    """Metrics that judges without a licence would decide, and why they may not."""
    doubts: tuple[Doubt, ...] = ()
    """Why the run is inconclusive at best, whatever its gates find."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What the gates say, and the operation that writes it down."""

    verdict: str
    exit_code: ExitCode
    write: Callable[[sqlite3.Connection], None]
    more: bool = False
    """Whether more is to be measured, and looked at again."""
    subjects: frozenset[tuple[str, str]] | None = None
    """The prompts and models that more is measured of; None for all."""
    stored: bool = False
    """Whether this look was taken before, by an earlier session of the run."""


def conclude(project: Project, connection: sqlite3.Connection, question: Question) -> Conclusion:
    """Return what the gates say of a run or of a look at it; a look that was taken stays."""
    look, run_id = question.look, question.run_id
    before: tuple[GateRow, ...] = ()
    if look is not None:
        taken = _gates_said(connection, run_id, look.number - 1)
        if taken:
            return _concluded(RunDecision.of(taken), question, stored=True)
        if look.number > 1:
            before = _gates_said(connection, run_id, look.number - 2)
    background = Background(
        question.clusters,
        question.quarantined,
        question.has_base,
        look,
        before,
        unlicensed=question.unlicensed,
    )
    if look is not None:
        cells = TwoSidedSample.of_run(connection, run_id)
        return _concluded(decide(cells, question.gates, background), question)
    run = find_run(connection, run_id)
    known = base_beside(connection, project, run, question.gates, background)
    return _concluded(decide_again(connection, question.gates, run, known), question)


def base_beside(
    connection: sqlite3.Connection,
    project: Project,
    run: Run,
    gates: Sequence[Gate],
    background: Background,
) -> Background:
    """Return the background with a stored base, where a run has none and gates ask for one."""
    asked = any(gate.no_worse_than is not None for gate in gates)
    if background.has_base or run.base_commit is not None or not asked:
        return replace(background, asked=run.base_ref)
    stored = stored_base(connection, project, run, background.quarantined)
    return replace(background, stored=stored)


def _gates_said(connection: sqlite3.Connection, run_id: str, number: int) -> tuple[GateRow, ...]:
    """Return what the gates said in a round, without what was in doubt."""
    rows = decisions_of(connection, run_id, round=number)
    return tuple(row for row in rows if not row.doubt)


def _concluded(decision: RunDecision, question: Question, *, stored: bool = False) -> Conclusion:
    look, rows = question.look, decision.rows
    decision = doubted(decision, question.doubts)
    return Conclusion(
        decision.verdict,
        decision.exit_code,
        write_decisions(question.run_id, decision.rows, now=question.now),
        more=look is not None and goes_on(rows, look),
        subjects=unclear_subjects(rows, look) if look is not None else None,
        stored=stored,
    )
