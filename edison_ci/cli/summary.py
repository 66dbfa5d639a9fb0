"""The results of a run, on a terminal and as the JSON document of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.access import site as sites
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, aligned
from edison_ci.contracts import WHAT_TO_CHECK
from edison_ci.documents import secrets
from edison_ci.git import repository as git
from edison_ci.numeric import (
    change,
    counted,
    dollars,
    duration,
    fixed,
    in_cents,
    milliseconds,
    percent,
    percent_span,
    points,
    rate,
    score,
    score_span,
    signed_score,
    snap,
)
from edison_ci.records import RunStatus
from edison_ci.results import decisions, report, run_result, snapshot
from edison_ci.results.next_step import BudgetNeed, next_step
from edison_ci.results.run_sentences import cost_text, prompt_versions
from edison_ci.results.slices import slice_order
from edison_ci.sanitize import in_actions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.execute.progress import Progress
    from edison_ci.results.components import ComponentSpread, ComponentTotal
    from edison_ci.results.decisions import GateRow
    from edison_ci.results.human_grades import HumanGrades
    from edison_ci.results.judges import JudgeFindings, PanelAgreement
    from edison_ci.results.pairwise import HeadToHead
    from edison_ci.results.run_result import RunResult
    from edison_ci.results.scores import VariantScore
    from edison_ci.results.slices import Reliability, Slice
    from edison_ci.results.weaknesses import PromptContrast
    from edison_ci.store.runs import Run


def document(
    results: Sequence[RunResult],
    code: int,
    clients: Sequence[Progress] = (),
    dropped: Sequence[str] = (),
) -> dict[str, Any]:
    """Return runs as commands print them in JSON.

    A command that ran them also passes their progress, with the models that were stopped, and what
    the base gates but was not run.
    """
    verdicts = {result.run.verdict for result in results} | ({"inconclusive"} if dropped else set())
    order = ("error", "fail", "inconclusive", "pass", "skipped")
    verdict = next((v for v in order if v in verdicts), None if verdicts else "skipped")
    runs = [report.run_document(result) for result in results]
    for run, progress in zip(runs, clients, strict=False):
        run["clients"] = {"stopped": progress.closed, "waiting": progress.waiting}
    return {"verdict": verdict, "exit_code": code, "dropped": [*dropped], "runs": runs}


_MOST_APART = 5


def show_judges(terminal: Terminal, judges: JudgeFindings | None) -> None:
    """Print pairwise preferences and the agreement of judges, if there are any."""
    if judges is None:
        return
    prompts = len({pair.match.prompt for pair in judges.matches}) > 1
    models = len({pair.match.a.model for pair in judges.matches}) > 1
    for pair in judges.matches:
        _show_match(terminal, pair, prompts=prompts, models=models)
    for prompt in dict.fromkeys(pair.match.prompt for pair in judges.matches):
        of_prompt = (pair for pair in judges.matches if pair.match.prompt == prompt)
        among = [pair for pair in of_prompt if pair.among_models]
        if len(among) > 1:
            _show_matrix(terminal, prompt if prompts else "", among)
    if judges.agreement is not None:
        _show_agreement(terminal, judges.agreement)


def _show_match(
    terminal: Terminal, head_to_head: HeadToHead, *, prompts: bool = False, models: bool = False
) -> None:
    match = head_to_head.match
    about = match.prompt if prompts else ""
    if models and match.a.side != match.b.side:
        about = f"{about} with {match.a.model}".strip()
    usage = f"won {head_to_head.won:,}, lost {head_to_head.lost:,}, tied {head_to_head.tied:,}"
    lead = f"{about}: " if about else ""
    terminal.result(f"  {lead}{head_to_head.sentence}")
    names = " against ".join(head_to_head.names)
    terminal.result(f"    {names}: {usage}; compared by {head_to_head.judge}")
    for warning in head_to_head.warnings:
        terminal.result("    ", StyledText("careful: ", ODD), warning)


def _show_matrix(terminal: Terminal, prompt: str, matches: Sequence[HeadToHead]) -> None:
    """Print the matrix of wins, losses and ties."""
    columns = list(dict.fromkeys(pair.match.b.model for pair in matches))
    counts = {
        (pair.match.a.model, pair.match.b.model): f"{pair.won:,}-{pair.lost:,}-{pair.tied:,}"
        for pair in matches
    }
    table = [(f"{prompt} won-lost-tied".strip(), *(f"against {name}" for name in columns))]
    for name in dict.fromkeys(pair.match.a.model for pair in matches):
        table.append((name, *(counts.get((name, column), "") for column in columns)))
    for line in aligned(table):
        terminal.result(f"    {line}")


def show_preference(terminal: Terminal, head_to_head: HeadToHead, a: str, b: str) -> None:
    """Print which of two variants is preferred head to head."""
    terminal.result(f"head to head: {head_to_head.sentence_for(a, b)}")
    for warning in head_to_head.warnings:
        terminal.result("  ", StyledText("careful: ", ODD), warning)


def _show_agreement(terminal: Terminal, agreement: PanelAgreement) -> None:
    for sentence in agreement.sentences:
        terminal.result(f"  {sentence}")
    for apart in agreement.apart[:_MOST_APART]:
        terminal.result(f"    disagreement: {apart.sentence}")
    if len(agreement.apart) > _MOST_APART:
        terminal.result(f"    and {len(agreement.apart) - _MOST_APART:,} more")


_LISTED = 3
FEWEST = 10
"""Cases that a slice needs to be mentioned."""


def show_breakdown(terminal: Terminal, summary: RunResult, *, slices: bool = True) -> None:
    """Print what is missing, how repeats agree, and the slices that stand out."""
    several, reliability = len(summary.models) > 1, summary.breakdown.reliability
    for sentence in summary.bounds:
        terminal.result("  ", StyledText(sentence, ODD))
    most = max((repeats.k for repeats in reliability), default=0)
    for repeats in reliability:
        if repeats.k == most and repeats.model:
            _reliability(terminal, repeats, several=several)
    if slices:
        _outstanding(terminal, summary, several=several)
    aside = sorted(summary.quarantined)
    if aside:
        names = ", ".join(aside[:_LISTED]) + (" and more" if len(aside) > _LISTED else "")
        verb = "counts" if len(aside) == 1 else "count"
        terminal.result(f"  {counted(len(aside), 'case')} in quarantine {verb} in no gate: {names}")


def _reliability(terminal: Terminal, repeats: Reliability, *, several: bool) -> None:
    who = f"{repeats.model}: " if several else ""
    which = "both" if repeats.k == 2 else f"all {repeats.k}"
    terminal.result(
        f"  {who}{which} repeats pass in "
        f"{_percent(repeats.pass_all, repeats.pass_all_low, repeats.pass_all_high)} of "
        f"{counted(repeats.n, 'case')}, at least one in "
        f"{_percent(repeats.pass_any, repeats.pass_any_low, repeats.pass_any_high)}"
    )


def _percent(estimate: float, low: float | None, high: float | None) -> str:
    span = "" if low is None or high is None else f" ({percent_span(low, high)})"
    return f"{percent(estimate)}{span}"


def _outstanding(terminal: Terminal, summary: RunResult, *, several: bool) -> None:
    """Print the weakest slices among those that stand out."""
    out = summary.outstanding
    weak = [slice_ for slice_ in out if (slice_.difference or 0) < 0]
    for slice_ in weak[:_LISTED]:
        who = f" with {slice_.model}" if several else ""
        terminal.result(
            "  weak",
            StyledText(f"  {slice_.dimension} {slice_.value}", BAD),
            f"{who}: {score(slice_.composite.estimate)}, {score(-(slice_.difference or 0))} points "
            f"below the other cases ({counted(slice_.cases, 'case')})",
        )
    if out:
        comparisons = _allowed(len(out), out[0].family)
        terminal.note(f"  {comparisons}: edison status {summary.run.id} --slices")


def _allowed(count: int, family: int) -> str:
    """Return the number of comparisons, and how many stand out after correction."""
    made = f"{counted(family, 'comparison')} of slices {'was' if family == 1 else 'were'}"
    verb = "stands" if count == 1 else "stand"
    return f"{made} made; {count:,} {verb} out after correction for their number"


def show_slices(terminal: Terminal, summary: RunResult) -> None:
    """Print the results of every slice, by prompt and model."""
    slices = [slice_ for slice_ in summary.breakdown.slices if slice_.model]
    if not slices:
        terminal.note("there are no results by slice")
        return
    several = len({(slice_.prompt, slice_.model) for slice_ in slices}) > 1
    for who in dict.fromkeys((slice_.prompt, slice_.model) for slice_ in slices):
        if several:
            terminal.result("")
            terminal.result(StyledText(f"{who[0]} with {who[1]}", bold=True))
        mine = [slice_ for slice_ in slices if (slice_.prompt, slice_.model) == who]
        titles = ("", "", "cases", "score", "passed", "against the rest", "")
        terminal.table([titles, *map(_slice_row, sorted(mine, key=slice_order))], right=(2, 5))
    comparisons = _allowed(len(summary.outstanding), slices[0].family)
    terminal.note(
        f"{comparisons} (Benjamini-Hochberg, 10%). Slices with fewer than {FEWEST} "
        "cases or clusters are not compared."
    )


def _slice_row(slice_: Slice) -> tuple[str, ...]:
    composite, share = slice_.composite, slice_.pass_rate
    scored = score(composite.estimate)
    if composite.low is not None and composite.high is not None:
        scored += f" ({score_span(composite.low, composite.high)})"
    passed = "-" if share.estimate is None else _percent(share.estimate, share.low, share.high)
    rest = "" if slice_.difference is None else signed_score(slice_.difference)
    word = "stands out" if slice_.stands_out else "" if slice_.p is not None else "not compared"
    return (slice_.dimension, slice_.value, f"{slice_.cases:,}", scored, passed, rest, word)


def spread_of(components: Sequence[ComponentSpread], name: str, kind: str) -> str:
    """Return the range and the standard deviation of the scores of a component."""
    same = [
        component
        for component in components
        if (component.name, component.kind) == (name, kind) and component.n
    ]
    lows = [component.low for component in same if component.low is not None]
    highs = [component.high for component in same if component.high is not None]
    if not lows or not highs:
        return ""
    sds = [component.sd for component in same]
    sd = f", sd {fixed(100 * sds[0])}" if len(sds) == 1 and sds[0] is not None else ""
    return f"from {fixed(100 * min(lows))} to {fixed(100 * max(highs))}{sd}"


def show_people(terminal: Terminal, people: HumanGrades | None) -> None:
    """Print human grades next to the automatic ones, and the correction they imply."""
    if people is None:
        return
    if people.answers or people.flagged:
        who = "1 person" if people.graders == 1 else f"{people.graders:,} people"
        flagged = f"; {people.flagged:,} flagged for a second look" if people.flagged else ""
        progress = f"{people.answers:,} of {people.of:,} answers graded"
        by = f" by {who}" if people.graders else ""
        terminal.result(f"  {progress}{by}{flagged}")
    rows = [
        (f"{graded.prompt} with {graded.model}", points(graded.composite), rate(graded.pass_rate))
        for graded in people.scores
        if graded.graded_cases
    ]
    if rows:
        head = ("  with human grades instead of automatic ones", "score", "passed")
        for row in aligned([head, *(("    " + name, *rest) for name, *rest in rows)]):
            terminal.result(row)
    for graded in people.scores:
        about = f"{graded.prompt} with {graded.model}: " if len(people.scores) > 1 else ""
        for correction in graded.corrections:
            text = f"  {about}{correction.sentence}"
            terminal.result(text if correction.applies else StyledText(text, ODD))
    for correction in people.change:
        terminal.result(
            StyledText(f"  {correction.sentence}", ODD if correction.of == "side" else None)
        )


_BUDGET = "budget: "
_NO_ROOM = (
    "A call is reserved at its maximum cost, with max_tokens of output, before it is sent; "
    "the next one does not fit."
)
_NO_TOKENS_LEFT = "What is left of the tokens is less than the next prompt has."
_SCREENS = ("safety", "flag")
_ODD_STATUSES = ("malformed", "blocked", "error")
STATUS_COLORS = {RunStatus.COMPLETED: GOOD, RunStatus.FAILED: BAD}


def show_run(
    terminal: Terminal,
    summary: RunResult,
    progress: Progress | None = None,
    *,
    slices: bool = True,
    failed: bool = False,
) -> None:
    """Print the results of a run and the next command; `failed` lists all failing cases."""
    run = summary.run
    _headline(terminal, run)
    if summary.prompts:
        terminal.result(f"  {prompt_versions(summary)}")
    terminal.table(_score_rows(summary), right=(3,), indent=2, totals=0)
    _components(terminal, summary)
    show_breakdown(terminal, summary, slices=slices)
    _change(terminal, summary)
    show_judges(terminal, summary.judges)
    show_people(terminal, summary.human_grades)
    _counts(terminal, summary)
    _gates(terminal, summary.gates, summary.weak_prompts)
    if run.shard is not None:
        terminal.result(f"  {snapshot.UNDECIDED}")
    if progress is not None:
        _clients(terminal, progress)
    terminal.result(f"  run {run.id}")
    _failing(terminal, summary, everything=failed)
    for case, reason in summary.skips:
        terminal.result(f"  skipped {case}: {reason}")
    if run.status == RunStatus.PAUSED and str(run.stopped_by).startswith(_BUDGET):
        of_tokens = "max_total_tokens" in str(run.stopped_by)
        terminal.note(_NO_TOKENS_LEFT if of_tokens else _NO_ROOM)
    for sentence in (*summary.steered, *summary.forms):
        terminal.result(f"  {sentence}")
    show_batches(terminal, summary)
    need = BudgetNeed()
    if progress is not None and progress.sufficient_microusd is not None:
        need = BudgetNeed(in_cents(progress.sufficient_microusd), progress.narrower)
    if step := next_step(summary, need).sentence:
        terminal.note(f"Next: {step}")


def show_companion(terminal: Terminal, summary: RunResult) -> None:
    """Print what a run with the base's eval suite decides, beside the run that is shown whole."""
    _headline(terminal, summary.run)
    _gates(terminal, summary.gates, summary.weak_prompts)
    terminal.result(f"  run {summary.run.id}")
    _sentence(terminal, summary)


def _sentence(terminal: Terminal, summary: RunResult) -> None:
    verdict, sentence, amber = summary.headline
    color = ODD if amber else {"PASS": GOOD, "FAIL": BAD, "ERROR": BAD}.get(verdict, ODD)
    words = [StyledText(f"{verdict}  ", color, bold=True)] if verdict else []
    terminal.result(*words, StyledText(sentence, ODD if amber else None, bold=True))


def _failing(terminal: Terminal, summary: RunResult, *, everything: bool) -> None:
    """Print the headline, the failing cases with their reasons, and how to look closer."""
    _sentence(terminal, summary)
    triaged = summary.triage(most=None if everything else run_result.FAILING_SHOWN)
    if triaged is None or not triaged.worst:
        return
    several, fresh = len(summary.models) > 1, any(failing.newly for failing in triaged.worst)
    rows = [
        (
            *(("new" if failing.newly else "",) if fresh else ()),
            f"{failing.case}@{failing.model}" if several else failing.case,
            f"{f'{score(failing.before)} to ' if failing.newly else ''}{score(failing.composite)}",
        )
        for failing in triaged.worst
    ]
    last = len(rows[0]) - 1
    # The log of a job is read elsewhere, and reasons quote answers.
    root = terminal.root
    hide = in_actions() and root is not None and sites.open_site(root).file.settings.private
    for row, failing in zip(aligned(rows, right=frozenset({last})), triaged.worst, strict=True):
        why = "" if hide else " ".join(secrets.redacted(failing.why).split())
        lead = f"  {row}  "
        terminal.result(lead, why, hang=len(lead))
    first = triaged.worst[0]
    cell = f"{first.case}@{first.model}" if several else first.case
    more = f"; all {triaged.failing:,}: edison status {summary.run.id} --failed"
    terminal.note(
        f"Look closer: edison explain {cell}{'' if len(rows) == triaged.failing else more}"
    )


def show_batches(terminal: Terminal, summary: RunResult) -> None:
    """Print the batches that answers of a run are on their way in."""
    for batch in summary.batches:
        saved = batch.usual_microusd - batch.booked_microusd
        terminal.result(
            f"  {counted(batch.requests, 'request')} to {batch.model} in batch "
            f"{batch.remote_id or batch.id} since {batch.created_at[:16]} UTC: "
            f"{dollars(batch.booked_microusd)} reserved, the most it can cost; "
            f"{dollars(saved)} less than single calls"
        )
        terminal.result(f"    {batch.status or 'not known to have arrived'}")


def _clients(terminal: Terminal, progress: Progress) -> None:
    """Print which models were stopped, and which did not answer."""
    for client, reason in progress.closed.items():
        terminal.result("  ", StyledText(f"{client} stopped: ", BAD), reason)
        if check := WHAT_TO_CHECK.get(reason.partition(":")[0]):
            terminal.note(f"    {check}")
    for model, reason in progress.waiting.items():
        terminal.result("  ", StyledText(f"{model} did not answer: ", ODD), reason)


def _headline(terminal: Terminal, run: Run) -> None:
    """Print the experiment, its status, and why it does not count as evidence, if so."""
    stopped = f" ({run.stopped_by})" if run.stopped_by and run.status != RunStatus.COMPLETED else ""
    marks = [*run_result.labels_of(run)]
    if snapshot.eval_suite_of(run) == "base":
        marks.append(f"on the eval suite of {_base(run)[0]}")
    terminal.result(
        StyledText(run.experiment, bold=True),
        "  ",
        StyledText(run.status, STATUS_COLORS.get(run.status, ODD)),
        stopped,
        *(StyledText(f"  {mark}", ODD) for mark in marks),
    )


def _base(run: Run) -> tuple[str, ...]:
    """Return the name of the base of a run."""
    return git.commit_names(str(run.base_ref), str(run.base_commit))


def _gates(terminal: Terminal, rows: Sequence[GateRow], weak: Sequence[PromptContrast]) -> None:
    """Print the gate decisions, and the prompts that are worse than the best."""
    prompts = len({row.prompt for row in rows if row.prompt}) > 1
    models = len({row.model for row in rows if row.model}) > 1
    for row in rows:
        color = {"pass": GOOD, "fail": BAD}.get(row.verdict, ODD)
        about = row.metric + (f" of {row.prompt}" if prompts and row.prompt else "")
        about += f" with {row.model}" if models and row.model else ""
        terminal.result("  ", StyledText(row.word, color), f"  {about}: {row.sentence}")
    if sentence := decisions.stopped_sentence(rows):
        terminal.result(f"  {sentence}")
    for rival in weak:
        terminal.result(f"  {rival.sentence}")


def _change(terminal: Terminal, summary: RunResult) -> None:
    run, against = summary.run, summary.against
    if against is None or run.base_commit is None:
        return
    at = " at ".join(_base(run))
    if against.estimate is None:
        terminal.result(f"  nothing to compare with at {at}")
        return
    moved = change(against.estimate, against.low, against.high)
    if snap(against.estimate) == 0 and against.p == 1:
        moved = "no difference on any case"
    terminal.result(
        f"  {moved} against {at}, which has {points(against.composite)}; "
        f"{counted(against.n, 'case')} in common"
    )
    versions: dict[str, set[str]] = {}
    for row in summary.variants:
        versions.setdefault(row.place.prompt, set()).add(row.place.version)
    changed = [
        path for name, path in summary.files.prompts.items() if len(versions.get(name, ())) > 1
    ]
    if changed:
        terminal.result(f"  what changed: git diff {run.base_commit[:8]} -- {' '.join(changed)}")


def _score_rows(summary: RunResult) -> list[tuple[str, ...]]:
    several = len(summary.prompts) > 1
    rows: list[tuple[str, ...]] = [("", "score", "passed", "cost", "latency")]
    for scored in summary.models:
        name = f"{scored.prompt} with {scored.model}" if several else scored.model
        rows.append((name, *_numbers(scored)))
    others = summary.cost_microusd - sum(scored.cost_microusd for scored in summary.models)
    if others > 0:
        rows.append((_other_costs(summary), "", "", dollars(others), ""))
    if len(rows) > 2:
        rows.append(("all", *_numbers(summary.overall, cost=cost_text([summary]))))
    return rows if len(rows) > 1 else [("nothing was graded",)]


def _other_costs(summary: RunResult) -> str:
    """Return what was paid for beside the answers of the models."""
    lost, reserved = bool(summary.calls["unknown"]), summary.reserved_microusd > 0
    judged = not (lost or reserved) or any(cost.phase != "generate" for cost in summary.costs)
    named = {
        "judging": judged,
        "fallback": bool(summary.fallbacks),
        "lost calls": lost,
        "reserved for batches": reserved,
    }
    return ", ".join(what for what, there in named.items() if there)


def _numbers(scored: VariantScore, *, cost: str = "") -> tuple[str, ...]:
    return (
        points(scored.composite),
        rate(scored.pass_rate),
        cost or dollars(scored.cost_microusd),
        milliseconds(scored.p50_ms, scored.p95_ms),
    )


def _components(terminal: Terminal, summary: RunResult) -> None:
    """Print the components that not all answers pass, and then every criterion."""
    listed = [
        component
        for component in summary.components
        if component.failed or component.errors or component.kind in (*_SCREENS, "criterion")
    ]
    listed.sort(key=lambda component: component.kind == "criterion")
    rows = [_component_row(component, summary.breakdown.components) for component in listed]
    if rows:
        terminal.table(rows, drop=(2,), indent=4)


def _component_row(
    component: ComponentTotal, spreads: Sequence[ComponentSpread]
) -> tuple[str, ...]:
    name, kind = component.name, component.kind
    result, spread = "-", ""
    if kind == "criterion":
        result = "-" if component.mean is None else f"mean {score(component.mean)}"
        spread = spread_of(spreads, name, kind)
    elif kind in _SCREENS:
        actions = ("flagged", "redacted", "blocked")
        counts = ((getattr(component, action), action) for action in actions)
        result = ", ".join(f"{count:,} {action}" for count, action in counts if count)
    elif component.answers and component.failed is not None:
        result = f"{component.failed:,} of {component.answers:,} fail"
    errors = f"{component.errors:,} could not be graded" if component.errors else ""
    return (f"{kind} {name}", result, spread, errors)


def _counts(terminal: Terminal, summary: RunResult) -> None:
    done = {name: count for name, count in summary.cells.items() if count and name != "total"}
    sent = sum(done.values()) - done.get("skipped", 0)
    counts = ", ".join(
        f"{count:,} {name}" + (f" ({percent(count / sent, 1)})" if name in _ODD_STATUSES else "")
        for name, count in done.items()
    )
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in summary.error_kinds.items())
    errors = f" ({kinds})" if kinds else ""
    cells = counted(summary.cells["total"], "cell")
    terminal.result(f"  {cells}: {counts or 'none done'}{errors}")
    for used in summary.fallbacks:
        terminal.result("  ", StyledText(used.sentence, ODD))
    if cut := summary.cut_off_count:
        # Their texts end in the middle, which is why checks and judges may have failed them.
        cut_off = f"  {counted(cut, 'answer')} cut off at max_tokens: raise it, or ask for less"
        terminal.result(StyledText(cut_off, ODD))
    calls = summary.calls
    retried = f", {calls['retried']:,} retried" if calls["retried"] else ""
    unknown = f", {calls['unknown']:,} lost" if calls["unknown"] else ""
    seconds = f" in {duration(summary.wall_s)}" if summary.wall_s is not None else ""
    if calls["shared"]:
        terminal.result(f"  {counted(calls['shared'], 'answer')} from the shared cache")
    terminal.result(
        f"  {counted(calls['made'], 'call')} made, {calls['reused']:,} reused{retried}{unknown}; "
        f"{cost_text([summary])}{seconds}"
    )
