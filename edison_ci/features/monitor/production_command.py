"""edison import production: a sample of the answers of production, graded beside the dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edison_ci._dataclass import dataclass
from edison_ci.api import evaluation
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup, run, sessions
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import Terminal
from edison_ci.errors import UsageError
from edison_ci.features.monitor import production_runs

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project


@dataclass(frozen=True, slots=True)
class ProductionCommand:
    """What `edison import production` was asked for."""

    experiment: str | None
    budget: float | None
    allow_code: bool
    yes: bool
    wait: bool


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@sessions.cost_options
@click.option("--wait", is_flag=True, help="Wait until another run of the experiment has ended.")
@click.pass_obj
@takes(ProductionCommand)
def production(state: CliState, request: ProductionCommand) -> None:
    """Grade a sample of what production answered.

    Reads the files that `production` in the experiment names: traces, or rows with input and text.
    Of the answers since the last sample some are chosen at random, and graded by the checks and
    judges of the experiment; personal data is redacted before. No model is asked for an answer, no
    gate decides, and the samples are a separate series in `edison trends`.

    Examples:
      edison import production
      edison import production support-reply --budget 1 --yes
    """
    terminal = Terminal(state)
    project = lookup.open_project(state, request.experiment)
    run_sessions.require_editor(project, "import production")
    chosen = _experiment(project, request.experiment)
    grading = evaluation.GradingRequest(
        sessions.microusd(request.budget), request.allow_code, request.wait
    )
    factory = sessions.session_factory(state, sessions.PlanConfirmation(terminal, yes=request.yes))
    ended = production_runs.grade_new_sample(terminal, project, chosen, grading, factory)
    if ended is None:
        if terminal.json:
            terminal.document({"runs": []})
        return
    run.finish(terminal, project, [ended])


def _experiment(project: Project, name: str | None) -> Experiment:
    graded = [
        experiment
        for experiment in evaluation.select_experiments(project, [name] if name else [])
        if experiment.file.production is not None
    ]
    if len(graded) == 1:
        return graded[0]
    if not graded:
        raise UsageError(
            f"{name or 'no experiment'} has no `production`",
            hint='add production: {files: "logs/*.jsonl"} to the experiment',
        )
    names = ", ".join(experiment.id for experiment in graded)
    raise UsageError("which experiment grades the answers?", hint=f"name one of: {names}")
