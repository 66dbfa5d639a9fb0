"""edison history, diff and promote: the versions of a prompt, their differences and scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api import file_edits
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, NameType, optional_first
from edison_ci.cli.terminal import BAD, GOOD, MOST_BLOCKS, ODD, StyledText, Terminal, sparkline
from edison_ci.config import prompt as config_prompt
from edison_ci.documents import decoding, files, json_text, text_diff
from edison_ci.documents import marks as document_marks
from edison_ci.errors import UsageError
from edison_ci.git import repository as git
from edison_ci.numeric import counted, dollars, points
from edison_ci.plan import versions as plan_versions
from edison_ci.results import samples
from edison_ci.results import scores as result_scores
from edison_ci.results import versions as result_versions
from edison_ci.spelling import did_you_mean
from edison_ci.stats import sentences

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.results.versions import Result, VersionHistory


_MOST_MODELS = 2


@click.command(cls=EdisonCommand)
@click.argument("prompt", required=False)
@click.pass_obj
def history(state: CliState, prompt: str | None) -> None:
    """List the versions of a prompt with their scores.

    PROMPT is a path or an id, and may be left out if there is one. Newest first: merged versions,
    those of this branch, and the current file, each with author and date, and with score,
    confidence interval and cost per answer in its newest complete run. Versions measured with
    other models, cases or grading than the newest one are marked and left out of the line of
    scores. Renames of the prompt are followed; open suggestions are listed below.

    Examples:
      edison history
      edison history prompts/support-reply.md --json
    """
    terminal = Terminal(state)
    project = lookup.open_readable_project(state, terminal)
    found = lookup.find_prompt(project, prompt, state.folder)
    history = result_versions.History.of(found, project)
    lineage = _lineage(project, history)
    if terminal.json:
        terminal.document(
            {
                "prompt": {"id": found.id, "path": found.path},
                "shallow": history.cut_off,
                "versions": [_version(life, found) for life in lineage.lives],
                "suggestions": [one.as_json() for one in lineage.open],
            }
        )
        return
    terminal.result(StyledText(found.id, bold=True), f"  {found.path}")
    table: list[tuple[str, ...]] = [
        ("version", "hash", "date", "author", "score", "cost/answer", "with", "what", "")
    ]
    terminal.table([*table, *(_row(life, found) for life in lineage.lives)], right=(5,), totals=0)
    scores = [_score(life.result) for life in lineage.lives[::-1]]
    if sum(score is not None for score in scores) > 1:
        terminal.result(f"score, oldest to newest  {sparkline(scores)}")
    for one in terminal.listed(lineage.open, most=MOST_BLOCKS):
        mark = "  simulated" if one.simulated else ""
        weak = f" for {', '.join(one.targets)}" if one.targets else ""
        terminal.result(
            f"suggestion {one.id}  {one.status}, "
            f"of {plan_versions.short(one.base_hash)}{weak}{mark}"
        )
    if any(life.result is not None and life.result.differs for life in lineage.lives):
        terminal.note("scores that were measured differently cannot be compared; on the")
        terminal.note(f"same models and cases: edison diff {found.id}@A {found.id}@B")
    if history.cut_off:
        terminal.note("the clone is shallow: older versions are unknown")


def _lineage(project: Project, history: result_versions.History) -> result_versions.Lineage:
    if not (project.root / project.file.results).exists():
        return result_versions.lineage_of(history, None)
    with lookup.results_of(project) as connection:
        return result_versions.lineage_of(history, connection)


def _score(result: Result | None) -> float | None:
    """Return the score of a version, if it is comparable with the newest version."""
    if result is None or result.composite is None or result.differs:
        return None
    return result.composite.estimate


def _row(life: VersionHistory, prompt: Prompt) -> tuple[str, ...]:
    version, result = life.version, life.result
    uncommitted = "not committed" if version.data is not None else "not in Git"
    return (
        version.label,
        plan_versions.short(version.hash),
        (version.date or "-")[:10],
        version.author or "-",
        points(result.composite) if result is not None else "-",
        dollars(result.answer_cost_microusd) if result is not None else "-",
        _models(result.models) if result is not None else "-",
        _short(version.subject) if version.commit else uncommitted,
        ", ".join(_marks(life, prompt)),
    )


def _marks(life: VersionHistory, prompt: Prompt) -> list[str]:
    version, result = life.version, life.result
    marks = ["in use"] if version.hash == prompt.version and not version.former else []
    marks += ["production"] if life.in_production else []
    marks += [f"suggestion {life.suggestion.id}"] if life.suggestion is not None else []
    if result is None:
        return marks
    marks += [result.run.simulation] if result.run.simulated else []
    marks += ["part of the cases"] if result.run.partial else []
    if result.prompt != (version.former or prompt.id):
        marks.append(f"measured as {result.prompt}")
    if result.differs:
        marks.append(f"other {' and '.join(result.differs)}")
    return marks


def _models(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MOST_MODELS else f"{len(names)} models"


def _short(text: str | None) -> str:
    text = text or ""
    return text if len(text) <= 50 else f"{text[:47]}..."


def _version(life: VersionHistory, prompt: Prompt) -> dict[str, Any]:
    version, result = life.version, life.result
    run = None if result is None else result.run
    return {
        "label": version.label,
        "hash": plan_versions.short(version.hash),
        "version": version.hash,
        "prompt": version.former or prompt.id,
        "in_use": version.hash == prompt.version and not version.former,
        "production": life.in_production,
        "suggestion": None if life.suggestion is None else life.suggestion.id,
        "commit": version.commit,
        "author": version.author,
        "date": version.date,
        "subject": version.subject,
        "run_id": None if run is None else run.id,
        "experiment": None if run is None else run.experiment,
        "measured_as": None if result is None else result.prompt,
        "simulated": None if run is None else run.simulated,
        "partial": None if run is None else run.partial,
        "models": None if result is None else len(result.models),
        "model_names": None if result is None else list(result.models),
        "differs": None if result is None else list(result.differs),
        "composite": None if result is None else result_scores.interval_json(result.composite),
        "answers": None if result is None else result.answers,
        "answer_cost_microusd": None if result is None else result.answer_cost_microusd,
    }


_LISTED = 10


@dataclass(frozen=True, slots=True)
class _NamedVersion:
    """A version that a command line names."""

    prompt: str
    version: result_versions.Version
    file: str = ""
    """The file it was read from, if it is not a version of a prompt of the project."""

    @property
    def name(self) -> str:
        label = self.version.label
        return self.file or (label if self.version.former else f"{self.prompt}@{label}")

    @property
    def measured_as(self) -> str:
        return self.version.former or self.prompt


@click.command("diff", cls=EdisonCommand)
@click.argument("a", type=NameType(("prompts",)))
@click.argument("b", type=NameType(("prompts",)))
@click.option(
    "--prompt", metavar="PROMPT", help="Path or id of the prompt, if the project has several."
)
@click.pass_obj
def diff(state: CliState, a: str, b: str, prompt: str | None) -> None:
    """Compare the text and the scores of two prompt versions.

    A and B are labels (v2), hashes, Git refs, files, or the id of a prompt for its current file.
    PROMPT@v2 names the prompt as well, OLD@v2 a version under a former name. Shows the text
    difference and, if complete runs have both versions, the change of the score on the same cases
    and models.

    Examples:
      edison diff v1 v2
      edison diff support-reply@main support-reply
      edison diff HEAD~1 prompts/support-reply.md --json
    """
    terminal = Terminal(state)
    project = lookup.open_readable_project(state, terminal)
    words = [_split(project, word, state.folder) for word in (a, b)]
    default = lookup.find_prompt(project, prompt, state.folder) if prompt else _only(project, words)
    before, after = (_find_version(project, state.folder, home or default, w) for home, w in words)
    lines = _lines(before, after)
    found: list[result_versions.VersionComparison] = []
    if before.prompt == after.prompt and before.version.hash != after.version.hash:
        found = _scores(project, before, after)
    if terminal.json:
        terminal.document(_document(before, after, lines, found))
        return
    for line in lines:
        color = {"+": GOOD, "-": BAD, "@": ODD}.get(line[:1])
        terminal.result(StyledText(line, None if line.startswith(("+++", "---")) else color))
    if not lines:
        terminal.note("the texts are the same")
    if before.version.hash == after.version.hash:
        terminal.note("the same version: models get the same text")
    else:
        _show_scores(terminal, found, before, after)


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
    known = [prompt for prompt, _ in words if prompt is not None]
    if known:
        return known[0]
    prompts = list(project.prompts.values())
    return prompts[0] if len(prompts) == 1 else None


def _find_version(
    project: Project, folder: Path, prompt: Prompt | None, word: str
) -> _NamedVersion:
    if prompt is None:
        if (folder / word).is_file():
            return _file(project, folder, word)
        raise UsageError(
            f"which prompt is {word!r} a version of?",
            hint="write PROMPT@VERSION, or add --prompt PROMPT",
        )
    lineage = result_versions.History.of(prompt, project)
    versions = lineage.versions()
    former = [] if result_versions.find_version(versions, word) else lineage.former()
    if not word:
        found = next(version for version in versions if version.hash == prompt.version)
        return _NamedVersion(prompt.id, found)
    if known := result_versions.find_version([*versions, *former], word):
        return _NamedVersion(prompt.id, known)
    if (folder / word).is_file():
        return _file(project, folder, word)
    if lineage.repository is None:
        labels = ", ".join(version.label for version in versions)
        raise UsageError(f"{prompt.id} has no version {word!r}", hint=f"there are: {labels}")
    there = _at(lineage, versions, word)
    if there is None:
        raise UsageError(
            f"{prompt.path} is not a valid prompt in {word!r}", hint="see: edison history"
        )
    return _NamedVersion(prompt.id, there)


def _at(
    lineage: result_versions.History, versions: list[result_versions.Version], word: str
) -> result_versions.Version | None:
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
        said = f"{lineage.prompt.id} has no version {word!r}, and there is no such commit"
        raise UsageError(said, hint=hint) from None


def _file(project: Project, folder: Path, word: str) -> _NamedVersion:
    """Return the version in a file, which may be outside the project."""
    path = folder / word
    if path.stat().st_size > git.MAX_TEXT_BYTES:
        raise UsageError(f"{word} is too large for a prompt", hint="name another file")
    data = path.read_bytes()
    prompt, problems = config_prompt.read_prompt(
        data, word, lambda file: json_text.read_json(files.read(project.tree, file), file).value
    )
    if prompt is None:
        said = problems[0].message if problems else "it cannot be read"
        raise UsageError(f"{word} is not a prompt: {said}", hint="name a prompt file")
    return _NamedVersion(prompt.id, result_versions.Version(prompt.version, word, data), word)


def _lines(before: _NamedVersion, after: _NamedVersion) -> list[str]:
    old, new = _text(before), _text(after)
    return [*text_diff.unified_diff(old, new, before.name, after.name)]


def _text(meant: _NamedVersion) -> list[str]:
    try:
        return decoding.decode(meant.version.data or b"").splitlines()
    except document_marks.Fault as fault:
        hint = "save it as UTF-8"
        raise UsageError(f"{meant.name} cannot be read: {fault.message}", hint=hint) from None


def _scores(
    project: Project, before: _NamedVersion, after: _NamedVersion
) -> list[result_versions.VersionComparison]:
    if not (project.root / project.file.results).exists():
        return []
    with lookup.results_of(project) as connection:
        pair = (before.version.hash, after.version.hash)
        return result_versions.versus(
            connection,
            {before.measured_as, after.measured_as},
            pair,
            lambda name: samples.case_filter_of(project, name, connection),
        )


def _show_scores(
    terminal: Terminal,
    found: Sequence[result_versions.VersionComparison],
    before: _NamedVersion,
    after: _NamedVersion,
) -> None:
    if not found:
        terminal.note("no complete runs with both versions, graded alike, on the same cases")
    for one in found:
        terminal.result("")
        contrast = one.contrast
        better = contrast.difference > 0
        color = ODD if not contrast.significant else GOOD if better else BAD
        terminal.result(
            StyledText(f"{one.experiment}: ", bold=True),
            StyledText(_verdict(one, before, after), color),
            f" {_difference(one)}{'  simulated' if one.simulated else ''}",
        )
        for move, cases in one.moved.items():
            if cases:
                more = f" and {len(cases) - _LISTED:,} more" if len(cases) > _LISTED else ""
                listed = ", ".join(cases[:_LISTED])
                terminal.result(f"  {counted(len(cases), 'case')} {move.words}: {listed}{more}")


def _verdict(
    one: result_versions.VersionComparison, before: _NamedVersion, after: _NamedVersion
) -> str:
    if not one.contrast.significant:
        return "not shown to differ"
    winner = after if one.contrast.difference > 0 else before
    return f"{winner.version.label} is better"


def _difference(one: result_versions.VersionComparison) -> str:
    contrast = one.contrast
    said = f"{sentences.signed(contrast.difference)} points"
    if contrast.interval is not None:
        low, high = contrast.interval
        said += f" (likely {sentences.signed(low)} to {sentences.signed(high)})"
    said += f" on {counted(contrast.n, 'case')} with {', '.join(one.models)}"
    return f"{said}, {sentences.p_words(contrast.p)}"


def _document(
    before: _NamedVersion,
    after: _NamedVersion,
    lines: Sequence[str],
    found: Sequence[result_versions.VersionComparison],
) -> dict[str, Any]:
    def side(meant: _NamedVersion) -> dict[str, Any]:
        version = meant.version
        return {
            "prompt": meant.measured_as,
            "label": version.label,
            "hash": plan_versions.short(version.hash),
            "commit": version.commit,
        }

    return {
        "a": side(before),
        "b": side(after),
        "same_version": before.version.hash == after.version.hash,
        "diff": "\n".join(lines),
        "scores": [
            {
                "experiment": one.experiment,
                "models": list(one.models),
                "runs": list(one.runs),
                "simulated": one.simulated,
                "n": one.contrast.n,
                "difference": {
                    "estimate": one.contrast.difference,
                    "low": one.contrast.interval and one.contrast.interval.low,
                    "high": one.contrast.interval and one.contrast.interval.high,
                    "p": one.contrast.p,
                    "method": one.contrast.method,
                },
                "shown": one.contrast.significant,
                **{move: list(cases) for move, cases in one.moved.items()},
            }
            for one in found
        ],
    }


@click.command(cls=EdisonCommand)
@optional_first("PROMPT", "VERSION")
@click.pass_obj
def promote(state: CliState, names: tuple[str | None, str]) -> None:
    """Mark a prompt version as the one in production.

    PROMPT is a path or an id, and may be left out if there is one; VERSION is a label (v2), a hash,
    a Git ref, or `current` for the current file. Writes the key `production` to the front
    matter of the prompt, which does not change its version; commit the file like any change.
    `edison compare production latest` and `edison history` use the mark. Needs the role editor.

    Examples:
      edison promote v2
      edison promote support-reply current
      edison promote prompts/support-reply.md 3f9a41c2 --json
    """
    terminal = Terminal(state)
    project = lookup.open_project(state)
    prompt, version = names
    found = lookup.find_prompt(project, prompt, state.folder)
    history = result_versions.History.of(found, project)
    chosen = _version_named(history, version)
    before = found.header.production
    changed = file_edits.promote(
        sites.Site(project.root, project.file), project, found, plan_versions.short(chosen.hash)
    )
    measured = False
    if (project.root / project.file.results).exists():
        with lookup.results_of(project) as connection:
            measured = chosen.hash in result_versions.results_by_version(
                connection, found.id, [chosen.hash]
            )
    if terminal.json:
        about = {
            "label": chosen.label,
            "hash": plan_versions.short(chosen.hash),
            "version": chosen.hash,
        }
        terminal.document(
            {
                "prompt": {"id": found.id, "path": found.path},
                **about,
                "before": before or None,
                "changed": changed,
                "measured": measured,
            }
        )
        return
    status = "is in production" if changed else "is in production already"
    terminal.result(f"{found.id} {chosen.label} ({plan_versions.short(chosen.hash)}) {status}")
    if changed and history.repository is not None:
        terminal.note(f"commit it: git commit {found.path}")
    if "+" in chosen.label:
        terminal.note("this version is not on the default branch yet")
    if not measured:
        terminal.note("no complete run has this version, so nothing can be compared with it yet")


def _version_named(history: result_versions.History, word: str) -> result_versions.Version:
    versions = history.versions()
    if word == "current":
        return next(one for one in versions if one.hash == history.prompt.version)
    if known := result_versions.find_version(versions, word):
        return known
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
