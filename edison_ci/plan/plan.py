"""What would a run of this experiment do?"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from edison_ci.config.data_check import DataCheck
from edison_ci.config.project_files import only_errors, only_warnings
from edison_ci.errors import ConfigError, Problem, UsageError
from edison_ci.frozen import dataclass
from edison_ci.plan.estimate import ONCE, Load, Span, total, total_cost, total_seconds
from edison_ci.plan.loads import Loads
from edison_ci.plan.looks import kind_of_looks, rounds
from edison_ci.plan.selection import EVERYTHING, Selection
from edison_ci.plan.survey import COUNT_EVERY, Survey
from edison_ci.plugins import later

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project
    from edison_ci.plan.loads import Rivals
    from edison_ci.plan.looks import Kind

_LOOP_LOW = 0.6


class EmptyShard(UsageError):
    """No case falls into this shard; that is no mistake of whoever asks for every shard."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Cells, calls, tokens, cost and time of one experiment."""

    experiment: str
    cases: int
    cells: int
    """Answers a run would ask for."""
    skipped: int
    """Answers it would not ask for because a case lacks a variable."""
    holdout: int
    gating: int
    """Cases that decide a gate: the fewest of any prompt, quarantined ones left out."""
    hash: str
    """sha256 of everything that decides the result; the same for every shard of a run."""
    loads: list[Load]
    iterations: Span
    smallest_effect: float | None
    """Smallest change of the composite (0-1) that this many cases show."""
    cases_for_margin: int | None
    """Cases at which an unchanged prompt passes its gate."""
    margin: float | None
    reasons: list[str]
    unready: list[str]
    """What real calls would stumble over: keys and prices."""
    refusals: list[str]
    """What any run would stumble over before its first call."""
    reused: int = 0
    """Calls that are answered by what is stored, and not counted in the loads."""
    shards: list[int] = field(default_factory=list)
    """Cases in each shard, when shards were asked for."""
    looks: Kind | None = None
    """How a comparison would be looked at; None if once, at the end."""
    partial: bool = False
    """Whether cases of the dataset are left out."""
    warnings: list[Problem] = field(default_factory=list)

    @property
    def blockers(self) -> list[str]:
        """Everything a run would stumble over."""
        return [*self.unready, *self.refusals]

    @property
    def calls(self) -> int:
        """Calls of all phases."""
        return sum(load.calls for load in self.loads)

    @property
    def fewest_calls(self) -> int:
        """Calls of all phases, if the run stops as early as it can."""
        return sum(round(load.once_calls * load.iterations.low) for load in self.loads)

    @property
    def tokens(self) -> Span:
        """Tokens of all phases."""
        return total(load.tokens for load in self.loads)

    @property
    def cost_microusd(self) -> Span | None:
        """Cost of all phases; None when a price is unknown."""
        return total_cost(self.loads)

    @property
    def seconds(self) -> Span:
        """Time: models run side by side, judging while generating."""
        return total_seconds(self.loads)

    @property
    def simulated(self) -> bool:
        """Whether a simulated model takes part."""
        return any(load.model.simulated for load in self.loads)


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
    evidence = _evidence_of(selection.narrow(experiment), found.gating)
    reasons = list(found.reasons)
    if evidence.relative:
        reasons.append(
            "the margin is relative and taken of a base score of 1; a lower one needs more"
        )
    return dataclasses.replace(
        found,
        smallest_effect=evidence.smallest_effect,
        cases_for_margin=evidence.cases_for_margin,
        margin=evidence.margin,
        reasons=reasons,
    )


# Loaded late because numpy takes longer to load than most plans to make.
_evidence_of = later("edison_ci.plan.evidence:evidence_of")


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
    survey = Survey(project, experiment, shards=shards, refines=of == "loop")
    check = DataCheck(project, experiment)
    for case in selection.whole(check):
        survey.see(case, here=selection.here(case))
    if only_errors(check.problems):
        raise ConfigError(only_errors(check.problems))
    if survey.seen == 0 and survey.elsewhere:
        raise EmptyShard(f"shard {selection.shard} of {experiment.id} has no case")
    if survey.seen == 0:
        raise UsageError(f"no case of {experiment.id} is chosen", hint=selection.describe())
    rivals: dict[str, Rivals] = {"head": "base", "base": "nobody"}
    loads, iterations = Loads(project, experiment, survey, rivals.get(of, "models")), ONCE
    if of == "loop":
        most = experiment.file.stop.max_iterations or project.file.defaults.max_iterations
        iterations = Span(math.ceil(_LOOP_LOW * most), most)
    answers = len(experiment.models) * experiment.file.draws
    made = loads.of_a_loop(iterations) if of == "loop" else loads.of_a_run()
    return Plan(
        experiment=experiment.id,
        cases=survey.seen,
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
        reasons=[*_reasons(project, survey), *_idle(experiment, of)],
        unready=_unready(project, made),
        refusals=_refusals(project, experiment),
        shards=survey.shards(),
        looks=kind_of_looks(experiment.file.gates, experiment.file.stop),
        partial=survey.seen < check.cases,
        warnings=only_warnings(check.problems),
    )


def joined(first: Plan, second: Plan) -> Plan:
    """Return the plan of two subjects on the same cases."""
    return dataclasses.replace(
        first,
        cells=first.cells + second.cells,
        skipped=first.skipped + second.skipped,
        hash=hashlib.sha256(f"{first.hash} {second.hash}".encode()).hexdigest(),
        loads=[*first.loads, *second.loads],
        unready=list(dict.fromkeys([*first.unready, *second.unready])),
        refusals=list(dict.fromkeys([*first.refusals, *second.refusals])),
    )


def ranged(plan: Plan, kind: Kind) -> Plan:
    """Return the plan of a comparison that stops when it is clear, from least to most."""
    least, most = rounds(kind, plan.cases)
    span = Span(least, most)
    loads = [dataclasses.replace(load, iterations=span) for load in plan.loads]
    return dataclasses.replace(plan, loads=loads, looks=kind)


def without_generating(project: Project, plan: Plan) -> Plan:
    """Return the plan of grading answers that are there already."""
    loads = [load for load in plan.loads if load.phase != "generate"]
    return dataclasses.replace(plan, loads=loads, unready=_unready(project, loads))


def _gating(project: Project, experiment: Experiment, survey: Survey) -> int:
    aside = [entry for entry in project.quarantine.cases if entry.experiment == experiment.id]
    fewest = min((survey.usable[prompt.id] for prompt in experiment.prompts), default=0)
    return max(fewest - len(aside), 0)


def _reasons(project: Project, survey: Survey) -> list[str]:
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
    found: list[str] = []
    for model in {load.model.name: load.model for load in loads}.values():
        if project.prices.price_of(model) is None:
            found.append(f"the price of {model.name} is unknown: add price to models.yaml")
        for env in model.keys.values():
            if not os.environ.get(env):
                found.append(f"{env} is not set ({model.name} needs it)")
        address = os.environ.get(model.base_url_env or "", "")
        if model.base_url_env and not address:
            found.append(f"{model.base_url_env} is not set (the address of {model.name})")
        elif model.base_url_env:
            for env in model.keys.values():
                if not project.trust.allows(env, address, model.provider):
                    found.append(f"{env} may not go to the host in {model.base_url_env}")
    return found


def _refusals(project: Project, experiment: Experiment) -> list[str]:
    found: list[str] = []
    code = any(check.needs_code for check in experiment.file.checks)
    if code and not project.file.settings.allow_code:
        found.append("a check runs code: pass --allow-code or set settings.allow_code")
    if experiment.file.archived:
        found.append("the experiment is archived")
    return found
