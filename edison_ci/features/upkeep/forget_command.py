"""edison admin forget: remove the texts of a case or of a person."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import Terminal
from edison_ci.errors import UsageError
from edison_ci.feature import Wish
from edison_ci.features.upkeep import forget as forgetting_plan
from edison_ci.numeric import counted

if TYPE_CHECKING:
    from edison_ci.features.upkeep.forgetting import Forgotten

_MOST = 20


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """Whose texts go, and whether they go now."""

    case_id: str | None
    experiment: str | None
    person: str | None
    dry_run: bool
    yes: bool

    def wish(self) -> Wish:
        """Return what to forget; raises UsageError unless one thing is named."""
        if (self.case_id is None) == (self.person is None):
            raise UsageError("name what to forget", hint="give --case ID, or --person TEXT")
        if self.case_id is not None:
            return Wish("case", self.case_id, self.experiment)
        if self.experiment is not None:
            raise UsageError("--experiment needs --case", hint="a person is forgotten everywhere")
        return Wish("person", self.person or "")


@click.command("forget", cls=EdisonCommand)
@click.option("--case", "case_id", metavar="ID", help="Forget the texts of this case.")
@click.option(
    "--experiment", metavar="NAME", help="With --case: of this experiment only; default: of all."
)
@click.option(
    "--person",
    metavar="TEXT",
    help="Forget every text that has TEXT: a name, an address, a number.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
@takes(ForgetRequest)
def forget_texts(state: CliState, request: ForgetRequest) -> None:
    """Remove the texts of a case or of a person.

    Removes answers, replies of judges, reasons, notes and messages from the results, their backups
    and recordings, and drafts and loop reports in .edison. Numbers, verdicts and costs stay. The
    audit log gets a row with counts and a hash, and its chain stays whole.

    --person ignores case and finds texts, not names of columns: if one text about a cell has TEXT,
    all texts of this cell go. --case also finds quotes of the case elsewhere, by their first
    or last 40 characters. Shows what would be removed and asks for confirmation. If it is stopped
    halfway, run it again: it continues. No experiment may be running, and it needs the role owner.

    Your own files and the history of Git are not changed: the command lists lines and commits that
    still have the text.

    Examples:
      edison admin forget --person "ada@example.com" --dry-run
      edison admin forget --person "Ada Lovelace" --yes
      edison admin forget --case refund-7 --experiment support-reply
    """
    terminal = Terminal(state)
    wish = request.wish()
    project = lookup.open_project(state)
    site = sites.Site(project.root, project.file)
    plan = forgetting_plan.plan_forget(site, project, wish)
    done = False
    if not request.dry_run:
        if plan.found and not request.yes:
            _show(terminal, plan, "would remove")
            _confirm(terminal)
        forgetting_plan.forget(site, plan)
        done = True
    if terminal.json:
        terminal.document({"forgotten": done, **_as_json(plan, site)})
        return
    _show(terminal, plan, "removed" if done else "would remove")
    if not done:
        terminal.note("nothing was changed")
    _show_rest(terminal, plan, site)


def _confirm(terminal: Terminal) -> None:
    if terminal.json or not sys.stdin.isatty():
        raise UsageError(
            "texts would be removed for good, and there is no terminal to confirm it",
            hint="check with --dry-run, then run with --yes",
        )
    click.confirm("Continue? It cannot be undone.", abort=True, err=True)


def _show(terminal: Terminal, plan: forgetting_plan.ForgetPlan, verb: str) -> None:
    if not plan.found:
        terminal.result("there is nothing to remove")
        return
    if plan.results.rows:
        terminal.result(f"{verb} from the results: {_words(plan.results)}")
    for path, forgotten in plan.copies:
        if forgotten.rows:
            terminal.result(f"{verb} from {path.name}: {_words(forgotten)}")
    for path, answers in plan.recordings:
        terminal.result(f"{verb} from {path.name}: {counted(answers, 'answer')}")
    for path in plan.drafts:
        terminal.result(f"{verb} {path.name}")
    for name, texts in plan.features.items():
        if texts:
            terminal.result(f"{verb} from files of {name}: {counted(texts, 'text')}")


def _words(forgotten: Forgotten) -> str:
    """Return what a file has, in words."""
    answers, audit = forgotten.counts.get("answer_text", 0), forgotten.counts.get("audit", 0)
    others = forgotten.rows - answers - audit
    parts = [counted(answers, "answer")] if answers else []
    parts += [counted(others, "other text")] if others else []
    parts += [f"details of {counted(audit, 'audit row')}"] if audit else []
    return ", ".join(parts)


def _show_rest(terminal: Terminal, plan: forgetting_plan.ForgetPlan, site: sites.Site) -> None:
    """Say what is not removed, and what to do about it."""
    kept = "was not changed: a link, unreadable, or of a feature that does not forget"
    other = "another project, which was not searched"
    notes = [f"{kept}: {path.name}; delete it by hand" for path in plan.unreadable]
    notes += [f"{other}: {path.relative_to(site.root)}" for path in plan.projects]
    for note in notes:
        terminal.note(note)
    if plan.places:
        terminal.note("your own files have it; edit them and commit:")
        for place in plan.places[:_MOST]:
            terminal.note(f"  {place.file}:{place.line}")
        if len(plan.places) > _MOST:
            terminal.note(f"  and {len(plan.places) - _MOST} more lines")
    if plan.commits:
        terminal.note("commits have it; removing it from history is up to you (git filter-repo):")
        for commit in plan.commits[:_MOST]:
            terminal.note(f"  {commit}")
    names = plan.results.names or {}
    if names:
        listed = ", ".join(f"{name} ({number})" for name, number in names.items())
        terminal.note(f"names that numbers are found by stay: {listed}")
    if plan.exports:
        terminal.note("exported before; look there too:")
        for line in plan.exports[:_MOST]:
            terminal.note(f"  {line}")


def _as_json(plan: forgetting_plan.ForgetPlan, site: sites.Site) -> dict[str, Any]:
    def named(path: Any) -> str:
        return str(path.relative_to(site.root))

    return {
        "results": dict(plan.results.counts),
        "copies": {named(path): dict(forgotten.counts) for path, forgotten in plan.copies},
        "recordings": {named(path): answers for path, answers in plan.recordings},
        "features": dict(plan.features),
        "drafts": [named(path) for path in plan.drafts],
        "unreadable": [named(path) for path in plan.unreadable],
        "places": [place._asdict() for place in plan.places],
        "commits": list(plan.commits),
        "names": dict(plan.results.names or {}),
        "exports": list(plan.exports),
        "projects": [named(path) for path in plan.projects],
    }
