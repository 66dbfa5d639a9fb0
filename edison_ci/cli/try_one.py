"""edison try and rerun: one request, with its answer and grade, or only shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edison_ci._dataclass import dataclass
from edison_ci.api import case_edits, trials
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, aligned, simulated_label
from edison_ci.cli.terminal import as_json as problem_json
from edison_ci.documents import marks, secrets, yaml_text
from edison_ci.errors import UsageError
from edison_ci.numeric import dollars, fixed, score
from edison_ci.plan import versions
from edison_ci.records import CellStatus
from edison_ci.results import stored_runs

if TYPE_CHECKING:
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Json
    from edison_ci.store.cells import Component

_WORDS = {True: "pass", False: "fail", None: "-"}


@dataclass(frozen=True, slots=True)
class TryRequest:
    """The prompt and the case to send, and what to change in the case."""

    prompt: str | None
    case_id: str | None
    experiment: str | None
    model: str | None
    no_cache: bool
    dry_run: bool
    variables: tuple[str, ...]
    input_file: Path | None
    expected: str | None
    save: bool


@click.command("try", cls=EdisonCommand)
@click.argument("prompt", required=False)
@click.option("--case", "case_id", metavar="ID", help="Id of the case; default: the first.")
@click.option("--experiment", metavar="NAME", help="Experiment with the cases and models.")
@click.option(
    "--model",
    metavar="NAME",
    help="Model, of the experiment or of models.yaml; default: the first.",
)
@click.option(
    "--no-cache", is_flag=True, help="Request a new answer even if one of the last hour is stored."
)
@click.option("--dry-run", is_flag=True, help="Show the exact request, and send nothing.")
@click.option(
    "--set",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of an input, in place of the case's; repeatable.",
)
@click.option(
    "--input",
    "input_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="JSON or YAML file with values of inputs.",
)
@click.option("--expected", metavar="TEXT", help="The answer that would be right.")
@click.option("--save", is_flag=True, help="Add it as a case to the dataset of the case.")
@click.pass_obj
@takes(TryRequest)
def try_one(state: CliState, request: TryRequest) -> None:
    """Send one case to a model and show the answer.

    Shows the answer with its checks, grade and cost. PROMPT is a path or an id; it may be left
    out if there is one. A stored answer of the last hour is used again.

    --set, --input and --expected replace values of the case, and --save adds the result as a new
    case to its dataset, before it is sent.

    --dry-run shows the messages that would be sent, with the number of tokens of each. A variable
    whose declared type is not a string takes JSON. Texts that look like keys are redacted.

    Examples:
      edison try
      edison try prompts/support-reply.md --case return-how --model small --no-cache
      edison try --set message="Where is my order?" --expected "2 days" --save
      edison try support-reply --dry-run --case return-green-blanket
      edison try support-reply --dry-run --set message="Where is my order?" --json
    """
    terminal = Terminal(state)
    project = lookup.refuse_texts_in_log(lookup.open_project(state))
    prompt = lookup.find_prompt(project, request.prompt, state.folder)
    if request.dry_run and request.save:
        raise UsageError("--dry-run saves nothing", hint="leave out --save, or --dry-run")
    home = lookup.experiment_of(project, prompt, request.experiment)
    values = _values(prompt, request)
    choice = trials.CaseChoice(request.case_id, request.model, values, request.expected)
    for note in trials.form_notes(prompt):
        terminal.note(note)
    if request.dry_run:
        _show_request(terminal, trials.render_request(project, home, prompt, choice))
        return
    experiment, task = trials.chosen_task(project, home, prompt, choice)
    if request.save:
        saved = trials.save_case(project, experiment, task.case)
        terminal.note(f"added {saved.case} to {saved.path}")
    trial = trials.try_case(
        project, experiment, task, fresh=request.no_cache, offline=state.offline
    )
    if terminal.json:
        terminal.document(trial.as_json())
    else:
        _show(terminal, trial)


@click.command(cls=EdisonCommand)
@click.argument("name", required=False, metavar="[RUN]")
@click.option(
    "--cell", required=True, metavar="CELL", help="The cell: 12 hex digits, or CASE@MODEL#REPEAT."
)
@click.pass_obj
def rerun(state: CliState, name: str | None, cell: str) -> None:
    """Request another answer for one cell.

    Shows it next to the answer of the run. The results of the run do not change; the new answer is
    stored as a further answer.

    Examples:
      edison rerun --cell return-how@small#0
    """
    terminal = Terminal(state)
    project = lookup.refuse_texts_in_log(lookup.open_project(state))
    with stored_runs.open_runs(project) as runs:
        run = lookup.find_run_or_newest(terminal, runs, name)
    rerun = trials.rerun_cell(project, run.id, cell, offline=state.offline)
    if terminal.json:
        terminal.document(rerun.as_json())
        return
    row, before = rerun.row, rerun.before
    if before is not None:
        terminal.result(StyledText(f"--- answer {row.answer_no}", bold=True))
        _text(terminal, before.completion.text)
        _verdicts(terminal, row.components, row.composite, row.passed)
    _show(terminal, rerun.trial)


def _values(prompt: Prompt, request: TryRequest) -> dict[str, Json]:
    """Return the values of --input and --set, which wins."""
    path = request.input_file
    values: dict[str, Json] = {}
    if path is not None:
        try:
            value = yaml_text.read_yaml(path.read_bytes(), str(path)).value  # JSON is YAML
        except marks.Fault as fault:
            raise UsageError(f"{path}: {fault.message}", hint=fault.hint) from None
        if not isinstance(value, dict):
            raise UsageError(f"{path} has no names with values", hint="write {name: value}")
        texts = (f"{name}={case_edits.as_entered(entry)}" for name, entry in value.items())
        values = lookup.parse_variables(prompt, tuple(texts))
    return {**values, **lookup.parse_variables(prompt, request.variables)}


def _show(terminal: Terminal, trial: trials.Trial) -> None:
    task, tried = trial.task, trial.tried
    completion = tried.answer.completion
    mark = simulated_label(trial.simulation)
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
    for line in secrets.redacted(text).split("\n"):
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


def _show_request(terminal: Terminal, rendered: trials.RenderedPrompt) -> None:
    terminal.warnings(rendered.warnings())
    if terminal.json:
        warnings = [problem_json(warning) for warning in rendered.warnings()]
        terminal.document({**rendered.as_json(), "warnings": warnings})
        return
    prompt, configuration, counter = rendered.prompt, rendered.configuration, rendered.counter
    hashed = versions.short(prompt.version)
    terminal.note(f"{prompt.id} {rendered.label} ({hashed}), case {rendered.case.id}")
    if configuration is not None:
        sent = ", ".join(f"{k}={v}" for k, v in configuration.params.items())
        model = configuration.model
        terminal.note(f"{configuration.name}: {model.provider}/{model.model} ({sent})")
    mark = "" if counter.exact else "~"
    total = 0
    for message in rendered.messages:
        count = counter.count(message.content)
        total += count
        terminal.result(StyledText(f"--- {message.role} ({mark}{count:,} tokens)", bold=True))
        for line in secrets.redacted(message.content).split("\n"):
            terminal.result(line)
    terminal.note(f"{mark}{total:,} tokens ({counter.method})")
    if any(secrets.redacted(message.content) != message.content for message in rendered.messages):
        terminal.note("texts that look like keys are redacted here; a model would get them in full")
