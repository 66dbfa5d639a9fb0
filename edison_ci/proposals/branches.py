"""Branches of proposed changes: finding that of a change, and pushing one with plain Git.

A change is recognised by the trailer of its commit, so that a former proposal is found from any
clone, on any machine.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.git.command import GitOutput, decode, fetch, run_git
from edison_ci.git.forge import ProposalAction, ProposalResult
from edison_ci.proposals.branch_proposal import (
    TRAILER,
    change_keys,
    commit_message,
    is_same_change,
    refuse_foreign,
    refuse_unfit,
)

if TYPE_CHECKING:
    from edison_ci.git.forge import Change, GitObjects
    from edison_ci.git.repository import Repository

FOLDER = "edison/refine"
_BACK = 5
"""How many commits of other authors on top of a proposal are searched."""
_LISTED = 1_000


@dataclass(frozen=True, slots=True)
class BranchState:
    """The branch and the commit of a change in a repository."""

    taken: frozenset[str] = frozenset()
    """All proposal branches of the experiment."""
    branch: str | None = None
    """The branch that has the change; None if there is none."""
    commit: str | None = None
    """The commit with the trailer of the change."""
    shared: bool = False
    """Whether the commit is on the remote already, so that it need not be pushed."""
    merged: bool = False
    """Whether the default branch contains the commit."""

    def name_for(self, experiment: str) -> str:
        """Return the branch of the change, or the next free one."""
        if self.branch is not None:
            return self.branch
        numbers = [int(found[1]) for name in self.taken if (found := _numbered(experiment, name))]
        return f"{branch_prefix(experiment)}{max(numbers, default=0) + 1}"


def branch_prefix(experiment: str) -> str:
    """Return the prefix of the branches with suggestions for an experiment."""
    return f"{FOLDER}/{experiment}-"


def _numbered(experiment: str, branch: str) -> re.Match[str] | None:
    return re.fullmatch(rf"{re.escape(branch_prefix(experiment))}(\d{{1,9}})", branch)


async def find_branch_on_github(git: GitObjects, experiment: str, key: str) -> BranchState:
    """Return the branch of a change on GitHub."""
    tips = await git.tips(branch_prefix(experiment))
    ours = {name: tip for name, tip in tips.items() if _numbered(experiment, name)}
    for branch, tip in ours.items():
        sha: str | None = tip
        for _ in range(_BACK):
            if sha is None:
                break
            found = await git.commit(sha)
            if key in change_keys(found.message):
                return BranchState(frozenset(ours), branch, sha, shared=True)
            sha = found.parents[0] if found.parents else None
            if change_keys(found.message):
                break  # another suggestion: older commits belong to its base
    return BranchState(frozenset(ours))


def find_branch_in_git(
    repository: Repository, remote: str | None, experiment: str, key: str, *, online: bool = True
) -> BranchState:
    """Return the branch of a change in this clone and, if `online`, on its remote."""
    places = [f"refs/heads/{FOLDER}"]
    if remote is not None:
        pattern = f"{branch_prefix(experiment)}*"
        wanted = f"+refs/heads/{pattern}:refs/remotes/{remote}/{pattern}"
        if online:
            fetch(repository.root, remote, "--quiet", wanted=wanted)
        places.append(f"refs/remotes/{remote}/{FOLDER}")
    listed = run_git("for-each-ref", "--format=%(refname)", *places, cwd=repository.root)
    names = {_short(ref, remote) for ref in listed.line.splitlines()}
    taken = frozenset(name for name in names if _numbered(experiment, name))
    commit = _commit_with(repository, key)
    if commit is None:
        return BranchState(taken)
    holding = run_git(
        *("for-each-ref", "--format=%(refname)", f"--contains={commit}"),
        *("refs/heads", "refs/remotes"),
        cwd=repository.root,
    )
    refs = [ref for ref in holding.line.splitlines() if _numbered(experiment, _short(ref, remote))]
    own = next((_short(ref, remote) for ref in refs), None)
    # Without a remote this repository is the shared one.
    shared = bool(refs) and (remote is None or any(ref.startswith("refs/remotes/") for ref in refs))
    return BranchState(taken, own, commit, shared, _is_merged(repository, commit))


def merged_changes(repository: Repository, remote: str | None) -> dict[str, str]:
    """Return the commits of changes on the default branch, by the key of the change."""
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
    for entry in decode(answer.out).split("\0"):
        commit, _, message = entry.partition("\n")
        found.update(dict.fromkeys(change_keys(message), commit))
    return found


def _commit_with(repository: Repository, key: str) -> str | None:
    """Return the commit with the trailer of a key, on any branch of this clone."""
    answer = run_git(
        *("log", "--branches", "--remotes", "-z", f"--max-count={_LISTED}", "--format=%H%n%B"),
        *("--fixed-strings", f"--grep={TRAILER}: {key}"),
        cwd=repository.root,
    )
    for entry in decode(answer.out).split("\0"):
        commit, _, message = entry.partition("\n")
        if key in change_keys(message):
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


_ZEROS = "0" * 40


# The commit is made from objects, without touching the working tree or the index, and no hook runs.
# A push is never forced.
@dataclass(frozen=True, slots=True)
class PlainGit:
    """A repository without a forge: a change becomes a branch, a push and a patch."""

    repository: Repository
    remote: str | None = None
    """Where branches are pushed to; None keeps them in this clone."""

    async def propose(self, change: Change) -> ProposalResult:
        """Put a change on its branch, push it, and return it as a patch."""
        return await asyncio.to_thread(self._propose, change)

    async def put(self, change: Change) -> tuple[str, ProposalAction]:
        """Put a change on its branch and push it."""
        return await asyncio.to_thread(self._put, change)

    def _propose(self, change: Change) -> ProposalResult:
        refuse_unfit(change)
        commit, action = self._put(change)
        where = "this host has no pull requests: the change is a branch and a patch"
        return ProposalResult(change.branch, commit, action, patch=self.patch_of(commit), why=where)

    def patch_of(self, commit: str) -> bytes:
        """Return a commit as a patch for `git am`."""
        options = ("-1", "--stdout", "--no-ext-diff", "--no-textconv", "--end-of-options")
        return self._git("format-patch", *options, commit).out

    def _put(self, change: Change) -> tuple[str, ProposalAction]:
        ref = f"refs/heads/{change.branch}"
        here = self._tip(ref)
        there = self.remote and self._tip(f"refs/remotes/{self.remote}/{change.branch}")
        tip = there if there and (here is None or self._is_behind(here, there)) else here
        if tip is not None:
            message = self._git("log", "-1", "--format=%B", "--end-of-options", tip).line
            if is_same_change(change, message):
                self._push(change, tip)
                return tip, ProposalAction.UNCHANGED
            refuse_foreign(change, message)
        self._refuse_checked_out(change, ref)
        made = self.commit(change, tip or self.repository.resolve(change.base_commit))
        self._push(change, made)  # first, so that a refused push leaves no branch behind
        # With the old value given, this fails if another process moved the branch meanwhile.
        self._git("update-ref", "-m", "edison: propose", ref, made, here or _ZEROS)
        return made, ProposalAction.CREATED if tip is None else ProposalAction.UPDATED

    def _tip(self, ref: str) -> str | None:
        found = self._ask("rev-parse", "--verify", "--quiet", "--end-of-options", ref)
        return found.line if found.code == 0 else None

    def _is_behind(self, older: str, newer: str) -> bool:
        return self._ask("merge-base", "--is-ancestor", older, newer).code == 0

    def _refuse_checked_out(self, change: Change, ref: str) -> None:
        """Raise if the branch is checked out: its working tree would no longer fit its commit."""
        where = self._git("for-each-ref", "--format=%(worktreepath)", ref).line
        if where:
            raise UsageError(
                f"the branch {change.branch!r} is checked out in {where!r}, so it is not changed",
                hint="switch to another branch there first",
            )

    def commit(self, change: Change, parent: str) -> str:
        """Create the commit of a change, on no branch, and return its id."""
        with tempfile.TemporaryDirectory() as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
            self._git("read-tree", parent, environment=index)
            for path, data in sorted(change.files.items()):
                blob = self._git("hash-object", "-w", "--stdin", "--no-filters", stdin=data).line
                entry = f"100644,{blob},{path}"
                self._git("update-index", "--add", "--cacheinfo", entry, environment=index)
            tree = self._git("write-tree", environment=index).line
        message = commit_message(change).encode()
        made = self._ask("commit-tree", "--no-gpg-sign", "-p", parent, tree, stdin=message)
        if made.code:
            raise UsageError(
                f"Git cannot create a commit: {made.reason}",
                hint="set your name and address: git config user.name and git config user.email",
            )
        return made.line

    def _push(self, change: Change, commit: str) -> None:
        if self.remote is None:
            return
        refspec = f"{commit}:refs/heads/{change.branch}"
        options = ("--quiet", "--no-verify", "--no-follow-tags", "--recurse-submodules=no")
        answer = self._ask("push", *options, "--end-of-options", self.remote, refspec)
        if answer.code:
            rejected = b"rejected" in answer.err or b"non-fast-forward" in answer.err
            raise ForgeError(
                f"cannot push the branch {change.branch!r} to {self.remote!r}: {answer.reason}",
                fault=ForgeFault.CONFLICT if rejected else ForgeFault.UNAVAILABLE,
                hint="the branch has other commits on the remote: fetch it and review them"
                if rejected
                else "check the remote and your access to it, then run the command again",
            )

    def _ask(
        self, *args: str, stdin: bytes = b"", environment: dict[str, str] | None = None
    ) -> GitOutput:
        return run_git(*args, cwd=self.repository.root, stdin=stdin, environment=environment)

    def _git(
        self, *args: str, stdin: bytes = b"", environment: dict[str, str] | None = None
    ) -> GitOutput:
        answer = self._ask(*args, stdin=stdin, environment=environment)
        if answer.code:
            raise UsageError(
                f"git {args[0]} failed: {answer.reason}",
                hint=f"run `git status` in {str(self.repository.root)!r}",
            )
        return answer
