"""Kinds of drafts: for each what a model is asked for, the form of its reply, and its limits.

The text of the instructions of each kind is a file, `instructions/KIND.md`.
"""

from __future__ import annotations

import math
import re
import textwrap
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config import prompt as config_prompt
from edison_ci.documents import yaml_edit
from edison_ci.errors import Severity, UsageError
from edison_ci.features.assist import candidates
from edison_ci.features.assist.drafting import DoesNotFit, DraftTask, list_task, text_of
from edison_ci.judges.instructions import FencedText
from edison_ci.judges.replies import object_schema
from edison_ci.numeric import counted, dollar_range, dollars, fixed
from edison_ci.plan import plan as planning
from edison_ci.proposals import guardrails

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.assist.candidates import ModelCandidate, ReachableModels
    from edison_ci.plan.estimate import CostRange
    from edison_ci.plan.plan import Plan
    from edison_ci.proposals.candidate import RefineTarget
    from edison_ci.records import Json


@dataclass(frozen=True, slots=True)
class Proposal:
    """What can be accepted: one of several in a draft, or the only one."""

    text: str = ""
    """What is shown, edited, and written."""
    label: str = ""
    name: str = ""
    notes: tuple[str, ...] = ()
    """What speaks for it, line by line."""
    summary: tuple[str, ...] = ()
    """Lines that can be shown instead of the text or the notes."""
    settings: Mapping[str, Json] = field(default_factory=dict)
    """Values of the experiment that it decides."""
    models: tuple[ModelCandidate, ...] = ()
    """Models that the settings name."""
    by: tuple[str, str] | None = None
    """The model that wrote it, and the version of its instructions; None if a person did."""


Proposals = tuple[Proposal, ...]

STRING: Json = {"type": "string"}


def material(**texts: str) -> tuple[FencedText, ...]:
    """Return the texts that are not empty as material."""
    return tuple(FencedText("text", text, name) for name, text in texts.items() if text)


def objective_of(experiment: Experiment) -> str:
    """Return the objective; raises UsageError without one."""
    if not experiment.file.objective:
        hint = f"write one: edison assist objective {experiment.id}"
        raise UsageError(f"{experiment.id} has no objective", hint=hint)
    return experiment.file.objective


def criteria_of(experiment: Experiment) -> str:
    """Return the criteria of the rubric, one in each line; empty without a rubric."""
    criteria = experiment.rubric.criteria if experiment.rubric else ()
    return "\n".join(f"{criterion.name}: {criterion.description}" for criterion in criteria)


HINTS = (10, 500)
"""Fewest and most characters of the notes for an objective."""
OBJECTIVE_LENGTHS = (20, 2_000)
_FOCUSES = ("clarity", "creativity", "efficiency")


def objective_task(
    hints: str, count: int, current: str = "", *, detail: bool = False
) -> DraftTask[Proposals]:
    """Ask for objectives from notes; a `current` objective is improved."""
    fewest, most = HINTS
    if not fewest <= len(hints) <= most and not (current and not hints):
        raise UsageError(
            f"the notes have {len(hints):,} characters; {fewest} to {most:,} are needed",
            hint='say in a sentence what the prompt is for: --hints "..."',
        )
    what = "better versions of the current objective" if current else "objectives"
    focuses = ", ".join(_FOCUSES[:count]) + (" and others" if count > len(_FOCUSES) else "")
    length = "four to eight sentences" if detail else "two to four sentences"
    return list_task(
        "objective",
        "objectives",
        {"focus": STRING, "text": STRING},
        partial(_read_objectives, count),
    ).about(
        material(**{"notes": hints, "current objective": current}),
        f"Write {count} objectives ({what}), in this order of focus: {focuses}. Each has {length}.",
    )


def _read_objectives(count: int, items: Sequence[Json]) -> Proposals:
    if len(items) != count:
        raise DoesNotFit(f"{count} objectives were asked for, and there are {len(items)}")
    focuses = [text_of(item, "focus", (1, 40)) for item in items]
    texts = [text_of(item, "text", OBJECTIVE_LENGTHS) for item in items]
    if len({*texts}) < count:
        raise DoesNotFit("two objectives are the same")
    return tuple(map(Proposal, texts, focuses))


_CRITERIA = (4, 6)
_HEAVIEST = 0.4
_SUM_WITHIN = 0.02
_WIDTH = 98


class _Criterion(NamedTuple):
    name: str
    description: str
    weight: float


def rubric_task(objective: str, name: str) -> DraftTask[Proposals]:
    """Ask for a rubric of this name: criteria from 0 to 5, none of which decides alone."""
    return list_task(
        "rubric",
        "criteria",
        {"name": STRING, "description": STRING, "weight": {"type": "number"}},
        partial(_read_rubric, name),
    ).about(
        material(objective=objective),
        "Write the criteria of a rubric for it.",
    )


def _read_rubric(name: str, items: Sequence[Json]) -> Proposals:
    fewest, most = _CRITERIA
    if not fewest <= len(items) <= most:
        raise DoesNotFit(f"{len(items)} criteria; {fewest} to {most} were asked for")
    drafts = [_read_criterion(item) for item in items]
    if len({criterion.name.lower() for criterion in drafts}) < len(drafts):
        raise DoesNotFit("two criteria have the same name")
    total = sum(criterion.weight for criterion in drafts)
    if abs(total - 1) > _SUM_WITHIN:
        raise DoesNotFit(f"the weights add up to {total:g}, not to 1")
    heaviest = max(drafts, key=lambda criterion: criterion.weight)
    if heaviest.weight > _HEAVIEST:
        raise DoesNotFit(f"{heaviest.name} weighs {heaviest.weight:g}; at most {_HEAVIEST:g}")
    # Rounded weights that add up to 1 exactly: the last one takes what is left.
    shares = [round(criterion.weight / total, 2) for criterion in drafts[:-1]]
    shares.append(round(1 - sum(shares), 2))
    criteria = [
        criterion._replace(weight=share) for criterion, share in zip(drafts, shares, strict=True)
    ]
    summary = tuple(f"{c.name} {fixed(100 * c.weight)}%: {c.description}" for c in criteria)
    return (Proposal(_rubric_text(name, criteria), summary=summary),)


def _read_criterion(item: Json) -> _Criterion:
    name = text_of(item, "name", (1, 50))
    description = text_of(item, "description", (10, 500))
    weight = item.get("weight") if isinstance(item, dict) else None
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 1:
        raise DoesNotFit(f"the weight of {name} is not a share between 0 and 1")
    if not all(char.isalnum() or char == " " for char in name) or not name.isascii():
        raise DoesNotFit(f"{name!r} is not a name of letters, digits and spaces")
    return _Criterion(name, description, float(weight))


def _rubric_text(name: str, criteria: Sequence[_Criterion]) -> str:
    lines = [
        "# yaml-language-server: $schema=../.edison/schemas/rubric.schema.json",
        f"rubric: {yaml_edit.scalar(name)}",
        "criteria:",
    ]
    for criterion in criteria:
        text = textwrap.wrap(criterion.description, _WIDTH - 6, break_long_words=False)
        lines += [f"  - name: {yaml_edit.scalar(criterion.name)}", "    description: >-"]
        lines += [f"      {line}" for line in text]
        lines += [f"    weight: {criterion.weight:g}", '    scale: "0-5"']
    return "\n".join(lines) + "\n"


_STYLES = ("structured", "conversational", "minimal")
_PROMPT_LENGTHS = (20, 20_000)
_HEADING = re.compile(r"\A\s*#\s*user[^\n]*\n", re.I)
_SECTION = re.compile(r"(?m)^# +(?:user|system|assistant|developer)\b", re.I)


def prompts_task(
    objective: str, criteria: str, inputs: Sequence[str], constraints: Sequence[str] = ()
) -> DraftTask[Proposals]:
    """Ask for a prompt with these inputs in three styles, each with its rationale."""
    names = ", ".join(f"{{{{ {name} }}}}" for name in inputs)
    request = f"Write {len(_STYLES)} prompts: {', '.join(_STYLES)}. Inputs: {names}."
    request += " Each keeps every constraint." if constraints else ""
    return list_task(
        "prompts",
        "prompts",
        {"style": STRING, "text": STRING, "rationale": STRING},
        partial(_read_prompts, tuple(inputs)),
    ).about(
        material(objective=objective, criteria=criteria, constraints="\n".join(constraints)),
        request,
    )


def prompt_file(name: str, text: str) -> str:
    """Return the file of a prompt with this message, and the form of answers that it asks for."""
    body = f"---\n# user\n{text.strip()}\n"
    prompt, _ = config_prompt.read_prompt(f"---\nid: draft\n{body}".encode(), "draft.md")
    form = "" if prompt is None else f"expect: {prompt.expect}\n"
    return f"---\nid: {name}\n{form}{body}"


def _read_prompts(inputs: tuple[str, ...], items: Sequence[Json]) -> Proposals:
    drafts = []
    for item in items:
        style = text_of(item, "style", (1, 40)).lower()
        text = _HEADING.sub("", text_of(item, "text", _PROMPT_LENGTHS)).strip()
        rationale = text_of(item, "rationale", (1, 1_000))
        drafts.append(Proposal(text, f"{style}: {rationale}", style))
    if [draft.name for draft in drafts] != [*_STYLES]:
        raise DoesNotFit(f"the styles are not {', '.join(_STYLES)}, in this order")
    for draft in drafts:
        _check_prompt(draft, inputs)
    return tuple(drafts)


def _check_prompt(draft: Proposal, inputs: tuple[str, ...]) -> None:
    if _SECTION.search(draft.text):
        raise DoesNotFit(f"the {draft.name} prompt has its own heading")
    text = prompt_file("draft", draft.text)
    prompt, problems = config_prompt.read_prompt(text.encode(), "draft.md")
    errors = [problem.message for problem in problems if problem.severity is Severity.ERROR]
    if prompt is None or errors:
        raise DoesNotFit(f"the {draft.name} prompt cannot be read: {errors[0]}")
    if {*prompt.inputs} != {*inputs}:
        other = ", ".join(sorted({*prompt.inputs} ^ {*inputs}))
        raise DoesNotFit(f"the inputs of the {draft.name} prompt differ: {other}")


FOCUS = (3, 500)
"""Fewest and most characters of the focus of an improvement."""


def improvement_task(target: RefineTarget, focus: str) -> DraftTask[Proposals]:
    """Ask for a small change of a prompt, as a diff that keeps the guardrails of a refinement."""
    path = target.prompt.path
    return DraftTask(
        "improve",
        "diff",
        object_schema(note=STRING, diff=STRING),
        partial(_read_improvement, target),
        (
            FencedText("prompt", target.text, path),
            *material(objective=target.experiment.file.objective, focus=focus),
        ),
        f"Suggest one small change of {path}: a diff with the lines --- a/{path} and +++ b/{path}.",
    )


def _read_improvement(target: RefineTarget, reply: dict[str, Json]) -> Proposals:
    note, diff = text_of(reply, "note", (1, 1_000)), reply["diff"]
    if not isinstance(diff, str):
        raise DoesNotFit("the diff is not a text")
    background = guardrails.GuardrailContext(lambda: target.project.cases(target.experiment))
    candidate = guardrails.check_diff(target, diff, note, background)
    if not candidate.ok or candidate.change is None:
        raise DoesNotFit(candidate.reason)
    return (Proposal(candidate.change.text, note),)


_MODELS = (candidates.FEWEST["generate"], 3)
_ROLES = ("fast", "balanced", "smart")


def models_task(objective: str, reachable: ReachableModels) -> DraftTask[Proposals]:
    """Ask for models of an experiment; raises UsageError if too few can be reached."""
    candidates.need(reachable, _MODELS[0], "that generate")
    fewest, most = _MODELS
    most = min(most, len(reachable.candidates))
    count = f"{fewest} to {most}" if most > fewest else f"{fewest}"
    return list_task(
        "models",
        "models",
        {"role": {"enum": [*_ROLES]}, "model": STRING, "reason": STRING},
        partial(_read_models, reachable),
    ).about(
        material(objective=objective, models=reachable.listing),
        f"Propose {count} models, cheapest first.",
    )


def _read_models(reachable: ReachableModels, items: Sequence[Json]) -> Proposals:
    fewest, most = _MODELS
    if not fewest <= len(items) <= most:
        raise DoesNotFit(f"{len(items)} models; {fewest} to {most} were asked for")
    by_role: dict[str, tuple[ModelCandidate, str]] = {}
    for item in items:
        role = text_of(item, "role", (1, 40))
        candidate = _candidate(reachable, text_of(item, "model", (1, 200)))
        if role not in _ROLES:
            raise DoesNotFit(f"{role!r} is none of {', '.join(_ROLES)}")
        if role in by_role:
            raise DoesNotFit("two models have the same role")
        by_role[role] = candidate, text_of(item, "reason", (1, 500))
    roles = sorted(by_role, key=_ROLES.index)
    models = tuple(by_role[role][0] for role in roles)
    if len({model.id for model in models}) < len(models):
        raise DoesNotFit("a model is there twice")
    prices = [model.usd_per_1k for model in models]
    if prices != sorted(prices):
        raise DoesNotFit(f"the {roles[-1]} model costs less than the {roles[0]} one")
    notes = tuple(f"{role}: {_model_note(*by_role[role])}" for role in roles)
    settings: dict[str, Json] = {"models": [model.name for model in models]}
    return (Proposal(notes=notes, settings=settings, models=models),)


def _candidate(reachable: ReachableModels, name: str) -> ModelCandidate:
    candidate = reachable.find(name)
    if candidate is None:
        raise DoesNotFit(f"{name!r} is not one of the models")
    return candidate


def _model_note(candidate: ModelCandidate, reason: str) -> str:
    return f"{candidate.id} ({candidate.price}). {reason}"


_MOST_JUDGES = 5
_COMBINE = ("mean", "median", "trimmed")
_FEWEST_TO_TRIM = 3


def judges_task(
    objective: str, criteria: str, reachable: ReachableModels, combine: str = "mean"
) -> DraftTask[Proposals]:
    """Ask for judges of an experiment, which combines them so; raises UsageError without models."""
    candidates.need(reachable, candidates.FEWEST["judge"], "that judge, besides those that answer")
    schema = object_schema(
        judges={"type": "array", "items": object_schema(model=STRING, reason=STRING)},
        combine={"enum": [*_COMBINE]},
        pairwise=STRING,
    )
    return DraftTask(
        "judges",
        "judges",
        schema,
        partial(_read_judges, reachable, combine),
        material(objective=objective, criteria=criteria, models=reachable.listing),
        "Propose the judges.",
    )


def _read_judges(
    reachable: ReachableModels, current_combine: str, reply: dict[str, Json]
) -> Proposals:
    items = reply["judges"]
    if not isinstance(items, list) or not 1 <= len(items) <= _MOST_JUDGES:
        raise DoesNotFit(f"judges is not a list of 1 to {_MOST_JUDGES} models")
    judges = [_candidate(reachable, text_of(item, "model", (1, 200))) for item in items]
    reasons = [text_of(item, "reason", (1, 500)) for item in items]
    if len({judge.id for judge in judges}) < len(judges):
        raise DoesNotFit("a judge is there twice")
    combine, pairwise = reply.get("combine"), reply.get("pairwise") or ""
    if not isinstance(combine, str) or combine not in _COMBINE:
        raise DoesNotFit(f"combine is none of {', '.join(_COMBINE)}")
    if combine != "mean" and len(judges) < _FEWEST_TO_TRIM:
        raise DoesNotFit(f"{combine} needs {_FEWEST_TO_TRIM} judges, and there are {len(judges)}")
    if not isinstance(pairwise, str):
        raise DoesNotFit("pairwise is not the name of a model")
    settings: dict[str, Json] = {"pointwise": [judge.name for judge in judges]}
    summary = tuple(map(_model_note, judges, reasons))
    notes = [*summary]
    if combine != current_combine:
        settings["combine"] = combine
    if len(judges) > 1:
        notes.append(f"combined by {combine}")
    if pairwise.strip():
        compared = _candidate(reachable, pairwise.strip())
        settings["pairwise"] = {"by": compared.name}
        notes.append(f"pairs by {compared.id}")
        judges += [compared] if compared not in judges else []
    return (Proposal("", "", "", tuple(notes), summary, {"judges": settings}, tuple(judges)),)


_ROOM = 1.5
"""A budget has this much more room than the highest estimate: some calls are made again."""
_SMALLEST_USD = 1.0
_MOST_TOKENS = 10_000_000
_RANGES = {"max_iterations": (1, 100), "min_delta": (0, 1), "window": (1, 10), "alert_at": (0.5, 1)}
_WHOLE = ("max_iterations", "window")
_SWITCHES = ("prune_weak_prompts", "stop_if_no_refinement", "adaptive_sampling")


def limits_task(project: Project, experiment: Experiment) -> DraftTask[Proposals]:
    """Ask for stop rules; the plan says what that may cost. Raises ConfigError on invalid data."""
    plan = planning.plan_run(project, experiment)
    size = "\n".join([*_plan_size(plan), *_budget_room(project, experiment)])
    number = {name: "integer" if name in _WHOLE else "number" for name in _RANGES}
    types = {**number, **dict.fromkeys(_SWITCHES, "boolean"), "reason": "string"}
    keys: dict[str, Json] = {name: {"type": kind} for name, kind in types.items()}
    return DraftTask(
        "limits",
        "max_iterations",
        object_schema(**keys),
        partial(_read_limits, project, experiment),
        material(objective=experiment.file.objective, size=size),
        "Propose the stop rules.",
    )


def _plan_size(plan: Plan) -> Iterator[str]:
    yield f"{counted(plan.cases, 'case')}, {counted(plan.cells, 'answer')} in each round"
    if plan.smallest_effect is not None and plan.smallest_effect <= 1:
        yield f"smallest change that they can show: {fixed(plan.smallest_effect, 3)}"
    cost = plan.cost_microusd
    yield f"cost of one run: {'unknown' if cost is None else dollar_range(cost.low, cost.high)}"


def _budget_room(project: Project, experiment: Experiment) -> Iterator[str]:
    """Yield how many iterations the budget of the project has room for."""
    limit = project.file.defaults.budget_usd
    once, twice = (_planned_loop(project, experiment, count)[0] for count in (1, 2))
    if once is None or twice is None or not once.high:
        return
    if once.high > limit * 1_000_000:
        raise UsageError(
            f"one iteration may cost {dollars(round(once.high))}, "
            f"and the budget of the project is ${limit:g}",
            hint="raise defaults.budget_usd, or take fewer cases or cheaper models",
        )
    next_iteration = max(twice.high - once.high, 1)
    most = 1 + int((limit * 1_000_000 - once.high) / next_iteration)
    yield f"the budget has room for at most {min(most, _RANGES['max_iterations'][1])} iterations"


def _read_limits(project: Project, experiment: Experiment, reply: dict[str, Json]) -> Proposals:
    numbers = {name: _limit(reply, name) for name in _RANGES}
    iterations, window = int(numbers["max_iterations"]), numbers["window"]
    stop: dict[str, Json] = {**numbers}
    for name in _SWITCHES:
        if not isinstance(switch := reply.get(name), bool):
            raise DoesNotFit(f"{name} is neither true nor false")
        stop[name] = switch
    reason = text_of(reply, "reason", (1, 1_000))
    if window > iterations:
        raise DoesNotFit(f"window is {window}, and there are {iterations} iterations")
    cost, tokens = _planned_loop(project, experiment, iterations)
    limit = project.file.defaults.budget_usd
    if cost is not None and cost.high > limit * 1_000_000:
        raise DoesNotFit(
            f"{iterations} iterations may cost {dollars(round(cost.high))}, "
            f"and the budget of the project is ${limit:g}"
        )
    if cost is not None and cost.high:
        stop["budget_usd"] = _plain(min(_budget_for(cost), limit))
        stop |= {"max_total_tokens": tokens} if tokens <= _MOST_TOKENS else {}
    notes = (reason, _budget_note(cost, iterations))
    return (Proposal(notes=notes, settings={"stop": stop}),)


def _limit(reply: dict[str, Json], name: str) -> int | float:
    number, (low, high) = reply.get(name), _RANGES[name]
    if isinstance(number, bool) or not isinstance(number, int | float) or not low <= number <= high:
        raise DoesNotFit(f"{name} is not a number from {low:g} to {high:g}")
    if name in _WHOLE:
        if number != int(number):
            raise DoesNotFit(f"{name} is not a whole number")
        return int(number)
    return round(float(number), 3)


def _budget_note(cost: CostRange | None, iterations: int) -> str:
    """Return what the budget follows from."""
    if cost is None:
        return "a price is unknown, so no budget is proposed: see edison models list"
    if not cost.high:
        return "the models are free, so the budget stays as it is"
    span = dollar_range(cost.low, cost.high)
    times = counted(iterations, "iteration")
    return f"planned cost of {times}: {span}; the budget leaves room for retries"


def _planned_loop(
    project: Project, experiment: Experiment, iterations: int
) -> tuple[CostRange | None, int]:
    """Return the cost of a loop with this many iterations, and tokens with room for retries."""
    stop = experiment.file.stop.model_copy(update={"max_iterations": iterations})
    file = experiment.file.model_copy(update={"stop": stop})
    plan = planning.plan_run(project, replace(experiment, file=file), loop=True)
    tokens = math.ceil(plan.tokens.high * _ROOM / 10_000) * 10_000
    return plan.cost_microusd, max(tokens, 10_000)


def _budget_for(cost: CostRange) -> float:
    """Return the budget in dollars for a planned cost, rounded up."""
    usd = cost.high / 1_000_000 * _ROOM
    step = 1 if usd > 10 * _SMALLEST_USD else 0.1
    return max(_SMALLEST_USD, round(math.ceil(usd / step) * step, 2))


def _plain(number: float) -> float:
    """Return a whole number as one, so that it is written without a point."""
    return int(number) if number == int(number) else number
