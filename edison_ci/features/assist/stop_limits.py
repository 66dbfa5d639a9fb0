"""Proposals of stop rules: a model says when to stop, and the plan says what that may cost."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.documents import decoding, files, yaml_edit
from edison_ci.errors import UsageError
from edison_ci.features.assist import draft_files, drafting
from edison_ci.judges import instructions, replies
from edison_ci.numeric import counted, dollar_range, dollars, fixed
from edison_ci.plan import plan as planning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.config.load import Experiment, Project
    from edison_ci.plan.estimate import CostRange
    from edison_ci.plan.plan import Plan
    from edison_ci.records import Json

_ROOM = 1.5
"""A budget has this much more room than the highest estimate: some calls are made again."""
_SMALLEST_USD = 1.0
_MOST_TOKENS = 10_000_000
_RANGES = {"max_iterations": (1, 100), "min_delta": (0, 1), "window": (1, 10), "alert_at": (0.5, 1)}
_WHOLE = ("max_iterations", "window")
_SWITCHES = ("prune_weak_prompts", "stop_if_no_refinement", "adaptive_sampling")


class LimitsDraft(NamedTuple):
    """A proposal of stop rules, with the budget that follows from it."""

    stop: dict[str, Json]
    reason: str
    cost_microusd: CostRange | None
    """What the planned loop costs; None if a price is unknown."""
    iterations: int

    @property
    def budget(self) -> str:
        """What the budget follows from."""
        if self.cost_microusd is None:
            return "a price is unknown, so no budget is proposed: see edison models list"
        if not self.cost_microusd.high:
            return "the models are free, so the budget stays as it is"
        span = dollar_range(self.cost_microusd.low, self.cost_microusd.high)
        times = counted(self.iterations, "iteration")
        return f"planned cost of {times}: {span}; the budget leaves room for retries"


def limits_kind(project: Project, experiment: Experiment) -> drafting.DraftKind[LimitsDraft]:
    """Return the kind of a proposal of stop rules."""
    switch: Json = {"type": "boolean"}
    schema = replies.object_schema(
        max_iterations={"type": "integer"},
        min_delta={"type": "number"},
        window={"type": "integer"},
        alert_at={"type": "number"},
        **dict.fromkeys(_SWITCHES, switch),
        reason={"type": "string"},
    )
    read_reply = partial(_read, project, experiment)
    return drafting.DraftKind("limits", "max_iterations", schema, read_reply)


def limits_question(project: Project, experiment: Experiment) -> drafting.Question:
    """Return what is asked for; raises ConfigError if the data is invalid."""
    plan = planning.plan_run(project, experiment)
    pieces = (
        instructions.FencedText("text", experiment.file.objective, "objective"),
        instructions.FencedText(
            "text", "\n".join([*_size(plan), *_room(project, experiment)]), "size"
        ),
    )
    return drafting.Question(pieces, "The material ends here. Propose the stop rules.")


def _size(plan: Plan) -> Iterator[str]:
    yield f"{counted(plan.cases, 'case')}, {counted(plan.cells, 'answer')} in each round"
    if plan.smallest_effect is not None and plan.smallest_effect <= 1:
        yield f"smallest change that they can show: {fixed(plan.smallest_effect, 3)}"
    cost = plan.cost_microusd
    yield f"cost of one run: {'unknown' if cost is None else dollar_range(cost.low, cost.high)}"


def _room(project: Project, experiment: Experiment) -> Iterator[str]:
    """Yield how many iterations the budget of the project has room for."""
    limit = project.file.defaults.budget_usd
    once, twice = (planned_loop(project, experiment, count)[0] for count in (1, 2))
    if once is None or twice is None or not once.high:
        return
    if once.high > limit * 1_000_000:
        raise UsageError(
            f"one iteration may cost {dollars(round(once.high))}, "
            f"and the budget of the project is ${limit:g}",
            hint="raise defaults.budget_usd, or take fewer cases or cheaper models",
        )
    each = max(twice.high - once.high, 1)
    most = 1 + int((limit * 1_000_000 - once.high) / each)
    yield f"the budget has room for at most {min(most, _RANGES['max_iterations'][1])} iterations"


def _read(project: Project, experiment: Experiment, reply: dict[str, Json]) -> LimitsDraft:
    stop: dict[str, Json] = {name: _number(reply, name) for name in _RANGES}
    for name in _SWITCHES:
        if not isinstance(given := reply.get(name), bool):
            raise drafting.DoesNotFit(f"{name} is neither true nor false")
        stop[name] = given
    reason = drafting.text_of(reply, "reason", (1, 1_000))
    iterations, window = stop["max_iterations"], stop["window"]
    assert isinstance(iterations, int), "it was read as a whole number"
    assert isinstance(window, int), "it was read as a whole number"
    if window > iterations:
        raise drafting.DoesNotFit(f"window is {window}, and there are {iterations} iterations")
    cost, tokens = planned_loop(project, experiment, iterations)
    limit = project.file.defaults.budget_usd
    if cost is not None and cost.high > limit * 1_000_000:
        raise drafting.DoesNotFit(
            f"{iterations} iterations may cost {dollars(round(cost.high))}, "
            f"and the budget of the project is ${limit:g}"
        )
    if cost is not None and cost.high:
        stop["budget_usd"] = _plain(min(budget_for(cost), limit))
        stop |= {"max_total_tokens": tokens} if tokens <= _MOST_TOKENS else {}
    return LimitsDraft(stop, reason, cost, iterations)


def _number(reply: dict[str, Json], name: str) -> Json:
    given, (low, high) = reply.get(name), _RANGES[name]
    if isinstance(given, bool) or not isinstance(given, int | float) or not low <= given <= high:
        raise drafting.DoesNotFit(f"{name} is not a number from {low:g} to {high:g}")
    if name in _WHOLE:
        if given != int(given):
            raise drafting.DoesNotFit(f"{name} is not a whole number")
        return int(given)
    return round(float(given), 3)


def planned_loop(
    project: Project, experiment: Experiment, iterations: int
) -> tuple[CostRange | None, int]:
    """Return the cost of a loop of so many iterations, and tokens with room for retries."""
    stop = experiment.file.stop.model_copy(update={"max_iterations": iterations})
    file = experiment.file.model_copy(update={"stop": stop})
    plan = planning.plan_run(project, replace(experiment, file=file), loop=True)
    tokens = math.ceil(plan.tokens.high * _ROOM / 10_000) * 10_000
    return plan.cost_microusd, max(tokens, 10_000)


def budget_for(cost: CostRange) -> float:
    """Return the budget in dollars for a planned cost, rounded up."""
    usd = cost.high / 1_000_000 * _ROOM
    step = 1 if usd > 10 * _SMALLEST_USD else 0.1
    return max(_SMALLEST_USD, round(math.ceil(usd / step) * step, 2))


def _plain(number: float) -> float:
    """Return a whole number as one, so that it is written without a point."""
    return int(number) if number == int(number) else number


def limits_file(
    project: Project, experiment: Experiment, draft: LimitsDraft
) -> draft_files.DraftFile:
    """Return the experiment with the stop rules; what the proposal does not name stays."""
    before = decoding.decode(files.read(project.tree, experiment.path))
    known = experiment.file.stop.model_dump()
    changed = {name: value for name, value in draft.stop.items() if known[name] != value}
    text = yaml_edit.with_members(before, "stop", changed, after="prompts") if changed else before
    return draft_files.DraftFile(project, experiment.path, text)
