"""Proposals: a suggestion as a branch, a pull request, or suggested lines in an open pull request.

The working tree and the index are not touched: commits are made from objects on a separate branch
and pushed without force. A suggestion is found again by the trailer of its commit, so it is never
proposed twice, even from different machines.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.access.events import read_event
from edison_ci.access.site import Role
from edison_ci.documents.files import make_folder
from edison_ci.documents.secrets import hidden
from edison_ci.documents.text_diff import matcher
from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.git.command import fetch
from edison_ci.git.forge import Change, ProposalAction, ProposalResult, SuggestedLines
from edison_ci.proposals.branches import (
    BranchState,
    PlainGit,
    branch_prefix,
    branches_with,
    find_branch_in_git,
    find_branch_on_github,
)
from edison_ci.proposals.context import ReviewContext, needs_repository
from edison_ci.proposals.prompt_file import (
    apply_suggestion,
    experiment_of,
    is_base,
    prompt_in,
    stale_suggestion,
)
from edison_ci.proposals.proposal_text import (
    MOST_EXAMPLES,
    Example,
    ProposalText,
    marker,
    message_of,
    proposal_body,
    title_of,
)
from edison_ci.records import SuggestionStatus
from edison_ci.results.weaknesses import example_answer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from edison_ci.access.events import Event
    from edison_ci.access.site import Actor
    from edison_ci.git.forge import PullRequest, ReviewForge, Timing
    from edison_ci.git.repository import Repository
    from edison_ci.store.suggestions import Suggestion


_MOST_PARENTS = 5
"""Commits of a branch that are searched for the base version."""


class Base(NamedTuple):
    """A branch with the version that a suggestion changes."""

    branch: str
    commit: str
    data: bytes
    """The prompt's file there."""


class PushStrategy(Protocol):
    """How a change is pushed to a branch."""

    async def find(self, suggestion: Suggestion) -> BranchState:
        """Return the branch that already has the suggestion."""
        ...

    async def base(self, suggestion: Suggestion, made: str | None) -> Base:
        """Return the base of the change; `made` is its commit, if there is one already."""
        ...

    async def put(self, change: Change) -> tuple[str, ProposalAction]:
        """Create the commit and push it."""
        ...

    def patch_of(self, commit: str) -> bytes:
        """Return the commit as a patch; empty where none is needed."""
        ...


@dataclass(frozen=True, slots=True)
class ByGit:
    """Push with Git, here and at the remote."""

    review: ReviewContext

    @property
    def _plain(self) -> PlainGit:
        return PlainGit(needs_repository(self.review), self.review.hosting.remote)

    async def find(self, suggestion: Suggestion) -> BranchState:
        """Return the branch with the suggestion, here or at the remote."""
        plain = self._plain
        experiment, key = suggestion.experiment, suggestion.hash
        return await asyncio.to_thread(
            find_branch_in_git, plain.repository, plain.remote, experiment, key
        )

    async def base(self, suggestion: Suggestion, made: str | None) -> Base:
        """Return the branch with the base version, at the remote or else here."""
        return await asyncio.to_thread(self._base, suggestion, made)

    async def put(self, change: Change) -> tuple[str, ProposalAction]:
        """Create the commit from objects and push it."""
        return await self._plain.put(change)

    def patch_of(self, commit: str) -> bytes:
        """Return the commit as a patch."""
        return self._plain.patch_of(commit)

    def _base(self, suggestion: Suggestion, made: str | None) -> Base:
        review, repository, remote = self.review, self._plain.repository, self._plain.remote
        place, names = review.in_repository(suggestion.path), branch_names(review)
        for _ in range(_MOST_PARENTS if made and names else 0):
            made = next(iter(repository.parents(made)), None) if made else None
            data = repository.read(made, place) if made else None
            if made and data is not None and is_base(review.project, suggestion, data):
                return Base(self._branch_with(made, names), made, data)
        prompt = None
        for name in names:
            commit = branch_tip(repository, remote, name)
            data = repository.read(commit, place) if commit else None
            if commit and data is not None and is_base(review.project, suggestion, data):
                return Base(name, commit, data)
            prompt = prompt or prompt_in(review.project, suggestion.path, data)
        where = f"{remote}/{names[0]}" if remote else names[0] if names else "no branch"
        error = stale_suggestion(suggestion, prompt, where)
        head = repository.head()
        here = repository.read(head, place) if head else None
        if remote and is_base(review.project, suggestion, here):
            error.hint = f"that version is not pushed to {remote} yet: git push first"
        raise error

    def _branch_with(self, commit: str, names: Sequence[str]) -> str:
        """Return the branch that a proposal started from: one whose history has its parent."""
        repository, remote = self._plain.repository, self._plain.remote
        tips = {name: branch_tip(repository, remote, name) for name in names}
        containing = branches_with(repository, remote, commit)
        tipped = (name for name, tip in tips.items() if tip == commit)
        likely = (*tipped, *(name for name in names if name in containing), *containing, *names)
        return likely[0]


@dataclass(frozen=True, slots=True)
class ByGitHub:
    """Push through the GitHub API, for jobs with a shallow checkout; GitHub signs the commit."""

    review: ReviewContext
    github: ReviewForge

    async def find(self, suggestion: Suggestion) -> BranchState:
        """Return the branch with the suggestion on GitHub."""
        return await find_branch_on_github(self.github.git, suggestion.experiment, suggestion.hash)

    async def base(self, suggestion: Suggestion, made: str | None) -> Base:
        """Return the branch with the base version on GitHub."""
        event, place = current_event(), self.review.in_repository(suggestion.path)
        of_event = (event.default_branch, event.head_branch) if event is not None else ()
        names = [*dict.fromkeys([*filter(None, of_event), *branch_names(self.review)])]
        for _ in range(_MOST_PARENTS if made and names else 0):
            parents = (await self.github.git.commit(made)).parents if made else ()
            made = parents[0] if parents else None
            data = await self.github.read_file(place, ref=made) if made else None
            if made and data is not None and is_base(self.review.project, suggestion, data):
                return Base(await self._branch_with(made, names, suggestion), made, data)
        prompt = None
        for name in names:
            commit = await self.github.git.tip(name)
            data = await self.github.read_file(place, ref=commit) if commit else None
            if commit and data is not None and is_base(self.review.project, suggestion, data):
                return Base(name, commit, data)
            prompt = prompt or prompt_in(self.review.project, suggestion.path, data)
        raise stale_suggestion(suggestion, prompt, names[0] if names else "no branch")

    async def _branch_with(self, parent: str, names: Sequence[str], suggestion: Suggestion) -> str:
        """Return the branch that a proposal started from, by the parent of its commit."""
        tips = {name: await self.github.git.tip(name) for name in names}
        if at_parent := [name for name in names if tips[name] == parent]:
            return at_parent[0]
        place = self.review.in_repository(suggestion.path)
        for name, tip in tips.items():
            data = await self.github.read_file(place, ref=tip) if tip else None
            if is_base(self.review.project, suggestion, data):
                return name
        return names[0]

    async def put(self, change: Change) -> tuple[str, ProposalAction]:
        """Create the commit and the branch."""
        return await self.github.put_branch(change)

    def patch_of(self, _: str) -> bytes:
        """Return nothing: the commit is on GitHub."""
        return b""


def current_event() -> Event | None:
    """Return the event of this GitHub Actions job; None outside of one."""
    return read_event(os.environ) if os.environ.get("GITHUB_EVENT_NAME") else None


def branch_names(review: ReviewContext) -> list[str]:
    """Return the default branch and the current one, without branches of edison."""
    repository, remote = needs_repository(review), review.hosting.remote
    default = repository.default_branch()
    short = default.removeprefix(f"{remote}/") if default and remote else default
    names = dict.fromkeys(name for name in (short, repository.branch()) if name)
    return [name for name in names if not name.startswith("edison/") or name == short]


def branch_tip(repository: Repository, remote: str | None, name: str) -> str | None:
    """Return the commit of a branch, fetched from the remote if there is one; None without it."""
    ref = f"refs/heads/{name}"
    if remote is not None:
        ref = f"refs/remotes/{remote}/{name}"
        fetch(repository.root, remote, "--quiet", wanted=f"+refs/heads/{name}:{ref}")
    try:
        return repository.resolve(ref)
    except UsageError:
        return None


# GitHub accepts suggested lines only where the diff of the pull request shows them. If a part of
# the suggestion is elsewhere, no lines are suggested: half a change was never measured.
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def visible_lines(patch: str) -> frozenset[int]:
    """Return the line numbers of the new file that a diff shows."""
    visible: set[int] = set()
    at = 0
    for line in patch.split("\n"):
        if match := _HUNK.match(line):
            at = int(match[1])
        elif at and line[:1] in (" ", "+", ""):
            visible.add(at)
            at += 1
    return frozenset(visible)


def suggested_lines(path: str, before: str, after: str, note: str = "") -> list[SuggestedLines]:
    """Return the line replacements that turn one text into the other."""
    old, new = before.split("\n"), after.split("\n")
    suggested: list[SuggestedLines] = []
    for first, last, replacement in _parts(old, new):
        text = "\n".join(replacement)
        suggested.append(SuggestedLines(path, first, last, text, note if not suggested else ""))
    return suggested


def _parts(old: list[str], new: list[str]) -> Iterator[tuple[int, int, list[str]]]:
    """Yield first and last replaced line (from 1), and the replacement."""
    for what, i1, i2, j1, j2 in matcher(old, new).get_opcodes():
        if what == "equal":
            continue
        if i1 == i2:  # an insertion: repeat the line before it
            if i1 == 0:
                yield 1, 1, [*new[j1:j2], old[0]]
            else:
                yield i1, i1, [old[i1 - 1], *new[j1:j2]]
        elif new[j1:j2] == [""] and i1 > 0:  # a lone blank line would read as a deletion
            yield i1, i2, [old[i1 - 1], ""]
        else:
            yield i1 + 1, i2, new[j1:j2]


def fits_diff(suggested: list[SuggestedLines], visible: frozenset[int]) -> bool:
    """Whether the diff shows every line that would be replaced."""
    return bool(suggested) and all(
        line in visible
        for lines in suggested
        for line in range(lines.first_line, lines.last_line + 1)
    )


def examples_of(connection: sqlite3.Connection, suggestion: Suggestion) -> tuple[Example, ...]:
    """Return the examples of a suggestion that are still stored."""
    listed = suggestion.evidence.get("examples")
    cells = [str(cell) for cell in listed] if isinstance(listed, list) else []
    examples = (_example(connection, cell) for cell in cells[:MOST_EXAMPLES])
    return tuple(example for example in examples if example is not None)


def _example(connection: sqlite3.Connection, cell: str) -> Example | None:
    answer = example_answer(connection, cell)
    return None if answer is None else Example(*answer)


_MOST_ATTEMPTS = 3
_OVER = {
    SuggestionStatus.REFUSED: "broke a guardrail",
    SuggestionStatus.APPLIED: "is already in the repository",
    SuggestionStatus.REJECTED: "was rejected",
    SuggestionStatus.SUPERSEDED: "was superseded",
}


@dataclass(frozen=True, slots=True)
class ProposeOptions:
    """Options of `edison propose`."""

    open_pr: bool = False
    force: bool = False
    """Propose it even if it is not shown to help."""


@dataclass(frozen=True, slots=True)
class ProposedSuggestion:
    """A proposed suggestion, and where to review it."""

    suggestion: Suggestion
    action: ProposalAction
    base: str
    compare_url: str | None = None
    patch: Path | None = None
    why: str = ""
    """Why there is no pull request, or no new one."""
    lines: int = 0
    """Number of suggested changes in the open pull request of another author."""


async def propose_suggestion(
    review: ReviewContext,
    suggestion: Suggestion,
    options: ProposeOptions,
    *,
    timing: Timing | None = None,
) -> ProposedSuggestion:
    """Propose a suggestion as a branch, pull request or suggested lines, and store where."""
    actor = review.require(Role.EDITOR, "propose", suggestion)
    return await propose_as(review, actor, suggestion, options, timing=timing)


async def propose_as(
    review: ReviewContext,
    actor: Actor,
    suggestion: Suggestion,
    options: ProposeOptions,
    *,
    timing: Timing | None = None,
) -> ProposedSuggestion:
    """Propose a suggestion in the name of a person whose role was checked."""
    _refuse_unfit(suggestion, force=options.force)
    _refuse_odd(review, suggestion)
    needs_repository(review)
    async with review.github(timing) as github:
        done = await _propose(review, suggestion, options, github)
    proposed = done.suggestion
    if done.action is ProposalAction.UNCHANGED and proposed == suggestion:
        return done
    changes = {
        "branch": proposed.branch,
        "pull_request": proposed.pull_request,
        "pull_request_url": proposed.pull_request_url,
        "commit_id": proposed.commit_id,
        "forced": suggestion.forced or not suggestion.proven,
    }
    to = (
        suggestion.status
        if suggestion.status is SuggestionStatus.APPROVED
        else SuggestionStatus.PROPOSED
    )
    moved = review.move(actor, "propose", suggestion, to, **changes)
    return dataclasses.replace(done, suggestion=moved)


def _refuse_unfit(suggestion: Suggestion, *, force: bool) -> None:
    if state := _OVER.get(suggestion.status):
        because = f": {suggestion.reason}" if suggestion.reason else ""
        raise UsageError(
            f"suggestion {suggestion.id} {state}{because}", hint="make a new one: edison refine"
        )
    insisted = force or suggestion.forced or suggestion.status is SuggestionStatus.APPROVED
    if not suggestion.proven and not insisted:
        why = suggestion.evidence.get("sentence")
        raise UsageError(
            f"suggestion {suggestion.id} is not shown to help{f': {why}' if why else ''}",
            hint="propose it anyway, marked as unproven: --force",
        )


def _refuse_odd(review: ReviewContext, suggestion: Suggestion) -> None:
    """Raise for a branch name that edison does not create: the results may be manipulated."""
    experiment = experiment_of(review.project, suggestion)
    branch = suggestion.branch
    if branch is not None and not branch.startswith(branch_prefix(experiment.id)):
        raise UsageError(
            f"suggestion {suggestion.id} names the branch {branch!r}, which edison did not create",
            hint="the results file was changed by hand: compare it with a backup",
        )


async def _propose(
    review: ReviewContext,
    suggestion: Suggestion,
    options: ProposeOptions,
    github: ReviewForge | None,
) -> ProposedSuggestion:
    if github is not None and options.open_pr and suggestion.branch is None:
        pull = await _own_pull_request(review, github)
        done = pull and await _suggest_lines(review, github, pull, suggestion)
        if done:
            return done
    strategy: PushStrategy = ByGit(review)
    if review.hosting.by_api and github is not None:
        strategy = ByGitHub(review, github)
    for left in range(_MOST_ATTEMPTS)[::-1]:
        branch = await strategy.find(suggestion)
        if branch.merged:
            raise UsageError(
                f"suggestion {suggestion.id} is already merged as {branch.commit}",
                hint="run edison review sync",
            )
        base = await strategy.base(suggestion, branch.commit)
        change = _change(review, suggestion, base, branch)
        try:
            proposed = await _put(strategy, change, branch, github if options.open_pr else None)
        except ForgeError as error:
            # Another process took the branch name meanwhile: try the next one.
            if not (left and change.fresh and error.fault is ForgeFault.CONFLICT):
                raise
        else:
            break
    return _result(review, suggestion, base, proposed)


async def _put(
    strategy: PushStrategy, change: Change, branch: BranchState, github: ReviewForge | None
) -> ProposalResult:
    put = strategy.put
    if branch.shared and branch.commit is not None:
        # The branch is already pushed and may have further commits: leave it alone.
        put = partial(_unchanged, branch.commit)
    if github is not None:
        return await github.propose(change, put=put)
    commit, action = await put(change)
    return ProposalResult(change.branch, commit, action, patch=strategy.patch_of(commit))


async def _unchanged(commit: str, _: Change) -> tuple[str, ProposalAction]:
    return commit, ProposalAction.UNCHANGED


def _change(
    review: ReviewContext, suggestion: Suggestion, base: Base, branch: BranchState
) -> Change:
    after = apply_suggestion(review.project, suggestion, base.data)
    return Change(
        # An edited suggestion is committed on top of the original.
        branch=branch.branch or suggestion.branch or branch.name_for(suggestion.experiment),
        base=base.branch,
        base_commit=base.commit,
        files={review.in_repository(suggestion.path): after},
        key=suggestion.hash,
        title=title_of(suggestion),
        body=proposal_body(_proposal_text(review, suggestion)),
        message=message_of(suggestion),
        fresh=branch.commit is None and suggestion.branch is None,
    )


def _proposal_text(
    review: ReviewContext, suggestion: Suggestion, *, lines_only: bool = False
) -> ProposalText:
    examples = review.read(lambda connection: examples_of(connection, suggestion))
    return ProposalText(suggestion, examples, review.private, lines_only)


def _result(
    review: ReviewContext, suggestion: Suggestion, base: Base, proposed: ProposalResult
) -> ProposedSuggestion:
    pull, hosting = proposed.pull_request, review.hosting
    updated = dataclasses.replace(suggestion, branch=proposed.branch, commit_id=proposed.commit)
    if pull is not None:
        updated = dataclasses.replace(updated, pull_request=pull.number, pull_request_url=pull.url)
    if updated.pull_request is not None:
        return ProposedSuggestion(updated, proposed.action, base.branch, why=proposed.why)
    link = hosting.compare_url(base.branch, proposed.branch)
    patch = None
    if proposed.patch and link is None:
        # A patch may be sent around, so secrets are masked in it.
        safe = hidden(proposed.patch.decode("utf-8", "surrogateescape"))
        name = f"{proposed.branch.rpartition('/')[2]}.patch"
        patch = write_draft(review, name, safe.encode("utf-8", "surrogateescape"))
    why = proposed.why
    if not why and link is not None:
        why = "to open a pull request, use --open-pr"
        if hosting.address is None:
            why = "there is no GitHub token: export GITHUB_TOKEN, or open it by hand"
    return ProposedSuggestion(updated, proposed.action, base.branch, link, patch, why)


def write_draft(review: ReviewContext, name: str, data: bytes) -> Path:
    """Write a file to the drafts folder, which Git ignores."""
    try:
        make_folder(review.drafts)
        target = review.drafts / name
        target.write_bytes(data)
    except OSError as error:
        raise UsageError(
            f"{review.drafts} cannot be written: {error.strerror}", hint="check its permissions"
        ) from None
    return target


async def _own_pull_request(review: ReviewContext, github: ReviewForge) -> PullRequest | None:
    """Return the open pull request of the current branch or event, unless edison opened it."""
    event = current_event()
    if event is not None and event.number is not None and event.trusted:
        pull = await github.pull_request(event.number)
    else:
        branch = needs_repository(review).branch()
        own = await github.find_pull_request(branch) if branch else None
        if own is None:
            return None
        pull = own
    ours = pull.head_ref.startswith("edison/")
    return pull if pull.state == "open" and not ours else None


async def _suggest_lines(
    review: ReviewContext, github: ReviewForge, pull: PullRequest, suggestion: Suggestion
) -> ProposedSuggestion | None:
    """Suggest lines in a pull request that changes the prompt; None if that is not possible."""
    place = review.in_repository(suggestion.path)
    files = await github.changed_files(pull.number)
    changed = next((one for one in files if one.path == place and one.status != "removed"), None)
    if changed is None:
        return None
    data = await github.read_file(place, ref=pull.head_sha)
    if data is None or not is_base(review.project, suggestion, data):
        return None
    after = apply_suggestion(review.project, suggestion, data)
    note = f"{marker(suggestion)}\n{title_of(suggestion)}"
    lines = suggested_lines(place, data.decode(), after.decode(), note)
    if not fits_diff(lines, visible_lines(changed.patch)):
        return None
    known = [one for one in await github.reviews.line_comments(pull.number)
             if marker(suggestion) in one.body]  # fmt: skip
    if not known:
        body = proposal_body(_proposal_text(review, suggestion, lines_only=True))
        await github.reviews.suggest(pull.number, lines, commit=pull.head_sha, body=body)
    one = dataclasses.replace(suggestion, pull_request=pull.number, pull_request_url=pull.url)
    action = ProposalAction.UNCHANGED if known else ProposalAction.CREATED
    why = "the pull request changes the prompt, so lines are suggested there"
    return ProposedSuggestion(one, action, pull.base_ref, why=why, lines=len(lines))


def newest(suggestions: list[Suggestion], *, force: bool) -> Suggestion | None:
    """Return the newest suggestion to propose; None if there is none."""
    proposed = [
        suggestion
        for suggestion in suggestions
        if suggestion.status is SuggestionStatus.PROPOSED
        and (force or suggestion.proven or suggestion.forced)
    ]
    waiting = [
        suggestion
        for suggestion in proposed
        if suggestion.branch is None and suggestion.pull_request is None
    ]
    tried = [
        suggestion for suggestion in suggestions if suggestion.status is SuggestionStatus.TRIED
    ]
    return next(iter([*waiting, *proposed, *(tried if force else [])]), None)
