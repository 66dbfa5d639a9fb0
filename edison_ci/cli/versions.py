"""edison history, diff and promote: the versions of a prompt, their differences and scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edison_ci.api import prompt_versions
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, NameType, optional_first
from edison_ci.cli.terminal import BAD, GOOD, MOST_BLOCKS, ODD, StyledText, Terminal, sparkline
from edison_ci.numeric import counted, dollars, points
from edison_ci.plan import versions as plan_versions
from edison_ci.stats import sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.api.prompt_versions import VersionDiff
    from edison_ci.config.prompt import Prompt
    from edison_ci.results.versions import Result, VersionComparison, VersionHistory

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
    history = prompt_versions.prompt_history(
        project, lookup.find_prompt(project, prompt, state.folder)
    )
    if terminal.json:
        terminal.document(history.as_json())
        return
    prompt_file, lineage = history.prompt, history.lineage
    terminal.result(StyledText(prompt_file.id, bold=True), f"  {prompt_file.path}")
    table: list[tuple[str, ...]] = [
        ("version", "hash", "date", "author", "score", "cost/answer", "with", "what", "")
    ]
    table += [_row(life, prompt_file) for life in lineage.lives]
    terminal.table(table, right=(5,), totals=0)
    scores = [_score(life.result) for life in lineage.lives[::-1]]
    if sum(score is not None for score in scores) > 1:
        terminal.result(f"score, oldest to newest  {sparkline(scores)}")
    for suggestion in terminal.listed(lineage.open, most=MOST_BLOCKS):
        mark = "  simulated" if suggestion.simulated else ""
        weak = f" for {', '.join(suggestion.targets)}" if suggestion.targets else ""
        terminal.result(
            f"suggestion {suggestion.id}  {suggestion.status}, "
            f"of {plan_versions.short(suggestion.base_hash)}{weak}{mark}"
        )
    if any(life.result is not None and life.result.differs for life in lineage.lives):
        terminal.note("scores that were measured differently cannot be compared; on the")
        terminal.note(f"same models and cases: edison diff {prompt_file.id}@A {prompt_file.id}@B")
    if history.cut_off:
        terminal.note("the clone is shallow: older versions are unknown")


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


_LISTED = 10


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
    home = lookup.find_prompt(project, prompt, state.folder) if prompt else None
    compared = prompt_versions.diff_versions(project, (a, b), home, state.folder)
    if terminal.json:
        terminal.document(compared.as_json())
        return
    for line in compared.lines:
        color = {"+": GOOD, "-": BAD, "@": ODD}.get(line[:1])
        terminal.result(StyledText(line, None if line.startswith(("+++", "---")) else color))
    if not compared.lines:
        terminal.note("the texts are the same")
    if compared.same_version:
        terminal.note("the same version: models get the same text")
    else:
        _show_scores(terminal, compared)


def _show_scores(terminal: Terminal, compared: VersionDiff) -> None:
    if not compared.scores:
        terminal.note("no complete runs with both versions, graded alike, on the same cases")
    for comparison in compared.scores:
        terminal.result("")
        contrast = comparison.contrast
        verdict, color = "not shown to differ", ODD
        if contrast.significant:
            better = contrast.difference > 0
            winner = compared.after if better else compared.before
            verdict, color = f"{winner.version.label} is better", GOOD if better else BAD
        terminal.result(
            StyledText(f"{comparison.experiment}: ", bold=True),
            StyledText(verdict, color),
            f" {_difference(comparison)}{'  simulated' if comparison.simulated else ''}",
        )
        for move, cases in comparison.moved.items():
            if cases:
                more = f" and {len(cases) - _LISTED:,} more" if len(cases) > _LISTED else ""
                listed = ", ".join(cases[:_LISTED])
                terminal.result(f"  {counted(len(cases), 'case')} {move.words}: {listed}{more}")


def _difference(comparison: VersionComparison) -> str:
    contrast = comparison.contrast
    sentence = f"{sentences.signed(contrast.difference)} points"
    if contrast.interval is not None:
        low, high = contrast.interval
        sentence += f" (likely {sentences.signed(low)} to {sentences.signed(high)})"
    sentence += f" on {counted(contrast.n, 'case')} with {', '.join(comparison.models)}"
    return f"{sentence}, {sentences.two_sided(contrast.p)}"


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
    name, version = names
    promoted = prompt_versions.promote(
        project, lookup.find_prompt(project, name, state.folder), version
    )
    if terminal.json:
        terminal.document(promoted.as_json())
        return
    prompt, chosen, changed = promoted.prompt, promoted.version, promoted.changed
    status = "is in production" if changed else "is in production already"
    terminal.result(f"{prompt.id} {chosen.label} ({plan_versions.short(chosen.hash)}) {status}")
    if changed and promoted.in_git:
        terminal.note(f"commit it: git commit {prompt.path}")
    if "+" in chosen.label:
        terminal.note("this version is not on the default branch yet")
    if not promoted.measured:
        terminal.note("no complete run has this version, so nothing can be compared with it yet")
