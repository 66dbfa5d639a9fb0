"""Which versions has a prompt had, and who wrote them?"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from edison_ci.config.commit_tree import CommitTree
from edison_ci.config.prompt import read_prompt
from edison_ci.documents.files import read
from edison_ci.documents.json_text import read_json
from edison_ci.frozen import dataclass
from edison_ci.git import run_git, text
from edison_ci.plan.versions import past_versions, short
from edison_ci.repository import Repository
from edison_ci.results.renames import former_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edison_ci.config.load import Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.documents.files import Tree
    from edison_ci.documents.marks import Json

_HASH = re.compile(r"[0-9a-f]{6,64}")


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a prompt."""

    hash: str
    label: str
    data: bytes | None
    """The file as it was; None for a version that only results tell of."""
    commit: str | None = None
    author: str | None = None
    date: str | None = None
    """When it was written, with the author's time zone."""
    subject: str | None = None
    former: str | None = None
    """The id that the prompt had then, if it has another one by now."""


# --- what Git knows -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class History:
    """The versions of one prompt in a repository."""

    prompt: Prompt
    project: Project
    repository: Repository | None

    @classmethod
    def of(cls, prompt: Prompt, project: Project) -> History:
        """Return the history of a prompt of a project."""
        return cls(prompt, project, Repository.find(project.root))

    @property
    def cut_off(self) -> bool:
        """Whether a shallow clone hides the older part."""
        return self.repository is not None and self.repository.is_shallow()

    def versions(self) -> list[Version]:
        """Return the versions, oldest first: merged, on this branch, and the file as it is."""
        found: dict[str, tuple[str | None, bytes]] = {}
        merged: list[str] = []
        if self.repository is not None:
            merged = past_versions(self.prompt.path, self.project.root, self.repository)
            texts = dict(self._texts(self.repository, None))
            found = {version: texts[version] for version in merged if version in texts}
            if self.repository.head() is not None:
                for version, place in self._texts(self.repository, "HEAD"):
                    found.setdefault(version, place)
        now = self.prompt.version
        found.setdefault(now, (None, read(self.project.tree, self.prompt.path)))
        authors = self._authors([commit for commit, _ in found.values() if commit])
        labels = self._labels(found, merged)
        return [
            Version(version, labels[version], data, commit, *authors.get(commit, ()))
            for version, (commit, data) in found.items()
        ]

    def former(self) -> list[Version]:
        """Return the versions that the prompt had under other names, oldest first."""
        if self.repository is None:
            return []
        prefix, found, cut_off = self._prefix(), [], self.cut_off
        for name in former_names(self.repository, prefix + self.prompt.path):
            if not name.path.startswith(prefix) or not name.path.endswith(".md"):
                break  # it came from outside of the project, or was no prompt
            path = name.path.removeprefix(prefix)
            texts = dict(self._texts(self.repository, name.until, path))
            authors = self._authors([commit for commit, _ in texts.values() if commit])
            old = path.rpartition("/")[2].removesuffix(".md")
            then = []
            for number, (version, (commit, data)) in enumerate(texts.items(), 1):
                label = f"v?+{short(version)}" if cut_off else f"v{number}"
                by, date, subject = authors.get(commit, (None, None, None))
                told = (version, f"{old}@{label}", data, commit, by, date, subject)
                then.append(Version(*told, former=old))
            found.append(then)
        return [version for then in reversed(found) for version in then]

    def at(self, commit: str) -> Version | None:
        """Return the version in a commit; None if the prompt is not there, or is not valid."""
        assert self.repository is not None, "a commit is in a repository"
        data = self.repository.read(commit, self._prefix() + self.prompt.path)
        prompt = None if data is None else self._read(self.repository, commit, data)
        if data is None or prompt is None:
            return None
        merged = past_versions(self.prompt.path, self.project.root, self.repository)
        (label,) = self._labels([prompt.version], merged).values()
        return Version(prompt.version, label, data, commit)

    def _labels(self, versions: Iterable[str], merged: list[str]) -> dict[str, str]:
        """Return what versions are called, as `label_of` has it, asking Git once for all."""
        if self.repository is None:
            return dict.fromkeys(versions, "v1")
        if self.cut_off:
            return {version: f"v?+{short(version)}" for version in versions}
        return {
            version: f"v{merged.index(version) + 1}"
            if version in merged
            else f"v{len(merged)}+{short(version)}"
            for version in versions
        }

    def _prefix(self) -> str:
        assert self.repository is not None
        prefix = self.project.root.resolve().relative_to(self.repository.root).as_posix()
        return "" if prefix == "." else f"{prefix}/"

    def _texts(
        self, repository: Repository, ref: str | None, path: str = ""
    ) -> Iterator[tuple[str, tuple[str | None, bytes]]]:
        """Yield each version with the first commit that has it; schemas it names count."""
        prefix, name = self._prefix(), path or self.prompt.path
        path = prefix + name
        seen: set[str] = set()
        files: dict[str, None] = {}
        for commit, data in repository.first_parent_texts(path, ref=ref):
            prompt = self._read(repository, commit, data, name)
            if prompt is None:
                continue
            named = (prompt.header.output, prompt.header.tools)
            files |= dict.fromkeys(file for file in named if isinstance(file, str))
            if prompt.version not in seen:
                seen.add(prompt.version)
                yield prompt.version, (commit, data)
        for file in files:
            for commit, _ in repository.first_parent_texts(prefix + file, ref=ref):
                data_then = repository.read(commit, path)
                if data_then is None:
                    continue
                prompt = self._read(repository, commit, data_then, name)
                if prompt is not None and prompt.version not in seen:
                    seen.add(prompt.version)
                    yield prompt.version, (commit, data_then)

    def _read(
        self, repository: Repository, commit: str, data: bytes, path: str = ""
    ) -> Prompt | None:
        tree = CommitTree(repository, commit, self._prefix())
        return read_prompt(data, path or self.prompt.path, partial(_json, tree))[0]

    def _authors(self, commits: list[str]) -> dict[str | None, tuple[str, str, str]]:
        if self.repository is None or not commits:
            return {}
        answer = run_git(
            *("log", "-z", "--no-walk=unsorted", "--format=%H%x00%an%x00%aI%x00%s"),
            *commits,
            cwd=self.repository.root,
        )
        fields = text(answer.out).split("\0")
        rows = zip(*(fields[offset::4] for offset in range(4)), strict=False)
        return {commit: (author, date, subject) for commit, author, date, subject in rows}


def _json(tree: Tree, file: str) -> Json:
    return read_json(read(tree, file), file).value


def named(versions: list[Version], wanted: str) -> Version | None:
    """Return the version with a label or a hash (at least 6 digits of it)."""
    for version in versions:
        if wanted == version.label:
            return version
    digits = wanted.rpartition("+")[2]
    if _HASH.fullmatch(digits):
        return next((version for version in versions if version.hash.startswith(digits)), None)
    return None
