"""Proposals: a suggestion as a branch, a pull request, or lines to accept.

Nothing of whoever is at work here is touched: commits are made from objects, on a branch of their
own, and pushed without force. The same suggestion is found again by its trailer and never offered
twice, whichever machine it is offered from.
"""

from __future__ import annotations

import dataclasses
import re
from functools import partial
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import hidden
from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.forge.branches import prefix_of
from edison_ci.forge.models import Change, Deed, Proposed, SuggestedLines
from edison_ci.names import matcher
from edison_ci.operate.actors import Role
from edison_ci.report.proposal import (
    MOST_EXAMPLES,
    Example,
    Offer,
    marker,
    message_of,
    proposal_body,
    title_of,
)
from edison_ci.results.weak_answers import shown_answer
from edison_ci.review.desk import Desk, needs_repository
from edison_ci.review.refined import experiment_of, is_base, refined
from edison_ci.review.ways import Base, ByGit, ByGitHub, Way, current_branch, event_at_hand
from edison_ci.store.suggestions import Status, Suggestion

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.forge.api import Timing
    from edison_ci.forge.branches import Whereabouts
    from edison_ci.forge.github import GitHub
    from edison_ci.forge.models import PullRequest


# A forge takes suggested lines only where the pull request's diff shows them. If one part of the
# suggestion lies elsewhere, none of it is offered so: half a change was never measured.
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def lines_shown(patch: str) -> frozenset[int]:
    """Return the lines of the new file that a diff shows."""
    shown: set[int] = set()
    at = 0
    for line in patch.split("\n"):
        if found := _HUNK.match(line):
            at = int(found[1])
        elif at and line[:1] in (" ", "+", ""):
            shown.add(at)
            at += 1
    return frozenset(shown)


def suggested_lines(path: str, before: str, after: str, note: str = "") -> list[SuggestedLines]:
    """Return what to put in the place of which lines to get from one text to the other."""
    old, new = before.split("\n"), after.split("\n")
    found: list[SuggestedLines] = []
    for first, last, replacement in _parts(old, new):
        text = "\n".join(replacement)
        found.append(SuggestedLines(path, first, last, text, note if not found else ""))
    return found


def _parts(old: list[str], new: list[str]) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the first and last line that go, counted from 1, and what comes instead."""
    for what, i1, i2, j1, j2 in matcher(old, new).get_opcodes():
        if what == "equal":
            continue
        if i1 == i2:  # lines are only added: the one before them is said again
            if i1 == 0:
                yield 1, 1, [*new[j1:j2], old[0]]
            else:
                yield i1, i1, [old[i1 - 1], *new[j1:j2]]
        elif new[j1:j2] == [""] and i1 > 0:  # nothing but a blank line would read as nothing
            yield i1, i2, [old[i1 - 1], ""]
        else:
            yield i1 + 1, i2, new[j1:j2]


def fit(suggested: list[SuggestedLines], shown: frozenset[int]) -> bool:
    """Whether every line that goes is one that the diff shows."""
    return bool(suggested) and all(
        line in shown for each in suggested for line in range(each.first_line, each.last_line + 1)
    )


def examples_of(connection: sqlite3.Connection, suggestion: Suggestion) -> tuple[Example, ...]:
    """Return the examples of a suggestion as far as they are still stored."""
    told = suggestion.evidence.get("examples")
    wanted = [str(cell) for cell in told] if isinstance(told, list) else []
    found = (_example(connection, cell) for cell in wanted[:MOST_EXAMPLES])
    return tuple(example for example in found if example is not None)


def _example(connection: sqlite3.Connection, cell: str) -> Example | None:
    found = shown_answer(connection, cell)
    return None if found is None else Example(*found)


_TRIES = 3
_OVER = {
    Status.REFUSED: "broke a guardrail",
    Status.APPLIED: "is in the repository already",
    Status.REJECTED: "was rejected",
    Status.SUPERSEDED: "was superseded",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for."""

    open_pr: bool = False
    force: bool = False
    """Offer what was not shown to help."""


@dataclass(frozen=True, slots=True)
class Offered:
    """Where a suggestion can be looked at."""

    suggestion: Suggestion
    deed: Deed
    base: str
    compare_url: str | None = None
    patch: Path | None = None
    why: str = ""
    """Why there is no pull request, or no new one."""
    lines: int = 0
    """Places in somebody's own pull request where lines are suggested."""


async def offer(
    desk: Desk, suggestion: Suggestion, wish: Wish, *, timing: Timing | None = None
) -> Offered:
    """Put a suggestion where people can see it, and write down where that is."""
    actor = desk.require(Role.EDITOR, "propose", suggestion)
    _refuse_unfit(suggestion, force=wish.force)
    _refuse_odd(desk, suggestion)
    needs_repository(desk)
    async with desk.github(timing) as github:
        done = await _offered(desk, suggestion, wish, github)
    one = done.suggestion
    if done.deed is Deed.UNCHANGED and one == suggestion:
        return done
    changes = {
        "branch": one.branch,
        "pull_request": one.pull_request,
        "pull_request_url": one.pull_request_url,
        "commit_id": one.commit_id,
        "forced": suggestion.forced or not suggestion.proven,
    }
    to = suggestion.status if suggestion.status is Status.APPROVED else Status.PROPOSED
    moved = desk.move(actor, "propose", suggestion, to, **changes)
    return dataclasses.replace(done, suggestion=moved)


def _refuse_unfit(suggestion: Suggestion, *, force: bool) -> None:
    if said := _OVER.get(suggestion.status):
        because = f": {suggestion.reason}" if suggestion.reason else ""
        raise UsageError(
            f"suggestion {suggestion.id} {said}{because}", hint="ask for another: edison refine"
        )
    insisted = force or suggestion.forced or suggestion.status is Status.APPROVED
    if not suggestion.proven and not insisted:
        told = suggestion.evidence.get("sentence")
        raise UsageError(
            f"suggestion {suggestion.id} was not shown to help{f': {told}' if told else ''}",
            hint="offer it all the same, marked as unproven: --force",
        )


def _refuse_odd(desk: Desk, suggestion: Suggestion) -> None:
    """Raise for names that we never give: the results may come from elsewhere."""
    experiment = experiment_of(desk.project, suggestion)
    branch = suggestion.branch
    if branch is not None and not branch.startswith(prefix_of(experiment.id)):
        raise UsageError(
            f"suggestion {suggestion.id} names the branch {branch!r}, which is none of ours",
            hint="somebody changed the results file; compare with a backup",
        )


async def _offered(
    desk: Desk, suggestion: Suggestion, wish: Wish, github: GitHub | None
) -> Offered:
    if github is not None and wish.open_pr and suggestion.branch is None:
        pull = await _own_pull_request(desk, github)
        done = pull and await _suggest_lines(desk, github, pull, suggestion)
        if done:
            return done
    way: Way = ByGit(desk)
    if desk.hosting.by_api and github is not None:
        way = ByGitHub(desk, github)
    for left in range(_TRIES)[::-1]:
        found = await way.find(suggestion)
        if found.merged:
            raise UsageError(
                f"suggestion {suggestion.id} is in the repository already, as {found.commit}",
                hint="take note of it: edison review sync",
            )
        base = await way.base(suggestion, found.commit)
        change = _change(desk, suggestion, base, found)
        try:
            proposed = await _put(way, change, found, github if wish.open_pr else None)
        except ForgeError as error:
            # Somebody else took the name between looking and writing: the next one is free.
            if not (left and change.fresh and error.fault is ForgeFault.CONFLICT):
                raise
        else:
            break
    return _told(desk, suggestion, base, proposed)


async def _put(way: Way, change: Change, found: Whereabouts, github: GitHub | None) -> Proposed:
    put = way.put
    if found.shared and found.commit is not None:
        # People may have gone on from it: what others see already is left as it is.
        put = partial(_there, found.commit)
    if github is not None:
        return await github.propose(change, put=put)
    commit, deed = await put(change)
    return Proposed(change.branch, commit, deed, patch=way.patch_of(commit))


async def _there(commit: str, _: Change) -> tuple[str, Deed]:
    return commit, Deed.UNCHANGED


def _change(desk: Desk, suggestion: Suggestion, base: Base, found: Whereabouts) -> Change:
    after = refined(desk.project, suggestion, base.data)
    return Change(
        # An edited suggestion goes on top of what it was edited from.
        branch=found.branch or suggestion.branch or found.name_for(suggestion.experiment),
        base=base.branch,
        base_commit=base.commit,
        files={desk.in_repository(suggestion.path): after},
        key=suggestion.hash,
        title=title_of(suggestion),
        body=proposal_body(_offer(desk, suggestion)),
        message=message_of(suggestion),
        fresh=found.commit is None and suggestion.branch is None,
    )


def _offer(desk: Desk, suggestion: Suggestion, *, lines_only: bool = False) -> Offer:
    examples = desk.read(lambda connection: examples_of(connection, suggestion))
    return Offer(suggestion, examples, desk.private, lines_only)


def _told(desk: Desk, suggestion: Suggestion, base: Base, proposed: Proposed) -> Offered:
    pull, hosting = proposed.pull_request, desk.hosting
    one = dataclasses.replace(suggestion, branch=proposed.branch, commit_id=proposed.commit)
    if pull is not None:
        one = dataclasses.replace(one, pull_request=pull.number, pull_request_url=pull.url)
    if one.pull_request is not None:
        return Offered(one, proposed.deed, base.branch, why=proposed.why)
    link = hosting.compare_url(base.branch, proposed.branch)
    patch = None
    if proposed.patch and link is None:
        # No file of ours has a key in it, and a patch may be sent around.
        safe = hidden(proposed.patch.decode("utf-8", "surrogateescape"))
        name = f"{proposed.branch.rpartition('/')[2]}.patch"
        patch = write_draft(desk, name, safe.encode("utf-8", "surrogateescape"))
    why = proposed.why
    if not why and link is not None:
        why = "no pull request was asked for: --open-pr"
        if hosting.address is None:
            why = "there is no token for GitHub: export GITHUB_TOKEN, or open it by hand"
    return Offered(one, proposed.deed, base.branch, link, patch, why)


def write_draft(desk: Desk, name: str, data: bytes) -> Path:
    """Write a file beside the results, where Git does not see it."""
    try:
        desk.drafts.mkdir(parents=True, exist_ok=True)
        ignore = desk.drafts / ".gitignore"
        if not ignore.exists():
            ignore.write_text("# Patches and drafts stay on this machine.\n*\n", encoding="utf-8")
        target = desk.drafts / name
        target.write_bytes(data)
    except OSError as error:
        raise UsageError(
            f"{desk.drafts} cannot be written: {error.strerror}", hint="look at its permissions"
        ) from None
    return target


# --- somebody's own pull request ------------------------------------------------------------------


async def _own_pull_request(desk: Desk, github: GitHub) -> PullRequest | None:
    """Return the open pull request that we are working on, which is none of ours."""
    event = event_at_hand()
    if event is not None and event.number is not None and event.trusted:
        pull = await github.pull_request(event.number)
    else:
        branch = current_branch(needs_repository(desk))
        found = await github.find_pull_request(branch) if branch else None
        if found is None:
            return None
        pull = found
    ours = pull.head_ref.startswith("edison/")
    return pull if pull.state == "open" and not ours else None


async def _suggest_lines(
    desk: Desk, github: GitHub, pull: PullRequest, suggestion: Suggestion
) -> Offered | None:
    """Suggest lines where the pull request changes the prompt; None where that cannot be."""
    place = desk.in_repository(suggestion.path)
    files = await github.changed_files(pull.number)
    changed = next((one for one in files if one.path == place and one.status != "removed"), None)
    if changed is None:
        return None
    data = await github.read_file(place, ref=pull.head_sha)
    if data is None or not is_base(desk.project, suggestion, data):
        return None
    after = refined(desk.project, suggestion, data)
    note = f"{marker(suggestion)}\n{title_of(suggestion)}"
    lines = suggested_lines(place, data.decode(), after.decode(), note)
    if not fit(lines, lines_shown(changed.patch)):
        return None
    known = [one for one in await github.reviews.line_comments(pull.number)
             if marker(suggestion) in one.body]  # fmt: skip
    if not known:
        body = proposal_body(_offer(desk, suggestion, lines_only=True))
        await github.reviews.suggest(pull.number, lines, commit=pull.head_sha, body=body)
    one = dataclasses.replace(suggestion, pull_request=pull.number, pull_request_url=pull.url)
    deed = Deed.UNCHANGED if known else Deed.CREATED
    why = "the pull request changes the prompt itself, so lines are suggested there"
    return Offered(one, deed, pull.base_ref, why=why, lines=len(lines))


def newest(suggestions: list[Suggestion], *, force: bool) -> Suggestion | None:
    """Return the suggestion that is meant when none is named; None if none is worth it."""
    proposed = [one for one in suggestions if one.status is Status.PROPOSED]
    waiting = [one for one in proposed if one.branch is None and one.pull_request is None]
    tried = [one for one in suggestions if one.status is Status.TRIED]
    return next(iter([*waiting, *proposed, *(tried if force else [])]), None)
