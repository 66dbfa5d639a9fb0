"""The report as Markdown, whole or cut to the limit of a job summary or a comment.

It is made to be read in ten seconds: the verdict, one bold sentence for each experiment, the diff
of the prompt, three telling cases, the gates that do not pass, cost, and how to repeat it.
Everything else is folded: passing gates, models, cases, slices, components, limitations. A run with
the base's eval suite is told in a sentence, with the gates that it decides otherwise. Texts of
answers are shown only if details with cases are given.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
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
from edison_ci.records import ACTION_WORDS, Move, Side, Verdict
from edison_ci.report.change_details import (
    ChangeDetails,
    case_paragraphs,
    diff_paragraphs,
    telling_cases,
)
from edison_ci.report.markdown import Limit, Section, Table, code, fit, prose
from edison_ci.results.reproduce import run_commands

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edison_ci.results.comparison import MovedCase
    from edison_ci.results.decisions import GateRow
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
_FEW = 8
"""Changes of an eval suite that are shown unfolded."""
_MOST_COMMAND = 1_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a report was made, for its last line."""

    commit: str = ""
    """The commit of the pull request."""
    run_url: str = ""
    """The page of the job, which has the log and the reports."""
    fetched: bool = False
    """Whether the evaluated commit must be fetched by its id, as the merge that a forge makes."""


def markdown(report: Report) -> str:
    """Return the whole report as Markdown."""
    return fit(list(sections_of(report))).rstrip("\n") + "\n"


def job_summary(report: Report, *, used: int = 0, details: ChangeDetails | None = None) -> str:
    """Return the report for GITHUB_STEP_SUMMARY, of which `used` bytes are taken already."""
    limit = Limit(max(MOST_BYTES - used, 0), _bytes, "the artifacts of this run")
    return fit(list(sections_of(report, details)), limit).rstrip("\n") + "\n"


def _bytes(text: str) -> int:
    return len(text.encode())


def headline(verdict: str | None) -> str:
    """Return the verdict as a heading."""
    return f"## {ICONS.get(verdict or '', '⏳')} edison: {verdict or 'not finished'}"


def sections_of(
    report: Report, details: ChangeDetails | None = None, place: Place | None = None
) -> Iterator[Section]:
    """Yield the sections of the report, the most important first."""
    details = details or ChangeDetails()
    yield Section(headline(report.verdict), tuple(_opening(report)))
    if report.plans:
        yield _planned(report)
    several = len({view.run.experiment for view in report.runs}) > 1
    for view in report.runs:
        if view.eval_suite:
            yield _eval_suite(view)
    if details.diffs:
        yield Section("", tuple(diff_paragraphs(details)))
    yield from _telling(report, details, several=several)
    for view in report.head_runs:
        yield from _open_gates(report, view, several=several)
        if view.run.verdict == Verdict.ERROR or not view.finished:
            yield _limitations(view)
    yield Section("", tuple(_footer(report, place or Place())))
    for view in report.head_runs:
        if several:
            yield Section(f"### {code(view.run.experiment)}")
        yield from _folds(view)


# --- the opening ----------------------------------------------------------------------------------


def _opening(report: Report) -> Iterator[str]:
    if report.doubts:
        reasons = "\n".join(f"- {prose(sentence)}" for sentence in report.doubts)
        yield f"**⚠️ This cannot pass, regardless of the scores:**\n\n{reasons}"
    if report.failure:
        yield f"**{_told(report.failure)}**"
    if report.undecided:
        yield prose(report.undecided)
    if not report.runs and report.verdict == Verdict.SKIPPED:
        yield "No experiment is affected, so nothing was run."
    told = [f"**{_sentence(view)}**{_labels(view)}" for view in report.head_runs]
    if len(told) > 1:
        marks = (ICONS.get(view.run.verdict or "", "⏳") for view in report.head_runs)
        yield "\n".join(f"- {mark} {text}" for mark, text in zip(marks, told, strict=True))
    else:
        yield from told
    if (simulation := report.simulation) is not None:
        yield f"> **{simulation.label}.** {simulation.sentence}"


def _sentence(view: RunResult) -> str:
    return _told(view.headline.sentence)


def _told(text: str) -> str:
    """Return a sentence that is never empty, as emphasis of nothing would be a rule."""
    return prose(text) or code(text)


def _labels(view: RunResult) -> str:
    return f" ({', '.join(view.labels)})" if view.labels else ""


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
    fold = counted(len(rows), "change") if len(rows) > _FEW else ""
    return Section("### ⚠️ Eval suite changed", (text,), table, fold)


# --- what decides ---------------------------------------------------------------------------------


def _telling(report: Report, details: ChangeDetails, *, several: bool) -> Iterator[Section]:
    found = telling_cases(details, report.head_runs)
    if not found:
        return
    paragraphs = [text for one in found for text in case_paragraphs(one, several=several)]
    worse = any(one.case.move is Move.NEWLY_FAILING for one in found)
    # Nothing that a reader must look at before merging is folded.
    fold = "" if worse else "Cases that changed most"
    heading = "### Cases that tell most" if worse else ""
    yield Section(heading, tuple(paragraphs), fold=fold)


def _companion(report: Report, view: RunResult) -> RunResult | None:
    """Return the run of the same comparison with the base's eval suite."""
    wanted = None if view.companion is None else view.companion.id
    return next((other for other in report.runs if other.run.id == wanted), None)


def _open_gates(report: Report, view: RunResult, *, several: bool) -> Iterator[Section]:
    """Yield the gates that do not pass, and what the base's eval suite says."""
    rows = [row for row in view.gates if _is_open(row)]
    companion, paragraphs = _companion(report, view), []
    title = f"### Gates of {code(view.run.experiment)}" if several else "### Gates"
    if companion is not None:
        paragraphs.append(f"With the base's eval suite: {_sentence(companion)}")
        known = {(row.metric, row.prompt, row.model, row.verdict) for row in rows}
        others = [
            row
            for row in companion.gates
            if _is_open(row) and (row.metric, row.prompt, row.model, row.verdict) not in known
        ]
        if others:
            yield Section(title, (), _gates(rows))
            yield Section("", tuple(paragraphs), _gates(others))
            return
    if rows or paragraphs:
        yield Section(title, (), _gates(rows))
        yield Section("", tuple(paragraphs))


def _is_open(row: GateRow) -> bool:
    return row.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.ERROR)


def _gates(found: Iterable[GateRow]) -> Table:
    """Return gates as a table; prompt and model are named where there are several."""
    rows = sorted(found, key=lambda row: row.verdict != Verdict.FAIL)
    several = len({(row.prompt, row.model) for row in rows}) > 1
    cells = tuple(
        (
            f"{ICONS[row.verdict]} {row.word.lower()}",
            code(row.metric),
            *((_subject(row),) if several else ()),
            prose(row.sentence),
        )
        for row in rows
    )
    return Table(("gate", "metric", *(("of",) if several else ()), "why"), cells)


def _subject(row: GateRow) -> str:
    return f"{code(row.prompt or 'all')} with {code(row.model)}" if row.model else "all"


def _footer(report: Report, place: Place) -> Iterator[str]:
    facts = []
    if report.runs:
        calls = Counter[str]()
        for view in report.runs:
            calls.update(view.calls)
        about = "~" if calls["unknown"] or any(view.run.moving for view in report.runs) else ""
        made = f"{counted(calls['made'], 'call')}, {calls['reused']:,} reused"
        facts.append(f"Cost {about}{code(dollars(report.cost_microusd))} ({made})")
        facts.append(f"run {', '.join(code(view.run.id) for view in report.head_runs)}")
    if place.commit:
        facts.append(f"commit {code(place.commit[:8])}")
    if place.run_url:
        facts.append(f"[log and report.html of this job]({place.run_url})")
    if facts:
        yield " · ".join(facts)
    for command in run_commands(view.run for view in report.head_runs):
        before = _checkout(report, place)
        yield f"reproduce: {code(f'{before}{command}', most=_MOST_COMMAND)}"


def _checkout(report: Report, place: Place) -> str:
    commits = {view.run.commit_id for view in report.head_runs}
    if len(commits) != 1 or None in commits:
        return ""
    (commit,) = commits
    if place.fetched:
        return f"git fetch origin {commit} && git checkout FETCH_HEAD && "
    return f"git checkout {str(commit)[:12]} && "


# --- folded ---------------------------------------------------------------------------------------


def _folds(view: RunResult) -> Iterator[Section]:
    passing = [row for row in view.gates if not _is_open(row)]
    if passing:
        yield Section("", (), _gates(passing), fold=f"Gates that pass ({len(passing):,})")
    yield Section("", tuple(_facts(view)), _scores(view), fold="Prompts and models")
    if len(view.changes) > 1:
        yield Section("", (), _changes(view), fold="Change from the base by model")
    if view.weak_prompts:
        weak = tuple(f"⚠️ {prose(rival.sentence)}" for rival in view.weak_prompts)
        yield Section("", weak, fold="Weak prompts")
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
    if view.missing and view.finished and view.run.verdict != Verdict.ERROR:
        yield replace(_limitations(view), fold="Limitations")


def _limitations(view: RunResult) -> Section:
    return Section("", ("\n".join(f"- {prose(text)}" for text in view.missing),))


def _facts(view: RunResult) -> Iterator[str]:
    for each in view.replaced:
        yield f"Compared with its predecessor: {prose(each)}."
    for each in view.steered:
        yield prose(each)
    yield (
        f"Score {points(view.overall.composite)}, pass rate {rate(view.overall.pass_rate)}, "
        "over all of them."
    )


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
    missing = f" ({found.missing:,} missing)" if found.missing else ""
    return (
        code(one.prompt),
        code(one.model),
        change(found.estimate, low, high),
        DECISIONS[found.verdict],
        f"{found.n:,}{missing}",
        f"{len(found.moved[Move.FIXED]):,}",
        f"{len(found.moved[Move.NEWLY_FAILING]):,}",
    )


def _changed_cases(view: RunResult) -> Iterator[Section]:
    several = len(view.changes) > 1
    rows = tuple(
        _case_row(one, moved, move, several=several)
        for move in Move
        for one in view.changes
        for moved in one.comparison.moved[move]
    )
    if not rows:
        return
    counts = Counter(row[1] for row in rows)
    # A case may change with one model and not with another: rows are not cases then.
    title = "Changed cases, by prompt and model"
    if not several:
        title = "Changed cases: " + ", ".join(f"{n:,} {word}" for word, n in counts.items())
    names = ("prompt", "model") if several else ()
    yield Section("", (), Table(("case", "change", *names, "base", "head"), rows), fold=title)


def _case_row(one: Change, moved: MovedCase, move: Move, *, several: bool) -> tuple[str, ...]:
    names = (code(one.prompt), code(one.model)) if several else ()
    return (code(moved.case), move.words, *names, score(moved.a), score(moved.b))


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
            code(f"{found.kind}: {found.what}" if found.what else found.kind),
            ACTION_WORDS[found.action],
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
