"""edison optimize: a wider search for a better prompt, with proof that it did not choose itself."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.asking import Asking
from edison_ci.cli.errands import Outlook, announce, simulated, which_prompt
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.progress import dollars
from edison_ci.cli.reading import project_at
from edison_ci.cli.recommend import Score
from edison_ci.cli.sessions import refining_factory
from edison_ci.cli.spending import microusd, spending
from edison_ci.cli.suggested import show_suggestion
from edison_ci.cli.terminal import GOOD, ODD, Ink, Terminal, counted
from edison_ci.plan.estimate import Span, total_cost
from edison_ci.plan.plan import bare_plan
from edison_ci.refine.asking import RE_ASKS, refiner_of
from edison_ci.refine.optimizing import Orders, refuse_too_few
from edison_ci.refine.optimizing import optimize as search_for
from edison_ci.refine.requests import refine_request
from edison_ci.refine.search_budget import last_looks
from edison_ci.refine.searching import SIEVE, Reach
from edison_ci.stats.sentences import points, signed
from edison_ci.store.suggestions import Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.plan.estimate import Load
    from edison_ci.refine.candidate import Subject
    from edison_ci.refine.optimizing import Optimized
    from edison_ci.refine.searching import Generation

_STOPPED = {
    "target": "the target is reached",
    "converged": "the last generations gained too little",
    "generations": "that is as many generations as were asked for",
    "budget": "the budget has no room for another one",
    "flawless": "no criterion, check or grader finds a fault",
}


@click.command(cls=EdisonCommand)
@click.argument("experiment")
@which_prompt
@click.option(
    "--population",
    type=click.IntRange(2, 64),
    default=8,
    show_default=True,
    metavar="N",
    help="Versions that live on, and children of each generation.",
)
@click.option(
    "--generations",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    metavar="N",
    help="Most generations.",
)
@click.option("--target", type=Score(), metavar="POINTS", help="Training score to stop at.")
@click.option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Another search.")
@click.option("--force", is_flag=True, help="Propose the winner although nothing shows it helps.")
@spending
@click.pass_obj
def optimize(state: State, /, experiment: str, **given: Any) -> None:
    """Search for a better prompt over generations.

    Each generation makes new versions of the prompt: small diffs by a model that is shown training
    cases that failed, and versions that join the changes of two. A version is tried on a few
    training cases, and measured on all of them if it does no worse than its parent. Versions that
    are best on some cases live on. In the end the winner meets the prompt as it is on the cases
    that were held out, which nothing looked at before, and is stored as a suggestion. It is
    proposed if they show a gain. No file changes.

    Stop it with Ctrl-C: the same command goes on, and what was paid for is not asked again.
    --budget is for the whole search, what it spent before included.

    Examples:
      edison optimize support-reply --budget 5
      edison optimize support-reply --population 4 --generations 5 --target 85
      edison optimize support-reply --seed 1 --json
    """
    terminal = Terminal(state)
    request = refine_request(project_at(state), "optimize", experiment, given["prompt"])
    subject = request.subject
    reach = Reach(given["population"], given["generations"], given["target"], given["seed"])
    orders = Orders(
        reach,
        budget_microusd=microusd(given["budget"]),
        force=given["force"],
        allow_code=given["allow_code"],
        on_step=lambda line: terminal.note(f"  {line}"),
        on_generation=lambda one: terminal.note(*_progress(one, reach)),
        audit=request.audited,
    )
    asking = Asking(terminal, yes=given["yes"])
    _announce(asking, subject, orders)
    factory = refining_factory(state, asking, brief=True)
    opened = partial(factory.tools, request.project)
    found = search_for(subject, refiner_of(request.model), opened, orders)
    if terminal.json:
        terminal.document(_document(subject, found))
    else:
        _tell(terminal, found)


# --- before the first call ------------------------------------------------------------------------


def _announce(asking: Asking, subject: Subject, orders: Orders) -> None:
    """Refuse what would stumble, say what it may cost, and ask where that is much."""
    project, experiment, reach = subject.project, subject.experiment, orders.reach
    training, held = refuse_too_few(subject)
    loop = bare_plan(project, experiment, of="loop")
    asking.refuse(loop)
    plan = bare_plan(project, experiment, of="head")
    asks = [load for load in loop.loads if load.phase == "refine"]
    loads = [*_measuring(plan.loads, subject, reach, plan.cases), *_asking(asks, subject, reach)]
    cost = total_cost(loads)
    if cost is not None and orders.budget_microusd is not None:
        cost = cost.at_most(orders.budget_microusd)
    more = f", {counted(reach.generations, 'generation')} of {reach.population}"
    announce(asking, subject, Outlook(training, held, cost, loop.simulated, more))


def _measuring(loads: list[Load], subject: Subject, reach: Reach, cases: int) -> Iterator[Load]:
    """Yield what answering costs, if no child passes the first cases, or if all do."""
    training, _ = refuse_too_few(subject)
    least = min(reach.generations, subject.experiment.file.stop.window) * reach.population
    low = training + least * min(SIEVE, training)
    high = training * (1 + reach.generations * reach.population)
    last = max(last_looks(subject, cases).values())
    for load in loads:
        span = Span(low / cases + last, high / cases + last)
        yield dataclasses.replace(load, iterations=Span(1, 1) if load.phase == "pairwise" else span)


def _asking(loads: list[Load], subject: Subject, reach: Reach) -> Iterator[Load]:
    least = min(reach.generations, subject.experiment.file.stop.window) * reach.population
    most = reach.generations * reach.population * (1 + RE_ASKS)
    for load in loads:
        share = Span(least, most).times(1 / subject.limits.candidates)
        yield dataclasses.replace(load, iterations=share)


# --- while it goes on, and what came of it --------------------------------------------------------


def _progress(one: Generation, reach: Reach) -> tuple[str | Ink, ...]:
    refused = f", {one.refused} refused" if one.refused else ""
    return (
        Ink(f"generation {one.number} of {reach.generations}", bold=True),
        f": best {points(one.best)}, front {one.front}, {one.tried} tried "
        f"({one.crossed} crossed{refused}), {one.measured} measured, "
        f"spent {dollars(one.spent_microusd)}",
    )


def _tell(terminal: Terminal, found: Optimized) -> None:
    course = found.course
    for failure in dict.fromkeys(course.failures):
        terminal.note(Ink("the refiner failed: ", ODD), failure)
    if course.stopped_by == "flawless":
        terminal.result("nothing to optimize: no criterion, check or grader finds a fault")
        return
    winner = next((one for one in found.suggestions if one.status is not Status.REFUSED), None)
    if winner is not None:
        terminal.result("")
        show_suggestion(terminal, winner)
    terminal.result("")
    _tell_course(terminal, found)
    if winner is None:
        terminal.result("no version gained more than luck on the training cases")
        terminal.note("try another search: --seed, more --generations, or a stronger refiner")
    elif winner.status is Status.TRIED:
        terminal.note("it is not proposed; search again with another --seed, or insist: --force")
    elif winner.status is Status.PROPOSED:
        terminal.note(f"put it on a branch with: edison propose {winner.id}")


def _tell_course(terminal: Terminal, found: Optimized) -> None:
    course = found.course
    done, refused = course.generations, len(course.refused)
    gain = course.best.mean - course.base.mean
    terminal.result(
        f"{counted(len(done), 'generation')}: {_STOPPED[course.stopped_by]}; "
        f"{sum(one.tried for one in done)} versions tried, {len(course.measured) - 1} measured, "
        f"{refused} refused; training score {points(course.base.mean)} to ",
        Ink(points(course.best.mean), GOOD if gain > 0 else ODD),
        f" ({signed(gain)}, the best of many)",
        *simulated(found.simulated),
    )
    terminal.result(f"the search cost {dollars(found.cost_microusd)}")


def _document(subject: Subject, found: Optimized) -> dict[str, Any]:
    course = found.course
    return {
        "experiment": subject.experiment.id,
        "prompt": subject.prompt.id,
        "simulated": found.simulated,
        "search": found.id,
        "run_id": course.base.run_id,
        "stopped_by": course.stopped_by,
        "generations": [one.as_json() for one in course.generations],
        "population": [
            {
                "version": one.version,
                "how": one.how,
                "generation": one.born,
                "parents": [*one.parents],
                "score": one.mean,
                "best": one.version == course.best.version,
            }
            for one in course.members
        ],
        "targets": [
            {"name": target.name, "kind": target.kind, "score": target.score}
            for target in found.weakness.targets
        ],
        "cost_microusd": found.cost_microusd,
        "failures": [*dict.fromkeys(course.failures)],
        "suggestions": [one.as_json() for one in found.suggestions],
    }
