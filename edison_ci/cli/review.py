"""edison review: suggestions that wait for a decision, and what people say of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import EdisonCommand, EdisonGroup, State
from edison_ci.cli.reading import project_at, readable_at
from edison_ci.cli.suggested import show_suggestion
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, Terminal, counted
from edison_ci.errors import UsageError
from edison_ci.formatting import change
from edison_ci.plan.versions import short
from edison_ci.review.deciding import approve as approve_suggestion
from edison_ci.review.deciding import discuss
from edison_ci.review.deciding import reject as reject_suggestion
from edison_ci.review.desk import Desk
from edison_ci.review.editing import GuardrailsBroken, edited, may_edit, readable, text_to_edit
from edison_ci.review.offering import write_draft
from edison_ci.review.syncing import sync as sync_suggestions
from edison_ci.store.suggestions import OPEN, Status, comments_of, list_suggestions

if TYPE_CHECKING:
    from edison_ci.review.deciding import Decided
    from edison_ci.store.suggestions import Suggestion, SuggestionComment

MAX_EDITED_BYTES = 1_000_000


@click.group(cls=EdisonGroup)
def review() -> None:
    """Decide about suggested changes of prompts.

    SUGGESTION is an id or its first digits. A suggestion with a pull request is decided there, as
    the person whose token is in GITHUB_TOKEN; one without is decided here. Decisions are refused
    while a run of the experiment is at work, and to roles that may not decide.

    Examples:
      edison review list
      edison review show 3f9a41
      edison review approve 3f9a41
      edison review reject 3f9a41 --reason "too formal"
      edison review sync
    """


# --- looking --------------------------------------------------------------------------------------


@review.command("list", cls=EdisonCommand)
@click.option("--all", "everything", is_flag=True, help="Also those that are decided.")
@click.option("--experiment", metavar="NAME", help="Only those for one experiment.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([str(status) for status in Status]),
    help="Only those of a status; can be given several times.",
)
@click.pass_obj
def list_them(
    state: State, everything: bool, experiment: str | None, statuses: tuple[str, ...]
) -> None:
    """List the suggestions that wait for somebody.

    Newest first: tried (not shown to help), proposed, and approved but not merged yet. --all lists
    those that were refused, applied, rejected or superseded as well.

    Examples:
      edison review list
      edison review list --all --experiment support-reply
      edison review list --status rejected --json
    """
    terminal = Terminal(state)
    desk = Desk.of(readable_at(state, terminal), offline=True)
    wanted = [Status(status) for status in statuses] or (() if everything else sorted(OPEN))
    found: list[Suggestion] = []
    if desk.site.results.exists():
        found = desk.read(lambda db: list_suggestions(db, experiment=experiment, statuses=wanted))
    if terminal.json:
        terminal.document({"suggestions": [one.as_json() for one in found]})
        return
    if not found:
        terminal.note("no suggestion waits for anybody; ask for one: edison refine")
        return
    head = ("suggestion", "status", "experiment", "prompt", "unseen cases", "targets", "where", "")
    terminal.table([head, *(_row(one) for one in found)])


def _row(one: Suggestion) -> tuple[str, ...]:
    holdout = one.evidence.get("holdout")
    difference = holdout.get("difference") if isinstance(holdout, dict) else None
    told = "-"
    if isinstance(difference, dict):
        told = change(difference.get("estimate"), difference.get("low"), difference.get("high"))
    where = one.branch or "-"
    if one.pull_request is not None:
        where = f"#{one.pull_request}"
    marks = ["simulated"] if one.simulated else []
    marks += ["unproven"] if one.forced else []
    targets = ", ".join(one.targets)
    return (one.id, str(one.status), one.experiment, one.prompt, told, targets, where,
            ", ".join(marks))  # fmt: skip


@review.command("show", cls=EdisonCommand)
@click.argument("suggestion")
@click.pass_obj
def show(state: State, suggestion: str) -> None:
    """Show a suggestion with its diff and its evidence.

    Examples:
      edison review show 3f9a41
      edison review show 3f9a41 --json
    """
    terminal = Terminal(state)
    desk = Desk.of(readable_at(state, terminal), offline=True)
    one = desk.find(suggestion)
    said = desk.read(lambda connection: comments_of(connection, one))
    if terminal.json:
        told = [comment._asdict() for comment in said]
        terminal.document({"suggestions": [{**one.as_json(), "comments": told}]})
        return
    show_suggestion(terminal, one)
    _show_fate(terminal, one, said)


def _show_fate(terminal: Terminal, one: Suggestion, said: list[SuggestionComment]) -> None:
    new = f" to {short(one.new_hash)}" if one.new_hash else ""
    terminal.result(f"  version {short(one.base_hash)}{new} of {one.prompt} in {one.experiment}")
    if one.edited_from is not None:
        terminal.result(f"  edited by hand from {one.edited_from}")
    if one.branch is not None:
        terminal.result(f"  branch {one.branch}")
    if one.pull_request_url is not None:
        terminal.result(f"  pull request {one.pull_request_url}")
    if one.decided_by or one.decided_at:
        when = f" on {one.decided_at[:10]}" if one.decided_at else ""
        terminal.result(f"  {one.status} by {one.decided_by or 'somebody'}{when}")
    if one.reason:
        terminal.result(f"  because: {one.reason}")
    for comment in said:
        terminal.result(Ink(f"  {comment.actor}", bold=True), f" ({comment.made_at[:10]}):")
        for line in comment.text.split("\n"):
            terminal.result(f"    {line}")
    if one.status is Status.PROPOSED:
        terminal.note(f"take it:   edison review approve {one.id}")
        terminal.note(f'leave it:  edison review reject {one.id} --reason "..."')


# --- deciding -------------------------------------------------------------------------------------


@review.command(cls=EdisonCommand)
@click.argument("suggestion")
@click.option("--merge", is_flag=True, help="Merge the pull request, where protection allows it.")
@click.pass_obj
def approve(state: State, suggestion: str, merge: bool) -> None:
    """Take a suggestion.

    With a pull request it adds an approving review as you, and merges only with --merge. Without
    one the change becomes one commit on the branch that is checked out; the file must be as it is
    in the last commit. Needs the role reviewer.

    Examples:
      edison review approve 3f9a41
      edison review approve 3f9a41 --merge
    """
    terminal = Terminal(state)
    desk = Desk.of(project_at(state), offline=state.offline)
    one = desk.find(suggestion)
    _tell(terminal, asyncio.run(approve_suggestion(desk, one, merge=merge)))


@review.command(cls=EdisonCommand)
@click.argument("suggestion")
@click.option("--reason", required=True, metavar="TEXT", help="Why; the next refinement is told.")
@click.pass_obj
def reject(state: State, suggestion: str, reason: str) -> None:
    """Leave a suggestion, and say why.

    Closes its pull request, with the reason as a comment. Needs the role reviewer.

    Examples:
      edison review reject 3f9a41 --reason "sounds like a form letter"
    """
    terminal = Terminal(state)
    desk = Desk.of(project_at(state), offline=state.offline)
    one = desk.find(suggestion)
    _tell(terminal, asyncio.run(reject_suggestion(desk, one, reason)))


@review.command(cls=EdisonCommand)
@click.argument("suggestion")
@click.argument("text")
@click.pass_obj
def comment(state: State, suggestion: str, text: str) -> None:
    """Say something about a suggestion.

    It is kept with the suggestion, and shown on its pull request. Needs the role reviewer.

    Examples:
      edison review comment 3f9a41 "What about refunds?"
    """
    terminal = Terminal(state)
    desk = Desk.of(project_at(state), offline=state.offline)
    one = desk.find(suggestion)
    done = asyncio.run(discuss(desk, one, text))
    _tell(terminal, done, word="commented")


@review.command(cls=EdisonCommand)
@click.argument("suggestion")
@click.option(
    "--from",
    "source",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Take the edited prompt from a file instead of an editor.",
)
@click.pass_obj
def edit(state: State, suggestion: str, source: Path | None) -> None:
    """Change a suggestion before it is taken.

    Opens the prompt as it would be in $VISUAL or $EDITOR. What you save is held to the guardrails
    again and becomes a suggestion of its own, marked as not measured; the old one is superseded. A
    text that is refused is kept, so that nothing you wrote is lost. Needs the role editor.

    Examples:
      edison review edit 3f9a41
      edison review edit 3f9a41 --from better.md
    """
    terminal = Terminal(state)
    desk = Desk.of(project_at(state), offline=state.offline)
    one = desk.find(suggestion)
    actor = may_edit(desk, one)
    text = _edited_text(desk, one, source)
    try:
        new = edited(desk, actor, one, text)
    except GuardrailsBroken as error:
        kept = source or write_draft(desk, f"{one.id}.edited.md", text.encode("utf-8"))
        error.hint = f"your text is kept: edison review edit {one.id} --from {kept}"
        raise
    if terminal.json:
        terminal.document({"suggestions": [new.as_json()], "superseded": [one.id]})
        return
    show_suggestion(terminal, new)
    terminal.result(f"{one.id} is superseded by {new.id}, which was not measured")
    if new.branch is not None:
        terminal.note(f"show it on its branch: edison propose {new.id} --open-pr")
    else:
        terminal.note(f"take it: edison review approve {new.id}")


def _edited_text(desk: Desk, one: Suggestion, source: Path | None) -> str:
    if source is not None:
        try:
            with source.open("rb") as stream:
                data = stream.read(MAX_EDITED_BYTES + 1)
        except OSError as error:
            raise UsageError(
                f"{source} cannot be read: {error.strerror}", hint="name the edited prompt"
            ) from None
        if len(data) > MAX_EDITED_BYTES:
            raise UsageError(f"{source} is too large for a prompt", hint="name another file")
        return readable(data)
    text = click.edit(text_to_edit(desk, one), extension=".md")
    if text is None:
        raise UsageError("nothing was changed", hint="save what you edit, then leave the editor")
    return text.replace("\r\n", "\n")


@review.command(cls=EdisonCommand)
@click.pass_obj
def sync(state: State) -> None:
    """Take note of what people decided on pull requests.

    A merged pull request is applied, a closed one rejected: the reason is the last comment of
    somebody who belongs to the repository. Without GitHub it looks whether the default branch has
    the change. Needs the role reviewer.

    Examples:
      edison review sync
      edison review sync --json
    """
    terminal = Terminal(state)
    desk = Desk.of(project_at(state), offline=state.offline)
    done = asyncio.run(sync_suggestions(desk))
    if terminal.json:
        changed = [one.as_json() for one in done.changed]
        terminal.document(
            {"suggestions": changed, "looked_at": done.looked, "problems": done.problems}
        )
        return
    for one in done.changed:
        _tell_status(terminal, one)
    for problem in done.problems:
        terminal.note(Ink("warning: ", ODD), problem)
    if not done.changed:
        terminal.note(f"nothing has changed; {counted(done.looked, 'suggestion')} looked at")


def _tell(terminal: Terminal, done: Decided, *, word: str = "") -> None:
    if terminal.json:
        told: dict[str, Any] = {"suggestions": [done.suggestion.as_json()]}
        terminal.document({**told, "notes": [*done.notes], "superseded": [*done.superseded]})
    elif word:
        terminal.result(Ink(done.suggestion.id, bold=True), f"  {word}")
    else:
        _tell_status(terminal, done.suggestion)
    for note in done.notes:
        terminal.note(Ink("note: ", ODD), note)
    if done.superseded and not terminal.json:
        terminal.note(f"superseded by it: {', '.join(done.superseded)}")


def _tell_status(terminal: Terminal, one: Suggestion) -> None:
    color = {Status.REJECTED: BAD, Status.SUPERSEDED: ODD}.get(one.status, GOOD)
    commit = f" as {one.commit_id[:8]}" if one.status is Status.APPLIED and one.commit_id else ""
    mark = (Ink("  simulated", ODD),) if one.simulated else ()
    terminal.result(
        Ink(one.id, bold=True), "  ", Ink(str(one.status), color), f"{commit}: {one.path}", *mark
    )
    if one.reason and one.status is Status.REJECTED:
        terminal.result(f"  because: {one.reason}")
