"""edison github comment: reports as the one comment of a pull request."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.reading import project_at
from edison_ci.cli.reporting import report_on
from edison_ci.cli.terminal import ODD, Ink, Terminal
from edison_ci.config.load import find_root
from edison_ci.errors import (
    ConfigError,
    EdisonError,
    ForgeError,
    Location,
    Problem,
    ProjectNotFound,
    Severity,
    StoreError,
    UsageError,
)
from edison_ci.forge import marker, permissions, sticky
from edison_ci.forge.address import Address, address_from
from edison_ci.forge.events import Event, read_event
from edison_ci.forge.github import WORKFLOW_BOT, Author, GitHub
from edison_ci.git.command import run_git
from edison_ci.operate.actors import Role
from edison_ci.operate.site import Site, site_at
from edison_ci.report.comment import Origin, comment_body
from edison_ci.report.handed_in import handed_in
from edison_ci.results.report import Report
from edison_ci.store.audit import write_audit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.forge.sticky import Posted

MAX_BODY_BYTES = 10_000_000
VERDICTS = ("pass", "fail", "inconclusive", "error", "skipped")


class Request(NamedTuple):
    """What the command line asks for."""

    body: str | None
    report: Report | None
    state: marker.State
    verdict: str | None
    key: str
    number: int | None = None
    quiet: bool = False
    """Whether to say it only where we have said something before."""


class Shown(NamedTuple):
    """What became of it."""

    number: int | None
    posted: Posted | None
    ours: bool = True
    """False when the comment was made under another name than the configured one."""


@click.command(cls=EdisonCommand)
@click.argument("wanted", nargs=-1, metavar="[RUN]...")
@click.option(
    "--body-file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="A report of your own in Markdown; - for standard input.",
)
@click.option(
    "--handed-in",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The report.json of a job without keys, which is not believed.",
)
@click.option(
    "--pr",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="The pull request; by default the one this job runs for.",
)
@click.option(
    "--state",
    "progress",
    type=click.Choice([state.value for state in marker.State]),
    default=marker.State.FINAL.value,
    show_default=True,
    help="How far the run has come.",
)
@click.option(
    "--verdict",
    type=click.Choice(VERDICTS),
    help="With --body-file: what was decided, kept in the comment for scripts.",
)
@click.option(
    "--key",
    default="edison",
    show_default=True,
    metavar="KEY",
    help="Tells apart several comments on one pull request.",
)
@click.option(
    "--author",
    default=WORKFLOW_BOT,
    show_default=True,
    metavar="LOGIN",
    help="The account that the token belongs to.",
)
@click.pass_obj
def comment(state: State, /, author: str, progress: str, **given: Any) -> None:
    """Show a report on a pull request, in one comment that is updated.

    Without RUN it tells of the newest run and of the newest runs of other experiments on the same
    commit and base, as `edison github summary` does; files that are not valid are told instead.

    With --handed-in, in a workflow on `workflow_run`, it shows what the job of a fork claims, in
    our words and marked as not checked; the pull request is found by the branch and the commit of
    the event.

    The comment is found again by an invisible first line and by its author; comments of others are
    never touched, and a later report is never replaced by an earlier one. Bodies above what GitHub
    takes are cut between lines. A job without a pull request comments on nothing.

    Needs a token in GITHUB_TOKEN, and `pull-requests: write`. When GitHub refuses, the command says
    what to change and still ends with 0: a comment never changes the verdict.

    Examples:
      edison github comment --state running
      edison github comment
      edison github comment support-reply --pr 12 --author octocat
      edison github comment --body-file report.md --verdict pass
      edison github comment --handed-in report.json
    """
    terminal = Terminal(state)
    if state.offline:
        raise UsageError("--offline forbids to reach GitHub", hint="run without --offline")
    site = _site(state)
    request = _request(state, marker.State(progress), given)
    event = read_event(os.environ) if os.environ.get("GITHUB_EVENT_NAME") else None
    if request.number is None and event is None:
        raise UsageError("no pull request is named", hint="name one: --pr NUMBER")
    address = address_from(os.environ, remote=origin_of(state.folder))
    try:
        shown = asyncio.run(post(address, Author(author), request, event))
    except ForgeError as error:
        advice = tell_failure(terminal, error, event)
        if terminal.json:
            number = event.number if event else None
            terminal.document(as_json(Shown(number, None), error.message, advice))
        return
    if terminal.json:
        terminal.document(as_json(shown))
    tell(terminal, shown, event)
    audit(site, shown)


# --- what to say ----------------------------------------------------------------------------------


def _request(state: State, progress: marker.State, given: Mapping[str, Any]) -> Request:
    file, wanted, verdict = given["body_file"], given["wanted"], given["verdict"]
    body = report = None
    if sum(map(bool, (wanted, file, given["handed_in"]))) > 1:
        raise UsageError(
            "a RUN, --body-file and --handed-in say different things", hint="give one of them"
        )
    if given["handed_in"] is not None and verdict is None:
        claim = handed_in(_read(given["handed_in"]).encode())
        quiet = claim.verdict == "skipped"
        return Request(
            claim.text, None, progress, claim.verdict, given["key"], given["pr"], quiet=quiet
        )
    if file is not None:
        body = _read(file)
    elif verdict is not None:
        raise UsageError("the verdict is that of the runs", hint="--verdict goes with --body-file")
    else:
        report = _report(state, progress, wanted)
    return Request(body, report, progress, verdict, given["key"], given["pr"])


def _report(state: State, progress: marker.State, wanted: tuple[str, ...]) -> Report | None:
    try:
        project = project_at(state)
        if not wanted and not (project.root / project.file.results).exists():
            if progress is marker.State.RUNNING:
                return Report()
            if progress is marker.State.CANCELLED:
                return None
        return report_on(project, wanted, state.folder)
    except ProjectNotFound:
        if progress in {marker.State.RUNNING, marker.State.CANCELLED}:
            return None
        raise UsageError(
            "there is nothing to say", hint="run it in a project, or name a report: --body-file"
        ) from None
    except (ConfigError, StoreError) as error:
        if progress is marker.State.RUNNING:
            return None
        return Report(failure=str(error))  # what a reader of the pull request has to know


def _read(path: Path) -> str:
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(MAX_BODY_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(MAX_BODY_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"the report {str(path)!r} cannot be read: {error.strerror}", hint="check --body-file"
        ) from None
    if len(data) > MAX_BODY_BYTES:
        raise UsageError(
            f"the report {str(path)!r} has more than {MAX_BODY_BYTES:,} bytes",
            hint="a comment takes 60,000 characters: write a shorter one",
        )
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return text.replace("\0", "\N{SYMBOL FOR NULL}")


def _text(address: Address, request: Request, origin: Origin) -> str:
    """Return the whole comment, with the two lines by which it is found again."""
    if request.report is not None:
        return comment_body(
            request.report, key=request.key, state=request.state.value, origin=origin
        )
    stamp = marker.Stamp(origin.head, request.state, origin.run_id, origin.attempt, request.verdict)
    log_url = address.run_url(origin.run_id) if origin.run_id else None
    body = request.body or _default_body(request.state, origin.head, log_url)
    return sticky.Report(body, stamp, request.key).text


def _default_body(state: marker.State, head_sha: str, log_url: str | None) -> str:
    log = f" [Log]({log_url})" if log_url else ""
    if state is marker.State.RUNNING:
        return f"**edison** is evaluating {head_sha[:8]}.{log}"
    return f"**edison** was cancelled while it evaluated {head_sha[:8]}. Nothing was decided.{log}"


# --- saying it ------------------------------------------------------------------------------------


async def post(address: Address, author: Author, request: Request, event: Event | None) -> Shown:
    """Show a report on the pull request that is meant; raises ForgeError."""
    async with GitHub(address, author=author) as github:
        number, head_sha = await _target(github, request, event)
        if number is None:
            return Shown(None, None)
        run_id, attempt = (event.run_id, event.attempt) if event else (0, 1)
        text = _text(address, request, Origin(head_sha, run_id, attempt))
        if request.quiet and not await sticky.is_there(github, number, text):
            return Shown(number, None)
        posted = await sticky.post(github, number, text)
        return Shown(number, posted, ours=github.is_ours(posted.comment))


async def _target(github: GitHub, request: Request, event: Event | None) -> tuple[int | None, str]:
    """Return the pull request, and the commit that the report is about."""
    number = request.number or (event.number if event else None)
    if event is not None and event.name == "workflow_run" and number is None:
        return await _of_other_workflow(github, event)
    if number is None:
        return None, ""
    if event is not None and event.head_sha and event.number == number:
        return number, event.head_sha
    return number, (await github.pull_request(number)).head_sha


async def _of_other_workflow(github: GitHub, event: Event) -> tuple[int | None, str]:
    """Find the pull request by its branch, and believe it only if the commit is the same."""
    if event.head_branch is None or event.head_sha is None:
        return None, ""
    pull = await github.find_pull_request(event.head_branch, owner=event.head_owner or "")
    same = pull is not None and pull.head_sha == event.head_sha
    return (pull.number if pull is not None and same else None), event.head_sha


def origin_of(folder: Path) -> str | None:
    """Return the address of the remote `origin`."""
    try:
        said = run_git("config", "--get", "remote.origin.url", cwd=folder)
    except (UsageError, OSError):
        return None
    return said.line if said.code == 0 else None


# --- what became of it ----------------------------------------------------------------------------


def tell(terminal: Terminal, shown: Shown, event: Event | None) -> None:
    """Say what became of a comment."""
    posted = shown.posted
    if posted is None:
        name = event.name if event else "this"
        terminal.result(f"no pull request to comment on ({name})")
        return
    words = {
        sticky.Outcome.CREATED: "commented",
        sticky.Outcome.UPDATED: "updated the comment",
        sticky.Outcome.UNCHANGED: "the comment says so already",
        sticky.Outcome.SUPERSEDED: "left a later report as it is",
    }
    terminal.result(f"{words[posted.outcome]}: {posted.comment.url}")
    if posted.removed:
        terminal.result(f"removed {len(posted.removed)} further comments of ours")
    if not shown.ours:
        login = posted.comment.author.login
        terminal.note(
            Ink("warning:", ODD),
            f" the token belongs to {login!r}: use --author {login}, or the next report makes "
            "another comment",
        )


def as_json(shown: Shown, reason: str | None = None, hint: str | None = None) -> dict[str, Any]:
    """Return what became of a comment, or why there is none."""
    posted = shown.posted
    outcome = posted.outcome if posted else ("failed" if reason else "none")
    return {
        "outcome": str(outcome),
        "pull_request": shown.number,
        "comment_id": posted.comment.id if posted else None,
        "url": posted.comment.url if posted else None,
        "removed": list(posted.removed) if posted else [],
        "reason": reason,
        "hint": hint,
    }


def tell_failure(terminal: Terminal, error: ForgeError, event: Event | None) -> str:
    """Say why there is no comment and what to do about it; return the advice."""
    untrusted = event is not None and not event.trusted
    advice = permissions.advice(error, permissions.COMMENT, untrusted=untrusted)
    terminal.note(Ink("warning:", ODD), f" there is no comment: {error.message}")
    for line in advice.splitlines():
        terminal.note(f"  {line}" if line else "")
    problem = Problem(Location(""), "comment", error.message, advice, Severity.WARNING)
    terminal.annotate([problem])
    return advice


def _site(state: State) -> Site | None:
    """Return the project, if this is one; whoever may not read its results may not show them."""
    try:
        site = site_at(state.entered(find_root(state.folder)))
    except (ProjectNotFound, ConfigError):
        return None  # that edison.yaml is broken may be the very thing to report
    site.require(Role.VIEWER, "github comment")
    return site


def audit(site: Site | None, shown: Shown) -> None:
    """Write down that a comment was made or changed, as far as that can be done."""
    posted = shown.posted
    changed = {sticky.Outcome.CREATED, sticky.Outcome.UPDATED}
    if site is None or posted is None or not site.results.exists() or posted.outcome not in changed:
        return
    action = f"github comment: {posted.outcome}"
    entity = f"pull request {shown.number}"
    entry = site.entry(site.actor(), action, entity, after=posted.comment.url)
    # The comment is there, and nothing that happens afterwards may change the verdict.
    with contextlib.suppress(EdisonError):
        write_audit(site.results, entry)
