"""The report as Markdown, whole or cut to the limit of a job summary or a comment.

It is made to be read in ten seconds: the verdict, one bold sentence for each experiment, the diff
of the prompt, three informative cases, the gates that do not pass, cost, and how to repeat it.
Everything else is folded: passing gates, models, cases, slices, components, limitations. A run with
the base's eval suite takes a sentence, with the gates that it decides otherwise. Texts of
answers are shown only if details with cases are given.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.numeric import NOTHING, change, counted, dollars, points, rate, score
from edison_ci.records import ACTION_WORDS, Move, Verdict
from edison_ci.report.change_details import (
    ChangeDetails,
    case_paragraphs,
    diff_paragraphs,
    telling_cases,
)
from edison_ci.report.document import Bullets, Name, Notice, Section, Sentence, Table
from edison_ci.report.markdown import Limit, block, code, fit, inline, prose
from edison_ci.report.run_facts import (
    changed_cases_table,
    changes_table,
    components_table,
    eval_suite_table,
    scores_table,
)
from edison_ci.results.run_sentences import calls_text, cost_text, eval_suite_sentence
from edison_ci.results.snapshot import run_commands

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edison_ci.report.document import Block, Inline
    from edison_ci.results.decisions import GateRow
    from edison_ci.results.report import Report
    from edison_ci.results.run_result import RunResult
    from edison_ci.results.slices import Slice


MOST_BYTES = 900_000
"""GitHub drops the whole summary of a step that is larger than 1 MiB."""
ICONS = {"pass": "✅", "fail": "❌", "error": "❌", "inconclusive": "⚠️", "skipped": "⏭️"}
AMBER = "⚠️"
"""Of a run whose gates pass while something is shown to be worse."""
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


def markdown(report: Report, details: ChangeDetails | None = None) -> str:
    """Return the whole report as Markdown."""
    return fit(list(sections_of(report, details))).rstrip("\n") + "\n"


def job_summary(report: Report, *, used: int = 0, details: ChangeDetails | None = None) -> str:
    """Return the report for GITHUB_STEP_SUMMARY, of which `used` bytes are taken already."""
    limit = Limit(max(MOST_BYTES - used, 0), _bytes, "the artifacts of this run")
    return fit(list(sections_of(report, details)), limit).rstrip("\n") + "\n"


def _bytes(text: str) -> int:
    return len(text.encode())


def headline(verdict: str | None, *, ungated: str = "", amber: bool = False) -> str:
    """Return the verdict as a heading; `ungated` stands for it where no gate decided."""
    if verdict == Verdict.SKIPPED and ungated:
        return f"📏 edison: {ungated}"
    if amber:
        return f"{AMBER} edison: {verdict}, with a regression"
    return f"{ICONS.get(verdict or '', '⏳')} edison: {verdict or 'not finished'}"


def _heading(report: Report) -> str:
    scores = [points(view.overall.composite) for view in report.head_runs]
    ungated = f"score {scores[0]}" if len(scores) == 1 else f"{len(scores)} experiments measured"
    amber = report.verdict == Verdict.PASS and any(v.headline.amber for v in report.runs)
    return headline(report.verdict, ungated=ungated if scores else "", amber=amber)


def _icon(view: RunResult) -> str:
    return AMBER if view.headline.amber else ICONS.get(view.run.verdict or "", "⏳")


def sections_of(
    report: Report, details: ChangeDetails | None = None, place: Place | None = None
) -> Iterator[Section]:
    """Yield the sections of the report, the most important first."""
    details = details or ChangeDetails()
    yield Section(_heading(report), tuple(_opening(report)), level=2)
    if report.plans:
        yield _planned(report)
    several = len({view.run.experiment for view in report.runs}) > 1
    for view in report.runs:
        if view.eval_suite:
            yield _eval_suite(view)
    if details.diffs:
        yield Section(blocks=tuple(diff_paragraphs(details)))
    yield from _telling(report, details, several=several)
    for view in report.head_runs:
        yield from _open_gates(report, view, several=several)
        if view.run.verdict == Verdict.ERROR or not view.finished:
            yield _limitations(view)
    yield Section(blocks=tuple(_footer(report, place or Place())))
    for view in report.head_runs:
        if several:
            yield Section(Name(view.run.experiment))
        yield from _folds(view)


def _opening(report: Report) -> Iterator[Block]:
    if report.doubts:
        reasons = block(Bullets(tuple(map(Sentence, report.doubts))))
        yield f"**⚠️ This cannot pass, regardless of the scores:**\n\n{reasons}"
    if report.failure:
        yield f"**{inline(Sentence(report.failure))}**"
    if report.undecided:
        yield prose(report.undecided)
    if not report.runs and report.verdict == Verdict.SKIPPED:
        yield "No experiment is affected, so nothing was run."
    headlines = [f"**{inline(_headline(view))}**{_labels(view)}" for view in report.head_runs]
    if len(headlines) > 1:
        pairs = zip(map(_icon, report.head_runs), headlines, strict=True)
        yield "\n".join(f"- {mark} {text}" for mark, text in pairs)
    else:
        yield from headlines
    if (simulation := report.simulation) is not None:
        yield Notice(*simulation)


def _headline(view: RunResult) -> Sentence:
    return Sentence(view.headline.sentence)


def _labels(view: RunResult) -> str:
    return f" ({', '.join(view.labels)})" if view.labels else ""


def _planned(report: Report) -> Section:
    rows = (
        (
            Name(plan.experiment),
            f"{plan.cases:,}",
            f"{plan.cells:,}",
            f"{plan.calls:,}",
            _cost_range(plan.cost_microusd),
        )
        for plan in report.plans
    )
    text = "The files are valid. An evaluation would take:"
    table = Table.of(("experiment", "cases", "cells", "calls", "cost"), rows)
    return Section(blocks=(text,), table=table)


def _cost_range(microusd: tuple[int, int] | None) -> Inline:
    if microusd is None:
        return NOTHING
    low, high = (Name(dollars(end)) for end in microusd)
    return low, " to ", high


def _eval_suite(view: RunResult) -> Section:
    how = eval_suite_sentence(view)
    text = f"**The eval suite of {code(view.run.experiment)} has changed.** {how}"
    table = eval_suite_table(view)
    fold = counted(len(table.rows), "change") if len(table.rows) > _FEW else ""
    return Section("⚠️ Eval suite changed", (text,), table, fold)


def _telling(report: Report, details: ChangeDetails, *, several: bool) -> Iterator[Section]:
    cases = telling_cases(details, report.head_runs)
    if not cases:
        return
    paragraphs = [text for case in cases for text in case_paragraphs(case, several=several)]
    worse = any(case.case.move is Move.NEWLY_FAILING for case in cases)
    # Nothing that a reader must look at before merging is folded.
    fold = "" if worse else "Cases that changed most"
    yield Section("Cases that changed most" if worse else "", tuple(paragraphs), fold=fold)


def _open_gates(report: Report, view: RunResult, *, several: bool) -> Iterator[Section]:
    """Yield the gates that do not pass, and what the base's eval suite says."""
    rows = [row for row in view.gates if _is_open(row)]
    companion, paragraphs = next(iter(report.companions_of(view)), None), []
    title = ("Gates of ", Name(view.run.experiment)) if several else "Gates"
    if companion is not None:
        paragraphs.append(("With the base's eval suite: ", _headline(companion)))
        listed = {(row.metric, row.prompt, row.model, row.verdict) for row in rows}
        others = [
            row
            for row in companion.gates
            if _is_open(row) and (row.metric, row.prompt, row.model, row.verdict) not in listed
        ]
        if others:
            yield Section(title, table=_gates(rows))
            yield Section(blocks=tuple(paragraphs), table=_gates(others))
            return
    if rows or paragraphs:
        yield Section(title, table=_gates(rows))
        yield Section(blocks=tuple(paragraphs))


def _is_open(row: GateRow) -> bool:
    return row.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.ERROR)


def _gates(gate_rows: Iterable[GateRow]) -> Table:
    """Return gates as a table; prompt and model are named where there are several."""
    gate_rows = sorted(gate_rows, key=lambda row: row.verdict != Verdict.FAIL)
    rows = (
        (
            f"{ICONS[row.verdict]} {row.word.lower()}",
            Name(row.metric),
            _variant(row),
            Sentence(row.sentence),
        )
        for row in gate_rows
    )
    table = Table.of(("gate", "metric", "of", "why"), rows)
    several = len({(row.prompt, row.model) for row in gate_rows}) > 1
    return table if several else table.without(["of"])


def _variant(row: GateRow) -> Inline:
    return (Name(row.prompt or "all"), " with ", Name(row.model)) if row.model else "all"


def _footer(report: Report, place: Place) -> Iterator[str]:
    facts = []
    if report.runs:
        calls = Counter[str]()
        for view in report.runs:
            calls.update(view.calls)
        facts.append(f"Cost {code(cost_text(report.runs))} ({calls_text(calls)})")
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


def _folds(view: RunResult) -> Iterator[Section]:
    passing = [row for row in view.gates if not _is_open(row)]
    if passing:
        yield Section(table=_gates(passing), fold=f"Gates that pass ({len(passing):,})")
    yield Section("", tuple(_facts(view)), scores_table(view), fold="Prompts and models")
    if len(view.changes) > 1:
        yield Section(table=changes_table(view), fold="Change from the base by model")
    if view.weak_prompts:
        weak = tuple(("⚠️ ", Sentence(rival.sentence)) for rival in view.weak_prompts)
        yield Section(blocks=weak, fold="Weak prompts")
    yield from _changed_cases(view)
    if view.outstanding:
        names = ("slice", "prompt", "model", "cases", "score", "vs. others")
        table = Table.of(names, map(_slice_row, view.outstanding))
        yield Section(table=table, fold="Slices that stand out")
    components = components_table(view)
    if components.rows:
        yield Section(table=components, fold="Checks, criteria and graders")
    yield from _findings(view)
    if view.missing and view.finished and view.run.verdict != Verdict.ERROR:
        yield replace(_limitations(view), fold="Limitations")


def _limitations(view: RunResult) -> Section:
    return Section(blocks=(Bullets(tuple(map(Sentence, view.missing))),))


def _facts(view: RunResult) -> Iterator[Inline]:
    for names in view.replaced:
        yield f"Compared with its predecessor: {prose(names)}."
    yield from map(Sentence, (*view.steered, *view.forms))
    yield (
        f"Score {points(view.overall.composite)}, pass rate {rate(view.overall.pass_rate)}, "
        "over all of them."
    )


def _changed_cases(view: RunResult) -> Iterator[Section]:
    table = changed_cases_table(view)
    if not table.rows:
        return
    # A case may change with one model and not with another: rows are not cases then.
    title = "Changed cases, by prompt and model"
    if len(view.changes) == 1:
        moved = view.changes[0].comparison.moved
        counts = [f"{len(moved[move]):,} {move.words}" for move in Move if moved[move]]
        title = f"Changed cases: {', '.join(counts)}"
        table = table.without(["prompt", "model"])
    yield Section(table=table, fold=title)


def _slice_row(slice_: Slice) -> tuple[Inline, ...]:
    return (
        (f"{slice_.dimension} ", Name(slice_.value)),
        Name(slice_.prompt) if slice_.prompt else "all",
        Name(slice_.model) if slice_.model else "all",
        f"{slice_.cases:,}",
        score(slice_.composite.estimate),
        change(slice_.difference, None, None),
    )


def _findings(view: RunResult) -> Iterator[Section]:
    if not view.findings:
        return
    rows = (
        (
            Name(f"{finding.kind}: {finding.what}" if finding.what else finding.kind),
            ACTION_WORDS[finding.action],
            "a screen" if finding.by == "safety" else "a judge",
            Name(finding.case),
            Name(finding.prompt),
            Name(finding.model),
        )
        for finding in view.findings
    )
    kinds = Counter(finding.kind for finding in view.findings)
    counts = ", ".join(f"{count:,} {code(kind)}" for kind, count in kinds.items())
    table = Table.of(("finding", "answer", "by", "case", "prompt", "model"), rows)
    fold = f"Safety: {counted(len(view.findings), 'finding')}"
    yield Section("", (f"Safety: {counts}.",), table, fold=fold)
