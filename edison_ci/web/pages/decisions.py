"""The page of the decisions on a run: what each gate saw, and how sure it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.report.charts.forest import Forest, GateLine, forest
from edison_ci.report.charts.scales import Unit
from edison_ci.results.decisions import count_rounds, decisions_of
from edison_ci.web.page_context import Crumb, Look, Page, run_named
from edison_ci.web.pages.run import crumbs_of, head_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.results.decisions import GateRow

_SHARES = ("composite", "pass_rate", "errors", "win_rate")
_PARTS = ("criterion.", "check.", "grader.", "safety.")


def decisions(look: Look) -> Page:
    """Return what the gates said of a run, with every round of it."""
    run = run_named(look, look.path["run"])
    rounds = count_rounds(look.connection, run.id)
    number = look.args.whole("round", rounds or 1, most=rounds or 1)
    chosen = None if number == rounds else number - 1
    gates = decisions_of(look.connection, run.id, round=chosen)
    return Page(
        "decisions",
        f"Decisions on {run.experiment}, run {run.id}",
        {
            **head_of(look, run, "decisions"),
            "gates": gates,
            "forests": list(_forests(gates)),
            "rounds": rounds,
            "round": number,
        },
        crumbs=crumbs_of(look, run, Crumb(f"run {run.id}", look.links.to("run", run.id))),
        area="home",
    )


def _forests(gates: Sequence[GateRow]) -> list[Drawing]:
    """Return the decisions that share an axis: changes, and levels of what is a share."""
    changes = [row for row in gates if _unit(row) is Unit.CHANGE]
    levels = [row for row in gates if _unit(row) is Unit.SHARE]
    found = []
    if changes:
        title = "Change against the base, with what must not be passed"
        found.append(forest(Forest(title, tuple(map(_line, changes)), Unit.CHANGE, width=800)))
    if levels:
        title = "Levels, with what is asked for"
        found.append(forest(Forest(title, tuple(map(_line, levels)), Unit.SHARE, width=800)))
    return found


def _unit(row: GateRow) -> Unit | None:
    """Return on which axis a decision belongs; None if its numbers are of another kind."""
    if row.estimate is None:
        return None
    share = row.metric in _SHARES or row.metric.startswith(_PARTS)
    if not share or row.detail.get("kind") not in ("change", "level"):
        return None
    return Unit.CHANGE if row.detail["kind"] == "change" else Unit.SHARE


def _line(row: GateRow) -> GateLine:
    names = (row.metric, row.prompt or "", row.model or "")
    return GateLine(
        label=" · ".join(name for name in names if name),
        verdict=row.verdict,
        estimate=row.estimate,
        low=row.low,
        high=row.high,
        bound=_bound(row.gate, row.detail),
        above=row.gate.get("at_most") is None,
    )


def _bound(gate: Any, detail: Any) -> float | None:
    for name in ("at_least", "at_most"):
        if gate.get(name) is not None:
            return float(gate[name])
    margin = detail.get("margin")
    return None if margin is None else -float(margin)
