"""What can a job say without keys: from which answers, and what if there are none?"""

from __future__ import annotations

import itertools
from contextlib import closing
from typing import TYPE_CHECKING

from edison_ci.cli.terminal import counted
from edison_ci.errors import EdisonError
from edison_ci.forge.events import Event, Situation
from edison_ci.operate.exporting import stored_answers
from edison_ci.operate.own_results import set_aside
from edison_ci.operate.proposal_terms import is_proposed
from edison_ci.operate.provenance import STORED, doubted_recordings
from edison_ci.plan.plan import plan_run
from edison_ci.providers.replay import ReplayProvider, recorded_in
from edison_ci.results.report import Planned
from edison_ci.store.database import open_reader
from edison_ci.store.foreign import open_foreign

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edison_ci.config.load import Experiment, Project
    from edison_ci.plan.baseline import Doubt
    from edison_ci.providers.recording import Recorded

FOLDER = "recordings"
_WHOSE = {
    Situation.FORK: "a pull request from a fork",
    Situation.DEPENDABOT: "a change by Dependabot",
    Situation.AFTER_WORKFLOW: "a job after another workflow",
}
_BY_HAND = (
    "A maintainer who has read the change can evaluate it with a workflow that is started by hand."
)


def recorded(project: Project) -> tuple[ReplayProvider | None, tuple[Doubt, ...]]:
    """Return the answers that are there, of recordings and stored ones, and what they lack."""
    names = [name for name in project.tree.names(FOLDER) if name.endswith(".jsonl")]
    files = (recorded_in(f"{FOLDER}/{name}", project.tree) for name in names)
    foreign = [*_unsigned(project)]
    found = ReplayProvider(itertools.chain(foreign, _stored(project), *files))
    if not len(found):
        return None, ()
    doubts = doubted_recordings(project.root, [project.root / FOLDER / name for name in names])
    return found, (*doubts, *([STORED] if foreign else []))


def _stored(project: Project) -> Iterator[Recorded]:
    results = project.root / project.file.results
    if results.exists():
        with closing(open_reader(results)) as connection:
            yield from stored_answers(connection)


def _unsigned(project: Project) -> Iterator[Recorded]:
    """Yield the answers of results that were set aside, as far as they can be read."""
    aside = set_aside(project.root / project.file.results)
    if not is_proposed(project.root) or not aside.exists():
        return
    try:
        connection = open_foreign(aside, hint="run without it")
    except EdisonError:
        return  # of no use, and nobody's fault here
    with closing(connection):
        yield from stored_answers(connection)


def undecided(event: Event, recording: ReplayProvider | None) -> str:
    """Return why a replay cannot decide anything; nothing where it can."""
    if event.trusted:
        return ""
    whose = _WHOSE.get(event.situation, f"an event {event.name!r}")
    found = "There are no recorded answers either, so nothing was evaluated."
    if recording is not None:
        answers = counted(len(recording), "answer")
        found = f"What is said here comes from {answers} that were recorded before."
    return f"No model was asked, because this is {whose}, which gets no keys. {found} {_BY_HAND}"


def planned(project: Project, experiments: Iterable[Experiment]) -> Iterator[Planned]:
    """Yield what evaluating experiments would take."""
    for experiment in experiments:
        made = plan_run(project, experiment)
        cost = made.cost_microusd
        span = None if cost is None else (round(cost.low), round(cost.high))
        yield Planned(experiment.id, made.cases, made.cells, made.calls, span)
