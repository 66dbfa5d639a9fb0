"""Cases of an experiment judged as questions.

Through the same layer as everything else: each call is booked before it is sent, and what was
answered once is not asked again. What judges say of a case is stored before the next one is taken,
so whatever stops this, asking again goes on where it stopped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci import formatting
from edison_ci._dataclass import dataclass
from edison_ci.config.facets import content_hash
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.execute.standalone import desk
from edison_ci.judges.asking import side_by_side
from edison_ci.providers.budgeting import BudgetExhausted
from edison_ci.providers.resilience import LaneClosed
from edison_ci.store.ledger import Cap
from edison_ci.store.questions import QuestionScore, keep_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.clients import Lanes
    from edison_ci.execute.run_options import Tools
    from edison_ci.judges.pointwise import Opinion
    from edison_ci.judges.questions import QuestionJudge
    from edison_ci.providers.lane import Tally
    from edison_ci.records import Case, Completion, Request


@dataclass(slots=True)
class Questioned:
    """How the judging of questions went."""

    cases: int = 0
    """Cases that were taken up."""
    failed: Counter[str] = field(default_factory=Counter)
    """Verdicts that could not be had, by judge."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why not, by judge: the first reason."""
    answered: int = 0
    """Verdicts with at least one score."""
    closed: dict[str, str] = field(default_factory=dict)
    """Judges that take no more calls, and why."""
    exhausted: str = ""
    """The budget that has no more room."""
    tally: Tally | None = None
    """Calls that were made and reused, and what they cost."""


@dataclass(frozen=True, slots=True)
class Questioning:
    """What is asked of whom."""

    project: Project
    experiment: Experiment
    judges: Sequence[QuestionJudge]
    tools: Tools
    newer_than: str
    budget_microusd: int | None = None
    on_case: Callable[[int], None] = lambda _: None

    def run(self, cases: Iterator[Case]) -> Questioned:
        """Ask every judge about every case."""
        return asyncio.run(self._run(cases))

    async def _run(self, cases: Iterator[Case]) -> Questioned:
        found = Questioned()
        opened = desk(
            self.project,
            self.experiment,
            self.tools,
            purpose="question",
            newer_than=self.newer_than,
        )
        async with opened as lanes:
            purse = lanes.purse
            if self.budget_microusd is not None:
                limit, scope = self.budget_microusd, f"run:{purse.run_id}"
                purse.caps = (*purse.caps, Cap(scope, None, microusd=limit, name="--budget"))
            found.tally = lanes.tally
            workers = max(judge.judge.model.limits.concurrency for judge in self.judges)
            await side_by_side([self._worker(cases, lanes, found) for _ in range(workers)])
        return found

    async def _worker(self, cases: Iterator[Case], lanes: Lanes, found: Questioned) -> None:
        for case in cases:
            if found.exhausted or len(found.closed) == len(self.judges):
                return
            try:
                asked = [j for j in self.judges if j.judge.name not in found.closed]
                rows = await side_by_side([self._asked(j, case, lanes, found) for j in asked])
            except BudgetExhausted as error:
                found.exhausted = error.refused.cap.name
                return
            await lanes.purse.writer.write(keep_scores([row for each in rows for row in each]))
            found.cases += 1
            self.on_case(found.cases)

    async def _asked(
        self, judge: QuestionJudge, case: Case, lanes: Lanes, found: Questioned
    ) -> list[QuestionScore]:
        heard: list[tuple[str, int]] = []

        async def ask(name: str, request: Request) -> Completion:
            try:
                paid = await lanes.of(self.project.models[name], "judge").answer(request)
            except LaneClosed as closed:
                found.closed[name] = closed.reason
                raise CallError(ErrorKind.PROVIDER_ERROR, closed.reason, charged=False) from None
            heard.append((request.address, paid.take))
            return paid.completion

        opinion = await judge.judge_case(case, ask)
        name = judge.judge.name
        if opinion.verdict is None:
            found.failed[name] += 1
            reason = opinion.failure.reason if opinion.failure is not None else ""
            found.reasons.setdefault(name, reason)
        else:
            found.answered += 1
        address, take = heard[-1] if heard else (judge.request(case).address, None)
        return list(self._rows(judge, case, opinion, (address, take)))

    def _rows(
        self,
        judge: QuestionJudge,
        case: Case,
        opinion: Opinion,
        answer: tuple[str, int | None],
    ) -> Iterator[QuestionScore]:
        now, content = formatting.stamp(self.tools.now()), content_hash(case)
        for criterion in judge.criteria:
            verdict = opinion.verdict
            scored = None if verdict is None else verdict.scores.get(criterion.name)
            missing = opinion.missing(criterion.name)
            yield QuestionScore(
                experiment=self.experiment.id,
                case_id=case.id,
                judge=judge.judge.name,
                criterion=criterion.name,
                case_hash=content,
                hash=judge.hash,
                score=None if scored is None else scored.raw,
                low=criterion.scale.min,
                high=criterion.scale.max,
                reason=scored.reason if scored is not None else missing.reason if missing else "",
                status="ok" if scored is not None else "error",
                simulated=judge.judge.model.simulated,
                address=answer[0],
                take=answer[1],
                judged_at=now,
            )
