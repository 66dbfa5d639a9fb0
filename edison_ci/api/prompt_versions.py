"""Versions of prompts: their history with scores, differences of two, and the one in production."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api import file_edits
from edison_ci.config import prompt as config_prompt
from edison_ci.documents import decoding, files, json_text, text_diff
from edison_ci.documents import marks as document_marks
from edison_ci.documents.record_json import Document, as_document, fields_of
from edison_ci.errors import UsageError
from edison_ci.git import repository as git
from edison_ci.plan import versions as plan_versions
from edison_ci.plan.versions import short
from edison_ci.results import leaderboard, stored_runs
from edison_ci.results import scores as result_scores
from edison_ci.results import versions as result_versions
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.plan.versions import Version
    from edison_ci.results.versions import VersionComparison, VersionHistory


class PromptHistory(NamedTuple):
    """The versions of a prompt, newest first, with their results and open suggestions."""

    prompt: Prompt
    lineage: result_versions.Lineage
    cut_off: bool
    """Whether the clone is shallow, so that older versions are unknown."""

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        return {
            "prompt": fields_of(self.prompt, "id", "path"),
            "shallow": self.cut_off,
            "versions": [_version_json(life, self.prompt) for life in self.lineage.lives],
            "suggestions": as_document(self.lineage.open),
        }


def prompt_history(project: Project, prompt: Prompt) -> PromptHistory:
    """Return the versions of a prompt that Git and stored runs know."""
    history = plan_versions.History.of(prompt, project)
    if not (project.root / project.file.results).exists():
        lineage = result_versions.lineage_of(history, None)
    else:
        with stored_runs.open_runs(project) as runs:
            lineage = result_versions.lineage_of(history, runs.connection)
    return PromptHistory(prompt, lineage, history.cut_off)


_OF_RUN = ("run_id", "experiment", "simulated", "partial")
_OF_RESULT = ("measured_as", "models", "model_names", "differs", "composite", "answers")


def _version_json(life: VersionHistory, prompt: Prompt) -> Document:
    version, result = life.version, life.result
    measured: Document = dict.fromkeys((*_OF_RUN, *_OF_RESULT, "answer_cost_microusd"))
    if result is not None:
        measured = {
            **fields_of(result.run, "experiment", "simulated", "partial", run_id="id"),
            **fields_of(result, "differs", "answers", "answer_cost_microusd"),
            **fields_of(result, measured_as="prompt", model_names="models"),
            "models": len(result.models),
            "composite": result_scores.interval_json(result.composite),
        }
    return {
        **fields_of(version, "label", "commit", "author", "date", "subject", version="hash"),
        "hash": short(version.hash),
        "prompt": version.former or prompt.id,
        "in_use": version.hash == prompt.version and not version.former,
        "production": life.in_production,
        "suggestion": None if life.suggestion is None else life.suggestion.id,
        **measured,
    }


@dataclass(frozen=True, slots=True)
class NamedVersion:
    """A version that a command line names."""

    prompt: str
    version: plan_versions.Version
    file: str = ""
    """The file it was read from, if it is not a version of a prompt of the project."""

    @property
    def name(self) -> str:
        """How it is called in a diff."""
        label = self.version.label
        return self.file or (label if self.version.former else f"{self.prompt}@{label}")

    @property
    def measured_as(self) -> str:
        """The id of the prompt under which runs have it."""
        return self.version.former or self.prompt

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        version = self.version
        named = {"prompt": self.measured_as, "hash": short(version.hash)}
        return {**named, **fields_of(version, "label", "commit")}


class VersionDiff(NamedTuple):
    """Two versions, the difference of their texts, and their scores on the same cases."""

    before: NamedVersion
    after: NamedVersion
    lines: list[str]
    scores: list[VersionComparison]

    @property
    def same_version(self) -> bool:
        """Whether models get the same text from both."""
        return self.before.version.hash == self.after.version.hash

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        return {
            **fields_of(self, "same_version", a="before", b="after"),
            "diff": "\n".join(self.lines),
            "scores": [_score_json(comparison) for comparison in self.scores],
        }


def _score_json(comparison: VersionComparison) -> Document:
    contrast = comparison.contrast
    low, high = contrast.interval or (None, None)
    return {
        **fields_of(comparison, "experiment", "models", "runs", "simulated"),
        "n": contrast.n,
        "difference": {
            **fields_of(contrast, "p", "method", estimate="difference"),
            "low": low,
            "high": high,
        },
        "shown": contrast.significant,
        **as_document(comparison.moved),
    }


def diff_versions(
    project: Project, names: tuple[str, str], prompt: Prompt | None, folder: Path
) -> VersionDiff:
    """Compare two versions, given by labels, hashes, refs, files or ids; raises UsageError.

    `prompt` is theirs where their names have none; `folder` is that of files.
    """
    words = [_split(project, name, folder) for name in names]
    default = prompt or _only(project, words)
    before, after = (_find_version(project, folder, home or default, word) for home, word in words)
    scores: list[VersionComparison] = []
    if before.prompt == after.prompt and before.version.hash != after.version.hash:
        scores = _scores(project, before, after)
    return VersionDiff(before, after, _lines(before, after), scores)


def _split(project: Project, word: str, folder: Path) -> tuple[Prompt | None, str]:
    """Return the prompt that an argument names, if any, and the rest of the argument."""
    by_id = {str(prompt.id): prompt for prompt in project.prompts.values()}
    name, sign, rest = word.partition("@")
    if sign and rest and name in by_id:
        return by_id[name], rest
    if word in by_id:
        return by_id[word], ""
    target = (folder / word).resolve()
    for path, prompt in project.prompts.items():
        if target == (project.root / path).resolve():
            return prompt, ""
    return None, word


def _only(project: Project, words: Sequence[tuple[Prompt | None, str]]) -> Prompt | None:
    """Return the prompt that an argument names, or the only one of the project."""
    named = [prompt for prompt, _ in words if prompt is not None]
    if named:
        return named[0]
    prompts = list(project.prompts.values())
    return prompts[0] if len(prompts) == 1 else None


def _find_version(project: Project, folder: Path, prompt: Prompt | None, word: str) -> NamedVersion:
    if prompt is None:
        if (folder / word).is_file():
            return _file(project, folder, word)
        raise UsageError(
            f"which prompt is {word!r} a version of?",
            hint="write PROMPT@VERSION, or add --prompt PROMPT",
        )
    history = plan_versions.History.of(prompt, project)
    versions = history.versions()
    former = [] if plan_versions.find_version(versions, word) else history.former()
    if not word:
        current = next(version for version in versions if version.hash == prompt.version)
        return NamedVersion(prompt.id, current)
    if named := plan_versions.find_version([*versions, *former], word):
        return NamedVersion(prompt.id, named)
    if (folder / word).is_file():
        return _file(project, folder, word)
    if history.repository is None:
        labels = ", ".join(version.label for version in versions)
        raise UsageError(f"{prompt.id} has no version {word!r}", hint=f"there are: {labels}")
    there = _at(history, versions, word)
    if there is None:
        raise UsageError(
            f"{prompt.path} is not a valid prompt in {word!r}", hint="see: edison history"
        )
    return NamedVersion(prompt.id, there)


def _at(lineage: plan_versions.History, versions: list[Version], word: str) -> Version | None:
    """Return the version in a commit; raises UsageError with similar names."""
    assert lineage.repository is not None
    try:
        return lineage.at(lineage.repository.resolve(word))
    except UsageError as error:
        labels = did_you_mean(word, [version.label for version in versions], label="versions")
        hint = labels or error.hint
        if error.hint.startswith("did you mean"):
            hint = error.hint
        elif lineage.cut_off:
            hint = f"{labels}; or {error.hint}"
        problem = f"{lineage.prompt.id} has no version {word!r}, and there is no such commit"
        raise UsageError(problem, hint=hint) from None


def _file(project: Project, folder: Path, word: str) -> NamedVersion:
    """Return the version in a file, which may be outside the project."""
    path = folder / word
    if path.stat().st_size > git.MAX_TEXT_BYTES:
        raise UsageError(f"{word} is too large for a prompt", hint="name another file")
    data = path.read_bytes()
    prompt, problems = config_prompt.read_prompt(
        data, word, lambda file: json_text.read_json(files.read(project.tree, file), file).value
    )
    if prompt is None:
        problem = problems[0].message if problems else "it cannot be read"
        raise UsageError(f"{word} is not a prompt: {problem}", hint="name a prompt file")
    return NamedVersion(prompt.id, plan_versions.Version(prompt.version, word, data), word)


def _lines(before: NamedVersion, after: NamedVersion) -> list[str]:
    old, new = _text(before), _text(after)
    return [*text_diff.unified_diff(old, new, before.name, after.name)]


def _text(meant: NamedVersion) -> list[str]:
    try:
        return decoding.decode(meant.version.data or b"").splitlines()
    except document_marks.Fault as fault:
        hint = "save it as UTF-8"
        raise UsageError(f"{meant.name} cannot be read: {fault.message}", hint=hint) from None


def _scores(project: Project, before: NamedVersion, after: NamedVersion) -> list[VersionComparison]:
    if not (project.root / project.file.results).exists():
        return []
    with stored_runs.open_runs(project) as runs:
        connection = runs.connection
        pair = (before.version.hash, after.version.hash)
        return result_versions.versus(
            connection,
            {before.measured_as, after.measured_as},
            pair,
            lambda name: leaderboard.case_filter_of(project, name, connection),
        )


class Promotion(NamedTuple):
    """A version that is in production."""

    prompt: Prompt
    version: Version
    before: str
    """The version that was in production; empty if none was."""
    changed: bool
    measured: bool
    """Whether a complete run has it."""
    in_git: bool

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        version = self.version
        return {
            "prompt": fields_of(self.prompt, "id", "path"),
            **fields_of(version, "label", version="hash"),
            "hash": short(version.hash),
            "before": self.before or None,
            **fields_of(self, "changed", "measured"),
        }


def promote(project: Project, prompt: Prompt, name: str) -> Promotion:
    """Mark a version of a prompt as the one in production; raises UsageError."""
    history = plan_versions.History.of(prompt, project)
    version, before = _version_named(history, name), prompt.header.production
    site = sites.Site(project.root, project.file)
    changed = file_edits.promote(site, project, prompt, short(version.hash))
    measured = False
    if site.results.exists():
        with stored_runs.open_runs(project) as runs:
            results = result_versions.results_by_version(runs.connection, prompt.id, [version.hash])
        measured = version.hash in results
    in_git = history.repository is not None
    return Promotion(prompt, version, before or "", changed, measured, in_git)


def _version_named(history: plan_versions.History, word: str) -> Version:
    versions = history.versions()
    if word == "current":
        return next(version for version in versions if version.hash == history.prompt.version)
    if named := plan_versions.find_version(versions, word):
        return named
    if history.repository is not None:
        try:
            there = history.at(history.repository.resolve(word))
        except UsageError:
            there = None
        if there is not None:
            return there
    labels = [version.label for version in versions]
    hint = did_you_mean(word, [*labels, "current"], label="versions")
    raise UsageError(f"{history.prompt.id} has no version {word!r}", hint=hint)
