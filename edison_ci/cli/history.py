"""edison history: the versions of a prompt, and how each did."""

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
from edison_ci.cli.terminal import Ink, Terminal
from edison_ci.formatting import points
from edison_ci.plan.versions import short
from edison_ci.results.run_document import interval_json
from edison_ci.results.versions import History, Lineage, lineage_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.results.versions import Life, Result

_NAMED = 2


@click.command(cls=EdisonCommand)
@click.argument("prompt")
@click.pass_obj
def history(state: State, prompt: str) -> None:
    """Show the versions of a prompt and how each did.

    PROMPT is a path or an id. Newest first: what is merged, what is on this branch, and the file as
    it is, each with who wrote it and when, and the score, its interval and the cost of an answer in
    the newest complete run that has it. What was not measured like the newest version, with other
    models, cases or grading, says so and is left out of the line of scores. Names that the prompt
    had before are followed; open suggestions are listed below.

    Examples:
      edison history support-reply
      edison history prompts/support-reply.md --json
    """
    terminal = Terminal(state)
    project = readable_at(state, terminal)
    found = prompt_named(project, prompt, state.folder)
    history = History.of(found, project)
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
    terminal.result(Ink(found.id, bold=True), f"  {found.path}")
    table: list[tuple[str, ...]] = [
        ("version", "hash", "date", "author", "score", "cost/answer", "with", "what", "")
    ]
    terminal.table([*table, *(_row(life, found) for life in lineage.lives)], right=(5,))
    scores = [_score(life.result) for life in lineage.lives[::-1]]
    if sum(score is not None for score in scores) > 1:
        terminal.result(f"score, oldest to newest  {sparkline(scores)}")
    for one in lineage.open:
        mark = "  simulated" if one.simulated else ""
        weak = f" for {', '.join(one.targets)}" if one.targets else ""
        terminal.result(f"suggestion {one.id}  {one.status}, of {short(one.base_hash)}{weak}{mark}")
    if any(life.result is not None and life.result.differs for life in lineage.lives):
        terminal.note("scores that were not measured alike say nothing about each other; on the")
        terminal.note(f"same models and cases: edison diff {found.id}@A {found.id}@B")
    if history.cut_off:
        terminal.note("a shallow clone: older versions are not known here")


def _lineage(project: Project, history: History) -> Lineage:
    if not (project.root / project.file.results).exists():
        return lineage_of(history, None)
    with results_of(project) as connection:
        return lineage_of(history, connection)


def _score(result: Result | None) -> float | None:
    """Return a score that can stand beside that of the newest version."""
    if result is None or result.composite is None or result.differs:
        return None
    return result.composite.estimate


def _row(life: Life, prompt: Prompt) -> tuple[str, ...]:
    version, result = life.version, life.result
    uncommitted = "not committed" if version.data is not None else "not in Git"
    return (
        version.label,
        short(version.hash),
        (version.date or "-")[:10],
        version.author or "-",
        points(result.composite) if result is not None else "-",
        price(result.answer_cost_microusd) if result is not None else "-",
        _models(result.models) if result is not None else "-",
        _short(version.subject) if version.commit else uncommitted,
        ", ".join(_marks(life, prompt)),
    )


def _marks(life: Life, prompt: Prompt) -> list[str]:
    version, result = life.version, life.result
    marks = ["in use"] if version.hash == prompt.version and not version.former else []
    marks += ["production"] if life.in_production else []
    marks += [f"suggestion {life.suggestion.id}"] if life.suggestion is not None else []
    if result is None:
        return marks
    marks += ["simulated"] if result.run.simulated else []
    marks += ["part of the cases"] if result.run.partial else []
    if result.prompt != (version.former or prompt.id):
        marks.append(f"measured as {result.prompt}")
    if result.differs:
        marks.append(f"other {' and '.join(result.differs)}")
    return marks


def _models(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{len(names)} models"


def _short(text: str | None) -> str:
    text = text or ""
    return text if len(text) <= 50 else f"{text[:47]}..."


def _version(life: Life, prompt: Prompt) -> dict[str, Any]:
    version, result = life.version, life.result
    run = None if result is None else result.run
    return {
        "label": version.label,
        "hash": short(version.hash),
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
        "composite": None if result is None else interval_json(result.composite),
        "answers": None if result is None else result.answers,
        "answer_cost_microusd": None if result is None else result.answer_cost_microusd,
    }
