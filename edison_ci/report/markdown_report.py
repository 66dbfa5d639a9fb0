"""The report as Markdown, whole or cut to the limit of a job summary.

The verdict comes first, then a changed eval suite, then each run: gates, scores, change from base,
changed cases, safety findings and limitations. It contains ids and scores, but no text of answers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from edison_ci.git.repository import commit_names
from edison_ci.numeric import (
    NOTHING,
    change,
    counted,
    dollars,
    milliseconds,
    points,
    rate,
    score,
)
from edison_ci.records import Move, Side, Verdict
from edison_ci.report.markdown import Limit, Section, Table, code, fit, prose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.results.comparison import MovedCase
    from edison_ci.results.leaderboard import LeaderboardRow
    from edison_ci.results.report import Report
    from edison_ci.results.rollups import ComponentTotal
    from edison_ci.results.run_result import Change, RunResult
    from edison_ci.results.slices import Slice


MOST_BYTES = 900_000
"""GitHub drops the whole summary of a step that is larger than 1 MiB."""
ICONS = {"pass": "✅", "fail": "❌", "error": "❌", "inconclusive": "⚠️", "skipped": "⏭️"}
DECISIONS = {
    "a_better": "worse",
    "b_better": "better",
    "same": "no practical difference",
    "unclear": "undecided",
}
"""Result of a comparison of base (A) and head (B), about head."""
_PASSES = {True: "yes", False: "no", None: NOTHING}


def markdown(report: Report) -> str:
    """Return the whole report as Markdown."""
    return fit(list(sections_of(report))).rstrip("\n") + "\n"


def job_summary(report: Report, *, used: int = 0) -> str:
    """Return the report for GITHUB_STEP_SUMMARY, of which `used` bytes are taken already."""
    limit = Limit(max(MOST_BYTES - used, 0), _bytes, "the artifacts of this run")
    return fit(list(sections_of(report)), limit).rstrip("\n") + "\n"


def _bytes(text: str) -> int:
    return len(text.encode())


def headline(verdict: str | None) -> str:
    """Return the verdict as a heading."""
    return f"## {ICONS.get(verdict or '', '⏳')} edison: {verdict or 'not finished'}"


def sections_of(report: Report) -> Iterator[Section]:
    """Yield the sections of the report, the most important first."""
    yield Section(headline(report.verdict), tuple(_opening(report)))
    if report.plans:
        yield _planned(report)
    for view in report.runs:
        if view.eval_suite:
            yield _eval_suite(view)
    for view in report.runs:
        yield from _run(view)


def _opening(report: Report) -> Iterator[str]:
    if report.doubts:
        reasons = "\n".join(f"- {prose(sentence)}" for sentence in report.doubts)
        yield f"**⚠️ This cannot pass, regardless of the scores:**\n\n{reasons}"
    if report.failure:
        yield prose(report.failure)
    if report.undecided:
        yield prose(report.undecided)
    if (simulation := report.simulation) is not None:
        yield f"> **{simulation.label}.** {simulation.sentence}"
    if not report.runs and report.verdict == Verdict.SKIPPED:
        yield "No experiment is affected, so nothing was run."
    if len(report.runs) > 1:
        verdicts = Counter(view.run.verdict or "not finished" for view in report.runs)
        counts = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.items())
        yield f"{len(report.runs):,} runs: {counts}. The worst verdict counts."


def _planned(report: Report) -> Section:
    rows = tuple(
        (
            code(one.experiment),
            f"{one.cases:,}",
            f"{one.cells:,}",
            f"{one.calls:,}",
            NOTHING
            if one.cost_microusd is None
            else f"{code(dollars(one.cost_microusd[0]))} to {code(dollars(one.cost_microusd[1]))}",
        )
        for one in report.plans
    )
    text = "The files are valid. An evaluation would take:"
    return Section("", (text,), Table(("experiment", "cases", "cells", "calls", "cost"), rows))


def eval_suite_sentence(view: RunResult) -> str:
    """Return with which eval suite both sides were measured, as a sentence."""
    if view.twice:
        return "Both sides were measured with head's and with base's; the worse verdict counts."
    return "Both sides were measured with head's eval suite only."


def _eval_suite(view: RunResult) -> Section:
    how = eval_suite_sentence(view)
    text = f"**The eval suite of {code(view.run.experiment)} has changed.** {how}"
    rows = tuple((code(c.place), code(c.before), code(c.after)) for c in view.eval_suite)
    table = Table(("file", "base", "head"), rows)
    return Section("### ⚠️ Eval suite changed", (text,), table)


def _run(view: RunResult) -> Iterator[Section]:
    yield Section(_title(view), tuple(_facts(view)), _gates(view))
    yield Section("", (), _scores(view))
    if view.changes:
        yield Section("", (), _changes(view))
    if view.weak_prompts:
        yield Section("", tuple(f"⚠️ {prose(rival.sentence)}" for rival in view.weak_prompts))
    if view.on == "head":
        yield from _details(view)
    if view.missing:
        listed = "\n".join(f"- {prose(text)}" for text in view.missing)
        yield Section("", (f"**Limitations**\n\n{listed}",))


def _details(view: RunResult) -> Iterator[Section]:
    """Yield the details that are not repeated for the run with the base's eval suite."""
    yield from _changed_cases(view)
    slices = tuple(map(_slice_row, view.outstanding))
    if slices:
        table = Table(("slice", "prompt", "model", "cases", "score", "vs. others"), slices)
        yield Section("", (), table, fold="Slices that stand out")
    components = tuple(
        _component_row(component) for component in view.components if _is_listed(component)
    )
    if components:
        table = Table(("component", "mean", "failed", "not graded"), components)
        yield Section("", (), table, fold="Checks, criteria and graders")
    yield from _findings(view)


def _title(view: RunResult) -> str:
    verdict = view.run.verdict or "not finished"
    labels = "".join(f", {label}" for label in view.labels)
    on = ", with the base's eval suite" if view.on == "base" else ""
    return f"### {code(view.run.experiment)}: {verdict}{on}{labels}"


def _facts(view: RunResult) -> Iterator[str]:
    run = view.run
    for each in view.replaced:
        yield f"Compared with its predecessor: {prose(each)}."
    against = view.against
    if against is not None and run.base_commit is not None:
        at = " at ".join(map(code, commit_names(str(run.base_ref), run.base_commit)))
        if against.estimate is None:
            yield f"There is no comparable base at {at}."
        elif against.estimate == 0 and against.p == 1:
            yield f"No difference to {at} on any of {counted(against.n, 'case')}."
        else:
            moved = change(against.estimate, against.low, against.high)
            yield f"**{moved}** from {at}, on the same {counted(against.n, 'case')}."
    about = "~" if view.calls["unknown"] or run.moving else ""
    yield (
        f"Score {points(view.overall.composite)}, pass rate {rate(view.overall.pass_rate)}; "
        f"{counted(view.calls['made'], 'call')} made, {view.calls['reused']:,} reused, "
        f"{about}{code(dollars(view.cost_microusd))}; run {code(run.id)}."
    )


def _gates(view: RunResult) -> Table | None:
    rows = tuple(
        (
            f"{ICONS[row.verdict]} {row.verdict}",
            code(row.metric),
            code(row.prompt) if row.prompt else "all",
            code(row.model) if row.model else "all",
            prose(row.sentence),
        )
        for row in view.gates
    )
    return Table(("gate", "metric", "prompt", "model", "why"), rows) if rows else None


def _scores(view: RunResult) -> Table:
    head = ("prompt", "version", "model", "score", "pass rate", "cost per answer", "latency")
    return Table(head, tuple(_score_row(row) for row in view.variants))


def _score_row(row: LeaderboardRow) -> tuple[str, ...]:
    place = row.place
    label = "base" if place.side == Side.BASE else row.label or ""
    short = place.version[:8]
    names = [label] if short in label else [label, short]
    version = " ".join(code(name) for name in names if name)
    about = "~" if row.estimated else ""
    return (
        code(place.prompt),
        version,
        code(place.model),
        points(row.composite),
        rate(row.pass_rate),
        f"{about}{code(dollars(row.cost_microusd))}",
        milliseconds(row.p50_ms, row.p95_ms),
    )


def _changes(view: RunResult) -> Table:
    head = ("prompt", "model", "change", "decision", "cases", "fixed", "newly failing")
    return Table(head, tuple(_change_row(one) for one in view.changes))


def _change_row(one: Change) -> tuple[str, ...]:
    found = one.comparison
    low, high = found.interval or (None, None)
    more = f" (about {counted(found.n_more, 'more case')} needed)" if found.n_more else ""
    missing = f" ({found.missing:,} missing)" if found.missing else ""
    return (
        code(one.prompt),
        code(one.model),
        change(found.estimate, low, high),
        f"{DECISIONS[found.verdict]}{more}",
        f"{found.n:,}{missing}",
        f"{len(found.moved[Move.FIXED]):,}",
        f"{len(found.moved[Move.NEWLY_FAILING]):,}",
    )


def _changed_cases(view: RunResult) -> Iterator[Section]:
    for move in Move:
        rows = tuple(
            _case_row(one, moved) for one in view.changes for moved in one.comparison.moved[move]
        )
        if rows:
            table = Table(("case", "prompt", "model", "base", "head", "passes"), rows)
            yield Section("", (), table, fold=f"{counted(len(rows), 'case')} {move.words}")


def _case_row(one: Change, moved: MovedCase) -> tuple[str, ...]:
    before, after = (_PASSES[passed] for passed in moved.passed)
    passes = before if before == after else f"{before} to {after}"
    names = (code(moved.case), code(one.prompt), code(one.model))
    return (*names, score(moved.a), score(moved.b), passes)


def _slice_row(slice_: Slice) -> tuple[str, ...]:
    return (
        f"{slice_.dimension} {code(slice_.value)}",
        code(slice_.prompt) if slice_.prompt else "all",
        code(slice_.model) if slice_.model else "all",
        f"{slice_.cases:,}",
        score(slice_.composite.estimate),
        change(slice_.difference, None, None),
    )


def _is_listed(component: ComponentTotal) -> bool:
    return component.kind not in ("safety", "flag") and bool(component.answers or component.errors)


def _component_row(component: ComponentTotal) -> tuple[str, ...]:
    fails = NOTHING
    if component.failed is not None:
        fails = f"{component.failed:,} of {component.answers:,}"
    return (
        f"{component.kind} {code(component.name)}",
        score(component.mean),
        fails,
        f"{component.errors:,}",
    )


def _findings(view: RunResult) -> Iterator[Section]:
    if not view.findings:
        return
    rows = tuple(
        (
            code(found.kind),
            "blocked" if found.action == "block" else "flagged",
            "a screen" if found.by == "safety" else "a judge",
            code(found.case),
            code(found.prompt),
            code(found.model),
        )
        for found in view.findings
    )
    kinds = Counter(found.kind for found in view.findings)
    counts = ", ".join(f"{count:,} {code(kind)}" for kind, count in kinds.items())
    table = Table(("finding", "answer", "by", "case", "prompt", "model"), rows)
    fold = f"Safety: {counted(len(rows), 'finding')}"
    yield Section("", (f"Safety: {counts}.",), table, fold=fold)
