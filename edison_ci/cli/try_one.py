"""edison try and rerun: one request, with its answer and grade."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import click

from edison_ci import utc
from edison_ci.cli.lookup import (
    experiment_of,
    find_prompt,
    open_project,
)
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, aligned, simulated_label
from edison_ci.config import requirements
from edison_ci.contracts import CallError
from edison_ci.documents.secrets import redacted
from edison_ci.errors import CallFailed, UsageError
from edison_ci.execute.runner import Task
from edison_ci.execute.standalone import NotAnswered, TrialAnswer, task_of_cell, try_once
from edison_ci.numeric import dollars, fixed, score
from edison_ci.operate.sessions import require_editor, run_context
from edison_ci.plan.selection import find_case, find_configuration
from edison_ci.records import CellStatus
from edison_ci.store.answers import answer_at
from edison_ci.store.cells import find_cell
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project
    from edison_ci.store.cells import Component

_REUSE = dt.timedelta(hours=1)
_WORDS = {True: "pass", False: "fail", None: "-"}


@click.command("try", cls=EdisonCommand)
@click.argument("prompt")
@click.option("--case", "case_id", metavar="ID", help="Id of the case; default: the first.")
@click.option("--experiment", metavar="NAME", help="Experiment with the cases and models.")
@click.option("--model", metavar="NAME", help="Model configuration; default: the first.")
@click.option(
    "--no-cache", is_flag=True, help="Request a new answer even if one of the last hour is stored."
)
@click.pass_obj
def try_one(state: CliState, /, prompt: str, **options: Any) -> None:
    """Send one case to a model and show the answer.

    Shows the answer with its checks, grade and cost. PROMPT is a path or an id. A stored answer of
    the last hour is used again.

    Examples:
      edison try support-reply
      edison try prompts/support-reply.md --case return-how --model small --no-cache
    """
    terminal = Terminal(state)
    project = open_project(state)
    found = find_prompt(project, prompt, state.folder)
    home = experiment_of(project, found, options["experiment"])
    if home is None or found.header.type == "grader":
        raise UsageError(
            f"no experiment uses {found.path} as a prompt",
            hint="add it to prompts: of an experiment",
        )
    configuration = find_configuration(home, found, options["model"])
    assert configuration is not None  # an experiment has at least one model
    task = Task(found, configuration, find_case(project, home, options["case_id"]), 0)
    age = dt.timedelta() if options["no_cache"] else _REUSE
    tried = _try_task(state, project, home, task, newer_than=utc.timestamp(utc.now() - age))
    if terminal.json:
        terminal.document(_document(task, tried))
    else:
        _show(terminal, task, tried)


@click.command(cls=EdisonCommand)
@click.argument("wanted", metavar="RUN")
@click.option(
    "--cell", required=True, metavar="CELL", help="The cell: 12 hex digits, or CASE@MODEL#REPEAT."
)
@click.pass_obj
def rerun(state: CliState, wanted: str, cell: str) -> None:
    """Request another answer for one cell.

    Shows it next to the answer of the run. The results of the run do not change; the new answer is
    stored as a further answer.

    Examples:
      edison rerun latest --cell return-how@small#0
    """
    terminal = Terminal(state)
    project = open_project(state)
    reader = open_reader(project.root / project.file.results)
    try:
        run = find_run(reader, wanted)
        row = find_cell(reader, run.id, cell)
        before = answer_at(reader, row.request_hash, row.answer_no)
    finally:
        reader.close()
    experiment = project.experiment(run.experiment)
    task = task_of_cell(project, experiment, row)
    tried = _try_task(state, project, experiment, task, newer_than=utc.timestamp(utc.now()))
    if terminal.json:
        old: dict[str, Any] = {
            "answer_no": row.answer_no,
            "composite": row.composite,
            "passed": row.passed,
        }
        old["text"] = before.completion.text if before else None
        terminal.document({"cell": row.id[:12], "before": old, **_document(task, tried)})
        return
    if before is not None:
        terminal.result(StyledText(f"--- answer {row.answer_no}", bold=True))
        _text(terminal, before.completion.text)
        _verdicts(terminal, row.components, row.composite, row.passed)
    _show(terminal, task, tried)


def _try_task(
    state: CliState, project: Project, experiment: Experiment, task: Task, *, newer_than: str
) -> TrialAnswer:
    require_editor(project, "try")
    models = requirements.missing_for_models([task.configuration.model])
    requirements.refuse(
        [*requirements.missing(project, experiment, calls=requirements.GRADING), *models]
    )
    try:
        return try_once(
            project,
            task,
            experiment,
            run_context(project, offline=state.offline),
            newer_than=newer_than,
        )
    except (MissingValueError, RenderError) as error:
        raise UsageError(
            f"case {task.case.id!r} cannot be rendered: {error}", hint=f"see {task.prompt.path}"
        ) from None
    except CallError as error:
        raise CallFailed(str(error), hint="see: edison models test") from None
    except NotAnswered as error:
        raise CallFailed(str(error)) from None


def _document(task: Task, tried: TrialAnswer) -> dict[str, Any]:
    completion, grade = tried.answer.completion, tried.grade
    return {
        "prompt": task.prompt.id,
        "model": task.configuration.name,
        "simulated": task.configuration.model.simulated,
        "case": task.case.id,
        "answer_no": tried.answer.answer_no,
        "reused": not tried.answer.bought,
        "text": completion.text,
        "tool_calls": completion.tool_calls,
        "finish_reason": completion.finish_reason,
        "status": grade.status,
        "reason": grade.reason,
        "composite": grade.composite,
        "passed": grade.passed,
        "components": [
            {
                "name": component.name,
                "kind": component.kind,
                "score": component.score,
                "passed": component.passed,
                "status": component.status,
                "reason": component.reason,
            }
            for component in grade.components
        ],
        "tokens": {"in": completion.tokens_in, "out": completion.tokens_out},
        "latency_ms": completion.latency_ms,
        "cost_microusd": tried.answer.cost_microusd,
        "served_model": completion.served_model,
    }


def _show(terminal: Terminal, task: Task, tried: TrialAnswer) -> None:
    completion, model = tried.answer.completion, task.configuration.model
    mark = simulated_label(model.simulated)
    title = f"--- {task.configuration.name}, case {task.case.id}, answer {tried.answer.answer_no}"
    terminal.result(StyledText(title, bold=True), *mark)
    _text(terminal, completion.text)
    if tried.grade.reason:
        terminal.result(StyledText(tried.grade.status, BAD), f": {tried.grade.reason}")
    _verdicts(terminal, tried.grade.components, tried.grade.composite, tried.grade.passed)
    source = "new" if tried.answer.bought else "stored within the last hour"
    terminal.note(
        f"{dollars(tried.answer.cost_microusd)}, {completion.tokens_in or 0:,} tokens in, "
        f"{completion.tokens_out or 0:,} out, {completion.latency_ms:,} ms, "
        f"{completion.finish_reason}; {source}"
    )


def _text(terminal: Terminal, text: str) -> None:
    for line in redacted(text).split("\n"):
        terminal.result(line)


def _verdicts(
    terminal: Terminal,
    components: tuple[Component, ...],
    composite: float | None,
    passed: bool | None,
) -> None:
    if components:
        terminal.result(StyledText("--- grade", bold=True))
    rows = [
        (
            _word(component),
            f"{component.kind} {component.name}",
            score(component.score),
            component.reason,
        )
        for component in components
    ]
    for row, component in zip(
        aligned(rows, right=frozenset({2})) if rows else (), components, strict=True
    ):
        color = {True: GOOD, False: BAD, None: ODD}[component.passed]
        terminal.result(StyledText(row, color if component.kind != "criterion" else None))
    if composite is not None:
        terminal.result(f"score {fixed(100 * composite, 1)}, {_WORDS[passed]}")


def _word(component: Component) -> str:
    """Return pass or fail; '' for a criterion, which cannot fail."""
    if component.status != CellStatus.OK:
        return component.status
    return "" if component.kind == "criterion" and component.passed else _WORDS[component.passed]
