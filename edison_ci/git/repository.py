"""A Git repository: commits to compare with, changed files, and former contents of files.

Everything is read from the local clone. Only `base_for` and `obtain` may use the network, and only
in a shallow clone, which they then deepen.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from dataclasses import field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.git import command
from edison_ci.git import objects as git_objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_FILE_BYTES = 10_000_000
_MAX_WRITTEN_BYTES = 1_000_000_000
MAX_TEXT_BYTES = 1_000_000
MAX_HISTORY_BYTES = 100_000_000
MAX_HISTORY_COMMITS = 10_000

_FULL_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BRANCH_NAME = re.compile(r"[^\x00-\x20\x7f~^:?*\[\\]+")
_OLDER_THAN_HEAD = re.compile(r"(HEAD|@)[~^]")
_EXECUTABLE = "100755"
_REGULAR_MODES = frozenset({"100644", _EXECUTABLE})


class FileVersion(NamedTuple):
    """A former content of a file, and the first commit that has it."""

    commit: str
    data: bytes


class FileChange(NamedTuple):
    """A commit that changed a file, as Git reports it."""

    commit: str
    date: str
    author: str
    """Name and address."""
    subject: str
    blob: str
    """Id of the content after it."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A Git repository with a working tree; paths in it are POSIX and relative to `root`.

    Names that are not UTF-8 have surrogate escapes, as elsewhere in Python.
    """

    root: Path
    objects: git_objects.Objects = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Open the reader of objects, one for the repository."""
        object.__setattr__(self, "objects", git_objects.Objects(self.root))

    @classmethod
    def find(cls, path: Path) -> Repository | None:
        """Return the repository whose working tree contains `path`, if there is one."""
        start = path.resolve()
        # Searched here because Git would also accept any folder that looks like a bare repository,
        # and a pull request can contain such a folder, with its own configuration.
        top = next((up for up in (start, *start.parents) if (up / ".git").exists()), None)
        if top is None:
            return None
        marker = top / ".git"
        places = (marker, marker / "config", marker / "shallow")
        state = tuple((at.stat().st_ino, at.stat().st_mtime_ns) for at in places if at.is_file())
        return _repository(start, top, (marker.stat().st_ino, *state))

    @classmethod
    def required(cls, path: Path, hint: str = "") -> Repository:
        """Return the repository whose working tree contains `path`; raises UsageError."""
        repository = cls.find(path)
        if repository is None:
            raise UsageError("this project is not in a Git repository", hint=hint)
        return repository

    def head(self) -> str | None:
        """Return the commit that is checked out; None before the first one."""
        return self._commit("HEAD")

    def branch(self) -> str | None:
        """Return the branch that is checked out; None if there is none."""
        answer = self._ask("symbolic-ref", "--quiet", "--short", "HEAD")
        return answer.line if answer.code == 0 else None

    def prefix_of(self, folder: Path) -> str:
        """Return the path of a folder in the repository with a slash; '' for its root."""
        path = folder.resolve().relative_to(self.root).as_posix()
        return "" if path == "." else f"{path}/"

    def is_shallow(self) -> bool:
        """Whether this clone lacks the older part of its history."""
        return self._ask("rev-parse", "--is-shallow-repository").line == "true"

    def default_branch(self) -> str | None:
        """Return the default branch, as a name for `resolve`; None if there is none."""
        ref = self._default_ref()
        return ref and ref.removeprefix("refs/heads/").removeprefix("refs/remotes/")

    def default_commit(self) -> str | None:
        """Return the newest commit of the default branch; None if there is none.

        A tag may have the name of the branch, so the whole name of the branch is resolved.
        """
        return self._commit(self._default_ref() or "")

    def resolve(self, ref: str) -> str:
        """Return the full id of the commit that `ref` names; raises UsageError if there is none."""
        commit = self._commit(ref)
        if commit is None:
            raise self._unknown(ref)
        return commit

    def base_for(self, ref: str, *, fetch: bool = True) -> str:
        """Return the commit to compare the working tree with, for a comparison with `ref`.

        It is the merge base of HEAD and `ref`, so that later commits of `ref` do not count as
        changes. If HEAD is the merge commit that a forge made for a pull request and `ref` is a
        branch, it is HEAD^1: the branch that was merged into, even if the local `ref` is older.
        Without `fetch` a shallow clone is not deepened.
        """
        head = self.head()
        if head is None:
            raise UsageError(
                "the repository has no commit to compare", hint="commit something first"
            )
        base = self._merge_base(ref, head)
        if base is None and fetch and self.is_shallow():
            base = self._fetched_merge_base(ref, head)
        if base is None:
            raise self._unrelated(ref)
        merged_into = self._pull_request_base(head)
        if merged_into and self._is_branch(ref) and self.is_ancestor(base, merged_into):
            return merged_into
        return base

    def obtain(self, commit: str) -> bool:
        """Return whether a commit is available, fetching it into a shallow clone if needed."""
        if self._commit(_full_id(commit)) == commit:
            return True
        remote = command.remote_of(self.root) if self.is_shallow() else None
        fetched = remote is not None and command.fetch(
            self.root, remote, "--depth=1", wanted=commit
        )
        self.objects.close()
        return fetched and self._commit(commit) == commit

    def tagged(self, tag: str) -> str | None:
        """Return the commit of a tag; None if there is none. A branch of that name is no tag."""
        return self._commit(f"refs/tags/{tag}")

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether a commit is in the history of another, or is the same."""
        return self._ask("merge-base", "--is-ancestor", older, newer).code == 0

    def parents(self, commit: str) -> tuple[str, ...]:
        """Return the parents of a commit, also those that a shallow clone lacks."""
        lines = command.decode(self._git("cat-file", "commit", _full_id(commit))).split("\n\n", 1)[
            0
        ]
        return tuple(re.findall(r"(?m)^parent ([0-9a-f]+)$", lines))

    def authors(self, *, most: int) -> list[tuple[str, str]]:
        """Return name and e-mail address of the authors of the last commits, each pair once."""
        log = self._ask("log", f"--max-count={most}", "--format=%aN%x00%aE%x00", "HEAD", "--")
        parts = [part.strip() for part in command.decode(log.out).split("\0")]
        return [*dict.fromkeys(zip(parts[::2], parts[1::2], strict=False))]

    def changed_paths(self, base: str) -> frozenset[str]:
        """Return the paths that differ between commit `base` and the working tree.

        Untracked files count, ignored ones do not; of a renamed file both names are returned.
        """
        with tempfile.TemporaryDirectory() as folder:
            # `git diff` refreshes the index, so it works on a copy. The copy keeps its time, by
            # which Git recognises files that were written just before or after it.
            index = Path(folder, "index")
            original = Path(self.root, self._ask("rev-parse", "--git-path", "index").line)
            if original.exists():
                shutil.copy2(original, index)
            tracked = self._git(
                *("diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--no-textconv"),
                # "dirty" keeps Git from starting another Git inside each submodule.
                *("--ignore-submodules=dirty", _full_id(base), "--"),
                environment={**self._filters_off(), "GIT_INDEX_FILE": str(index)},
            )
        untracked = self._git("ls-files", "--others", "--exclude-standard", "-z")
        # An untracked repository inside this one is listed as a folder, with a slash at the end.
        return frozenset(name.rstrip("/") for name in _split(tracked + untracked))

    def own_files(self, folder: Path, places: Iterable[str]) -> list[str]:
        """Return the regular files of the working tree at or below places in a folder.

        Those that are tracked, and untracked ones that are not ignored; relative to the folder.
        """
        prefix = folder.resolve().relative_to(self.root.resolve()).as_posix()
        start = "" if prefix == "." else f"{prefix}/"
        listed = self._git(
            *("ls-files", "--cached", "--others", "--exclude-standard", "-z", "--"),
            *(f"{start}{place}" for place in places),
        )
        files = (self.root / path for path in dict.fromkeys(_split(listed)))
        return [
            path.relative_to(self.root).as_posix().removeprefix(start)
            for path in files
            if path.is_file() and not path.is_symlink()
        ]

    def list_files(self, commit: str, under: str = "") -> tuple[str, ...]:
        """Return the regular files of a commit, all or those in one folder, sorted."""
        return tuple(sorted(self._blobs(commit, under.rstrip("/"))))

    def modes(self, commit: str) -> dict[str, str]:
        """Return the modes of all entries of a commit, also links and submodules, by path."""
        return {name: mode for name, (mode, _) in self._entries(commit, "").items()}

    def read(self, commit: str, path: str, *, max_bytes: int = MAX_FILE_BYTES) -> bytes | None:
        """Return the content of a file in a commit; None unless it is a regular file."""
        if path and not _is_inside(path):
            return None
        try:
            return self.objects.file(_full_id(commit), path, max_bytes=max_bytes)
        except git_objects.TooLargeError as large:
            raise UsageError(
                f"{path!r} has {large.size:,} bytes in commit {commit[:8]}, more than "
                f"{max_bytes:,}",
                hint="compare with a commit in which the file is smaller",
            ) from None
        except git_objects.ObjectUnavailable:  # a separate command gives the reason
            blob = self._blobs(commit, path).get(path)
            return None if blob is None else self._git("cat-file", "blob", blob)

    def write_files(self, commit: str, under: str, folder: Path) -> None:
        """Write the regular files of a commit, all or those in one folder, below another folder."""
        for path, (mode, blob) in self._entries(commit, under.rstrip("/")).items():
            name = path.removeprefix(under)
            if mode not in _REGULAR_MODES or not _is_inside(name):
                continue
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.objects.blob(blob, max_bytes=_MAX_WRITTEN_BYTES))
            target.chmod(0o755 if mode == _EXECUTABLE else 0o644)

    def first_parent_texts(
        self, path: str, *, ref: str | None = None, max_bytes: int = MAX_TEXT_BYTES
    ) -> list[FileVersion]:
        """Return the distinct contents of a file on the default branch (or `ref`), oldest first.

        Renames are not followed, contents above `max_bytes` are left out, and a shallow clone
        has only a part of them.
        """
        start = self.resolve(ref) if ref else self._commit(self._default_ref() or "HEAD")
        if start is None or not _is_inside(path):
            return []
        log = self._git(
            *("log", "--first-parent", "--raw", "-z", "--no-abbrev"),
            *("--no-renames", "--no-ext-diff", "--no-textconv", "--format=%H"),
            *(f"--max-count={MAX_HISTORY_COMMITS}", start, "--", path),
        )
        first_seen: dict[str, str] = {}
        for commit, blob in reversed(list(_history(log, path))):
            first_seen.setdefault(blob, commit)
        texts = self._contents(list(first_seen), max_bytes=max_bytes)
        return [FileVersion(first_seen[blob], data) for blob, data in texts.items()]

    def changes_of(self, path: str, *, most: int) -> list[FileChange]:
        """Return the newest commits that changed a file of the current branch, newest first.

        They are those of the first-parent history; renames are not followed.
        """
        head = self.head()
        if head is None or not _is_inside(path):
            return []
        log = self._git(
            *("log", "--first-parent", "--raw", "-z", "--no-abbrev"),
            *("--no-renames", "--no-ext-diff", "--no-textconv"),
            *("--format=%H%x1f%aI%x1f%an <%ae>%x1f%s", f"--max-count={most}", head, "--", path),
        )
        changes = []
        for entry, blob in _history(log, path):
            commit, date, author, subject = entry.split("\x1f", 3)
            changes.append(FileChange(commit, date, author, subject, blob))
        return changes

    def contents(self, blobs: Iterable[str], *, max_bytes: int) -> Iterator[bytes | None]:
        """Yield the content of each blob; None for one that is missing or larger."""
        for blob in blobs:
            try:
                yield self.objects.blob(blob, max_bytes=max_bytes)
            except (git_objects.ObjectUnavailable, git_objects.TooLargeError):
                yield None

    def _commit(self, ref: str) -> str | None:
        return self.objects.commit(ref) if ref and not set("\0\n") & set(ref) else None

    def _default_ref(self) -> str | None:
        names = (self._ask("config", "--get", "init.defaultBranch").line, "main", "master")
        places = ("refs/heads", "refs/remotes/origin")
        remote_head = "refs/remotes/origin/HEAD"
        refs = [f"{place}/{name}" for name in names if name for place in places]
        output = self._ask(
            "for-each-ref", "--format=%(refname) %(symref)", remote_head, *dict.fromkeys(refs)
        )
        there = dict(line.split(" ", 1) for line in output.line.splitlines())
        ref = there.get(remote_head) or next((ref for ref in refs if ref in there), None)
        if ref is None:
            head = self._ask("symbolic-ref", "--quiet", "HEAD").line
            ref = head if self._commit(head) else None
        return ref

    def _is_branch(self, ref: str) -> bool:
        name = self._ask("rev-parse", "--symbolic-full-name", "--verify", "--end-of-options", ref)
        return name.line.startswith(("refs/heads/", "refs/remotes/"))

    def _pull_request_base(self, head: str) -> str | None:
        """Return HEAD^1 if HEAD is the merge that `actions/checkout` fetches for a pull request."""
        refs = self._git(
            *("for-each-ref", "--format=%(refname)", f"--points-at={head}"),
            *("refs/remotes/pull/*/merge", "refs/pull/*/merge"),
        )
        return self._commit("HEAD^1") if refs and self._commit("HEAD^2") else None

    def _merge_base(self, ref: str, head: str) -> str | None:
        commit = self._commit(ref)
        if commit is None or commit == head:
            return commit
        return self._ask("merge-base", commit, head).line or None

    def _fetched_merge_base(self, ref: str, head: str) -> str | None:
        remote = command.remote_of(self.root, ref)
        if remote is None:
            return None
        if self._commit(ref) is None and not _OLDER_THAN_HEAD.match(ref):
            wanted = ref if _FULL_ID.fullmatch(ref) else ""
            if ref.startswith(f"{remote}/") and _BRANCH_NAME.fullmatch(ref):
                branch = ref.removeprefix(f"{remote}/")
                wanted = f"+refs/heads/{branch}:refs/remotes/{ref}"
            if not wanted or not command.fetch(self.root, remote, "--depth=1", wanted=wanted):
                return None
            self.objects.close()
        for more in (*command.DEEPENINGS, "--unshallow"):
            base = self._merge_base(ref, head)
            if base or not self.is_shallow() or not command.deepen(self.root, remote, more):
                return base
            self.objects.close()
        return self._merge_base(ref, head)

    def _unknown(self, ref: str) -> UsageError:
        near: list[str] = []
        if re.fullmatch("0{40}|0{64}", ref):
            message = f"{ref!r} means no commit: the branch is new"
        elif _FULL_ID.fullmatch(ref):
            message = f"commit {ref!r} is not in this clone: a force push may have removed it"
        else:
            message = f"unknown commit, branch or tag {ref!r}"
            near = self._similar(ref)
        default = self.default_branch()
        hints = [f"did you mean {' or '.join(map(repr, near))}?"] if near else []
        if default and not near:
            hints.append(f"compare with the default branch, {default!r}")
        hints += self._history_hints()
        return UsageError(message, hint="; or ".join(hints))

    def _history_hints(self) -> list[str]:
        if not self.is_shallow():
            return []
        if self._pull_request_base(self.resolve("HEAD")):
            return ["compare with 'HEAD^1', the base that this pull request is merged into"]
        return ["check out with `fetch-depth: 2` for a pull request, else with `fetch-depth: 0`"]

    def _similar(self, ref: str) -> list[str]:
        listed = self._ask(
            *("for-each-ref", "--format=%(refname:lstrip=2)"),
            *("refs/heads", "refs/remotes", "refs/tags"),
        )
        names = listed.line.splitlines()
        same = [name for name in names if name.endswith(f"/{ref}")]
        import difflib  # only needed after an error

        return same or difflib.get_close_matches(ref, names)

    def _unrelated(self, ref: str) -> UsageError:
        if self._commit(ref) is None:
            return self._unknown(ref)
        if ways := self._history_hints():
            message = f"this shallow clone does not contain the merge base of {ref!r} and HEAD"
            return UsageError(message, hint="; or ".join(ways))
        message = f"{ref!r} and HEAD have no common history"
        return UsageError(message, hint="compare with the branch that this one started from")

    def _blobs(self, commit: str, under: str) -> dict[str, str]:
        """Return the ids of the regular files of a commit, by path."""
        if under and not _is_inside(under):
            return {}
        entries = self._entries(commit, under).items()
        return {name: blob for name, (mode, blob) in entries if mode in _REGULAR_MODES}

    def _entries(self, commit: str, under: str) -> dict[str, tuple[str, str]]:
        """Return mode and id of the entries of a commit, or of a folder in it, by path."""
        places = (under,) if under else ()
        tree = self._git("ls-tree", "-r", "-z", "--full-tree", _full_id(commit), "--", *places)
        parts = [entry.partition("\t") for entry in _split(tree)]
        return {name: (about.split(" ")[0], about.split(" ")[2]) for about, _, name in parts}

    def _contents(self, blobs: list[str], *, max_bytes: int) -> dict[str, bytes]:
        """Return the content of each blob that is available and not too large."""
        contents: dict[str, bytes] = {}
        left = MAX_HISTORY_BYTES
        for blob in blobs:
            with contextlib.suppress(git_objects.ObjectUnavailable, git_objects.TooLargeError):
                contents[blob] = self.objects.blob(blob, max_bytes=max_bytes)
                left -= len(contents[blob])
            if left < 0:
                raise UsageError(
                    f"the versions of one file in the history have more than {MAX_HISTORY_BYTES:,} "
                    "bytes",
                    hint="rename the file: its history then starts again",
                )
        return contents

    def _filters_off(self) -> dict[str, str]:
        """Return an environment that disables the content filters of this repository.

        Comparing a file starts its filter. Filters of the user's own configuration stay on; a
        disabled filter can at worst make an unchanged file look changed.
        """
        fields = _split(
            self._ask(
                "config", "--show-scope", "--name-only", "-z", "--get-regexp", "^filter[.]"
            ).out
        )
        drivers = {
            key.rpartition(".")[0]
            for scope, key in zip(fields[::2], fields[1::2], strict=True)
            if scope in {"local", "worktree"}
        }
        settings = [
            (f"{driver}.{key}", value)
            for driver in sorted(drivers)
            for key, value in (("clean", ""), ("process", ""), ("required", "false"))
        ]
        environment = {"GIT_CONFIG_COUNT": str(len(settings))}
        for number, (key, value) in enumerate(settings):
            environment[f"GIT_CONFIG_KEY_{number}"] = key
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        return environment

    def _ask(self, *args: str, stdin: bytes = b"") -> command.GitOutput:
        return command.run_git(*args, cwd=self.root, stdin=stdin)

    def _git(
        self, *args: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> bytes:
        answer = command.run_git(*args, cwd=self.root, stdin=stdin, environment=environment)
        if answer.code:
            raise UsageError(
                f"git {args[0]} failed: {answer.reason!r}",
                hint=f"run `git status` in {str(self.root)!r}",
            )
        return answer.out


@lru_cache(maxsize=4)
def _repository(start: Path, top: Path, _state: tuple[object, ...]) -> Repository | None:
    """Return the repository at `top`, if its working tree has `start`.

    It is kept, with its reader of objects, as long as its configuration stays as it is, and the
    end of a shallow history, which a running Git does not read again.
    """
    answer = command.run_git("rev-parse", "--show-toplevel", cwd=top)
    if b"dubious ownership" in answer.err:
        raise UsageError(
            f"Git refuses to work in {str(top)!r}, which belongs to another user",
            hint=f"git config --global --add safe.directory {top}",
        )
    root = Path(answer.line)
    # `core.worktree` may name any other folder.
    ours = start.is_relative_to(root) and (root / ".git").exists()
    return Repository(root) if answer.code == 0 and ours else None


def _split(listing: bytes) -> list[str]:
    return [command.decode(name) for name in listing.split(b"\0")[:-1]]


def _history(log: bytes, path: str) -> Iterator[tuple[str, str]]:
    """Yield commit and blob for each change of one regular file in `git log --raw -z`."""
    commit, fields = "", iter(_split(log))
    for line in fields:
        if ":" not in line[:2]:  # the first change of a commit begins on a new line
            commit = line
            continue
        _, mode, _, blob, _ = line.split(" ")
        if next(fields) == path and mode in _REGULAR_MODES:
            yield commit, blob


def _is_inside(path: str) -> bool:
    posix = PurePosixPath(path)
    return not (posix.is_absolute() or ".." in posix.parts or "\0" in path or not posix.parts)


def _full_id(commit: str) -> str:
    if not _FULL_ID.fullmatch(commit):
        raise UsageError(f"{commit!r} is not the full id of a commit", hint="resolve it first")
    return commit


def commit_names(ref: str, commit: str) -> tuple[str, ...]:
    """Return the ref and the short id of a commit, or only the id if the ref is the id."""
    short = commit[:8]
    return (short,) if commit.startswith(ref) else (ref, short)
