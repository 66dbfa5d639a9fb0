"""The one sentence about a run: what it found, against what, and how the gates decided.

The terminal ends with it, the comment on a pull request begins with it, and so does a run's page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.git import repository as git
from edison_ci.numeric import counted, fixed, points, signed_span, snap
from edison_ci.records import RunStatus, Verdict

if TYPE_CHECKING:
    from edison_ci.results.run_result import RunResult

_SIGNIFICANT = 0.05


class Headline(NamedTuple):
    """The verdict on a run, and the sentence that says why."""

    verdict: str
    """In capitals, such as FAIL; DONE for a run without a verdict, STOPPED for a part of one."""
    sentence: str

    def __str__(self) -> str:
        return f"{self.verdict}: {self.sentence}"


def headline_of(result: RunResult) -> Headline:
    """Return the headline of a run."""
    run = result.run
    if run.status not in (RunStatus.COMPLETED, RunStatus.REFINING, RunStatus.REVIEWING):
        why = f": {run.stopped_by}" if run.stopped_by else ""
        done = sum(count for name, count in result.cells.items() if name != "total")
        said = f"{done:,} of {counted(result.cells['total'], 'cell')} are done"
        return Headline(
            "STOPPED" if run.status in (RunStatus.PAUSED, RunStatus.FAILED) else "RUNNING",
            f"{run.experiment} is {run.status.lower()}{why}; {said}.",
        )
    verdict = "DONE" if run.verdict is None else str(run.verdict).upper()
    return Headline(verdict, f"{_found(result)}.{_gates(result)}")


def _found(result: RunResult) -> str:
    """Return the change from the base, or the score where there is none."""
    run, against, triage = result.run, result.against, result.triage(most=0)
    if against is None or against.estimate is None or run.base_commit is None:
        said = f"{run.experiment} scores {points(result.overall.composite)}"
        if result.overall.composite is None:
            said = f"{run.experiment} has no score"
        fail = "" if triage is None else f", {triage.failing:,} of {triage.cases:,} cases fail"
        return said + fail
    base = git.commit_names(str(run.base_ref), run.base_commit)[0]
    change = f"{fixed(100 * against.estimate, 1, signed=True)} points"
    if against.low is not None and against.high is not None:
        change += f" ({signed_span(against.low, against.high)})"
    if snap(against.estimate) == 0 and against.p == 1:
        said = f"{run.experiment} scores the same as {base} on every case"
    elif _shown(against.p, against.low, against.high):
        word = "better" if against.estimate > 0 else "worse"
        said = f"{run.experiment} is {word} than {base}: {change}"
    else:
        said = f"{run.experiment} is not shown to differ from {base}: {change}"
    if triage is None or triage.flips is None:
        return said
    return f"{said}; {triage.flips.words} of {counted(triage.flips.n, 'case')}"


def _shown(p: float | None, low: float | None, high: float | None) -> bool:
    """Whether a change is significant."""
    if p is None or low is None or high is None:
        return False
    return p <= _SIGNIFICANT and (low > 0 or high < 0)


def _gates(result: RunResult) -> str:
    """Return which gates decided."""
    if result.run.verdict == Verdict.ERROR:
        return " Too few answers could be measured."
    for verdict, words in (
        (Verdict.FAIL, "Failed gates"),
        (Verdict.INCONCLUSIVE, "Gates without a decision yet"),
    ):
        names = dict.fromkeys(row.metric for row in result.gates if row.verdict == verdict)
        if names:
            return f" {words}: {', '.join(names)}."
    passed = sum(row.verdict == Verdict.PASS for row in result.gates)
    if not passed:
        return ""
    return " The gate passes." if passed == 1 else f" All {passed:,} gates that apply pass."
