"""A new sample of production, graded by a command or after a scheduled run."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from edison_ci.access import site as sites
from edison_ci.features.monitor import production_calls as importing_production
from edison_ci.features.monitor import production_runs as production
from edison_ci.features.monitor import production_trend as result_production
from edison_ci.numeric import counted
from edison_ci.store import audit, database

if TYPE_CHECKING:
    from edison_ci.api.evaluation import GradingRequest
    from edison_ci.api.sessions import SessionFactory
    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.run_options import RunOutcome
    from edison_ci.features.monitor.production_calls import ProductionSample


def grade_new_sample(
    terminal: Terminal,
    project: Project,
    experiment: Experiment,
    request: GradingRequest,
    factory: SessionFactory,
) -> RunOutcome | None:
    """Grade a sample of the answers since the last one; None if there is no new answer."""
    sample = _sample(project, experiment)
    extent = f"{counted(sample.new, 'new answer')} in {counted(sample.files, 'file')}"
    if not sample.calls:
        terminal.note(f"{extent}: nothing to grade")
        return None
    terminal.note(f"{extent}: {counted(len(sample.calls), 'answer')} sampled")
    for name, needed in production.production_variant(experiment, sample).left_out:
        terminal.note(f"left out: {name}, which needs {needed}")
    ended = production.grade_production(project, experiment, sample, request, factory)
    site = sites.Site(project.root, project.file)
    after = {"run": ended.run_id, "answers": len(sample.calls), "new": sample.new}
    entry = site.entry(site.actor(), "import production", experiment.id, after=after)
    audit.write_audit(site.results, entry)
    return ended


def _sample(project: Project, experiment: Experiment) -> ProductionSample:
    assert experiment.file.production is not None
    after, graded = "", frozenset[str]()
    results = project.root / project.file.results
    if results.exists():
        with closing(database.open_reader(results)) as reader:
            after, graded = result_production.last_sample(reader, experiment.id)
    return importing_production.sample_of(
        project.tree, experiment.file.production, after=after, graded=graded
    )
