"""edison recommend: which model to use, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.leaderboard import standing_json
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.reading import (
    experiments_meant,
    price,
    readable_at,
    results_of,
)
from edison_ci.cli.terminal import ODD, Ink, Terminal, counted
from edison_ci.decide.recommendation import FEW, Wishes, advise
from edison_ci.formatting import milliseconds, points
from edison_ci.plan.versions import short
from edison_ci.results.case_filter import roll_of
from edison_ci.results.leaderboard import measurements_of
from edison_ci.rounding import fixed
from edison_ci.stats.sentences import signed, value_sentence

if TYPE_CHECKING:
    from edison_ci.decide.recommendation import Advice, Doubt
    from edison_ci.stats.value import Valued


class Score(click.ParamType[float]):
    """Points out of 100, a percentage, or a share from 0 to 1."""

    name = "score"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the score from 0 to 1."""
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = -1.0
        share = number / 100 if text.endswith("%") or number > 1 else number
        if not 0 <= share <= 1:
            self.fail(f"{text!r} is no score: write 80, 80% or 0.8", param, ctx)
        return share


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--min-score", type=Score(), metavar="POINTS", help="Least score, such as 80.")
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0),
    metavar="USD",
    help="Most that an answer may cost, in dollars.",
)
@click.option(
    "--max-latency",
    type=click.FloatRange(min=0),
    metavar="MS",
    help="Longest median latency, in milliseconds.",
)
@click.pass_obj
def recommend(state: State, /, experiment: str | None, **options: Any) -> None:
    """Say which model to use, and why.

    Looks at the newest version of each prompt, on the cases that all models have. Best value is the
    cheapest model that is shown to be within 5 points of the most accurate one, by the rule of the
    gates; when the cases are too few to show it, it says so. On the front is whatever no other
    model beats in score, cost and latency at once.

    Examples:
      edison recommend
      edison recommend support-reply --min-score 80 --max-cost 0.002
      edison recommend --max-latency 1500 --json
    """
    terminal = Terminal(state)
    project = readable_at(state, terminal)
    dollars = options["max_cost"]
    wishes = Wishes(
        min_score=options["min_score"],
        max_cost_microusd=None if dollars is None else dollars * 1e6,
        max_latency_ms=options["max_latency"],
    )
    advices = []
    with results_of(project) as connection:
        for name in experiments_meant(connection, project, experiment):
            roll = roll_of(project, name, stored=connection)
            measured = measurements_of(connection, name, roll)
            if measured is not None:
                advices.append(advise(name, measured, roll, wishes))
    if terminal.json:
        terminal.document({"experiments": [_advice(advice) for advice in advices]})
        return
    if not advices:
        terminal.note("no complete run yet: edison run")
    for index, advice in enumerate(advices):
        if index:
            terminal.result("")
        _show(terminal, advice)


def _show(terminal: Terminal, advice: Advice) -> None:
    about = f"  {counted(len(advice.rows), 'model')} on {counted(advice.cases, 'case')}"
    marks = [Ink("  simulated", ODD)] if advice.simulated else []
    terminal.result(Ink(advice.experiment, bold=True), about, *marks)
    found = advice.found
    if found is None:
        terminal.result(_nothing(advice))
    else:
        rows = advice.rows
        table = [("most accurate", found.best, points(rows[found.best].composite))]
        if advice.fastest is not None:
            fast = rows[advice.fastest]
            table.append(("fastest", advice.fastest, milliseconds(fast.p50_ms, fast.p95_ms)))
        table.append(("best value", found.value, price(rows[found.value].cost_microusd)))
        terminal.table(table)
        for sentence in sentences(advice):
            terminal.result(sentence)
        _models(terminal, advice)
    for name, reason in advice.refused:
        terminal.result(f"left out: {name}, because {reason}")


def _nothing(advice: Advice) -> str:
    if not advice.rows and advice.refused:
        return "No model is left that does what was asked for."
    return (
        f"Not enough cases: {counted(advice.cases, 'case')} with a score of every model. "
        "Two are the least, and about 50 tell something."
    )


def sentences(advice: Advice) -> list[str]:
    """Return what to use, and what the cases there are cannot tell."""
    found = advice.found
    if found is None:
        return [_nothing(advice)]
    if len(advice.rows) == 1:
        said = [f"{found.best} is the only model: nothing to compare it with."]
    else:
        said = [value_sentence(found, margin=advice.margin)]
    said += [_doubt(doubt, found.best, advice.margin) for doubt in advice.doubts]
    per = found.loss_per_saving
    if found.value != found.best and per is not None and found.loss > 0:
        # Of a thousand answers: a share of a micro-dollar means nothing to anybody.
        saved = (advice.rows[found.best].cost_microusd or 0.0) - (
            advice.rows[found.value].cost_microusd or 0.0
        )
        said.append(
            f"It scores {fixed(100 * found.loss, 1)} points less and saves {price(1000 * saved)} "
            "in 1,000 answers."
        )
    if not any(row.cost_microusd for row in advice.rows.values()):
        said.append("No answer cost anything, so the cost decides nothing here.")
    if any(row.place.run.partial for row in advice.rows.values()):
        said.append("Some of it was measured on a part of the cases only.")
    if advice.cases < FEW:
        said.append(f"Very few cases ({advice.cases}): do not rely on it.")
    return said


def _doubt(doubt: Doubt, best: str, margin: float) -> str:
    contrast = doubt.contrast
    change = f"{signed(contrast.difference)} points"
    if contrast.interval is not None:
        low, high = contrast.interval
        change += f" (likely {signed(low)} to {signed(high)})"
    if doubt.worse:
        return f"{doubt.name} is shown to be worse than {best}: {change}."
    said = f"Not enough cases to tell whether {doubt.name} is as good as {best}: {change}"
    said += f" on {counted(contrast.n, 'case')}."
    if doubt.n_needed is not None:
        said += (
            f" If it is, about {doubt.n_needed:,} cases would show that it is within "
            f"{100 * margin:g} points."
        )
    return said


def _models(terminal: Terminal, advice: Advice) -> None:
    found = advice.found
    if found is None or len(found.models) < 2:
        return
    table: list[tuple[str, ...]] = [
        ("model", "prompt", "score", "against the best", "cost/answer", "latency", "")
    ]
    for model in found.models:
        row = advice.rows[model.name]
        worst = model.worst_plausible
        against = "-" if worst is None else f"worst plausible {signed(worst)}"
        marks = [name for name, holds in _marks(model, found.best) if holds]
        table.append(
            (
                model.name,
                row.label or short(row.place.version),
                _score(model),
                "the best" if model.name == found.best else against,
                price(row.cost_microusd),
                milliseconds(row.p50_ms, row.p95_ms),
                ", ".join(marks),
            )
        )
    terminal.table(table, right=(4,))


def _score(model: Valued) -> str:
    if model.interval is None:
        return fixed(100 * model.value, 1)
    low, high = model.interval
    return f"{fixed(100 * model.value, 1)} ({fixed(100 * low, 1)} to {fixed(100 * high, 1)})"


def _marks(model: Valued, best: str) -> list[tuple[str, bool]]:
    return [("on the front", model.on_front), ("as good", model.as_good and model.name != best)]


def _advice(advice: Advice) -> dict[str, Any]:
    found = advice.found
    models = {} if found is None else {model.name: model for model in found.models}
    return {
        "experiment": advice.experiment,
        "cases": advice.cases,
        "simulated": advice.simulated,
        "most_accurate": None if found is None else found.best,
        "fastest": advice.fastest if found is not None else None,
        "best_value": None if found is None else found.value,
        "front": [model.name for model in models.values() if model.on_front],
        "margin": advice.margin,
        "sentences": sentences(advice),
        "models": [
            {
                "name": name,
                **{k: v for k, v in standing_json(row).items() if k != "rank"},
                **_valued(models.get(name)),
            }
            for name, row in advice.rows.items()
        ],
        "doubts": [
            {
                "model": doubt.name,
                "worse": doubt.worse,
                "estimate": doubt.contrast.difference,
                "low": doubt.contrast.interval and doubt.contrast.interval.low,
                "high": doubt.contrast.interval and doubt.contrast.interval.high,
                "n": doubt.contrast.n,
                "p": doubt.contrast.p,
                "n_needed": doubt.n_needed,
            }
            for doubt in advice.doubts
        ],
        "left_out": [{"model": name, "reason": reason} for name, reason in advice.refused],
    }


def _valued(model: Valued | None) -> dict[str, Any]:
    """Return how a model does on the cases that all have."""
    if model is None:
        return {"common": None, "on_front": None, "as_good": None, "worst_plausible": None}
    low, high = model.interval or (None, None)
    return {
        "common": {"estimate": model.value, "low": low, "high": high, "n": model.n},
        "on_front": model.on_front,
        "as_good": model.as_good,
        "worst_plausible": model.worst_plausible,
    }
