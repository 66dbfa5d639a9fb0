"""Forgetting of a case or a person: in the results, their backups, recordings and drafts.

The results go first, in one transaction with a row of the audit; then each copy is rewritten on its
own. A process that is killed has finished some of them, and the same command finishes the rest.
Files that people wrote are not changed: the lines with the text are listed, in Git's history too.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import unicodedata
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.access.own_results import unsigned_path
from edison_ci.access.site import Role
from edison_ci.api.recordings import is_recording, replace_recording
from edison_ci.config.cases import CaseFeed
from edison_ci.config.project_files import PROJECT
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import ConfigError, EdisonError, UsageError
from edison_ci.features.upkeep.forgetting import (
    CaseName,
    Forgotten,
    Selection,
    find_in_copy,
    half_done,
    overwrite_removed,
    remove_texts,
    rewrite_copy,
    texts_of_case,
)
from edison_ci.git.command import decode, run_git
from edison_ci.records import canonical_json
from edison_ci.store.audit import FORGET, exports
from edison_ci.store.database import open_for_reading
from edison_ci.store.liveness import exclusive_access, housekeeping_lock, refuse_while_run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from edison_ci.access.site import Site
    from edison_ci.config.load import Project
    from edison_ci.feature import Wish
    from edison_ci.records import Case, Json

SHORTEST = 3
"""Characters of a text that a person is found by; shorter ones are in every text."""
_QUOTE = 40
"""Characters from the beginning or end of a text of a case by which a quote of it is found."""
_MOST_PLACES = 100
_MOST_COMMITS = 20
_MOST_BYTES = 100_000_000
_SKIPPED = frozenset({".git", ".venv", "node_modules", "__pycache__"})
_DRAFTS = frozenset({"cache", "loops", "suggestions", "transfer"})
"""Folders in .edison with files made from results. All else there is settings, keys and money."""


class Place(NamedTuple):
    """A line of a file that people wrote."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """Where the texts are."""

    wish: Wish
    selection: Selection
    results: Forgotten
    copies: tuple[tuple[Path, Forgotten], ...]
    recordings: tuple[tuple[Path, int], ...]
    """Recordings, and how many of their answers go."""
    drafts: tuple[Path, ...]
    """Files made from results, which are removed."""
    unreadable: tuple[Path, ...]
    """Copies that cannot be read, or are links to elsewhere, and so not rewritten."""
    places: tuple[Place, ...]
    """Lines of files that people wrote."""
    commits: tuple[str, ...]
    """Commits that added or removed the text, newest first."""
    exports: tuple[str, ...]
    """Files that were exported before, from the audit."""
    projects: tuple[Path, ...]
    """Other projects in folders of this one, in which nothing is looked for."""
    features: Mapping[str, int]
    """Texts in files of features of packages, by feature."""

    @property
    def found(self) -> bool:
        """Whether there is anything to remove."""
        copies = any(forgotten.rows for _, forgotten in self.copies)
        others = any(self.features.values())
        return bool(self.results.rows or copies or self.recordings or self.drafts or others)


def plan_forget(site: Site, project: Project, wish: Wish) -> ForgetPlan:
    """Find all that is to be forgotten; nothing is changed."""
    selection, cases = _selection(project, wish)
    if wish.kind == "case":
        selection = _with_answers(site, selection)
    results = find_in_copy(site.results, selection)
    if wish.kind == "case" and not cases and not results.cells:
        raise UsageError(
            f"no dataset and no result has a case {wish.name!r}",
            hint="see the ids: edison dataset show EXPERIMENT",
        )
    unsigned = unsigned_path(site.results)
    copies, unreadable = [], [unsigned] if unsigned.exists() else []
    cells, answers = set(results.cells), set(results.answers)
    for path in copies_of(site):
        if not _is_own(site, path):
            unreadable.append(path)
            continue
        try:
            copy = find_in_copy(path, selection)
        except EdisonError:
            unreadable.append(path)
            continue
        copies.append((path, copy))
        cells |= copy.cells
        answers |= copy.answers
    features = feature.forget(site.root, wish, remove=False)
    unreadable += _of_unknown_features(site.root, features)
    # A cell that one file names is forgotten in all of them.
    selection = replace(selection, cells=frozenset(cells), answers=frozenset(answers))
    return ForgetPlan(
        wish=wish,
        selection=selection,
        results=find_in_copy(site.results, selection),
        copies=tuple((path, find_in_copy(path, selection)) for path, _ in copies),
        recordings=tuple(_recordings(site, selection)),
        drafts=tuple(_drafts(site, selection)),
        unreadable=(*unreadable, *(path for path, _ in _recordings(site, selection, links=True))),
        places=tuple(_places(site, selection, cases)),
        commits=tuple(_commits(site, selection)),
        exports=tuple(_exported(site)),
        projects=tuple(_projects(site.root)),
        features=features,
    )


def forget(site: Site, plan: ForgetPlan) -> None:
    """Remove what a plan has found; needs the role owner."""
    actor = site.require(Role.OWNER, FORGET, plan.wish.kind)
    wish = plan.wish
    about = {"kind": wish.kind, "sha256": hashlib.sha256(wish.name.encode()).hexdigest()}
    others = sum(bool(forgotten.rows) for _, forgotten in plan.copies) + len(plan.recordings)
    others += sum(map(bool, plan.features.values()))

    def entry(details: dict[str, Any]) -> Any:
        after = {**about, "other_files": others + len(plan.drafts), **details}
        entity = f"case {wish.name}" if wish.kind == "case" else "a person"
        return site.entry(actor, FORGET, entity, after=after)

    with exclusive_access(site.results, site.locks, FORGET) as connection:
        remove_texts(connection, plan.selection, entry)
    with housekeeping_lock(site.locks, FORGET):
        refuse_while_run(site.locks)
        overwrite_removed(site.results)
        for left in half_done((site.results.parent, site.backups)):
            if _is_own(site, left):
                left.unlink(missing_ok=True)
        for path, copy in plan.copies:
            if copy.rows:
                rewrite_copy(path, plan.selection, entry)
        for path, _ in plan.recordings:
            _rewrite_recording(path, plan.selection)
        for path in plan.drafts:
            path.unlink(missing_ok=True)
        feature.forget(site.root, wish, remove=True)
        shutil.rmtree(site.root / ".edison" / "snapshots", ignore_errors=True)


def _of_unknown_features(root: Path, forgetting: Collection[str]) -> Iterator[Path]:
    """Yield the files of features that are not installed, or do not forget."""
    folder = feature.own_folder(root)
    for path in _files(folder) if folder.is_dir() else ():
        if path.relative_to(folder).parts[0] not in forgetting:
            yield path


def _selection(project: Project, wish: Wish) -> tuple[Selection, list[tuple[str, Case]]]:
    """Return what to look for, and the cases of datasets that it concerns."""
    if wish.kind == "case":
        named = frozenset({CaseName(wish.name, wish.experiment)})
        cases = [
            (file, case) for name, file, case in _cases(project)
            if case.id == wish.name and wish.experiment in (None, name)
        ]  # fmt: skip
        own = [text for _, case in cases for text in _texts(case)]
        others = (
            text for name, _, case in _cases(project)
            if case.id != wish.name or wish.experiment not in (None, name)
            for text in _texts(case)
        )  # fmt: skip
        return Selection(_own_quotes(own, others), named), cases
    text = unicodedata.normalize("NFC", wish.name.strip())
    if len(text) < SHORTEST:
        raise UsageError(
            f"{wish.name!r} is too short to find a person by",
            hint=f"use at least {SHORTEST} characters of a name, an address or a number",
        )
    selection = Selection((text,), names=True)
    has = selection.matches()
    names, cases = set(), []
    for name, file, case in _cases(project):
        if has(canonical_json([case.id, case.inputs, case.expected, case.metadata])):
            names.add(CaseName(case.id, name))
            cases.append((file, case))
    return replace(selection, cases=frozenset(names)), cases


def _with_answers(site: Site, selection: Selection) -> Selection:
    """Return the selection with quotes of the answers to its cases."""
    with open_for_reading(site.results) as connection:
        for case in selection.cases:
            texts = texts_of_case(connection, case)
            quotes = _own_quotes(texts, texts_of_case(connection, case, others=True))
            selection = replace(selection, texts=(*selection.texts, *quotes))
    return selection


def _own_quotes(texts: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """Return the beginning of each text, or its end: the first that no other text has."""
    ends = {(text[:_QUOTE], text[-_QUOTE:]) for text in texts if len(text) >= _QUOTE // 2}
    shared = [*filter(Selection(tuple(quote for pair in ends for quote in pair)).matches(), others)]

    def is_own(quote: str) -> bool:
        return not any(map(Selection((quote,)).matches(), shared))

    return tuple({quote for pair in ends for quote in [*filter(is_own, pair)][:1]})


def _texts(case: Case) -> Iterator[str]:
    return _leaves([dict(case.inputs), case.expected])


def _cases(project: Project) -> Iterator[tuple[str, str, Case]]:
    """Yield the cases of the datasets with their experiment and file, as far as they are valid."""
    for name, experiment in project.experiments.items():
        for entry in experiment.file.data:
            try:
                for case in CaseFeed(project.tree, (entry,), experiment.types()):
                    yield name, entry.path, case
            except (Fault, ConfigError):
                continue


def _leaves(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)


def copies_of(site: Site) -> list[Path]:
    """Return the copies of the results on this machine that edison made."""
    copies = sorted(site.backups.glob("*.db")) if site.backups.is_dir() else []
    copies += [*sorted(site.results.parent.glob(f"{site.results.stem}.before-v*.db"))]
    return copies


def _is_own(site: Site, path: Path) -> bool:
    """Whether no link leads to a file, behind which it may belong to another project."""
    return path.resolve() == site.root.resolve() / path.relative_to(site.root)


def _files(root: Path, *, links: bool = False) -> Iterator[Path]:
    """Yield the files of a project, or the links to files, without projects in its folders."""
    for path in sorted(root.iterdir()):
        if path.is_symlink():
            if links and path.is_file():
                yield path
        elif path.is_dir():
            if path.name not in _SKIPPED and not (path / PROJECT).exists():
                yield from _files(path, links=links)
        elif path.is_file() and not links:
            yield path


def _projects(root: Path) -> Iterator[Path]:
    """Yield the folders of other projects in a project."""
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink() and path.name not in _SKIPPED:
            if (path / PROJECT).exists():
                yield path
            else:
                yield from _projects(path)


def _recordings(
    site: Site, selection: Selection, *, links: bool = False
) -> Iterator[tuple[Path, int]]:
    for path in _files(site.root, links=links):
        if path.suffix == ".jsonl" and is_recording(path):
            gone = sum(not kept for _, kept in _recorded(path, selection))
            if gone:
                yield path, gone


def _recorded(path: Path, selection: Selection) -> Iterator[tuple[str, bool]]:
    """Yield each line of a recording, and whether it is kept."""
    has = selection.matches()
    hashes = {request_hash for request_hash, _ in selection.answers}
    with path.open(encoding="utf-8") as stream:
        next(stream, None)
        for line in stream:
            text = line.rstrip("\n")
            try:
                entry = parse_json(text)
            except Fault:
                entry = None
            listed = isinstance(entry, dict) and entry.get("request_hash") in hashes
            yield text, not (listed or has(text))


def _rewrite_recording(path: Path, selection: Selection) -> None:
    replace_recording(path, (line for line, kept in _recorded(path, selection) if kept))


def _drafts(site: Site, selection: Selection) -> Iterator[Path]:
    """Yield the files in .edison, made from results, that have the text."""
    for path in _files(site.root):
        inside = path.relative_to(site.root).parts
        draft = len(inside) > 2 and inside[0] == ".edison" and inside[1] in _DRAFTS
        if draft and next(_lines_with(path, selection), None) is not None:
            yield path


def _places(site: Site, selection: Selection, cases: list[tuple[str, Case]]) -> Iterator[Place]:
    """Yield the lines of files that people wrote; the first ones."""
    seen = {Place(file, case.line) for file, case in cases}
    for path in _files(site.root):
        name = path.relative_to(site.root).as_posix()
        theirs = not name.startswith(".edison/") or path.suffix == ".yaml"
        if theirs and not is_recording(path):
            seen |= {Place(name, line) for line in _lines_with(path, selection)}
    yield from sorted(seen)[:_MOST_PLACES]


def _lines_with(path: Path, selection: Selection) -> Iterator[int]:
    """Yield the lines in which a text begins, also one of several lines."""
    has, most = selection.matches(), max((text.count("\n") for text in selection.texts), default=0)
    window: deque[str] = deque(maxlen=most + 1)
    if path.stat().st_size > _MOST_BYTES:
        return
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            for number, line in enumerate(stream, 1):
                window.append(line)
                if has("".join(window)):
                    while has("".join([*window][1:])):
                        window.popleft()
                    yield number - len(window) + 1
                    window.clear()
    except OSError:
        return


def _commits(site: Site, selection: Selection) -> Iterator[str]:
    """Yield the commits whose changes have the text, newest first."""
    for text in sorted(selection.texts)[:_MOST_COMMITS]:
        # Only within a line a text is found as one.
        longest = max(text.splitlines(), key=len)
        pattern = re.sub(r"([][\\.^$*+?(){}|/])", r"\\\1", longest)
        pattern = re.sub(r"[\x00-\x1f\x7f]", ".", pattern)
        if len(longest.strip()) < SHORTEST:
            continue
        done = run_git(
            *("log", "--all", f"--max-count={_MOST_COMMITS}", "-i", "-E", f"-G{pattern}"),
            *("--no-textconv", "--no-ext-diff", "--format=%h %as %s"),
            cwd=site.root,
        )
        if done.code == 0:
            yield from decode(done.out).splitlines()


def _exported(site: Site) -> Iterator[str]:
    with open_for_reading(site.results) as connection:
        yield from exports(connection)
