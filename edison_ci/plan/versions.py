"""Which version of a prompt is this, by name?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from edison_ci.config.commit_tree import CommitTree
from edison_ci.config.prompt import Prompt, read_prompt
from edison_ci.documents.files import Tree, read
from edison_ci.documents.json_text import read_json
from edison_ci.repository import Repository

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.documents.marks import Json

SHORT = 8


def short(version: str) -> str:
    """Return the form of a version that is shown everywhere."""
    return version[:SHORT]


def label_of(prompt: Prompt, root: Path, repository: Repository | None = None) -> str:
    """Return v1, v2, ... after the distinct texts on the default branch; `vN+hash` before merge."""
    repository = repository or Repository.find(root)
    if repository is None:
        return "v1"
    past = past_versions(prompt.path, root, repository)
    if prompt.version in past:
        return f"v{past.index(prompt.version) + 1}"
    return f"v{len(past)}+{short(prompt.version)}" if past else f"v0+{short(prompt.version)}"


def past_versions(path: str, root: Path, repository: Repository) -> list[str]:
    """Return the distinct versions of a prompt in first-parent history, oldest first."""
    prefix = root.resolve().relative_to(repository.root).as_posix()
    full = path if prefix == "." else f"{prefix}/{path}"
    versions: list[str] = []
    for commit, data in repository.first_parent_texts(full):
        tree = CommitTree(repository, commit, "" if prefix == "." else prefix)
        prompt, _ = read_prompt(data, path, partial(_json, tree))
        if prompt is not None and prompt.version not in versions:
            versions.append(prompt.version)
    return versions


def _json(tree: Tree, file: str) -> Json:
    return read_json(read(tree, file), file).value
