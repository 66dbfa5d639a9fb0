"""Plans of experiments: what their runs would do and cost, with what stored results say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config import requirements
from edison_ci.decide import past_spread
from edison_ci.documents.record_json import Document, fields_of
from edison_ci.errors import UsageError
from edison_ci.execute import reuse_forecast
from edison_ci.plan import baseline
from edison_ci.plan import plan as planning
from edison_ci.plan.selection import Selection

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The experiments to plan, and the options of their runs."""

    experiments: tuple[str, ...]
    changed_since: str | None
    models: tuple[str, ...]
    batch: bool
    loop: bool
    shards: int | None


class Plans(NamedTuple):
    """Plans of runs, and which experiments a change affects."""

    plans: list[planning.Plan]
    impact: baseline.Impact | None
    shards: int | None
    named: frozenset[str]
    """Ids of the experiments that were asked for."""

    @property
    def matrix(self) -> Document:
        """The matrix of jobs that run the shards."""
        return planning.matrix(self.plans[0]) if self.plans else {"include": []}

    def as_json(self) -> Document:
        """Return it as a command prints it, without the warnings of each plan."""
        body: Document = {"experiments": [planning.as_json(plan) for plan in self.plans]}
        if (impact := self.impact) is not None:
            affected = [
                {"experiment": name, "because": list(reasons)}
                for name, reasons in impact.affected.items()
            ]
            compared = fields_of(impact, "ref", "commit", "unaffected")
            body["changed_since"] = {**compared, "affected": affected}
        if self.shards:
            body["matrix"] = self.matrix
        return body


def plan_runs(project: Project, request: PlanRequest, *, offline: bool) -> Plans:
    """Return what runs of experiments would do and cost; nothing is sent.

    Raises UsageError for options that exclude each other, and ConfigError if a run is impossible.
    """
    chosen = _selected(project, request)
    named = frozenset(str(experiment.id) for experiment in chosen)
    impact = None
    if request.changed_since:
        impact = baseline.impact_since(project, request.changed_since, offline=offline)
        chosen = [experiment for experiment in chosen if experiment.id in impact.affected]
    calls = requirements.REFINEMENT if request.loop else requirements.RUN
    requirements.refuse(
        problem
        for experiment in chosen
        for problem in requirements.missing(project, experiment, calls=calls)
    )
    if request.shards and len(chosen) > 1:
        hint = f"name one: {', '.join(experiment.id for experiment in chosen)}"
        raise UsageError("--shards needs one experiment", hint=hint)
    if request.batch and request.loop:
        raise UsageError(
            "a loop is not run in batches", hint="plan without --batch, or without --loop"
        )
    plans = [_planned(project, experiment, request) for experiment in chosen]
    return Plans(plans, impact, request.shards, named)


def _selected(project: Project, request: PlanRequest) -> list[Experiment]:
    """Return the named experiments, or all that are not archived, with the chosen models."""
    experiments = [e for e in project.experiments.values() if not e.file.archived]
    if request.experiments:
        experiments = [project.experiment(name) for name in dict.fromkeys(request.experiments)]
    selection = Selection(models=request.models)
    for experiment in experiments:
        selection.refuse_unknown(project, experiment)
    return [selection.narrow(selection.widen(project, experiment)) for experiment in experiments]


def _planned(project: Project, experiment: Experiment, request: PlanRequest) -> planning.Plan:
    plan = planning.plan_run(project, experiment, shards=request.shards or 0, loop=request.loop)
    if project.tree.exists(project.file.results):  # answers to reuse, and how scores vary
        plan = past_spread.with_past_spread(plan, project, experiment)
        plan = reuse_forecast.with_reuse(plan, project, experiment)
    return plan.in_batches(project.prices) if request.batch else plan
