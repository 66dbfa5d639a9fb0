"""Forecast of reuse: the calls of a planned run whose answers are stored already.

A plan is made without reading results; here it is compared with them. An answer counts if its
request hash is the one that the run would send; a judgment counts if the judge would be sent the
same request.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING

from edison_ci import utc
from edison_ci.checks.output import parse_output
from edison_ci.config.cases import STATIC
from edison_ci.execute import pairwise as execute_pairwise
from edison_ci.execute.tasks import Task, request_for
from edison_ci.judges.panel import ExperimentJudges, pairwise_judge
from edison_ci.judges.pointwise import Pointwise
from edison_ci.providers import openai_endpoints
from edison_ci.store.answers import newest_answer, newest_time
from edison_ci.store.database import open_reader
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Configuration
    from edison_ci.plan.estimate import Load
    from edison_ci.plan.plan import Plan
    from edison_ci.records import Case, Completion, Request

EVERY_CASE_UP_TO = 5_000
_THEN_EVERY = 100
_Found = Counter[tuple[str, str]]


def with_reuse(plan: Plan, project: Project, experiment: Experiment) -> Plan:
    """Return the plan without the calls whose answers are stored."""
    path = project.root / project.file.results
    if not path.exists() or plan.iterations.high > 1:
        return plan
    with contextlib.closing(open_reader(path)) as reader:
        reused_calls = _Lookup(project, experiment, reader).reused(plan.cases)
    loads = [_less(load, reused_calls[load.phase, load.name]) for load in plan.loads]
    reused = sum(
        before.calls - after.calls for before, after in zip(plan.loads, loads, strict=True)
    )
    reasons = [*plan.reasons, _reason(reused, project)]
    return dataclasses.replace(plan, loads=loads, reused=reused, reasons=reasons)


def _reason(reused: int, project: Project) -> str:
    days = project.file.settings.reuse_days
    if reused:
        calls = "1 call is" if reused == 1 else f"{reused:,} calls are"
        return f"{calls} answered by stored answers of the last {days} days"
    return f"no stored answer of the last {days} days fits these prompts, models and cases"


def _less(load: Load, reused: int) -> Load:
    if not load.once_calls or not reused:
        return load
    left = max(load.once_calls - reused, 0)
    share = left / load.once_calls
    return dataclasses.replace(
        load,
        once_calls=left,
        once_in=load.once_in.times(share),
        once_out=load.once_out.times(share),
    )


class _Lookup:
    """Counts the requests of a run that have a stored answer."""

    def __init__(
        self, project: Project, experiment: Experiment, reader: sqlite3.Connection
    ) -> None:
        self._project, self._experiment, self._reader = project, experiment, reader
        age = dt.timedelta(days=project.file.settings.reuse_days)
        self._since = utc.timestamp(utc.now() - age)
        self._judging = ExperimentJudges.of(project, experiment, _no_calls)
        self._pairwise = pairwise_judge(project, experiment)
        self._embedders = experiment.embedders()
        self._references: set[tuple[str, str]] = set()

    def reused(self, cases: int) -> _Found:
        """Return how many calls have a stored answer, by phase and model.

        Of more than `EVERY_CASE_UP_TO` cases a sample is counted, and scaled up.
        """
        calls: _Found = Counter()
        counted = 0
        for number, case in enumerate(self._cases()):
            if number < EVERY_CASE_UP_TO or number % _THEN_EVERY == 0:
                counted += 1
                self._count_case(case, calls)
        if counted and counted < cases:
            return Counter({key: round(count * cases / counted) for key, count in calls.items()})
        return calls

    def _cases(self) -> Iterator[Case]:
        if self._experiment.file.data:
            yield from self._project.cases(self._experiment)
        else:
            yield STATIC

    def _count_case(self, case: Case, calls: _Found) -> None:
        for by, references in self._embedders.items():
            for reference in references:
                with contextlib.suppress(MissingValueError, RenderError):
                    text = reference.render(case.variables)
                    # A reference that cases share is planned once.
                    if (by, text) not in self._references:
                        self._references.add((by, text))
                        self._count_embedding(by, text, calls)
        for prompt in self._experiment.prompts:
            listed = self._experiment.configurations(prompt)
            for repeat in range(self._experiment.file.repeats):
                texts = {}
                for configuration in listed:
                    answer = self._count_answer(Task(prompt, configuration, case, repeat), calls)
                    if answer is not None:
                        texts[configuration.name] = answer
                self._count_pairs(case, listed, texts, calls)

    def _count_answer(self, task: Task, calls: _Found) -> str | None:
        """Count the stored answer to a cell; return its text unless it is malformed."""
        try:
            request = request_for(task)
        except (MissingValueError, RenderError):
            return None
        stored = newest_answer(self._reader, request.request_hash, since=self._since)
        if stored is None:
            return None
        calls["generate", task.configuration.name] += 1
        output = parse_output(stored.completion.text, task.prompt.expect)
        if output.malformed:
            return None
        self._count_judgments(task.case, output.text, calls)
        for by in self._embedders:
            self._count_embedding(by, output.text, calls)
        return output.text

    def _count_embedding(self, by: str, text: str, calls: _Found) -> None:
        request = openai_endpoints.embedding_request(self._project.models[by], text)
        calls["embed", by] += self._is_stored(request)

    def _count_pairs(
        self, case: Case, listed: Sequence[Configuration], texts: Mapping[str, str], calls: _Found
    ) -> None:
        judge, pairwise = self._pairwise, self._experiment.file.judges.pairwise
        if judge is None or pairwise is None:
            return
        for later, earlier in execute_pairwise.model_pairs(listed, all_pairs=pairwise.all_pairs):
            a, b = texts.get(later.name), texts.get(earlier.name)
            if a is None or b is None:
                continue
            # Equal answers are a tie without a call.
            asked = [judge.request(case, a, b), judge.request(case, b, a)]
            count = sum(a == b or self._is_stored(request) for request in asked)
            calls["pairwise", judge.judge.name] += count

    def _count_judgments(self, case: Case, text: str, calls: _Found) -> None:
        if self._judging is None:
            return
        panel = self._judging.panel
        for judge in panel.judges if panel is not None else ():
            if isinstance(judge, Pointwise):  # judges of other packages make no calls
                calls["judge", judge.name] += self._is_stored(judge.request(case, text))
        for entry in self._judging.graders:
            with contextlib.suppress(MissingValueError, RenderError):
                request = entry.grader.request(case, text)
                calls["grade", entry.grader.judge.name] += self._is_stored(request)

    def _is_stored(self, request: Request) -> bool:
        time = newest_time(self._reader, request.request_hash)
        return time is not None and time >= self._since


async def _no_calls(name: str, request: Request) -> Completion:
    raise AssertionError(f"{name} was called while planning")
