"""Branches: the one that a change is on already, and free names for new ones.

A change is known by the trailer of its commit, so whoever looks at the same repository, on any
machine, finds what was proposed before.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.forge.proposing import TRAILER, keys_in
from edison_ci.git.command import run_git, text
from edison_ci.git.fetch import fetch

if TYPE_CHECKING:
    from edison_ci.forge.git_data import GitData
    from edison_ci.git.repository import Repository

FOLDER = "edison/refine"
_BACK = 5
"""Commits of somebody else on top of ours that are looked behind."""
_LISTED = 1_000


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What is known of a change in a repository."""

    taken: frozenset[str] = frozenset()
    """Branches of the same experiment."""
    branch: str | None = None
    """The branch that has the change; None if none has it."""
    commit: str | None = None
    """The commit that is the change."""
    shared: bool = False
    """Whether others can see the commit already, so that it need not be put anywhere."""
    merged: bool = False
    """Whether the default branch has the commit."""

    def name_for(self, experiment: str) -> str:
        """Return the branch of the change, or the next free one."""
        if self.branch is not None:
            return self.branch
        numbers = [int(found[1]) for name in self.taken if (found := _numbered(experiment, name))]
        return f"{prefix_of(experiment)}{max(numbers, default=0) + 1}"


def prefix_of(experiment: str) -> str:
    """Return how the branches of an experiment's suggestions start."""
    return f"{FOLDER}/{experiment}-"


def _numbered(experiment: str, branch: str) -> re.Match[str] | None:
    return re.fullmatch(rf"{re.escape(prefix_of(experiment))}(\d{{1,9}})", branch)


async def find_on_github(git: GitData, experiment: str, key: str) -> Whereabouts:
    """Return where a change is, by asking GitHub."""
    tips = await git.tips(prefix_of(experiment))
    ours = {name: tip for name, tip in tips.items() if _numbered(experiment, name)}
    for branch, tip in ours.items():
        sha: str | None = tip
        for _ in range(_BACK):
            if sha is None:
                break
            found = await git.commit(sha)
            if key in keys_in(found.message):
                return Whereabouts(frozenset(ours), branch, sha, shared=True)
            sha = found.parents[0] if found.parents else None
            if keys_in(found.message):
                break  # another suggestion, made on top of what it was made on
    return Whereabouts(frozenset(ours))


def find_in_git(
    repository: Repository, remote: str | None, experiment: str, key: str, *, online: bool = True
) -> Whereabouts:
    """Return where a change is, by what is here and, if `online`, what the remote has."""
    places = [f"refs/heads/{FOLDER}"]
    if remote is not None:
        pattern = f"{prefix_of(experiment)}*"
        wanted = f"+refs/heads/{pattern}:refs/remotes/{remote}/{pattern}"
        if online:
            fetch(repository.root, remote, "--quiet", wanted=wanted)
        places.append(f"refs/remotes/{remote}/{FOLDER}")
    listed = run_git("for-each-ref", "--format=%(refname)", *places, cwd=repository.root)
    names = {_short(ref, remote) for ref in listed.line.splitlines()}
    taken = frozenset(name for name in names if _numbered(experiment, name))
    commit = _commit_with(repository, key)
    if commit is None:
        return Whereabouts(taken)
    holding = run_git(
        *("for-each-ref", "--format=%(refname)", f"--contains={commit}"),
        *("refs/heads", "refs/remotes"),
        cwd=repository.root,
    )
    refs = [ref for ref in holding.line.splitlines() if _numbered(experiment, _short(ref, remote))]
    own = next((_short(ref, remote) for ref in refs), None)
    # Without a remote the repository itself is where others look.
    shared = bool(refs) and (remote is None or any(ref.startswith("refs/remotes/") for ref in refs))
    return Whereabouts(taken, own, commit, shared, _is_merged(repository, commit))


def merged_changes(repository: Repository, remote: str | None) -> dict[str, str]:
    """Return the changes that the default branch has, each with its commit."""
    default = repository.default_branch()
    if default is None:
        return {}
    names = {default.removeprefix(f"{remote}/") if remote else default}
    places = [f"refs/heads/{name}" for name in names]
    if remote is not None:
        for name in names:
            wanted = f"+refs/heads/{name}:refs/remotes/{remote}/{name}"
            fetch(repository.root, remote, "--quiet", wanted=wanted)
        places += [f"refs/remotes/{remote}/{name}" for name in names]
    listed = run_git("for-each-ref", "--format=%(objectname)", *places, cwd=repository.root)
    answer = run_git(
        *("log", "-z", "--format=%H%n%B", "--fixed-strings", f"--grep={TRAILER}: "),
        *listed.line.split(),
        cwd=repository.root,
    )
    found: dict[str, str] = {}
    for entry in text(answer.out).split("\0"):
        commit, _, message = entry.partition("\n")
        found.update(dict.fromkeys(keys_in(message), commit))
    return found


def _commit_with(repository: Repository, key: str) -> str | None:
    """Return the commit that carries a key, on any branch here."""
    answer = run_git(
        *("log", "--branches", "--remotes", "-z", f"--max-count={_LISTED}", "--format=%H%n%B"),
        *("--fixed-strings", f"--grep={TRAILER}: {key}"),
        cwd=repository.root,
    )
    for entry in text(answer.out).split("\0"):
        commit, _, message = entry.partition("\n")
        if key in keys_in(message):
            return commit
    return None


def _short(ref: str, remote: str | None) -> str:
    return ref.removeprefix("refs/heads/").removeprefix(f"refs/remotes/{remote}/")


def _is_merged(repository: Repository, commit: str) -> bool:
    default = repository.default_branch()
    if default is None:
        return False
    asked = ("merge-base", "--is-ancestor", commit, repository.resolve(default))
    return run_git(*asked, cwd=repository.root).code == 0
