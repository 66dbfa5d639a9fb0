"""CODEOWNERS of a repository: who must approve a change of which files, derived from the members.

GitHub reads the file from the base branch of a pull request; of the lines that match a path the
last one counts. Reviewers and above own what is evaluated, wherever it lies: the folders of the
project, and what its experiments use outside of them. Admins and owners own what decides about
trust, and the code that gets keys or that pull requests may run.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.access.site import Role
from edison_ci.config import program_files
from edison_ci.config.load import INSTRUCTIONS
from edison_ci.config.project_files import JUDGE_APPROVALS, PROJECT, QUARANTINE, about_path
from edison_ci.errors import Location, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.config.project import Member
    from edison_ci.documents.files import Tree

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
"""Where GitHub looks for the file; the first one counts."""
MAX_BYTES = 3_000_000
"""GitHub ignores a larger file."""
BEGIN = "# edison: begin, written by `edison roles sync` from members in edison.yaml"
END = "# edison: end"
_GITHUB = ".github/"
_ODD = re.compile(r"[*?\[\]!#\\\x00-\x1f]")
"""Characters that a pattern cannot contain literally."""


class OwnedPath(NamedTuple):
    """A file or folder of the repository, and the lowest role that may approve its changes."""

    path: str
    """From the top of the repository, which itself is empty; a folder ends with a slash."""
    role: Role

    @property
    def pattern(self) -> str:
        """The path as a pattern of CODEOWNERS; raises UsageError if there is none."""
        if odd := _ODD.search(self.path):
            raise UsageError(
                f"CODEOWNERS cannot name {self.path!r}: it contains {odd[0]!r}",
                hint="rename the file or folder, and paths in edison.yaml",
            )
        return "/" + self.path.replace(" ", "\\ ")

    def covers(self, path: str) -> bool:
        """Whether a file is this one, or in this folder."""
        if self.path.endswith("/") or not self.path:
            return path.startswith(self.path)
        return path == self.path


def owned_paths(project: Project, prefix: str = "") -> list[OwnedPath]:
    """Return what needs the approval of a member; `prefix` is the folder of the project."""
    paths = project.file.paths
    folders = [paths.prompts, paths.experiments, paths.datasets, paths.rubrics]
    folders += [str(PurePosixPath(path).parent) for path in INSTRUCTIONS]
    own = [*(f"{folder}/" for folder in folders), QUARANTINE, JUDGE_APPROVALS]
    trusted = [PROJECT, paths.models, ".edison/", *sorted(_trusted_code(project))]
    used = [path for path in sorted(_used(project)) if path not in trusted]
    return [
        *(OwnedPath(prefix + path, Role.REVIEWER) for path in _outermost([*own, *used], trusted)),
        *(OwnedPath(prefix + path, Role.ADMIN) for path in dict.fromkeys(trusted)),
        OwnedPath(_GITHUB, Role.ADMIN),
    ]


def _used(project: Project) -> Iterator[str]:
    """Yield the files and folders that the experiments and models of a project use."""
    for experiment in project.experiments.values():
        yield from project.files_of(experiment)
        yield from (about_path(entry.path) for entry in experiment.file.data)
        for path in experiment.code_files(project.tree):
            if folder := path.rpartition("/")[0]:  # code imports what lies beside it
                yield f"{folder}/"
    for model in project.models.values():
        yield from (path for path in (model.store, model.script) if path)
        if model.provider == "command":
            yield from _program(model, project.tree)


def _trusted_code(project: Project) -> Iterator[str]:
    """Yield the code that pull requests may run, and that of programs with keys or network."""
    trust, tree = project.trust, project.tree
    yield from _places(trust.code.paths, tree)
    for entry in trust.programs:
        model = project.models.get(entry.model)
        if model is not None and model.provider == "command" and not entry.needs_nothing:
            yield from _program(model, tree)


def _program(model: Model, tree: Tree) -> Iterator[str]:
    """Yield the files and folders of a program, and the files that its command lines name."""
    yield from _places(model.options["files"], tree)
    words = (*model.options["run"], *(model.options.get("setup") or ()))
    yield from program_files.files_among(words, tree)


def _places(paths: Iterable[str], tree: Tree) -> Iterator[str]:
    """Yield paths, folders with a slash at their end; one that is not there may become either."""
    for path in paths:
        is_folder = bool(tree.names(path))
        if not is_folder:
            yield path
        if is_folder or not tree.exists(path):
            yield f"{path}/"


def _outermost(paths: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return the paths that are not in a folder of the list, nor in another one of `others`."""
    listed = dict.fromkeys(paths)
    folders = {*listed, *others}
    return [
        path
        for path in listed
        if not any(f"{above}/" in folders for above in PurePosixPath(path).parents)
    ]


def owner_name(member: Member) -> str:
    """Return how CODEOWNERS names a member."""
    return f"@{member.github}" if member.github else str(member.email)


def owners_of(members: Sequence[Member], role: Role) -> list[str]:
    """Return the members with at least this role, as CODEOWNERS names them."""
    return [owner_name(member) for member in members if Role[member.role.upper()] >= role]


def section(paths: Sequence[OwnedPath], members: Sequence[Member]) -> list[str]:
    """Return the lines for the members; empty without members."""
    if not members:
        return []
    width = max(len(owned.pattern) for owned in paths)
    lines = [BEGIN]
    for owned in paths:
        owners = " ".join(owners_of(members, owned.role))
        # A line without owners would mean that everyone may approve.
        lines += [f"{owned.pattern.ljust(width)} {owners}"] if owners else []
    return [*lines, END]


def with_section(text: str, lines_of_section: Sequence[str], where: str) -> str:
    """Return the text of CODEOWNERS with these lines at its end; other lines stay as they are."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines()
    begins = [at for at, line in enumerate(lines) if line.strip().startswith("# edison: begin")]
    ends = [at for at, line in enumerate(lines) if line.strip() == END]
    if len(begins) != len(ends) or len(begins) > 1 or (begins and ends[0] < begins[0]):
        raise UsageError(
            f"the lines {BEGIN.split(',')[0]!r} and {END!r} do not pair",
            hint="remove them and what was between them, then run again: edison roles sync",
            where=Location(where, (begins or ends)[0] + 1),
        )
    if begins:
        del lines[begins[0] : ends[0] + 1]
    while lines and not lines[-1].strip():
        lines.pop()
    if lines_of_section:
        lines += ["", *lines_of_section] if lines else lines_of_section
    return "".join(f"{line}{newline}" for line in lines)


class OwnerRule(NamedTuple):
    """A line of CODEOWNERS."""

    line: int
    pattern: str
    owners: tuple[str, ...]


def read_rules(text: str) -> list[OwnerRule]:
    """Return the lines of CODEOWNERS that have a pattern."""
    rules = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = re.findall(r"(?:\\ |\S)+", re.sub(r"(?:^|\s)#.*", "", line))
        if words:
            pattern = words[0].replace("\\ ", " ")
            rules.append(OwnerRule(number, pattern, tuple(words[1:])))
    return rules


def rule_of(rules: Iterable[OwnerRule], path: str) -> OwnerRule | None:
    """Return the line that counts for a file: the last one that matches."""
    matching = [rule for rule in rules if _matcher(rule.pattern).fullmatch(path)]
    return matching[-1] if matching else None


@cache
def _matcher(pattern: str) -> re.Pattern[str]:
    """Return a pattern of CODEOWNERS, which is like one of .gitignore, as an expression."""
    body = pattern.strip("/")
    anchored = pattern.startswith("/") or "/" in body
    pattern_text = "".join(_piece(piece) for piece in re.split(r"(\*\*/|/\*\*|\*\*|\*|\?)", body))
    start = "" if anchored else "(?:.*/)?"
    below = "/.*" if pattern.endswith("/") else "(?:/.*)?"
    # The one exception: `docs/*` matches files of the folder, and not those of its folders.
    if re.search(r"(?:^|/)\*$", pattern) and pattern != "*":
        below = ""
    return re.compile(f"{start}{pattern_text}{below}", re.DOTALL)


def _piece(text: str) -> str:
    special = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return special.get(text) or re.escape(text)
