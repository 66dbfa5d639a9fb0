"""edison refine: a small change to a prompt, tried before it is shown."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.asking import Asking
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.progress import dollars
from edison_ci.cli.sessions import Seats
from edison_ci.cli.suggested import show_suggestion
from edison_ci.cli.terminal import ODD, Ink, Terminal, counted
from edison_ci.cli.trusting import on_terms_of_base
from edison_ci.config.load import find_root, load_project
from edison_ci.errors import UsageError
from edison_ci.names import did_you_mean
from edison_ci.operate.actors import Role
from edison_ci.operate.site import Site
from edison_ci.plan.estimate import Span, total_cost
from edison_ci.plan.plan import bare_plan
from edison_ci.refine.asking import RE_ASKS, refiner_of
from edison_ci.refine.candidate import subject_of
from edison_ci.refine.refining import Orders
from edison_ci.refine.refining import refine as refine_prompt
from edison_ci.refine.trying import Bench, Wallet
from edison_ci.store.suggestions import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.operate.actors import Actor
    from edison_ci.plan.estimate import Load
    from edison_ci.refine.candidate import Subject
    from edison_ci.refine.refining import Refined
    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.suggestions import Suggestion


@click.command(cls=EdisonCommand)
@click.argument("experiment")
@click.option("--prompt", metavar="PROMPT", help="Which prompt, where there are several.")
@click.option("--candidates", type=click.IntRange(1, 5), metavar="N", help="Diffs to ask for, 1-5.")
@click.option("--force", is_flag=True, help="Propose the best one although nothing shows it helps.")
@click.option("--budget", type=click.FloatRange(min=0), metavar="USD", help="Most to spend.")
@click.option("--allow-code", is_flag=True, help="Let checks run code of the repository.")
@click.option("--yes", is_flag=True, help="Do not ask, whatever it costs.")
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
    project = on_terms_of_base(load_project(state.entered(find_root(state.folder))))
    chosen = experiment_with_data(project, experiment)
    subject = subject_of(project, chosen, given["prompt"])
    model = refining_model(project, chosen)
    site = Site(project.root, project.file)
    actor = site.require(Role.EDITOR, "refine", subject.experiment.id)
    candidates = given["candidates"] or subject.limits.candidates
    asking = Asking(terminal, yes=given["yes"])
    _announce(asking, subject, candidates)
    seats = Seats(state, asking, project)
    budget = given["budget"]
    wallet = Wallet.of(subject, None if budget is None else round(budget * 1_000_000))
    bench = Bench(subject, seats.opened, wallet, allow_code=given["allow_code"])
    orders = Orders(
        candidates,
        force=given["force"],
        on_step=lambda line: terminal.note(f"  {line}"),
        audit=lambda made: audited(site, actor, subject, made),
    )
    _tell(terminal, subject, refine_prompt(bench, refiner_of(model), orders))


def experiment_with_data(project: Project, name: str) -> Experiment:
    """Return an experiment that has cases to learn from."""
    found = project.experiment(name)
    if not found.file.data:
        hint = "add a dataset: what is held out of it proves that a change helps"
        raise UsageError(f"{name} has no dataset, so there is nothing to learn from", hint=hint)
    return found


def refining_model(project: Project, experiment: Experiment) -> Model:
    """Return the model that refines the prompts of an experiment."""
    name = experiment.file.refine.by or project.file.defaults.refiner
    if name is None:
        raise UsageError(
            f"no model refines {experiment.id}",
            hint="add refine: {by: NAME} to it, or defaults: {refiner: NAME} to edison.yaml",
        )
    if name not in project.models:
        hint = did_you_mean(name, project.models, label="models")
        raise UsageError(f"there is no model {name!r}", hint=hint)
    return project.models[name]


def audited(
    site: Site,
    actor: Actor,
    subject: Subject,
    made: Sequence[Suggestion],
    action: str = "refine",
) -> AuditEntry:
    """Return the row of the audit that says who wanted suggestions."""
    after = [{"suggestion": one.id, "status": str(one.status)} for one in made]
    return site.entry(actor, action, f"{subject.experiment.id}/{subject.prompt.id}", after=after)


# --- before the first call ------------------------------------------------------------------------


def _announce(asking: Asking, subject: Subject, candidates: int) -> None:
    """Refuse what would stumble, say what it may cost, and ask where that is much."""
    project, experiment = subject.project, subject.experiment
    loop = bare_plan(project, experiment, of="loop")
    asking.refuse(loop)
    training = loop.cases - loop.holdout
    if not training:
        raise UsageError("every case is held out", hint="lower split.holdout of the experiment")
    head = bare_plan(project, experiment, of="head").loads
    loads = [
        *(load for load in head if load.phase != "pairwise"),  # the prompt as it is
        *_times(head, Span(candidates, candidates)),
        *_times(
            [load for load in loop.loads if load.phase == "refine"],
            Span(candidates, candidates * (1 + RE_ASKS)).times(1 / subject.limits.candidates),
        ),
    ]
    cost = total_cost(loads)
    mark = (Ink("  simulated", ODD),) if loop.simulated else ()
    most = "" if cost is None or not cost.high else f", at most about {dollars(cost.high)}"
    asking.terminal.note(
        Ink(experiment.id, bold=True),
        f": {subject.prompt.path}, {counted(training, 'training case')} and "
        f"{loop.holdout:,} held out, {counted(candidates, 'candidate')}{most}",
        *mark,
    )
    asking.confirm(cost)


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
