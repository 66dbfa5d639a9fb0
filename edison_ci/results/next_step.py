"""The next step after a run: one table from its state to a sentence with the command to type.

The first row that holds decides. What failed comes before what was measured, and what was measured
before what could be tried: nobody should edit a prompt because a key was refused.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.config.experiment import AMOUNT_METRICS
from edison_ci.contracts import WHAT_TO_CHECK, ErrorKind
from edison_ci.git.repository import commit_names
from edison_ci.records import RunStatus, Verdict
from edison_ci.results import judges, scores
from edison_ci.results.snapshot import experiment_in
from edison_ci.store.runs import ANSWERS, JUDGES, events

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.results.decisions import GateRow
    from edison_ci.results.run_result import RunResult

SIMULATED = "Simulated answers say nothing about your task; add a real model"
"""What a run on simulated models cannot show."""
_BUDGET = "budget: "
_TO_CHANGE = frozenset(
    {
        ErrorKind.MODEL_NOT_FOUND,
        ErrorKind.BAD_REQUEST,
        ErrorKind.CONTEXT_LENGTH,
        ErrorKind.CONTENT_FILTER,
        ErrorKind.BAD_RESPONSE,
    }
)
"""Failures that go away with a change of a file, after which the plan of the run is another."""


class BudgetNeed(NamedTuple):
    """What the process that ran it knows of the budget that stopped a run."""

    sufficient: str = ""
    """The value with which it goes through, such as $0.12; empty if unknown."""
    narrower: str = ""
    """Another budget that would stop it before that."""


class _Failure(NamedTuple):
    """Why most calls without an answer had none."""

    kind: str
    models: tuple[str, ...]


class RunState:
    """What decides the next step after a run."""

    def __init__(self, result: RunResult, need: BudgetNeed) -> None:
        self.result, self.run, self.need = result, result.run, need

    @property
    def budget(self) -> str:
        """The budget that stopped it; empty if none did."""
        stopped = str(self.run.stopped_by)
        paused = self.run.status == RunStatus.PAUSED and stopped.startswith(_BUDGET)
        return stopped.removeprefix(_BUDGET) if paused else ""

    @property
    def stopped(self) -> bool:
        """Whether it waits to be continued."""
        return self.run.status in (RunStatus.PAUSED, RunStatus.FAILED)

    @cached_property
    def failure(self) -> _Failure | None:
        """The most frequent failure of the models that answer, if it decided how the run ended."""
        decided = self.run.status == RunStatus.FAILED or self.run.verdict in (
            Verdict.ERROR,
            Verdict.INCONCLUSIVE,
        )
        if not decided:
            return None
        cells = self.result.connection.execute(
            "select coalesce(error, ''), model, count(*) from cell where run_id = ? "
            "and status = 'error' group by 1, 2",
            (self.run.id,),
        ).fetchall()
        counts, models = Counter[str](), dict[str, list[str]]()
        for kind, model, count in [*cells, *self._closed()]:
            counts[kind] += count
            models.setdefault(kind, []).append(model)
        if not counts:
            return None
        kind = max(sorted(counts), key=lambda name: counts[name])
        return _Failure(kind, tuple(dict.fromkeys(sorted(models[kind]))))

    def _closed(self) -> list[tuple[str, str, int]]:
        """Return the failures of models that were given up before their cells were in error."""
        if self.run.status != RunStatus.FAILED:
            return []
        answering = self.run.models.get(ANSWERS, {})
        return [
            (reason.partition(":")[0], model, 1)
            for model, reason in self._given_up
            if model in answering
        ]

    @cached_property
    def _given_up(self) -> list[tuple[str, str]]:
        """The models that got no more calls, or what stopped the run, and why."""
        return [
            (str(event.data.get("model")), str(event.data.get("message")))
            for event in events(self.result.connection, self.run.id)
            if event.type == "error"
        ]

    @cached_property
    def judge(self) -> str:
        """The judge that gave no score, because of which the run failed; empty if they did."""
        if self.run.status != RunStatus.FAILED or self.failure is not None:
            return ""
        named = [*judges.silent_judges(self.result.connection, self.run.id)]
        named += [name.partition(" (")[0] for name, _ in self._given_up]
        judging = [*self.run.models.get(JUDGES, {})]
        if judges.no_judge_answered(self.result.connection, self.run.id):
            named += judging[:1]
        return next((name for name in named if name in judging), "")

    @cached_property
    def ungraded(self) -> str:
        """The component because of which no answer has a grade; empty if one has."""
        if self.run.status != RunStatus.FAILED:
            return ""
        return scores.why_nothing_is_graded(self.result.connection, self.run.id).partition(":")[0]

    @cached_property
    def failing(self) -> int:
        """How many cases fail."""
        triage = self.result.triage(most=0)
        return 0 if triage is None else triage.failing

    @property
    def compared(self) -> bool:
        """Whether it was compared with a base."""
        return self.run.base_commit is not None

    @cached_property
    def open_gates(self) -> tuple[GateRow, ...]:
        """The gates without a decision."""
        return tuple(row for row in self.result.gates if row.verdict == Verdict.INCONCLUSIVE)

    @property
    def resources_fail(self) -> bool:
        """Whether only gates on cost, time or size fail."""
        failed = [row.metric for row in self.result.gates if row.verdict == Verdict.FAIL]
        return bool(failed) and all(metric in AMOUNT_METRICS for metric in failed)

    @property
    def gated(self) -> bool:
        """Whether the experiment has gates; a part of its cases does not decide them."""
        return bool(experiment_in(self.result.snapshot, self.run.experiment).get("gates"))

    @property
    def simulated(self) -> bool:
        """Whether all of its answers are simulated."""
        answering = self.run.models.get(ANSWERS, {})
        return self.run.simulated and (not answering or all(answering.values()))

    def words(self) -> dict[str, str]:
        """Return the values of the placeholders of the sentences."""
        run, failure = self.run, self.failure
        rerun = f"edison run {run.experiment}"
        again = rerun
        if run.base_commit is not None:
            again += f" --against {commit_names(str(run.base_ref), run.base_commit)[0]}"
        names = () if failure is None else failure.models
        kind = "" if failure is None else failure.kind
        return {
            "run": run.id,
            "experiment": run.experiment,
            "rerun": rerun,
            "again": again,
            "resume": f"edison resume {run.id}",
            "prompt": next(iter(self.result.files.prompts.values()), "the prompt"),
            "budget": self.budget,
            "to": f" to {self.need.sufficient}" if self.need.sufficient else "",
            "amount": self.need.sufficient or "USD",
            "narrower": self.need.narrower,
            "models": ", ".join(names),
            "test": f"edison models test {' '.join(names)}".strip(),
            "check": WHAT_TO_CHECK.get(
                kind, f"{kind or 'the calls failed'}: look at a case: edison explain CASE"
            ),
            "judge": self.judge,
            "ungraded": self.ungraded,
        }


class _Row(NamedTuple):
    """A state of a run, and the next step in it."""

    state: str
    holds: Callable[[RunState], bool]
    sentence: str


def _paused_by(*starts: str) -> Callable[[RunState], bool]:
    return lambda state: state.budget.startswith(starts)


_EVERY_CALL = "{models}: {check}; test it with: {test}"
ROWS = (
    _Row(
        "import stopped",
        lambda state: state.run.grades_imports and state.stopped,
        "Import the answers again to continue; replies of judges are reused",
    ),
    _Row("import ended", lambda state: state.run.grades_imports, ""),
    _Row(
        "detected form",
        lambda state: "are malformed, because" in str(state.run.stopped_by),
        "Write that key, then: {rerun} (stored answers are reused)",
    ),
    _Row(
        "batch",
        lambda state: state.run.status == RunStatus.PAUSED and state.run.stopped_by == "batch",
        "Batches take up to 24 hours. Collect the answers and get the verdict with: {resume}",
    ),
    _Row(
        "two budgets",
        lambda state: state.budget == "--budget" and bool(state.need.narrower),
        "Raise {narrower}{to}, then: {rerun} --budget {amount} (stored answers are reused)",
    ),
    _Row(
        "budget of the command",
        _paused_by("--budget"),
        "Continue with a larger budget: {resume} --budget {amount}",
    ),
    _Row(
        "budget of the day",
        _paused_by("stop.daily_budget_usd"),
        "Continue tomorrow (UTC) with: {resume}; or raise {budget}{to}, then: {rerun}",
    ),
    _Row(
        "site out of reach",
        lambda state: "the shared budget" in state.budget and "cannot be reached" in state.budget,
        "Continue when it can be reached with: {resume}",
    ),
    _Row(
        "budget of the site",
        lambda state: "the shared budget" in state.budget,
        "Continue when it has room with: {resume}",
    ),
    _Row(
        "budget of the project",
        _paused_by("settings."),
        "Raise {budget} in edison.yaml{to}, then continue with: {resume}",
    ),
    # The experiment is part of the plan of a run, which is resumed as planned.
    _Row(
        "budget of the experiment",
        lambda state: bool(state.budget),
        "Raise {budget}{to}, then: {rerun} (stored answers are reused)",
    ),
    _Row(
        "paused",
        lambda state: state.run.status == RunStatus.PAUSED,
        "Continue with: {resume}",
    ),
    _Row(
        "cancelled",
        lambda state: state.run.status == RunStatus.CANCELLED,
        "Start again with: {again} (stored answers are reused)",
    ),
    _Row("running", lambda state: not (state.result.ended or state.stopped), ""),
    _Row(
        "calls refused",
        lambda state: state.failure is not None and state.failure.kind in _TO_CHANGE,
        _EVERY_CALL + "; then: {again} (stored answers are reused)",
    ),
    _Row(
        "calls failed",
        lambda state: state.failure is not None and state.stopped,
        _EVERY_CALL + "; then: {resume}",
    ),
    _Row("calls lost", lambda state: state.failure is not None, _EVERY_CALL + "; then: {again}"),
    _Row(
        "judge failed",
        lambda state: bool(state.judge),
        "The judge {judge} gave no score. Find the cause with: edison models test {judge}; "
        "then: {resume}; or grade the stored answers with another judge: edison regrade {run}",
    ),
    _Row(
        "nothing graded",
        lambda state: bool(state.ungraded),
        "No answer could be graded, because of {ungraded}. Fix it, then: edison regrade {run}",
    ),
    _Row("failed", lambda state: state.run.status == RunStatus.FAILED, "Continue with: {resume}"),
    _Row("shard", lambda state: state.run.shard is not None, ""),
    _Row(
        "part without gates",
        lambda state: state.run.partial and not state.gated,
        "Run all cases: {again}",
    ),
    _Row(
        "part of the cases",
        lambda state: state.run.partial,
        "All cases decide the gates: {again}",
    ),
    _Row(
        "simulated",
        lambda state: state.simulated and not state.compared,
        SIMULATED + ": edison models add openai/gpt-5-mini",
    ),
    _Row(
        "in doubt",
        lambda state: any(row.detail.get("doubt") for row in state.open_gates),
        "More cases would not decide it: a gate above says what stands in the way; then: {again}",
    ),
    _Row(
        "undecided",
        lambda state: state.run.verdict == Verdict.INCONCLUSIVE,
        "More cases, or more repeats (--repeats N), would decide it; then: {again}",
    ),
    _Row(
        "too slow or expensive",
        lambda state: state.run.verdict == Verdict.FAIL and state.resources_fail,
        "Shorten {prompt}, or name another model in the experiment; then: {again}",
    ),
    _Row(
        "cases fail",
        lambda state: bool(state.failing) and state.run.verdict != Verdict.PASS,
        "Change {prompt}, or have a model suggest a change: edison refine {experiment}; "
        "then: {again}",
    ),
    _Row(
        "gates fail",
        lambda state: state.run.verdict == Verdict.FAIL,
        "Change {prompt}; then: {again}",
    ),
    _Row(
        "not compared",
        lambda state: not state.compared,
        "Change {prompt}, then compare: {again} --against HEAD",
    ),
    _Row("compared", lambda state: True, ""),
)
"""Every state of a run, the first that holds first."""


class NextStep(NamedTuple):
    """What to do after a run."""

    state: str
    """The name of the row."""
    sentence: str
    """Empty where there is nothing to do."""


def next_step(result: RunResult, need: BudgetNeed | None = None) -> NextStep:
    """Return the next step after a run."""
    state = RunState(result, need or BudgetNeed())
    row = next(row for row in ROWS if row.holds(state))
    return NextStep(row.state, row.sentence.format_map(state.words()))
