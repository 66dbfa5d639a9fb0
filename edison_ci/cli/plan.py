"""edison plan: what a run would do and cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from edison_ci.api import planning
from edison_ci.api.planning import PlanRequest
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import ODD, StyledText, Terminal
from edison_ci.cli.terminal import as_json as problem_json
from edison_ci.numeric import count_range, counted, dollar_range, duration_range, fixed, significant
from edison_ci.plan import interim_analysis
from edison_ci.plan.selection import MAX_SHARDS
from edison_ci.stats import power

if TYPE_CHECKING:
    from edison_ci.plan.estimate import Load
    from edison_ci.plan.interim_analysis import Kind
    from edison_ci.plan.plan import Plan


_NOTHING = "skipped: nothing affected"
_MOST_IN_FULL = 10
"""Plans that are printed in full; of more, each has one line."""


@click.command(cls=EdisonCommand)
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option(
    "--changed-since",
    metavar="REF",
    help="Plan only experiments affected by changes since this ref.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="Plan only this model, of the experiment or of models.yaml; repeatable.",
)
@click.option("--batch", is_flag=True, help="Plan answers in batches, as edison run --batch.")
@click.option("--loop", is_flag=True, help="Plan the refinement loop, 60-100% of its iterations.")
@click.option(
    "--shards",
    type=click.IntRange(1, MAX_SHARDS),
    metavar="N",
    help="Print a job matrix that splits the cases into N shards.",
)
@click.pass_obj
@takes(PlanRequest)
def plan(state: CliState, request: PlanRequest) -> None:
    """Show what a run would do and cost.

    Shows cells, calls, tokens, cost and time by phase and model, the smallest change that the cases
    can detect, and the number of cases that the margin of the gate needs. Nothing is sent.

    Examples:
      edison plan
      edison plan support-reply --loop
      edison plan --model large
      edison plan --changed-since origin/main
      edison plan support-reply --batch
      edison plan support-reply --shards 4
    """
    terminal = Terminal(state)
    project = lookup.open_project(state, *request.experiments)
    planned = planning.plan_runs(project, request, offline=state.offline)
    plans = planned.plans
    terminal.warnings([*project.warnings, *(w for p in plans for w in p.warnings)])
    if terminal.json:
        document = planned.as_json()
        for entry, plan in zip(document["experiments"], plans, strict=True):
            entry["warnings"] = [problem_json(warning) for warning in plan.warnings]
        terminal.document(document)
    elif request.shards:
        terminal.compact(planned.matrix)
        if not plans:
            terminal.note(_NOTHING)
    else:
        _changes(terminal, planned)
        _show_plans(terminal, plans)


def _changes(terminal: Terminal, planned: planning.Plans) -> None:
    impact, chosen = planned.impact, planned.named
    if impact is None:
        return
    terminal.result(f"Compared with {impact.ref} at {impact.commit[:8]}:")
    affected = {name: why for name, why in impact.affected.items() if name in chosen}
    for name, reasons in terminal.listed([*affected.items()]):
        listed = ", ".join(reasons[:3]) + (", ..." if len(reasons) > 3 else "")
        terminal.result(f"  {name} is affected: {listed}")
    for name in terminal.listed([name for name in impact.unaffected if name in chosen]):
        terminal.result(f"  {name} is not affected")
    if affected:
        terminal.result()
    else:
        terminal.result(_NOTHING)


def _show_plans(terminal: Terminal, plans: list[Plan]) -> None:
    """Print each plan, or a line for each if there are many."""
    if len(plans) <= _MOST_IN_FULL:
        for index, plan in enumerate(plans):
            if index:
                terminal.result()
            _show(terminal, plan)
        return
    rows: list[tuple[str, ...]] = [
        ("experiment", "cases", "cells", "calls", "tokens", "cost", "time", "")
    ]
    for plan in plans:
        counts = (f"{plan.cases:,}", f"{plan.cells:,}")
        blocked = "cannot run yet" if plan.blockers else ""
        rows.append((plan.experiment, *counts, *_amounts(plan), blocked))
    terminal.table(rows, right=(1, 2, 3, 4, 5, 6), totals=0)
    costs = [plan.cost_microusd for plan in plans if plan.cost_microusd is not None]
    unknown = f", and {counted(len(plans) - len(costs), 'experiment')} without a price"
    low, high = sum(cost.low for cost in costs), sum(cost.high for cost in costs)
    terminal.result(
        f"{counted(len(plans), 'experiment')}: {counted(sum(p.calls for p in plans), 'call')}, "
        f"{dollar_range(low, high)}{unknown if len(costs) < len(plans) else ''}"
    )
    terminal.note("a plan in full, with what its cases can show: edison plan EXPERIMENT")


def _show(terminal: Terminal, plan: Plan) -> None:
    terminal.result(StyledText(plan.experiment, bold=True), StyledText(_simulated(plan), ODD))
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
        iterations = f"loop of {low:g} to {high:g} iterations; the calls are those of {high:g}"
        terminal.result(f"    {iterations}")
    if plan.interims is not None and plan.iterations.high <= 1:
        terminal.result(f"    {_interim_range(plan, plan.interims)}")
    terminal.table(_rows(plan), right=(2, 3, 4, 5), indent=2)
    if (saved := plan.saving) is not None:
        low_high = dollar_range(saved.low, saved.high)
        terminal.result(f"  Batches save {low_high} and end within 24 hours.")
    _evidence(terminal, plan)
    for blocker in plan.blockers:
        terminal.result("  ", StyledText("before a run:", ODD), f" {blocker}")
    terminal.result(f"  plan {plan.hash[:8]}")


def _interim_range(plan: Plan, kind: Kind) -> str:
    """Return the range of calls of a comparison that may stop early."""
    low, high = interim_analysis.both_sides(kind, plan.cases, plan.calls + plan.reused)
    sentence = (
        f"with --against both sides are run: {low:,} calls before the first interim analysis, "
        f"at most {high:,}"
    )
    return f"{sentence} ({'more_repeats' if kind == 'repeats' else 'adaptive_sampling'})"


def _simulated(plan: Plan) -> str:
    """Return which models are simulated: their numbers are no evidence."""
    simulated = dict.fromkeys(load.model.name for load in plan.loads if load.model.simulated)
    if all(load.model.simulated for load in plan.loads):
        return "  (simulated models)"
    return f"  (simulated: {', '.join(simulated)})" if simulated else ""


def _rows(plan: Plan) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("phase", "model", "calls", "tokens", "cost", "time")]
    for load in plan.loads:
        rows.append((load.phase, load.name, *_amounts(load, exact=load.exact_tokens)))
    if len(plan.loads) > 1:
        rows.append(("total", "", *_amounts(plan)))
    return rows


def _amounts(of: Load | Plan, *, exact: bool = False) -> tuple[str, ...]:
    """Return calls, tokens, cost and time; estimated tokens are marked with ~."""
    tokens, cost, time = of.tokens, of.cost_microusd, of.seconds
    mark = "" if exact or not tokens.high else "~"
    return (
        f"{of.calls:,}",
        f"{mark}{count_range(tokens.low, tokens.high)}",
        "unknown" if cost is None else dollar_range(cost.low, cost.high),
        duration_range(time.low, time.high),
    )


def _typical(noun: str) -> str:
    return f"{100 * power.DEFAULT_SD:g} points from {noun} to {noun}, as is typical"


def _evidence(terminal: Terminal, plan: Plan) -> None:
    clustered, noun = plan.units < plan.gating, "case"
    if clustered:
        noun = "different input" if plan.units == plan.inputs else "cluster"
    cases = counted(plan.units, noun)
    if noun == "cluster":
        cases = f"{cases} ({counted(plan.gating, 'case')})"
    if plan.smallest_effect is None or plan.smallest_effect > 1:
        terminal.result(f"  {cases} cannot show any change: add cases.")
    else:
        points = 100 * plan.smallest_effect
        terminal.result(
            f"  With {cases} you can detect changes of about {fixed(points, 1)} points or more"
        )
        varies = f"{fixed(100 * plan.sd, 1)} points, as measured" if plan.sd else _typical(noun)
        terminal.result(f"  (if differences vary by {varies}).")
    if plan.margin is not None and plan.cases_for_margin is not None:
        needed = plan.cases_for_margin
        verdict = "enough" if plan.gating >= needed else "not yet enough"
        if clustered:
            needed = math.floor(needed * plan.units / plan.gating)
        terminal.result(
            f"  The {significant(100 * plan.margin, 3)}-point margin needs about "
            f"{counted(needed, noun)}: {verdict}."
        )
