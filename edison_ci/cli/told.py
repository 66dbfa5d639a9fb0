"""The JSON document of runs that `run`, `resume`, `merge`, `regrade` and `status RUN` print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.results.run_document import run_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.execute.runner import Progress
    from edison_ci.results.run_result import RunResult


def document(
    results: Sequence[RunResult],
    code: int,
    lanes: Sequence[Progress] = (),
    dropped: Sequence[str] = (),
) -> dict[str, Any]:
    """Return runs as commands print them in JSON.

    Whoever ran them knows which models were given up and which did not answer in the end, and what
    was not run at all although the base gates it.
    """
    verdicts = {one.run.verdict for one in results} | ({"inconclusive"} if dropped else set())
    order = ("error", "fail", "inconclusive", "pass", "skipped")
    verdict = next((v for v in order if v in verdicts), None if verdicts else "skipped")
    runs = [run_document(one) for one in results]
    for run, progress in zip(runs, lanes, strict=False):
        run["lanes"] = {"stopped": progress.closed, "waiting": progress.waiting}
    return {"verdict": verdict, "exit_code": code, "dropped": [*dropped], "runs": runs}
