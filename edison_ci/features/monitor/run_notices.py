"""Notices about a run: how it ended, and budgets that are nearly used up.

The functions are called in the transaction that stores the fact, so that a process that is killed
leaves either both or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.api.notices import Notice
from edison_ci.decide import recommendation
from edison_ci.features.monitor.notifications import notify, recipients
from edison_ci.numeric import dollars, fixed
from edison_ci.records import RunStatus, Verdict
from edison_ci.results.run_result import RunResult
from edison_ci.results.run_sentences import headline_of
from edison_ci.results.trends import drift_of, points_of
from edison_ci.store.runs import TRIAL, find_run, was_budget_alerted

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.access.site import Site
    from edison_ci.store.ledger import SpendingCap

_GATES = 5
_RUNS = 100
"""Newest runs that a decline is looked for in."""


def note_end(connection: sqlite3.Connection, site: Site, run_id: str) -> None:
    """Write the notice that a run has ended; trials and the runs of a loop have none."""
    run = find_run(connection, run_id)
    if run.trigger == TRIAL or run.loop is not None or run.shard is not None:
        return
    ended = run.status in (RunStatus.COMPLETED, RunStatus.FAILED)
    by_budget = run.status is RunStatus.PAUSED and str(run.stopped_by).startswith("budget")
    if not (ended or by_budget):
        return
    result = RunResult(connection, run)
    headline = headline_of(result)
    sentences = [headline.sentence]
    failed = [row for row in result.gates if row.verdict == Verdict.FAIL]
    sentences += [row.sentence for row in failed[:_GATES]]
    sentences += [used.sentence for used in result.fallbacks]
    if ended:
        sentences.append(f"It cost {dollars(result.cost_microusd)}.")
    if run.scheduled and run.status is RunStatus.COMPLETED and recipients(site):
        sentences += _supported(connection, run.experiment)
    bad = by_budget or run.status is RunStatus.FAILED or run.verdict == Verdict.FAIL
    if by_budget:
        sentences.append(f"Raise the budget, then continue it: edison resume {run.id}")
    elif run.status is RunStatus.FAILED:
        sentences.append(f"Ask again for what is missing: edison resume {run.id}")
    mark = ", with a regression" if headline.amber else ""
    mark += f" ({run.simulation})" if run.simulation else ""
    notice = Notice(
        "budget" if by_budget else "run_failed" if bad else "run_completed",
        f"{run.experiment}: {_outcome(run.status, run.verdict, by_budget=by_budget)}{mark}",
        tuple(sentences),
        run.experiment,
        run.id,
        level="alert" if run.status is RunStatus.FAILED else "warn" if bad else "info",
        also=("run_completed",) if run.status is RunStatus.COMPLETED else (),
    )
    notify(connection, site, notice)


def _supported(connection: sqlite3.Connection, experiment: str) -> list[str]:
    """Return what the runs of an experiment support, for those who only read the notice."""
    drift = drift_of(connection, points_of(connection, experiment, most=_RUNS))
    advice = recommendation.advice_on(connection, None, experiment)
    return [finding.sentence for finding in recommendation.findings_of(advice, drift)]


def _outcome(status: RunStatus, verdict: Verdict | None, *, by_budget: bool) -> str:
    if by_budget:
        return "stopped by a budget"
    if status is RunStatus.FAILED:
        return "could not be measured"
    return {
        Verdict.PASS: "passed",
        Verdict.FAIL: "a gate failed",
        Verdict.INCONCLUSIVE: "not decided",
    }.get(verdict or Verdict.SKIPPED, "done")


def note_budget(
    connection: sqlite3.Connection, site: Site, run_id: str, cap: SpendingCap, used: float
) -> None:
    """Write the notice that a budget is nearly used up, once a day if several runs share it."""
    run = find_run(connection, run_id)
    today = site.now()[:10]
    if cap.days is not None and was_budget_alerted(connection, run, cap, since=today):
        return
    notice = Notice(
        "budget",
        f"{run.experiment}: {fixed(100 * used)}% of {cap.name} is used",
        (
            "At 100% its runs stop; their answers are kept. Continue with: edison resume",
            "See what was spent: edison costs",
        ),
        run.experiment,
        run.id,
        level="warn",
    )
    notify(connection, site, notice)
