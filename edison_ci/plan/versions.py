"""Versions of a prompt, by name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.prompt import Prompt, read_prompt
from edison_ci.documents.files import Tree, read
from edison_ci.documents.json_text import read_json
from edison_ci.git import commit_tree
from edison_ci.git.repository import Repository

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.documents.marks import Json

SHORT = 8


def short(version: str) -> str:
    """Return the form of a version that is shown everywhere."""
    return version[:SHORT]


def label_of(prompt: Prompt, root: Path, repository: Repository | None = None) -> str:
    """Return v1, v2, ... after the distinct texts on the default branch; `vN+hash` before merge.

    A shallow clone does not know how many versions came before: there it is `v?+hash`.
    """
    repository = repository or Repository.find(root)
    if repository is None:
        return "v1"
    if repository.is_shallow():
        return f"v?+{short(prompt.version)}"
    past = past_versions(prompt.path, root, repository)
    if prompt.version in past:
        return f"v{past.index(prompt.version) + 1}"
    return f"v{len(past)}+{short(prompt.version)}"


def past_versions(path: str, root: Path, repository: Repository) -> list[str]:
    """Return the distinct versions of a prompt in first-parent history, oldest first.

    The schemas that a prompt names by path are part of it, so their history counts too.
    """
    prefix = root.resolve().relative_to(repository.root).as_posix()
    history = _History(repository, "" if prefix == "." else f"{prefix}/", path)
    moments = history.of_prompt()
    files = {file for moment in moments for file in moment.files}
    moments += [moment for file in sorted(files) for moment in history.of_file(file)]
    return list(dict.fromkeys(moment.version for moment in sorted(moments)))


def commit_of_version(path: str, root: Path, repository: Repository, version: str) -> str | None:
    """Return the first commit of the default branch with a version of a prompt, if there is one."""
    prefix = root.resolve().relative_to(repository.root).as_posix()
    history = _History(repository, "" if prefix == "." else f"{prefix}/", path)
    for commit, data in repository.first_parent_texts(history.prefix + path):
        moment = history.moment(0, 0, commit, data)
        if moment is not None and moment.version.startswith(version):
            return commit
    return None


class _Moment(NamedTuple):
    """A version of the prompt, by when it came to be."""

    texts: int
    """Distinct texts of the prompt until then."""
    changes: int
    """Changes of a file that it names until then; 0 for a change of the prompt itself."""
    version: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _History:
    """The history of a prompt on the default branch, with the files that it names."""

    repository: Repository
    prefix: str
    path: str

    def of_prompt(self) -> list[_Moment]:
        """Return a moment for each text of the prompt."""
        texts = self.repository.first_parent_texts(self.prefix + self.path)
        found = (self.moment(n, 0, commit, data) for n, (commit, data) in enumerate(texts, 1))
        return [moment for moment in found if moment is not None]

    def of_file(self, file: str) -> list[_Moment]:
        """Return a moment for each text of a file that the prompt names."""
        found: list[_Moment | None] = []
        prompt = self.prefix + self.path
        texts = self.repository.first_parent_texts(self.prefix + file)
        for number, (commit, _) in enumerate(texts, 1):
            before = len(self.repository.first_parent_texts(prompt, ref=commit))
            data = self.repository.read(commit, prompt)
            if data is not None:
                found.append(self.moment(before, number, commit, data))
        return [moment for moment in found if moment is not None]

    def moment(self, texts: int, changes: int, commit: str, data: bytes) -> _Moment | None:
        """Return the version of the prompt at a commit; None if it is not valid there."""
        tree = commit_tree.CommitTree(self.repository, commit, self.prefix)
        prompt, _ = read_prompt(data, self.path, partial(_json, tree))
        if prompt is None:
            return None
        named = (prompt.header.output, prompt.header.tools)
        files = tuple(file for file in named if isinstance(file, str))
        return _Moment(texts, changes, prompt.version, files)


def _json(tree: Tree, file: str) -> Json:
    return read_json(read(tree, file), file).value
