"""edison refine and optimize: prompt changes suggested by a model and tested on the cases."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edison_ci import feature, ranges
from edison_ci._dataclass import dataclass
from edison_ci.cli import lookup, suggestion
from edison_ci.cli.options import CliState, EdisonCommand, ScoreType, takes
from edison_ci.cli.sessions import PlanConfirmation, cost_options, microusd, refining_factory
from edison_ci.cli.terminal import GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.documents import record_json
from edison_ci.errors import OutOfBudget, UsageError
from edison_ci.features.refine import library, refinement, refiner
from edison_ci.features.refine import optimize as refine_optimize
from edison_ci.features.refine import search as refine_search
from edison_ci.features.refine import suggestions as refine_suggestions
from edison_ci.features.refine import trials as refine_trials
from edison_ci.numeric import counted, dollars, in_cents
from edison_ci.plan import estimate
from edison_ci.plan import plan as planning
from edison_ci.records import SuggestionStatus
from edison_ci.stats import sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.features.refine.optimize import OptimizeResult
    from edison_ci.features.refine.refinement import RefineResult
    from edison_ci.features.refine.search import Generation
    from edison_ci.features.refine.weaknesses import Weakness
    from edison_ci.plan.estimate import Load
    from edison_ci.proposals.candidate import RefineTarget


iterations_option = click.option(
    "--iterations",
    type=click.IntRange(*ranges.ITERATIONS),
    metavar="N",
    help="Maximum number of iterations.",
)
prompt_option = click.option(
    "--prompt", metavar="PROMPT", help="Prompt to refine, if the experiment has several."
)


@dataclass(frozen=True, slots=True)
class RefineCommandRequest:
    """The prompt to refine, and how many candidates are asked for."""

    experiment: str | None
    prompt: str | None
    candidates: int | None
    force: bool
    budget: float | None
    yes: bool
    allow_code: bool


class RefineForecast(NamedTuple):
    """Cases and cost of a refinement, before it starts."""

    training: int
    held_out: int
    cost: estimate.CostRange | None
    simulated: bool
    more: str = ""
    """Further terms, as text."""


def announce(
    confirmation: PlanConfirmation, target: RefineTarget, forecast: RefineForecast
) -> None:
    """Print prompt, cases and cost, and ask for confirmation if it is expensive."""
    if not forecast.training:
        raise UsageError("every case is held out", hint="lower split.holdout of the experiment")
    cost = forecast.cost
    most = "" if cost is None or not cost.high else f", at most about {dollars(cost.high)}"
    cases = f"{counted(forecast.training, 'training case')} and {forecast.held_out:,} held out"
    paths = ", ".join(prompt.path for prompt in target.experiment.prompts)
    confirmation.terminal.note(
        StyledText(target.experiment.id, bold=True),
        f": {paths}, {cases}{forecast.more}{most}",
        *simulated_label(forecast.simulated),
    )
    confirmation.confirm(cost)


def announce_loop(confirmation: PlanConfirmation, target: RefineTarget) -> None:
    """Refuse a plan that cannot complete, print its cost, and ask for confirmation."""
    plan = planning.bare_plan(target.project, target.experiment, of="loop")
    confirmation.refuse(plan)
    training = plan.cases - plan.holdout
    forecast = RefineForecast(training, plan.holdout, plan.cost_microusd, plan.simulated)
    announce(confirmation, target, forecast)


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@prompt_option
@click.option(
    "--candidates",
    type=click.IntRange(*ranges.CANDIDATES),
    metavar="N",
    help="Number of diffs to request.",
)
@click.option(
    "--force", is_flag=True, help="Propose the best one even without evidence that it helps."
)
@cost_options
@click.pass_obj
@takes(RefineCommandRequest)
def refine(state: CliState, request: RefineCommandRequest) -> None:
    """Suggest a small change to a prompt, tested on held-out cases.

    A model gets the weakest criteria of the prompt and failed training cases, and writes a diff. A
    diff that keeps every guardrail is tested on all cases, including held-out cases that the model
    has not seen, and stored with the results. No file changes. Stop it with Ctrl-C; the same
    command continues, and no answer is paid for twice. EXPERIMENT may be left out if there is one.

    Examples:
      edison refine
      edison refine support-reply --candidates 3 --budget 2
      edison refine support-reply --prompt support-reply --json
    """
    terminal = Terminal(state)
    project = lookup.open_project(state, request.experiment)
    name = lookup.find_experiment(project, request.experiment).id
    permitted = library.refine_request(project, "refine", name, request.prompt)
    target = permitted.target
    candidates = request.candidates or target.limits.candidates
    confirmation = PlanConfirmation(terminal, yes=request.yes)
    loads = _announce(confirmation, target, candidates)
    factory = refining_factory(state, confirmation)
    trials = refine_trials.TrialRunner(
        target,
        lambda: factory.context(permitted.project),
        refine_trials.Allowance.of(target, microusd(request.budget)),
        allow_code=request.allow_code,
    )
    options = refinement.RefineOptions(
        candidates,
        force=request.force,
        on_step=lambda line: terminal.note(f"  {line}"),
        audit=permitted.audit_entry,
        on_stored=permitted.tell,
    )
    try:
        result = refinement.refine(trials, permitted.refiner, options)
    except OutOfBudget as error:
        error.hint = _sufficient(target, loads, str(error.hint))
        raise
    _show(terminal, target, result)
    feature.call("command_ended", terminal, permitted.site)


def _sufficient(target: RefineTarget, loads: Sequence[Load], otherwise: str) -> str:
    """Return the hint with a budget for which the same command goes through."""
    sufficient = refine_trials.sufficient_budget(target, loads)
    if sufficient is None:
        return otherwise
    enough, limit = sufficient
    command = f"edison refine {target.experiment.id} --budget {in_cents(enough)}"
    raised = ""
    if limit is not None and limit < enough:
        raised = f"raise stop.budget_usd to {in_cents(enough)}, and "
    return f"{raised}repeat with: {command} (stored answers are reused)"


def _announce(confirmation: PlanConfirmation, target: RefineTarget, candidates: int) -> list[Load]:
    """Refuse a plan that cannot complete, print its cost, and ask; return its calls."""
    project, experiment = target.project, target.experiment
    loop = planning.bare_plan(project, experiment, of="loop")
    confirmation.refuse(loop)
    head = planning.bare_plan(project, experiment, of="head").loads
    loads = [
        *(load for load in head if load.phase != "pairwise"),  # the current prompt
        *_times(head, estimate.CostRange(candidates, candidates)),
        *_times(
            [load for load in loop.loads if load.phase == "refine"],
            estimate.CostRange(candidates, candidates * (1 + refiner.RE_ASKS)).times(
                1 / target.limits.candidates
            ),
        ),
    ]
    forecast = RefineForecast(
        loop.cases - loop.holdout,
        loop.holdout,
        estimate.total_cost(loads),
        loop.simulated,
        more=f", {counted(candidates, 'candidate')}",
    )
    announce(confirmation, target, forecast)
    return loads


def _times(loads: Sequence[Load], iterations: estimate.CostRange) -> list[Load]:
    return [dataclasses.replace(load, iterations=iterations) for load in loads]


def _show(terminal: Terminal, target: RefineTarget, result: RefineResult) -> None:
    for failure in result.failures:
        terminal.note(StyledText("the refiner failed: ", ODD), failure)
    if terminal.json:
        terminal.document(_document(target, result))
        return
    if not result.weakness.targets:
        terminal.result("nothing to refine: no criterion, check or grader finds a fault")
    for made in result.suggestions:
        terminal.result("")
        suggestion.show_suggestion(terminal, made)
    statuses = [made.status for made in result.suggestions]
    counts = ", ".join(
        f"{statuses.count(status)} {status}" for status in SuggestionStatus if status in statuses
    )
    terminal.result("")
    terminal.result(f"{counts or 'no suggestion'}; cost {dollars(result.cost_microusd)}")
    if SuggestionStatus.PROPOSED in statuses:
        best = result.suggestions[statuses.index(SuggestionStatus.PROPOSED)]
        terminal.note(f"push it to a branch with: edison propose {best.id}")
    elif SuggestionStatus.TRIED in statuses:
        best = result.suggestions[statuses.index(SuggestionStatus.TRIED)]
        step = "run the same command for another one"
        if refine_suggestions.lacks_cases(best):
            step = "add cases, so that it can be verified"
        terminal.note(f"{step}, or propose it anyway: edison propose {best.id} --force")


def _document(target: RefineTarget, result: RefineResult) -> dict[str, Any]:
    return {
        "experiment": target.experiment.id,
        "prompt": target.prompt.id,
        "simulated": bool(result.simulation),
        "targets": _targets_json(result.weakness),
        **record_json.fields_of(result, "run_id", "cost_microusd", "failures", "suggestions"),
    }


def _targets_json(weakness: Weakness) -> list[dict[str, Any]]:
    return [record_json.fields_of(target, "name", "kind", "score") for target in weakness.targets]


_STOPPED = {
    "target": "the target is reached",
    "converged": "the last generations gained too little",
    "generations": "the maximum number of generations is reached",
    "budget": "the budget has no room for another generation",
    "flawless": "no criterion, check or grader finds a fault",
}


@dataclass(frozen=True, slots=True)
class OptimizeRequest:
    """The prompt to optimize, and the limits of the search."""

    experiment: str | None
    prompt: str | None
    population: int
    generations: int
    target: float | None
    seed: int
    force: bool
    budget: float | None
    yes: bool
    allow_code: bool


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@prompt_option
@click.option(
    "--population",
    type=click.IntRange(2, 64),
    default=8,
    show_default=True,
    metavar="N",
    help="Versions kept, and new versions in each generation.",
)
@click.option(
    "--generations",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    metavar="N",
    help="Maximum number of generations.",
)
@click.option("--target", type=ScoreType(), metavar="POINTS", help="Training score to stop at.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, metavar="N", help="Random seed of the search."
)
@click.option(
    "--force", is_flag=True, help="Propose the winner even without evidence that it helps."
)
@cost_options
@click.pass_obj
@takes(OptimizeRequest)
def optimize(state: CliState, request: OptimizeRequest) -> None:
    """Search for a better prompt over several generations.

    Each generation creates new versions of the prompt: small diffs by a model that gets failed
    training cases, and versions that combine the changes of two others. A version is tested on a
    few training cases first, and on all of them if it does no worse than its parent. Versions that
    are best on some cases are kept. In the end the winner is compared with the current prompt on
    the held-out cases, which were not used before, and stored as a suggestion. It is proposed if
    they show a gain. No file changes.

    Stop it with Ctrl-C; the same command continues, and no answer is paid for twice. --budget
    applies to the whole search, including what it spent before. EXPERIMENT may be left out if there
    is one.

    Examples:
      edison optimize --budget 5
      edison optimize support-reply --population 4 --generations 5 --target 85
      edison optimize support-reply --seed 1 --json
    """
    terminal = Terminal(state)
    project = lookup.open_project(state, request.experiment)
    name = lookup.find_experiment(project, request.experiment).id
    permitted = library.refine_request(project, "optimize", name, request.prompt)
    limits = refine_search.SearchLimits(
        request.population, request.generations, request.target, request.seed
    )
    options = refine_optimize.OptimizeOptions(
        limits,
        budget_microusd=microusd(request.budget),
        force=request.force,
        allow_code=request.allow_code,
        on_step=lambda line: terminal.note(f"  {line}"),
        on_generation=lambda generation: terminal.note(*_progress(generation, limits)),
        audit=permitted.audit_entry,
        on_stored=permitted.tell,
    )
    confirmation = PlanConfirmation(terminal, yes=request.yes)
    _announce_search(confirmation, permitted.target, options)
    factory = refining_factory(state, confirmation, brief=True)
    open_context = partial(factory.context, permitted.project)
    result = refine_optimize.optimize(permitted.target, permitted.refiner, open_context, options)
    if terminal.json:
        terminal.document(_search_document(permitted.target, result))
    else:
        _show_search(terminal, result)
    feature.call("command_ended", terminal, permitted.site)


def _announce_search(
    confirmation: PlanConfirmation, target: RefineTarget, options: refine_optimize.OptimizeOptions
) -> None:
    """Refuse a plan that cannot complete, print its cost, and ask for confirmation."""
    project, experiment, limits = target.project, target.experiment, options.limits
    training, held = refine_optimize.require_enough_cases(target)
    loop = planning.bare_plan(project, experiment, of="loop")
    confirmation.refuse(loop)
    plan = planning.bare_plan(project, experiment, of="head")
    asks = [load for load in loop.loads if load.phase == "refine"]
    loads = [
        *_answer_loads(plan.loads, target, limits, plan.cases),
        *_refiner_loads(asks, target, limits),
    ]
    cost = estimate.total_cost(loads)
    if cost is not None and options.budget_microusd is not None:
        cost = cost.at_most(options.budget_microusd)
    more = f", {counted(limits.generations, 'generation')} of {limits.population}"
    announce(confirmation, target, RefineForecast(training, held, cost, loop.simulated, more))


def _answer_loads(
    loads: list[Load], target: RefineTarget, limits: refine_search.SearchLimits, cases: int
) -> Iterator[Load]:
    """Yield the loads of answering: low if every version fails the screening, high if none does."""
    training, _ = refine_optimize.require_enough_cases(target)
    least = min(limits.generations, target.experiment.file.stop.window) * limits.population
    low = training + least * min(refine_search.SCREEN_CASES, training)
    high = training * (1 + limits.generations * limits.population)
    last = max(refine_trials.final_check_sizes(target, cases).values())
    for load in loads:
        span = estimate.CostRange(low / cases + last, high / cases + last)
        yield dataclasses.replace(
            load, iterations=estimate.CostRange(1, 1) if load.phase == "pairwise" else span
        )


def _refiner_loads(
    loads: list[Load], target: RefineTarget, limits: refine_search.SearchLimits
) -> Iterator[Load]:
    least = min(limits.generations, target.experiment.file.stop.window) * limits.population
    most = limits.generations * limits.population * (1 + refiner.RE_ASKS)
    for load in loads:
        share = estimate.CostRange(least, most).times(1 / target.limits.candidates)
        yield dataclasses.replace(load, iterations=share)


def _progress(
    generation: Generation, limits: refine_search.SearchLimits
) -> tuple[str | StyledText, ...]:
    refused = f", {generation.refused} refused" if generation.refused else ""
    return (
        StyledText(f"generation {generation.number} of {limits.generations}", bold=True),
        f": best {sentences.points(generation.best)}, front {generation.front}, "
        f"{generation.tried} tried ({generation.crossed} crossed{refused}), "
        f"{generation.measured} measured, spent {dollars(generation.spent_microusd)}",
    )


def _show_search(terminal: Terminal, result: OptimizeResult) -> None:
    search = result.search
    for failure in dict.fromkeys(search.failures):
        terminal.note(StyledText("the refiner failed: ", ODD), failure)
    if search.stopped_by == "flawless":
        terminal.result("nothing to optimize: no criterion, check or grader finds a fault")
        return
    refused = SuggestionStatus.REFUSED
    winner = next((made for made in result.suggestions if made.status is not refused), None)
    if winner is not None:
        terminal.result("")
        suggestion.show_suggestion(terminal, winner)
    terminal.result("")
    _show_totals(terminal, result)
    if winner is None:
        terminal.result("no version gained more than chance on the training cases")
        terminal.note("try another --seed, more --generations or a stronger refiner")
    elif winner.status is SuggestionStatus.TRIED:
        terminal.note("it is not proposed; try another --seed, or propose it anyway with --force")
    elif winner.status is SuggestionStatus.PROPOSED:
        terminal.note(f"push it to a branch with: edison propose {winner.id}")


def _show_totals(terminal: Terminal, result: OptimizeResult) -> None:
    search = result.search
    done, refused = search.generations, len(search.refused)
    gain = search.best.mean - search.base.mean
    terminal.result(
        f"{counted(len(done), 'generation')}: {_STOPPED[search.stopped_by]}; "
        f"{sum(generation.tried for generation in done)} versions tried, "
        f"{len(search.measured) - 1} measured, "
        f"{refused} refused; training score {sentences.points(search.base.mean)} to ",
        StyledText(sentences.points(search.best.mean), GOOD if gain > 0 else ODD),
        f" ({sentences.signed(gain)}, the best of many)",
        *simulated_label(result.simulation),
    )
    terminal.result(f"the search cost {dollars(result.cost_microusd)}")


def _search_document(target: RefineTarget, result: OptimizeResult) -> dict[str, Any]:
    search = result.search
    return {
        "experiment": target.experiment.id,
        "prompt": target.prompt.id,
        "simulated": bool(result.simulation),
        "search": result.id,
        "run_id": search.base.run_id,
        "stopped_by": search.stopped_by,
        "generations": [generation._asdict() for generation in search.generations],
        "population": [
            {
                **record_json.fields_of(
                    member, "version", "how", "parents", generation="born", score="mean"
                ),
                "best": member.version == search.best.version,
            }
            for member in search.members
        ],
        "targets": _targets_json(result.weakness),
        "failures": [*dict.fromkeys(search.failures)],
        **record_json.fields_of(result, "cost_microusd", "suggestions"),
    }
