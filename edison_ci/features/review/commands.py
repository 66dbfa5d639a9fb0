"""edison review and propose: suggested prompt changes, their pull requests and decisions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci.access import events
from edison_ci.cli import lookup
from edison_ci.cli import suggestion as cli_suggestion
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.features.review import decision
from edison_ci.features.review import decision as review_decision
from edison_ci.features.review import sync as review_sync
from edison_ci.git import forge as models
from edison_ci.numeric import change, counted
from edison_ci.plan import versions
from edison_ci.proposals import approvals, context, prompt_file, proposal
from edison_ci.records import OPEN_STATUSES, SuggestionStatus

if TYPE_CHECKING:
    from edison_ci.features.review.decision import DecisionResult
    from edison_ci.proposals.proposal import ProposedSuggestion
    from edison_ci.store.suggestions import Suggestion, SuggestionComment


MAX_EDITED_BYTES = 1_000_000


@click.group(cls=EdisonGroup)
def review() -> None:
    """Review suggested prompt changes.

    SUGGESTION is an id or its first digits. A suggestion with a pull request is decided on GitHub,
    with the account of GITHUB_TOKEN; others are decided in the project. Decisions need a role that
    allows them, and are refused while the experiment is running.

    Examples:
      edison review list
      edison review show 3f9a41
      edison review approve 3f9a41
      edison review reject 3f9a41 --reason "too formal"
      edison review sync
    """


@review.command("list", cls=EdisonCommand)
@click.option("--all", "everything", is_flag=True, help="Also list decided suggestions.")
@click.option("--experiment", metavar="NAME", help="List only suggestions for this experiment.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([str(status) for status in SuggestionStatus]),
    help="List only suggestions with this status; repeatable.",
)
@click.pass_obj
def list_open(
    state: CliState, everything: bool, experiment: str | None, statuses: tuple[str, ...]
) -> None:
    """List open suggestions.

    Newest first: tried (no evidence that it helps), proposed, and approved but not merged. --all
    also lists refused, applied, rejected and superseded ones.

    Examples:
      edison review list
      edison review list --all --experiment support-reply
      edison review list --status rejected --json
    """
    terminal = Terminal(state)
    review = context.ReviewContext.of(lookup.open_readable_project(state, terminal), offline=True)
    shown_statuses = [SuggestionStatus(status) for status in statuses] or (
        () if everything else sorted(OPEN_STATUSES)
    )
    listed: list[Suggestion] = []
    if review.site.results.exists():
        listed = review.suggestions(experiment=experiment, statuses=shown_statuses)
    if terminal.json:
        terminal.document({"suggestions": [suggestion.as_json() for suggestion in listed]})
        return
    if not listed:
        terminal.note("there are no open suggestions; request one: edison refine")
        return
    head = ("suggestion", "status", "experiment", "prompt", "unseen cases", "targets", "where", "")
    terminal.table([head, *(_row(suggestion) for suggestion in listed)], totals=0)


def _row(suggestion: Suggestion) -> tuple[str, ...]:
    holdout = suggestion.evidence.get("holdout")
    difference = holdout.get("difference") if isinstance(holdout, dict) else None
    effect = "-"
    if isinstance(difference, dict):
        effect = change(difference.get("estimate"), difference.get("low"), difference.get("high"))
    where = suggestion.branch or "-"
    if suggestion.pull_request is not None:
        where = f"#{suggestion.pull_request}"
    marks = [suggestion.simulation] if suggestion.simulated else []
    marks += ["unproven"] if suggestion.forced else []
    targets = ", ".join(suggestion.targets)
    return (
        suggestion.id,
        str(suggestion.status),
        suggestion.experiment,
        suggestion.prompt,
        effect,
        targets,
        where,
        ", ".join(marks),
    )


@review.command("show", cls=EdisonCommand)
@click.argument("suggestion")
@click.pass_obj
def show(state: CliState, suggestion: str) -> None:
    """Show a suggestion with its diff and its evidence.

    Examples:
      edison review show 3f9a41
      edison review show 3f9a41 --json
    """
    terminal = Terminal(state)
    project = lookup.refuse_texts_in_log(lookup.open_readable_project(state, terminal))
    review = context.ReviewContext.of(project, offline=True)
    chosen = review.find(suggestion)
    comments = review.comments(chosen)
    count = approvals.stored_approvals(review, chosen)
    if terminal.json:
        listed = [comment._asdict() for comment in comments]
        more = {"comments": listed, "approvals": {"needed": count.needed, "by": [*count.by]}}
        terminal.document({"suggestions": [{**chosen.as_json(), **more}]})
        return
    cli_suggestion.show_suggestion(terminal, chosen)
    if count.needed > 1 and chosen.pull_request is None:
        terminal.result(f"  {count.words}")
    _show_status(terminal, chosen, comments)


def _show_status(
    terminal: Terminal, suggestion: Suggestion, comments: list[SuggestionComment]
) -> None:
    new = f" to {versions.short(suggestion.new_hash)}" if suggestion.new_hash else ""
    terminal.result(
        f"  version {versions.short(suggestion.base_hash)}{new} of {suggestion.prompt} "
        f"in {suggestion.experiment}"
    )
    if suggestion.edited_from is not None:
        terminal.result(f"  edited by hand from {suggestion.edited_from}")
    if suggestion.branch is not None:
        terminal.result(f"  branch {suggestion.branch}")
    if suggestion.pull_request_url is not None:
        terminal.result(f"  pull request {suggestion.pull_request_url}")
    if suggestion.decided_by or suggestion.decided_at:
        when = f" on {suggestion.decided_at[:10]}" if suggestion.decided_at else ""
        terminal.result(f"  {suggestion.status} by {suggestion.decided_by or 'unknown'}{when}")
    if suggestion.reason:
        terminal.result(f"  because: {suggestion.reason}")
    for comment in comments:
        terminal.result(StyledText(f"  {comment.actor}", bold=True), f" ({comment.made_at[:10]}):")
        for line in comment.text.split("\n"):
            terminal.result(f"    {line}")
    if suggestion.status is SuggestionStatus.PROPOSED:
        terminal.note(f"accept it:  edison review approve {suggestion.id}")
        terminal.note(f'reject it:  edison review reject {suggestion.id} --reason "..."')


@review.command(cls=EdisonCommand)
@click.argument("suggestion")
@click.option(
    "--merge", is_flag=True, help="Merge the pull request, if branch protection allows it."
)
@click.pass_obj
def approve(state: CliState, suggestion: str, merge: bool) -> None:
    """Approve a suggestion.

    With a pull request it adds an approving review with your account, and merges only with --merge.
    Without one it commits the change to the current branch; the prompt file must have no
    uncommitted changes. If settings.approvals is more than 1, the change is made with the last
    approval; one's own edit does not count. Needs the role reviewer.

    Examples:
      edison review approve 3f9a41
      edison review approve 3f9a41 --merge
    """
    terminal = Terminal(state)
    review = context.ReviewContext.of(lookup.open_project(state), offline=state.offline)
    chosen = review.find(suggestion)
    _show_decision(terminal, asyncio.run(decision.approve(review, chosen, merge=merge)))


@review.command(cls=EdisonCommand)
@click.argument("suggestion")
@click.option(
    "--reason", required=True, metavar="TEXT", help="The reason; the next refinement gets it."
)
@click.pass_obj
def reject(state: CliState, suggestion: str, reason: str) -> None:
    """Reject a suggestion with a reason.

    Closes its pull request, with the reason as a comment. Needs the role reviewer.

    Examples:
      edison review reject 3f9a41 --reason "sounds like a form letter"
    """
    terminal = Terminal(state)
    review = context.ReviewContext.of(lookup.open_project(state), offline=state.offline)
    chosen = review.find(suggestion)
    _show_decision(terminal, asyncio.run(review_decision.reject(review, chosen, reason)))


@review.command(cls=EdisonCommand)
@click.argument("suggestion")
@click.argument("text")
@click.pass_obj
def comment(state: CliState, suggestion: str, text: str) -> None:
    """Comment on a suggestion.

    The comment is stored with the suggestion and posted on its pull request. Needs the role
    reviewer.

    Examples:
      edison review comment 3f9a41 "What about refunds?"
    """
    terminal = Terminal(state)
    review = context.ReviewContext.of(lookup.open_project(state), offline=state.offline)
    chosen = review.find(suggestion)
    done = asyncio.run(review_decision.comment(review, chosen, text))
    _show_decision(terminal, done, word="commented")


@review.command(cls=EdisonCommand)
@click.argument("suggestion")
@click.option(
    "--from",
    "source",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Read the edited prompt from a file instead of an editor.",
)
@click.pass_obj
def edit(state: CliState, suggestion: str, source: Path | None) -> None:
    """Edit a suggestion before it is approved.

    Opens the changed prompt in $VISUAL or $EDITOR. The saved text is checked against the guardrails
    and becomes a new suggestion, marked as not measured, which supersedes the old one. A refused
    text is saved to a file, so that no edit is lost. Needs the role editor.

    Examples:
      edison review edit 3f9a41
      edison review edit 3f9a41 --from better.md
    """
    terminal = Terminal(state)
    review = context.ReviewContext.of(lookup.open_project(state), offline=state.offline)
    chosen = review.find(suggestion)
    actor = prompt_file.may_edit(review, chosen)
    text = _edited_text(review, chosen, source)
    try:
        new = prompt_file.edit_suggestion(review, actor, chosen, text)
    except prompt_file.GuardrailsBroken as error:
        kept = source or proposal.write_draft(
            review, f"{chosen.id}.edited.md", text.encode("utf-8")
        )
        error.hint = f"your text is kept: edison review edit {chosen.id} --from {kept}"
        raise
    if terminal.json:
        terminal.document({"suggestions": [new.as_json()], "superseded": [chosen.id]})
        return
    cli_suggestion.show_suggestion(terminal, new)
    terminal.result(f"{chosen.id} is superseded by {new.id}, which was not measured")
    if new.branch is not None:
        terminal.note(f"update its branch: edison propose {new.id} --open-pr")
    else:
        terminal.note(f"accept it: edison review approve {new.id}")


def _edited_text(review: context.ReviewContext, suggestion: Suggestion, source: Path | None) -> str:
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
        return prompt_file.read_edited(data)
    text = click.edit(prompt_file.text_to_edit(review, suggestion), extension=".md")
    if text is None:
        raise UsageError("nothing was changed", hint="save the file before you leave the editor")
    return text.replace("\r\n", "\n")


@review.command(cls=EdisonCommand)
@click.pass_obj
def sync(state: CliState) -> None:
    """Sync suggestions with the state of their pull requests.

    A merged pull request is applied, a closed one is rejected; the reason is the last comment of a
    member of the repository. Without GitHub it checks whether the default branch has the change.
    Needs the role reviewer.

    Examples:
      edison review sync
      edison review sync --json
    """
    terminal = Terminal(state)
    review = context.ReviewContext.of(lookup.open_project(state), offline=state.offline)
    done = asyncio.run(review_sync.sync(review))
    if terminal.json:
        documents = [suggestion.as_json() for suggestion in done.changed]
        terminal.document(
            {"suggestions": documents, "looked_at": done.checked, "problems": done.problems}
        )
        return
    for suggestion in done.changed:
        _show_decided(terminal, suggestion)
    for problem in done.problems:
        terminal.note(StyledText("warning: ", ODD), problem)
    if not done.changed:
        terminal.note(f"nothing has changed; {counted(done.checked, 'suggestion')} checked")


def _show_decision(terminal: Terminal, done: DecisionResult, *, word: str = "") -> None:
    if terminal.json:
        document: dict[str, Any] = {"suggestions": [done.suggestion.as_json()]}
        terminal.document({**document, "notes": [*done.notes], "superseded": [*done.superseded]})
    elif word:
        terminal.result(StyledText(done.suggestion.id, bold=True), f"  {word}")
    else:
        _show_decided(terminal, done.suggestion)
    for note in done.notes:
        terminal.note(StyledText("note: ", ODD), note)
    if done.superseded and not terminal.json:
        terminal.note(f"superseded by it: {', '.join(done.superseded)}")


def _show_decided(terminal: Terminal, suggestion: Suggestion) -> None:
    color = {SuggestionStatus.REJECTED: BAD, SuggestionStatus.SUPERSEDED: ODD}.get(
        suggestion.status, GOOD
    )
    commit = (
        f" as {suggestion.commit_id[:8]}"
        if suggestion.status is SuggestionStatus.APPLIED and suggestion.commit_id
        else ""
    )
    mark = simulated_label(suggestion.simulation)
    terminal.result(
        StyledText(suggestion.id, bold=True),
        "  ",
        StyledText(str(suggestion.status), color),
        f"{commit}: {suggestion.path}",
        *mark,
    )
    if suggestion.reason and suggestion.status is SuggestionStatus.REJECTED:
        terminal.result(f"  because: {suggestion.reason}")


@click.command(cls=EdisonCommand)
@click.argument("suggestion", required=False)
@click.option("--open-pr", is_flag=True, help="Open a pull request, or update it.")
@click.option(
    "--force", is_flag=True, help="Propose it even without evidence that it helps; marked unproven."
)
@click.pass_obj
def propose(state: CliState, suggestion: str | None, open_pr: bool, force: bool) -> None:
    """Push a suggestion to a branch and open a pull request.

    SUGGESTION is an id or its first digits; by default the newest one with evidence that it helps.
    If there is none, nothing is done. The branch is edison/refine/EXPERIMENT-N, with one commit.
    Its trailer Edison-Suggestion identifies the suggestion, so that no machine proposes it twice.
    The branch is pushed to the remote if there is one, never by force. Your branch, files and
    staged changes stay as they are.

    With --open-pr and a token in GITHUB_TOKEN it opens a pull request on GitHub. If the current
    branch has a pull request that changes the prompt, the lines are suggested there instead. If
    pull requests may not be opened, the command prints a link and exits with 0. Without GitHub it
    makes a branch and a patch; with --offline nothing is pushed.

    Examples:
      edison propose
      edison propose --open-pr
      edison propose 3f9a41 --force
    """
    terminal = Terminal(state)
    review = context.ReviewContext.of(lookup.open_project(state), offline=state.offline)
    if suggestion is None:
        chosen = proposal.newest(review.suggestions(), force=force)
    else:
        chosen = review.find(suggestion)
    if chosen is None:
        _show_nothing(terminal)
        return
    try:
        done = asyncio.run(
            proposal.propose_suggestion(review, chosen, proposal.ProposeOptions(open_pr, force))
        )
    except ForgeError as error:
        error.hint = _advice(error) or error.hint
        raise
    if terminal.json:
        terminal.document(_as_json(done))
        return
    _show_proposal(terminal, done, review.project.root, asked=open_pr)


def _show_nothing(terminal: Terminal) -> None:
    """Print that there is nothing to propose, which is not an error: workflows run it always."""
    if terminal.json:
        terminal.document({"suggestion": None, "outcome": "none", "pull_request": None})
        return
    terminal.result("nothing to propose: there is no suggestion with evidence that it helps")
    terminal.note("list them: edison review list; request another: edison refine")


def _advice(error: ForgeError) -> str:
    """Return the permissions that the job lacks, if that is why GitHub refused."""
    event = proposal.current_event()
    if event is None or error.fault is not ForgeFault.FORBIDDEN:
        return ""
    if not event.trusted:
        return "pull requests from forks and from Dependabot get a read-only token"
    needed = ", ".join(f"{name}: {how}" for name, how in events.PROPOSE.items())
    return f"the job needs permissions: {{{needed}}}"


def _show_proposal(
    terminal: Terminal, done: ProposedSuggestion, root: Path, *, asked: bool
) -> None:
    proposed = done.suggestion
    mark = simulated_label(proposed.simulation)
    unproven = (StyledText("  unproven", ODD),) if not proposed.proven else ()
    again = done.action is models.ProposalAction.UNCHANGED
    terminal.result(
        StyledText(proposed.id, bold=True),
        f"  {'was' if again else 'is'} ",
        StyledText("proposed", GOOD),
        f"{' already' if again else ''}: {proposed.path}",
        *unproven,
        *mark,
    )
    if done.lines:
        terminal.result(
            f"  {counted(done.lines, 'suggested change')} in {proposed.pull_request_url}"
        )
    if proposed.branch is not None:
        terminal.result(f"  branch        {proposed.branch}, for {done.base}")
    if proposed.pull_request_url is not None and not done.lines:
        terminal.result(f"  pull request  {proposed.pull_request_url}")
    if done.compare_url is not None:
        terminal.result(f"  open it here  {done.compare_url}")
    if done.patch is not None:
        inside = done.patch.is_relative_to(root)
        terminal.result(f"  patch         {done.patch.relative_to(root) if inside else done.patch}")
    if done.why and (asked or proposed.pull_request is not None):
        terminal.note(f"  {done.why}")
    if proposed.pull_request is None:
        terminal.note(f"accept it with: edison review approve {proposed.id}")


def _as_json(done: ProposedSuggestion) -> dict[str, Any]:
    return {
        "suggestion": done.suggestion.as_json(),
        "outcome": str(done.action),
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
