"""Versions of a prompt: who wrote them, where they were measured, and what they scored."""

from __future__ import annotations

import json
import re
from array import array
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.prompt import read_prompt
from edison_ci.documents.files import read
from edison_ci.documents.json_text import read_json
from edison_ci.git.command import decode, run_git
from edison_ci.git.commit_tree import CommitTree
from edison_ci.git.repository import MAX_HISTORY_COMMITS, Repository
from edison_ci.numeric import mean
from edison_ci.plan.versions import past_versions, short
from edison_ci.records import Move, Side
from edison_ci.results.case_flips import flips_between, pass_counts
from edison_ci.results.leaderboard import (
    Contrast,
    Scores,
    common_cases,
    contrast_of,
    leaderboard_row,
    newest_places,
)
from edison_ci.results.samples import Sample
from edison_ci.results.slices import EstimateWithInterval
from edison_ci.results.snapshot import MOST_RUNS, complete_runs, grading_hash, measured_experiments
from edison_ci.stats.ab import moves_of
from edison_ci.stats.intervals import clustered_interval, mean_interval
from edison_ci.store.runs import NO_OUTPUTS, NO_TRIAL, find_run
from edison_ci.store.suggestions import OPEN, Suggestion, SuggestionStatus, list_suggestions

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from edison_ci.config.load import Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.documents.files import Tree
    from edison_ci.documents.marks import Json
    from edison_ci.results.case_flips import PassCounts
    from edison_ci.results.leaderboard import LeaderboardRow, StoredVariant
    from edison_ci.results.samples import CaseFilter
    from edison_ci.stats.intervals import Interval
    from edison_ci.store.runs import Run


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """Version B minus version A in one experiment, over the models that both have."""

    experiment: str
    models: tuple[str, ...]
    runs: tuple[str, str]
    contrast: Contrast
    moved: dict[Move, tuple[str, ...]]
    """The cases that changed."""
    simulated: bool


def versus(
    connection: sqlite3.Connection,
    prompts: Collection[str],
    versions: tuple[str, str],
    case_filter: Callable[[str], CaseFilter],
) -> list[VersionComparison]:
    """Compare two versions in every experiment that graded both with the same eval suite.

    A prompt that was renamed has several names in `prompts`.
    """
    found = []
    for experiment in measured_experiments(connection):
        pairs = _pairs(connection, experiment, prompts, versions)
        if pairs:
            one = _compare(connection, experiment, pairs, case_filter(experiment))
            if one is not None:
                found.append(one)
    return found


def _pairs(
    connection: sqlite3.Connection,
    experiment: str,
    prompts: Collection[str],
    versions: tuple[str, str],
) -> list[tuple[StoredVariant, StoredVariant]]:
    """Return where both versions were measured with one model, newest grading first."""
    runs = complete_runs(connection, experiment, MOST_RUNS, trials=True)
    for grading in dict.fromkeys(map(grading_hash, runs)):
        alike = [run for run in runs if grading_hash(run) == grading]
        places = {
            (place.version, place.model): place
            for place in newest_places(connection, alike)
            if place.prompt in prompts and place.version in versions
        }
        models = sorted({model for _, model in places})
        both = [
            (places[versions[0], model], places[versions[1], model])
            for model in models
            if all((version, model) in places for version in versions)
        ]
        if both:
            return both
    return []


def _compare(
    connection: sqlite3.Connection,
    experiment: str,
    pairs: Sequence[tuple[StoredVariant, StoredVariant]],
    case_filter: CaseFilter,
) -> VersionComparison | None:
    before, after = (
        _overall([leaderboard_row(connection, pair[side], case_filter) for pair in pairs])
        for side in (0, 1)
    )
    contrast = contrast_of(before, after, case_filter)
    if contrast is None:
        return None
    changes = dict(_moves(before, after))
    counts = [[_pass_counts(connection, pair[side]) for pair in pairs] for side in (0, 1)]
    passed, _ = flips_between(counts[0], counts[1])
    passes = [passed.get(case, (True, True)) for case in changes]
    cases, moves, first = [*changes], [*changes.values()], pairs[0]
    return VersionComparison(
        experiment=experiment,
        models=tuple(place.model for place, _ in pairs),
        runs=(first[0].run.id, first[1].run.id),
        contrast=contrast,
        moved={
            move: tuple(cases[i] for i in positions)
            for move, positions in moves_of(moves, passes).items()
        },
        simulated=any(place.run.simulated for pair in pairs for place in pair),
    )


def _pass_counts(connection: sqlite3.Connection, place: StoredVariant) -> PassCounts:
    where = "cell c where c.run_id = ? and c.side = ? and c.prompt = ? and c.model = ?"
    return pass_counts(connection, where, (place.run.id, place.side, place.prompt, place.model))


def _overall(rows: Sequence[LeaderboardRow]) -> Scores:
    """Return the mean over models of each case that all of them have."""
    tables = [dict(zip(row.scores.cases, row.scores.values, strict=True)) for row in rows]
    cases = [case for case in rows[0].scores.cases if all(case in table for table in tables)]
    means = (mean([table[case] for table in tables]) for case in cases)
    known = dict(zip(rows[0].scores.cases, rows[0].contents, strict=True))
    contents = array("q", (known[case] for case in cases))
    return Scores(Sample(cases=cases, values=array("d", means)), contents)


def _moves(before: Scores, after: Scores) -> Iterator[tuple[str, float]]:
    tables = [dict(zip(s.sample.cases, s.sample.values, strict=True)) for s in (before, after)]
    for case in common_cases(before, after):
        yield case, tables[1][case] - tables[0][case]


class VersionHistory(NamedTuple):
    """A version with what is known of it."""

    version: Version
    result: Result | None = None
    suggestion: Suggestion | None = None
    """The suggestion that made it."""
    in_production: bool = False


class Lineage(NamedTuple):
    """All versions of a prompt, newest first, and what is suggested for it."""

    lives: list[VersionHistory]
    open: list[Suggestion]


def lineage_of(history: History, connection: sqlite3.Connection | None) -> Lineage:
    """Return the life of a prompt; without results it is what Git tells."""
    prompt, versions, former = history.prompt, history.versions(), history.former()
    results: dict[tuple[str, str], Result] = {}
    suggestions: list[Suggestion] = []
    if connection is not None:
        found = results_by_version(
            connection, prompt.id, [version.hash for version in reversed(versions)]
        )
        versions = with_measured(versions, found, prompt.id)
        results = {("", version): result for version, result in found.items()}
        results |= _of_former(connection, former, next(iter(found.values()), None))
        _add_renamed(connection, prompt.id, versions, results)
        names = dict.fromkeys([str(prompt.id), *(one.former for one in former if one.former)])
        for name in names:
            suggestions += list_suggestions(connection, prompt=name)
    made = {one.new_hash: one for one in suggestions if one.status is SuggestionStatus.APPLIED}
    # What was only suggested is no version that the prompt ever had.
    only_tried = {one.new_hash for one in suggestions if one.new_hash not in made}
    versions = [one for one in versions if one.data is not None or one.hash not in only_tried]
    promoted = promoted_version(versions, prompt.header.production)
    lives = [
        VersionHistory(
            version,
            results.get((version.former or "", version.hash)),
            made.get(version.hash),
            promoted is not None and version is promoted,
        )
        for version in [*former, *versions][::-1]
    ]
    return Lineage(lives, [one for one in suggestions if one.status in OPEN])


def promoted_version(versions: Sequence[Version], promoted: str) -> Version | None:
    """Return the version that a prompt names as in production; None if it is not among these."""
    for version in versions:
        if promoted and (promoted == version.label or version.hash.startswith(promoted)):
            return version
    return None


def _of_former(
    connection: sqlite3.Connection, former: Sequence[Version], newest: Result | None
) -> dict[tuple[str, str], Result]:
    found: dict[tuple[str, str], Result] = {}
    for name in dict.fromkeys(version.former for version in former if version.former):
        hashes = [version.hash for version in former[::-1] if version.former == name]
        results = results_by_version(connection, name, hashes, newest)
        found |= {(name, version): result for version, result in results.items()}
    return found


def _add_renamed(
    connection: sqlite3.Connection,
    prompt: str,
    versions: Sequence[Version],
    results: dict[tuple[str, str], Result],
) -> None:
    """Add results of the same text under another name."""
    newest = next(iter(results.values()), None)
    for version in versions[::-1]:
        if ("", version.hash) in results:
            continue
        for name in measured_as(connection, version.hash, prompt)[:1]:
            found = results_by_version(connection, name, [version.hash], newest)
            if version.hash in found:
                results["", version.hash] = found[version.hash]


# A score is comparable with another one if the experiment, the models, the cases and what grades
# the answers are the same. Each version is represented by a run that is like that of the newest
# version, where there is one, and otherwise by its newest run, with a note of what differs.
_MOST_TRIED = 20
"""Runs of a version that are searched for one that is like the newest version's."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a version in one complete run, over its models."""

    run: Run
    side: str
    composite: Interval | None
    models: tuple[str, ...]
    answers: int
    answer_cost_microusd: float | None
    cases: frozenset[tuple[str, str | None]]
    """Its cases, each with the hash of its content."""
    differs: tuple[str, ...] = ()
    """In what it was not measured like the newest version."""
    prompt: str = ""
    """The id under which it was measured."""


class _VersionRun(NamedTuple):
    """Where a version was measured."""

    run_id: str
    side: str
    experiment: str
    models: tuple[str, ...]
    answers: int
    cost_microusd: int


def results_by_version(
    connection: sqlite3.Connection,
    prompt: str,
    newest_first: Sequence[str],
    newest: Result | None = None,
) -> dict[str, Result]:
    """Return a complete result of each version of a prompt, whole runs before partial ones.

    `newest` is the result that they are compared with, if it is not one of them.
    """
    places = _places(connection, prompt)
    found: dict[str, Result] = {}
    for version in dict.fromkeys([*newest_first, *places]):
        if version not in places:
            continue
        found[version] = _result(connection, prompt, version, places[version], newest)
        newest = newest or found[version]
    return found


class MeasuredPrompt(NamedTuple):
    """A prompt that was ever run."""

    prompt: str
    versions: int
    last: str
    """When it was run last."""
    experiment: str


def measured_prompts(connection: sqlite3.Connection) -> list[MeasuredPrompt]:
    """Return every prompt that was run, trials of suggestions aside, the last one first."""
    rows = connection.execute(
        "select m.prompt, count(distinct m.version), max(r.created_at), max(r.experiment) "
        f"from rollup_model m join run r on r.id = m.run_id where {NO_TRIAL} "
        f"and {NO_OUTPUTS} group by m.prompt order by 3 desc"
    )
    return [MeasuredPrompt(*row) for row in rows]


class ModelScore(NamedTuple):
    """Score of a version with a model, in its newest complete run."""

    model: str
    run_id: str
    experiment: str
    created_at: str
    composite: EstimateWithInterval
    simulated: bool
    partial: bool


def model_scores(connection: sqlite3.Connection, prompt: str) -> dict[str, list[ModelScore]]:
    """Return the newest complete score of each version of a prompt with each model, by version.

    Whole runs come first, and a version's own before those in which it was the base, which have no
    intervals.
    """
    rows = connection.execute(
        "select m.version, m.model, m.run_id, r.experiment, r.created_at, m.composite, "
        "m.composite_low, m.composite_high, m.composite_n, m.composite_method, r.simulated, "
        "r.partial from rollup_model m join run r on r.id = m.run_id "
        f"where m.prompt = ? and r.complete = 1 and {NO_TRIAL} "
        f"and {NO_OUTPUTS} order by r.partial, m.side desc, r.created_at desc, m.model",
        (prompt,),
    )
    found: dict[str, list[ModelScore]] = {}
    for version, model, run_id, experiment, created_at, *rest in rows:
        known = found.setdefault(version, [])
        if model not in {each.model for each in known}:
            where = (model, run_id, experiment, created_at)
            known.append(ModelScore(*where, EstimateWithInterval(*rest[:5]), *map(bool, rest[5:])))
    return found


def measured_as(connection: sqlite3.Connection, version: str, prompt: str) -> list[str]:
    """Return the other prompts under whose names the very same version was measured."""
    rows = connection.execute(
        "select distinct m.prompt from rollup_model m join run r on r.id = m.run_id "
        "where m.version = ? and m.prompt <> ? and r.complete = 1 and r.status = 'COMPLETED' "
        f"and {NO_OUTPUTS} order by m.prompt",
        (version, prompt),
    )
    return [name for (name,) in rows]


def _places(connection: sqlite3.Connection, prompt: str) -> dict[str, list[_VersionRun]]:
    rows = connection.execute(
        "select m.version, m.run_id, m.side, r.experiment, json_group_array(m.model), "
        "sum(m.answers), sum(m.cost_microusd + m.saved_microusd) "
        "from rollup_model m join run r on r.id = m.run_id "
        f"where m.prompt = ? and r.complete = 1 and r.status = 'COMPLETED' and {NO_OUTPUTS} "
        "group by m.version, m.run_id, m.side "
        "order by r.partial, r.created_at desc, r.rowid desc, m.side desc",
        (prompt,),
    )
    found: dict[str, list[_VersionRun]] = {}
    for version, run_id, side, experiment, models, answers, cost in rows:
        names = tuple(sorted(json.loads(models)))
        place = _VersionRun(run_id, side, experiment, names, answers or 0, cost or 0)
        found.setdefault(version, []).append(place)
    return found


def _result(
    connection: sqlite3.Connection,
    prompt: str,
    version: str,
    places: Sequence[_VersionRun],
    newest: Result | None,
) -> Result:
    first = _read(connection, prompt, version, places[0])
    if newest is None:
        return first
    same = (newest.run.experiment, newest.models)
    alike = (place for place in places if (place.experiment, place.models) == same)
    for place, _ in zip(alike, range(_MOST_TRIED), strict=False):
        one = _read(connection, prompt, version, place)
        if not _differences(one, newest):
            return one
    return replace(first, differs=_differences(first, newest))


def _read(connection: sqlite3.Connection, prompt: str, version: str, place: _VersionRun) -> Result:
    rows = connection.execute(
        "select case_id, max(case_hash), avg(composite), max(cluster) from cell "
        "where run_id = ? and side = ? and prompt = ? and version = ? "
        "and status in ('ok', 'malformed') and composite is not null group by case_id",
        (place.run_id, place.side, prompt, version),
    ).fetchall()
    return Result(
        run=find_run(connection, place.run_id),
        side=place.side,
        composite=_interval(rows),
        models=place.models,
        answers=place.answers,
        answer_cost_microusd=place.cost_microusd / place.answers if place.answers else None,
        cases=frozenset((case, content) for case, content, _, _ in rows),
        prompt=prompt,
    )


def _interval(rows: Sequence[tuple[str, str | None, float, str | None]]) -> Interval | None:
    scores = [score for _, _, score, _ in rows]
    if all(cluster is None for _, _, _, cluster in rows):
        return mean_interval(scores)
    groups = [f"case {case}" if cluster is None else f"cluster {cluster}"
              for case, _, _, cluster in rows]  # fmt: skip
    return clustered_interval(scores, groups)


def _differences(one: Result, newest: Result) -> tuple[str, ...]:
    told = {
        "experiment": one.run.experiment != newest.run.experiment,
        "models": one.models != newest.models,
        "grading": grading_hash(one.run) != grading_hash(newest.run),
        "cases": one.cases != newest.cases,
    }
    return tuple(what for what, differs in told.items() if differs)


def with_measured(
    versions: Iterable[Version], results: dict[str, Result], prompt: str
) -> list[Version]:
    """Add the versions that are only in results, oldest first, before the others."""
    versions = list(versions)
    known = {version.hash for version in versions}
    alone = [
        Version(version, _label_of(result, prompt, version), None, date=result.run.created_at)
        for version, result in results.items()
        if version not in known
    ]
    return [*sorted(alone, key=lambda version: version.date or ""), *versions]


def _label_of(result: Result, prompt: str, version: str) -> str:
    label = result.run.labels.get(prompt) if result.side == Side.HEAD else None
    # A label from before a merge may by now be that of another text.
    return label if label and short(version) in label else f"?+{short(version)}"


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
    found: list[FormerPath] = []
    wanted, fields = path, iter(decode(answer.out).split("\0"))
    parent = ""
    for field in fields:
        if not field.lstrip("\n").startswith(":"):
            parent = field.strip().partition(" ")[2].partition(" ")[0]
            continue
        old, new = next(fields, ""), next(fields, "")
        if new == wanted and parent and len(found) < MOST:
            found.append(FormerPath(old, parent))
            wanted = old
    return found


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
            find_version = (prompt.header.output, prompt.header.tools)
            files |= dict.fromkeys(file for file in find_version if isinstance(file, str))
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
        fields = decode(answer.out).split("\0")
        rows = zip(*(fields[offset::4] for offset in range(4)), strict=False)
        return {commit: (author, date, subject) for commit, author, date, subject in rows}


def _json(tree: Tree, file: str) -> Json:
    return read_json(read(tree, file), file).value


def find_version(versions: list[Version], wanted: str) -> Version | None:
    """Return the version with a label or a hash (at least 6 digits of it)."""
    for version in versions:
        if wanted == version.label:
            return version
    digits = wanted.rpartition("+")[2]
    if _HASH.fullmatch(digits):
        return next((version for version in versions if version.hash.startswith(digits)), None)
    return None
