"""Lets the strict GitHub know what is in a real bare repository, and the other way round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Folder
    from tests.features.github.fake_github import FakeGitHub
    from tests.features.github.fake_state import State


class _Refs(dict[str, str]):
    """The branches of a bare repository."""

    def __init__(self, bare: Folder) -> None:
        super().__init__()
        self._bare = bare

    def _all(self) -> dict[str, str]:
        listed = self._bare.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads")
        pairs = (line.split(" ") for line in listed.splitlines())
        return {ref.removeprefix("refs/"): sha for ref, sha in pairs}

    def __contains__(self, ref: object) -> bool:
        return ref in self._all()

    def __getitem__(self, ref: str) -> str:
        return self._all()[ref]

    def __setitem__(self, ref: str, sha: str) -> None:
        self._bare.git("update-ref", f"refs/{ref}", sha)

    def __delitem__(self, ref: str) -> None:
        self._bare.git("update-ref", "-d", f"refs/{ref}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def items(self) -> Any:
        return self._all().items()

    def get(self, ref: str, default: Any = None) -> Any:
        return self._all().get(ref, default)


class _Commits(dict[str, dict[str, Any]]):
    """The commits of a bare repository, read when somebody asks."""

    def __init__(self, bare: Folder, state: State) -> None:
        super().__init__()
        self._bare, self._state = bare, state

    def __contains__(self, sha: object) -> bool:
        try:
            self[str(sha)]
        except KeyError:
            return False
        return True

    def __getitem__(self, sha: str) -> dict[str, Any]:
        if not super().__contains__(sha):
            try:
                raw = self._bare.git("cat-file", "commit", sha)
            except Exception:
                raise KeyError(sha) from None
            head, _, message = raw.partition("\n\n")
            parents = [line[7:] for line in head.splitlines() if line.startswith("parent ")]
            files = {}
            for line in self._bare.git("ls-tree", "-r", sha).splitlines():
                about, _, path = line.partition("\t")
                blob = about.split(" ")[2]
                files[path] = self._state.put_blob(self._bare.git_bytes("cat-file", "blob", blob))
            tree = self._state.put_tree(files)
            self[sha] = {"message": f"{message}\n", "tree": tree, "parents": parents}
        return super().__getitem__(sha)


def mirror(server: FakeGitHub, bare: Folder) -> None:
    """Make the server know the bare repository by its branches and commits."""
    state = server.state
    state.refs = _Refs(bare)
    state.commits = _Commits(bare, state)


def seed(server: FakeGitHub, folder: Folder, branch: str = "main") -> str:
    """Put the commit that is checked out on a branch of the server, under its own id."""
    state, head = server.state, folder.git("rev-parse", "HEAD")
    names = folder.git("ls-files").splitlines()
    files = {name: state.put_blob(folder.git_bytes("show", f"HEAD:{name}")) for name in names}
    state.commits[head] = {"message": "start", "tree": state.put_tree(files), "parents": []}
    state.refs[f"heads/{branch}"] = head
    return head
