"""edison dataset health: cases that repeat, contradict, are flaky or tell nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.dataset_judge import quality_json, tell_weak
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.quarantine import tell_flaky
from edison_ci.cli.reading import project_at, results_of
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, Terminal, counted
from edison_ci.config.facets import content_hash
from edison_ci.errors import ConfigError
from edison_ci.results.dataset_health import (
    SUBJECTS,
    Flakiness,
    QuestionQuality,
    examine,
    flakiness_of,
    quality_of,
    weigh,
)
from edison_ci.rounding import fixed
from edison_ci.store.questions import scores_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import Case
    from edison_ci.results.dataset_health import Group, Health, Listed


def meant(project: Project, name: str | None) -> list[Experiment]:
    """Return the experiment that was named, or all of them."""
    return [project.experiment(name)] if name else list(project.experiments.values())


def cases_of(project: Project, experiment: Experiment) -> Iterator[Case]:
    """Yield the cases of an experiment; a row that cannot be read ends it with every problem."""
    if not experiment.file.data:
        return
    feed = project.cases(experiment)
    yield from feed
    if feed.problems:
        raise ConfigError(feed.problems)


_LISTED = 10


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.pass_obj
def health(state: State, experiment: str | None) -> None:
    """Look for cases that repeat, contradict or tell nothing.

    Duplicates have the same inputs; contradictions have the same inputs and different expected
    outputs. From complete runs that were graded alike: saturated cases pass every time, and others
    score the same whoever answers. Nothing is said of a case that fewer than two prompt versions or
    models have answered, nor of results from before it was edited. Flaky cases come out one way and
    then the other: see edison quarantine suggest. Weak questions are those of which judges said so:
    see edison dataset judge.

    Examples:
      edison dataset health
      edison dataset health support-reply --json
    """
    terminal, project = Terminal(state), project_at(state)
    found = [(each, *_health(project, each)) for each in meant(project, experiment)]
    if terminal.json:
        documents = [
            {
                "experiment": each.id,
                **_health_json(one),
                "flaky": flaky.cases,
                "questions": quality_json(quality),
            }
            for each, one, flaky, quality in found
        ]
        terminal.document({"experiments": documents})
        return
    for index, (each, one, flaky, quality) in enumerate(found):
        if index:
            terminal.result("")
        _diagnose(terminal, each, one)
        tell_flaky(terminal, flaky)
        if quality.questions or quality.stale:
            tell_weak(terminal, quality)


def _health(project: Project, experiment: Experiment) -> tuple[Health, Flakiness, QuestionQuality]:
    examined = examine(lambda: cases_of(project, experiment), content_hash)
    if not (project.root / project.file.results).exists():
        return examined.health, Flakiness(), QuestionQuality()
    with results_of(project) as connection:
        found = weigh(connection, experiment.id, examined)
        quality = quality_of(scores_of(connection, experiment.id), examined.has)
        return found, flakiness_of(connection, experiment.id), quality


def _diagnose(terminal: Terminal, experiment: Experiment, found: Health) -> None:
    terminal.result(Ink(experiment.id, bold=True), f"  {counted(found.cases, 'case')}")
    one_file = len(experiment.file.data) == 1  # of several, a line says nothing
    for word, groups in (
        ("contradiction", found.contradictions),
        ("duplicate", found.duplicates),
    ):
        color = (BAD if word == "contradiction" else ODD) if groups else GOOD
        terminal.result("  ", Ink(counted(len(groups), word), color))
        for group in groups[:_LISTED]:
            lines = f" (lines {', '.join(map(str, group.lines[:_LISTED]))})" if one_file else ""
            terminal.result(f"    {', '.join(group.cases[:_LISTED])}{lines}")
        if len(groups) > _LISTED:
            terminal.result(f"    and {len(groups) - _LISTED:,} more")
    if found.more_groups:
        terminal.note(f"{found.more_groups:,} further groups of equal inputs were not looked into")
    if not found.measured:
        few = f"no case has results of {SUBJECTS} prompt versions or models"
        terminal.note(f"{few}: nothing is known of what cases tell apart")
        return
    for listed, word in (
        (found.saturated, "saturated: every answer passes"),
        (found.same_for_all, "telling nothing apart: every answer scores the same"),
    ):
        _list(terminal, found.measured, listed, word)
    if found.measured < found.cases:
        left = found.cases - found.measured
        terminal.note(f"{counted(left, 'case')} without enough results")


def _list(terminal: Terminal, measured: int, listed: Listed, word: str) -> None:
    share = 100 * listed.count / measured
    about = Ink(f"{counted(listed.count, 'case')} {word}", ODD if share >= 50 else GOOD)
    terminal.result("  ", about, f" ({fixed(share)}% of {measured:,} measured)")
    if listed.count:
        names = ", ".join(tested.case for tested in listed.cases[:_LISTED])
        more = f" and {listed.count - _LISTED:,} more" if listed.count > _LISTED else ""
        terminal.result(f"    {names}{more}")


def _health_json(found: Health) -> dict[str, Any]:
    def groups(listed: Sequence[Group]) -> list[dict[str, Any]]:
        return [{"cases": list(group.cases), "lines": list(group.lines)} for group in listed]

    def cases(listed: Listed) -> dict[str, Any]:
        return {"count": listed.count, "cases": [tested._asdict() for tested in listed.cases]}

    return {
        "ok": found.ok,
        "cases": found.cases,
        "duplicates": groups(found.duplicates),
        "contradictions": groups(found.contradictions),
        "more_groups": found.more_groups,
        "measured": found.measured,
        "saturated": cases(found.saturated),
        "same_for_all": cases(found.same_for_all),
    }
