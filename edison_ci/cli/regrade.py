"""edison regrade: what the answers of a run are worth by the checks and judges of today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci.api.evaluation import grade_again
from edison_ci.cli import spending
from edison_ci.cli.asking import Asking
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.reading import results_of
from edison_ci.cli.sessions import session_factory
from edison_ci.cli.summary import document, show_run
from edison_ci.cli.terminal import ODD, Ink, Terminal, counted
from edison_ci.config.load import Project, find_root, load_project
from edison_ci.execute.run_options import RunOptions
from edison_ci.results.run_result import RunResult
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from edison_ci.execute.regrade import KeptAnswers
    from edison_ci.execute.run_options import Ended


@click.command(cls=EdisonCommand)
@click.argument("wanted", metavar="RUN")
@spending.budget
@spending.yes
@spending.allow_code
@click.option("--wait", is_flag=True, help="Wait while the experiment is being run already.")
@click.pass_obj
def regrade(state: State, /, wanted: str, **given: Any) -> None:
    """Grade the answers of a run anew.

    By the checks, rubric, judges and gates of today, and without asking any model for an answer:
    only judges whose question changed are asked. RUN is an id, `latest` or the name of an
    experiment. It makes a new run, so that what was decided stays as it was. Cells whose prompt,
    model or input changed since are left out.

    Examples:
      edison regrade latest
      edison regrade support-reply --budget 1 --json
    """
    terminal = Terminal(state)
    project = load_project(state.entered(find_root(state.folder)))
    options = RunOptions(
        budget_microusd=spending.microusd(given["budget"]),
        allow_code=given["allow_code"],
        wait=given["wait"],
    )
    factory = session_factory(state, Asking(terminal, yes=given["yes"]))
    ended = grade_again(project, wanted, options, factory)
    _finish(terminal, project, ended)


def _finish(terminal: Terminal, project: Project, ended: Ended) -> None:
    kept = ended.kept
    assert kept is not None  # it was asked for
    code = int(ended.exit_code)
    _left_out(terminal, kept)
    with results_of(project) as reader:
        result = RunResult(reader, find_run(reader, ended.run_id))
        if terminal.json:
            about = {"run_id": kept.run.id, "left_out": kept.found.as_json()}
            terminal.document({**document([result], code, [ended.progress]), "regraded": about})
        else:
            show_run(terminal, result, ended.progress)
    if code:
        raise click.exceptions.Exit(code)


def _left_out(terminal: Terminal, kept: KeptAnswers) -> None:
    """Say which cells are not graded again, and why."""
    found = kept.found
    if found.changed:
        more = ", ..." if found.changed > len(found.named) else ""
        said = "prompt, model or input changed since: "
        terminal.note(
            Ink(f"{counted(found.changed, 'cell')} left out", ODD),
            f", {said}{', '.join(found.named)}{more}",
        )
    if found.gone:
        said = ", their prompt, model or case is no longer there"
        terminal.note(Ink(f"{counted(found.gone, 'cell')} left out", ODD), said)
    if found.missing:
        terminal.note(f"{counted(found.missing, 'cell')} of the files are not in {kept.run.id}")
