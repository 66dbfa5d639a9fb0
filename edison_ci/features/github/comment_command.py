"""edison github comment: a report as one comment on a pull request, updated in place."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edison_ci._dataclass import dataclass
from edison_ci.access import events
from edison_ci.access import events as job_events
from edison_ci.access import site as sites
from edison_ci.api import audit_log, reports
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import ODD, StyledText, Terminal
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
from edison_ci.features.github import forge as github_forge
from edison_ci.features.github import report_comment, sticky_comment
from edison_ci.features.github.forge import WORKFLOW_BOT, Author, GitHub
from edison_ci.git import command, host
from edison_ci.git import repository as git
from edison_ci.records import Verdict
from edison_ci.report import annotations as report_annotations
from edison_ci.report.change_details import ChangeDetails
from edison_ci.results import report as result_report
from edison_ci.sanitize import in_actions

if TYPE_CHECKING:
    from edison_ci.access.site import Site
    from edison_ci.features.github.sticky_comment import StickyResult
    from edison_ci.store.audit import AuditHead

MAX_BODY_BYTES = 10_000_000
_ACTION = "github comment"
VERDICTS = ("pass", "fail", "inconclusive", "error", "skipped")


class Request(NamedTuple):
    """The comment that a command line or a job requests."""

    body: str | None
    report: result_report.Report | None
    state: sticky_comment.ReportState
    verdict: str | None
    key: str
    number: int | None = None
    quiet: bool = False
    """Whether to update an existing comment only."""
    details: ChangeDetails = ChangeDetails()
    audit: AuditHead | None = None
    """The newest row of the audit log."""


class CommentResult(NamedTuple):
    """The comment that was made or updated, if any."""

    number: int | None
    posted: StickyResult | None
    ours: bool = True
    """False if the token belongs to another account than the configured author."""


@dataclass(frozen=True, slots=True)
class CommentOptions:
    """What to post, where, and as whom."""

    runs: tuple[str, ...]
    body_file: Path | None
    handed_in: Path | None
    pr: int | None
    progress: str
    verdict: str | None
    key: str
    author: str
    dry_run: bool

    def request(self, state: CliState) -> Request:
        """Return the comment to post, with the report that the options name."""
        progress = sticky_comment.ReportState(self.progress)
        if sum(map(bool, (self.runs, self.body_file, self.handed_in))) > 1:
            raise UsageError(
                "RUN, --body-file and --handed-in cannot be combined", hint="give one of them"
            )
        request = Request(None, None, progress, self.verdict, self.key, self.pr)
        if self.handed_in is not None and self.verdict is None:
            claim = report_comment.read_foreign_report(_read(self.handed_in).encode())
            quiet = claim.verdict == Verdict.SKIPPED
            return request._replace(body=claim.text, verdict=claim.verdict, quiet=quiet)
        if self.body_file is not None:
            return request._replace(body=_read(self.body_file))
        if self.verdict is not None:
            raise UsageError("--verdict needs --body-file", hint="the verdict of a RUN is known")
        report, details = _report(state, progress, self.runs)
        return request._replace(report=report, details=details)


@click.command(cls=EdisonCommand)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option(
    "--body-file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="A Markdown file to post instead; - for stdin.",
)
@click.option(
    "--handed-in",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The report.json of a job without keys; shown as unverified.",
)
@click.option(
    "--pr",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Number of the pull request; default: that of this job.",
)
@click.option(
    "--state",
    "progress",
    type=click.Choice([state.value for state in sticky_comment.ReportState]),
    default=sticky_comment.ReportState.FINAL.value,
    show_default=True,
    help="State of the run.",
)
@click.option(
    "--verdict",
    type=click.Choice(VERDICTS),
    help="With --body-file: the verdict, stored in the comment.",
)
@click.option(
    "--key",
    default="edison",
    show_default=True,
    metavar="KEY",
    help="Name of the comment, if a pull request has several.",
)
@click.option(
    "--author",
    default=WORKFLOW_BOT,
    show_default=True,
    metavar="LOGIN",
    help="Account that the token belongs to.",
)
@click.option("--dry-run", is_flag=True, help="Print the comment, and post nothing.")
@click.pass_obj
@takes(CommentOptions)
def comment(state: CliState, options: CommentOptions) -> None:
    """Post a report as a comment on a pull request, or update it.

    Without RUN it covers the newest run and the newest runs of other experiments on the same commit
    and base, as `edison github summary` does. If files of the project are invalid, it reports that.

    With --handed-in, in a workflow on `workflow_run`, it shows the report of a fork's job, rendered
    here and marked as unverified. The pull request is found by the branch and commit of the event.

    The comment is found again by an invisible first line and its author. Comments of others are
    never changed, and a newer report is never replaced by an older one. Bodies that are too long
    for GitHub are cut between lines. A job without a pull request posts nothing.

    Needs a token in GITHUB_TOKEN with `pull-requests: write`. If GitHub refuses, the command prints
    what to change and still exits with 0: a comment never changes the verdict. With --dry-run it
    needs no token, no pull request and no network.

    Examples:
      edison github comment --dry-run
      edison github comment --state running
      edison github comment
      edison github comment support-reply --pr 12 --author octocat
      edison github comment --body-file report.md --verdict pass
      edison github comment --handed-in report.json
    """
    terminal = Terminal(state)
    if state.offline and not options.dry_run:
        hint = "run without --offline, or print it only: --dry-run"
        raise UsageError("network access is disabled by --offline", hint=hint)
    site = _site(state)
    request = options.request(state)._replace(audit=newest_audit(site))
    event = job_events.read_event(os.environ) if os.environ.get("GITHUB_EVENT_NAME") else None
    if options.dry_run:
        _show_dry(terminal, request, event, state.folder)
        return
    if request.number is None and event is None:
        raise UsageError("no pull request: this is not a job for one", hint="name it: --pr NUMBER")
    address = address_of(state.folder)
    try:
        result = asyncio.run(post(address, Author(options.author), request, event))
    except ForgeError as error:
        advice = show_failure(terminal, error, event)
        if terminal.json:
            number = event.number if event else None
            terminal.document(as_json(CommentResult(number, None), error.message, advice))
        return
    if terminal.json:
        terminal.document(as_json(result))
    show_comment(terminal, result, event)
    audit(site, result)


def _report(
    state: CliState, progress: sticky_comment.ReportState, runs: tuple[str, ...]
) -> tuple[result_report.Report | None, ChangeDetails]:
    nothing = None, ChangeDetails()
    try:
        project = lookup.open_project(state, to_report=True)
        if not runs and not (project.root / project.file.results).exists():
            if progress is sticky_comment.ReportState.RUNNING:
                return reports.DetailedReport(result_report.Report())
            if progress is sticky_comment.ReportState.CANCELLED:
                return nothing
        return reports.report_on(project, runs, state.folder)
    except ProjectNotFound:
        if progress in {sticky_comment.ReportState.RUNNING, sticky_comment.ReportState.CANCELLED}:
            return nothing
        raise UsageError(
            "there is nothing to report on",
            hint="run it in a project, or name a report: --body-file",
        ) from None
    except (ConfigError, StoreError) as error:
        if progress is sticky_comment.ReportState.RUNNING:
            return nothing
        # Readers of the pull request need to know.
        return reports.DetailedReport(result_report.Report(failure=str(error)))


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


def _text(request: Request, origin: report_comment.CommentOrigin) -> str:
    """Return the whole comment, with the marker lines by which it is found again."""
    if request.report is not None:
        return report_comment.comment_body(
            request.report,
            key=request.key,
            state=request.state,
            origin=replace(origin, audit=request.audit),
            details=request.details,
        )
    marker = sticky_comment.ReportMarker(
        origin.head, request.state, origin.run_id, origin.attempt, request.verdict
    )
    body = request.body or _default_body(request.state, origin)
    return sticky_comment.Report(body, marker, request.key).text


def _default_body(state: sticky_comment.ReportState, origin: report_comment.CommentOrigin) -> str:
    log = f" [Log]({origin.run_url})" if origin.run_url else ""
    commit = origin.head[:8]
    if state is sticky_comment.ReportState.RUNNING:
        return f"**edison** is evaluating {commit}.{log}"
    return f"**edison** was cancelled while it evaluated {commit}. Nothing was decided.{log}"


def _origin(
    event: job_events.Event | None, head_sha: str, address: host.RepositoryAddress | None
) -> report_comment.CommentOrigin:
    run_id, attempt = (event.run_id, event.attempt) if event else (0, 1)
    url = address.run_url(run_id) if run_id and address is not None else ""
    return report_comment.CommentOrigin(head_sha, run_id, attempt, run_url=url)


def _show_dry(
    terminal: Terminal, request: Request, event: job_events.Event | None, folder: Path
) -> None:
    """Print the comment that would be posted, as far as it can be known here."""
    repository = git.Repository.find(folder)
    head = (event.head_sha if event else None) or (repository.head() if repository else None)
    address = None
    if event is not None:
        address = address_of(folder)
    text = _text(request, _origin(event, head or "", address))
    if terminal.json:
        terminal.document({"outcome": "dry run", "body": text})
    else:
        print_markdown(terminal, text)


def print_markdown(terminal: Terminal, text: str) -> None:
    """Print Markdown, with workflow commands switched off on a runner."""
    if in_actions():
        terminal.commands(report_annotations.stop_commands(text, secrets.token_hex(16)).split("\n"))
    else:
        terminal.raw(text)


async def post(
    address: host.RepositoryAddress,
    author: Author,
    request: Request,
    event: job_events.Event | None,
) -> CommentResult:
    """Post or update the comment on its pull request; raises ForgeError."""
    async with GitHub(address, author=author) as github:
        number, head_sha = await _target(github, request, event)
        if number is None:
            return CommentResult(None, None)
        text = _text(request, _origin(event, head_sha, address))
        if request.quiet and not await sticky_comment.has_comment(github, number, text):
            return CommentResult(number, None)
        posted = await sticky_comment.post(github, number, text)
        return CommentResult(number, posted, ours=github.is_ours(posted.comment))


async def pushes(
    address: host.RepositoryAddress, author: Author, key: str, event: job_events.Event
) -> int:
    """Return which push of its pull request an event is, 1 for the first; raises ForgeError."""
    assert event.number is not None
    async with GitHub(address, author=author) as github:
        head = event.head_sha or ""
        return await sticky_comment.push_number(github, event.number, key, head)


async def _target(
    github: GitHub, request: Request, event: job_events.Event | None
) -> tuple[int | None, str]:
    """Return the number of the pull request and the commit of the report."""
    number = request.number or (event.number if event else None)
    if event is not None and event.name == "workflow_run" and number is None:
        return await _of_other_workflow(github, event)
    if number is None:
        return None, ""
    if event is not None and event.head_sha and event.number == number:
        return number, event.head_sha
    return number, (await github.pull_request(number)).head_sha


async def _of_other_workflow(github: GitHub, event: job_events.Event) -> tuple[int | None, str]:
    """Find the pull request by its branch; ignore it if its commit is another."""
    if event.head_branch is None or event.head_sha is None:
        return None, ""
    pull = await github.find_pull_request(event.head_branch, owner=event.head_owner or "")
    same = pull is not None and pull.head_sha == event.head_sha
    return (pull.number if pull is not None and same else None), event.head_sha


def address_of(folder: Path) -> host.RepositoryAddress:
    """Return the repository of a job, or of the remote `origin` of a folder."""
    return host.repository_address(os.environ, remote=_origin_remote(folder))


def _origin_remote(folder: Path) -> str | None:
    """Return the address of the remote `origin`."""
    try:
        answer = command.run_git("config", "--get", "remote.origin.url", cwd=folder)
    except (UsageError, OSError):
        return None
    return answer.line if answer.code == 0 else None


def show_comment(terminal: Terminal, result: CommentResult, event: job_events.Event | None) -> None:
    """Print the outcome of posting a comment."""
    posted = result.posted
    if posted is None:
        name = event.name if event else "this"
        terminal.result(f"no pull request to comment on ({name})")
        return
    words = {
        sticky_comment.Outcome.CREATED: "commented",
        sticky_comment.Outcome.UPDATED: "updated the comment",
        sticky_comment.Outcome.UNCHANGED: "the comment is up to date",
        sticky_comment.Outcome.SUPERSEDED: "kept a newer report",
    }
    terminal.result(f"{words[posted.outcome]}: {posted.comment.url}")
    if posted.removed:
        terminal.result(f"removed {len(posted.removed)} duplicate comments")
    if not result.ours:
        login = posted.comment.author.login
        terminal.note(
            StyledText("warning:", ODD),
            f" the token belongs to {login!r}: use --author {login}, or the next report will be "
            "a new comment",
        )


def as_json(
    result: CommentResult, reason: str | None = None, hint: str | None = None
) -> dict[str, Any]:
    """Return the outcome of posting a comment, or the reason why there is none."""
    posted = result.posted
    outcome = posted.outcome if posted else ("failed" if reason else "none")
    return {
        "outcome": str(outcome),
        "pull_request": result.number,
        "comment_id": posted.comment.id if posted else None,
        "url": posted.comment.url if posted else None,
        "removed": list(posted.removed) if posted else [],
        "reason": reason,
        "hint": hint,
    }


def show_failure(terminal: Terminal, error: ForgeError, event: job_events.Event | None) -> str:
    """Print why there is no comment and what to do about it; return the advice."""
    untrusted = event is not None and not event.trusted
    advice = events.permission_hint(error, events.COMMENT, untrusted=untrusted)
    terminal.note(StyledText("warning:", ODD), f" no comment was posted: {error.message}")
    for line in advice.splitlines():
        terminal.note(f"  {line}" if line else "")
    problem = Problem(Location(""), "comment", error.message, advice, Severity.WARNING)
    terminal.annotate([problem])
    return advice


def _site(state: CliState) -> sites.Site | None:
    """Return the project, if there is one; the actor must be allowed to read its results."""
    try:
        site = lookup.open_site(state)
    except (ProjectNotFound, ConfigError):
        return None  # an invalid edison.yaml may be what there is to report
    site.require(sites.Role.VIEWER, _ACTION)
    return site


def newest_audit(site: sites.Site | None) -> AuditHead | None:
    """Return the newest row of the audit log; None if it cannot be read.

    Rows about comments do not count, or each comment would make the one before it out of date.
    """
    return None if site is None else audit_log.newest_row(site, without=_ACTION)


def audit(site: sites.Site | None, result: CommentResult) -> None:
    """Record in the audit log that a comment was made or changed, if that is possible."""
    posted = result.posted
    changed = {sticky_comment.Outcome.CREATED, sticky_comment.Outcome.UPDATED}
    if site is None or posted is None or not site.results.exists() or posted.outcome not in changed:
        return
    action = f"{_ACTION}: {posted.outcome}"
    entity = f"pull request {result.number}"
    # The comment is posted; a failure to record it must not change the verdict.
    with contextlib.suppress(EdisonError):
        site.record(site.actor(), action, entity, after=posted.comment.url)


def comment_data(site: Site, number: int, author: str) -> list[dict[str, Any]]:
    """Return the data in the comments that this tool made on a pull request."""
    address = address_of(site.root)

    async def read() -> list[dict[str, Any]]:
        async with github_forge.GitHub(address, author=github_forge.Author(author)) as github:
            return await sticky_comment.read_data(github, number, "edison")

    return asyncio.run(read())
