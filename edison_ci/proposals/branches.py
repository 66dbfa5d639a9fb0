"""Branches of proposed changes: found, pushed with plain Git, or put on GitHub with a pull request.

The commit has a trailer with the key of the change, so that no change is proposed twice and a
former proposal is found from any clone, on any machine. A branch whose tip lacks the trailer is
never changed: it has the work of another author. Where workflows are not allowed to open pull
requests, the result is the branch and a link to open one by hand.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import tempfile
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.git.command import GitOutput, decode, fetch, run_git
from edison_ci.git.forge import ProposalAction, ProposalResult
from edison_ci.proposals.proposal_text import MAX_BODY_CHARS, truncate

if TYPE_CHECKING:
    from edison_ci.git.forge import Change, GitObjects, PullRequest, PutBranch, ReviewForge
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
        numbers = [int(match[1]) for name in self.taken if (match := _numbered(experiment, name))]
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
            commit = await git.commit(sha)
            if key in change_keys(commit.message):
                return BranchState(frozenset(ours), branch, sha, shared=True)
            sha = commit.parents[0] if commit.parents else None
            if change_keys(commit.message):
                break  # another suggestion: older commits belong to its base
    return BranchState(frozenset(ours))


def find_branch_in_git(
    repository: Repository, remote: str | None, experiment: str, key: str, *, online: bool = True
) -> BranchState:
    """Return the branch of a change in this clone and, if `online`, on its remote."""
    places = [f"refs/heads/{FOLDER}"]
    if remote is not None:
        pattern = f"{branch_prefix(experiment)}*"
        refspec = f"+refs/heads/{pattern}:refs/remotes/{remote}/{pattern}"
        if online:
            fetch(repository.root, remote, "--quiet", wanted=refspec)
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


def branches_with(repository: Repository, remote: str | None, commit: str) -> list[str]:
    """Return the branches that contain a commit, on the remote if there is one, without ours."""
    place = "refs/heads" if remote is None else f"refs/remotes/{remote}"
    holding = run_git(
        *("for-each-ref", "--format=%(refname)", f"--contains={commit}", place),
        cwd=repository.root,
    )
    names = (_short(ref, remote) for ref in holding.line.splitlines())
    return [name for name in names if name != "HEAD" and not name.startswith("edison/")]


def merged_changes(repository: Repository, remote: str | None) -> dict[str, str]:
    """Return the commits of changes on the default branch, by the key of the change."""
    default = repository.default_branch()
    if default is None:
        return {}
    names = {default.removeprefix(f"{remote}/") if remote else default}
    places = [f"refs/heads/{name}" for name in names]
    if remote is not None:
        for name in names:
            refspec = f"+refs/heads/{name}:refs/remotes/{remote}/{name}"
            fetch(repository.root, remote, "--quiet", wanted=refspec)
        places += [f"refs/remotes/{remote}/{name}" for name in names]
    listed = run_git("for-each-ref", "--format=%(objectname)", *places, cwd=repository.root)
    answer = run_git(
        *("log", "-z", "--format=%H%n%B", "--fixed-strings", f"--grep={TRAILER}: "),
        *listed.line.split(),
        cwd=repository.root,
    )
    commits: dict[str, str] = {}
    for entry in decode(answer.out).split("\0"):
        commit, _, message = entry.partition("\n")
        commits.update(dict.fromkeys(change_keys(message), commit))
    return commits


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
        output = self._ask("rev-parse", "--verify", "--quiet", "--end-of-options", ref)
        return output.line if output.code == 0 else None

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


TRAILER = "Edison-Suggestion"
MAX_TITLE_CHARS = 250

_KEY = re.compile(r"[0-9A-Za-z._-]{4,128}")
_TRAILER = re.compile(rf"(?m)^{TRAILER}: (\S+)$")
# Names that Git accepts, except those that look like an option.
_BRANCH = re.compile(
    r"(?![/.-])(?!.*(?:\.\.|//|@\{|/\.|\.lock(?:/|$)))[^\x00-\x20\x7f~^:?*\[\\]{1,200}(?<![/.])"
)
_NOT_ALLOWED = re.compile(r"not permitted to create or approve pull requests", re.IGNORECASE)
_EXISTS = re.compile(r"already exists", re.IGNORECASE)


async def propose_on_github(
    github: ReviewForge, change: Change, *, put: PutBranch | None = None
) -> ProposalResult:
    """Put a change on its branch and open a pull request, or update both.

    `put` creates the commit; by default it is created through the API, without a clone.
    """
    refuse_unfit(change)
    put = put or partial(put_branch, github.git)
    decided = await _decided_pull_request(github, change)
    if decided is not None:
        how = "merged" if decided.merged else "closed"
        why = f"pull request {decided.number} with this change was {how}"
        return ProposalResult(
            change.branch, decided.head_sha, ProposalAction.UNCHANGED, decided, why=why
        )
    commit, action = await put(change)
    compare_url = github.address.compare_url(change.base, change.branch)
    try:
        pull, opened = await _put_pull_request(github, change)
    except ForgeError as error:
        if not _may_not_open(error):
            raise
        return ProposalResult(change.branch, commit, action, None, compare_url, why=error.message)
    if opened is ProposalAction.CREATED or action is ProposalAction.UNCHANGED:
        action = opened
    return ProposalResult(change.branch, commit, action, pull, compare_url)


async def put_branch(git: GitObjects, change: Change) -> tuple[str, ProposalAction]:
    """Put a change on its branch through the API; raises ForgeError if the branch has others."""
    for _ in range(2):  # again if the branch appeared or moved between the read and the write
        tip = await git.tip(change.branch)
        if tip is not None:
            commit = await git.commit(tip)
            if is_same_change(change, commit.message):
                return tip, ProposalAction.UNCHANGED
            refuse_foreign(change, commit.message)
        made = await _make_commit(git, change, tip or change.base_commit)
        try:
            if tip is None:
                await git.create_branch(change.branch, made)
                return made, ProposalAction.CREATED
            await git.advance_branch(change.branch, made)
            return made, ProposalAction.UPDATED
        except ForgeError as error:
            if error.fault not in {ForgeFault.INVALID, ForgeFault.CONFLICT, ForgeFault.UNAVAILABLE}:
                raise
            if await git.tip(change.branch) == made:
                return made, ProposalAction.CREATED if tip is None else ProposalAction.UPDATED
            failure = error
    raise failure


async def _make_commit(git: GitObjects, change: Change, parent: str) -> str:
    base = await git.commit(parent)
    blobs = {path: await git.create_blob(data) for path, data in change.files.items()}
    tree = await git.create_tree(base.tree, blobs)
    return await git.create_commit(commit_message(change), tree=tree, parent=parent)


async def _decided_pull_request(github: ReviewForge, change: Change) -> PullRequest | None:
    """Return the closed or merged pull request of this very change; None if there is none."""
    pull = await github.find_pull_request(change.branch, state="all")
    if pull is None or pull.state == "open":
        return None
    try:
        last = await github.git.commit(pull.head_sha)
    except ForgeError as error:
        if error.fault is ForgeFault.NOT_FOUND:
            return None
        raise
    return pull if is_same_change(change, last.message) else None


async def _put_pull_request(
    github: ReviewForge, change: Change
) -> tuple[PullRequest, ProposalAction]:
    pull = await github.find_pull_request(change.branch)
    if pull is None:
        try:
            return await github.create_pull_request(_fitting(change)), ProposalAction.CREATED
        except ForgeError as error:
            made_anyway = error.fault is ForgeFault.UNAVAILABLE or _EXISTS.search(error.message)
            pull = await github.find_pull_request(change.branch) if made_anyway else None
            if pull is None:
                raise
    title, body = _title(change), _body(change)
    if (pull.title, _plain(pull.body)) == (title, _plain(body)):
        return pull, ProposalAction.UNCHANGED
    return await github.update_pull_request(
        pull.number, title=title, body=body
    ), ProposalAction.UPDATED


def _may_not_open(error: ForgeError) -> bool:
    return error.fault is ForgeFault.FORBIDDEN or bool(_NOT_ALLOWED.search(error.message))


def _fitting(change: Change) -> Change:
    return dataclasses.replace(change, title=_title(change), body=_body(change))


def _title(change: Change) -> str:
    title = " ".join(change.title.split())
    return title if len(title) <= MAX_TITLE_CHARS else f"{title[: MAX_TITLE_CHARS - 3]}..."


def _body(change: Change) -> str:
    return truncate(change.body, MAX_BODY_CHARS)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").rstrip()


def commit_message(change: Change) -> str:
    """Return the message of the commit, which ends with the trailer."""
    paragraphs = [" ".join(change.title.split()), change.message.strip()]
    trailer = f"{TRAILER}: {change.key}"
    return "\n\n".join([*(part for part in paragraphs if part), trailer]) + "\n"


def is_same_change(change: Change, message: str) -> bool:
    """Whether a commit message has the key of this change."""
    return change.key in change_keys(message)


def change_keys(message: str) -> list[str]:
    """Return the keys in the trailers of a commit message."""
    return [str(key) for key in _TRAILER.findall(message)]


def refuse_foreign(change: Change, message: str) -> None:
    """Raise unless the tip of the branch is a proposal that the change may be added to."""
    if change.fresh and _TRAILER.search(message):
        raise ForgeError(
            f"the branch {change.branch!r} has another change meanwhile",
            fault=ForgeFault.CONFLICT,
            hint="run the command again: it uses the next free name",
        )
    if not _TRAILER.search(message):
        raise ForgeError(
            f"the branch {change.branch!r} has a commit of another author, so it is not changed",
            fault=ForgeFault.CONFLICT,
            hint="merge or delete the branch, or use another name",
        )


def refuse_unfit(change: Change) -> None:
    """Raise UsageError for a change that must not be sent to a forge."""
    for name in (change.branch, change.base):
        if not _BRANCH.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a valid name of a branch",
                hint="see `git help check-ref-format`",
            )
    if change.branch == change.base:
        raise UsageError(
            f"the branch of a change cannot be its base {change.base!r}", hint="use another branch"
        )
    if not _KEY.fullmatch(change.key):
        raise UsageError(
            f"{change.key!r} is not a valid key of a change", hint="use the hash of the change"
        )
    if not change.files:
        raise UsageError("the change has no files", hint="there is nothing to propose")
    for path in change.files:
        _refuse_path(path)


def _refuse_path(path: str) -> None:
    parts = PurePosixPath(path).parts
    folders = {part.casefold() for part in parts}
    odd = path.startswith("/") or "\\" in path or any(ord(letter) < 32 for letter in path)
    if not parts or odd or ".." in parts or str(PurePosixPath(path)) != path:
        raise UsageError(f"{path!r} is not a path in a repository", hint="name a file inside it")
    if folders & {".git", ".github"}:
        raise UsageError(
            f"{path!r} decides which code runs, so a proposal may not change it",
            hint="change it in a pull request of your own",
        )
