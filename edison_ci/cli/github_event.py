"""edison github event: what may this job do, and what did the change touch?"""

from __future__ import annotations

import os
from typing import Any

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import Terminal, counted
from edison_ci.errors import UsageError
from edison_ci.forge.changed import Base, base_of
from edison_ci.forge.events import Event, read_event
from edison_ci.repository import Repository

_SHOWN = 20


@click.command(cls=EdisonCommand)
@click.pass_obj
def event(state: State) -> None:
    """Say what started this job, what it may do, and what changed.

    Reads what the runner tells (GITHUB_EVENT_NAME, GITHUB_EVENT_PATH and their kin) and asks Git.
    In a shallow checkout the missing commits are fetched, unless --offline. `mode` is `replay`
    where GitHub gives no secrets: pull requests from forks and from Dependabot.

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
                "this clone is shallow, and --offline forbids to fetch what it lacks",
                hint="run without --offline",
            )
        base = base_of(found, repository)
    paths = None
    if repository is not None and base is not None and base.commit is not None:
        paths = sorted(repository.changed_paths(base.commit))
    if terminal.json:
        terminal.document(_as_json(found, base, paths))
    _show(terminal, found, base, paths)


def _show(terminal: Terminal, event: Event, base: Base | None, paths: list[str] | None) -> None:
    number = f" {event.number}" if event.number else ""
    terminal.result(f"{event.name}{number}: {event.situation}")
    terminal.result(f"  mode  {event.mode}: {event.why}")
    terminal.result(f"  head  {event.head_sha or 'none'}")
    if base is not None:
        terminal.result(f"  base  {base.commit or 'none'}: {base.why}")
    if paths is None:
        terminal.result("  everything counts as changed")
        return
    terminal.result(f"  {counted(len(paths), 'file')} changed")
    for path in paths[:_SHOWN]:
        terminal.result(f"    {path}")
    if len(paths) > _SHOWN:
        terminal.result(f"    and {len(paths) - _SHOWN:,} more")


def _as_json(event: Event, base: Base | None, paths: list[str] | None) -> dict[str, Any]:
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
