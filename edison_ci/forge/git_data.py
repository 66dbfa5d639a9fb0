"""Commits made on GitHub without a clone: blob, tree, commit, ref.

Author and committer are left out, so GitHub signs the commit as the owner of the token. No hook and
no filter runs. A ref only moves forward: a branch that has something we did not see is left alone.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.errors import ForgeError, ForgeFault
from edison_ci.forge.api import unreadable
from edison_ci.forge.replies import take

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.forge.api import Api


@dataclass(frozen=True, slots=True)
class RemoteCommit:
    """A commit on GitHub."""

    sha: str
    tree: str
    message: str
    parents: tuple[str, ...] = ()


class GitData:
    """The object store and the refs of a repository on GitHub."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def create_blob(self, data: bytes) -> str:
        """Store the content of a file; the same content has the same id."""
        body = {"content": base64.b64encode(data).decode(), "encoding": "base64"}
        made = await self._api.write("store a file", "POST", "git", "blobs", body=body)
        return take(made, str, "sha")

    async def read_blob(self, sha: str) -> bytes:
        """Return the content of a file."""
        found = await self._api.get("read a file", "git", "blobs", sha)
        return decoded(take(found, str, "content"), take(found, str, "encoding"))

    async def create_tree(self, base_tree: str, blobs: Mapping[str, str]) -> str:
        """Make a tree from another one with some files replaced; all are plain files."""
        entries = [
            {"path": path, "mode": "100644", "type": "blob", "sha": sha}
            for path, sha in sorted(blobs.items())
        ]
        body = {"base_tree": base_tree, "tree": entries}
        made = await self._api.write("store a tree", "POST", "git", "trees", body=body)
        return take(made, str, "sha")

    async def create_commit(self, message: str, *, tree: str, parent: str) -> str:
        """Make a commit with one parent."""
        body = {"message": message, "tree": tree, "parents": [parent]}
        made = await self._api.write("make a commit", "POST", "git", "commits", body=body)
        return take(made, str, "sha")

    async def commit(self, sha: str) -> RemoteCommit:
        """Return a commit."""
        found = await self._api.get("read a commit", "git", "commits", sha)
        parents = tuple(take(parent, str, "sha") for parent in take(found, list, "parents"))
        tree, message = take(found, str, "tree", "sha"), take(found, str, "message")
        return RemoteCommit(take(found, str, "sha"), tree, message, parents)

    async def tip(self, branch: str) -> str | None:
        """Return the commit that a branch points to; None if there is no such branch."""
        try:
            found = await self._api.get("read a branch", "git", "ref", "heads", branch)
        except ForgeError as error:
            if error.fault is ForgeFault.NOT_FOUND:
                return None
            raise
        return take(found, str, "object", "sha")

    async def tips(self, prefix: str) -> dict[str, str]:
        """Return the branches whose names start so, each with the commit that it points to."""
        found = await self._api.get("list branches", "git", "matching-refs", "heads", prefix)
        if not isinstance(found, list):
            raise unreadable("list branches", "a list")
        return {
            take(item, str, "ref").removeprefix("refs/heads/"): take(item, str, "object", "sha")
            for item in found
        }

    async def create_branch(self, branch: str, sha: str) -> None:
        """Make a branch; one of this name must not exist."""
        body = {"ref": f"refs/heads/{branch}", "sha": sha}
        path = ("git", "refs")
        # Not repeated: a second request would be refused because the first one was carried out.
        await self._api.write("make a branch", "POST", *path, body=body, repeatable=False)

    async def advance_branch(self, branch: str, sha: str) -> None:
        """Move a branch to a commit that comes after its tip; GitHub refuses any other."""
        body = {"sha": sha, "force": False}
        await self._api.write("move a branch", "PATCH", "git", "refs", "heads", branch, body=body)


def decoded(content: str, encoding: str) -> bytes:
    """Return the bytes that GitHub wrote as text."""
    if encoding == "utf-8":
        return content.encode()
    try:
        if encoding == "base64":
            return base64.b64decode(content)
    except binascii.Error:
        pass
    raise unreadable("read a file", "base64")
