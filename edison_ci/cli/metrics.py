"""edison admin metrics: the metrics of a project, for Prometheus."""

from __future__ import annotations

import click

from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import Terminal
from edison_ci.config.load import find_root, inspect_project
from edison_ci.documents.files import WorkingTree
from edison_ci.operate.site import open_site
from edison_ci.report.metrics import OF_PROJECT, MetricSource, project_samples, render
from edison_ci.store.database import open_for_reading


@click.command(cls=EdisonCommand)
@click.pass_obj
def metrics(state: CliState) -> None:
    """Print metrics for Prometheus, as the pages serve them.

    The text format of /-/edison/metrics, without the metrics of the server itself, for jobs that
    end before anything could ask them: write it to a file for the textfile collector, or push it.

    Examples:
      edison admin metrics > edison.prom
      edison admin metrics --json
    """
    terminal = Terminal(state)
    site = open_site(state.enter_project(find_root(state.folder)))
    project, _ = inspect_project(WorkingTree(site.root), root=site.root)
    with open_for_reading(site.results) as connection:
        source = MetricSource(connection, site.results, project, site.clock())
        samples = project_samples(source)
    if terminal.json:
        listed = [
            {
                "name": f"{each.metric.name}{each.suffix}",
                "kind": each.metric.kind,
                "labels": dict(each.labels),
                "value": each.value,
            }
            for each in samples
        ]
        terminal.document({"metrics": listed})
    else:
        terminal.raw(render(OF_PROJECT, samples))
