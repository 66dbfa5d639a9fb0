"""A run on a terminal, and as the JSON document of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.cli.progress import dollars, span
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, aligned, counted
from edison_ci.config.facets import SIZES
from edison_ci.formatting import milliseconds, points, rate, signed_span
from edison_ci.names import commit_names
from edison_ci.results.decisions import stopped_sentence
from edison_ci.results.run_document import run_document
from edison_ci.results.snapshot import UNDECIDED, is_redacted, kept_snapshot, material_of
from edison_ci.rounding import fixed, snap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.execute.runner import Progress
    from edison_ci.results.decisions import GateRow
    from edison_ci.results.human_grades import People
    from edison_ci.results.rollups import PartTotal
    from edison_ci.results.run_result import RunResult
    from edison_ci.results.scores import Scored
    from edison_ci.results.weak_prompts import Rival
    from edison_ci.stats.intervals import Interval
    from edison_ci.store.runs import Run

    Said = Callable[[Interval | None], str]
    from edison_ci.results.judges import JudgesSaid, PanelAgreement
    from edison_ci.results.pairwise import HeadToHead
    from edison_ci.results.part_scores import PartSpread
    from edison_ci.results.slices import Facet, Reliability, Shown


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


_MOST_APART = 5


def show_judges(terminal: Terminal, said: JudgesSaid | None) -> None:
    """Print whom judges prefer and whether they agree, where anybody knows."""
    if said is None:
        return
    prompts = len({found.match.prompt for found in said.matches}) > 1
    models = len({found.match.a.model for found in said.matches}) > 1
    for found in said.matches:
        _show_match(terminal, found, prompts=prompts, models=models)
    for prompt in dict.fromkeys(found.match.prompt for found in said.matches):
        among = [f for f in said.matches if f.match.prompt == prompt and f.among_models]
        if len(among) > 1:
            _show_matrix(terminal, prompt if prompts else "", among)
    if said.agreement is not None:
        _show_agreement(terminal, said.agreement)


def _show_match(
    terminal: Terminal, found: HeadToHead, *, prompts: bool = False, models: bool = False
) -> None:
    match = found.match
    about = match.prompt if prompts else ""
    if models and match.a.side != match.b.side:
        about = f"{about} with {match.a.model}".strip()
    tally = f"won {found.won:,}, lost {found.lost:,}, tied {found.tied:,}"
    lead = f"{about}: " if about else ""
    terminal.result(f"  {lead}{found.sentence}")
    names = " against ".join(found.names)
    terminal.result(f"    {names}: {tally}; compared by {found.judge}")
    for warning in found.warnings:
        terminal.result("    ", Ink("careful: ", ODD), warning)


def _show_matrix(terminal: Terminal, prompt: str, matches: Sequence[HeadToHead]) -> None:
    """Print who won, lost and tied against whom."""
    columns = list(dict.fromkeys(found.match.b.model for found in matches))
    counts = {
        (found.match.a.model, found.match.b.model): f"{found.won:,}-{found.lost:,}-{found.tied:,}"
        for found in matches
    }
    table = [(f"{prompt} won-lost-tied".strip(), *(f"against {name}" for name in columns))]
    for name in dict.fromkeys(found.match.a.model for found in matches):
        table.append((name, *(counts.get((name, column), "") for column in columns)))
    for line in aligned(table):
        terminal.result(f"    {line}")


def show_preference(terminal: Terminal, found: HeadToHead, a: str, b: str) -> None:
    """Print which of two is preferred head to head, by these names."""
    terminal.result(f"head to head: {found.said_of(a, b)}")
    for warning in found.warnings:
        terminal.result("  ", Ink("careful: ", ODD), warning)


def _show_agreement(terminal: Terminal, found: PanelAgreement) -> None:
    for sentence in found.sentences:
        terminal.result(f"  {sentence}")
    for apart in found.apart[:_MOST_APART]:
        terminal.result(f"    apart: {apart.said}")
    if len(found.apart) > _MOST_APART:
        terminal.result(f"    and {len(found.apart) - _MOST_APART:,} more")


_LISTED = 3
_ORDER = {value: place for place, value in enumerate(("easy", "medium", "hard", "golden", *SIZES))}
_FACETS = ("kind", "difficulty", "length", "tag")
FEWEST = 10
"""Cases below which a part of them is shown without a word on it."""


def show_breakdown(terminal: Terminal, summary: RunResult, *, facets: bool = True) -> None:
    """Print what is missing, how draws agree, and the kinds of cases that stand out."""
    found = summary.breakdown
    several = len(summary.models) > 1
    for sentence in summary.bounds:
        terminal.result("  ", Ink(sentence, ODD))
    most = max((each.k for each in found.reliability), default=0)
    for each in found.reliability:
        if each.k == most and each.model:
            _reliability(terminal, each, several=several)
    if facets:
        _outstanding(terminal, summary, several=several)
    aside = sorted(summary.quarantined)
    if aside:
        names = ", ".join(aside[:_LISTED]) + (" and more" if len(aside) > _LISTED else "")
        verb = "counts" if len(aside) == 1 else "count"
        terminal.result(f"  {counted(len(aside), 'case')} in quarantine {verb} in no gate: {names}")


def _reliability(terminal: Terminal, found: Reliability, *, several: bool) -> None:
    who = f"{found.model}: " if several else ""
    draws = "both" if found.k == 2 else f"all {found.k}"
    terminal.result(
        f"  {who}{draws} draws pass in "
        f"{_percent(found.pass_all, found.pass_all_low, found.pass_all_high)} of "
        f"{counted(found.n, 'case')}, at least one in "
        f"{_percent(found.pass_any, found.pass_any_low, found.pass_any_high)}"
    )


def _percent(estimate: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"{fixed(100 * estimate)}%"
    return f"{fixed(100 * estimate)}% ({fixed(100 * low)} to {fixed(100 * high)})"


def _outstanding(terminal: Terminal, summary: RunResult, *, several: bool) -> None:
    """Print the weakest kinds of cases among those that stand out."""
    out = summary.outstanding
    weak = [facet for facet in out if (facet.difference or 0) < 0]
    for facet in weak[:_LISTED]:
        who = f" with {facet.model}" if several else ""
        terminal.result(
            "  weak",
            Ink(f"  {facet.facet} {facet.value}", BAD),
            f"{who}: {_points(facet.composite)}, {fixed(-100 * (facet.difference or 0), 1)} points "
            f"below the other cases ({counted(facet.cases, 'case')})",
        )
    if out:
        told = _allowed(len(out), out[0].family)
        terminal.note(f"  {told}: edison status {summary.run.id} --facets")


def _allowed(count: int, family: int) -> str:
    """Return how many comparisons were made, and how many stand out in spite of that."""
    made = f"{counted(family, 'comparison')} of kinds of cases {'was' if family == 1 else 'were'}"
    verb = "stands" if count == 1 else "stand"
    return f"{made} made; after allowing for that, {count:,} {verb} out"


def _points(found: Shown) -> str:
    return "-" if found.estimate is None else fixed(100 * found.estimate, 1)


# --- the table ------------------------------------------------------------------------------------


def show_facets(terminal: Terminal, summary: RunResult) -> None:
    """Print how every kind of case came out, by prompt and model."""
    found = [facet for facet in summary.breakdown.facets if facet.model]
    if not found:
        terminal.note("nothing is known of the kinds of its cases")
        return
    several = len({(facet.prompt, facet.model) for facet in found}) > 1
    for who in dict.fromkeys((facet.prompt, facet.model) for facet in found):
        if several:
            terminal.result("")
            terminal.result(Ink(f"{who[0]} with {who[1]}", bold=True))
        mine = [facet for facet in found if (facet.prompt, facet.model) == who]
        titles = ("", "", "cases", "score", "passed", "against the rest", "")
        terminal.table([titles, *map(_row, sorted(mine, key=_place))], right=(2, 5))
    told = _allowed(len(summary.outstanding), found[0].family)
    terminal.note(
        f"{told} (Benjamini-Hochberg, 10%). Kinds of fewer than {FEWEST} "
        "cases, or clusters of them, are not compared."
    )


def _place(facet: Facet) -> tuple[int, int, int, str]:
    order = _FACETS.index(facet.facet) if facet.facet in _FACETS else len(_FACETS)
    return order, _ORDER.get(facet.value, len(_ORDER)), -facet.cases, facet.value


def _row(facet: Facet) -> tuple[str, ...]:
    composite, rate = facet.composite, facet.pass_rate
    score = _points(composite)
    if composite.low is not None and composite.high is not None:
        score += f" ({fixed(100 * composite.low, 1)} to {fixed(100 * composite.high, 1)})"
    passed = "-" if rate.estimate is None else _percent(rate.estimate, rate.low, rate.high)
    rest = "" if facet.difference is None else fixed(100 * facet.difference, 1, signed=True)
    word = "stands out" if facet.stands_out else "" if facet.p is not None else "not compared"
    return (facet.facet, facet.value, f"{facet.cases:,}", score, passed, rest, word)


def spread_of(parts: Sequence[PartSpread], name: str, kind: str) -> str:
    """Return between which scores a part lies, and how far they are from their mean."""
    same = [part for part in parts if (part.name, part.kind) == (name, kind) and part.n]
    lows = [part.low for part in same if part.low is not None]
    highs = [part.high for part in same if part.high is not None]
    if not lows or not highs:
        return ""
    sds = [part.sd for part in same]
    sd = f", sd {fixed(100 * sds[0])}" if len(sds) == 1 and sds[0] is not None else ""
    return f"from {fixed(100 * min(lows))} to {fixed(100 * max(highs))}{sd}"


def show_people(terminal: Terminal, people: People | None, points: Said, rate: Said) -> None:
    """Print what people said, beside the automatic grades, and what follows from it."""
    if people is None:
        return
    if people.answers or people.flagged:
        who = "1 person" if people.people == 1 else f"{people.people:,} people"
        flagged = f"; {people.flagged:,} flagged for a second look" if people.flagged else ""
        graded = f"{people.answers:,} of {people.of:,} answers graded"
        by = f" by {who}" if people.people else ""
        terminal.result(f"  {graded}{by}{flagged}")
    rows = [
        (f"{score.prompt} with {score.model}", points(score.composite), rate(score.pass_rate))
        for score in people.scores
        if score.graded
    ]
    if rows:
        head = ("  with people's grades in place of automatic ones", "score", "passed")
        for row in aligned([head, *(("    " + name, *rest) for name, *rest in rows)]):
            terminal.result(row)
    for score in people.scores:
        about = f"{score.prompt} with {score.model}: " if len(people.scores) > 1 else ""
        for found in score.corrections:
            text = f"  {about}{found.sentence}"
            terminal.result(text if found.applies else Ink(text, ODD))
    for found in people.change:
        terminal.result(Ink(f"  {found.sentence}", ODD if found.of == "side" else None))


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
