"""The loop: measure, decide, refine and review prompts, resumable at every point.

    measuring ──► deciding ──► refining ──► reviewing ──► committing
        ▲            │                          │             │
        └────────────┼──────────────────────────┴─────────────┘
                     └──► confirming ──► reporting ──► done

Each word is a named point. It is stored in the same transaction as the work before it, and the work
at a point can be repeated. So a loop that is killed continues where it was, with the same result.
Several prompts share the runs: each iteration measures all that are in play, refines one after the
other, and notes with each what came of it. Points between a side effect and its record have names
too:

    measuring    the run of the iteration starts or resumes
    measured     its run is complete, its score is not stored yet
    deciding     the stop rules are evaluated
    refining     a better prompt is requested and measured, for each that still gains
    refined      the suggestions of one prompt are stored, others may be left
    reviewing    a suggestion is stored and waits for a decision
    committing   it has to be committed to the branch of the loop (only with --auto-approve)
    committed    the branch has it, the results do not record that yet
    confirming   the best version of each prompt is compared with its first on the held-out cases
    confirmed    they are measured, the evidence is not stored yet
    reporting    the final report has to be written
    written      its files exist, the loop is not marked as done yet
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.api.notices import notify
from edison_ci.documents.text_diff import diff_of
from edison_ci.errors import CallFailed, ExitCode, Interrupted, OutOfBudget, UsageError
from edison_ci.execute.run_options import RunOptions, options_of
from edison_ci.execute.session import Session
from edison_ci.features.refine.branch_commits import commit_to_branch
from edison_ci.features.refine.evidence import evidence_of, split_cases
from edison_ci.features.refine.loop_report import best_of, write_report
from edison_ci.features.refine.loop_rows import (
    Iteration,
    LoopState,
    Outcome,
    course_of,
    current_rows,
    iterations_of,
    mean_score,
    move_loop,
    unfinished_run,
    write_iteration,
)
from edison_ci.features.refine.refinement import RefineOptions, refine
from edison_ci.features.refine.suggestions import suggestion_notice
from edison_ci.features.refine.trials import out_of_budget
from edison_ci.features.refine.weaknesses import quarantined_cases
from edison_ci.proposals.candidate import change_of, with_prompt
from edison_ci.proposals.context import supersede_others
from edison_ci.records import RunStatus, SuggestionStatus
from edison_ci.results.weaknesses import rivals_in
from edison_ci.stats.convergence import converged, shared_level
from edison_ci.store.database import open_for_change, open_reader
from edison_ci.store.runs import LOOP, find_run, move_run
from edison_ci.store.suggestions import find_suggestion

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from typing import Any

    from edison_ci.execute.run_options import RunOutcome
    from edison_ci.features.refine.loop_report import LoopReport
    from edison_ci.features.refine.loop_rows import Loop
    from edison_ci.features.refine.loop_start import LoopContext
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
FIRST_PRUNED = 2
"""The iteration after which weak prompts are dropped for the first time: by then each was refined
once."""


def reach_point(point: str) -> None:
    """Mark a named point; the fault tests stop the process here."""
    logger.debug("loop", extra={"point": str(point)})


class Version(NamedTuple):
    """A new version of a prompt."""

    text: str
    version: str
    suggestion: str | None = None
    """What made it; None if a person did, or if it is the old one."""


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

    def _measure(self) -> None:
        rows = self.in_play()
        number = rows[0].number
        names = ", ".join(self._named(row) for row in rows)
        self._context.on_step(f"iteration {number}: measuring {names}")
        run_id = self._run_iteration(rows)
        reach_point("measured")
        target = self._context.at(rows[0])
        training, unseen = split_cases(target)
        aside = quarantined_cases(target)
        with open_for_change(self._context.results) as connection:
            weak = self._weak(connection, run_id, rows, aside | unseen)
            for row in rows:
                score, cases = mean_score(connection, run_id, row.prompt, training - aside)
                measured = row._replace(run_id=run_id, score=score, cases=cases)
                dropped = weak.get(row.prompt)
                write_iteration(connection, self.loop, measured._replace(dropped=dropped))
            simulated = find_run(connection, run_id).simulated
            self._to(connection, LoopState.DECIDING, simulated=self.loop.simulated or simulated)
        for reason in weak.values():
            self._context.on_step(reason)

    def _named(self, row: Iteration) -> str:
        several = len(self._context.targets) > 1
        return f"{row.prompt} {row.version[:8]}" if several else row.version[:8]

    def _weak(
        self,
        connection: sqlite3.Connection,
        run_id: str,
        rows: Sequence[Iteration],
        left_out: frozenset[str],
    ) -> dict[str, str]:
        """Return the prompts that are not measured again, with the reason; from iteration 2 on.

        Only training cases count: which prompts remain must not depend on the held-out ones.
        """
        number = rows[0].number
        if len(rows) < 2 or number < FIRST_PRUNED or not self._context.stop.prune_weak_prompts:
            return {}
        level = shared_level(number - FIRST_PRUNED + 1)
        rivals = rivals_in(connection, run_id, left_out, level=level)
        return {rival.found.prompt: rival.dropped for rival in rivals if rival.weak}

    def _run_iteration(self, rows: Sequence[Iteration]) -> str:
        """Return the id of the iteration's completed run; start or resume it if necessary."""
        context = self._context
        with closing(open_reader(context.results)) as reader:
            unfinished = unfinished_run(reader, self.loop)
            run = None if unfinished is None else find_run(reader, unfinished)
        if run is not None and run.status in _MEASURED:
            return run.id
        targets = [context.at(row) for row in rows]
        experiment = with_prompt(targets[0].experiment, *(target.prompt for target in targets))
        options = RunOptions() if run is None else options_of(run)
        on_branch = any(row.text != context.now(row).text for row in rows)
        options = replace(
            options,
            trigger=LOOP,
            refines=True,
            on_branch=on_branch,
            allow_code=context.allow_code,
        )
        with context.open_run_context(self.loop) as run_context:
            session = Session(context.project, experiment, run_context)
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

    def _decide(self) -> None:
        rows = self.in_play()
        if all(row.score is None for row in rows):
            self._end("not_measured")
        elif all(map(self._settled, rows)):
            self._end("converged")
        elif rows[0].number >= self.loop.max_iterations:
            self._end("max_iterations")
        else:
            with open_for_change(self._context.results) as connection:
                self._to(connection, LoopState.REFINING)

    def _settled(self, row: Iteration) -> bool:
        """Whether the last iterations of a prompt gained almost nothing."""
        stop = self._context.stop
        course = course_of(self.iterations(), row.prompt)
        scores = [iteration.score for iteration in course if iteration.score is not None]
        if not scores:
            return True
        return converged(scores, min_delta=stop.min_delta, window=stop.window).value

    def _end(self, rule: str) -> None:
        with open_for_change(self._context.results) as connection:
            for row in current_rows(iterations_of(connection, self.loop)):
                write_iteration(connection, self.loop, row._replace(pending=None))
            self._run_to(connection, RunStatus.COMPLETED)
            self._to(connection, LoopState.CONFIRMING, stopped_by=rule)

    def _refine(self) -> None:
        rows = self.in_play()
        if rows[0].number >= self.loop.max_iterations:  # the limit was lowered
            self._end("max_iterations")
            return
        for row in rows:
            if row.outcome is None:
                self._refine_one(row)
                reach_point("refined")
        outcomes = {row.outcome for row in self.in_play()}
        if Outcome.SUGGESTED in outcomes:
            with open_for_change(self._context.results) as connection:
                self._run_to(connection, RunStatus.REVIEWING)
                self._to(connection, LoopState.REVIEWING)
                self._ask_for_review(connection)
        elif outcomes <= {Outcome.NO_WEAKNESS, Outcome.SETTLED}:
            self._end("no_weakness" if Outcome.NO_WEAKNESS in outcomes else "converged")
        elif self._context.stop.stop_if_no_refinement:
            self._end("no_refinement")
        else:
            with open_for_change(self._context.results) as connection:
                self._next(connection, {})

    def _ask_for_review(self, connection: sqlite3.Connection) -> None:
        """Notify people that the loop waits for them, unless it continues by itself."""
        if self.loop.mode != "review":
            return
        for row in self.in_play():
            if row.pending is not None:
                notice = suggestion_notice(find_suggestion(connection, row.pending))
                waits = replace(notice, occasion="review_needed", also=("suggestion",))
                notify(connection, self._context.review.site, waits)

    def _refine_one(self, row: Iteration) -> None:
        """Ask for a better version of one prompt, and note what came of it."""
        context = self._context
        outcome = Outcome.SETTLED if self._settled(row) else self._asked_before(row)
        if outcome is not None:
            self._note(row._replace(outcome=outcome))
            return
        target = context.at(row)
        if len(context.targets) > 1:
            context.on_step(f"refining {row.prompt}")

        def on_stored(connection: sqlite3.Connection, made: Sequence[Suggestion]) -> None:
            """Note the outcome in the transaction that stores the suggestions."""
            chosen = next((suggestion for suggestion in made if suggestion.status in _WANTED), None)
            found = row._replace(outcome=Outcome.NOTHING)
            if chosen is not None:
                found = row._replace(outcome=Outcome.SUGGESTED, pending=chosen.id)
                simulated = self.loop.simulated or chosen.simulated
                self._to(connection, LoopState.REFINING, simulated=simulated)
            write_iteration(connection, self.loop, found)

        options = RefineOptions(
            context.candidates,
            on_step=context.on_step,
            audit=lambda made: context.audit(target, made),
            on_stored=on_stored,
        )
        found = refine(context.trials(self.loop, target), context.refiner, options)
        if not found.weakness.targets:
            self._note(row._replace(outcome=Outcome.NO_WEAKNESS))

    def _asked_before(self, row: Iteration) -> str | None:
        """Return what refining came to one iteration ago, if asking again could not change it."""
        course = course_of(self.iterations(), row.prompt)
        if len(course) < 2 or not self._context.stop.stop_if_no_refinement:
            return None
        before = course[-2]
        again = before.version != row.version or before.outcome == Outcome.SUGGESTED
        return None if again else before.outcome

    def _note(self, row: Iteration) -> None:
        with open_for_change(self._context.results) as connection:
            write_iteration(connection, self.loop, row)

    def _review(self) -> None:
        if self.loop.mode == "auto":
            with open_for_change(self._context.results) as connection:
                self._to(connection, LoopState.COMMITTING)
            return
        rows, pending = self.in_play(), self.suggestions()
        changed: dict[str, Version] = {}
        for row in rows:
            now, suggestion = self._context.now(row), pending.get(row.prompt)
            if now.prompt.version != row.version:
                made = suggestion is not None and now.prompt.version == suggestion.new_hash
                by = suggestion.id if suggestion is not None and made else None
                changed[row.prompt] = Version(now.text, now.prompt.version, by)
            elif suggestion is not None and suggestion.status not in _GONE:
                return  # it still waits
        with open_for_change(self._context.results) as connection:
            if changed:
                self._next(connection, changed)
                return
            for row in rows:
                if row.prompt in pending:
                    again = row._replace(outcome=None, pending=None)
                    write_iteration(connection, self.loop, again)
            self._run_to(connection, RunStatus.PAUSED)
            self._run_to(connection, RunStatus.REFINING)
            self._to(connection, LoopState.REFINING)

    def _commit(self) -> None:
        """Commit the suggestions to the branch of the loop; no file in the working tree changes."""
        pending = self.suggestions()
        made: dict[str, Version] = {}
        for row in self.in_play():
            suggestion = pending.get(row.prompt)
            if suggestion is not None:
                text = self._commit_one(row, suggestion)
                made[row.prompt] = Version(text, suggestion.new_hash or "", suggestion.id)
        with open_for_change(self._context.results) as connection:
            self._next(connection, made)

    def _commit_one(self, row: Iteration, suggestion: Suggestion) -> str:
        """Commit one suggestion, unless the branch has it; return the new text of the prompt."""
        context, review = self._context, self._context.review
        text = row.text.encode("utf-8", "surrogatepass")
        commit, after = commit_to_branch(review, self.loop, suggestion, text)
        reach_point("committed")
        if suggestion.status is not SuggestionStatus.APPLIED:
            changes = {"decided_by": context.actor.name, "decided_at": review.site.now()}
            more = {"branch": self.loop.branch, "commit_id": commit}
            suggestion = review.move(
                context.actor,
                "loop approve",
                suggestion,
                SuggestionStatus.APPLIED,
                **changes,
                **more,
            )
        supersede_others(review, context.actor, suggestion)
        context.on_step(f"committed {suggestion.id} as {commit[:8]} on {self.loop.branch}")
        return after.decode("utf-8", "surrogatepass")

    def _confirm(self) -> None:
        evidence = self._evidence()
        reach_point("confirmed")
        with open_for_change(self._context.results) as connection:
            self._to(connection, LoopState.REPORTING, evidence=evidence)

    def _evidence(self) -> dict[str, Any]:
        """Return the evidence of the best prompt, and of the others that are still in play."""
        iterations = self.iterations()
        leader = best_of(iterations).prompt
        kept = [leader, *(row.prompt for row in self.in_play() if row.prompt != leader)]
        by_prompt = {name: self._first_against_best(course_of(iterations, name)) for name in kept}
        evidence = by_prompt.pop(leader)
        others = {name: other for name, other in by_prompt.items() if other}
        return {**evidence, "others": others} if others else evidence

    def _first_against_best(self, course: Sequence[Iteration]) -> dict[str, Any]:
        """Return the evidence of a prompt's best version; empty if that is its first one."""
        context = self._context
        first, best = course[0], best_of(course)
        if best.version == first.version:
            return {}
        context.on_step(
            f"confirming: {self._named(best)} against {first.version[:8]}, on all cases"
        )
        target = context.at(first)
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
        if not any(iteration.score is not None for iteration in self.iterations()):
            return
        try:
            evidence = self._evidence()
        except OutOfBudget:
            evidence = {"doubt": "no budget was left to measure it"}
        stopped = replace(self.loop, stopped_by="budget", evidence=evidence)
        self.final = write_report(self._context, stopped)

    def iterations(self) -> list[Iteration]:
        """Return the measured iterations and the current one, with a row for each prompt."""
        with closing(open_reader(self._context.results)) as reader:
            return iterations_of(reader, self.loop)

    def in_play(self) -> list[Iteration]:
        """Return the rows of the current iteration, of prompts that are not dropped."""
        return current_rows(self.iterations())

    def suggestions(self) -> dict[str, Suggestion]:
        """Return the suggestions that wait for a decision or their commit, by prompt."""
        rows = self.in_play()
        with closing(open_reader(self._context.results)) as reader:
            return {
                row.prompt: find_suggestion(reader, row.pending)
                for row in rows
                if row.pending is not None
            }

    def _next(self, connection: sqlite3.Connection, changed: Mapping[str, Version]) -> None:
        """Start another iteration of all prompts in play; `changed` has the new versions."""
        self._run_to(connection, RunStatus.COMPLETED)
        for row in current_rows(iterations_of(connection, self.loop)):
            new = changed.get(row.prompt, Version(row.text, row.version))
            following = Iteration(
                row.number + 1,
                row.prompt,
                row.path,
                new.version,
                new.text,
                suggestion=new.suggestion,
            )
            write_iteration(connection, self.loop, following)
        self._to(connection, LoopState.MEASURING)

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
        measured = [
            iteration.run_id
            for iteration in iterations_of(connection, self.loop)
            if iteration.run_id
        ]
        return find_run(connection, measured[-1]) if measured else None
