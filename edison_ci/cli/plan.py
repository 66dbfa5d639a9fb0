"""edison plan: what would a run do and cost?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import Terminal, table
from edison_ci.config.load import find_root, load_project
from edison_ci.errors import UsageError
from edison_ci.plan.impact import Impact, impact_since
from edison_ci.plan.plan import Plan, as_json
from edison_ci.plan.plan import plan as make_plan
from edison_ci.plan.shards import MAX_SHARDS

if TYPE_CHECKING:
    from edison_ci.plan.estimate import Span


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
    r"""Show what a run would do and cost.

    Cells, calls, tokens, cost and time, by phase and model; the smallest change this many cases can
    show, and how many the margin of the gate needs. Nothing is sent.

    \b
    Examples:
      edison plan
      edison plan support-reply --loop
      edison plan --changed-since origin/main
      edison plan --shards 4
    """
    terminal = Terminal(state)
    project = load_project(find_root(state.folder))
    chosen = [project.experiment(name) for name in experiments]
    impact = impact_since(project, changed_since) if changed_since else None
    if not chosen:
        chosen = [e for e in project.experiments.values() if not e.file.archived]
    if impact is not None:
        chosen = [e for e in chosen if e.id in impact.affected]
    if shards and len(chosen) > 1:
        raise UsageError(
            "shards split one experiment", hint=f"name it: {', '.join(e.id for e in chosen)}"
        )
    plans = [make_plan(project, e, shards=shards or 0, loop=loop) for e in chosen]
    for warning in (w for p in plans for w in p.warnings):
        terminal.note(f"{warning}")
    if terminal.json or shards:
        terminal.document(_document(plans, impact, shards)) if terminal.json else _matrix(plans)
        return
    _changes(terminal, impact)
    for one in plans:
        _show(terminal, one)


def _document(plans: list[Plan], impact: Impact | None, shards: int | None) -> dict[str, Any]:
    body: dict[str, Any] = {"experiments": [as_json(p) for p in plans]}
    if impact is not None:
        body["changed_since"] = {
            "ref": impact.ref,
            "commit": impact.commit,
            "affected": [{"experiment": k, "because": list(v)} for k, v in impact.affected.items()],
            "unaffected": list(impact.unaffected),
        }
    if shards and plans:
        body["matrix"] = _include(plans[0])
    return body


def _include(plan: Plan) -> dict[str, Any]:
    count = len(plan.shards)
    rows = [
        {"experiment": plan.experiment, "shard": f"{index}/{count}", "cases": cases}
        for index, cases in enumerate(plan.shards, 1)
    ]
    return {"include": rows}


def _matrix(plans: list[Plan]) -> None:
    import json

    click.echo(json.dumps(_include(plans[0]) if plans else {"include": []}))


def _changes(terminal: Terminal, impact: Impact | None) -> None:
    if impact is None:
        return
    terminal.result(f"Compared with {impact.ref} at {impact.commit[:8]}:")
    for name, reasons in impact.affected.items():
        shown = ", ".join(reasons[:3]) + (", ..." if len(reasons) > 3 else "")
        terminal.result(f"  {name} is affected: {shown}")
    for name in impact.unaffected:
        terminal.result(f"  {name} is not affected")
    if not impact.affected:
        terminal.result("skipped: nothing affected")
    terminal.result()


def _show(terminal: Terminal, plan: Plan) -> None:
    mark = terminal.style("  (simulated models)", fg="yellow") if plan.simulated else ""
    terminal.result(terminal.style(plan.experiment, bold=True) + mark)
    held = f", {plan.holdout} of them held out" if plan.holdout else ""
    skipped = f", {plan.skipped} skipped" if plan.skipped else ""
    calls = f"{plan.calls:,} calls to make, 0 reused"
    terminal.result(f"  {plan.cases:,} cases{held}; {plan.cells:,} cells{skipped}; {calls}")
    for reason in plan.reasons:
        terminal.result(f"    {reason}")
    if plan.iterations.high > 1:
        low, high = plan.iterations.low, plan.iterations.high
        terminal.result(
            f"  loop of {low:g} to {high:g} iterations; calls are those of all {high:g}"
        )
    rows = [("phase", "model", "calls", "tokens", "cost", "time")]
    for load in plan.loads:
        rows.append(
            (
                load.phase,
                load.name,
                f"{load.calls:,}",
                _thousands(load.tokens, exact=load.exact_tokens),
                _dollars(load.cost_microusd),
                _time(load.seconds),
            )
        )
    if len(plan.loads) > 1:
        rows.append(
            (
                "total",
                "",
                f"{plan.calls:,}",
                _thousands(plan.tokens),
                _dollars(plan.cost_microusd),
                _time(plan.seconds),
            )
        )
    for line in table(rows, right=frozenset({2, 3, 4, 5})):
        terminal.result("  " + line)
    _evidence(terminal, plan)
    for blocker in plan.blockers:
        terminal.result("  " + terminal.style("before a run: ", fg="yellow") + blocker)
    terminal.result(f"  plan {plan.hash[:8]}")
    terminal.result()


def _evidence(terminal: Terminal, plan: Plan) -> None:
    if plan.smallest_effect is not None:
        points = 100 * plan.smallest_effect
        terminal.result(
            f"  With {plan.cases:,} cases you can detect changes of about {points:.1f} points "
            "or more (if differences vary by 25 points)."
        )
    if plan.margin is not None and plan.cases_for_margin is not None:
        verdict = "enough" if plan.cases >= plan.cases_for_margin else "not yet enough"
        terminal.result(
            f"  The {100 * plan.margin:g}-point margin needs about "
            f"{plan.cases_for_margin:,} cases: {verdict}."
        )


def _thousands(span: Span, *, exact: bool = False) -> str:
    low, high = span.low, span.high
    mark = "" if exact else "~"
    if high < 10_000:
        return f"{mark}{low:,.0f}-{high:,.0f}"
    return f"{mark}{low / 1000:,.0f}k-{high / 1000:,.0f}k"


def _dollars(span: Span | None) -> str:
    if span is None:
        return "unknown"
    if span.high == 0:
        return "free"
    digits = 4 if span.high < 100_000 else 2
    return f"${span.low / 1e6:.{digits}f}-{span.high / 1e6:.{digits}f}"


def _time(span: Span) -> str:
    if span.high < 1:
        return "<1 s"
    if span.high < 120:
        return f"{span.low:.0f}-{span.high:.0f} s"
    return f"{span.low / 60:.1f}-{span.high / 60:.1f} min"
