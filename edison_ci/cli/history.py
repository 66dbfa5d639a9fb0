"""edison history: how did a prompt become what it is, and did that help?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.choosing import prompt_named
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.reading import (
    price,
    readable_at,
    results_of,
    sparkline,
)
from edison_ci.cli.summary import points
from edison_ci.cli.terminal import Ink, Terminal
from edison_ci.decide.lineage import History, Version
from edison_ci.decide.version_results import results_by_version, with_measured
from edison_ci.execute.summary import interval_json
from edison_ci.plan.versions import short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.decide.version_results import Result

_NAMED = 2


@click.command(cls=EdisonCommand)
@click.argument("prompt")
@click.pass_obj
def history(state: State, prompt: str) -> None:
    """Show the versions of a prompt and how each did.

    PROMPT is a path or an id. Newest first: what is merged, what is on this branch, and the file as
    it is, each with who wrote it and when, and the score, its interval and the cost of an answer in
    the newest complete run that has it. What was not measured like the newest version, with other
    models, cases or grading, says so and is left out of the line of scores.

    Examples:
      edison history support-reply
      edison history prompts/support-reply.md --json
    """
    terminal = Terminal(state)
    project = readable_at(state, terminal)
    found = prompt_named(project, prompt, state.folder)
    lineage = History.of(found, project)
    known = lineage.versions()
    results = _results(project, found.id, [version.hash for version in reversed(known)])
    versions = with_measured(known, results, found.id)[::-1]
    if terminal.json:
        terminal.document(
            {
                "prompt": {"id": found.id, "path": found.path},
                "shallow": lineage.cut_off,
                "versions": [_version(v, results.get(v.hash), found) for v in versions],
            }
        )
        return
    terminal.result(Ink(found.id, bold=True), f"  {found.path}")
    table: list[tuple[str, ...]] = [
        ("version", "hash", "date", "author", "score", "cost/answer", "with", "what", "")
    ]
    table += [_row(version, results.get(version.hash), found) for version in versions]
    terminal.table(table, right=(5,))
    scores = [_score(results.get(version.hash)) for version in versions[::-1]]
    if sum(score is not None for score in scores) > 1:
        terminal.result(f"score, oldest to newest  {sparkline(scores)}")
    if any(result.differs for result in results.values()):
        terminal.note("scores that were not measured alike say nothing about each other; on the")
        terminal.note(f"same models and cases: edison diff {found.id}@A {found.id}@B")
    if lineage.cut_off:
        terminal.note("a shallow clone: older versions are not known here")


def _results(project: Project, prompt: str, newest_first: list[str]) -> dict[str, Result]:
    if not (project.root / project.file.results).exists():
        return {}
    with results_of(project) as connection:
        return results_by_version(connection, prompt, newest_first)


def _score(result: Result | None) -> float | None:
    """Return a score that can stand beside that of the newest version."""
    if result is None or result.composite is None or result.differs:
        return None
    return result.composite.estimate


def _row(version: Version, result: Result | None, prompt: Prompt) -> tuple[str, ...]:
    uncommitted = "not committed" if version.data is not None else "not in Git"
    marks = ["in use"] if version.hash == prompt.version else []
    if result is not None and result.run.simulated:
        marks.append("simulated")
    if result is not None and result.run.partial:
        marks.append("part of the cases")
    if result is not None and result.differs:
        marks.append(f"other {' and '.join(result.differs)}")
    return (
        version.label,
        short(version.hash),
        (version.date or "-")[:10],
        version.author or "-",
        points(result.composite) if result is not None else "-",
        price(result.answer_cost_microusd) if result is not None else "-",
        _models(result.models) if result is not None else "-",
        _short(version.subject) if version.commit else uncommitted,
        ", ".join(marks),
    )


def _models(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{len(names)} models"


def _short(text: str | None) -> str:
    text = text or ""
    return text if len(text) <= 50 else f"{text[:47]}..."


def _version(version: Version, result: Result | None, prompt: Prompt) -> dict[str, Any]:
    run = None if result is None else result.run
    return {
        "label": version.label,
        "hash": short(version.hash),
        "version": version.hash,
        "in_use": version.hash == prompt.version,
        "commit": version.commit,
        "author": version.author,
        "date": version.date,
        "subject": version.subject,
        "run_id": None if run is None else run.id,
        "experiment": None if run is None else run.experiment,
        "simulated": None if run is None else run.simulated,
        "partial": None if run is None else run.partial,
        "models": None if result is None else len(result.models),
        "model_names": None if result is None else list(result.models),
        "differs": None if result is None else list(result.differs),
        "composite": None if result is None else interval_json(result.composite),
        "answers": None if result is None else result.answers,
        "answer_cost_microusd": None if result is None else result.answer_cost_microusd,
    }
