"""Decisions from what is stored: comparisons, and the gates of today on a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.decide.conclusion import base_beside, decide_again
from edison_ci.decide.verdict import Background, decide, doubted
from edison_ci.errors import UsageError
from edison_ci.judges.licensing import RunLicence
from edison_ci.results.comparison import Setting, require_alike, stand
from edison_ci.results.comparison_sample import comparison_sample
from edison_ci.results.operands import Operands
from edison_ci.results.samples import TwoSidedSample
from edison_ci.results.snapshot import kept_doubts
from edison_ci.store.database import reading
from edison_ci.store.runs import clusters_of, find_run

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.config.load import Project
    from edison_ci.decide.verdict import RunDecision
    from edison_ci.results.comparison import Standing
    from edison_ci.results.comparison_sample import Choice
    from edison_ci.store.runs import Run


def compare(project: Project, a: str, b: str, *, experiment: str | None = None) -> Standing:
    """Compare two runs, refs or prompt versions on the same cases, from what is stored."""
    with reading(project.root / project.file.results) as reader:
        first, second = Operands(reader, project, experiment).pair(a, b)
        return stand(reader, first, second, setting_of(project, reader, first.run, second.run))


def setting_of(project: Project, reader: sqlite3.Connection, *runs: Run) -> Setting:
    """Return what counts beside the cells: today's gates and quarantine, and stored clusters."""
    name = runs[-1].experiment
    experiment = project.experiments.get(name)
    aside = frozenset(e.case for e in project.quarantine.cases if e.experiment == name)
    gates = experiment.file.gates if experiment is not None else ()
    clusters = clusters_of(reader, *(run.id for run in runs))
    return Setting(gates, clusters, aside)


@dataclass(frozen=True, slots=True)
class Regated:
    """A stored run, by the gates of today."""

    run: Run
    base: Choice | None
    """The stored base that was named, if one was."""
    decision: RunDecision


def gate(project: Project, wanted: str = "latest", *, against: str | None = None) -> Regated:
    """Re-evaluate a stored run with the current gates; nothing is asked and nothing is written."""
    with reading(project.root / project.file.results) as reader:
        run = find_run(reader, wanted)
        _require_ended(run)
        base, cells = None, TwoSidedSample.of_run(reader, run.id)
        if against is not None:
            base, head = Operands(reader, project, run.experiment).pair(against, run.id)
            require_alike(base, head)
            sample = comparison_sample(reader, base, head)
            if not sample.matching.paired:
                raise UsageError(
                    f"the run and {against} have too few cases in common to decide gates on",
                    hint=f"measure both together: edison run --against {against}",
                )
            cells = sample.cells
        return Regated(run, base, _decided(cells, project, run, compared=base is not None))


def _decided(cells: TwoSidedSample, project: Project, run: Run, *, compared: bool) -> RunDecision:
    setting = setting_of(project, cells.connection, run)
    experiment = project.experiment(run.experiment)
    gates = experiment.file.gates
    background = Background(
        setting.clusters or {},
        setting.quarantined,
        compared or bool(cells.subjects("base")),
        unlicensed=RunLicence.of(project, experiment).unlicensed(gates),
    )
    if compared:
        return decide(cells, gates, background)
    known = base_beside(cells.connection, project, run, gates, background)
    return doubted(decide_again(cells.connection, gates, run, known), kept_doubts(run))


def _require_ended(run: Run) -> None:
    if run.status not in ("COMPLETED", "FAILED"):
        raise UsageError(
            f"run {run.id} is {run.status}: its cells are not all there",
            hint=f"go on with it: edison resume {run.id}",
        )
    if run.shard is not None:
        raise UsageError(
            f"run {run.id} is shard {run.shard}: gates decide on all shards together",
            hint="put them together: edison merge SHARD.db...",
        )
