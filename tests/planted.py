"""Writes results files whose scores are known, with the library's own operations."""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from docs.sample import Sample
from edison_ci.records import CellStatus, RunStatus, Side
from edison_ci.results.rollups import rollups_of
from edison_ci.store.cells import CaseFacts, CellRow, Component
from edison_ci.store.database import open_database
from edison_ci.store.runs import NewRun, move_run, start_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.conftest import Folder

EXPERIMENT = "hello"


@dataclass(frozen=True)
class Planted:
    """A run to write: scores of cases c0, c1, ... by model; None is an error."""

    id: str
    time: str
    scores: Mapping[str, Sequence[float | None]]
    base: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    version: str = "a" * 64
    base_version: str = "b" * 64
    label: str = "v1"
    prompt: str = "hello"
    experiment: str = EXPERIMENT
    snapshot: str = "{}"
    plan_hash: str = "41a9f4ee"
    simulated: bool = False
    partial: bool = False
    complete: bool = True
    content: str = "as it was"
    """What the cases say; another text makes them other cases."""
    facts: CaseFacts | None = None
    """Tags and others of all cases."""
    components: tuple[Component, ...] = ()
    """Of the grade of every answer."""
    fresh: bool = False
    """Whether every answer is new, even where one is stored."""


def plant(folder: Folder, *runs: Planted) -> Path:
    """Add runs to the results of a project."""
    path = folder.path / ".edison/results.db"
    path.parent.mkdir(exist_ok=True)
    with closing(open_database(path)) as connection:
        for run in runs:
            connection.execute("begin immediate")
            sample = Sample(connection, run.experiment)
            start_run(_new(run))(connection)
            move_run(run.id, RunStatus.EXECUTING, run.time)(connection)
            sides = {"head": (run.version, run.scores), "base": (run.base_version, run.base)}
            for side, (version, scores) in sides.items():
                for model, row in scores.items():
                    for number, score in enumerate(row):
                        _cell(sample, replace(run, version=version), side, model, number, score)
            for status in ("JUDGING", "AGGREGATING", "COMPLETED") if run.complete else ("PAUSED",):
                done = status == "COMPLETED"
                move_run(run.id, RunStatus(status), run.time, complete=done)(connection)
            connection.execute("commit")
            rollups_of(connection, run.id)(connection)
    return path


def _new(run: Planted) -> NewRun:
    return NewRun(
        id=run.id,
        experiment=run.experiment,
        trigger="cli",
        plan_hash=run.plan_hash,
        snapshot=run.snapshot,
        labels={run.prompt: run.label},
        cells_planned=sum(map(len, run.scores.values())),
        simulated=run.simulated,
        partial=run.partial,
        owner="1-planted",
        now=run.time,
    )


def _cell(
    sample: Sample, run: Planted, side: str, model: str, number: int, score: float | None
) -> None:
    case = f"c{number}"
    booking = sample.booking(
        run.id, f"{case}{run.version}{run.content}", model, run.time, reuse=not run.fresh
    )
    answer_no = None if score is None else sample.bought(booking, "a word or two")
    digest = hashlib.sha256(f"{run.id}{side}{run.prompt}{case}{model}".encode()).hexdigest()
    sample.finish(
        CellRow(
            id=digest[:12],
            run_id=run.id,
            side=Side(side),
            prompt=run.prompt,
            version=run.version,
            model=model,
            case_id=case,
            repeat=0,
            request_hash=booking.request_hash,
            answer_no=answer_no,
            status=CellStatus.ERROR if score is None else CellStatus.OK,
            composite=score,
            passed=None if score is None else score >= 0.5,
            error="RATE_LIMITED" if score is None else None,
            case_hash=f"{case} {run.content}",
            facts=run.facts,
            components=run.components,
        )
    )
