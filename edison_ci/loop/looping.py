"""The loop: from a prompt to the best one it finds, whatever stops it on the way.

    measuring ──► deciding ──► refining ──► reviewing ──► committing
        ▲            │                          │             │
        └────────────┼──────────────────────────┴─────────────┘
                     └──► confirming ──► reporting ──► done

Each word is a named point: it is written in the results together with what was done before it, and
what is done there can be done again. So a loop that is killed goes on where it was, with the same
end. Points between a deed and its being written down have names too:

    measuring    the run of the iteration starts, or goes on
    measured     its run is complete, and its score not written down yet
    deciding     the stop rules are asked
    refining     a better prompt is asked for and tried
    reviewing    a suggestion is stored, and waits for a person or to be taken by itself
    committing   it is to be put on the branch of the loop (only with --auto-approve)
    committed    the branch has it, and the results do not say so yet
    confirming   the best prompt meets the first one, on the cases that nobody learned from
    confirmed    they are measured, and it is not written down yet
    reporting    the final report is to be written
    written      its files are there, and the loop not marked as done yet
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
from edison_ci.forge.models import Change
from edison_ci.forge.plain import PlainGit
from edison_ci.loop.final import best_of, write_final
from edison_ci.refine.candidate import change_of
from edison_ci.refine.evidence import evidence_of, split_cases
from edison_ci.refine.patch import diff_of
from edison_ci.refine.refining import Orders, refine
from edison_ci.refine.trying import out_of_budget
from edison_ci.refine.weaknesses import aside_in
from edison_ci.report.proposal import message_of, title_of
from edison_ci.review.deciding import overtaken
from edison_ci.review.desk import needs_repository
from edison_ci.review.refined import refined
from edison_ci.review.ways import current_branch
from edison_ci.stats.convergence import converged
from edison_ci.store.database import changing, open_reader
from edison_ci.store.loops import (
    TRIGGER,
    Iteration,
    Point,
    iterations_of,
    mean_score,
    move_loop,
    unfinished_run,
    write_iteration,
)
from edison_ci.store.runs import find_run, move_run
from edison_ci.store.suggestions import Status, find_suggestion

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from typing import Any

    from edison_ci.execute.run_options import Ended
    from edison_ci.loop.final import Final
    from edison_ci.loop.place import Place
    from edison_ci.store.loops import Loop
    from edison_ci.store.runs import Run
    from edison_ci.store.suggestions import Suggestion

logger = logging.getLogger(__name__)
_MEASURED = ("REFINING", "REVIEWING", "COMPLETED")
_WITH_RUN = (Point.DECIDING, Point.REFINING, Point.REVIEWING)
"""Points at which the run of the iteration is not over, so that somebody can cancel it."""
_WANTED = (Status.PROPOSED, Status.APPROVED, Status.APPLIED)
"""What may become the next version; one that is applied already is so on another branch."""
_GONE = (Status.REJECTED, Status.SUPERSEDED)


def arrive(point: str) -> None:
    """Pass a named point."""
    logger.debug("loop", extra={"point": str(point)})


class Looper:
    """Goes on with a loop, point by point."""

    def __init__(self, place: Place, loop: Loop) -> None:
        self.loop = loop
        self.final: Final | None = None
        """The final report, once it is written."""
        self._place = place
        self._steps = {
            Point.MEASURING: self._measure,
            Point.DECIDING: self._decide,
            Point.REFINING: self._refine,
            Point.REVIEWING: self._review,
            Point.COMMITTING: self._commit,
            Point.CONFIRMING: self._confirm,
            Point.REPORTING: self._report,
        }

    def go_on(self) -> bool:
        """Go on until it is done; False if it waits for a person before."""
        try:
            while self.loop.point is not Point.DONE:
                arrive(self.loop.point)
                if self.loop.point in _WITH_RUN and self._cancelled():
                    self._end("cancelled")
                    continue
                before = self.loop.point
                self._steps[before]()
                if self.loop.point is before is Point.REVIEWING:
                    return False
        except OutOfBudget:
            self._tell_what_there_is()
            raise
        return True

    # --- measuring --------------------------------------------------------------------------------

    def _measure(self) -> None:
        iteration = self.iterations()[-1]
        self._place.on_step(f"iteration {iteration.number}: measuring {iteration.version[:8]}")
        run_id = self._measured(iteration)
        arrive("measured")
        subject = self._place.at(iteration.text)
        train = split_cases(subject)[0] - aside_in(subject)
        with changing(self._place.results) as connection:
            score, cases = mean_score(connection, run_id, train)
            simulated = find_run(connection, run_id).simulated
            told = iteration._replace(run_id=run_id, score=score, cases=cases)
            write_iteration(connection, self.loop, told)
            self._to(connection, Point.DECIDING, simulated=self.loop.simulated or simulated)

    def _measured(self, iteration: Iteration) -> str:
        """Return the run of an iteration, started or gone on with if need be."""
        place = self._place
        with closing(open_reader(place.results)) as reader:
            known = unfinished_run(reader, self.loop)
            run = None if known is None else find_run(reader, known)
        if run is not None and run.status in _MEASURED:
            return run.id
        subject = place.at(iteration.text)
        options = RunOptions() if run is None else options_of(run)
        elsewhere = iteration.text != place.subject.text
        options = replace(
            options,
            trigger=TRIGGER,
            refines=True,
            elsewhere=elsewhere,
            allow_code=place.allow_code,
        )
        with place.tools(self.loop) as tools:
            session = Session(place.project, subject.experiment, tools)
            ended = session.run(options) if run is None else self._resumed(session, run, options)
        if ended.status != "COMPLETED":
            self._stopped(ended)
        return ended.run_id

    def _resumed(self, session: Session, run: Run, options: RunOptions) -> Ended:
        try:
            return session.resume(run, options)
        except UsageError as error:  # the files changed since
            again = f"edison loop {self.loop.experiment} --restart"
            error.hint = f"put the files back, or leave this loop behind: {again}"
            raise

    def _stopped(self, ended: Ended) -> None:
        name = self.loop.experiment
        if ended.exit_code is ExitCode.BUDGET:
            raise out_of_budget(str(ended.progress.stopped_by))
        if ended.status == "FAILED":
            why = "; ".join(f"{who}: {reason}" for who, reason in ended.progress.closed.items())
            raise CallFailed(
                f"{name} could not be measured: {why or 'too many errors'}",
                hint=f"see: edison models test; then: edison loop {name}",
            )
        raise Interrupted("stopped", hint=f"go on with: edison loop {name}")

    # --- deciding ---------------------------------------------------------------------------------

    def _decide(self) -> None:
        iterations = self.iterations()
        scores = [one.score for one in iterations]
        stop = self._place.stop
        if scores[-1] is None:
            self._end("not_measured")
            return
        known = [score for score in scores if score is not None]
        if converged(known, min_delta=stop.min_delta, window=stop.window).value:
            self._end("converged")
        elif len(iterations) >= self.loop.max_iterations:
            self._end("max_iterations")
        else:
            with changing(self._place.results) as connection:
                self._to(connection, Point.REFINING)

    def _end(self, rule: str) -> None:
        with changing(self._place.results) as connection:
            self._run_to(connection, "COMPLETED")
            self._to(connection, Point.CONFIRMING, stopped_by=rule, suggestion=None)

    # --- refining ---------------------------------------------------------------------------------

    def _refine(self) -> None:
        place, iteration = self._place, self.iterations()[-1]
        if iteration.number >= self.loop.max_iterations:  # somebody wants fewer by now
            self._end("max_iterations")
            return
        subject = place.at(iteration.text)
        orders = Orders(
            place.candidates,
            on_step=place.on_step,
            audit=lambda made: place.audit(subject, made),
            on_kept=self._kept,
        )
        found = refine(place.bench(self.loop, subject), place.refiner, orders)
        if not found.weakness.targets:
            self._end("no_weakness")

    def _kept(self, connection: sqlite3.Connection, made: Sequence[Suggestion]) -> None:
        """Write down what follows from suggestions, together with them."""
        chosen = next((one for one in made if one.status in _WANTED), None)
        if chosen is not None:
            self._run_to(connection, "REVIEWING")
            simulated = self.loop.simulated or chosen.simulated
            self._to(connection, Point.REVIEWING, suggestion=chosen.id, simulated=simulated)
        elif self._place.stop.stop_if_no_refinement:
            self._run_to(connection, "COMPLETED")
            self._to(connection, Point.CONFIRMING, stopped_by="no_refinement")
        else:
            last = iterations_of(connection, self.loop)[-1]
            self._next(connection, last.text, last.version, None)

    # --- reviewing --------------------------------------------------------------------------------

    def _review(self) -> None:
        if self.loop.mode == "auto":
            with changing(self._place.results) as connection:
                self._to(connection, Point.COMMITTING)
            return
        now, last, one = self._place.subject, self.iterations()[-1], self.suggestion()
        with changing(self._place.results) as connection:
            if now.prompt.version != last.version:
                made = one.id if now.prompt.version == one.new_hash else None
                self._next(connection, now.text, now.prompt.version, made)
            elif one.status in _GONE:
                self._run_to(connection, "PAUSED")
                self._run_to(connection, "REFINING")
                self._to(connection, Point.REFINING, suggestion=None)

    def _commit(self) -> None:
        """Put the suggestion on the branch of the loop, from objects: no file here changes."""
        place, desk, one = self._place, self._place.desk, self.suggestion()
        last, repository = self.iterations()[-1], needs_repository(self._place.desk)
        after = refined(place.project, one, last.text.encode("utf-8", "surrogatepass"))
        assert self.loop.branch is not None, "a loop that commits has a branch"
        assert self.loop.base_commit is not None, "and what the branch starts from"
        change = Change(
            branch=self.loop.branch,
            base=current_branch(repository) or "HEAD",
            base_commit=self.loop.base_commit,
            files={desk.in_repository(one.path): after},
            key=one.hash,
            title=title_of(one),
            message=message_of(one),
        )
        commit, _ = asyncio.run(PlainGit(repository).put(change))
        arrive("committed")
        if one.status is not Status.APPLIED:
            changes = {"decided_by": place.actor.name, "decided_at": desk.site.now()}
            more = {"branch": self.loop.branch, "commit_id": commit}
            one = desk.move(place.actor, "loop approve", one, Status.APPLIED, **changes, **more)
        overtaken(desk, place.actor, one)
        place.on_step(f"took {one.id} as {commit[:8]} on {self.loop.branch}")
        with changing(place.results) as connection:
            text = after.decode("utf-8", "surrogatepass")
            self._next(connection, text, one.new_hash or "", one.id)

    # --- the end ----------------------------------------------------------------------------------

    def _confirm(self) -> None:
        evidence = self._first_against_best()
        arrive("confirmed")
        with changing(self._place.results) as connection:
            self._to(connection, Point.REPORTING, evidence=evidence)

    def _first_against_best(self) -> dict[str, Any]:
        """Return what the best prompt shows against the first one; nothing if it is that one."""
        place, iterations = self._place, self.iterations()
        first, best = iterations[0], best_of(iterations)
        if best.version == first.version:
            return {}
        place.on_step(f"confirming: {best.version[:8]} against {first.version[:8]}, on all cases")
        subject = place.at(first.text)
        change = change_of(subject, diff_of(subject.prompt.path, first.text, best.text))
        if change.experiment is None:
            return {"doubt": "the best prompt is no longer valid in this project"}
        tried = place.bench(self.loop, subject).try_out(change)
        with closing(open_reader(place.results)) as reader:
            return evidence_of(reader, change, tried.run_id).as_json()

    def _report(self) -> None:
        self.final = write_final(self._place, self.loop)
        arrive("written")
        with changing(self._place.results) as connection:
            self._to(connection, Point.DONE, finished_at=self._place.desk.site.now())

    def _tell_what_there_is(self) -> None:
        """Write the report of a loop that a budget stopped; it can go on where it is."""
        if not any(one.score is not None for one in self.iterations()):
            return
        try:
            evidence = self._first_against_best()
        except OutOfBudget:
            evidence = {"doubt": "there was no budget left to measure it"}
        stopped = replace(self.loop, stopped_by="budget", evidence=evidence)
        self.final = write_final(self._place, stopped)

    # --- what is stored ---------------------------------------------------------------------------

    def iterations(self) -> list[Iteration]:
        """Return what was measured, and what is measured next."""
        with closing(open_reader(self._place.results)) as reader:
            return iterations_of(reader, self.loop)

    def suggestion(self) -> Suggestion:
        """Return what waits for a decision, or for its commit."""
        assert self.loop.suggestion is not None, "there is one at this point"
        with closing(open_reader(self._place.results)) as reader:
            return find_suggestion(reader, self.loop.suggestion)

    def _next(
        self, connection: sqlite3.Connection, text: str, version: str, made_by: str | None
    ) -> None:
        """Go on with another iteration."""
        self._run_to(connection, "COMPLETED")
        number = len(iterations_of(connection, self.loop)) + 1
        iteration = Iteration(number, version, text, suggestion=made_by)
        write_iteration(connection, self.loop, iteration)
        self._to(connection, Point.MEASURING, suggestion=None)

    def _to(self, connection: sqlite3.Connection, point: Point, **changes: Any) -> None:
        self.loop = move_loop(connection, self.loop, point, **changes)

    def _run_to(self, connection: sqlite3.Connection, status: str) -> None:
        """Move the run of the iteration, unless somebody has cancelled it."""
        run = self._last_run(connection)
        if run is not None and run.status not in (status, "COMPLETED", "CANCELLED"):
            now = self._place.desk.site.now()
            if run.status == "PAUSED" and status in ("COMPLETED", "REVIEWING"):
                move_run(run.id, "REFINING", now)(connection)
            move_run(run.id, status, now)(connection)

    def _cancelled(self) -> bool:
        with closing(open_reader(self._place.results)) as reader:
            run = self._last_run(reader)
        return run is not None and run.status == "CANCELLED"

    def _last_run(self, connection: sqlite3.Connection) -> Run | None:
        measured = [one.run_id for one in iterations_of(connection, self.loop) if one.run_id]
        return find_run(connection, measured[-1]) if measured else None
