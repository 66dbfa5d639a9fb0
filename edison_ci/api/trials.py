"""Single requests: one case sent and graded, a stored cell asked again, or a request rendered."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api import case_edits, counterexamples
from edison_ci.api import sessions as run_sessions
from edison_ci.config import expected_form, requirements, tokens
from edison_ci.contracts import CallError
from edison_ci.documents.record_json import Document, as_document, fields_of
from edison_ci.errors import CallFailed, Location, Problem, Severity, UsageError
from edison_ci.execute import standalone, tasks
from edison_ci.plan import selection, versions
from edison_ci.results import stored_runs
from edison_ci.store import answers, cells, runs
from edison_ci.templating import templates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Configuration
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Case, Json, Message
    from edison_ci.store.answers import CachedAnswer
    from edison_ci.store.cells import CellRow
    from edison_ci.store.runs import RunModels

_REUSE = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class CaseChoice:
    """Which case is sent to which model, and what is changed in it."""

    case_id: str | None = None
    """The first by default."""
    model: str | None = None
    """Of the experiment or of models.yaml; by default the first."""
    values: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    """Of inputs, in place of those of the case."""
    expected: str | None = None


class Trial(NamedTuple):
    """A request with its answer and grade."""

    project: Project
    task: tasks.Task
    tried: standalone.TrialAnswer

    @property
    def models(self) -> RunModels:
        """Which models answered and judged, and whether each is simulated."""
        model, configured = self.task.configuration.model, self.project.models
        names = [judgment.model for judgment in self.tried.grade.judgments]
        judges = {name: configured[name].simulated for name in names if name in configured}
        return {
            runs.ANSWERS: {model.name: model.simulated},
            **({runs.JUDGES: judges} if judges else {}),
        }

    @property
    def simulation(self) -> str:
        """Which parts are simulated, as a label; empty if none is."""
        return runs.simulation_label(self.models)

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        answer, grade, task = self.tried.answer, self.tried.grade, self.task
        completion = answer.completion
        parts = [part for part, models in self.models.items() if any(models.values())]
        return {
            "prompt": task.prompt.id,
            "model": task.configuration.name,
            "simulated": bool(parts),
            "simulated_parts": parts,
            "case": task.case.id,
            "answer_no": answer.answer_no,
            "reused": not answer.bought,
            **fields_of(completion, "text", "tool_calls", "finish_reason"),
            **fields_of(grade, "status", "reason", "composite", "passed"),
            "components": [
                fields_of(component, "name", "kind", "score", "passed", "status", "reason")
                for component in grade.components
            ],
            "tokens": {"in": completion.tokens_in, "out": completion.tokens_out},
            "cost_microusd": answer.cost_microusd,
            **fields_of(completion, "latency_ms", "served_model"),
        }


class SavedCase(NamedTuple):
    """A case that was added to a dataset."""

    case: str
    path: str


def chosen_task(
    project: Project, home: Experiment | None, prompt: Prompt, choice: CaseChoice
) -> tuple[Experiment, tasks.Task]:
    """Return the request for a changed case, and its experiment; raises UsageError."""
    if home is None or prompt.header.type == "grader":
        raise UsageError(
            f"no experiment uses {prompt.path} as a prompt",
            hint="add it to prompts: of an experiment",
        )
    home = _with_model(project, home, choice.model)
    configuration = selection.find_configuration(home, prompt, choice.model)
    assert configuration is not None  # an experiment has at least one model
    case = selection.find_case(project, home, choice.case_id)
    inputs = {**case.inputs, **choice.values}
    expected = case.expected if choice.expected is None else choice.expected
    changed = dataclasses.replace(case, inputs=inputs, expected=expected)
    return home, tasks.Task(prompt, configuration, changed, 0)


def save_case(project: Project, experiment: Experiment, changed: Case) -> SavedCase:
    """Add a changed case to the dataset of the original."""
    texts = {name: case_edits.as_entered(value) for name, value in changed.inputs.items()}
    expected = case_edits.as_entered(changed.expected)
    origin = counterexamples.origin_of(project, experiment, changed.id)
    entry = counterexamples.CaseEntry(texts, expected, tags=())
    saved = counterexamples.extended(origin, entry)
    case_edits.write_edited(project, saved.edited, "add case", {"case": saved.case})
    return SavedCase(saved.case, origin.entry.path)


def try_case(
    project: Project, experiment: Experiment, task: tasks.Task, *, fresh: bool, offline: bool
) -> Trial:
    """Send a request and grade its answer; a stored answer of the last hour is used if not `fresh`.

    Raises UsageError if it cannot be rendered, and CallFailed without an answer.
    """
    newer_than = utc.timestamp(utc.now() - (dt.timedelta() if fresh else _REUSE))
    run_sessions.require_editor(project, "try")
    models = requirements.missing_for_models([task.configuration.model])
    requirements.refuse(
        [*requirements.missing(project, experiment, calls=requirements.GRADING), *models]
    )
    context = run_sessions.run_context(project, offline=offline)
    try:
        tried = standalone.try_once(project, task, experiment, context, newer_than=newer_than)
    except (templates.MissingValueError, templates.RenderError) as error:
        raise UsageError(
            f"case {task.case.id!r} cannot be rendered: {error}", hint=f"see {task.prompt.path}"
        ) from None
    except CallError as error:
        raise CallFailed(str(error), hint="see: edison models test") from None
    except standalone.NotAnswered as error:
        raise CallFailed(str(error)) from None
    return Trial(project, task, tried)


class Rerun(NamedTuple):
    """A stored cell, and a further answer to its request."""

    row: CellRow
    before: CachedAnswer | None
    trial: Trial

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        before = fields_of(self.row, "answer_no", "composite", "passed")
        before["text"] = self.before.completion.text if self.before is not None else None
        return {"cell": self.row.id[:12], "before": before, **self.trial.as_json()}


def rerun_cell(project: Project, run_id: str, cell: str, *, offline: bool) -> Rerun:
    """Request another answer for a cell of a run, and store it as a further answer."""
    with stored_runs.open_runs(project) as stored:
        run = stored.find(run_id)
        row = cells.find_cell(stored.connection, run.id, cell)
        before = answers.answer_at(stored.connection, row.request_hash, row.answer_no)
    experiment = project.experiment(run.experiment)
    task = standalone.task_of_cell(project, experiment, row)
    trial = try_case(project, experiment, task, fresh=True, offline=offline)
    site = sites.Site(project.root, project.file)
    entry = site.entry(site.actor(), "rerun", f"cell {row.id[:12]}")
    site.note(dataclasses.replace(entry, run_id=run.id))
    return Rerun(row, before, trial)


def _with_model(project: Project, experiment: Experiment, name: str | None) -> Experiment:
    """Return the experiment with a model of models.yaml that it does not list."""
    return selection.Selection(models=(name,)).widen(project, experiment) if name else experiment


def form_notes(prompt: Prompt) -> list[str]:
    """Return which form of answers was found in the text of a prompt, and what changes it."""
    notes = expected_form.notes_on(prompt.detected)
    return [f"{prompt.path}:{note.line}: {note.sentence}; {note.hint}" for note in notes]


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt rendered for one case."""

    prompt: Prompt
    label: str
    case: Case
    messages: tuple[Message, ...]
    configuration: Configuration | None
    counter: tokens.TokenCounter

    def as_json(self) -> Document:
        """Return it as a command prints it, without its warnings."""
        prompt, configuration, counter = self.prompt, self.configuration, self.counter
        counts = [counter.count(message.content) for message in self.messages]
        return {
            "prompt": {**fields_of(prompt, "id", "path", hash="version"), "label": self.label},
            "case": self.case.id,
            "model": configuration.name if configuration else None,
            "params": as_document(configuration.params) if configuration else {},
            **fields_of(prompt, "expect", "tools"),
            "messages": [
                {**fields_of(message, "role", "content"), "tokens": count}
                for message, count in zip(self.messages, counts, strict=True)
            ],
            "tokens": {"total": sum(counts), **fields_of(counter, "method", "exact")},
        }

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


def render_request(
    project: Project, home: Experiment | None, prompt: Prompt, choice: CaseChoice
) -> RenderedPrompt:
    """Return the exact request for one case; nothing is sent."""
    if home is not None:
        home = _with_model(project, home, choice.model)
    configuration = selection.find_configuration(home, prompt, choice.model)
    case = selection.find_case(project, home, choice.case_id)
    return RenderedPrompt(
        prompt=prompt,
        label=versions.label_of(prompt, project.root),
        case=case,
        messages=_messages(prompt, case, choice.values),
        configuration=configuration,
        counter=tokens.counter_for(configuration.model) if configuration else tokens.ESTIMATE,
    )


def _messages(prompt: Prompt, case: Case, changes: Mapping[str, Json]) -> tuple[Message, ...]:
    graded = {"expected": case.expected} if prompt.header.type == "grader" else {}
    values = {**case.inputs, **graded, **changes}
    try:
        return prompt.render(values)
    except templates.MissingValueError as error:
        names = ", ".join(sorted(values)) or "none"
        raise UsageError(
            f"{error.name} is missing for case {case.id!r}",
            hint=f"variables given: {names}; set more with --set NAME=VALUE",
        ) from None
    except templates.RenderError as error:
        raise UsageError(
            f"case {case.id!r} cannot be rendered: {error}", hint=f"see {prompt.path}"
        ) from None
