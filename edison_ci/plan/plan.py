"""What would a run of this experiment do?"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edison_ci.config.data_check import DataCheck
from edison_ci.config.decisions import AMOUNT_METRICS
from edison_ci.config.project_files import only_errors
from edison_ci.errors import ConfigError, Problem
from edison_ci.plan import estimate
from edison_ci.plan.estimate import Load, Span
from edison_ci.plan.fingerprint import Fingerprint, plain
from edison_ci.plan.shards import shard_of
from edison_ci.plan.tokens import ESTIMATE, counter_for
from edison_ci.templating import MissingValueError, RenderError

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Case

COUNT_EVERY = 5_000
"""Up to so many cases every one is counted, beyond it one in a hundred."""
_LOOP_LOW = 0.6


@dataclass(slots=True)
class Plan:
    """Cells, calls, tokens, cost and time of one experiment."""

    experiment: str
    cases: int
    cells: int
    skipped: int
    holdout: int
    hash: str
    loads: list[Load]
    iterations: Span
    smallest_effect: float | None
    """Smallest change of the composite (0-1) that this many cases show."""
    cases_for_margin: int | None
    """Cases at which an unchanged prompt passes its gate."""
    margin: float | None
    reasons: list[str]
    blockers: list[str]
    """What a run would stumble over before its first call."""
    shards: list[int] = field(default_factory=list)
    """Cases in each shard, when shards were asked for."""
    warnings: list[Problem] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """Calls of all phases."""
        return sum(load.calls for load in self.loads)

    @property
    def tokens(self) -> Span:
        """Tokens of all phases."""
        return estimate.total([load.tokens for load in self.loads])

    @property
    def cost_microusd(self) -> Span | None:
        """Cost of all phases; None when a price is unknown."""
        return estimate.total_cost(self.loads)

    @property
    def seconds(self) -> Span:
        """Time: models run side by side, judging while generating."""
        return estimate.longest([load.seconds for load in self.loads])

    @property
    def simulated(self) -> bool:
        """Whether a simulated model takes part."""
        return any(load.model.simulated for load in self.loads)


def plan(project: Project, experiment: Experiment, *, shards: int = 0, loop: bool = False) -> Plan:
    """Return the plan of an experiment; raises ConfigError if its data is invalid."""
    survey = _Survey(project, experiment, shards)
    check = DataCheck(project, experiment)
    for case in check:
        survey.see(case)
    if only_errors(check.problems):
        raise ConfigError(only_errors(check.problems))
    loads = _loads(project, experiment, survey)
    iterations = Span(1, 1)
    if loop:
        iterations = _loop(project, experiment, survey, loads)
    draws = experiment.file.draws
    cells = sum(survey.usable.values()) * len(experiment.models) * draws
    effect, needed, margin = _power(experiment, check.cases)
    return Plan(
        experiment=experiment.id,
        cases=check.cases,
        cells=cells,
        skipped=sum(check.skipped_count.values()),
        holdout=check.holdout,
        hash=survey.fingerprint.hexdigest(),
        loads=loads,
        iterations=iterations,
        smallest_effect=effect,
        cases_for_margin=needed,
        margin=margin,
        reasons=_reasons(project, survey),
        blockers=_blockers(project, experiment, loads),
        shards=[survey.shards[index + 1] for index in range(shards)],
        warnings=[p for p in check.problems if p not in only_errors(check.problems)],
    )


class _Survey:
    """Looks at every case once: what it costs to send, and where it belongs."""

    def __init__(self, project: Project, experiment: Experiment, shards: int) -> None:
        self._experiment, self._shards = experiment, shards
        self.fingerprint = Fingerprint(project, experiment)
        self.shards: Counter[int] = Counter()
        self.usable: Counter[str] = Counter()
        self._seen = 0
        self._counted: Counter[str] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._expected_tokens = 0
        self._counters = {counter_for(model) for _, model, _ in experiment.models} | {ESTIMATE}

    def see(self, case: Case) -> None:
        """Take a case into account."""
        self._seen += 1
        self.fingerprint.feed(case)
        if self._shards:
            self.shards[shard_of(case.id, self._shards)] += 1
        counting = self._seen <= COUNT_EVERY or self._seen % 100 == 0
        for prompt in self._experiment.prompts:
            if not case.inputs.keys() >= prompt.required:
                continue
            if not counting and prompt.plain:
                self.usable[prompt.id] += 1
                continue
            self._render(prompt, case, counting=counting)

    def _render(self, prompt: Prompt, case: Case, *, counting: bool) -> None:
        try:
            texts = [message.content for message in prompt.render(case.inputs)]
        except (MissingValueError, RenderError):
            return  # counted as skipped by the data check
        self.usable[prompt.id] += 1
        if not counting:
            return
        self._counted[prompt.id] += 1
        for counter in self._counters:
            self._tokens[prompt.id, counter.method] += counter.of_messages(texts)

    def tokens_in(self, prompt: Prompt, model: Model) -> float:
        """Return the input tokens of one answer for every usable case of a prompt."""
        counted = self._counted[prompt.id]
        if not counted:
            return 0.0
        each = self._tokens[prompt.id, counter_for(model).method] / counted
        return each * self.usable[prompt.id]

    @property
    def sampled(self) -> bool:
        """Whether not every case was counted."""
        return self._seen > COUNT_EVERY


def _loads(project: Project, experiment: Experiment, survey: _Survey) -> list[Load]:
    loads = _generating(project, experiment, survey)
    loads += _judging(project, experiment, survey)
    return loads


def _generating(project: Project, experiment: Experiment, survey: _Survey) -> list[Load]:
    draws = experiment.file.draws
    loads = []
    for index, (name, model, _) in enumerate(experiment.models):
        load = Load("generate", model, name, project.prices.price_of(model))
        load.exact_tokens = counter_for(model).exact and not survey.sampled
        for prompt in experiment.prompts:
            sent = experiment.configurations(prompt)[index].params
            out = _output_span(sent.get("max_tokens"))
            tokens = survey.tokens_in(prompt, model) * draws
            load.add(survey.usable[prompt.id] * draws, Span(tokens, tokens), out)
        loads.append(load)
    return loads


def _output_span(max_tokens: Any) -> Span:
    low, high = estimate.TYPICAL_OUTPUT
    limit = float(max_tokens) if max_tokens else math.inf
    return Span(min(low, limit), min(high, limit))


def _judging(project: Project, experiment: Experiment, survey: _Survey) -> list[Load]:
    file, answers = experiment.file, estimate.TYPICAL_OUTPUT
    models = len(experiment.models)
    per_prompt = {p.id: survey.usable[p.id] * models * file.draws for p in experiment.prompts}
    cells = sum(per_prompt.values())
    inputs = sum(survey.tokens_in(p, ESTIMATED) * models * file.draws for p in experiment.prompts)
    reading = Span(inputs + cells * answers[0], inputs + cells * answers[1])
    loads = []

    def add(phase: str, model: Model, calls: int, tokens: Span, out: tuple[float, float]) -> None:
        load = Load(phase, model, model.name, project.prices.price_of(model))
        load.add(calls, tokens, Span(*out))
        loads.append(load)

    if experiment.rubric is not None:
        criteria = experiment.rubric.criteria
        rubric = sum(ESTIMATE.count(c.description + c.name) for c in criteria)
        overhead = cells * (estimate.JUDGE_INSTRUCTIONS + rubric)
        low, high = estimate.PER_CRITERION_OUT
        for judge in experiment.judges:
            add(
                "judge",
                judge,
                cells,
                reading + Span(overhead, overhead),
                (low * len(criteria), high * len(criteria)),
            )
    for grader, use in zip(experiment.graders, file.judges.graders, strict=True):
        by = project.models.get(use.by or project.file.defaults.judge or "")
        own = cells * sum(ESTIMATE.count(s.template.source) for s in grader.sections)
        if by is not None:
            add("grade", by, cells, reading + Span(own, own), estimate.GRADER_OUT)
    if file.judges.pairwise is not None and models > 1:
        pairs = models * (models - 1) // 2 if file.judges.pairwise.all_pairs else models - 1
        calls = 2 * pairs * cells // models
        both = reading.times(2 * pairs * 2 / models)
        add("pairwise", project.models[file.judges.pairwise.by], calls, both, estimate.PAIRWISE_OUT)
    for screen in (file.safety.moderation, file.safety.toxicity):
        if screen is not None and screen.action != "off":
            add("safety", project.models[screen.by], cells, reading, estimate.GRADER_OUT)
    return loads


def _loop(project: Project, experiment: Experiment, survey: _Survey, loads: list[Load]) -> Span:
    """Scale the loads to a loop and add the refiner; returns the iterations."""
    most = experiment.file.stop.max_iterations or project.file.defaults.max_iterations
    iterations = Span(math.ceil(_LOOP_LOW * most), most)
    for load in loads:
        load.calls = round(load.calls * iterations.high)
        load.tokens_in = load.tokens_in.times(iterations.low, iterations.high)
        load.tokens_out = load.tokens_out.times(iterations.low, iterations.high)
    name = experiment.file.refine.by or project.file.defaults.refiner
    model = project.models.get(name or "")
    if model is not None:
        load = Load("refine", model, model.name, project.prices.price_of(model))
        examples = experiment.file.refine.examples
        prompt = experiment.prompts[0]
        usable = max(survey.usable[prompt.id], 1)
        each = examples * (
            survey.tokens_in(prompt, ESTIMATED) / usable + estimate.TYPICAL_OUTPUT[1]
        )
        calls = int(iterations.high) * experiment.file.refine.candidates
        load.add(
            calls, Span(each * iterations.low, each * iterations.high), Span(*estimate.REFINER_OUT)
        )
        loads.append(load)
    return iterations


def _power(experiment: Experiment, cases: int) -> tuple[float | None, int | None, float | None]:
    from edison_ci.stats.power import DEFAULT_SD, cases_for_margin, smallest_effect

    effect = smallest_effect(cases, sd=DEFAULT_SD).value if cases >= 2 else None
    gates = [
        gate
        for gate in experiment.file.gates
        if gate.no_worse_than and gate.metric not in AMOUNT_METRICS
    ]
    if not gates:
        return effect, None, None
    tightest = min(gates, key=lambda gate: gate.effective_margin.value)
    margin = tightest.effective_margin.value
    if margin <= 0:
        return effect, None, margin
    alpha = min(max(1 - tightest.confidence, 0.0001), 0.4999)
    needed = cases_for_margin(
        DEFAULT_SD, margin=margin, alpha=alpha, worst_case_drop=tightest.worst_case_drop
    )
    return effect, needed.value, margin


def _reasons(project: Project, survey: _Survey) -> list[str]:
    reasons = []
    if not project.tree.exists(project.file.results):
        reasons.append("no results are stored yet, so every call would be made")
    if survey.sampled:
        reasons.append(f"tokens are counted on {COUNT_EVERY:,} cases and every 100th after them")
    return reasons


def _blockers(project: Project, experiment: Experiment, loads: list[Load]) -> list[str]:
    import os

    found: dict[str, None] = {}
    for load in loads:
        model = load.model
        if load.price is None:
            found[f"the price of {model.name} is unknown: add price to models.yaml"] = None
        for env in model.keys.values():
            if not os.environ.get(env):
                found[f"{env} is not set ({model.name} needs it)"] = None
        if model.base_url_env and not os.environ.get(model.base_url_env):
            found[f"{model.base_url_env} is not set (the address of {model.name})"] = None
    if (
        any(check.needs_code for check in experiment.file.checks)
        and not project.file.settings.allow_code
    ):
        found["a check runs code: pass --allow-code or set settings.allow_code"] = None
    if experiment.file.archived:
        found["the experiment is archived"] = None
    return list(found)


class _Estimated:
    """Stands for "no particular tokenizer"."""

    provider = "sim"
    model = ""


ESTIMATED: Any = _Estimated()


def as_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as it appears in `edison plan --json`."""
    return {
        "experiment": plan.experiment,
        "simulated": plan.simulated,
        "cases": plan.cases,
        "cells": plan.cells,
        "skipped": plan.skipped,
        "holdout": plan.holdout,
        "plan_hash": plan.hash,
        "iterations": plan.iterations.rounded(),
        "calls": {"to_make": plan.calls, "reused": 0},
        "tokens": plan.tokens.rounded(),
        "cost_microusd": plan.cost_microusd.rounded() if plan.cost_microusd else None,
        "seconds": plan.seconds.rounded(),
        "by_phase": _by_phase(plan),
        "by_model": [_load(load) for load in plan.loads],
        "smallest_effect": plan.smallest_effect,
        "cases_for_margin": plan.cases_for_margin,
        "margin": plan.margin,
        "reasons": plan.reasons,
        "blockers": plan.blockers,
    }


def _by_phase(plan: Plan) -> dict[str, Any]:
    phases = dict.fromkeys(load.phase for load in plan.loads)
    grouped = {phase: [load for load in plan.loads if load.phase == phase] for phase in phases}
    return {phase: _sums(loads) for phase, loads in grouped.items()}


def _sums(loads: list[Load]) -> dict[str, Any]:
    cost = estimate.total_cost(loads)
    return {
        "calls": sum(load.calls for load in loads),
        "tokens": estimate.total([load.tokens for load in loads]).rounded(),
        "cost_microusd": cost.rounded() if cost else None,
        "seconds": estimate.longest([load.seconds for load in loads]).rounded(),
    }


def _load(load: Load) -> dict[str, Any]:
    return {
        "phase": load.phase,
        "model": load.name,
        "provider": load.model.provider,
        "simulated": load.model.simulated,
        "tokens_exact": load.exact_tokens,
        "price": plain(load.price),
        **_sums([load]),
    }
