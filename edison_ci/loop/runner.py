"""The loop: measure, decide, refine and review a prompt, resumable at every point.

    measuring ──► deciding ──► refining ──► reviewing ──► committing
        ▲            │                          │             │
        └────────────┼──────────────────────────┴─────────────┘
                     └──► confirming ──► reporting ──► done

Each word is a named point. It is stored in the same transaction as the work before it, and the work
at a point can be repeated. So a loop that is killed continues where it was, with the same result.
Points between a side effect and its record have names too:

    measuring    the run of the iteration starts or resumes
    measured     its run is complete, its score is not stored yet
    deciding     the stop rules are evaluated
    refining     a better prompt is requested and measured
    reviewing    a suggestion is stored and waits for a decision
    committing   it is to be committed to the branch of the loop (only with --auto-approve)
    committed    the branch has it, the results do not record that yet
    confirming   the best prompt is compared with the first one on the held-out cases
    confirmed    they are measured, the evidence is not stored yet
    reporting    the final report is to be written
    written      its files exist, the loop is not marked as done yet
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.errors import CallFailed, ExitCode, Interrupted, OutOfBudget, UsageError
from edison_ci.execute.run_options import RunOptions, options_of
from edison_ci.execute.session import Session
from edison_ci.forge.branches import PlainGit
from edison_ci.forge.models import Change
from edison_ci.loop.report import best_of, write_report
from edison_ci.records import RunStatus
from edison_ci.refine.candidate import change_of
from edison_ci.refine.evidence import evidence_of, split_cases
from edison_ci.refine.patch import diff_of
from edison_ci.refine.refinement import RefineOptions, refine
from edison_ci.refine.trials import out_of_budget
from edison_ci.refine.weaknesses import quarantined_cases
from edison_ci.report.proposal import message_of, title_of
from edison_ci.review.context import needs_repository
from edison_ci.review.decision import supersede_others
from edison_ci.review.prompt_file import apply_suggestion
from edison_ci.review.proposal import current_branch
from edison_ci.stats.convergence import converged
from edison_ci.store.database import open_for_change, open_reader
from edison_ci.store.loops import (
    TRIGGER,
    Iteration,
    LoopState,
    iterations_of,
    mean_score,
    move_loop,
    unfinished_run,
    write_iteration,
)
from edison_ci.store.runs import find_run, move_run
from edison_ci.store.suggestions import SuggestionStatus, find_suggestion

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from typing import Any

    from edison_ci.execute.run_options import RunOutcome
    from edison_ci.loop.report import LoopReport
    from edison_ci.loop.start import LoopContext
    from edison_ci.store.loops import Loop
    from edison_ci.store.runs import Run
    from edison_ci.store.suggestions import Suggestion

logger = logging.getLogger(__name__)
_MEASURED = (RunStatus.REFINING, RunStatus.REVIEWING, RunStatus.COMPLETED)
_AFTER_REFINING = (RunStatus.COMPLETED, RunStatus.REVIEWING)
_WITH_RUN = (LoopState.DECIDING, LoopState.REFINING, LoopState.REVIEWING)
"""Points at which the run of the iteration is still open and can be cancelled."""
_WANTED = (SuggestionStatus.PROPOSED, SuggestionStatus.APPROVED, SuggestionStatus.APPLIED)
"""Statuses of a suggestion that can become the next version."""
_GONE = (SuggestionStatus.REJECTED, SuggestionStatus.SUPERSEDED)


def reach_point(point: str) -> None:
    """Mark a named point; the fault tests stop the process here."""
    logger.debug("loop", extra={"point": str(point)})


class LoopRunner:
    """Runs a loop from its stored point."""

    def __init__(self, context: LoopContext, loop: Loop) -> None:
        self.loop = loop
        self.final: LoopReport | None = None
        """The final report, once it is written."""
        self._context = context
        self._steps = {
            LoopState.MEASURING: self._measure,
            LoopState.DECIDING: self._decide,
            LoopState.REFINING: self._refine,
            LoopState.REVIEWING: self._review,
            LoopState.COMMITTING: self._commit,
            LoopState.CONFIRMING: self._confirm,
            LoopState.REPORTING: self._report,
        }

    def run(self) -> bool:
        """Run until the loop is done; return False if it waits for a decision."""
        try:
            while self.loop.point is not LoopState.DONE:
                reach_point(self.loop.point)
                if self.loop.point in _WITH_RUN and self._cancelled():
                    self._end("cancelled")
                    continue
                before = self.loop.point
                self._steps[before]()
                if self.loop.point is before is LoopState.REVIEWING:
                    return False
        except OutOfBudget:
            self._report_partial()
            raise
        return True

    # --- measure ----------------------------------------------------------------------------------

    def _measure(self) -> None:
        iteration = self.iterations()[-1]
        self._context.on_step(f"iteration {iteration.number}: measuring {iteration.version[:8]}")
        run_id = self._run_iteration(iteration)
        reach_point("measured")
        target = self._context.at(iteration.text)
        train = split_cases(target)[0] - quarantined_cases(target)
        with open_for_change(self._context.results) as connection:
            score, cases = mean_score(connection, run_id, train)
            simulated = find_run(connection, run_id).simulated
            measured = iteration._replace(run_id=run_id, score=score, cases=cases)
            write_iteration(connection, self.loop, measured)
            self._to(connection, LoopState.DECIDING, simulated=self.loop.simulated or simulated)

    def _run_iteration(self, iteration: Iteration) -> str:
        """Return the id of the iteration's completed run; start or resume it if necessary."""
        context = self._context
        with closing(open_reader(context.results)) as reader:
            known = unfinished_run(reader, self.loop)
            run = None if known is None else find_run(reader, known)
        if run is not None and run.status in _MEASURED:
            return run.id
        target = context.at(iteration.text)
        options = RunOptions() if run is None else options_of(run)
        on_branch = iteration.text != context.target.text
        options = replace(
            options,
            trigger=TRIGGER,
            refines=True,
            on_branch=on_branch,
            allow_code=context.allow_code,
        )
        with context.open_run_context(self.loop) as run_context:
            session = Session(context.project, target.experiment, run_context)
            ended = session.run(options) if run is None else self._resume(session, run, options)
        if ended.status is not RunStatus.COMPLETED:
            self._raise_stopped(ended)
        return ended.run_id

    def _resume(self, session: Session, run: Run, options: RunOptions) -> RunOutcome:
        try:
            return session.resume(run, options)
        except UsageError as error:  # files have changed since
            again = f"edison loop {self.loop.experiment} --restart"
            error.hint = f"restore the files, or abandon this loop: {again}"
            raise

    def _raise_stopped(self, ended: RunOutcome) -> None:
        name = self.loop.experiment
        if ended.exit_code is ExitCode.BUDGET:
            raise out_of_budget(str(ended.progress.stopped_by))
        if ended.status is RunStatus.FAILED:
            why = "; ".join(f"{who}: {reason}" for who, reason in ended.progress.closed.items())
            raise CallFailed(
                f"{name} could not be measured: {why or 'too many errors'}",
                hint=f"check the models with edison models test, then: edison loop {name}",
            )
        raise Interrupted("stopped", hint=f"continue with: edison loop {name}")

    # --- decide -----------------------------------------------------------------------------------

    def _decide(self) -> None:
        iterations = self.iterations()
        scores = [one.score for one in iterations]
        stop = self._context.stop
        if scores[-1] is None:
            self._end("not_measured")
            return
        known = [score for score in scores if score is not None]
        if converged(known, min_delta=stop.min_delta, window=stop.window).value:
            self._end("converged")
        elif len(iterations) >= self.loop.max_iterations:
            self._end("max_iterations")
        else:
            with open_for_change(self._context.results) as connection:
                self._to(connection, LoopState.REFINING)

    def _end(self, rule: str) -> None:
        with open_for_change(self._context.results) as connection:
            self._run_to(connection, RunStatus.COMPLETED)
            self._to(connection, LoopState.CONFIRMING, stopped_by=rule, suggestion=None)

    # --- refine -----------------------------------------------------------------------------------

    def _refine(self) -> None:
        context, iteration = self._context, self.iterations()[-1]
        if iteration.number >= self.loop.max_iterations:  # the limit was lowered
            self._end("max_iterations")
            return
        target = context.at(iteration.text)
        options = RefineOptions(
            context.candidates,
            on_step=context.on_step,
            audit=lambda made: context.audit(target, made),
            on_stored=self._on_stored,
        )
        found = refine(context.trials(self.loop, target), context.refiner, options)
        if not found.weakness.targets:
            self._end("no_weakness")

    def _on_stored(self, connection: sqlite3.Connection, made: Sequence[Suggestion]) -> None:
        """Move the loop in the transaction that stores the suggestions."""
        chosen = next((one for one in made if one.status in _WANTED), None)
        if chosen is not None:
            self._run_to(connection, RunStatus.REVIEWING)
            simulated = self.loop.simulated or chosen.simulated
            self._to(connection, LoopState.REVIEWING, suggestion=chosen.id, simulated=simulated)
        elif self._context.stop.stop_if_no_refinement:
            self._run_to(connection, RunStatus.COMPLETED)
            self._to(connection, LoopState.CONFIRMING, stopped_by="no_refinement")
        else:
            last = iterations_of(connection, self.loop)[-1]
            self._next(connection, last.text, last.version, None)

    # --- review ----------------------------------------------------------------------------------

    def _review(self) -> None:
        if self.loop.mode == "auto":
            with open_for_change(self._context.results) as connection:
                self._to(connection, LoopState.COMMITTING)
            return
        now, last, one = self._context.target, self.iterations()[-1], self.suggestion()
        with open_for_change(self._context.results) as connection:
            if now.prompt.version != last.version:
                made = one.id if now.prompt.version == one.new_hash else None
                self._next(connection, now.text, now.prompt.version, made)
            elif one.status in _GONE:
                self._run_to(connection, RunStatus.PAUSED)
                self._run_to(connection, RunStatus.REFINING)
                self._to(connection, LoopState.REFINING, suggestion=None)

    def _commit(self) -> None:
        """Commit the suggestion to the branch of the loop; no file in the working tree changes."""
        context, review, one = self._context, self._context.review, self.suggestion()
        last, repository = self.iterations()[-1], needs_repository(self._context.review)
        after = apply_suggestion(context.project, one, last.text.encode("utf-8", "surrogatepass"))
        assert self.loop.branch is not None, "a loop that commits has a branch"
        assert self.loop.base_commit is not None, "and a commit at which the branch starts"
        change = Change(
            branch=self.loop.branch,
            base=current_branch(repository) or "HEAD",
            base_commit=self.loop.base_commit,
            files={review.in_repository(one.path): after},
            key=one.hash,
            title=title_of(one),
            message=message_of(one),
        )
        commit, _ = asyncio.run(PlainGit(repository).put(change))
        reach_point("committed")
        if one.status is not SuggestionStatus.APPLIED:
            changes = {"decided_by": context.actor.name, "decided_at": review.site.now()}
            more = {"branch": self.loop.branch, "commit_id": commit}
            one = review.move(
                context.actor, "loop approve", one, SuggestionStatus.APPLIED, **changes, **more
            )
        supersede_others(review, context.actor, one)
        context.on_step(f"committed {one.id} as {commit[:8]} on {self.loop.branch}")
        with open_for_change(context.results) as connection:
            text = after.decode("utf-8", "surrogatepass")
            self._next(connection, text, one.new_hash or "", one.id)

    # --- finish -----------------------------------------------------------------------------------

    def _confirm(self) -> None:
        evidence = self._first_against_best()
        reach_point("confirmed")
        with open_for_change(self._context.results) as connection:
            self._to(connection, LoopState.REPORTING, evidence=evidence)

    def _first_against_best(self) -> dict[str, Any]:
        """Return the evidence of the best prompt against the first one; empty if they are equal."""
        context, iterations = self._context, self.iterations()
        first, best = iterations[0], best_of(iterations)
        if best.version == first.version:
            return {}
        context.on_step(f"confirming: {best.version[:8]} against {first.version[:8]}, on all cases")
        target = context.at(first.text)
        change = change_of(target, diff_of(target.prompt.path, first.text, best.text))
        if change.experiment is None:
            return {"doubt": "the best prompt is no longer valid in this project"}
        trial = context.trials(self.loop, target).try_out(change)
        with closing(open_reader(context.results)) as reader:
            return evidence_of(reader, change, trial.run_id).as_json()

    def _report(self) -> None:
        self.final = write_report(self._context, self.loop)
        reach_point("written")
        with open_for_change(self._context.results) as connection:
            self._to(connection, LoopState.DONE, finished_at=self._context.review.site.now())

    def _report_partial(self) -> None:
        """Write the report of a loop that a budget stopped; it can still be continued."""
        if not any(one.score is not None for one in self.iterations()):
            return
        try:
            evidence = self._first_against_best()
        except OutOfBudget:
            evidence = {"doubt": "no budget was left to measure it"}
        stopped = replace(self.loop, stopped_by="budget", evidence=evidence)
        self.final = write_report(self._context, stopped)

    # --- storage ----------------------------------------------------------------------------------

    def iterations(self) -> list[Iteration]:
        """Return the measured iterations and the current one."""
        with closing(open_reader(self._context.results)) as reader:
            return iterations_of(reader, self.loop)

    def suggestion(self) -> Suggestion:
        """Return the suggestion that waits for a decision or its commit."""
        assert self.loop.suggestion is not None, "there is one at this point"
        with closing(open_reader(self._context.results)) as reader:
            return find_suggestion(reader, self.loop.suggestion)

    def _next(
        self, connection: sqlite3.Connection, text: str, version: str, made_by: str | None
    ) -> None:
        """Start another iteration."""
        self._run_to(connection, RunStatus.COMPLETED)
        number = len(iterations_of(connection, self.loop)) + 1
        iteration = Iteration(number, version, text, suggestion=made_by)
        write_iteration(connection, self.loop, iteration)
        self._to(connection, LoopState.MEASURING, suggestion=None)

    def _to(self, connection: sqlite3.Connection, point: LoopState, **changes: Any) -> None:
        self.loop = move_loop(connection, self.loop, point, **changes)

    def _run_to(self, connection: sqlite3.Connection, status: RunStatus) -> None:
        """Change the status of the iteration's run, unless it was cancelled."""
        run = self._last_run(connection)
        if run is not None and run.status not in (status, RunStatus.COMPLETED, RunStatus.CANCELLED):
            now = self._context.review.site.now()
            if run.status is RunStatus.PAUSED and status in _AFTER_REFINING:
                move_run(run.id, RunStatus.REFINING, now)(connection)
            move_run(run.id, status, now)(connection)

    def _cancelled(self) -> bool:
        with closing(open_reader(self._context.results)) as reader:
            run = self._last_run(reader)
        return run is not None and run.status is RunStatus.CANCELLED

    def _last_run(self, connection: sqlite3.Connection) -> Run | None:
        measured = [one.run_id for one in iterations_of(connection, self.loop) if one.run_id]
        return find_run(connection, measured[-1]) if measured else None
