"""What is told of runs when they end?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.cli.breakdown import quarantined_in
from edison_ci.cli.judges_said import judges_json, with_judges
from edison_ci.plugins import later
from edison_ci.results.decisions import GateRow, decisions_of, looks_json
from edison_ci.results.detailing import detailed
from edison_ci.results.run_result import RunSummary, as_json, summarize

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.execute.runner import Progress
    from edison_ci.results.weak_prompts import Rival
    from edison_ci.store.runs import Run


class Told(NamedTuple):
    """A run, what its gates said, and which of its prompts are shown to be worse."""

    summary: RunSummary
    rows: tuple[GateRow, ...]
    weak: tuple[Rival, ...]


def told_of(reader: sqlite3.Connection, run: Run) -> Told:
    """Return everything that is told of a run."""
    summary = with_judges(reader, summarize(reader, run))
    weak = _weak_prompts(reader, run) if len(summary.prompts) > 1 else ()
    return Told(summary, decisions_of(reader, run.id), weak)


# Loaded late: a run of one prompt has no rivals to compare.
_weak_prompts = later("edison_ci.results.weak_prompts:weak_prompts")


def document(
    told: list[Told], code: int, lanes: Sequence[Progress] = (), dropped: Sequence[str] = ()
) -> dict[str, Any]:
    """Return runs as `run`, `resume` and `status RUN` print them in JSON.

    Whoever ran them knows which models were given up and which did not answer in the end, and what
    was not run at all although the base gates it.
    """
    verdicts = {one.summary.run.verdict for one in told} | ({"inconclusive"} if dropped else set())
    order = ("error", "fail", "inconclusive", "pass", "skipped")
    verdict = next((v for v in order if v in verdicts), None if verdicts else "skipped")
    runs = [
        {
            **detailed(as_json(one.summary, one.rows), one.summary.breakdown),
            "quarantined": quarantined_in(one.summary),
            "looks": looks_json(one.rows),
            "weak_prompts": [rival.as_json() for rival in one.weak],
            **judges_json(one.summary),
        }
        for one in told
    ]
    for run, progress in zip(runs, lanes, strict=False):
        run["lanes"] = {"stopped": progress.closed, "waiting": progress.waiting}
    return {"verdict": verdict, "exit_code": code, "dropped": [*dropped], "runs": runs}
