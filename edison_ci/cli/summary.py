"""How does a finished run look on a terminal?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.cli.breakdown import show_breakdown, spread_of
from edison_ci.cli.judges_said import show_judges
from edison_ci.cli.people import show_people
from edison_ci.cli.progress import dollars, span
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, aligned, counted
from edison_ci.formatting import milliseconds, points, rate, signed_span
from edison_ci.names import commit_names
from edison_ci.results.decisions import stopped_sentence
from edison_ci.results.snapshot import UNDECIDED, is_redacted, kept_snapshot, material_of
from edison_ci.rounding import fixed, snap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.execute.runner import Progress
    from edison_ci.results.decisions import GateRow
    from edison_ci.results.rollups import PartTotal
    from edison_ci.results.run_result import RunResult
    from edison_ci.results.scores import Scored
    from edison_ci.results.weak_prompts import Rival
    from edison_ci.store.runs import Run

_BUDGET = "budget: "
_CENT = 10_000
_ODD_STATUSES = ("malformed", "blocked", "error")
STATUS_COLORS = {"COMPLETED": GOOD, "FAILED": BAD}


def show_run(
    terminal: Terminal,
    summary: RunResult,
    progress: Progress | None = None,
    *,
    facets: bool = True,
) -> None:
    """Print what a run found, and what to type next."""
    run = summary.run
    _headline(terminal, run)
    _prompts(terminal, summary)
    for row in aligned(_score_rows(summary), right=frozenset({3})):
        terminal.result("  " + row)
    _parts(terminal, summary)
    show_breakdown(terminal, summary, facets=facets)
    _change(terminal, summary)
    show_judges(terminal, summary.judges)
    show_people(terminal, summary.people, points, rate)
    _counts(terminal, summary)
    _gates(terminal, summary.gates, summary.weak_prompts)
    if run.shard is not None:
        terminal.result(f"  {UNDECIDED}")
    closed = progress.closed if progress is not None else {}
    if progress is not None:
        _lanes(terminal, progress)
    terminal.result(f"  run {run.id}")
    for case, reason in summary.skips:
        terminal.result(f"  skipped {case}: {reason}")
    if run.status == "PAUSED" and str(run.stopped_by).startswith(_BUDGET):
        terminal.note(
            "A call is booked at its worst price, max_tokens long, before it is sent, and the next "
            "one does not fit."
        )
    if run.status in ("PAUSED", "FAILED"):
        other = f"; with another judge: edison regrade {run.id}" if "judges" in closed else ""
        if progress is not None and progress.silent:
            terminal.note("See what is wrong with: edison models test")
        terminal.note(f"{how_to_go_on(summary)}{other}")


def _lanes(terminal: Terminal, progress: Progress) -> None:
    """Print which models were given up, and which were waited for in the end."""
    for lane, reason in progress.closed.items():
        terminal.result("  ", Ink(f"{lane} stopped: ", BAD), reason)
    for model, reason in progress.waiting.items():
        terminal.result("  ", Ink(f"{model} did not answer: ", ODD), reason)


def how_to_go_on(summary: RunResult) -> str:
    """Say how a run goes on; one that a budget stopped would stop again as it is."""
    run = summary.run
    resume, anew = f"edison resume {run.id}", f"edison run {run.experiment}"
    stopped = str(run.stopped_by)
    budget = stopped.removeprefix(_BUDGET) if stopped.startswith(_BUDGET) else ""
    if run.status != "PAUSED" or not budget:
        return f"Go on with: {resume}"
    if budget == "--budget":
        chosen = kept_snapshot(run).get("command line", {}).get("budget_microusd") or 0
        more = 2 * max(chosen, summary.cost_microusd, _CENT)
        return f"Go on with a larger budget: {resume} --budget {fixed(more / 1e6, 2)}"
    if budget == "stop.daily_budget_usd":
        return f"Go on tomorrow (UTC) with: {resume}; or raise {budget}, then: {anew}"
    if budget.startswith("settings."):
        return f"Raise {budget} in edison.yaml, then go on with: {resume}"
    # What an experiment says belongs to the plan of a run, which goes on as it was planned.
    return f"Raise {budget}, then: {anew} (what was answered is reused)"


def _headline(terminal: Terminal, run: Run) -> None:
    """Print what ran, how it ended, and what keeps it from being evidence."""
    stopped = f" ({run.stopped_by})" if run.stopped_by and run.status != "COMPLETED" else ""
    marks = {
        "simulated": run.simulated,
        "personal data redacted": is_redacted(run),
        "replayed": run.trigger == "replay",
        f"shard {run.shard}": run.shard is not None,
        "part of the cases": run.partial and run.shard is None,
        f"on the material of {_base(run)[0]}": material_of(run) == "base",
    }
    terminal.result(
        Ink(run.experiment, bold=True),
        "  ",
        Ink(run.status, STATUS_COLORS.get(run.status, ODD)),
        stopped,
        *(Ink(f"  {mark}", ODD) for mark, on in marks.items() if on),
    )


def _base(run: Run) -> tuple[str, ...]:
    """Return how the base of a run is called."""
    return commit_names(str(run.base_ref), str(run.base_commit))


def _gates(terminal: Terminal, rows: Sequence[GateRow], weak: Sequence[Rival]) -> None:
    """Print what the gates said, each with what it is about, and which prompts fall behind."""
    prompts = len({row.prompt for row in rows if row.prompt}) > 1
    models = len({row.model for row in rows if row.model}) > 1
    for row in rows:
        color = {"pass": GOOD, "fail": BAD}.get(row.verdict, ODD)
        about = row.metric + (f" of {row.prompt}" if prompts and row.prompt else "")
        about += f" with {row.model}" if models and row.model else ""
        terminal.result("  ", Ink(row.word, color), f"  {about}: {row.sentence}")
    if sentence := stopped_sentence(rows):
        terminal.result(f"  {sentence}")
    for rival in weak:
        terminal.result(f"  {rival.sentence}")


def _change(terminal: Terminal, summary: RunResult) -> None:
    run, found = summary.run, summary.against
    if found is None or run.base_commit is None:
        return
    at = " at ".join(_base(run))
    if found.estimate is None:
        terminal.result(f"  nothing to compare with at {at}")
        return
    change = f"{fixed(100 * found.estimate, 1, signed=True)} points"
    if snap(found.estimate) == 0 and found.p == 1:
        change = "no difference on any case"
    elif found.low is not None and found.high is not None:
        change += f" ({signed_span(found.low, found.high)})"
    terminal.result(
        f"  {change} against {at}, which has {points(found.composite)}; "
        f"{counted(found.n, 'case')} in common"
    )


def _prompts(terminal: Terminal, summary: RunResult) -> None:
    told = []
    for prompt, version in summary.prompts:
        label, known = summary.run.labels.get(prompt, ""), version[:8]
        told.append(f"{prompt} {label}" if known in label else f"{prompt} {label} ({known})")
    if told:
        terminal.result(f"  {', '.join(told)}")


def _score_rows(summary: RunResult) -> list[tuple[str, ...]]:
    several = len(summary.prompts) > 1
    rows: list[tuple[str, ...]] = [("", "score", "passed", "cost", "latency")]
    for scored in summary.models:
        name = f"{scored.prompt} with {scored.model}" if several else scored.model
        rows.append((name, *_numbers(scored)))
    others = summary.cost_microusd - sum(scored.cost_microusd for scored in summary.models)
    if others > 0:
        rows.append(("judging", "", "", dollars(others), ""))
    if len(rows) > 2:
        rows.append(("all", *_numbers(summary.overall, cost=spent(summary))))
    return rows if len(rows) > 1 else [("nothing was graded",)]


def _numbers(scored: Scored, *, cost: str = "") -> tuple[str, ...]:
    return (
        points(scored.composite),
        rate(scored.pass_rate),
        cost or dollars(scored.cost_microusd),
        milliseconds(scored.p50_ms, scored.p95_ms),
    )


def spent(summary: RunResult) -> str:
    """Return what a run cost, marked where some of it is not known for sure."""
    calls = summary.calls
    about = "~" if calls["unknown"] or calls["estimated"] or summary.run.moving else ""
    return f"{about}{dollars(summary.cost_microusd)}"


def _parts(terminal: Terminal, summary: RunResult) -> None:
    """Print the parts that somebody might want to look at: those that not all answers pass."""
    weak = [part for part in summary.parts if part.passed < part.graded or part.errors]
    rows = [_part_row(part) for part in weak if part.kind != "criterion"]
    criteria = [part for part in summary.parts if part.kind == "criterion"]
    rows += [
        (
            f"criterion {p.name}",
            "-" if p.mean is None else f"mean {fixed(100 * p.mean, 1)}",
            spread_of(summary.breakdown.parts, p.name, p.kind),
            _errors(p),
        )
        for p in criteria
    ]
    for row in aligned(rows) if rows else ():
        terminal.result("    " + row)


def _part_row(part: PartTotal) -> tuple[str, ...]:
    failed = f"{part.graded - part.passed:,} of {part.graded:,} fail" if part.graded else "-"
    if part.kind in ("safety", "flag"):
        flagged = part.graded - part.blocked
        told = ((flagged, "flagged"), (part.blocked, "blocked"))
        failed = ", ".join(f"{count:,} {word}" for count, word in told if count)
    return (f"{part.kind} {part.name}", failed, "", _errors(part))


def _errors(part: PartTotal) -> str:
    return f"{part.errors:,} could not be graded" if part.errors else ""


def _counts(terminal: Terminal, summary: RunResult) -> None:
    done = {name: count for name, count in summary.cells.items() if count and name != "total"}
    asked = sum(done.values()) - done.get("skipped", 0)
    counts = ", ".join(
        f"{count:,} {name}"
        + (f" ({fixed(100 * count / asked, 1)}%)" if name in _ODD_STATUSES else "")
        for name, count in done.items()
    )
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in summary.error_kinds.items())
    errors = f" ({kinds})" if kinds else ""
    cells = counted(summary.cells["total"], "cell")
    terminal.result(f"  {cells}: {counts or 'none done'}{errors}")
    calls = summary.calls
    retried = f", {calls['retried']:,} retried" if calls["retried"] else ""
    unknown = f", {calls['unknown']:,} of unknown fate" if calls["unknown"] else ""
    seconds = f" in {span(summary.wall_s)}" if summary.wall_s is not None else ""
    terminal.result(
        f"  {counted(calls['made'], 'call')} made, {calls['reused']:,} reused{retried}{unknown}; "
        f"{spent(summary)}{seconds}"
    )
