"""Answers that are graded without asking a model: those of a stored run, or of a file.

A stored run is graded again with today's files: checks, rubric, judges and gates. A cell whose
prompt, model or input has changed would need another answer: it is left out and counted. The result
is a new run, so that earlier decisions stay as they are.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.config.model_entry import Limits
from edison_ci.config.models import Model
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.errors import Location, UsageError
from edison_ci.execute.run_options import options_of
from edison_ci.execute.tasks import id_of_cell, request_for
from edison_ci.plan.plan import without_generating
from edison_ci.providers.budget import StoredAnswer, store_unpaid
from edison_ci.providers.replay import MissingRecording
from edison_ci.records import CellStatus, Side
from edison_ci.store.answers import answer_at, has_foreign_answers
from edison_ci.store.cells import CellState, cell_state, count_cells, count_repeats
from edison_ci.store.runs import ANSWERS, OUTPUTS, find_run
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.run_options import RunOptions
    from edison_ci.execute.tasks import Task
    from edison_ci.plan.plan import Plan
    from edison_ci.providers.client import BudgetUsage
    from edison_ci.records import Json, Request
    from edison_ci.store.answers import Settlement
    from edison_ci.store.runs import NewRun, Run

_NAMED = 10


@dataclass(slots=True)
class GradableCells:
    """Which cells of a run can be graded again."""

    cells: int = 0
    skipped: int = 0
    """Cells that could not be asked, then as now."""
    changed: int = 0
    """Cells whose prompt, model or input is no longer what it was."""
    gone: int = 0
    """Cells of a prompt, model or case that is no longer there."""
    missing: int = 0
    """Cells that the files have and the run has not."""
    planned: Counter[tuple[Side, str]] = field(default_factory=Counter)
    """Cells of the new run, by side and configuration."""
    examples: list[str] = field(default_factory=list)
    """The first cells that changed, as CASE@MODEL#REPEAT."""

    @property
    def left_out(self) -> int:
        """Cells of the run that the new one does not have."""
        return self.changed + self.gone

    def as_json(self) -> dict[str, object]:
        """Return how many cells were left out, and why."""
        return {
            "changed": self.changed,
            "gone": self.gone,
            "missing": self.missing,
            "cells": self.examples,
        }


class StoredAnswers:
    """The answers of a run, in place of the models that gave them."""

    def __init__(self, reader: sqlite3.Connection, run_id: str) -> None:
        self._reader, self.run = reader, find_run(reader, run_id)
        self.gradable = GradableCells()

    def survey(self, tasks: Iterable[Task]) -> None:
        """Count the cells that can be graded again; raises UsageError if there are none."""
        gradable = self.gradable = GradableCells()
        seen = 0
        for task in tasks:
            cell = self._cell(task)
            if cell is None:
                gradable.missing += 1
                continue
            seen += 1
            if not self._same(task, cell):
                gradable.changed += 1
                if len(gradable.examples) < _NAMED:
                    gradable.examples.append(cell_name(task))
                continue
            gradable.planned[task.side, task.configuration.name] += 1
            if cell.status is CellStatus.SKIPPED:
                gradable.skipped += 1
            else:
                gradable.cells += 1
        gradable.gone = count_cells(self._reader, self.run.id) - seen
        if not gradable.cells:
            raise UsageError(
                f"no cell of run {self.run.id} can be graded again: its prompts, models or cases "
                "have changed",
                hint="start a new run: edison run",
            )

    def plan(self, project: Project, plan: Plan) -> Plan:
        """Return the plan of grading only."""
        judging = without_generating(project, plan)
        gradable = self.gradable
        return dataclasses.replace(judging, cells=gradable.cells, skipped=gradable.skipped)

    def mark(self, new: NewRun) -> NewRun:
        """Return the new run, simulated if its answers are, and partial if some are left out."""
        return dataclasses.replace(
            new,
            simulated=new.simulated or ANSWERS in self.run.simulated_parts,
            models={
                **{part: models for part, models in self.run.models.items() if part == ANSWERS},
                **new.models,
            },
            partial=new.partial or self.run.partial or self.gradable.left_out > 0,
        )

    def has(self, task: Task) -> bool:
        """Whether a cell can be graded again."""
        cell = self._cell(task)
        return cell is not None and self._same(task, cell)

    async def answer(self, task: Task, request: Request, usage: BudgetUsage) -> StoredAnswer:
        """Return the answer that the run has; raises CallError if it has none."""
        cell = self._cell(task)
        assert cell is not None  # others are left out
        # An input that was blocked was never sent, so there is nothing to grade now either.
        unsent = (CellStatus.SKIPPED, CellStatus.BLOCKED)
        if cell.answer_no is None and cell.status in unsent:
            raise MissingRecording(request.request_hash)
        where = f"{cell_name(task)} of run {self.run.id}"
        if cell.answer_no is None:
            kind = ErrorKind(cell.error) if cell.error else ErrorKind.BAD_RESPONSE
            raise CallError(kind, f"{where} has no answer: {cell.reason}", charged=False)
        stored = answer_at(self._reader, cell.request_hash, cell.answer_no)
        if stored is None:
            message = f"the text of {where} is no longer stored"
            raise CallError(ErrorKind.BAD_RESPONSE, message, charged=False)
        answer = StoredAnswer(stored.completion, stored.answer_no, False, stored.cost_microusd)
        usage.add(answer)
        return answer

    def _cell(self, task: Task) -> CellState | None:
        return cell_state(self._reader, id_of_cell(self.run.id, task))

    def _same(self, task: Task, cell: CellState) -> bool:
        try:
            return request_for(task).request_hash == cell.request_hash
        except (MissingValueError, RenderError):
            return cell.request_hash == ""


def cell_name(task: Task) -> str:
    """Return the name of a cell, CASE@MODEL#REPEAT."""
    return f"{task.case.id}@{task.configuration.name}#{task.repeat}"


def regrade_options(reader: sqlite3.Connection, run: Run, experiment: Experiment) -> RunOptions:
    """Return the options with which the cells of a run are graded again."""
    options = options_of(run)
    repeats = count_repeats(reader, run.id)
    listed = {name for entry in experiment.models for name in (entry[0], entry[1].name)}
    models = tuple(name for name in options.selection.models if name in listed)
    selection = dataclasses.replace(options.selection, models=models, repeats=repeats)
    # Imported answers stay imported, however often they are graded.
    trigger = OUTPUTS if has_foreign_answers(reader, run.id) else "regrade"
    return dataclasses.replace(options, trigger=trigger, selection=selection, regrade=run.id)


Answers: TypeAlias = "Mapping[tuple[str, str, str, int], Settlement]"
"""Answers by prompt, model, case and repeat."""


@dataclass(frozen=True, slots=True)
class ImportedAnswers:
    """The answers of a file, in place of the models that would give them."""

    answers: Answers

    def plan(self, project: Project, plan: Plan) -> Plan:
        """Return the plan of grading only; cells without an answer are skipped."""
        judging, total = without_generating(project, plan), plan.cells + plan.skipped
        cells = len(self.answers)
        return dataclasses.replace(judging, cells=cells, skipped=total - cells)

    async def answer(self, task: Task, request: Request, clients: ClientPool) -> StoredAnswer:
        """Store and return the answer of a cell; raises MissingRecording if it has none."""
        model = task.configuration.name
        settlement = self.answers.get((task.prompt.id, model, task.case.id, task.repeat))
        if settlement is None:
            raise MissingRecording(request.request_hash, "no answer was imported for this cell")
        stored = await store_unpaid(
            clients.budget, request, task.configuration.model.name, settlement
        )
        clients.usage.add(stored)
        return stored


def imported_variant(
    project: Project, experiment: Experiment, models: Sequence[str], prompts: Sequence[str]
) -> Experiment:
    """Return the experiment with only these prompts and models, also models that it has not."""
    listed = {name: (name, model, params) for name, model, params in experiment.models}
    chosen = [listed.get(name) or (name, _model(project, name), {}) for name in models]
    return dataclasses.replace(
        experiment,
        models=tuple(chosen),
        prompts=tuple(prompt for prompt in experiment.prompts if prompt.id in prompts),
    )


def _model(project: Project, name: str) -> Model:
    """Return a model of the registry, or one that is known by its name only and never called."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("base_url", "base_url_env", "price", "store"), None
    ) | {"keys": {}, "options": {}, "params": {}, "fallback": ()}
    return project.models.get(name) or Model(
        name=name,
        provider="replay",
        model=name,
        limits=Limits.model_construct(),
        where=Location(project.file.paths.models),
        **nothing,
    )


@dataclass(slots=True)
class OutputFile:
    """The answers of a file."""

    name: str
    sha256: str
    answers: dict[tuple[str, str, str, int], Settlement] = field(default_factory=dict)
    """By prompt, model, case and repeat."""
    without_cost: int = 0
    without_latency: int = 0

    @property
    def models(self) -> list[str]:
        """The models that have answers."""
        return list(dict.fromkeys(model for _, model, _, _ in self.answers))

    @property
    def prompts(self) -> list[str]:
        """The prompts that have answers."""
        return list(dict.fromkeys(prompt for prompt, _, _, _ in self.answers))

    @property
    def repeats(self) -> int:
        """The number of repeats, by the highest."""
        return 1 + max(repeat for _, _, _, repeat in self.answers)

    def origin(self) -> dict[str, Json]:
        """Return where the answers come from, as it is stored with the run."""
        return {
            "file": self.name,
            "sha256": self.sha256,
            "answers": len(self.answers),
            "without_cost": self.without_cost,
            "without_latency": self.without_latency,
            "models": list(self.models),
            "prompts": list(self.prompts),
        }
