"""edison try and rerun: one answer, looked at closely."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import click

from edison_ci import formatting
from edison_ci.cli.choosing import case_named, configuration_named, home_of, prompt_named
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.progress import dollars
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, Terminal, aligned
from edison_ci.config import needs
from edison_ci.config.load import find_root, load_project
from edison_ci.contracts import CallError
from edison_ci.documents.secrets import redacted
from edison_ci.errors import CallFailed, UsageError
from edison_ci.execute.runner import Task, request_for
from edison_ci.execute.standalone import NotAnswered, Tried, try_once
from edison_ci.formatting import score
from edison_ci.operate.sessions import require_editor, tools_for
from edison_ci.rounding import fixed
from edison_ci.store.answers import answer_at
from edison_ci.store.cells import find_cell
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project
    from edison_ci.store.runs import CellRow, Part

_REUSE = dt.timedelta(hours=1)
_WORDS = {True: "pass", False: "fail", None: "-"}


@click.command("try", cls=EdisonCommand)
@click.argument("prompt")
@click.option("--case", "case_id", metavar="ID", help="Id of the case; the first one by default.")
@click.option("--experiment", metavar="NAME", help="Experiment to take cases and models from.")
@click.option("--model", metavar="NAME", help="Model configuration; the first one by default.")
@click.option("--no-cache", is_flag=True, help="Ask again even if it was asked within the hour.")
@click.pass_obj
def try_one(state: State, /, prompt: str, **options: Any) -> None:
    """Send one case once, and show the answer.

    With its checks, its grade and what it cost. PROMPT is a path or an id. An answer of the last
    hour is shown again instead of bought again.

    Examples:
      edison try support-reply
      edison try prompts/support-reply.md --case return-how --model small --no-cache
    """
    terminal = Terminal(state)
    project = load_project(state.entered(find_root(state.folder)))
    found = prompt_named(project, prompt, state.folder)
    home = home_of(project, found, options["experiment"])
    if home is None or found.header.type == "grader":
        raise UsageError(
            f"no experiment generates with {found.path}", hint="add it to prompts: of one"
        )
    configuration = configuration_named(home, found, options["model"])
    assert configuration is not None  # an experiment has at least one model
    task = Task(found, configuration, case_named(project, home, options["case_id"]), 0)
    age = dt.timedelta() if options["no_cache"] else _REUSE
    tried = _tried(state, project, home, task, newer_than=formatting.stamp(formatting.now() - age))
    if terminal.json:
        terminal.document(_document(task, tried))
    else:
        _show(terminal, task, tried)


@click.command(cls=EdisonCommand)
@click.argument("wanted", metavar="RUN")
@click.option("--cell", required=True, metavar="CELL", help="12 hex digits, or CASE@MODEL#DRAW.")
@click.pass_obj
def rerun(state: State, wanted: str, cell: str) -> None:
    """Buy a further answer to one cell.

    It is shown beside the one that the run has. What the run found stays as it is: the new answer
    is kept as a further take.

    Examples:
      edison rerun latest --cell return-how@small#0
    """
    terminal = Terminal(state)
    project = load_project(state.entered(find_root(state.folder)))
    reader = open_reader(project.root / project.file.results)
    try:
        run = find_run(reader, wanted)
        row = find_cell(reader, run.id, cell)
        before = answer_at(reader, row.address, row.take)
    finally:
        reader.close()
    experiment = project.experiment(run.experiment)
    task = _task_of(project, experiment, row)
    if request_for(task).address != row.address:
        raise UsageError(
            f"{row.case_id}@{row.model} is no longer what it was in {run.id}",
            hint="the prompt, case or model changed since; start a new run",
        )
    tried = _tried(state, project, experiment, task, newer_than=formatting.stamp(formatting.now()))
    if terminal.json:
        old: dict[str, Any] = {"take": row.take, "composite": row.composite, "passed": row.passed}
        old["text"] = before.completion.text if before else None
        terminal.document({"cell": row.id[:12], "before": old, **_document(task, tried)})
        return
    if before is not None:
        terminal.result(Ink(f"--- take {row.take}", bold=True))
        _text(terminal, before.completion.text)
        _verdicts(terminal, row.parts, row.composite, row.passed)
    _show(terminal, task, tried)


def _tried(
    state: State, project: Project, experiment: Experiment, task: Task, *, newer_than: str
) -> Tried:
    require_editor(project, "try")
    models = needs.missing_for_models([task.configuration.model])
    needs.refuse([*needs.missing(project, experiment, calls=needs.GRADING), *models])
    try:
        return try_once(
            project,
            task,
            experiment,
            tools_for(project, offline=state.offline),
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


def _task_of(project: Project, experiment: Experiment, row: CellRow) -> Task:
    prompts = [prompt for prompt in experiment.prompts if prompt.id == row.prompt]
    if not prompts:
        raise UsageError(f"{experiment.id} no longer uses {row.prompt}", hint="start a new run")
    configuration = configuration_named(experiment, prompts[0], row.model)
    assert configuration is not None  # it has a name
    return Task(prompts[0], configuration, case_named(project, experiment, row.case_id), row.draw)


def _document(task: Task, tried: Tried) -> dict[str, Any]:
    completion, grade = tried.paid.completion, tried.grade
    return {
        "prompt": task.prompt.id,
        "model": task.configuration.name,
        "simulated": task.configuration.model.simulated,
        "case": task.case.id,
        "take": tried.paid.take,
        "reused": not tried.paid.bought,
        "text": completion.text,
        "tool_calls": completion.tool_calls,
        "finish_reason": completion.finish_reason,
        "status": grade.status,
        "reason": grade.reason,
        "composite": grade.composite,
        "passed": grade.passed,
        "parts": [
            {
                "name": part.name,
                "kind": part.kind,
                "score": part.score,
                "passed": part.passed,
                "status": part.status,
                "reason": part.reason,
            }
            for part in grade.parts
        ],
        "tokens": {"in": completion.tokens_in, "out": completion.tokens_out},
        "latency_ms": completion.latency_ms,
        "cost_microusd": tried.paid.cost_microusd,
        "served_model": completion.served_model,
    }


def _show(terminal: Terminal, task: Task, tried: Tried) -> None:
    completion, model = tried.paid.completion, task.configuration.model
    mark = (Ink("  simulated", ODD),) if model.simulated else ()
    title = f"--- {task.configuration.name}, case {task.case.id}, take {tried.paid.take}"
    terminal.result(Ink(title, bold=True), *mark)
    _text(terminal, completion.text)
    if tried.grade.reason:
        terminal.result(Ink(tried.grade.status, BAD), f": {tried.grade.reason}")
    _verdicts(terminal, tried.grade.parts, tried.grade.composite, tried.grade.passed)
    source = "bought" if tried.paid.bought else "stored within the hour, not bought again"
    terminal.note(
        f"{dollars(tried.paid.cost_microusd)}, {completion.tokens_in or 0:,} tokens in, "
        f"{completion.tokens_out or 0:,} out, {completion.latency_ms:,} ms, "
        f"{completion.finish_reason}; {source}"
    )


def _text(terminal: Terminal, text: str) -> None:
    for line in redacted(text).split("\n"):
        terminal.result(line)


def _verdicts(
    terminal: Terminal, parts: tuple[Part, ...], composite: float | None, passed: bool | None
) -> None:
    if parts:
        terminal.result(Ink("--- grade", bold=True))
    rows = [
        (
            _word(part),
            f"{part.kind} {part.name}",
            score(part.score),
            part.reason,
        )
        for part in parts
    ]
    for row, part in zip(aligned(rows, right=frozenset({2})) if rows else (), parts, strict=True):
        color = {True: GOOD, False: BAD, None: ODD}[part.passed]
        terminal.result(Ink(row, color if part.kind != "criterion" else None))
    if composite is not None:
        terminal.result(f"score {fixed(100 * composite, 1)}, {_WORDS[passed]}")


def _word(part: Part) -> str:
    """Return pass or fail, and nothing for what cannot fail."""
    if part.status != "ok":
        return part.status
    return "" if part.kind == "criterion" and part.passed else _WORDS[part.passed]
