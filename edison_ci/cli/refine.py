"""edison refine: a small change to a prompt, tried before it is shown."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.asking import Asking
from edison_ci.cli.errands import Outlook, announce, which_prompt
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.progress import dollars
from edison_ci.cli.reading import project_at
from edison_ci.cli.sessions import refining_factory
from edison_ci.cli.spending import microusd, spending
from edison_ci.cli.suggested import show_suggestion
from edison_ci.cli.terminal import ODD, Ink, Terminal, counted
from edison_ci.plan.estimate import Span, total_cost
from edison_ci.plan.plan import bare_plan
from edison_ci.refine.asking import RE_ASKS, refiner_of
from edison_ci.refine.refining import Orders
from edison_ci.refine.refining import refine as refine_prompt
from edison_ci.refine.requests import refine_request
from edison_ci.refine.trying import Bench, Wallet
from edison_ci.store.suggestions import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.plan.estimate import Load
    from edison_ci.refine.candidate import Subject
    from edison_ci.refine.refining import Refined


@click.command(cls=EdisonCommand)
@click.argument("experiment")
@which_prompt
@click.option("--candidates", type=click.IntRange(1, 5), metavar="N", help="Diffs to ask for, 1-5.")
@click.option("--force", is_flag=True, help="Propose the best one although nothing shows it helps.")
@spending
@click.pass_obj
def refine(state: State, /, experiment: str, **given: Any) -> None:
    """Suggest a small change to a prompt, with proof.

    A model is shown what the prompt is weakest in and training cases that failed, and writes a
    diff. A diff that keeps every guardrail is tried on all cases, the ones the model never saw
    included, and stored with what that showed. No file changes. Stop it with Ctrl-C: the same
    command goes on, and what was paid for is not asked again.

    Examples:
      edison refine support-reply
      edison refine support-reply --candidates 3 --budget 2
      edison refine support-reply --prompt support-reply --json
    """
    terminal = Terminal(state)
    request = refine_request(project_at(state), "refine", experiment, given["prompt"])
    subject = request.subject
    candidates = given["candidates"] or subject.limits.candidates
    asking = Asking(terminal, yes=given["yes"])
    _announce(asking, subject, candidates)
    factory = refining_factory(state, asking)
    wallet = Wallet.of(subject, microusd(given["budget"]))
    bench = Bench(
        subject, lambda: factory.tools(request.project), wallet, allow_code=given["allow_code"]
    )
    orders = Orders(
        candidates,
        force=given["force"],
        on_step=lambda line: terminal.note(f"  {line}"),
        audit=request.audited,
    )
    _tell(terminal, subject, refine_prompt(bench, refiner_of(request.model), orders))


# --- before the first call ------------------------------------------------------------------------


def _announce(asking: Asking, subject: Subject, candidates: int) -> None:
    """Refuse what would stumble, say what it may cost, and ask where that is much."""
    project, experiment = subject.project, subject.experiment
    loop = bare_plan(project, experiment, of="loop")
    asking.refuse(loop)
    head = bare_plan(project, experiment, of="head").loads
    loads = [
        *(load for load in head if load.phase != "pairwise"),  # the prompt as it is
        *_times(head, Span(candidates, candidates)),
        *_times(
            [load for load in loop.loads if load.phase == "refine"],
            Span(candidates, candidates * (1 + RE_ASKS)).times(1 / subject.limits.candidates),
        ),
    ]
    outlook = Outlook(
        loop.cases - loop.holdout,
        loop.holdout,
        total_cost(loads),
        loop.simulated,
        more=f", {counted(candidates, 'candidate')}",
    )
    announce(asking, subject, outlook)


def _times(loads: Sequence[Load], iterations: Span) -> list[Load]:
    return [dataclasses.replace(load, iterations=iterations) for load in loads]


# --- what came of it ------------------------------------------------------------------------------


def _tell(terminal: Terminal, subject: Subject, found: Refined) -> None:
    for failure in found.failures:
        terminal.note(Ink("the refiner failed: ", ODD), failure)
    if terminal.json:
        terminal.document(_document(subject, found))
        return
    if not found.weakness.targets:
        terminal.result("nothing to refine: no criterion, check or grader finds a fault")
    for one in found.suggestions:
        terminal.result("")
        show_suggestion(terminal, one)
    statuses = [one.status for one in found.suggestions]
    told = ", ".join(
        f"{statuses.count(status)} {status}" for status in Status if status in statuses
    )
    terminal.result("")
    terminal.result(f"{told or 'no suggestion'}; it cost {dollars(found.cost_microusd)}")
    if Status.PROPOSED in statuses:
        best = found.suggestions[statuses.index(Status.PROPOSED)]
        terminal.note(f"put it on a branch with: edison propose {best.id}")
    elif Status.TRIED in statuses:
        terminal.note("ask for another one with the same command, or insist with --force")


def _document(subject: Subject, found: Refined) -> dict[str, Any]:
    return {
        "experiment": subject.experiment.id,
        "prompt": subject.prompt.id,
        "simulated": found.simulated,
        "run_id": found.run_id,
        "targets": [
            {"name": target.name, "kind": target.kind, "score": target.score}
            for target in found.weakness.targets
        ],
        "cost_microusd": found.cost_microusd,
        "failures": [*found.failures],
        "suggestions": [one.as_json() for one in found.suggestions],
    }
