"""edison admin metrics: the metrics of a project, for Prometheus."""

from __future__ import annotations

import click

from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import Terminal
from edison_ci.config import load
from edison_ci.documents import files
from edison_ci.features.monitor import metrics as report_metrics


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
    site = lookup.open_site(state)
    project, _ = load.inspect_project(files.WorkingTree(site.root), root=site.root)
    with lookup.results_of(site) as connection:
        source = report_metrics.MetricSource(connection, site.results, project, site.clock())
        samples = report_metrics.project_samples(source)
    if terminal.json:
        listed = [
            {
                "name": f"{sample.metric.name}{sample.suffix}",
                "kind": sample.metric.kind,
                "labels": dict(sample.labels),
                "value": sample.value,
            }
            for sample in samples
        ]
        terminal.document({"metrics": listed})
    else:
        terminal.raw(report_metrics.render(report_metrics.OF_PROJECT, samples))
