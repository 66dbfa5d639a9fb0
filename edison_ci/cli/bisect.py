"""edison bisect: the commit that broke a case."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from edison_ci.api import causes
from edison_ci.api.causes import BisectRequest
from edison_ci.cli import lookup, sessions
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.documents import secrets
from edison_ci.errors import ExitCode
from edison_ci.numeric import counted

if TYPE_CHECKING:
    from edison_ci.execute.bisect import BisectResult, CommitResult

_COLORS = {"good": GOOD, "bad": BAD, "skip": ODD}


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--case", "case_id", required=True, metavar="ID", help="Id of the broken case.")
@click.option("--good", metavar="REF", help="Commit at which it passed; default: searched for.")
@click.option(
    "--bad", metavar="REF", default="HEAD", help="Commit at which it fails; default HEAD."
)
@click.option(
    "--model", "models", multiple=True, metavar="NAME", help="Test only this model; repeatable."
)
@sessions.budget
@click.pass_obj
@takes(BisectRequest)
def bisect(state: CliState, request: BisectRequest) -> None:
    """Find the commit that broke a case.

    Prompts and models come from each tested commit; cases, checks and judges from the current
    files. It is a binary search over the first-parent history, so a thousand commits need about ten
    tests, and stored answers are reused. With several repeats a case passes if most of them pass.
    EXPERIMENT may be left out if there is one.

    Examples:
      edison bisect --case return-how
      edison bisect support-reply --case return-how --good v1.2 --budget 0.50
    """
    terminal = Terminal(state)
    project = lookup.refuse_texts_in_log(lookup.open_project(state))
    bisected = causes.bisect(
        project,
        lookup.find_experiment(project, request.experiment),
        request,
        offline=state.offline,
        on_step=partial(_show_step, terminal),
    )
    if bisected.exhausted:
        terminal.note(
            f"{bisected.exhausted} has no room for the next call; stored answers are kept"
        )
    if terminal.json:
        terminal.document(bisected.as_json())
    elif bisected.result is not None:
        _show(terminal, bisected, bisected.result)
    if bisected.exhausted:
        raise click.exceptions.Exit(int(ExitCode.BUDGET))


def _show_step(terminal: Terminal, tested: CommitResult) -> None:
    commit = tested.commit
    terminal.note(
        f"{commit.id[:8]} {commit.date[:10]}  ",
        StyledText(f"{tested.outcome:4}", _COLORS[tested.outcome]),
        f"  {commit.subject}"
        + ("" if tested.outcome == "good" else f" ({secrets.redacted(tested.why)})"),
    )


def _show(terminal: Terminal, bisected: causes.Bisected, result: BisectResult) -> None:
    mark = simulated_label(bisected.simulated)
    terminal.result(_sentence(bisected.case, result), *mark)
    for commit in result.commits if result.kind in ("found", "between") else ():
        about = f"{commit.date}  {commit.author}  {commit.subject}"
        terminal.result(StyledText(commit.id, bold=True), f"  {about}")
    for diff in bisected.diffs.values():
        for line in diff.split("\n"):
            color = {"+": GOOD, "-": BAD}.get(line[:1])
            terminal.result(StyledText(line, color))
    if result.kind == "found" and not bisected.diffs:
        terminal.result("It changed no failing prompt; check its models and schemas.")


def _sentence(case: str, result: BisectResult) -> str:
    newest = result.commits[0].id[:8]
    steps = counted(len(result.results), "commit")
    return {
        "found": f"{case} broke with one commit ({steps} tested):",
        "passes": f"{case} passes at {newest}: nothing is broken.",
        "always": f"{case} fails at every tested commit, up to {newest} ({steps} tested).",
        "between": f"{case} broke with one of these commits; older ones cannot be tested:",
    }[result.kind]
