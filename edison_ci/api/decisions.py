"""Decisions from stored results: comparisons, and the current gates on a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.decide.conclusion import decide_again, with_stored_base
from edison_ci.decide.verdict import VerdictContext, decide, with_doubts
from edison_ci.documents.record_json import as_document, fields_of
from edison_ci.errors import ExitCode, UsageError
from edison_ci.judges.approval import JudgeApproval
from edison_ci.plan import baseline
from edison_ci.records import RunStatus, Side, Verdict
from edison_ci.results.comparison import (
    compare_choices,
    comparison_settings,
    pair_settings,
    require_same_suite,
)
from edison_ci.results.comparison_sample import CellChoice, Operands, comparison_sample
from edison_ci.results.samples import TwoSidedSample
from edison_ci.results.snapshot import doubts_of, outside_models_of
from edison_ci.stats.scores import pass_interval
from edison_ci.store.database import open_for_reading
from edison_ci.store.merge import split_run
from edison_ci.store.runs import find_run, trust_for_reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.decide.verdict import RunDecision
    from edison_ci.records import Json
    from edison_ci.results.comparison import ComparisonEstimate
    from edison_ci.results.decisions import GateRow
    from edison_ci.stats.scores import Interval
    from edison_ci.store.runs import Run


def compare(
    project: Project, a: str, b: str, *, experiment: str | None = None
) -> ComparisonEstimate:
    """Compare two runs, refs or prompt versions on the same cases, from stored results."""
    with open_for_reading(project.root / project.file.results) as reader:
        first, second = Operands(reader, project, experiment).pair(a, b)
        setting = pair_settings(project, reader, first, second)
        return compare_choices(reader, first, second, setting)


def compare_prompts(
    project: Project,
    prompts: tuple[str, str],
    *,
    run: str | None = None,
    models: tuple[str, ...] = (),
    experiment: str | None = None,
) -> ComparisonEstimate:
    """Compare two prompts, given by ids or paths, on the same cases of one run.

    By default of the newest run that has both.
    """
    names = [Path(prompt).name.removesuffix(".md") for prompt in prompts]
    if names[0] == names[1]:
        hint = f"for two versions of it: edison compare {names[0]}@HASH {names[0]}@HASH"
        raise UsageError("both arguments are the same prompt", hint=hint)
    with open_for_reading(project.root / project.file.results) as reader:
        operands = Operands(reader, project, experiment)
        stored = find_run(reader, run) if run else operands.run_with(*names)
        first, second = (CellChoice(name, stored, prompt=name, models=models) for name in names)
        setting = comparison_settings(project, reader, stored)
        return compare_choices(reader, first, second, setting)


@dataclass(frozen=True, slots=True)
class GateResult:
    """A stored run and the decision of the current gates."""

    run: Run
    base: CellChoice | None
    """The stored base, if `against` names one."""
    decision: RunDecision

    @property
    def verdict(self) -> str:
        """What the gates decide; `error` for a run that failed."""
        failed = self.run.status == RunStatus.FAILED
        return str(Verdict.ERROR if failed else self.decision.verdict)

    @property
    def exit_code(self) -> int:
        """The exit code of the command that made the run."""
        failed = self.run.status == RunStatus.FAILED
        return int(ExitCode.NOT_MEASURED if failed else self.decision.exit_code)

    def as_json(self) -> dict[str, Json]:
        """Return it as a command prints it."""
        run, base = self.run, self.base
        return {
            **fields_of(self, "verdict", "exit_code"),
            **fields_of(run, "experiment", run_id="id", decided="verdict"),
            "simulated": run.simulated or (base is not None and base.run.simulated),
            "against": as_document(base),
            "gates": as_document(self.decision.rows),
        }


def gate(project: Project, wanted: str = "latest", *, against: str | None = None) -> GateResult:
    """Re-evaluate a stored run with the current gates, without calls and without writing."""
    with open_for_reading(project.root / project.file.results) as reader:
        trust_for_reading(reader, project.trust.results.public_keys)
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
    background = with_stored_base(cells.connection, project, run, gates, background)
    return with_doubts(decide_again(cells.connection, gates, run, background), doubts_of(run))


def refuse_flips(
    project: Project, experiment: Experiment, ref: str, *, offline: bool = False
) -> None:
    """Raise UsageError if an experiment has no gates, or is not the same as at a Git ref."""
    if not experiment.file.gates:
        raise UsageError(f"{experiment.id} has no gates", hint="add gates to its file")
    if reasons := baseline.impact_since(project, ref, offline=offline).affected.get(experiment.id):
        raise UsageError(
            f"{experiment.id} is not the same as at {ref}: {reasons[0]}",
            hint="commit first: --aa compares a version with itself",
        )


SPLITS = 200
"""How often the answers of a run are split to see what its gates say when nothing changed."""


@dataclass(frozen=True, slots=True)
class GateFlips:
    """What a gate says of halves of the same answers."""

    gate: str
    """Metric and rule, with prompt and model where there are several; empty for all gates."""
    passes: int
    unclear: int
    fails: int

    @property
    def fail_rate(self) -> Interval | None:
        """Share of splits that fail, with its confidence interval; None without any."""
        return pass_interval(self.fails, self.passes + self.unclear + self.fails)

    def as_json(self) -> dict[str, Json]:
        """Return it as commands print it."""
        rate = self.fail_rate
        return {
            "gate": self.gate,
            "pass": self.passes,
            "inconclusive": self.unclear,
            "fail": self.fails,
            "fail_rate": None if rate is None else [rate.estimate, rate.low, rate.high],
        }


def gate_flips(project: Project, run_id: str) -> tuple[GateFlips, ...]:
    """Return how often each gate passes and fails on identical input; all gates together last.

    The answers of the run to each case are split at random into a base and a head, again and again,
    and the gates decide as they would decide a change. Gates that compare with a fixed version are
    left out; those of judges without an approval take part.
    """
    results = project.root / project.file.results
    with open_for_reading(results) as reader:
        run = find_run(reader, run_id)
        _require_ended(run)
        setting = comparison_settings(project, reader, run)
    gates = [gate for gate in project.experiment(run.experiment).file.gates if gate.fixed is None]
    background = VerdictContext(
        setting.clusters or {}, setting.quarantined, has_base=True, outside=outside_models_of(run)
    )
    counts: dict[tuple[int, str], Counter[Verdict]] = {}
    with split_run(results, run_id) as split:
        for _ in range(SPLITS):
            split.deal()
            decision = decide(TwoSidedSample.of_run(split.connection, run_id), gates, background)
            verdicts = [*_named(decision.rows), ("", decision.verdict)]
            for place, (name, verdict) in enumerate(verdicts):
                counts.setdefault((place, name), Counter())[verdict] += 1
    order = (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL)
    return tuple(
        GateFlips(name, *(verdicts[verdict] for verdict in order))
        for (_, name), verdicts in counts.items()
    )


def _named(rows: Sequence[GateRow]) -> Iterator[tuple[str, Verdict]]:
    """Yield what each gate is called, and its verdict."""
    prompts = len({row.prompt for row in rows}) > 1
    models = len({row.model for row in rows}) > 1
    for row in rows:
        rule = next((f" {key} {row.gate[key]}" for key in _RULES if row.gate.get(key)), "")
        about = f" of {row.prompt}" if prompts and row.prompt else ""
        about += f" with {row.model}" if models and row.model else ""
        yield f"{row.metric}{rule}{about}", row.verdict


_RULES = ("no_worse_than", "at_least", "at_most")


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
