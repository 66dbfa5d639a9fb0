"""The plan of a run: cells, calls, tokens, cost, and what it could show."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from edison_ci._dataclass import dataclass
from edison_ci.config import expected_form, requirements
from edison_ci.config.project_files import only_errors, only_warnings
from edison_ci.config.validation import DataCheck
from edison_ci.documents import record_json
from edison_ci.errors import ConfigError, EdisonError, Problem, UsageError
from edison_ci.numeric import counted
from edison_ci.plan import interim_analysis
from edison_ci.plan.estimate import (
    ONCE,
    CostRange,
    Load,
    in_batches,
    saving,
    total,
    total_cost,
    total_seconds,
)
from edison_ci.plan.selection import EVERYTHING, Selection
from edison_ci.plan.survey import COUNT_EVERY, CallEstimator, CaseSurvey, PastTokens, Rivals
from edison_ci.stats import power
from edison_ci.store.answers import token_counts
from edison_ci.store.database import open_reader
from edison_ci.store.runs import ANSWERS, JUDGES, simulation_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edison_ci.config.gates import Gate
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.config.prices import PriceTable
    from edison_ci.plan.interim_analysis import Kind
    from edison_ci.records import Case


def as_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as it appears in `edison plan --json`."""
    return {
        **record_json.fields_of(
            plan, "experiment", "simulated", "cases", "cells", "skipped", "holdout"
        ),
        **record_json.fields_of(
            plan, gating_cases="gating", different_inputs="inputs", plan_hash="hash"
        ),
        "iterations": plan.iterations.rounded(),
        **_sums(plan.loads),
        "calls": {"to_make": plan.calls, "reused": plan.reused},
        "by_phase": _by_phase(plan),
        "by_model": [_load(load) for load in plan.loads],
        **record_json.fields_of(plan, "smallest_effect", "cases_for_margin", "margin", "sd"),
        "interim": _interims(plan),
        **record_json.fields_of(plan, "reasons", "blockers"),
        "batch_saves_microusd": None if plan.saving is None else plan.saving.rounded(),
    }


def _interims(plan: Plan) -> dict[str, Any] | None:
    """Return what a comparison with --against would take, where it stops when it is clear."""
    if plan.interims is None or plan.iterations.high > 1:
        return None
    low, high = interim_analysis.both_sides(plan.interims, plan.cases, plan.calls + plan.reused)
    return {"kind": plan.interims, "calls": {"low": low, "high": high}}


def matrix(plan: Plan) -> dict[str, Any]:
    """Return the shards of a plan as a matrix of jobs; a shard without cases needs none."""
    count = len(plan.shards)
    rows = [
        {"experiment": plan.experiment, "shard": f"{index}/{count}", "cases": cases}
        for index, cases in enumerate(plan.shards, 1)
        if cases
    ]
    return {"include": rows}


def _by_phase(plan: Plan) -> dict[str, Any]:
    phases = dict.fromkeys(load.phase for load in plan.loads)
    return {phase: _sums([x for x in plan.loads if x.phase == phase]) for phase in phases}


def _sums(loads: list[Load]) -> dict[str, Any]:
    cost = total_cost(loads)
    return {
        "calls": sum(load.calls for load in loads),
        "tokens": total(load.tokens for load in loads).rounded(),
        "cost_microusd": None if cost is None else cost.rounded(),
        "seconds": total_seconds(loads).rounded(),
    }


def _load(load: Load) -> dict[str, Any]:
    return {
        "phase": load.phase,
        "model": load.name,
        "provider": load.model.provider,
        "simulated": load.model.simulated,
        "tokens_exact": load.exact_tokens,
        "price": load.price.as_json() if load.price else None,
        **_sums([load]),
    }


_ENOUGH = 10
"""Answers from which their lengths are an estimate."""

_ALPHA = 0.05


RELATIVE = "the margin is relative and taken of a base score of 1; a lower one needs more"


def _with_evidence(plan: Plan, experiment: Experiment) -> Plan:
    """Add what the cases can show, at the level and margin of the strictest gate.

    Differences between two versions are taken to vary by `DEFAULT_SD`.
    """
    gate, units = strictest(experiment.file.gates), plan.units
    alpha = _ALPHA if gate is None else round(1 - gate.confidence, 10)
    effect = (
        power.smallest_effect(units, sd=power.DEFAULT_SD, alpha=alpha).value if units >= 2 else None
    )
    if gate is None:
        return dataclasses.replace(plan, smallest_effect=effect)
    margin = gate.effective_margin
    needed = None
    if margin.value > 0:
        needed = power.cases_for_margin(
            power.DEFAULT_SD,
            margin=margin.value,
            # The bound is one-sided and has no answer at even odds.
            alpha=min(alpha, 0.4999),
            worst_case_drop=gate.worst_case_drop,
        ).value
        needed = power.cases_in_clusters(needed, plan.gating / units if units else 1.0)
    return dataclasses.replace(
        plan,
        smallest_effect=effect,
        cases_for_margin=needed,
        margin=margin.value,
        reasons=[*plan.reasons, *([RELATIVE] if margin.relative else [])],
    )


def strictest(gates: tuple[Gate, ...]) -> Gate | None:
    """Return the gate on a score that compares with the base and tolerates least."""
    comparing = [
        g for g in gates if g.no_worse_than and g.metric.startswith(interim_analysis.INFERRED)
    ]
    return min(comparing, key=lambda g: (g.effective_margin.value, -g.confidence), default=None)


_LOOP_LOW = 0.6


class EmptyShard(UsageError):
    """No case falls into this shard; not an error when all shards of a split are run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Cells, calls, tokens, cost and time of one experiment."""

    experiment: str
    cases: int
    cells: int
    """Cells of a run."""
    skipped: int
    """Cells that are skipped because a case lacks a variable."""
    holdout: int
    gating: int
    """Cases that decide a gate: the fewest of any prompt, quarantined ones left out."""
    hash: str
    """sha256 of everything that decides the result; the same for every shard of a run."""
    loads: list[Load]
    iterations: CostRange
    reasons: list[str]
    unready: list[str]
    """Missing keys and prices, which would stop real calls."""
    refusals: list[str]
    """Reasons that would stop any run before its first call."""
    unset: list[str] = field(default_factory=list)
    """Those of `unready` that are variables of this machine: keys and addresses that it lacks."""
    reused: int = 0
    """Calls with a stored answer, which are not in the loads."""
    shards: list[int] = field(default_factory=list)
    """Cases in each shard, where shards were requested."""
    interims: Kind | None = None
    """Kind of interim analyses; None without any."""
    partial: bool = False
    """Whether cases of the dataset are left out."""
    warnings: list[Problem] = field(default_factory=list)
    clusters: Mapping[str, str] = field(default_factory=dict)
    """Clusters by case, of the cases of all shards that are not independent: declared to belong
    together, or with the same input under the prompts of the base, or else their own."""
    inputs: int = 0
    """Different inputs of these cases, under the same prompts."""
    smallest_effect: float | None = None
    """Smallest change of the composite (0-1) that this many cases show in 8 of 10 runs."""
    cases_for_margin: int | None = None
    """Cases at which an unchanged prompt passes its gate in 8 of 10 runs."""
    margin: float | None = None
    """Of the strictest gate."""
    sd: float | None = None
    """Measured sd of the differences between two versions; None if it is assumed."""

    @property
    def units(self) -> int:
        """Cases that decide a gate, with those of a cluster counted once."""
        clustered, clusters = len(self.clusters), len(set(self.clusters.values()))
        return min(self.gating, max(1, self.cases - clustered + clusters)) if self.gating else 0

    @property
    def blockers(self) -> list[str]:
        """Everything that would stop a run."""
        return [*self.unready, *self.refusals]

    @property
    def calls(self) -> int:
        """Calls of all phases."""
        return sum(load.calls for load in self.loads)

    @property
    def is_over_network(self) -> bool:
        """Whether it has calls to a model at an address."""
        return any(load.calls and load.model.address for load in self.loads)

    @property
    def fewest_calls(self) -> int:
        """Calls of all phases, if the run stops as early as it can."""
        return sum(round(load.once_calls * load.iterations.low) for load in self.loads)

    @property
    def tokens(self) -> CostRange:
        """Tokens of all phases."""
        return total(load.tokens for load in self.loads)

    @property
    def cost_microusd(self) -> CostRange | None:
        """Cost of all phases; None when a price is unknown."""
        return total_cost(self.loads)

    @property
    def saving(self) -> CostRange | None:
        """What batches save; None if no call is made in one."""
        return saving(self.loads)

    def in_batches(self, prices: PriceTable) -> Plan:
        """Return the plan with answers bought in batches where that costs less."""
        loads = [in_batches(load, prices.batch_price_of(load.model)) for load in self.loads]
        return dataclasses.replace(self, loads=loads)

    @property
    def seconds(self) -> CostRange:
        """Time: models run side by side, judging while generating."""
        return total_seconds(self.loads)

    @property
    def simulated(self) -> bool:
        """Whether a simulated model takes part."""
        return any(load.model.simulated for load in self.loads)

    @property
    def models(self) -> dict[str, dict[str, bool]]:
        """The models that answer and those that judge, and whether each is simulated."""
        parts: dict[str, dict[str, bool]] = {}
        for load in self.loads:
            if load.phase != "refine":
                part = parts.setdefault(ANSWERS if load.phase == "generate" else JUDGES, {})
                part[load.model.name] = part.get(load.model.name, False) or load.model.simulated
        return parts

    @property
    def simulation(self) -> str:
        """Which parts are simulated, as a label; empty if none is."""
        return simulation_label(self.models)


def plan_run(
    project: Project,
    experiment: Experiment,
    *,
    selection: Selection = EVERYTHING,
    shards: int = 0,
    loop: bool = False,
) -> Plan:
    """Return the plan of an experiment; raises ConfigError if its data is invalid."""
    of: Literal["run", "loop"] = "loop" if loop else "run"
    plan = bare_plan(project, experiment, selection=selection, shards=shards, of=of)
    return _with_evidence(plan, selection.narrow(experiment))


def bare_plan(
    project: Project,
    experiment: Experiment,
    *,
    selection: Selection = EVERYTHING,
    shards: int = 0,
    of: Literal["run", "loop", "head", "base"] = "run",
) -> Plan:
    """Return the plan without what its cases could show, which a run need not know.

    It is `of` a run, a loop, or a side of a run with a base: answers of both sides are compared by
    pairs, which is in the plan of the head.
    """
    experiment = selection.narrow(experiment)
    survey = CaseSurvey(project, experiment, shards=shards, refines=of == "loop")
    check = _surveyed(survey, DataCheck(project, experiment), selection)
    rivals: dict[str, Rivals] = {"head": "base", "base": "nobody"}
    past = _past_tokens(project, experiment)
    loads = CallEstimator(project, experiment, survey, rivals.get(of, "models"), past)
    iterations = _iterations(project, experiment) if of == "loop" else ONCE
    answers = len(experiment.models) * experiment.file.repeats
    made = loads.of_a_loop(iterations) if of == "loop" else loads.of_a_run()
    return Plan(
        experiment=experiment.id,
        cases=survey.cases,
        cells=loads.cells,
        skipped=survey.skipped * answers,
        holdout=survey.holdout.of(check.units),
        gating=_gating(project, experiment, survey),
        hash=survey.fingerprint.hexdigest(),
        loads=made,
        iterations=iterations,
        reasons=[*_reasons(loads, of)],
        unready=_unready(project, made),
        unset=_unset(project, made),
        refusals=_refusals(project, experiment),
        shards=survey.shards(),
        interims=interim_analysis.interim_kind(experiment.file.gates, experiment.file.stop)
        if experiment.file.gates
        else None,
        partial=survey.cases < check.cases,
        warnings=[*only_warnings(check.problems), *survey.repeated.warnings(experiment)],
        clusters=survey.repeated.clusters(),
        inputs=survey.repeated.inputs,
    )


def _surveyed(survey: CaseSurvey, check: DataCheck, selection: Selection) -> DataCheck:
    """Survey the chosen cases, and return the check of their data; raises if one is invalid."""
    name = check.experiment.id
    for case in selection.whole(check):
        survey.add(case, here=selection.here(case))
    if only_errors(check.problems):
        raise ConfigError(only_errors(check.problems))
    if survey.cases == 0 and survey.other_shards:
        raise EmptyShard(f"shard {selection.shard} of {name} has no case")
    if survey.cases == 0:
        raise UsageError(f"no case of {name} is chosen", hint=selection.describe())
    return check


def _iterations(project: Project, experiment: Experiment) -> CostRange:
    """Return how many iterations a loop is expected to make."""
    most = experiment.file.stop.max_iterations or project.file.defaults.max_iterations
    return CostRange(math.ceil(_LOOP_LOW * most), most)


def estimate_cases(
    project: Project, experiment: Experiment, cases: Iterable[Case], models: Sequence[str]
) -> CostRange | None:
    """Return what one answer of each model to each case costs, with grading; None if unknown."""
    chosen = Selection(models=tuple(models), repeats=1).narrow(experiment)
    survey = CaseSurvey(project, chosen)
    for case in cases:
        survey.add(case)
    past = _past_tokens(project, chosen)
    return total_cost(CallEstimator(project, chosen, survey, "nobody", past).of_a_run())


def _past_tokens(project: Project, experiment: Experiment) -> dict[tuple[str, str], PastTokens]:
    """Return the tokens of earlier answers, from ten of them on."""
    path = project.root / project.file.results
    if not path.exists():
        return {}
    counts_by_model: dict[tuple[str, str], list[tuple[int, int]]] = {}
    # A file that cannot be read is reported by the run; a plan does without it.
    with contextlib.suppress(EdisonError), contextlib.closing(open_reader(path)) as reader:
        judged = experiment.file.is_judged
        for prompt, model, *tokens in token_counts(reader, experiment.id, judged=judged):
            counts_by_model.setdefault((prompt, model), []).append((tokens[0], tokens[1]))
    return {
        key: PastTokens(*(_usual(column) for column in zip(*counts, strict=True)))
        for key, counts in counts_by_model.items()
        if len(counts) >= _ENOUGH
    }


def _usual(counts: Iterable[int]) -> CostRange:
    """Return the 10th to the 90th percentile."""
    ordered = sorted(counts)
    return CostRange(ordered[len(ordered) // 10], ordered[9 * len(ordered) // 10])


def joined(first: Plan, second: Plan) -> Plan:
    """Return the plan of two variants, head and base, on the same cases.

    What is the same input is up to the base: the head could leave a variable out.
    """
    return dataclasses.replace(
        first,
        cells=first.cells + second.cells,
        skipped=first.skipped + second.skipped,
        hash=hashlib.sha256(f"{first.hash} {second.hash}".encode()).hexdigest(),
        loads=[*first.loads, *second.loads],
        clusters=second.clusters,
        inputs=second.inputs,
        unready=list(dict.fromkeys([*first.unready, *second.unready])),
        unset=list(dict.fromkeys([*first.unset, *second.unset])),
        refusals=list(dict.fromkeys([*first.refusals, *second.refusals])),
    )


def ranged(plan: Plan, kind: Kind) -> Plan:
    """Return the plan of a comparison that stops when it is clear, from least to most."""
    least, most = interim_analysis.rounds(kind, plan.cases)
    span = CostRange(least, most)
    loads = [dataclasses.replace(load, iterations=span) for load in plan.loads]
    return dataclasses.replace(plan, loads=loads, interims=kind)


def without_generating(project: Project, plan: Plan) -> Plan:
    """Return the plan of grading answers that are there already."""
    loads = [load for load in plan.loads if load.phase != "generate"]
    return dataclasses.replace(
        plan, loads=loads, unready=_unready(project, loads), unset=_unset(project, loads)
    )


def _gating(project: Project, experiment: Experiment, survey: CaseSurvey) -> int:
    aside = [entry for entry in project.quarantine if entry.experiment == experiment.id]
    fewest = min((survey.usable[prompt.id] for prompt in experiment.prompts), default=0)
    return max(fewest - len(aside), 0)


def outside_sentences(experiment: Experiment) -> list[str]:
    """Return that models which the experiment does not list are shown, and do not count."""
    return [
        f"{name} is not a model of {experiment.id}: it is shown, and gates do not count it"
        for name in sorted(experiment.outside)
    ]


def _reasons(estimator: CallEstimator, of: str) -> Iterator[str]:
    """Yield what a reader of the plan should know about it."""
    project, experiment, survey = estimator.project, estimator.experiment, estimator.survey
    for prompt in experiment.prompts:
        for note in expected_form.notes_on(prompt.detected):
            if note.requested:
                yield f"{prompt.path}:{note.line}: {note.sentence}; {note.hint}"
    yield from survey.repeated.sentences()
    if survey.unverified:  # a model wrote them
        answers = counted(survey.unverified, "expected answer")
        yield f"{answers} not verified by anyone: edison dataset verify"
    if not project.tree.exists(project.file.results):
        yield "no results are stored yet, so every call would be made"
    if survey.sampled:
        yield f"tokens are counted on {COUNT_EVERY:,} cases and every 100th after them"
    alone = len(experiment.models) < 2 and of in ("run", "loop")
    if experiment.file.judges.pairwise is not None and alone:
        yield "one model has no rival: the pairwise judge compares with --against REF only"
    yield from outside_sentences(experiment)
    if estimator.past:
        yield "tokens are estimated from those of earlier answers"


def _unready(project: Project, loads: list[Load]) -> list[str]:
    models = _models(loads)
    prices = [reason for model in models for reason in requirements.without_price(project, model)]
    refused = [reason for _, reason in requirements.untrusted(project, models)]
    return [*_unset(project, loads), *prices, *refused]


def _unset(project: Project, loads: list[Load]) -> list[str]:
    """Return the keys that are neither in the environment nor sealed, and missing addresses."""
    return requirements.unset(project, _models(loads))


def _models(loads: list[Load]) -> list[Model]:
    return [*{load.model.name: load.model for load in loads}.values()]


def _refusals(project: Project, experiment: Experiment) -> list[str]:
    reasons = list(requirements.refused_code(project, experiment))
    if experiment.file.archived:
        reasons.append("the experiment is archived")
    return reasons
