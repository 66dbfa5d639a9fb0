"""edison dataset coverage and fill: what the cases cover, and cases for what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal
from edison_ci.errors import ConfigError
from edison_ci.features.assist import case_replies, generated_cases, generation
from edison_ci.features.assist.filling import MOST, gap_slots
from edison_ci.features.assist.generate_command import Given, writing_options
from edison_ci.numeric import counted, percent
from edison_ci.results import coverage as result_coverage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.assist.generation import Generated
    from edison_ci.records import Case
    from edison_ci.results.coverage import Coverage, DimensionCoverage

_BAR = 20
_LISTED = 6
_TAGS = 15
_DIVERSITY = 6


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.pass_obj
def coverage(state: CliState, experiment: str | None) -> None:
    """Show which tags, lengths, languages and difficulties the cases cover.

    A value is covered by at least 3 cases. Without `coverage` in the experiment, the values are the
    tags, entities and languages that occur, the lengths XS to L, the difficulties 1 to 5, and clear
    and ambiguous inputs. The map shows the cases of each tag by difficulty.

    Examples:
      edison dataset coverage
      edison dataset coverage support-reply --json
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    chosen = [project.experiment(experiment)] if experiment else [*project.experiments.values()]
    found = [
        (each, result_coverage.coverage_of(_cases(project, each), each.file.coverage))
        for each in chosen
    ]
    if terminal.json:
        documents = [{"experiment": each.id, **coverage_json(one)} for each, one in found]
        terminal.document({"experiments": documents})
        return
    for index, (each, one) in enumerate(found):
        if index:
            terminal.result("")
        whole = "" if one.share is None else f", {percent(one.share)} of the values covered"
        terminal.result(StyledText(each.id, bold=True), f"  {counted(one.cases, 'case')}{whole}")
        show_coverage(terminal, one)
        _show_map(terminal, one)


def _cases(project: Project, experiment: Experiment) -> Iterator[Case]:
    if not experiment.file.data:
        return
    feed = project.cases(experiment)
    yield from feed
    if feed.problems:
        raise ConfigError(feed.problems)


def coverage_json(found: Coverage) -> dict[str, Any]:
    """Return it as JSON."""
    return {
        "cases": found.cases,
        "at_least": found.at_least,
        "share": found.share,
        "dimensions": {
            each.name: {"share": each.share, "cases": dict(each.counts), "missing": each.missing}
            for each in found.dimensions
        },
    }


def show_coverage(terminal: Terminal, found: Coverage) -> None:
    """Print the share of covered values of each dimension, and what is missing."""
    wide = max((len(each.name) for each in found.dimensions), default=0)
    for each in found.dimensions:
        _show_dimension(terminal, each, wide)


def _show_dimension(terminal: Terminal, each: DimensionCoverage, wide: int) -> None:
    share = each.share or 0.0
    full = round(_BAR * share)
    color = GOOD if not each.missing else BAD if share < 0.5 else ODD
    lacking = sorted(each.missing, key=lambda value: (each.counts[value], value))
    words = [f"{value} ({each.counts[value]})" for value in lacking[:_LISTED]]
    more = f" and {len(lacking) - _LISTED:,} more" if len(lacking) > _LISTED else ""
    terminal.result(
        f"  {each.name:<{wide}}  ",
        StyledText("#" * full, color),
        "." * (_BAR - full),
        f"  {each.covered:>3,} of {len(each.counts):,}",
        f"  few: {', '.join(words)}{more}" if words else "",
    )


def _show_map(terminal: Terminal, found: Coverage) -> None:
    """Print the cases by tag and difficulty, in colors where there are."""
    rows = found.rows(_TAGS)
    if not rows:
        return
    wide = max(max(len(tag) for tag, _ in rows), len("tag"))
    terminal.result("")
    terminal.result(f"  {'tag':<{wide}}  difficulty 1     2     3     4     5")
    for tag, counts in rows:
        cells = [
            StyledText(f"{n:>6,}", GOOD if n >= found.at_least else ODD if n else BAD)
            for n in counts
        ]
        terminal.result(f"  {tag:<{wide}}        ", *cells)
    left = len(found.found["tags"]) - len(rows)
    if left > 0:
        terminal.note(f"  {counted(left, 'further tag')}: see --json")


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option(
    "--most", type=click.IntRange(1, MOST), default=50, show_default=True, metavar="N",
    help="Largest number of cases to write.",
)  # fmt: skip
@writing_options
@click.pass_obj
def fill(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Have models write cases for what the dataset does not cover.

    One case fills several gaps at once: a rare tag in a missing language, of a missing length. The
    coverage is shown before and after; after is what the new cases really cover.

    Examples:
      edison dataset fill
      edison dataset fill support-reply --most 20 --yes
    """
    begun = Given(state, experiment, "dataset fill", "synthetic", **given)
    targets = begun.experiment.file.coverage
    before = result_coverage.coverage_of(begun.cases, targets)
    slots = gap_slots(before, given["most"])
    if not slots:
        if begun.terminal.json:
            begun.terminal.document({"before": coverage_json(before), "added": 0, "cases": []})
        else:
            begun.terminal.result("everything is covered; nothing to fill")
        return
    if not begun.terminal.json:
        begun.terminal.note("before:")
        show_coverage(begun.terminal, before)
    form = case_replies.form_of(
        begun.experiment, begun.cases, begun.fixed,
        languages=[slot.language for slot in slots if slot.language],
        lengths=[slot.length for slot in slots if slot.length],
    )  # fmt: skip
    writers = generation.Writers(
        begun.project, begun.experiment, form, begun.writers,
        begun.experiment.file.objective, _DIVERSITY, begun.seed, tuple(begun.cases),
        budget_microusd=begun.budget,
    )  # fmt: skip

    def after(found: Generated) -> dict[str, Any]:
        new = [case.case("synthetic") for case in found.cases]
        reached = result_coverage.coverage_of([*begun.cases, *new], targets, like=before)
        if not begun.terminal.json:
            begun.terminal.note("after:")
            show_coverage(begun.terminal, reached)
        return {"before": coverage_json(before), "after": coverage_json(reached)}

    generated_cases.CaseOffer(
        begun.terminal, begun.file, writers, slots, begun.known(form.types, _DIVERSITY),
        begun.action, begun.verifier, told=after,
    ).settle(yes=begun.yes)  # fmt: skip
