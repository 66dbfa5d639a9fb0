"""edison bisect: the commit that broke a case."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING, Any

import click

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup, sessions
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.config import cases, requirements
from edison_ci.documents import secrets
from edison_ci.errors import ExitCode, UsageError
from edison_ci.execute import bisect as execute_bisect
from edison_ci.git import repository as git
from edison_ci.numeric import counted
from edison_ci.plan import plan as planning
from edison_ci.plan import selection as plan_selection
from edison_ci.providers import budget as provider_budget

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.execute.bisect import BisectResult, Commit, CommitResult

_COLORS = {"good": GOOD, "bad": BAD, "skip": ODD}


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """The case to look for, and the commits to look at."""

    experiment: str | None
    case_id: str
    good: str | None
    bad: str
    models: tuple[str, ...]
    budget: float | None


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
    chosen = lookup.find_experiment(project, request.experiment)
    case_id = request.case_id
    case = cases.STATIC
    if chosen.file.data or case_id != cases.STATIC.id:
        case = plan_selection.find_case(project, chosen, case_id)
    repository = git.Repository.find(project.root)
    if repository is None:
        hint = "run git init, then commit"
        raise UsageError("this project is not in a Git repository", hint=hint)
    run_sessions.require_editor(project, "bisect")
    only = plan_selection.Selection(request.models, (case.id,))
    requirements.refuse(requirements.missing(project, only.narrow(chosen), calls=requirements.RUN))
    simulated = planning.bare_plan(project, chosen, selection=only).simulated
    search = execute_bisect.Bisection(
        project,
        chosen,
        case,
        run_sessions.run_context(project, offline=state.offline),
        repository,
        request.models,
        lambda tried: _step(terminal, tried),
    )
    reuse = dt.timedelta(days=project.file.settings.reuse_days)
    looking = search.run(
        request.good,
        request.bad,
        newer_than=utc.timestamp(utc.now() - reuse),
        budget_microusd=sessions.microusd(request.budget),
    )
    try:
        found = asyncio.run(looking)
    except provider_budget.BudgetExhausted as exhausted:
        name = exhausted.refused.cap.name
        terminal.note(f"{name} has no room for the next call; stored answers are kept")
        if terminal.json:
            tried = _tested_json(search.results.values())
            terminal.document({"verdict": "unfinished", "simulated": simulated, "tried": tried})
        raise click.exceptions.Exit(int(ExitCode.BUDGET)) from None
    _show(terminal, project, repository, (case.id, simulated, found))


def _step(terminal: Terminal, tried: CommitResult) -> None:
    commit = tried.commit
    terminal.note(
        f"{commit.id[:8]} {commit.date[:10]}  ",
        StyledText(f"{tried.outcome:4}", _COLORS[tried.outcome]),
        f"  {commit.subject}"
        + ("" if tried.outcome == "good" else f" ({secrets.redacted(tried.why)})"),
    )


def _show(
    terminal: Terminal,
    project: Project,
    repository: git.Repository,
    what: tuple[str, bool, BisectResult],
) -> None:
    case, simulated, found = what
    failing = {cell.prompt for cell in found.failing}
    diffs = {}
    if found.kind == "found":
        known = {p.path: p.id for p in project.prompts.values()}
        told = {
            path: execute_bisect.prompt_diff(project, repository, found.commits[0].id, path)
            for path, name in known.items()
            if name in failing
        }
        diffs = {path: secrets.redacted(diff) for path, diff in told.items() if diff}
    if terminal.json:
        terminal.document(
            {
                "verdict": found.kind,
                "simulated": simulated,
                "case": case,
                "commits": [_commit(commit) for commit in found.commits],
                "failing": [{"prompt": c.prompt, "model": c.model} for c in sorted(found.failing)],
                "diffs": diffs,
                "tried": _tested_json(found.results),
            }
        )
        return
    mark = simulated_label(simulated)
    terminal.result(_sentence(case, found), *mark)
    for commit in found.commits if found.kind in ("found", "between") else ():
        about = f"{commit.date}  {commit.author}  {commit.subject}"
        terminal.result(StyledText(commit.id, bold=True), f"  {about}")
    for diff in diffs.values():
        for line in diff.split("\n"):
            color = {"+": GOOD, "-": BAD}.get(line[:1])
            terminal.result(StyledText(line, color))
    if found.kind == "found" and not diffs:
        terminal.result("It changed no failing prompt; check its models and schemas.")


def _sentence(case: str, found: BisectResult) -> str:
    newest = found.commits[0].id[:8]
    steps = counted(len(found.results), "commit")
    return {
        "found": f"{case} broke with one commit ({steps} tested):",
        "passes": f"{case} passes at {newest}: nothing is broken.",
        "always": f"{case} fails at every tested commit, up to {newest} ({steps} tested).",
        "between": f"{case} broke with one of these commits; older ones cannot be tested:",
    }[found.kind]


def _commit(commit: Commit) -> dict[str, str]:
    return dict(commit._asdict())


def _tested_json(tried: Any) -> list[dict[str, Any]]:
    return [
        {"commit": each.commit.id, "outcome": each.outcome, "why": secrets.redacted(each.why)}
        for each in tried
    ]
