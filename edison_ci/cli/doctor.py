"""edison doctor: checks of this machine and this project."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edison_ci.api import diagnosis
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal
from edison_ci.config import load
from edison_ci.documents.record_json import as_document
from edison_ci.errors import ExitCode, ProjectNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

_COLORS = {"ok": GOOD, "warn": ODD, "fail": BAD, "off": None}


@click.command(cls=EdisonCommand)
@click.pass_obj
def doctor(state: CliState) -> None:
    """Check this machine and this project.

    Checks Python, git, SQLite, disk space, optional libraries and versions with advisories; then
    the files, schemas and keys of the project (whether a key is set; its value is never shown), and
    its shared cache. What is optional and not installed is off. The exit code is 2 if something
    would stop a run.

    Examples:
      edison doctor
      edison doctor --json
    """
    terminal = Terminal(state)
    findings = [*diagnosis.diagnose_machine(state.folder), *_project(state)]
    ok = all(finding.verdict != "fail" for finding in findings)
    if terminal.json:
        terminal.document({"ok": ok, "findings": as_document(findings)})
    for finding in findings:
        word = StyledText(finding.verdict.ljust(4), _COLORS[finding.verdict])
        terminal.result(word, f"  {finding.what.ljust(8)}  {finding.detail}")
    if not ok:
        raise click.exceptions.Exit(ExitCode.INVALID)


def _project(state: CliState) -> Iterator[diagnosis.Finding]:
    try:
        root = state.enter_project(load.find_root(state.folder))
    except ProjectNotFound:
        yield diagnosis.NO_PROJECT
    else:
        yield from diagnosis.diagnose_project(root, offline=state.offline)
