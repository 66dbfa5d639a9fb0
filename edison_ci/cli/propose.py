"""edison propose: a suggestion put before people."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.reading import project_at
from edison_ci.cli.terminal import GOOD, ODD, Ink, Terminal, counted
from edison_ci.errors import ForgeError, ForgeFault
from edison_ci.forge import permissions
from edison_ci.forge.models import Deed
from edison_ci.review.desk import Desk
from edison_ci.review.offering import Wish, newest, offer
from edison_ci.review.ways import event_at_hand
from edison_ci.store.suggestions import list_suggestions

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.review.offering import Offered


@click.command(cls=EdisonCommand)
@click.argument("suggestion", required=False)
@click.option("--open-pr", is_flag=True, help="Open a pull request, or update it.")
@click.option("--force", is_flag=True, help="Offer what was not shown to help, marked unproven.")
@click.pass_obj
def propose(state: State, suggestion: str | None, open_pr: bool, force: bool) -> None:
    """Put a suggestion on a branch, and open a pull request.

    SUGGESTION is an id or its first digits; without it, the newest that was shown to help: if none
    was, that is said and nothing is done. The branch is edison/refine/EXPERIMENT-N, with one commit
    that carries the trailer Edison-Suggestion, by which it is found again: the same suggestion is
    never offered twice, from whichever machine. It is pushed to the remote if there is one, never
    by force. Your branch, files and staged changes are not touched.

    With --open-pr and a token in GITHUB_TOKEN it becomes a pull request on GitHub. If you work on a
    pull request that changes the prompt itself, lines are suggested there instead. Where nobody may
    open pull requests a link says where to, and the command ends with 0. Without GitHub there is a
    branch and a patch; with --offline nothing is pushed.

    Examples:
      edison propose
      edison propose --open-pr
      edison propose 3f9a41 --force
    """
    terminal = Terminal(state)
    desk = Desk.of(project_at(state), offline=state.offline)
    if suggestion is None:
        one = newest(desk.read(list_suggestions), force=force)
    else:
        one = desk.find(suggestion)
    if one is None:
        _tell_nothing(terminal)
        return
    try:
        done = asyncio.run(offer(desk, one, Wish(open_pr, force)))
    except ForgeError as error:
        error.hint = _advice(error) or error.hint
        raise
    if terminal.json:
        terminal.document(_as_json(done))
        return
    _tell(terminal, done, desk.project.root, asked=open_pr)


def _tell_nothing(terminal: Terminal) -> None:
    """Say that there is nothing to do, which is no failure: a workflow asks after every try."""
    if terminal.json:
        terminal.document({"suggestion": None, "outcome": "none", "pull_request": None})
        return
    terminal.result("nothing to propose: no suggestion was shown to help")
    terminal.note("see what was tried: edison review list; ask for another: edison refine")


def _advice(error: ForgeError) -> str:
    """Return what a workflow has to allow, if that is what is missing."""
    event = event_at_hand()
    if event is None or error.fault is not ForgeFault.FORBIDDEN:
        return ""
    if not event.trusted:
        return "pull requests from forks and from Dependabot get a token that may only read"
    needed = ", ".join(f"{name}: {how}" for name, how in permissions.PROPOSE.items())
    return f"the job needs permissions: {{{needed}}}"


def _tell(terminal: Terminal, done: Offered, root: Path, *, asked: bool) -> None:
    one = done.suggestion
    mark = (Ink("  simulated", ODD),) if one.simulated else ()
    unproven = (Ink("  unproven", ODD),) if not one.proven else ()
    again = done.deed is Deed.UNCHANGED
    terminal.result(
        Ink(one.id, bold=True), f"  {'was' if again else 'is'} ", Ink("proposed", GOOD),
        f"{' already' if again else ''}: {one.path}", *unproven, *mark,
    )  # fmt: skip
    if done.lines:
        terminal.result(f"  {counted(done.lines, 'suggested change')} in {one.pull_request_url}")
    if one.branch is not None:
        terminal.result(f"  branch        {one.branch}, for {done.base}")
    if one.pull_request_url is not None and not done.lines:
        terminal.result(f"  pull request  {one.pull_request_url}")
    if done.compare_url is not None:
        terminal.result(f"  open it here  {done.compare_url}")
    if done.patch is not None:
        inside = done.patch.is_relative_to(root)
        terminal.result(f"  patch         {done.patch.relative_to(root) if inside else done.patch}")
    if done.why and (asked or one.pull_request is not None):
        terminal.note(f"  {done.why}")
    if one.pull_request is None:
        terminal.note(f"take it with: edison review approve {one.id}")


def _as_json(done: Offered) -> dict[str, Any]:
    return {
        "suggestion": done.suggestion.as_json(),
        "outcome": str(done.deed),
        "branch": done.suggestion.branch,
        "base": done.base,
        "commit": done.suggestion.commit_id,
        "pull_request": done.suggestion.pull_request,
        "pull_request_url": done.suggestion.pull_request_url,
        "compare_url": done.compare_url,
        "patch": None if done.patch is None else str(done.patch),
        "suggested_lines": done.lines,
        "why": done.why,
    }
