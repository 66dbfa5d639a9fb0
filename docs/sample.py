"""Makes a small results file with the library itself, the same each time: for pages and tests."""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edison_ci.records import CellStatus, Completion, FinishReason, RunStatus, Side
from edison_ci.results.rollups import write_rollups
from edison_ci.results.scores import VariantScore
from edison_ci.results.slices import slices_of
from edison_ci.stats.scores import Interval
from edison_ci.store.answers import CachedAnswer, Settlement
from edison_ci.store.audit import AuditEntry, add_audit
from edison_ci.store.cells import CaseFacts, CellRow, Component, finish_cells
from edison_ci.store.database import open_database
from edison_ci.store.ledger import Booking, Reservation, lose, release, reserve, settle
from edison_ci.store.runs import NewRun, move_run, start_run

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

EXPERIMENT = "support-reply"
ANSWERS = {
    ("late-parcel", "small"): ("Sorry for the delay! Your parcel arrives on Friday.", 0.9),
    ("late-parcel", "large"): ("We are sorry; your parcel arrives on Friday.", 0.95),
    ("refund", "small"): ("No.", 0.2),
    ("refund", "large"): ("Your refund is on its way.", 0.8),
}
"""What each model says in each case, and what that is worth."""
FACTS = {
    "late-parcel": CaseFacts('["shipping"]', 1, "golden", 12),
    "refund": CaseFacts('["money"]', 4, "golden", 8),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """Writes runs to an open results file."""

    connection: sqlite3.Connection
    experiment: str = EXPERIMENT

    def run(self, run_id: str, time: str, *, complete: bool = True, reuse: bool = True) -> None:
        """Write a run of two cases with two models."""
        start_run(
            NewRun(
                id=run_id,
                experiment=self.experiment,
                trigger="cli",
                plan_hash="41a9f4ee",
                snapshot="{}",
                labels={"support-reply": "v1"},
                cells_planned=len(ANSWERS),
                simulated=False,
                partial=False,
                owner="1-sample",
                now=time,
            )
        )(self.connection)
        self._move(run_id, "EXECUTING", time)
        cells = list(ANSWERS) if complete else list(ANSWERS)[:2]
        for case, model in cells:
            self._cell(run_id, case, model, time, reuse=reuse)
        for status in ("JUDGING", "AGGREGATING", "COMPLETED") if complete else ("PAUSED",):
            self._move(run_id, status, time, complete=status == "COMPLETED")
        self.sum_up(run_id)

    def sum_up(self, run_id: str) -> None:
        """Write the sums of a run."""
        slices = slices_of(self.connection, run_id)
        write_rollups(run_id, scores=[_score()], slices=slices)(self.connection)

    def _move(self, run_id: str, status: str, time: str, **changes: object) -> None:
        move_run(run_id, RunStatus(status), time, **changes)(self.connection)

    def _cell(self, run_id: str, case: str, model: str, time: str, *, reuse: bool) -> None:
        text, score = ANSWERS[case, model]
        booking = self.booking(run_id, case, model, time, reuse=reuse)
        answer_no = self.bought(booking, text)
        good = score >= 0.5
        self.finish(
            CellRow(
                id=hashlib.sha256(f"{run_id}{case}{model}".encode()).hexdigest()[:12],
                run_id=run_id,
                side=Side.HEAD,
                prompt="support-reply",
                version="da045f29",
                model=model,
                case_id=case,
                repeat=0,
                request_hash=booking.request_hash,
                answer_no=answer_no,
                status=CellStatus.OK,
                composite=score,
                passed=good,
                facts=FACTS[case],
                components=(
                    Component(
                        "polite",
                        "check",
                        score,
                        good,
                        0.5,
                        CellStatus.OK,
                        "" if good else "'sorry'?",
                    ),
                    Component(
                        "Empathy",
                        "criterion",
                        score,
                        good,
                        0.5,
                        CellStatus.OK,
                        "as the rubric says",
                    ),
                ),
            )
        )

    def finish(self, cell: CellRow) -> None:
        """Write a finished cell."""
        finish_cells([cell])(self.connection)

    def booking(
        self, run_id: str, case: str, model: str, time: str, *, reuse: bool = True
    ) -> Booking:
        """Return a call of a run."""
        return Booking(
            request_hash=hashlib.sha256(f"{case}{model}".encode()).hexdigest(),
            run_id=run_id,
            model=model,
            phase="generate",
            est_microusd=900,
            est_tokens=300,
            owner="1-sample",
            now=time,
            scopes=(f"run:{run_id}", f"experiment:{self.experiment}", "project"),
            newer_than="" if reuse else None,
        )

    def bought(self, booking: Booking, text: str) -> int:
        """Make a call, or take its stored answer; return its number."""
        outcome = reserve(booking)(self.connection)
        if isinstance(outcome, CachedAnswer):
            return outcome.answer_no
        assert isinstance(outcome, Reservation)
        price, words = (10 if booking.model == "large" else 2), len(text.split())
        completion = Completion(
            text,
            FinishReason.STOP,
            tokens_in=40,
            tokens_out=words,
            latency_ms=100 * price + words,
            served_model=f"{booking.model}-2026",
        )
        cost = price * (40 + words)
        return settle(
            booking, outcome.attempt, Settlement(completion, cost, "billed", booking.now)
        )(self.connection)

    def failed(self, booking: Booking, *, charged: bool) -> None:
        """Make a call that fails."""
        outcome = reserve(booking)(self.connection)
        assert isinstance(outcome, Reservation)
        close = release(booking, outcome.attempt, now=booking.now, error="connection refused")
        if charged:
            close = lose(outcome.attempt, now=booking.now, error="connection reset")
        close(self.connection)


def build(path: Path) -> None:
    """Make a file with two runs, a call that was lost, one that was refused, and an audit."""
    with closing(open_database(path)) as connection:
        connection.execute("begin immediate")
        sample = Sample(connection)
        sample.run("20261114T090000-aaaaaa", "2026-11-14T09:00:00Z")
        sample.run("20261115T090000-bbbbbb", "2026-11-15T09:00:00Z")
        late = "2026-11-15T09:00:01Z"
        call = sample.booking("20261115T090000-bbbbbb", "parrot", "small", late)
        sample.failed(call, charged=True)
        sample.failed(call, charged=False)
        sample.sum_up("20261115T090000-bbbbbb")
        add_audit(
            connection,
            AuditEntry(late, "ada@example.com", "git", "db upgrade", "results", 0, 1, host="desk"),
        )
        connection.execute("commit")


def _score() -> VariantScore:
    return VariantScore("", "", Interval(0.7125, 0.31, 0.94, 4, "effective-n Wilson"), None)
