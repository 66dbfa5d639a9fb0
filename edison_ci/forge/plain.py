"""Changes offered where there is no forge: a branch, a push and a patch.

The commit is made from objects, without touching the working tree or the index of whoever is at
work there, and no hook runs. A push is never forced.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.forge.models import Deed, Proposed
from edison_ci.forge.proposing import is_there, message_of, refuse_foreign, refuse_unfit
from edison_ci.git.command import Answer, run_git

if TYPE_CHECKING:
    from edison_ci.forge.models import Change
    from edison_ci.git.repository import Repository

_ZEROS = "0" * 40


@dataclass(frozen=True, slots=True)
class PlainGit:
    """A repository that nothing but Git knows."""

    repository: Repository
    remote: str | None = None
    """Where branches are pushed to; None leaves them here."""

    async def propose(self, change: Change) -> Proposed:
        """Put a change on its branch, push it, and return it as a patch."""
        return await asyncio.to_thread(self._propose, change)

    async def put(self, change: Change) -> tuple[str, Deed]:
        """Put a change on its branch and push it."""
        return await asyncio.to_thread(self._put, change)

    def _propose(self, change: Change) -> Proposed:
        refuse_unfit(change)
        commit, deed = self._put(change)
        where = "there is no forge: the change is a branch and a patch"
        return Proposed(change.branch, commit, deed, patch=self.patch_of(commit), why=where)

    def patch_of(self, commit: str) -> bytes:
        """Return a commit as a patch that `git am` takes."""
        options = ("-1", "--stdout", "--no-ext-diff", "--no-textconv", "--end-of-options")
        return self._git("format-patch", *options, commit).out

    def _put(self, change: Change) -> tuple[str, Deed]:
        ref = f"refs/heads/{change.branch}"
        here = self._tip(ref)
        there = self.remote and self._tip(f"refs/remotes/{self.remote}/{change.branch}")
        tip = there if there and (here is None or self._is_behind(here, there)) else here
        if tip is not None:
            message = self._git("log", "-1", "--format=%B", "--end-of-options", tip).line
            if is_there(change, message):
                self._push(change, tip)
                return tip, Deed.UNCHANGED
            refuse_foreign(change, message)
        self._refuse_checked_out(change, ref)
        made = self.commit(change, tip or self.repository.resolve(change.base_commit))
        self._push(change, made)  # first, so that nothing stays here that the remote refused
        # The old value makes it fail when somebody else moved the branch meanwhile.
        self._git("update-ref", "-m", "edison: propose", ref, made, here or _ZEROS)
        return made, Deed.CREATED if tip is None else Deed.UPDATED

    def _tip(self, ref: str) -> str | None:
        found = self._ask("rev-parse", "--verify", "--quiet", "--end-of-options", ref)
        return found.line if found.code == 0 else None

    def _is_behind(self, older: str, newer: str) -> bool:
        return self._ask("merge-base", "--is-ancestor", older, newer).code == 0

    def _refuse_checked_out(self, change: Change, ref: str) -> None:
        """Raise if somebody works on the branch: its files would no longer fit its commit."""
        where = self._git("for-each-ref", "--format=%(worktreepath)", ref).line
        if where:
            raise UsageError(
                f"the branch {change.branch!r} is checked out in {where!r}, and is left alone",
                hint="switch to another branch there first",
            )

    def commit(self, change: Change, parent: str) -> str:
        """Make the commit of a change from objects, on no branch, and return its id."""
        with tempfile.TemporaryDirectory() as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
            self._git("read-tree", parent, environment=index)
            for path, data in sorted(change.files.items()):
                blob = self._git("hash-object", "-w", "--stdin", "--no-filters", stdin=data).line
                entry = f"100644,{blob},{path}"
                self._git("update-index", "--add", "--cacheinfo", entry, environment=index)
            tree = self._git("write-tree", environment=index).line
        message = message_of(change).encode()
        made = self._ask("commit-tree", "--no-gpg-sign", "-p", parent, tree, stdin=message)
        if made.code:
            raise UsageError(
                f"Git cannot make a commit: {made.reason}",
                hint="tell it who you are: git config user.name and user.email",
            )
        return made.line

    def _push(self, change: Change, commit: str) -> None:
        if self.remote is None:
            return
        refspec = f"{commit}:refs/heads/{change.branch}"
        options = ("--quiet", "--no-verify", "--no-follow-tags", "--recurse-submodules=no")
        said = self._ask("push", *options, "--end-of-options", self.remote, refspec)
        if said.code:
            rejected = b"rejected" in said.err or b"non-fast-forward" in said.err
            raise ForgeError(
                f"the branch {change.branch!r} cannot be pushed to {self.remote!r}: {said.reason}",
                fault=ForgeFault.CONFLICT if rejected else ForgeFault.UNAVAILABLE,
                hint="somebody else changed it there: fetch it and look"
                if rejected
                else "check the remote and your access to it, then run the command again",
            )

    def _ask(
        self, *args: str, stdin: bytes = b"", environment: dict[str, str] | None = None
    ) -> Answer:
        return run_git(*args, cwd=self.repository.root, stdin=stdin, environment=environment)

    def _git(
        self, *args: str, stdin: bytes = b"", environment: dict[str, str] | None = None
    ) -> Answer:
        said = self._ask(*args, stdin=stdin, environment=environment)
        if said.code:
            raise UsageError(
                f"git {args[0]} failed: {said.reason}",
                hint=f"see what `git status` says in {str(self.repository.root)!r}",
            )
        return said
