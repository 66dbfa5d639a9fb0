"""Versions of a prompt: their names, and their texts in the history of Git."""

from __future__ import annotations

import contextlib
import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.prompt import Prompt, read_prompt
from edison_ci.documents.files import Tree, read
from edison_ci.documents.json_text import read_json
from edison_ci.errors import UsageError
from edison_ci.git import objects
from edison_ci.git.command import decode, run_git
from edison_ci.git.repository import MAX_HISTORY_COMMITS, Repository

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.documents.marks import Json


SHORT = 8


def short(version: str) -> str:
    """Return the form of a version that is shown everywhere."""
    return version[:SHORT]


def label_of(prompt: Prompt, root: Path) -> str:
    """Return v1, v2, ... after the distinct texts on the default branch; `vN+hash` before merge.

    A shallow clone does not know how many versions came before: there it is `v?+hash`.
    """
    repository = Repository.find(root)
    if repository is None:
        return "v1"
    if repository.is_shallow():
        return _label(prompt.version, None)
    return _label(prompt.version, past_versions(prompt.path, root, repository))


def _label(version: str, merged: list[str] | None) -> str:
    """Return the label of a version; `merged` is None where only a part of them is known."""
    if merged is None:
        return f"v?+{short(version)}"
    if version in merged:
        return f"v{merged.index(version) + 1}"
    return f"v{len(merged)}+{short(version)}"


def past_versions(path: str, root: Path, repository: Repository) -> list[str]:
    """Return the distinct versions of a prompt in first-parent history, oldest first.

    The schemas that a prompt names by path are part of it, so their history counts too.
    """
    texts = _Texts(repository, repository.prefix_of(root), path)
    of_prompt = [*texts.of_prompt()]
    moments = [(moment.number, 0, moment.version) for moment in of_prompt]
    for moment in texts.of_files(of_prompt):
        before = len(repository.first_parent_texts(texts.place, ref=moment.commit))
        moments.append((before, moment.number, moment.version))
    return list(dict.fromkeys(version for _, _, version in sorted(moments)))


def commit_of_version(path: str, root: Path, repository: Repository, version: str) -> str | None:
    """Return the first commit of the default branch with a version of a prompt, if there is one."""
    moments = _Texts(repository, repository.prefix_of(root), path).of_prompt()
    return next((moment.commit for moment in moments if moment.version.startswith(version)), None)


_MOST_TEXTS = 200
"""Newest texts of a prompt that are searched for a version; a page waits for it."""


def prompt_text(root: Path, path: str, version: str, commit: str | None) -> Prompt | None:
    """Return the prompt file that had a version: at a commit, else in the history of the branch."""
    repository = Repository.find(root)
    if repository is None:
        return None
    texts = _Texts(repository, repository.prefix_of(root), path, "HEAD")
    if commit is not None:
        with contextlib.suppress(UsageError):  # a shallow clone may lack the commit
            data = repository.read(commit, texts.place)
            prompt = None if data is None else texts.read(commit, data)
            if prompt is not None and prompt.version == version:
                return prompt
    if repository.head() is None:
        return None
    former = repository.first_parent_texts(texts.place, ref="HEAD")[-_MOST_TEXTS:]
    prompts = (texts.read(*text) for text in reversed(former))
    return next((prompt for prompt in prompts if prompt and prompt.version == version), None)


class _Moment(NamedTuple):
    """A version of the prompt, by when it came to be."""

    number: int
    """Distinct texts until then, of the prompt or of the file that it names."""
    version: str
    commit: str
    data: bytes
    """The file of the prompt at this commit."""
    files: tuple[str, ...]
    """The schemas that it names."""


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts of a prompt, and of the files that it names, by first parents up to a ref."""

    repository: Repository
    prefix: str
    path: str
    ref: str | None = None
    """None for the default branch."""

    @property
    def place(self) -> str:
        """The path of the prompt in the repository."""
        return self.prefix + self.path

    def of_prompt(self) -> Iterator[_Moment]:
        """Yield a moment for each text of the prompt that is valid."""
        texts = self.repository.first_parent_texts(self.place, ref=self.ref)
        for number, (commit, data) in enumerate(texts, 1):
            yield from self._moment(number, commit, data)

    def of_files(self, moments: Iterable[_Moment]) -> Iterator[_Moment]:
        """Yield a moment for each text of the files that the prompt names at some moments."""
        for file in dict.fromkeys(file for moment in moments for file in moment.files):
            texts = self.repository.first_parent_texts(self.prefix + file, ref=self.ref)
            for number, (commit, _) in enumerate(texts, 1):
                yield from self._moment(number, commit, self.repository.read(commit, self.place))

    def first_commits(self) -> dict[str, tuple[str | None, bytes]]:
        """Return each version with the first commit that has it, and its text there."""
        commits: dict[str, tuple[str | None, bytes]] = {}
        of_prompt = [*self.of_prompt()]
        for moment in (*of_prompt, *self.of_files(of_prompt)):
            commits.setdefault(moment.version, (moment.commit, moment.data))
        return commits

    def _moment(self, number: int, commit: str, data: bytes | None) -> Iterator[_Moment]:
        prompt = None if data is None else self.read(commit, data)
        if data is not None and prompt is not None:
            named = (prompt.header.output, prompt.header.tools)
            files = tuple(file for file in named if isinstance(file, str))
            yield _Moment(number, prompt.version, commit, data, files)

    def read(self, commit: str, data: bytes) -> Prompt | None:
        """Return the prompt as it was at a commit; None if it was not valid there."""
        tree = objects.CommitTree(self.repository, commit, self.prefix)
        return read_prompt(data, self.path, partial(_json, tree))[0]


def _json(tree: Tree, file: str) -> Json:
    return read_json(read(tree, file), file).value


# Git keeps no renames: it sees that a file went and a similar one came in the same commit. What it
# sees there is what it shows people, so it is what we follow.
MOST = 20
"""Names that are followed back."""


class FormerPath(NamedTuple):
    """A name that a file had."""

    path: str
    until: str
    """The last commit, by first parents, in which it had it."""


def former_names(repository: Repository, path: str) -> list[FormerPath]:
    """Return the names that a file had before this one, the last of them first."""
    head = repository.head()
    if head is None:
        return []
    answer = run_git(
        *("log", "--first-parent", "--follow", "--find-renames", "--raw", "-z", "--no-abbrev"),
        *("--no-ext-diff", "--no-textconv", "--diff-filter=R", "--format=%H %P"),
        *(f"--max-count={MAX_HISTORY_COMMITS}", head, "--", path),
        cwd=repository.root,
    )
    former: list[FormerPath] = []
    current, fields = path, iter(decode(answer.out).split("\0"))
    parent = ""
    for field in fields:
        if not field.lstrip("\n").startswith(":"):
            parent = field.strip().partition(" ")[2].partition(" ")[0]
            continue
        old, new = next(fields, ""), next(fields, "")
        if new == current and parent and len(former) < MOST:
            former.append(FormerPath(old, parent))
            current = old
    return former


_HASH = re.compile(r"[0-9a-f]{6,64}")


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a prompt."""

    hash: str
    label: str
    data: bytes | None
    """The file as it was; None for a version that is only in results."""
    commit: str | None = None
    author: str | None = None
    date: str | None = None
    """When it was written, with the author's time zone."""
    subject: str | None = None
    former: str | None = None
    """The id that the prompt had then, if it has another one by now."""


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
        texts_by_version: dict[str, tuple[str | None, bytes]] = {}
        merged: list[str] = []
        if self.repository is not None:
            merged = past_versions(self.prompt.path, self.project.root, self.repository)
            texts = self._texts(self.repository, self.prompt.path).first_commits()
            texts_by_version = {version: texts[version] for version in merged if version in texts}
            if self.repository.head() is not None:
                on_branch = self._texts(self.repository, self.prompt.path, "HEAD").first_commits()
                texts_by_version |= {
                    v: place for v, place in on_branch.items() if v not in texts_by_version
                }
        now = self.prompt.version
        texts_by_version.setdefault(now, (None, read(self.project.tree, self.prompt.path)))
        authors = self._authors([commit for commit, _ in texts_by_version.values() if commit])
        return [
            Version(version, self._label(version, merged), data, commit, *authors.get(commit, ()))
            for version, (commit, data) in texts_by_version.items()
        ]

    def former(self) -> list[Version]:
        """Return the versions that the prompt had under other names, oldest first."""
        if self.repository is None:
            return []
        prefix, by_name = self.repository.prefix_of(self.project.root), []
        cut_off = self.cut_off
        for name in former_names(self.repository, prefix + self.prompt.path):
            if not name.path.startswith(prefix) or not name.path.endswith(".md"):
                break  # it came from outside of the project, or was no prompt
            path = name.path.removeprefix(prefix)
            texts = self._texts(self.repository, path, name.until).first_commits()
            authors = self._authors([commit for commit, _ in texts.values() if commit])
            old = path.rpartition("/")[2].removesuffix(".md")
            then = []
            for number, (version, (commit, data)) in enumerate(texts.items(), 1):
                label = f"v?+{short(version)}" if cut_off else f"v{number}"
                by, date, subject = authors.get(commit, (None, None, None))
                fields = (version, f"{old}@{label}", data, commit, by, date, subject)
                then.append(Version(*fields, former=old))
            by_name.append(then)
        return [version for then in reversed(by_name) for version in then]

    def at(self, commit: str) -> Version | None:
        """Return the version in a commit; None if the prompt is not there, or is not valid."""
        assert self.repository is not None, "a commit is in a repository"
        texts = self._texts(self.repository, self.prompt.path)
        data = self.repository.read(commit, texts.place)
        prompt = None if data is None else texts.read(commit, data)
        if data is None or prompt is None:
            return None
        merged = past_versions(self.prompt.path, self.project.root, self.repository)
        return Version(prompt.version, self._label(prompt.version, merged), data, commit)

    def _label(self, version: str, merged: list[str]) -> str:
        if self.repository is None:
            return "v1"
        return _label(version, None if self.cut_off else merged)

    def _texts(self, repository: Repository, path: str, ref: str | None = None) -> _Texts:
        return _Texts(repository, repository.prefix_of(self.project.root), path, ref)

    def _authors(self, commits: list[str]) -> dict[str | None, tuple[str, str, str]]:
        if self.repository is None or not commits:
            return {}
        answer = run_git(
            *("log", "-z", "--no-walk=unsorted", "--format=%H%x00%an%x00%aI%x00%s"),
            *commits,
            cwd=self.repository.root,
        )
        fields = decode(answer.out).split("\0")
        rows = zip(*(fields[offset::4] for offset in range(4)), strict=False)
        return {commit: (author, date, subject) for commit, author, date, subject in rows}


def find_version(versions: list[Version], name: str) -> Version | None:
    """Return the version with a label or a hash (at least 6 digits of it)."""
    for version in versions:
        if name == version.label:
            return version
    digits = name.rpartition("+")[2]
    if _HASH.fullmatch(digits):
        return next((version for version in versions if version.hash.startswith(digits)), None)
    return None
