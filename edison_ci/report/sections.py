"""Sections of a report, in their order.

The verdict, then what it was measured with if that changed, then each run: its gates, its scores,
its change against the base, the cases that moved, what screens found, and what is missing. No text
of an answer is in it: ids and scores only.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from edison_ci.formatting import (
    NOTHING,
    change,
    counted,
    dollars,
    milliseconds,
    points,
    rate,
    score,
)
from edison_ci.names import commit_names
from edison_ci.report.layout import Section, Table
from edison_ci.report.safe_markdown import code, prose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.results.comparison import Moved
    from edison_ci.results.leaderboard import Standing as Measured
    from edison_ci.results.report import Report
    from edison_ci.results.rollups import PartTotal
    from edison_ci.results.run_result import Change, RunResult
    from edison_ci.results.slices import Facet

ICONS = {"pass": "✅", "fail": "❌", "error": "❌", "inconclusive": "⚠️", "skipped": "⏭️"}
WORDS = {
    "a_better": "worse",
    "b_better": "better",
    "same": "no practical difference",
    "unclear": "not yet known",
}
"""What a comparison of base (A) and head (B) says of head."""
_PASSES = {True: "yes", False: "no", None: NOTHING}
SIMULATED = (
    "> **Simulated**: answers and grades come from a simulator and say nothing about real models."
)


def headline(verdict: str | None) -> str:
    """Return the verdict as a heading."""
    return f"## {ICONS.get(verdict or '', '⏳')} edison: {verdict or 'not finished'}"


def sections_of(report: Report) -> Iterator[Section]:
    """Yield everything there is to say, the most important first."""
    yield Section(headline(report.verdict), tuple(_opening(report)))
    if report.planned:
        yield _planned(report)
    for view in report.runs:
        if view.material:
            yield _material(view)
    for view in report.runs:
        yield from _run(view)


def _opening(report: Report) -> Iterator[str]:
    if report.doubts:
        told = "\n".join(f"- {prose(sentence)}" for sentence in report.doubts)
        yield f"**⚠️ It cannot pass, whatever was measured:**\n\n{told}"
    if report.failure:
        yield prose(report.failure)
    if report.undecided:
        yield prose(report.undecided)
    if report.simulated:
        yield SIMULATED
    if not report.runs and report.verdict == "skipped":
        yield "Nothing was affected, so nothing was run."
    if len(report.runs) > 1:
        verdicts = Counter(view.run.verdict or "not finished" for view in report.runs)
        told = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.items())
        yield f"{len(report.runs):,} runs: {told}. The worst verdict counts."


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
        for one in report.planned
    )
    told = "Its files are valid. What evaluating it would take:"
    return Section("", (told,), Table(("experiment", "cases", "cells", "calls", "cost"), rows))


def _material(view: RunResult) -> Section:
    how = "Both sides were measured on the material of head only."
    if view.twice:
        how = (
            "Both sides were measured on the material of head and on that of the base; the worse "
            "verdict counts."
        )
    told = f"**What {code(view.run.experiment)} is measured with has changed.** {how}"
    rows = tuple((code(c.place), code(c.before), code(c.after)) for c in view.material)
    table = Table(("what", "base", "head"), rows)
    return Section("### ⚠️ Evaluation material changed", (told,), table)


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
        yield Section("", (f"**What is missing**\n\n{listed}",))


def _details(view: RunResult) -> Iterator[Section]:
    """Yield what the run on the base's material need not repeat."""
    yield from _moved(view)
    kinds = tuple(map(_kind, view.outstanding))
    if kinds:
        table = Table(("kind of case", "prompt", "model", "cases", "score", "than others"), kinds)
        yield Section("", (), table, fold="Kinds of cases that stand out")
    parts = tuple(_part(part) for part in view.parts if _tells(part))
    if parts:
        table = Table(("part", "mean", "fails", "no grade"), parts)
        yield Section("", (), table, fold="Checks, criteria and graders")
    yield from _findings(view)


def _title(view: RunResult) -> str:
    verdict = view.run.verdict or "not finished"
    labels = "".join(f", {label}" for label in view.labels)
    on = ", on the material of the base" if view.on == "base" else ""
    return f"### {code(view.run.experiment)}: {verdict}{on}{labels}"


def _facts(view: RunResult) -> Iterator[str]:
    summary, run = view, view.run
    for each in view.replaced:
        yield f"Compared with its former self: {prose(each)}."
    against = summary.against
    if against is not None and run.base_commit is not None:
        at = " at ".join(map(code, commit_names(str(run.base_ref), run.base_commit)))
        if against.estimate is None:
            yield f"Nothing to compare with at {at}."
        elif against.estimate == 0 and against.p == 1:
            yield f"No difference on any of {counted(against.n, 'case')} against {at}."
        else:
            moved = change(against.estimate, against.low, against.high)
            yield f"**{moved}** against {at}, on the same {counted(against.n, 'case')}."
    about = "~" if summary.calls["unknown"] or run.moving else ""
    yield (
        f"Score {points(summary.overall.composite)}, passed {rate(summary.overall.pass_rate)}; "
        f"{counted(summary.calls['made'], 'call')} made, {summary.calls['reused']:,} reused, "
        f"{about}{code(dollars(summary.cost_microusd))}; run {code(run.id)}."
    )


# Nothing is measured or decided here: numbers come from the summary of the run, sentences from the
# decisions that were stored, and comparisons from `decide`.
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
    head = ("prompt", "version", "model", "score", "passed", "cost an answer", "latency")
    return Table(head, tuple(_scored(measured) for measured in view.variants))


def _scored(measured: Measured) -> tuple[str, ...]:
    place = measured.place
    label = "base" if place.side == "base" else measured.label or ""
    short = place.version[:8]
    names = [label] if short in label else [label, short]
    version = " ".join(code(name) for name in names if name)
    about = "~" if measured.estimated else ""
    return (
        code(place.prompt),
        version,
        code(place.model),
        points(measured.composite),
        rate(measured.pass_rate),
        f"{about}{code(dollars(measured.cost_microusd))}",
        milliseconds(measured.p50_ms, measured.p95_ms),
    )


def _changes(view: RunResult) -> Table:
    head = ("prompt", "model", "change", "decision", "cases", "fixed", "broken")
    return Table(head, tuple(_changed(one) for one in view.changes))


def _changed(one: Change) -> tuple[str, ...]:
    found = one.standing
    low, high = found.interval or (None, None)
    more = f", about {counted(found.n_more, 'more case')} would tell" if found.n_more else ""
    missing = f" ({found.missing:,} missing)" if found.missing else ""
    return (
        code(one.prompt),
        code(one.model),
        change(found.estimate, low, high),
        f"{WORDS[found.verdict]}{more}",
        f"{found.n:,}{missing}",
        f"{len(found.fixed):,}",
        f"{len(found.broken):,}",
    )


def _moved(view: RunResult) -> Iterator[Section]:
    for word in ("broken", "fixed"):
        rows = tuple(
            _case(one, moved) for one in view.changes for moved in getattr(one.standing, word)
        )
        if rows:
            table = Table(("case", "prompt", "model", "base", "head", "passes"), rows)
            yield Section("", (), table, fold=f"{counted(len(rows), 'case')} {word}")


def _case(one: Change, moved: Moved) -> tuple[str, ...]:
    before, after = (_PASSES[passed] for passed in moved.passed)
    passes = before if before == after else f"{before} to {after}"
    names = (code(moved.case), code(one.prompt), code(one.model))
    return (*names, score(moved.a), score(moved.b), passes)


def _kind(facet: Facet) -> tuple[str, ...]:
    return (
        f"{facet.facet} {code(facet.value)}",
        code(facet.prompt) if facet.prompt else "all",
        code(facet.model) if facet.model else "all",
        f"{facet.cases:,}",
        score(facet.composite.estimate),
        change(facet.difference, None, None),
    )


def _tells(part: PartTotal) -> bool:
    return part.kind not in ("safety", "flag") and bool(part.graded or part.errors)


def _part(part: PartTotal) -> tuple[str, ...]:
    fails = NOTHING
    if part.kind != "criterion":
        fails = f"{part.graded - part.passed:,} of {part.graded:,}"
    return (f"{part.kind} {code(part.name)}", score(part.mean), fails, f"{part.errors:,}")


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
    told = ", ".join(f"{count:,} {code(kind)}" for kind, count in kinds.items())
    table = Table(("found", "answer", "by", "case", "prompt", "model"), rows)
    fold = f"Safety: {counted(len(rows), 'finding')}"
    yield Section("", (f"Safety: {told}.",), table, fold=fold)
