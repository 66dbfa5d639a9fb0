"""edison diff: what changed between two versions of a prompt, and whether that helped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.cli.choosing import prompt_named
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.reading import (
    readable_at,
    results_of,
)
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, Terminal, counted
from edison_ci.config.prompt import read_prompt
from edison_ci.documents.decoding import decode
from edison_ci.documents.files import read
from edison_ci.documents.json_text import read_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.git.repository import MAX_TEXT_BYTES
from edison_ci.names import did_you_mean, unified_diff
from edison_ci.plan.versions import short
from edison_ci.results.case_filter import roll_of
from edison_ci.results.versions import History, Version, Versus, named, versus
from edison_ci.stats.sentences import chance, signed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.config.prompt import Prompt

_LISTED = 10


@dataclass(frozen=True, slots=True)
class _Meant:
    """A version that a command line means."""

    prompt: str
    version: Version
    file: str = ""
    """Where it was read from, if it is no version of the project's own prompt."""

    @property
    def name(self) -> str:
        label = self.version.label
        return self.file or (label if self.version.former else f"{self.prompt}@{label}")

    @property
    def measured_as(self) -> str:
        return self.version.former or self.prompt


@click.command("diff", cls=EdisonCommand)
@click.argument("a")
@click.argument("b")
@click.option("--prompt", metavar="PROMPT", help="Path or id; needed if a project has several.")
@click.pass_obj
def diff(state: State, a: str, b: str, prompt: str | None) -> None:
    """Compare two versions of a prompt.

    A and B are labels (v2), hashes, Git refs, files, or the id of a prompt for the file as it is;
    PROMPT@v2 names the prompt as well, OLD@v2 a version under a former name. Shows what changed in
    the text and, where complete runs have both, what it did to the score on the same cases and
    models.

    Examples:
      edison diff v1 v2
      edison diff support-reply@main support-reply
      edison diff HEAD~1 prompts/support-reply.md --json
    """
    terminal = Terminal(state)
    project = readable_at(state, terminal)
    words = [_split(project, word, state.folder) for word in (a, b)]
    default = prompt_named(project, prompt, state.folder) if prompt else _only(project, words)
    before, after = (_meant(project, state.folder, home or default, w) for home, w in words)
    lines = _lines(before, after)
    found: list[Versus] = []
    if before.prompt == after.prompt and before.version.hash != after.version.hash:
        found = _scores(project, before, after)
    if terminal.json:
        terminal.document(_document(before, after, lines, found))
        return
    for line in lines:
        color = {"+": GOOD, "-": BAD, "@": ODD}.get(line[:1])
        terminal.result(Ink(line, None if line.startswith(("+++", "---")) else color))
    if not lines:
        terminal.note("the texts are the same")
    if before.version.hash == after.version.hash:
        terminal.note("the same version: nothing that reaches a model differs")
    else:
        _show_scores(terminal, found, before, after)


def _split(project: Project, word: str, folder: Path) -> tuple[Prompt | None, str]:
    """Return the prompt that a word names, if it does, and the rest."""
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
    """Return the prompt that the other word names, or the only one there is."""
    known = [prompt for prompt, _ in words if prompt is not None]
    if known:
        return known[0]
    prompts = list(project.prompts.values())
    return prompts[0] if len(prompts) == 1 else None


def _meant(project: Project, folder: Path, prompt: Prompt | None, word: str) -> _Meant:
    if prompt is None:
        if (folder / word).is_file():
            return _file(project, folder, word)
        raise UsageError(
            f"which prompt is {word!r} a version of?",
            hint="write PROMPT@VERSION, or add --prompt PROMPT",
        )
    lineage = History.of(prompt, project)
    versions = lineage.versions()
    former = [] if named(versions, word) else lineage.former()
    if not word:
        found = next(version for version in versions if version.hash == prompt.version)
        return _Meant(prompt.id, found)
    if known := named([*versions, *former], word):
        return _Meant(prompt.id, known)
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
    return _Meant(prompt.id, there)


def _at(lineage: History, versions: list[Version], word: str) -> Version | None:
    """Return the version in a commit, or say what else the word could have been."""
    assert lineage.repository is not None, "the caller has asked"
    try:
        return lineage.at(lineage.repository.resolve(word))
    except UsageError as error:
        labels = did_you_mean(word, [version.label for version in versions], label="versions")
        hint = labels or error.hint
        if error.hint.startswith("did you mean"):
            hint = error.hint
        elif lineage.cut_off:
            hint = f"{labels}; or {error.hint}"
        said = f"{lineage.prompt.id} has no version {word!r}, nor is there such a commit"
        raise UsageError(said, hint=hint) from None


def _file(project: Project, folder: Path, word: str) -> _Meant:
    """Return the version in a file that may lie anywhere."""
    path = folder / word
    if path.stat().st_size > MAX_TEXT_BYTES:
        raise UsageError(f"{word} is too large for a prompt", hint="name another file")
    data = path.read_bytes()
    prompt, problems = read_prompt(
        data, word, lambda file: read_json(read(project.tree, file), file).value
    )
    if prompt is None:
        said = problems[0].message if problems else "it cannot be read"
        raise UsageError(f"{word} is not a prompt: {said}", hint="name a prompt file")
    return _Meant(prompt.id, Version(prompt.version, word, data), word)


def _lines(before: _Meant, after: _Meant) -> list[str]:
    old, new = _text(before), _text(after)
    return [*unified_diff(old, new, before.name, after.name)]


def _text(meant: _Meant) -> list[str]:
    try:
        return decode(meant.version.data or b"").splitlines()
    except Fault as fault:
        hint = "save it as UTF-8"
        raise UsageError(f"{meant.name} cannot be read: {fault.message}", hint=hint) from None


def _scores(project: Project, before: _Meant, after: _Meant) -> list[Versus]:
    if not (project.root / project.file.results).exists():
        return []
    with results_of(project) as connection:
        pair = (before.version.hash, after.version.hash)
        return versus(
            connection,
            {before.measured_as, after.measured_as},
            pair,
            lambda name: roll_of(project, name, stored=connection),
        )


def _show_scores(
    terminal: Terminal, found: Sequence[Versus], before: _Meant, after: _Meant
) -> None:
    if not found:
        terminal.note("no complete runs with both versions, graded alike, on the same cases")
    for one in found:
        terminal.result("")
        contrast = one.contrast
        better = contrast.difference > 0
        color = ODD if not contrast.shown else GOOD if better else BAD
        terminal.result(
            Ink(f"{one.experiment}: ", bold=True),
            Ink(_verdict(one, before, after), color),
            f" {_change(one)}{'  simulated' if one.simulated else ''}",
        )
        for word, cases in (("fixed", one.fixed), ("broken", one.broken)):
            if cases:
                more = f" and {len(cases) - _LISTED:,} more" if len(cases) > _LISTED else ""
                terminal.result(
                    f"  {counted(len(cases), 'case')} {word}: {', '.join(cases[:_LISTED])}{more}"
                )


def _verdict(one: Versus, before: _Meant, after: _Meant) -> str:
    if not one.contrast.shown:
        return "not shown to differ"
    winner = after if one.contrast.difference > 0 else before
    return f"{winner.version.label} is better"


def _change(one: Versus) -> str:
    contrast = one.contrast
    said = f"{signed(contrast.difference)} points"
    if contrast.interval is not None:
        low, high = contrast.interval
        said += f" (likely {signed(low)} to {signed(high)})"
    said += f" on {counted(contrast.n, 'case')} with {', '.join(one.models)}"
    return f"{said}, by luck {chance(contrast.p)}"


def _document(
    before: _Meant, after: _Meant, lines: Sequence[str], found: Sequence[Versus]
) -> dict[str, Any]:
    def side(meant: _Meant) -> dict[str, Any]:
        version = meant.version
        return {
            "prompt": meant.measured_as,
            "label": version.label,
            "hash": short(version.hash),
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
                "shown": one.contrast.shown,
                "fixed": list(one.fixed),
                "broken": list(one.broken),
            }
            for one in found
        ],
    }
