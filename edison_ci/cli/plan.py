"""edison plan: what a run would do and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import ODD, Ink, Terminal, aligned, counted
from edison_ci.config import needs
from edison_ci.config.load import find_root, load_project
from edison_ci.errors import UsageError
from edison_ci.plan.impact import Impact, impact_since
from edison_ci.plan.looks import both_sides
from edison_ci.plan.plan import Plan, as_json, matrix
from edison_ci.plan.plan import plan_run as make_plan
from edison_ci.plan.selection import MAX_SHARDS
from edison_ci.plugins import later
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project
    from edison_ci.plan.estimate import Span
    from edison_ci.plan.looks import Kind

_NOTHING = "skipped: nothing affected"
# Loaded late: while nothing is stored nothing can be reused.
_foreseen = later("edison_ci.execute.reuse_forecast:with_reuse")


@click.command(cls=EdisonCommand)
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--changed-since", metavar="REF", help="Only experiments that a change touches.")
@click.option("--loop", is_flag=True, help="The whole refinement loop, 60-100% of its iterations.")
@click.option(
    "--shards",
    type=click.IntRange(1, MAX_SHARDS),
    metavar="N",
    help="Print a matrix that splits the cases over N jobs.",
)
@click.pass_obj
def plan(
    state: State,
    experiments: tuple[str, ...],
    changed_since: str | None,
    loop: bool,
    shards: int | None,
) -> None:
    """Show what a run would do and cost.

    Cells, calls, tokens, cost and time, by phase and model; the smallest change this many cases can
    show, and how many the margin of the gate needs. Nothing is sent.

    Examples:
      edison plan
      edison plan support-reply --loop
      edison plan --changed-since origin/main
      edison plan support-reply --shards 4
    """
    terminal = Terminal(state)
    project = load_project(state.entered(find_root(state.folder)))
    chosen = _chosen(project, experiments)
    impact = None
    if changed_since:
        impact = impact_since(project, changed_since, offline=state.offline)
        chosen = [e for e in chosen if e.id in impact.affected]
    calls = needs.REFINEMENT if loop else needs.RUN
    needs.refuse(problem for e in chosen for problem in needs.missing(project, e, calls=calls))
    if shards and len(chosen) > 1:
        hint = f"name one: {', '.join(e.id for e in chosen)}"
        raise UsageError("--shards splits one experiment", hint=hint)
    plans = [
        _with_reuse(make_plan(project, e, shards=shards or 0, loop=loop), project, e)
        for e in chosen
    ]
    terminal.warnings([*project.warnings, *(w for p in plans for w in p.warnings)])
    if terminal.json:
        terminal.document(_document(plans, impact, shards))
    elif shards:
        terminal.compact(matrix(plans[0]) if plans else {"include": []})
        if not plans:
            terminal.note(_NOTHING)
    else:
        _changes(terminal, impact, {e.id for e in _chosen(project, experiments)})
        for index, one in enumerate(plans):
            if index:
                terminal.result()
            _show(terminal, one)


def _with_reuse(plan: Plan, project: Project, experiment: Experiment) -> Plan:
    if not project.tree.exists(project.file.results):
        return plan
    found: Plan = _foreseen(plan, project, experiment)
    return found


def _chosen(project: Project, names: tuple[str, ...]) -> list[Experiment]:
    """Return the experiments that are named, or all that are not archived."""
    if names:
        return [project.experiment(name) for name in dict.fromkeys(names)]
    return [e for e in project.experiments.values() if not e.file.archived]


def _document(plans: list[Plan], impact: Impact | None, shards: int | None) -> dict[str, Any]:
    body: dict[str, Any] = {"experiments": [as_json(p) for p in plans]}
    if impact is not None:
        body["changed_since"] = {
            "ref": impact.ref,
            "commit": impact.commit,
            "affected": [{"experiment": k, "because": list(v)} for k, v in impact.affected.items()],
            "unaffected": list(impact.unaffected),
        }
    if shards:
        body["matrix"] = matrix(plans[0]) if plans else {"include": []}
    return body


def _changes(terminal: Terminal, impact: Impact | None, chosen: set[str]) -> None:
    if impact is None:
        return
    terminal.result(f"Compared with {impact.ref} at {impact.commit[:8]}:")
    affected = {name: why for name, why in impact.affected.items() if name in chosen}
    for name, reasons in affected.items():
        shown = ", ".join(reasons[:3]) + (", ..." if len(reasons) > 3 else "")
        terminal.result(f"  {name} is affected: {shown}")
    for name in impact.unaffected:
        if name in chosen:
            terminal.result(f"  {name} is not affected")
    if affected:
        terminal.result()
    else:
        terminal.result(_NOTHING)


def _show(terminal: Terminal, plan: Plan) -> None:
    terminal.result(Ink(plan.experiment, bold=True), Ink(_simulated(plan), ODD))
    held = f" ({plan.holdout:,} held out)" if plan.holdout else ""
    skipped = f" ({plan.skipped:,} skipped)" if plan.skipped else ""
    terminal.result(
        f"  {counted(plan.cases, 'case')}{held}, {counted(plan.cells, 'cell')}{skipped}: "
        f"{counted(plan.calls, 'call')} to make, {plan.reused:,} reused"
    )
    for reason in plan.reasons:
        terminal.result(f"    {reason}")
    if plan.iterations.high > 1:
        low, high = plan.iterations.low, plan.iterations.high
        said = f"loop of {low:g} to {high:g} iterations; calls are those of all {high:g}"
        terminal.result(f"    {said}")
    if plan.looks is not None and plan.iterations.high <= 1:
        terminal.result(f"    {_looked_at(plan, plan.looks)}")
    for row in aligned(_rows(plan), right=frozenset({2, 3, 4, 5})):
        terminal.result("  " + row)
    _evidence(terminal, plan)
    for blocker in plan.blockers:
        terminal.result("  ", Ink("before a run:", ODD), f" {blocker}")
    terminal.result(f"  plan {plan.hash[:8]}")


def _looked_at(plan: Plan, kind: Kind) -> str:
    """Say how many calls a comparison takes that stops when it is clear."""
    low, high = both_sides(kind, plan.cases, plan.calls + plan.reused)
    said = f"with --against it is both sides: {low:,} calls before the first look, at most {high:,}"
    return f"{said} ({'more_draws' if kind == 'draws' else 'adaptive_sampling'})"


def _simulated(plan: Plan) -> str:
    """Return which models are made up, so that nobody takes their numbers for evidence."""
    made_up = dict.fromkeys(load.model.name for load in plan.loads if load.model.simulated)
    if all(load.model.simulated for load in plan.loads):
        return "  (simulated models)"
    return f"  (simulated: {', '.join(made_up)})" if made_up else ""


def _rows(plan: Plan) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("phase", "model", "calls", "tokens", "cost", "time")]
    for load in plan.loads:
        tokens = _thousands(load.tokens, exact=load.exact_tokens)
        cost, time = _dollars(load.cost_microusd), _time(load.seconds)
        rows.append((load.phase, load.name, f"{load.calls:,}", tokens, cost, time))
    if len(plan.loads) > 1:
        cost, time = _dollars(plan.cost_microusd), _time(plan.seconds)
        rows.append(("total", "", f"{plan.calls:,}", _thousands(plan.tokens), cost, time))
    return rows


def _evidence(terminal: Terminal, plan: Plan) -> None:
    cases = counted(plan.gating, "case")
    if plan.smallest_effect is None or plan.smallest_effect > 1:
        terminal.result(f"  {cases} can show no change, however large: add cases.")
    else:
        points = 100 * plan.smallest_effect
        terminal.result(
            f"  With {cases} you can detect changes of about {fixed(points, 1)} points or more"
        )
        terminal.result("  (if differences vary by 25 points from case to case, as is typical).")
    if plan.margin is not None and plan.cases_for_margin is not None:
        verdict = "enough" if plan.gating >= plan.cases_for_margin else "not yet enough"
        terminal.result(
            f"  The {100 * plan.margin:g}-point margin needs about "
            f"{plan.cases_for_margin:,} cases: {verdict}."
        )


def _thousands(span: Span, *, exact: bool = False) -> str:
    low, high = span.low, span.high
    mark = "" if exact else "~"
    if high == 0:
        return "0"
    if high < 10_000:
        return f"{mark}{fixed(low, grouped=True)}-{fixed(high, grouped=True)}"
    return f"{mark}{fixed(low / 1000, grouped=True)}k-{fixed(high / 1000, grouped=True)}k"


def _dollars(span: Span | None) -> str:
    if span is None:
        return "unknown"
    if span.high == 0:
        return "free"
    digits = 4 if span.high < 100_000 else 2
    return f"${fixed(span.low / 1e6, digits)}-{fixed(span.high / 1e6, digits)}"


def _time(span: Span) -> str:
    if span.high < 1:
        return "<1 s"
    if span.high < 120:
        return f"{fixed(span.low)}-{fixed(span.high)} s"
    return f"{fixed(span.low / 60, 1)}-{fixed(span.high / 60, 1)} min"
