"""edison try and rerun: one request, with its answer and grade, or only shown."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api import case_edits, counterexamples
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, aligned, simulated_label
from edison_ci.cli.terminal import as_json as problem_json
from edison_ci.config import requirements, tokens
from edison_ci.contracts import CallError
from edison_ci.documents import marks, secrets, yaml_text
from edison_ci.errors import CallFailed, Location, Problem, Severity, UsageError
from edison_ci.execute import runner, standalone
from edison_ci.numeric import dollars, fixed, score
from edison_ci.plan import selection, versions
from edison_ci.records import CellStatus
from edison_ci.store import answers, cells, database, runs
from edison_ci.templating import templates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Configuration
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Case, Json, Message
    from edison_ci.store.cells import Component
    from edison_ci.store.runs import RunModels

_REUSE = dt.timedelta(hours=1)
_WORDS = {True: "pass", False: "fail", None: "-"}


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
def try_one(state: CliState, /, prompt: str | None, **options: Any) -> None:
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
    found = lookup.find_prompt(project, prompt, state.folder)
    if options["dry_run"]:
        if options["save"]:
            raise UsageError("--dry-run saves nothing", hint="leave out --save, or --dry-run")
        _preview(terminal, project, found, options)
        return
    home = lookup.experiment_of(project, found, options["experiment"])
    if home is None or found.header.type == "grader":
        raise UsageError(
            f"no experiment uses {found.path} as a prompt",
            hint="add it to prompts: of an experiment",
        )
    home = _with_model(project, home, options["model"])
    configuration = selection.find_configuration(home, found, options["model"])
    assert configuration is not None  # an experiment has at least one model
    case = selection.find_case(project, home, options["case_id"])
    given = _given(found, options)
    changed = _changed_case(case, given, options["expected"])
    if options["save"]:
        _save(terminal, project, home, case, changed)
    task = runner.Task(found, configuration, changed, 0)
    age = dt.timedelta() if options["no_cache"] else _REUSE
    tried = _try_task(state, project, home, task, newer_than=utc.timestamp(utc.now() - age))
    if terminal.json:
        terminal.document(_document(project, task, tried))
    else:
        _show(terminal, project, task, tried)


@click.command(cls=EdisonCommand)
@click.argument("wanted", required=False, metavar="[RUN]")
@click.option(
    "--cell", required=True, metavar="CELL", help="The cell: 12 hex digits, or CASE@MODEL#REPEAT."
)
@click.pass_obj
def rerun(state: CliState, wanted: str | None, cell: str) -> None:
    """Request another answer for one cell.

    Shows it next to the answer of the run. The results of the run do not change; the new answer is
    stored as a further answer.

    Examples:
      edison rerun --cell return-how@small#0
    """
    terminal = Terminal(state)
    project = lookup.refuse_texts_in_log(lookup.open_project(state))
    reader = database.open_reader(project.root / project.file.results)
    try:
        run = lookup.find_run_or_newest(terminal, reader, wanted)
        row = cells.find_cell(reader, run.id, cell)
        before = answers.answer_at(reader, row.request_hash, row.answer_no)
    finally:
        reader.close()
    experiment = project.experiment(run.experiment)
    task = standalone.task_of_cell(project, experiment, row)
    tried = _try_task(state, project, experiment, task, newer_than=utc.timestamp(utc.now()))
    site = sites.Site(project.root, project.file)
    entry = site.entry(site.actor(), "rerun", f"cell {row.id[:12]}")
    site.note(dataclasses.replace(entry, run_id=run.id))
    if terminal.json:
        old: dict[str, Any] = {
            "answer_no": row.answer_no,
            "composite": row.composite,
            "passed": row.passed,
        }
        old["text"] = before.completion.text if before else None
        terminal.document({"cell": row.id[:12], "before": old, **_document(project, task, tried)})
        return
    if before is not None:
        terminal.result(StyledText(f"--- answer {row.answer_no}", bold=True))
        _text(terminal, before.completion.text)
        _verdicts(terminal, row.components, row.composite, row.passed)
    _show(terminal, project, task, tried)


def _given(prompt: Prompt, options: Mapping[str, Any]) -> dict[str, Json]:
    """Return the values of --input and --set, which wins."""
    path: Path | None = options["input_file"]
    found: dict[str, Json] = {}
    if path is not None:
        try:
            value = yaml_text.read_yaml(path.read_bytes(), str(path)).value  # JSON is YAML
        except marks.Fault as fault:
            raise UsageError(f"{path}: {fault.message}", hint=fault.hint) from None
        if not isinstance(value, dict):
            raise UsageError(f"{path} has no names with values", hint="write {name: value}")
        texts = (f"{name}={case_edits.as_entered(each)}" for name, each in value.items())
        found = lookup.parse_variables(prompt, tuple(texts))
    return {**found, **lookup.parse_variables(prompt, options["variables"])}


def _changed_case(case: Case, given: Mapping[str, Json], expected: str | None) -> Case:
    inputs = {**case.inputs, **given}
    return dataclasses.replace(
        case, inputs=inputs, expected=case.expected if expected is None else expected
    )


def _save(
    terminal: Terminal, project: Project, experiment: Experiment, case: Case, changed: Case
) -> None:
    """Add a changed case to the dataset of the original."""
    texts = {name: case_edits.as_entered(value) for name, value in changed.inputs.items()}
    expected = case_edits.as_entered(changed.expected)
    origin = counterexamples.origin_of(project, experiment, case.id)
    saved = counterexamples.extended(origin, counterexamples.CaseEntry(texts, expected, tags=()))
    case_edits.write_edited(project, saved.edited, "add case", {"case": saved.case})
    terminal.note(f"added {saved.case} to {origin.entry.path}")


def _with_model(project: Project, experiment: Experiment, name: str | None) -> Experiment:
    """Return the experiment with a model of models.yaml that it does not list."""
    return selection.Selection(models=(name,)).widen(project, experiment) if name else experiment


def _try_task(
    state: CliState, project: Project, experiment: Experiment, task: runner.Task, *, newer_than: str
) -> standalone.TrialAnswer:
    run_sessions.require_editor(project, "try")
    models = requirements.missing_for_models([task.configuration.model])
    requirements.refuse(
        [*requirements.missing(project, experiment, calls=requirements.GRADING), *models]
    )
    try:
        return standalone.try_once(
            project,
            task,
            experiment,
            run_sessions.run_context(project, offline=state.offline),
            newer_than=newer_than,
        )
    except (templates.MissingValueError, templates.RenderError) as error:
        raise UsageError(
            f"case {task.case.id!r} cannot be rendered: {error}", hint=f"see {task.prompt.path}"
        ) from None
    except CallError as error:
        raise CallFailed(str(error), hint="see: edison models test") from None
    except standalone.NotAnswered as error:
        raise CallFailed(str(error)) from None


def _models(project: Project, task: runner.Task, tried: standalone.TrialAnswer) -> RunModels:
    """Return which models answered and judged, and whether each is simulated."""
    model = task.configuration.model
    judges = {
        one.model: project.models[one.model].simulated
        for one in tried.grade.judgments
        if one.model in project.models
    }
    return {
        runs.ANSWERS: {model.name: model.simulated},
        **({runs.JUDGES: judges} if judges else {}),
    }


def _document(project: Project, task: runner.Task, tried: standalone.TrialAnswer) -> dict[str, Any]:
    completion, grade = tried.answer.completion, tried.grade
    models = _models(project, task, tried)
    parts = [part for part, known in models.items() if any(known.values())]
    return {
        "prompt": task.prompt.id,
        "model": task.configuration.name,
        "simulated": bool(parts),
        "simulated_parts": parts,
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


def _show(
    terminal: Terminal, project: Project, task: runner.Task, tried: standalone.TrialAnswer
) -> None:
    completion = tried.answer.completion
    mark = simulated_label(runs.simulation_label(_models(project, task, tried)))
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


# --- --dry-run ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt rendered for one case."""

    prompt: Prompt
    label: str
    case: Case
    messages: tuple[Message, ...]
    configuration: Configuration | None
    counter: tokens.TokenCounter

    def warnings(self) -> list[Problem]:
        """Return a warning if it exceeds the context of the model."""
        if self.configuration is None:
            return []
        texts = [message.content for message in self.messages]
        excess = tokens.exceeded(self.configuration, self.prompt, texts)
        if excess is None:
            return []
        where = Location(self.prompt.path, self.prompt.sections[-1].line, 1)
        message = f"case {self.case.id!r} is {excess.text}"
        return [Problem(where, "context", message, excess.hint, Severity.WARNING)]


def _preview(
    terminal: Terminal, project: Project, found: Prompt, options: Mapping[str, Any]
) -> None:
    """Print the exact request for one case; nothing is sent."""
    home = lookup.experiment_of(project, found, options["experiment"])
    if home is not None:
        home = _with_model(project, home, options["model"])
    configuration = selection.find_configuration(home, found, options["model"])
    case = selection.find_case(project, home, options["case_id"])
    rendered = RenderedPrompt(
        prompt=found,
        label=versions.label_of(found, project.root),
        case=case,
        messages=_messages(found, case, _given(found, options)),
        configuration=configuration,
        counter=tokens.counter_for(configuration.model) if configuration else tokens.ESTIMATE,
    )
    terminal.warnings(rendered.warnings())
    if terminal.json:
        terminal.document(_request_document(rendered))
    else:
        _show_request(terminal, rendered)


def _messages(prompt: Prompt, case: Case, given: dict[str, Json]) -> tuple[Message, ...]:
    graded = {"expected": case.expected} if prompt.header.type == "grader" else {}
    values = {**case.inputs, **graded, **given}
    try:
        return prompt.render(values)
    except templates.MissingValueError as error:
        known = ", ".join(sorted(values)) or "none"
        raise UsageError(
            f"{error.name} is missing for case {case.id!r}",
            hint=f"variables given: {known}; set more with --set NAME=VALUE",
        ) from None
    except templates.RenderError as error:
        raise UsageError(
            f"case {case.id!r} cannot be rendered: {error}", hint=f"see {prompt.path}"
        ) from None


def _request_document(rendered: RenderedPrompt) -> dict[str, Any]:
    prompt, configuration, counter = rendered.prompt, rendered.configuration, rendered.counter
    counts = [counter.count(message.content) for message in rendered.messages]
    return {
        "prompt": {
            "id": prompt.id,
            "path": prompt.path,
            "hash": prompt.version,
            "label": rendered.label,
        },
        "case": rendered.case.id,
        "model": configuration.name if configuration else None,
        "params": dict(configuration.params) if configuration else {},
        "expect": prompt.expect,
        "messages": [
            {"role": m.role, "content": m.content, "tokens": n}
            for m, n in zip(rendered.messages, counts, strict=True)
        ],
        "tools": prompt.tools,
        "tokens": {"total": sum(counts), "method": counter.method, "exact": counter.exact},
        "warnings": [problem_json(warning) for warning in rendered.warnings()],
    }


def _show_request(terminal: Terminal, rendered: RenderedPrompt) -> None:
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
