"""edison bisect: which commit broke a case."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING, Any

import click

from edison_ci import formatting
from edison_ci.cli import spending
from edison_ci.cli.choosing import case_named
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, Terminal, counted
from edison_ci.config import needs
from edison_ci.config.cases import STATIC
from edison_ci.config.load import find_root, load_project
from edison_ci.documents.secrets import redacted
from edison_ci.errors import ExitCode, UsageError
from edison_ci.execute.bisect import Search, prompt_diff
from edison_ci.git.repository import Repository
from edison_ci.operate.sessions import require_editor, tools_for
from edison_ci.plan.plan import bare_plan
from edison_ci.plan.selection import Selection
from edison_ci.providers.budgeting import BudgetExhausted

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.execute.bisect import Commit, Culprit, Tried

_COLORS = {"good": GOOD, "bad": BAD, "skip": ODD}


@click.command(cls=EdisonCommand)
@click.argument("experiment")
@click.option("--case", "case_id", required=True, metavar="ID", help="Case that is broken.")
@click.option("--good", metavar="REF", help="Commit at which it passed; looked for by default.")
@click.option("--bad", metavar="REF", default="HEAD", help="Commit at which it fails; HEAD.")
@click.option("--model", "models", multiple=True, metavar="NAME", help="Only this model; again.")
@spending.budget
@click.pass_obj
def bisect(state: State, /, experiment: str, **given: Any) -> None:
    """Find the commit that broke a case.

    Prompts and models come from each commit that is tried, cases, checks and judges from the files
    of today. The search halves the first-parent history, so a thousand commits take about ten
    tries, and stored answers are reused. With several draws a case passes if most of them do.

    Examples:
      edison bisect support-reply --case return-how
      edison bisect support-reply --case return-how --good v1.2 --budget 0.50
    """
    terminal = Terminal(state)
    project = load_project(state.entered(find_root(state.folder)))
    chosen = project.experiment(experiment)
    case_id = given["case_id"]
    case = STATIC
    if chosen.file.data or case_id != STATIC.id:
        case = case_named(project, chosen, case_id)
    repository = Repository.find(project.root)
    if repository is None:
        hint = "run git init, then commit"
        raise UsageError("this project is not in a Git repository", hint=hint)
    require_editor(project, "bisect")
    only = Selection(given["models"], (case.id,))
    needs.refuse(needs.missing(project, only.narrow(chosen), calls=needs.RUN))
    simulated = bare_plan(project, chosen, selection=only).simulated
    search = Search(
        project,
        chosen,
        case,
        tools_for(project, offline=state.offline),
        repository,
        given["models"],
        lambda tried: _step(terminal, tried),
    )
    budget = given["budget"]
    reuse = dt.timedelta(days=project.file.settings.reuse_days)
    looking = search.run(
        given["good"],
        given["bad"],
        newer_than=formatting.stamp(formatting.now() - reuse),
        budget_microusd=spending.microusd(budget),
    )
    try:
        found = asyncio.run(looking)
    except BudgetExhausted as exhausted:
        name = exhausted.refused.cap.name
        terminal.note(f"{name} has no room for the next call; what was asked is kept")
        if terminal.json:
            tried = _tried(search.tried.values())
            terminal.document({"verdict": "unfinished", "simulated": simulated, "tried": tried})
        raise click.exceptions.Exit(int(ExitCode.BUDGET)) from None
    _tell(terminal, project, repository, (case.id, simulated, found))


def _step(terminal: Terminal, tried: Tried) -> None:
    commit = tried.commit
    terminal.note(
        f"{commit.id[:8]} {commit.date[:10]}  ",
        Ink(f"{tried.outcome:4}", _COLORS[tried.outcome]),
        f"  {commit.subject}" + ("" if tried.outcome == "good" else f" ({redacted(tried.why)})"),
    )


def _tell(
    terminal: Terminal,
    project: Project,
    repository: Repository,
    what: tuple[str, bool, Culprit],
) -> None:
    case, simulated, found = what
    failing = {cell.prompt for cell in found.failing}
    diffs = {}
    if found.kind == "found":
        known = {p.path: p.id for p in project.prompts.values()}
        told = {
            path: prompt_diff(project, repository, found.commits[0].id, path)
            for path, name in known.items()
            if name in failing
        }
        diffs = {path: redacted(diff) for path, diff in told.items() if diff}
    if terminal.json:
        terminal.document(
            {
                "verdict": found.kind,
                "simulated": simulated,
                "case": case,
                "commits": [_commit(commit) for commit in found.commits],
                "failing": [{"prompt": c.prompt, "model": c.model} for c in sorted(found.failing)],
                "diffs": diffs,
                "tried": _tried(found.tried),
            }
        )
        return
    mark = [Ink("  simulated", ODD)] if simulated else []
    terminal.result(_sentence(case, found), *mark)
    for commit in found.commits if found.kind in ("found", "between") else ():
        about = f"{commit.date}  {commit.author}  {commit.subject}"
        terminal.result(Ink(commit.id, bold=True), f"  {about}")
    for diff in diffs.values():
        for line in diff.split("\n"):
            color = {"+": GOOD, "-": BAD}.get(line[:1])
            terminal.result(Ink(line, color))
    if found.kind == "found" and not diffs:
        terminal.result("It changed no prompt that fails; look at its models and schemas.")


def _sentence(case: str, found: Culprit) -> str:
    newest = found.commits[0].id[:8]
    steps = counted(len(found.tried), "commit")
    return {
        "found": f"{case} broke with one commit ({steps} tried):",
        "passes": f"{case} passes at {newest}: nothing is broken.",
        "always": f"{case} fails as far back as it can be tried, at {newest} too ({steps} tried).",
        "between": f"{case} broke with one of these commits, of which no older one can be tried:",
    }[found.kind]


def _commit(commit: Commit) -> dict[str, str]:
    return dict(commit._asdict())


def _tried(tried: Any) -> list[dict[str, Any]]:
    return [
        {"commit": each.commit.id, "outcome": each.outcome, "why": redacted(each.why)}
        for each in tried
    ]
