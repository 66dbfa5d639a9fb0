"""Decisions from stored results: comparisons, and the current gates on a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.decide.conclusion import decide_again, with_stored_base
from edison_ci.decide.verdict import VerdictContext, decide, with_doubts
from edison_ci.errors import UsageError
from edison_ci.judges.approval import JudgeApproval
from edison_ci.records import RunStatus, Side
from edison_ci.results.comparison import (
    compare_choices,
    comparison_settings,
    pair_settings,
    require_same_suite,
)
from edison_ci.results.comparison_sample import Operands, comparison_sample
from edison_ci.results.samples import TwoSidedSample
from edison_ci.results.snapshot import doubts_of, outside_models_of
from edison_ci.store.database import open_for_reading
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.decide.verdict import RunDecision
    from edison_ci.results.comparison import ComparisonEstimate
    from edison_ci.results.comparison_sample import CellChoice
    from edison_ci.store.runs import Run


def compare(
    project: Project, a: str, b: str, *, experiment: str | None = None
) -> ComparisonEstimate:
    """Compare two runs, refs or prompt versions on the same cases, from stored results."""
    with open_for_reading(project.root / project.file.results) as reader:
        first, second = Operands(reader, project, experiment).pair(a, b)
        setting = pair_settings(project, reader, first, second)
        return compare_choices(reader, first, second, setting)


@dataclass(frozen=True, slots=True)
class GateResult:
    """A stored run and the decision of the current gates."""

    run: Run
    base: CellChoice | None
    """The stored base, if `against` names one."""
    decision: RunDecision


def gate(project: Project, wanted: str = "latest", *, against: str | None = None) -> GateResult:
    """Re-evaluate a stored run with the current gates, without calls and without writing."""
    with open_for_reading(project.root / project.file.results) as reader:
        run = find_run(reader, wanted)
        _require_ended(run)
        base, cells = None, TwoSidedSample.of_run(reader, run.id)
        if against is not None:
            base, head = Operands(reader, project, run.experiment).pair(against, run.id)
            require_same_suite(base, head)
            sample = comparison_sample(reader, base, head)
            if not sample.matching.paired:
                raise UsageError(
                    f"the run and {against} have too few common cases for gates",
                    hint=f"measure both together: edison run --against {against}",
                )
            cells = sample.cells
        return GateResult(run, base, _decided(cells, project, run, base))


def _decided(
    cells: TwoSidedSample, project: Project, run: Run, base: CellChoice | None
) -> RunDecision:
    runs = (run,) if base is None else (base.run, run)
    setting = comparison_settings(project, cells.connection, *runs)
    experiment = project.experiment(run.experiment)
    gates = experiment.file.gates
    background = VerdictContext(
        setting.clusters or {},
        setting.quarantined,
        base is not None or bool(cells.variants(Side.BASE)),
        unapproved=JudgeApproval.of(project, experiment).unapproved(gates),
        outside=outside_models_of(run),
    )
    if base is not None:
        return decide(cells, gates, background)
    known = with_stored_base(cells.connection, project, run, gates, background)
    return with_doubts(decide_again(cells.connection, gates, run, known), doubts_of(run))


def _require_ended(run: Run) -> None:
    if run.status not in (RunStatus.COMPLETED, RunStatus.FAILED):
        raise UsageError(
            f"run {run.id} is {run.status}, so its cells are not complete",
            hint=f"continue it: edison resume {run.id}",
        )
    if run.shard is not None:
        raise UsageError(
            f"run {run.id} is shard {run.shard}: gates decide on all shards together",
            hint="merge them: edison runs merge SHARD.db...",
        )
