"""edison github: event, job summary, annotations and comment of a GitHub Actions job."""

from __future__ import annotations

import os
from typing import Any

import click

from edison_ci.access import events
from edison_ci.api import reports
from edison_ci.cli import lookup
from edison_ci.cli.groups import LazyGroup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import Terminal
from edison_ci.documents import record_json
from edison_ci.errors import UsageError
from edison_ci.features.github import comment_command as github_comment
from edison_ci.features.github import step_files
from edison_ci.git import repository as git
from edison_ci.numeric import counted
from edison_ci.report import annotations as report_annotations
from edison_ci.report import markdown_report
from edison_ci.sanitize import folder_in_checkout

_SHOWN = 20


@click.command(cls=EdisonCommand)
@click.pass_obj
def event(state: CliState) -> None:
    """Show the event of this job, its mode, and what changed.

    Reads the variables of the runner (GITHUB_EVENT_NAME, GITHUB_EVENT_PATH and others) and the Git
    history. In a shallow checkout the missing commits are fetched, unless --offline is set. `mode`
    is `replay` where GitHub provides no secrets: pull requests from forks and from Dependabot.

    Examples:
      edison github event
      edison github event --json
    """
    terminal, happened = Terminal(state), events.read_event(os.environ)
    repository = git.Repository.find(state.folder)
    base = None
    if repository is not None:
        if state.offline and repository.is_shallow():
            raise UsageError(
                "the clone is shallow, and fetching is disabled by --offline",
                hint="run without --offline",
            )
        base = events.find_base(happened, repository)
    paths = None
    if repository is not None and base is not None and base.commit is not None:
        paths = sorted(repository.changed_paths(base.commit))
    if terminal.json:
        terminal.document(_as_json(happened, base, paths))
    _show(terminal, happened, base, paths)


def _show(
    terminal: Terminal, event: events.Event, base: events.BaseCommit | None, paths: list[str] | None
) -> None:
    number = f" {event.number}" if event.number else ""
    terminal.result(f"{event.name}{number}: {event.situation}")
    terminal.result(f"  mode  {event.mode}: {event.why}")
    terminal.result(f"  head  {event.head_sha or 'none'}")
    if base is not None:
        terminal.result(f"  base  {base.commit or 'none'}: {base.why}")
    if paths is None:
        terminal.result("  every file counts as changed")
        return
    terminal.result(f"  {counted(len(paths), 'file')} changed")
    for path in paths[:_SHOWN]:
        terminal.result(f"    {path}")
    if len(paths) > _SHOWN:
        terminal.result(f"    and {len(paths) - _SHOWN:,} more")


def _as_json(
    event: events.Event, base: events.BaseCommit | None, paths: list[str] | None
) -> dict[str, Any]:
    return {
        **record_json.fields_of(event, event="name", situation="situation"),
        **record_json.fields_of(event, "trusted", "mode", "why", "draft", "repository"),
        **record_json.fields_of(event, pull_request="number", head_sha="head_sha"),
        **record_json.fields_of(event, "base_sha", "base_branch"),
        "compare_with": base.commit if base else None,
        "changed": paths,
        **record_json.fields_of(event, "run_id", "attempt"),
    }


@click.group(cls=LazyGroup)
def github() -> None:
    """Report on a pull request from a GitHub Actions job.

    Examples:
      edison github run
      edison github event
      edison github summary
      edison github annotations
      edison github comment
      edison github approvals
    """


_RUNS = click.argument("runs", nargs=-1, metavar="[RUN]...")


@click.command("summary", cls=EdisonCommand)
@_RUNS
@click.pass_obj
def show_summary(state: CliState, runs: tuple[str, ...]) -> None:
    """Write the job summary and the outputs of the step.

    The summary goes to the file in GITHUB_STEP_SUMMARY, the outputs verdict, composite, delta,
    cost-usd, cells and regressions to the file in GITHUB_OUTPUT; without these variables the
    summary goes to stdout. Without RUN it covers the newest run and the newest runs of other
    experiments on the same commit and base. If the job ran nothing, the summary says so. The exit
    code is 0 for any verdict, because the step that ran the evaluation decides.

    Examples:
      edison github summary
      edison github summary support-reply
    """
    terminal = Terminal(state)
    project = lookup.open_project(state, to_report=True)
    report, details = reports.report_on(project, runs, state.folder)
    values = step_files.output_values(report)
    target = step_files.summarize(report, details)
    step_files.write_outputs(values)
    if terminal.json:
        terminal.document({"verdict": report.verdict, "outputs": values, "summary": target or None})
    elif target:
        terminal.note(f"wrote the summary to {target}")
    else:
        github_comment.print_markdown(
            terminal, markdown_report.job_summary(report, details=details)
        )


@click.command("annotations", cls=EdisonCommand)
@_RUNS
@click.pass_obj
def show_annotations(state: CliState, runs: tuple[str, ...]) -> None:
    """Print annotations on the lines that a change touched.

    Failed and unclear gates, broken cases, safety findings and changes of the eval suite, as
    workflow commands on stdout: the nine most important, and the number of others. They are placed
    on the lines of prompts, experiments and models that differ from the base. Without RUN it covers
    the newest run and the newest runs of other experiments on the same commit and base. The exit
    code is 0 for any verdict.

    Examples:
      edison github annotations
      edison github annotations support-reply --json
    """
    terminal = Terminal(state)
    project = lookup.open_project(state, to_report=True)
    report, _ = reports.report_on(project, runs, state.folder)
    annotations = report_annotations.annotations_of(report, reports.changed_in(project, report))
    if terminal.json:
        listed = [annotation.as_json() for annotation in annotations]
        terminal.document({"verdict": report.verdict, "annotations": listed})
        return
    folder = folder_in_checkout(project.root)
    terminal.commands(report_annotations.annotation_commands(annotations, folder))
    terminal.note(f"verdict: {report.verdict or 'not finished'}")
