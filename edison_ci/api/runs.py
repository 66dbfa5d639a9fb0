"""Runs: evaluate experiments, go on with what stopped, and grade stored answers again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.api.evaluation import RunRequest, chosen, evaluate, go_on, grade_again
from edison_ci.api.results import Result, result
from edison_ci.execute.run_options import RunOptions
from edison_ci.operate.provenance import doubted_recordings
from edison_ci.operate.sessions import SessionFactory, require_editor
from edison_ci.providers.replay import open_recording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Project


def run(
    project: Project,
    experiments: Sequence[str] = (),
    *,
    against: str | None = None,
    options: RunOptions | None = None,
    factory: SessionFactory | None = None,
) -> list[Result]:
    """Evaluate experiments, all of them by default, and return what each run found.

    With `against`, a Git ref, head and base are measured on the same cases and the gates decide.
    """
    require_editor(project, "run")
    request = RunRequest(
        tuple(chosen(project, experiments)),
        against,
        options or RunOptions(trigger="library"),
        factory or SessionFactory(),
    )
    return [result(project, end.run_id) for end in evaluate(project, request)]


def replay(
    project: Project, recording: str | Path, experiments: Sequence[str] = ()
) -> list[Result]:
    """Evaluate experiments with the answers of a recording, without asking any model."""
    require_editor(project, "run")
    path = Path(recording)
    request = RunRequest(
        tuple(chosen(project, experiments)),
        None,
        RunOptions(trigger="replay", reuse=False),
        SessionFactory(recording=open_recording(path)),
        doubted_recordings(project.root, [path]),
    )
    return [result(project, end.run_id) for end in evaluate(project, request)]


def resume(
    project: Project,
    wanted: str = "latest",
    *,
    budget_microusd: int | None = None,
    factory: SessionFactory | None = None,
) -> Result:
    """Go on with a run that stopped; `budget_microusd` is for the whole run."""
    stored = result(project, wanted).run
    ended = go_on(project, stored, budget_microusd, factory or SessionFactory())
    return result(project, ended.run_id)


def regrade(
    project: Project,
    wanted: str = "latest",
    *,
    options: RunOptions | None = None,
    factory: SessionFactory | None = None,
) -> Result:
    """Grade the stored answers of a run by the checks, rubric and judges of today."""
    ended = grade_again(project, wanted, options or RunOptions(), factory or SessionFactory())
    return result(project, ended.run_id)
