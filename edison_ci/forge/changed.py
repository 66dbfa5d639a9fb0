"""Files that the change changed which started this job.

Checkouts in workflows are shallow. Of a pull request the runner checks out the commit that merges
it into its base: its first parent is the base, exactly. Where the head itself is checked out,
history is deepened until the commit that both share is known. A push is measured against what the
branch was before; a new branch, or one whose past is gone, against the default branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.forge.events import Event, Situation
from edison_ci.git.fetch import fetched_branch

if TYPE_CHECKING:
    from edison_ci.forge.models import Forge
    from edison_ci.git.repository import Repository


@dataclass(frozen=True, slots=True)
class Base:
    """The commit that a change is measured against."""

    commit: str | None
    """None when there is nothing to compare with: everything counts as changed."""
    why: str


def base_of(event: Event, repository: Repository) -> Base:
    """Return what the event's change is measured against; may fetch into a shallow clone."""
    head = repository.head()
    if head is None:
        raise UsageError("there is no commit here", hint="check the repository out first")
    if event.name in {"pull_request", "pull_request_target"}:
        return _of_pull_request(event, repository, head)
    if event.situation is Situation.MERGE_GROUP and event.base_sha:
        base = repository.base_for(event.base_sha)
        return Base(base, "what the merge queue merges into")
    if event.name == "push":
        return _of_push(event, repository)
    if is_foreign(event, head):
        base = repository.base_for(str(event.sha))
        return Base(base, "the commit that it shares with the one the job was started for")
    return Base(None, f"an event {event.name!r} names no commit to compare with")


def is_foreign(event: Event, head: str) -> bool:
    """Whether something else is checked out than the job was started for.

    So a maintainer evaluates a fork by hand. The commit of the job is one of our own branches, and
    so is whatever it shares with what is checked out.
    """
    return event.situation is Situation.DISPATCH and event.sha is not None and head != event.sha


def is_proposal(event: Event, head: str | None) -> bool:
    """Whether a job works on what somebody proposes, so that its files have no say in trust.

    Nobody proposes what is on the default branch: a push to it, a schedule, and a job that was
    started by hand for it. Whatever else starts a job, or is checked out in one, is a proposal.
    """
    return not event.on_default or (event.sha is not None and head != event.sha)


def authority_of(event: Event, repository: Repository) -> str | None:
    """Return the commit whose files say what a proposal may do; None when it is not here.

    It is the newest one of the branch that is proposed to, not the one that a proposal was begun
    from, which may be as old as its author likes. Only the default branch has that say: anybody
    who may open a pull request from a branch can make another branch to propose it to.
    """
    default = event.default_branch
    if event.base_branch is not None and event.base_branch == default:
        head = repository.head()
        parents = repository.parents(head) if head is not None else ()
        # Made by the forge: what is checked out cannot name itself as its own second parent.
        if len(parents) == 2 and parents[1] == event.head_sha and repository.obtain(parents[0]):
            return parents[0]
        return event.base_sha if event.base_sha and repository.obtain(event.base_sha) else None
    if event.on_default and event.sha is not None and repository.obtain(event.sha):
        return event.sha
    try:
        return repository.resolve(fetched_branch(repository.root, default)) if default else None
    except UsageError:
        return None


def changed_paths(event: Event, repository: Repository) -> frozenset[str] | None:
    """Return the paths that the event's change touches; None when everything counts as changed."""
    base = base_of(event, repository)
    return None if base.commit is None else repository.changed_paths(base.commit)


async def changed_paths_by_forge(event: Event, forge: Forge) -> frozenset[str] | None:
    """Return the same by asking the forge, for a job without a checkout."""
    if event.number is None:
        return None
    files = await forge.changed_files(event.number)
    names = {name for file in files for name in (file.path, file.previous)}
    return frozenset(name for name in names if name is not None)


def _of_pull_request(event: Event, repository: Repository, head: str) -> Base:
    parents = repository.parents(head)
    # The runner's merge commit may be newer than the event, but then it is the one of the job.
    merged = len(parents) == 2 and (parents[1] == event.head_sha or head == event.sha)
    if merged and repository.obtain(parents[0]):
        return Base(parents[0], "the base as the pull request was merged into it")
    if event.base_sha is None:
        return Base(None, "the event names no base")
    return Base(repository.base_for(event.base_sha), "the commit that head and base share")


def _of_push(event: Event, repository: Repository) -> Base:
    if event.base_sha is not None and repository.obtain(event.base_sha):
        return Base(event.base_sha, "what the branch was before the push")
    missing = "is new" if event.base_sha is None else "was pushed by force, and its past is gone"
    default = event.default_branch
    if default is None or event.head_branch == default:
        return Base(None, f"the branch {missing}")
    base = repository.base_for(f"origin/{default}")
    return Base(base, f"the branch {missing}: the commit that it and {default} share")
