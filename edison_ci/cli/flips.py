"""edison run --aa: how often the gates of an experiment flip when nothing was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.api import decisions
from edison_ci.errors import UsageError
from edison_ci.numeric import rate
from edison_ci.plan import baseline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.api.decisions import GateFlips
    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.load import Experiment, Project

_EXCLUDED = ("shard", "batch", "replay", "watch")


def twice_the_repeats(
    project: Project, experiments: Sequence[Experiment], given: Mapping[str, Any], *, offline: bool
) -> dict[str, Any]:
    """Return the options of a run with twice the answers of each case, and without a base.

    Raises UsageError if the experiment is not the same as at --against.
    """
    ref = given["against"]
    if ref is None:
        raise UsageError("--aa needs --against", hint="edison run --against HEAD --aa")
    if len(experiments) != 1:
        names = ", ".join(each.id for each in experiments)
        raise UsageError("--aa takes one experiment", hint=f"name one: {names}")
    if other := next((name for name in _EXCLUDED if given[name]), None):
        raise UsageError(f"--aa and --{other} exclude each other", hint="leave one of them out")
    (experiment,) = experiments
    if not experiment.file.gates:
        raise UsageError(f"{experiment.id} has no gates", hint="add gates to its file")
    if reasons := baseline.impact_since(project, ref, offline=offline).affected.get(experiment.id):
        raise UsageError(
            f"{experiment.id} is not the same as at {ref}: {reasons[0]}",
            hint="commit first: --aa compares a version with itself",
        )
    repeats = 2 * (given["repeats"] or experiment.file.repeats)
    if repeats > 100:
        raise UsageError(
            f"--aa needs {repeats} answers for each case, and 100 are the most",
            hint="use --repeats 50, or fewer",
        )
    return {**given, "against": None, "repeats": repeats}


def show_flips(terminal: Terminal, found: Sequence[GateFlips]) -> None:
    """Print what each gate says of identical input."""
    terminal.result(
        f"A/A: the answers to each case were split {decisions.SPLITS} times at random into a base "
        "and a head."
    )
    rows: list[tuple[str, ...]] = [("gate", "pass", "inconclusive", "fail", "fail rate")]
    for each in found:
        counts = (each.passes, each.unclear, each.fails)
        rows.append((each.gate or "all gates", *map(str, counts), rate(each.fail_rate)))
    terminal.table(rows, right=(1, 2, 3), indent=2)
