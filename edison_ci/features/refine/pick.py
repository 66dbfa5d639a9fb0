"""A walk through the failing cases of a run, on a terminal: read, edit the prompt, run again."""

from __future__ import annotations

import contextlib
import sys
import termios
import tty
from typing import TYPE_CHECKING, cast

import click

from edison_ci.cli import explain as cli_explain
from edison_ci.cli import lookup
from edison_ci.cli.terminal import StyledText, Terminal, read_keys
from edison_ci.errors import UsageError
from edison_ci.numeric import counted
from edison_ci.results import explanation, run_result
from edison_ci.store import cells, runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from edison_ci.cli.options import CliState
    from edison_ci.config.load import Project
    from edison_ci.results.triage import FailingCase

_NEXT, _BACK = ("j", " ", "\r", "\n", "\x1b[B"), ("k", "\x1b[A")
_EDIT, _QUIT = "e", ("q", "\x1b")
_KEYS = "j next  k back  e edit the prompt, run these cases again  q quit"


def require_terminal() -> None:
    """Raise UsageError where nobody can press a key."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "--pick needs a terminal", hint="list the failing cases: edison status latest --failed"
        )


def walk(state: CliState, run_id: str) -> None:
    """Show the failing cases of a run one by one, until somebody quits or none fails."""
    terminal, place, note = Terminal(state), 0, ""
    while True:
        project = lookup.open_readable_project(state, terminal)
        with _key_by_key():
            with lookup.results_of(project) as reader:
                result = run_result.RunResult(reader, runs.find_run(reader, run_id))
                triage = result.triage(most=None)
                cases = () if triage is None else triage.worst
                if not cases:
                    terminal.result(f"No case of run {result.run.id} fails.")
                    return
                place %= len(cases)
                prompt = _show(terminal, project, result, cases[place])
            counts = f"{place + 1:,} of {counted(len(cases), 'failing case')}"
            terminal.result("")
            terminal.result(StyledText(f"{counts}  ", bold=True), _KEYS)
            if note:
                terminal.result(note)
            keys, note = _keys(), ""
        place += sum(key in _NEXT for key in keys) - sum(key in _BACK for key in keys)
        if keys[-1] in _QUIT:
            return
        if keys[-1] == _EDIT and not _edited(prompt):
            note = f"{prompt.name} is as it was"
        elif keys[-1] == _EDIT:
            _run_again(terminal, result.run.experiment, cases)
            run_id, place = result.run.experiment, 0  # its newest run


def _show(
    terminal: Terminal, project: Project, result: run_result.RunResult, one: FailingCase
) -> Path:
    """Explain a case on a screen of its own; return the file of its prompt."""
    wanted = f"{one.case}@{one.model}#{one.repeat}"
    cell = cells.find_cell(result.connection, result.run.id, wanted)
    click.clear()
    cli_explain.show_explanation(
        terminal, explanation.explain(result.connection, project, result.run, cell)
    )
    return project.root / result.files.prompts.get(cell.prompt, "")


def _edited(prompt: Path) -> bool:
    """Open a prompt in the editor of $VISUAL or $EDITOR; return whether it changed."""
    before = prompt.read_bytes()
    click.edit(filename=str(prompt))
    return prompt.read_bytes() != before


def _run_again(terminal: Terminal, experiment: str, cases: Sequence[FailingCase]) -> None:
    """Run the cases again, and show the result until a key is pressed."""
    names = tuple(dict.fromkeys(one.case for one in cases))
    context = click.get_current_context().find_root()
    run = cast("click.Group", context.command).get_command(context, "run")
    assert run is not None
    with contextlib.suppress(click.exceptions.Exit):  # the result is on the screen
        context.invoke(run, experiments=(experiment,), cases=names)
    terminal.note("Any key shows what still fails.")
    with _key_by_key():
        _keys()


@contextlib.contextmanager
def _key_by_key() -> Iterator[None]:
    """Take keys as they are pressed, and do not show them; none is lost in between."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin, termios.TCSANOW)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def _keys() -> list[str]:
    """Return the keys that were pressed, several where somebody is quick."""
    sys.stdout.flush()
    try:
        read = read_keys(32).decode(errors="replace")
    except KeyboardInterrupt:
        read = ""
    return [read] if read.startswith("\x1b") else [*read] or ["q"]
