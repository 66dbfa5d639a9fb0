"""Question grading: judges score the cases of a dataset as questions.

Calls go through the same clients as those of a run: booked before they are sent, and never bought
twice. The scores of a case are stored before the next case is taken, so that an interrupted grading
continues where it stopped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.config.case_facts import content_hash
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.execute.standalone import standalone_client
from edison_ci.judges.judge import run_concurrently
from edison_ci.providers.budget import BudgetExhausted
from edison_ci.providers.resilience import ClientClosed
from edison_ci.store.judgments import QuestionScore, write_question_scores
from edison_ci.store.ledger import SpendingCap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.run_options import RunContext
    from edison_ci.judges.pointwise import JudgeScores, QuestionJudge
    from edison_ci.providers.client import BudgetUsage
    from edison_ci.records import Case, Completion, Request


@dataclass(slots=True)
class QuestionGradingResult:
    """Counts and failures of a question grading."""

    cases: int = 0
    """Cases that were judged."""
    failed: Counter[str] = field(default_factory=Counter)
    """Failed verdicts, by judge."""
    reasons: dict[str, str] = field(default_factory=dict)
    """The first reason of failure, by judge."""
    answered: int = 0
    """Verdicts with at least one score."""
    closed: dict[str, str] = field(default_factory=dict)
    """Judges that take no more calls, and why."""
    exhausted: str = ""
    """The budget that is used up."""
    usage: BudgetUsage | None = None
    """Calls made and reused, with their cost."""


@dataclass(frozen=True, slots=True)
class QuestionGrading:
    """Judges, and the experiment whose cases they score."""

    project: Project
    experiment: Experiment
    judges: Sequence[QuestionJudge]
    context: RunContext
    newer_than: str
    budget_microusd: int | None = None

    def run(self, cases: Iterator[Case]) -> QuestionGradingResult:
        """Let every judge score every case."""
        return asyncio.run(self._run(cases))

    async def _run(self, cases: Iterator[Case]) -> QuestionGradingResult:
        result = QuestionGradingResult()
        opened = standalone_client(
            self.project,
            self.experiment,
            self.context,
            purpose="question",
            newer_than=self.newer_than,
        )
        async with opened as clients:
            budget = clients.budget
            if self.budget_microusd is not None:
                limit, scope = self.budget_microusd, f"run:{budget.run_id}"
                budget.caps = (
                    *budget.caps,
                    SpendingCap(scope, None, microusd=limit, name="--budget"),
                )
            result.usage = clients.usage
            workers = max(judge.judge.model.limits.concurrency for judge in self.judges)
            await run_concurrently([self._worker(cases, clients, result) for _ in range(workers)])
        return result

    async def _worker(
        self, cases: Iterator[Case], clients: ClientPool, result: QuestionGradingResult
    ) -> None:
        for case in cases:
            if result.exhausted or len(result.closed) == len(self.judges):
                return
            try:
                asked = [j for j in self.judges if j.judge.name not in result.closed]
                rows = await run_concurrently(
                    [self._judge(j, case, clients, result) for j in asked]
                )
            except BudgetExhausted as error:
                result.exhausted = error.refused.cap.name
                return
            await clients.budget.writer.write(
                write_question_scores([row for scores in rows for row in scores])
            )
            result.cases += 1

    async def _judge(
        self,
        judge: QuestionJudge,
        case: Case,
        clients: ClientPool,
        result: QuestionGradingResult,
    ) -> list[QuestionScore]:
        replies: list[tuple[str, int]] = []

        async def ask(name: str, request: Request) -> Completion:
            try:
                answer = await clients.of(self.project.models[name], "judge").answer(request)
            except ClientClosed as closed:
                result.closed[name] = closed.reason
                raise CallError(ErrorKind.PROVIDER_ERROR, closed.reason, charged=False) from None
            replies.append((request.request_hash, answer.answer_no))
            return answer.completion

        judge_score = await judge.judge_case(case, ask)
        name = judge.judge.name
        if judge_score.verdict is None:
            result.failed[name] += 1
            reason = judge_score.failure.reason if judge_score.failure is not None else ""
            result.reasons.setdefault(name, reason)
        else:
            result.answered += 1
        request_hash, answer_no = (
            replies[-1] if replies else (judge.request(case).request_hash, None)
        )
        return list(self._rows(judge, case, judge_score, (request_hash, answer_no)))

    def _rows(
        self,
        judge: QuestionJudge,
        case: Case,
        judge_score: JudgeScores,
        answer: tuple[str, int | None],
    ) -> Iterator[QuestionScore]:
        now, content = utc.timestamp(self.context.now()), content_hash(case)
        for criterion in judge.criteria:
            verdict = judge_score.verdict
            scored = None if verdict is None else verdict.scores.get(criterion.name)
            missing = judge_score.missing(criterion.name)
            yield QuestionScore(
                experiment=self.experiment.id,
                case_id=case.id,
                judge=judge.judge.name,
                criterion=judge.stored_name(criterion),
                case_hash=content,
                hash=judge.hash,
                score=None if scored is None else scored.raw,
                low=criterion.scale.min,
                high=criterion.scale.max,
                reason=scored.reason if scored is not None else missing.reason if missing else "",
                status="ok" if scored is not None else "error",
                simulated=judge.judge.model.simulated,
                request_hash=answer[0],
                answer_no=answer[1],
                judged_at=now,
            )
