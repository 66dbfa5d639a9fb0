"""edison github: event, job summary, annotations and comment of a GitHub Actions job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from edison_ci.cli.github_approvals import approvals
from edison_ci.cli.github_comment import comment, print_markdown
from edison_ci.cli.github_run import append, output_values, run_job, write_outputs
from edison_ci.cli.lookup import open_project
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup
from edison_ci.cli.reporting import changed_in, report_on
from edison_ci.cli.terminal import Terminal, folder_in_checkout
from edison_ci.errors import UsageError
from edison_ci.forge.events import BaseCommit, Event, find_base, read_event
from edison_ci.git.repository import Repository
from edison_ci.numeric import counted
from edison_ci.report.annotations import annotation_commands, annotations_of
from edison_ci.report.markdown_report import job_summary

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
    terminal, found = Terminal(state), read_event(os.environ)
    repository = Repository.find(state.folder)
    base = None
    if repository is not None:
        if state.offline and repository.is_shallow():
            raise UsageError(
                "the clone is shallow, and fetching is disabled by --offline",
                hint="run without --offline",
            )
        base = find_base(found, repository)
    paths = None
    if repository is not None and base is not None and base.commit is not None:
        paths = sorted(repository.changed_paths(base.commit))
    if terminal.json:
        terminal.document(_as_json(found, base, paths))
    _show(terminal, found, base, paths)


def _show(
    terminal: Terminal, event: Event, base: BaseCommit | None, paths: list[str] | None
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


def _as_json(event: Event, base: BaseCommit | None, paths: list[str] | None) -> dict[str, Any]:
    return {
        "event": event.name,
        "situation": str(event.situation),
        "trusted": event.trusted,
        "mode": event.mode,
        "why": event.why,
        "draft": event.draft,
        "repository": event.repository,
        "pull_request": event.number,
        "head_sha": event.head_sha,
        "base_sha": event.base_sha,
        "base_branch": event.base_branch,
        "compare_with": base.commit if base else None,
        "changed": paths,
        "run_id": event.run_id,
        "attempt": event.attempt,
    }


@click.group(cls=EdisonGroup)
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


github.add_command(approvals)
github.add_command(comment)
github.add_command(event)
github.add_command(run_job)


_RUNS = click.argument("wanted", nargs=-1, metavar="[RUN]...")


@github.command("summary", cls=EdisonCommand)
@_RUNS
@click.pass_obj
def show_summary(state: CliState, wanted: tuple[str, ...]) -> None:
    """Write the job summary and the outputs of the step.

    The summary goes to the file in GITHUB_STEP_SUMMARY, the outputs verdict, composite, delta,
    cost-usd, cells and regressions to the file in GITHUB_OUTPUT; without these variables the
    summary goes to stdout. Without RUN it covers the newest run and the newest runs of other
    experiments on the same commit and base. If the job ran nothing, the summary says so. The exit
    code is 0 whatever the verdict is, because the step that ran the evaluation decides.

    Examples:
      edison github summary
      edison github summary support-reply
    """
    terminal = Terminal(state)
    project = open_project(state)
    report, details = report_on(project, wanted, state.folder)
    target, values = os.environ.get("GITHUB_STEP_SUMMARY"), output_values(report)
    if target:
        used = Path(target).stat().st_size if Path(target).exists() else 0
        append(Path(target), job_summary(report, used=used, details=details))
    write_outputs(values)
    if terminal.json:
        terminal.document({"verdict": report.verdict, "outputs": values, "summary": target or None})
    elif target:
        terminal.note(f"wrote the summary to {target}")
    else:
        print_markdown(terminal, job_summary(report, details=details))


@github.command("annotations", cls=EdisonCommand)
@_RUNS
@click.pass_obj
def show_annotations(state: CliState, wanted: tuple[str, ...]) -> None:
    """Print annotations on the lines that a change touched.

    Failed and unclear gates, broken cases, safety findings and changes of the eval suite, as
    workflow commands on stdout: the nine most important, and the number of others. They are placed
    on the lines of prompts, experiments and models that differ from the base. Without RUN it covers
    the newest run and the newest runs of other experiments on the same commit and base. The exit
    code is 0 whatever the verdict is.

    Examples:
      edison github annotations
      edison github annotations support-reply --json
    """
    terminal = Terminal(state)
    project = open_project(state)
    report, _ = report_on(project, wanted, state.folder)
    found = annotations_of(report, changed_in(project, report))
    if terminal.json:
        listed = [one.as_json() for one in found]
        terminal.document({"verdict": report.verdict, "annotations": listed})
        return
    terminal.commands(annotation_commands(found, folder_in_checkout(project.root)))
    terminal.note(f"verdict: {report.verdict or 'not finished'}")
