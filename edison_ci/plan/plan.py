"""The plan of a run: cells, calls, tokens, cost, and what it could show."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config import service_paths
from edison_ci.config.case_facts import is_unverified
from edison_ci.config.cases import is_holdout
from edison_ci.config.experiment import Split
from edison_ci.config.project_files import only_errors, only_warnings
from edison_ci.config.repeated_inputs import RepeatedInputs
from edison_ci.config.tokens import ESTIMATE, TokenCounter, counter_for
from edison_ci.config.validation import DataCheck
from edison_ci.errors import ConfigError, EdisonError, Problem, UsageError
from edison_ci.numeric import counted
from edison_ci.plan import interim_analysis
from edison_ci.plan.estimate import (
    ONCE,
    TYPICAL_OUTPUT,
    ZERO,
    CostRange,
    Load,
    in_batches,
    saving,
    total,
    total_cost,
    total_seconds,
)
from edison_ci.plan.fingerprint import Fingerprint
from edison_ci.plan.selection import EVERYTHING, Selection, shard_of
from edison_ci.stats import power
from edison_ci.store.answers import token_counts
from edison_ci.store.database import open_reader
from edison_ci.store.runs import ANSWERS, JUDGES, simulation_label
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edison_ci.config.gates import Gate
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.config.prices import PriceTable
    from edison_ci.config.prompt import Prompt
    from edison_ci.plan.interim_analysis import Kind
    from edison_ci.records import Case


def as_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as it appears in `edison plan --json`."""
    return {
        "experiment": plan.experiment,
        "simulated": plan.simulated,
        "cases": plan.cases,
        "cells": plan.cells,
        "skipped": plan.skipped,
        "holdout": plan.holdout,
        "gating_cases": plan.gating,
        "different_inputs": plan.inputs,
        "plan_hash": plan.hash,
        "iterations": plan.iterations.rounded(),
        **_sums(plan.loads),
        "calls": {"to_make": plan.calls, "reused": plan.reused},
        "by_phase": _by_phase(plan),
        "by_model": [_load(load) for load in plan.loads],
        "smallest_effect": plan.smallest_effect,
        "cases_for_margin": plan.cases_for_margin,
        "margin": plan.margin,
        "sd": plan.sd,
        "interim": _interims(plan),
        "reasons": plan.reasons,
        "blockers": plan.blockers,
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


COUNT_EVERY = 5_000
"""Cases up to which every one is counted; beyond, one in a hundred."""


class CaseSurvey:
    """Reads every case once: its tokens, shard and split."""

    def __init__(
        self, project: Project, experiment: Experiment, *, shards: int = 0, refines: bool = False
    ) -> None:
        self._experiment, self._shard_count = experiment, shards
        # A refinement has a holdout even if the experiment has no split.
        self._split = experiment.file.split or (Split() if refines else None)
        self.fingerprint = Fingerprint(project, experiment)
        self.usable: Counter[str] = Counter()
        """Cases that each prompt can be rendered for."""
        self.cases = self.other_shards = self.holdout = self.unverified = 0
        self._shards: Counter[int] = Counter()
        self._counted: Counter[str] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._counters = {counter_for(model) for _, model, _ in experiment.models} | {ESTIMATE}
        self._embedders = experiment.embedders()
        self._references: dict[tuple[str, str], int] = {}
        """Tokens of the references by the model that embeds them, and the hash of the text."""
        self._surveyed = 0
        self.repeated = RepeatedInputs(experiment.prompts)
        """Of all shards, so that a cluster has the same name in each."""

    def add(self, case: Case, *, here: bool = True) -> None:
        """Count a case; one of another shard only goes into the fingerprint."""
        self.fingerprint.feed(case)
        rendered = self.repeated.add(case)
        if not here:
            self.other_shards += 1
            return
        self.cases += 1
        self.unverified += is_unverified(case)
        if self._split is not None and is_holdout(case, self._split):
            self.holdout += 1
        if self._shard_count:
            self._shards[shard_of(case.id, self._shard_count)] += 1
        counting = self.cases <= COUNT_EVERY or self.cases % 100 == 0
        if counting:
            self._count_references(case)
        for prompt, texts in zip(self._experiment.prompts, rendered, strict=True):
            if texts is None:  # counted as skipped by the data check
                continue
            self.usable[prompt.id] += 1
            if counting:
                self._counted[prompt.id] += 1
                for counter in self._counters:
                    self._tokens[prompt.id, counter.method] += counter.of_messages(texts)

    def _count_references(self, case: Case) -> None:
        self._surveyed += 1
        for name, references in self._embedders.items():
            for reference in references:
                with contextlib.suppress(MissingValueError, RenderError):
                    text = reference.render(case.variables)
                    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
                    self._references[name, digest] = ESTIMATE.count(text)

    def references(self, embedder: str) -> tuple[int, float]:
        """Return the calls and tokens of embedding the references of the cases, each text once."""
        tokens = [count for (name, _), count in self._references.items() if name == embedder]
        share = self.cases / max(self._surveyed, 1)
        return round(len(tokens) * share), sum(tokens) * share

    def input_tokens(self, prompt: Prompt, counter: TokenCounter) -> float:
        """Return the input tokens of one answer to each usable case, tools and schema included."""
        counted = self._counted[prompt.id]
        if not counted:
            return 0.0
        each = self._tokens[prompt.id, counter.method] / counted
        for extra in (prompt.tools, prompt.output):
            if extra is not None:
                each += counter.count(json.dumps(extra, ensure_ascii=False))
        return each * self.usable[prompt.id]

    @property
    def skipped(self) -> int:
        """Cells of one repeat and model that cannot be rendered, over all prompts."""
        return self.cases * len(self._experiment.prompts) - self.usable.total()

    @property
    def sampled(self) -> bool:
        """Whether not every case was counted."""
        return self.cases > COUNT_EVERY

    def shards(self) -> list[int]:
        """Return how many cases each shard has."""
        return [self._shards[index] for index in range(1, self._shard_count + 1)]


Rivals = Literal["models", "base", "nobody"]
"""Models against each other, head against base, or nothing: the base is in the head's plan."""
INSTRUCTIONS = 400
"""Tokens of the instructions of a judge or refiner."""
OUT_PER_CRITERION = CostRange(30, 60)
OUT_OF_GRADER = CostRange(5, 60)
OUT_OF_PAIRWISE = CostRange(20, 80)
OUT_OF_REFINER = CostRange(300, 900)
_ENOUGH = 10
"""Answers from which their lengths are an estimate."""


class PastTokens(NamedTuple):
    """Tokens of one answer in earlier runs, from the 10th to the 90th percentile."""

    read: CostRange
    written: CostRange


@dataclass(frozen=True, slots=True)
class CallEstimator:
    """Computes the loads of one experiment from the survey of its cases."""

    project: Project
    experiment: Experiment
    survey: CaseSurvey
    rivals: Rivals = "models"
    """What a pairwise judge compares."""
    past: Mapping[tuple[str, str], PastTokens] = field(default_factory=dict)
    """Tokens of answers in earlier runs, by prompt and model; those of judges have no prompt."""

    def of_a_run(self) -> list[Load]:
        """Return the loads of evaluating every case once."""
        generating = list(self._generating())
        return [*generating, *self._grading(generating)]

    def of_a_loop(self, iterations: CostRange) -> list[Load]:
        """Return the loads of a number of iterations, each a run and a refinement."""
        loads = [*self.of_a_run(), *self._refining()]
        return [dataclasses.replace(load, iterations=iterations) for load in loads]

    @property
    def cells(self) -> int:
        """Answers that are generated."""
        file = self.experiment.file
        usable = sum(self.survey.usable[prompt.id] for prompt in self.experiment.prompts)
        return usable * len(self.experiment.models) * file.repeats

    def _generating(self) -> Iterator[Load]:
        repeats = self.experiment.file.repeats
        for index, (name, model, _) in enumerate(self.experiment.models):
            counter, calls, read, written = counter_for(model), 0, ZERO, ZERO
            for prompt in self.experiment.prompts:
                answers = self.survey.usable[prompt.id] * repeats
                sent = self.experiment.configurations(prompt)[index].params
                calls += answers
                past = self.past.get((prompt.id, name))
                if past is None:
                    read += _flat(self.survey.input_tokens(prompt, counter) * repeats)
                else:
                    read += past.read.times(answers)
                each = TYPICAL_OUTPUT if past is None else past.written
                written += each.at_most(float(sent.get("max_tokens", "inf"))).times(answers)
            exact = counter.exact and not self.survey.sampled
            load = self._load("generate", model, calls, read, written)
            yield dataclasses.replace(load, name=name, exact_tokens=exact)

    def _grading(self, generating: list[Load]) -> Iterator[Load]:
        """Yield the loads of everyone who reads a question and its answer."""
        file, cells = self.experiment.file, self.cells
        questions = self._questions()
        answers = total(load.once_out for load in generating)
        reading = questions + answers
        if self.experiment.rubric is not None:
            criteria = self.experiment.rubric.criteria
            each = INSTRUCTIONS + sum(ESTIMATE.count(c.name + c.description) for c in criteria)
            read, out = reading + _flat(cells * each), OUT_PER_CRITERION.times(len(criteria))
            for judge in self.experiment.judges:
                yield self._load("judge", judge, cells, read, out.times(cells))
        for grader, use in zip(self.experiment.graders, file.judges.graders, strict=True):
            own = sum(ESTIMATE.count(section.template.source) for section in grader.sections)
            by = self.project.models[str(use.by or self.project.file.defaults.judge)]
            read = reading + _flat(cells * own)
            yield self._load("grade", by, cells, read, OUT_OF_GRADER.times(cells))
        yield from self._pairwise(questions, answers)
        for screen in (file.safety.moderation, file.safety.toxicity):
            if screen is not None and screen.action != "off":
                by = self.project.models[screen.by]
                yield self._load("safety", by, cells, reading, OUT_OF_GRADER.times(cells))
        for name in self.experiment.embedders():
            calls, tokens = self.survey.references(name)
            by, read = self.project.models[name], answers + _flat(tokens)
            yield self._load("embed", by, cells + calls, read, ZERO)

    def _pairwise(self, questions: CostRange, answers: CostRange) -> Iterator[Load]:
        """Yield the load of a judge that sees each pair of answers in both orders."""
        pairwise, models = self.experiment.file.judges.pairwise, len(self.experiment.models)
        if pairwise is None or self.rivals == "nobody":
            return
        pairs = models * (models - 1) // 2 if pairwise.all_pairs else models - 1
        if self.rivals == "base":
            pairs = models
        if not pairs:
            return
        calls = 2 * pairs * self.cells // models
        # A call reads the question once and two answers, each of average length.
        read = (questions + answers.times(2)).times(2 * pairs / models)
        read += _flat(calls * INSTRUCTIONS)
        by = self.project.models[pairwise.by]
        yield self._load("pairwise", by, calls, read, OUT_OF_PAIRWISE.times(calls))

    def _refining(self) -> Iterator[Load]:
        refine = self.experiment.file.refine
        model = self.project.models.get(refine.by or self.project.file.defaults.refiner or "")
        if model is None or not self.cells:
            return
        question = self._questions().times(1 / self.cells)
        read = (question + TYPICAL_OUTPUT).times(refine.examples) + _flat(INSTRUCTIONS)
        calls = refine.candidates * len(self.experiment.prompts)
        yield self._load("refine", model, calls, read.times(calls), OUT_OF_REFINER.times(calls))

    def _questions(self) -> CostRange:
        """Return the tokens of the rendered prompts, once for each answer."""
        prompts = self.experiment.prompts
        each = sum(self.survey.input_tokens(prompt, ESTIMATE) for prompt in prompts)
        return _flat(each * len(self.experiment.models) * self.experiment.file.repeats)

    def _load(
        self, phase: str, model: Model, calls: int, read: CostRange, written: CostRange
    ) -> Load:
        price = self.project.prices.price_of(model)
        past = self.past.get(("", model.name))
        if past is not None and phase not in ("generate", "refine"):
            read, written = past.read.times(calls), past.written.times(calls)
        return Load(phase, model, model.name, price, calls, read, written)


def _flat(tokens: float) -> CostRange:
    return CostRange(tokens, tokens)


_ALPHA = 0.05


class Evidence(NamedTuple):
    """What the cases can show, if differences between two versions vary by `DEFAULT_SD`."""

    smallest_effect: float | None
    """Smallest true change of a score (0-1) that shows with a chance of 80%."""
    cases_for_margin: int | None
    """Cases at which an unchanged prompt passes the gate with a chance of 80%."""
    margin: float | None
    relative: bool = False
    """Whether the margin is a share of the base's score, which may be below 1."""


RELATIVE = "the margin is relative and taken of a base score of 1; a lower one needs more"


def evidence_of(experiment: Experiment, cases: int, units: int) -> Evidence:
    """Return what a number of cases can show, at the level and margin of the strictest gate.

    `units` are the clusters among them, each other case counted as one.
    """
    gate = strictest(experiment.file.gates)
    alpha = _ALPHA if gate is None else round(1 - gate.confidence, 10)
    effect = (
        power.smallest_effect(units, sd=power.DEFAULT_SD, alpha=alpha).value if units >= 2 else None
    )
    if gate is None:
        return Evidence(effect, None, None)
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
        needed = power.cases_in_clusters(needed, cases / units if units else 1.0)
    return Evidence(effect, needed, margin.value, margin.relative)


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
    smallest_effect: float | None
    """Smallest change of the composite (0-1) that this many cases show."""
    cases_for_margin: int | None
    """Cases at which an unchanged prompt passes its gate."""
    margin: float | None
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
    found = bare_plan(project, experiment, selection=selection, shards=shards, of=of)
    evidence = evidence_of(selection.narrow(experiment), found.gating, found.units)
    reasons = [*found.reasons, *([RELATIVE] if evidence.relative else [])]
    return dataclasses.replace(
        found,
        smallest_effect=evidence.smallest_effect,
        cases_for_margin=evidence.cases_for_margin,
        margin=evidence.margin,
        reasons=reasons,
    )


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
    check = DataCheck(project, experiment)
    for case in selection.whole(check):
        survey.add(case, here=selection.here(case))
    if only_errors(check.problems):
        raise ConfigError(only_errors(check.problems))
    if survey.cases == 0 and survey.other_shards:
        raise EmptyShard(f"shard {selection.shard} of {experiment.id} has no case")
    if survey.cases == 0:
        raise UsageError(f"no case of {experiment.id} is chosen", hint=selection.describe())
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
        holdout=survey.holdout,
        gating=_gating(project, experiment, survey),
        hash=survey.fingerprint.hexdigest(),
        loads=made,
        iterations=iterations,
        smallest_effect=None,
        cases_for_margin=None,
        margin=None,
        reasons=[
            *survey.repeated.sentences(),
            *_unverified(survey.unverified),
            *_reasons(project, survey),
            *_idle(experiment, of),
            *outside_sentences(experiment),
            *(["tokens are estimated from those of earlier answers"] if past else []),
        ],
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


def _unverified(count: int) -> list[str]:
    """Return a sentence on expected answers that a model wrote, and nobody agreed with."""
    if not count:
        return []
    return [f"{counted(count, 'expected answer')} not verified by anyone: edison dataset verify"]


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
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    # A file that cannot be read is reported by the run; a plan does without it.
    with contextlib.suppress(EdisonError), contextlib.closing(open_reader(path)) as reader:
        judged = experiment.file.is_judged
        for prompt, model, *tokens in token_counts(reader, experiment.id, judged=judged):
            found.setdefault((prompt, model), []).append((tokens[0], tokens[1]))
    return {
        key: PastTokens(*(_usual(column) for column in zip(*counts, strict=True)))
        for key, counts in found.items()
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


def _reasons(project: Project, survey: CaseSurvey) -> list[str]:
    reasons = []
    if not project.tree.exists(project.file.results):
        reasons.append("no results are stored yet, so every call would be made")
    if survey.sampled:
        reasons.append(f"tokens are counted on {COUNT_EVERY:,} cases and every 100th after them")
    return reasons


def _idle(experiment: Experiment, of: str) -> list[str]:
    """Say that a pairwise judge would have nothing to do."""
    alone = len(experiment.models) < 2 and of in ("run", "loop")
    if experiment.file.judges.pairwise is None or not alone:
        return []
    return ["one model has no rival: the pairwise judge compares with --against REF only"]


def _unready(project: Project, loads: list[Load]) -> list[str]:
    found, trust = _unset(project, loads), service_paths.effective_trust(project)
    for model in _models(loads):
        if project.prices.price_of(model) is None:
            found.append(f"the price of {model.name} is unknown: add price to models.yaml")
        if not (address := service_paths.address_of(model, os.environ)):
            continue
        for env in model.keys.values() if model.base_url_env else ():
            if not project.trust.allows(env, address, model.provider):
                found.append(f"{env} may not go to the host in {model.base_url_env}")
        headers = trust.header_refusals(model, address)
        found += [f"{refusal.message}: {refusal.hint}" for refusal in headers]
        if (refusal := service_paths.path_refusal(model, address, trust)) is not None:
            found.append(f"{refusal[0]}: {refusal[1]}")
    return found


def _unset(project: Project, loads: list[Load]) -> list[str]:
    """Return the keys that are neither in the environment nor sealed, and missing addresses."""
    found: list[str] = []
    for model in _models(loads):
        for env in model.keys.values():
            if not project.has_key(env) and not project.has_identity(model):
                found.append(f"{env} is not set ({model.name} needs it)")
        if model.base_url_env and not os.environ.get(model.base_url_env):
            found.append(f"{model.base_url_env} is not set (the address of {model.name})")
    return found


def _models(loads: list[Load]) -> list[Model]:
    return [*{load.model.name: load.model for load in loads}.values()]


ALLOW_CODE = "pass --allow-code or set settings.allow_code"


def _refusals(project: Project, experiment: Experiment) -> list[str]:
    found: list[str] = []
    models = [model for _, model, _ in experiment.models]
    models += [project.models[name] for name in project.other_models_of(experiment)]
    code = {
        "a check": any(check.needs_code for check in experiment.file.checks),
        "a model": any(model.provider == "command" for model in models),
    }
    for what, needs in code.items():
        if needs and not project.file.settings.allow_code:
            found.append(f"{what} runs code of the repository: {ALLOW_CODE}")
    if experiment.file.archived:
        found.append("the experiment is archived")
    return found
