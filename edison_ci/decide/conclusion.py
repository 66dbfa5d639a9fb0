"""Conclusions: the decision of the gates on a run, at its end or at an interim analysis."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.decide.interim import continues, unclear_variants
from edison_ci.decide.verdict import (
    RunDecision,
    StoredBaseline,
    VerdictContext,
    decide,
    with_doubts,
)
from edison_ci.errors import UsageError
from edison_ci.git.repository import Repository
from edison_ci.plan.baseline import production_versions, tagged_commit
from edison_ci.plan.interim_analysis import (
    InterimAnalysis,
    batch_size,
    batches_of,
    repeats_analysis,
)
from edison_ci.plan.versions import commit_of_version
from edison_ci.records import Side
from edison_ci.results.comparison_sample import (
    CellChoice,
    comparison_sample,
    runs_at_commit,
    runs_of_versions,
)
from edison_ci.results.decisions import decisions_of, last_of, stored_interims, write_decisions
from edison_ci.results.samples import TwoSidedSample, Variant
from edison_ci.results.snapshot import (
    base_reference_of,
    command_line_of,
    differing_eval_suite,
    grading_hash,
    outside_models_of,
    push_of,
)
from edison_ci.store.cells import clusters_of
from edison_ci.store.runs import IMPORT, OUTPUTS, PRODUCTION, find_run, origin_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Mapping, Sequence

    from edison_ci.config.gates import Gate
    from edison_ci.config.load import Project
    from edison_ci.errors import ExitCode
    from edison_ci.records import BaselineDoubt, Verdict
    from edison_ci.results.decisions import GateRow
    from edison_ci.store.cells import CellRow
    from edison_ci.store.runs import Run, RunOrigin


# Interim analyses are fixed before the first of them, so a run is decided again by repeating them,
# on the cells that each of them had. Only stored cells are read, and nothing is written.
def last_interim(connection: sqlite3.Connection, run: Run) -> InterimAnalysis | None:
    """Return the last interim analysis of a run, or of the run whose answers it regrades."""
    graded = _regraded_run(run)
    if graded is not None:
        return last_interim(connection, find_run(connection, graded))
    last = last_of(stored_interims(connection, run.id))
    if last is None:
        return None
    names = ("kind", "number", "of", "at", "most")
    return InterimAnalysis(**{name: last[name] for name in names}, seed=run.plan_hash)


def decide_again(
    connection: sqlite3.Connection,
    gates: Sequence[Gate],
    run: Run,
    background: VerdictContext,
) -> RunDecision:
    """Decide a run by its cells, with the same interim analyses."""
    cells = TwoSidedSample.of_run(connection, run.id)
    last = last_interim(connection, run) if background.has_base else None
    if last is None:
        return decide(cells, gates, background)
    if last.kind == "cases":
        interim = replace(last, final=True)
        return decide(cells, gates, replace(background, interim=interim))
    decided = RunDecision.of(())
    for number in range(1, last.number + 1):
        interim = repeats_analysis(number, last.at // last.number)
        now = replace(background, interim=interim, before=decided.rows)
        decided = decide(cells, gates, now)
        if not continues(decided.rows, interim):
            break
    return decided


def interim_of_cell(
    connection: sqlite3.Connection, run: Run, cell: CellRow
) -> InterimAnalysis | None:
    """Return the interim analysis for which a cell was measured; None if the run had none."""
    last = last_interim(connection, run)
    if last is None:
        return None
    if last.kind == "repeats":
        repeats = last.at // last.number
        return repeats_analysis(cell.repeat // repeats + 1, repeats)
    cases = TwoSidedSample.of_run(connection, run.id).cases()
    batches = batches_of(cases, seed=last.seed, size=batch_size(last.most))
    done = 0
    for number, batch in enumerate(batches, 1):
        done += len(batch)
        if cell.case_id in batch:
            return replace(last, number=number, at=done)
    return None


def _regraded_run(run: Run) -> str | None:
    """Return the run whose answers a run regrades."""
    regraded = command_line_of(run).get("regrade")
    return None if regraded is None else str(regraded)


# The newest complete run of the merge base, graded by the same eval suite, whose answers are at
# most a day older or newer than those of the head. Filtered, simulated, replayed and imported
# runs never serve. Where there is none, the sentence says why, and which command to run.
_MOST_RUNS = 20
_LISTED = 3


class _Origin(NamedTuple):
    """The merge base: the commit that head and the default branch have in common."""

    ref: str
    """The default branch."""
    commit: str


def stored_base(
    connection: sqlite3.Connection, project: Project, run: Run, left_out: Collection[str]
) -> StoredBaseline:
    """Return the stored cells that a run is compared with, aligned with its own."""
    try:
        origin = _origin(project)
    except UsageError as error:
        return StoredBaseline(sentence=_no_base(error.message, run, "REF"))
    at = f"{origin.ref} at {origin.commit[:8]}"
    runs = runs_at_commit(connection, run, origin.commit, most=_MOST_RUNS)
    choices = [CellChoice(origin.ref, stored, side) for stored, side in runs]
    comparable = _first_comparable(connection, project, run, choices, f", of {at},")
    if isinstance(comparable, str):
        reason = comparable or f"no complete run of {at} is stored"
        return StoredBaseline(sentence=_no_base(reason, run, origin.ref))
    choice, cells = comparable
    about = {"run_id": choice.run.id, "side": choice.side, **origin._asdict()}
    sentence = f"The base is run {choice.run.id}, of {at}, measured before."
    return StoredBaseline(replace(cells, left_out=cells.left_out.union(left_out)), sentence, about)


# A fixed version is found among stored runs in the same way: at the commit of a tag, or with the
# prompt versions in production. The base of the run itself serves if it is that version.
def fixed_version(
    connection: sqlite3.Connection, project: Project, run: Run, name: str, left_out: Collection[str]
) -> StoredBaseline:
    """Return the cells of a fixed version that a run is compared with, or why there are none."""
    try:
        choices, ref = _fixed_choices(connection, project, run, name)
    except UsageError as error:
        hint = f": {error.hint}" if error.hint else ""
        return StoredBaseline(sentence=f"Not compared with {name}: {error.message}{hint}.")
    comparable = _first_comparable(connection, project, run, choices)
    if isinstance(comparable, str):
        reason = comparable or "no complete run of it is stored"
        command = f"edison run {run.experiment} --against {ref}"
        missing = f"Not compared with {name}: {reason}. Measure it with `{command}`."
        return StoredBaseline(sentence=missing)
    choice, cells = comparable
    commit = choice.commit
    about = {"name": name, "run_id": choice.run.id, "side": choice.side, "commit": commit}
    which = "the base of this run" if choice.run.id == run.id else f"run {choice.run.id}"
    sentence = f"{name[:1].upper()}{name[1:]} is {which}, at {(commit or 'no commit')[:8]}."
    left = cells.left_out.union(left_out)
    return StoredBaseline(replace(cells, left_out=left), sentence, about)


def _fixed_choices(
    connection: sqlite3.Connection, project: Project, run: Run, name: str
) -> tuple[list[CellChoice], str]:
    """Return the runs that may have a fixed version, and the ref with which to measure it."""
    repository = Repository.required(project.root)
    trusted = run.base_commit or _origin(project).commit
    tag = name.removeprefix("tag ")
    if tag != name:
        commit = tagged_commit(repository, tag, trusted)
        own = [(run, Side.BASE)] if run.base_commit == commit else []
        runs = [*own, *runs_at_commit(connection, run, commit, most=_MOST_RUNS)]
        return [CellChoice(name, stored, side) for stored, side in runs], tag
    versions = production_versions(repository, project, run.experiment, trusted)
    runs = runs_of_versions(connection, run, versions, most=_MOST_RUNS)
    first = next(iter(versions))
    paths = [prompt.path for prompt in project.prompts.values() if prompt.id == first]
    at = [commit_of_version(path, project.root, repository, versions[first]) for path in paths]
    ref = next((commit[:8] for commit in at if commit is not None), "COMMIT")
    return [
        CellChoice(name, stored, side, prompts=frozenset(versions)) for stored, side in runs
    ], ref


def _no_base(reason: str, run: Run, ref: str) -> str:
    command = f"edison run {run.experiment} --against {ref}"
    return f"No base to compare with: {reason}. Get one with `{command}`."


def _origin(project: Project) -> _Origin:
    repository = Repository.required(project.root)
    branch = repository.default_branch()
    if branch is None:
        raise UsageError("there is no commit yet")
    return _Origin(branch, repository.base_for(branch, fetch=False))


def _first_comparable(
    reader: sqlite3.Connection,
    project: Project,
    run: Run,
    choices: Sequence[CellChoice],
    which: str = "",
) -> tuple[CellChoice, TwoSidedSample] | str:
    """Return the first stored run that can be compared with a run, or why the first cannot."""
    first, keys = "", project.trust.results.public_keys
    for choice in choices:
        own = choice.run.id == run.id
        unfit = "" if own else _unfit(choice.run, origin_of(reader, choice.run.id), keys)
        reason = "" if own else unfit or _suite_difference(choice.run, run)
        cells = reason or _joint_sample(reader, choice, run)
        if isinstance(cells, TwoSidedSample):
            return choice, cells
        first = first or f"run {choice.run.id}{which} {cells}"
    return first


def _unfit(run: Run, origin: RunOrigin | None, keys: Collection[str]) -> str:
    """Return why a stored run never serves as base; empty if it may."""
    if run.partial:
        return "has only some of the cases, and such runs never serve as base"
    if run.simulated:
        what = run.simulation.removeprefix("simulated").strip()
        reason = f"has simulated {what}" if what else "is simulated"
        return f"{reason}, and such runs never serve as base"
    reasons = {
        "replay": "answers from a recording",
        IMPORT: "came in with a bundle",
        OUTPUTS: "has imported answers",
        PRODUCTION: "has answers of production",
    }
    if origin is None or not origin.is_trusted(keys):
        return reasons.get(run.trigger, "")
    # It is signed, so it counts as if it had been made here: by how it was started there.
    return reasons.get(origin.ran_as, "is a trial" if origin.ran_as == "refine" else "")


def _suite_difference(old: Run, new: Run) -> str:
    different = differing_eval_suite(old, new)
    if not different and grading_hash(old) != grading_hash(new):
        different = ["objective"]
    if not different:
        return ""
    more = ", ..." if len(different) > _LISTED else ""
    return f"was measured with another {', '.join(different[:_LISTED])}{more}"


def _joint_sample(reader: sqlite3.Connection, choice: CellChoice, run: Run) -> TwoSidedSample | str:
    """Return the cells of both runs as one sample, or why they cannot be compared."""
    sides = (TwoSidedSample.of_run(reader, choice.run.id).variants(choice.side),
             TwoSidedSample.of_run(reader, run.id).variants(Side.HEAD))  # fmt: skip
    for what in Variant._fields:
        old, new = ({getattr(variant, what) for variant in side} for side in sides)
        if not old & new:
            return f"has no {what} of this one"
    try:
        sample = comparison_sample(reader, choice, CellChoice("head", run))
    except UsageError:
        return "has no case of this one"
    if not sample.matching.paired:
        return "has too few cases of this one"
    if choice.run.id != run.id and sample.cells.is_days_apart():
        return "has answers more than 24 hours from these"
    return sample.cells


@dataclass(frozen=True, slots=True)
class GateQuestion:
    """A run to decide, with its gates."""

    run_id: str
    gates: tuple[Gate, ...]
    clusters: Mapping[str, str]
    quarantined: frozenset[str]
    has_base: bool
    now: str
    interim: InterimAnalysis | None = None
    """The interim analysis that is made; None at the end of a run."""
    unapproved: Mapping[str, str] = field(default_factory=dict)
    """Metrics that judges without an approval would decide, and why they may not."""
    doubts: tuple[BaselineDoubt, ...] = ()
    """Reasons for which the run is inconclusive at best."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The decision of the gates, and the operation that stores it."""

    verdict: Verdict
    exit_code: ExitCode
    write: Callable[[sqlite3.Connection], None]
    more: bool = False
    """Whether more should be measured, for another interim analysis."""
    variants: frozenset[tuple[str, str]] | None = None
    """The prompts and models that more is measured of; None for all."""
    stored: bool = False
    """Whether an earlier session of the run stored this interim analysis already."""


def conclude(
    project: Project, connection: sqlite3.Connection, question: GateQuestion
) -> Conclusion:
    """Decide the gates of a run, or read the decision of a stored interim analysis."""
    interim, run_id = question.interim, question.run_id
    before: tuple[GateRow, ...] = ()
    if interim is not None:
        rows = _stored_rows(connection, run_id, interim.number - 1)
        if rows:
            return _conclusion(RunDecision.of(rows), question, stored=True)
        if interim.number > 1:
            before = _stored_rows(connection, run_id, interim.number - 2)
    run = find_run(connection, run_id)
    background = VerdictContext(
        question.clusters,
        question.quarantined,
        question.has_base,
        interim,
        before,
        unapproved=question.unapproved,
        outside=outside_models_of(run),
    )
    context = with_stored_base(connection, project, run, question.gates, background)
    if interim is not None:
        cells = TwoSidedSample.of_run(connection, run_id)
        return _conclusion(decide(cells, question.gates, context), question)
    return _conclusion(decide_again(connection, question.gates, run, context), question)


def with_stored_base(
    connection: sqlite3.Connection,
    project: Project,
    run: Run,
    gates: Sequence[Gate],
    background: VerdictContext,
) -> VerdictContext:
    """Return the context with a stored base, where a run has none, and with fixed versions."""
    names = {gate.fixed for gate in gates if gate.fixed is not None}
    fixed = {
        name: fixed_version(connection, project, run, name, background.quarantined)
        for name in sorted(names)
    }
    background = replace(background, fixed=fixed, push=push_of(run))
    needed = any(gate.compares and gate.fixed is None for gate in gates)
    if background.has_base or run.base_commit is not None or not needed:
        invalid = str(base_reference_of(run).get("invalid", ""))
        return replace(background, base_ref=run.base_ref, base_invalid=invalid)
    stored = stored_base(connection, project, run, background.quarantined)
    if stored.cells is None:
        return replace(background, stored=stored)
    clusters = clusters_of(connection, stored.about["run_id"], run.id)
    return replace(background, stored=stored, clusters=clusters)


def _stored_rows(connection: sqlite3.Connection, run_id: str, number: int) -> tuple[GateRow, ...]:
    """Return the rows of the gates in a round, without rows of doubts."""
    rows = decisions_of(connection, run_id, round=number)
    return tuple(row for row in rows if not row.doubt)


def _conclusion(
    decision: RunDecision, question: GateQuestion, *, stored: bool = False
) -> Conclusion:
    interim, rows = question.interim, decision.rows
    decision = with_doubts(decision, question.doubts)
    return Conclusion(
        decision.verdict,
        decision.exit_code,
        write_decisions(question.run_id, decision.rows, now=question.now),
        more=interim is not None and continues(rows, interim),
        variants=unclear_variants(rows, interim) if interim is not None else None,
        stored=stored,
    )
