"""The `edison` program: its table of commands, its help, and how each ending becomes an exit code.

Commands live in separate modules, which are imported when a command is run.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import click

from edison_ci import __version__
from edison_ci.cli import completion
from edison_ci.cli.groups import EVERYDAY, RENAMED, LazyGroup, commands
from edison_ci.cli.options import COMPLETE, CliState
from edison_ci.cli.terminal import Terminal, flush, wait_for_answers_in_pieces
from edison_ci.documents import secrets
from edison_ci.errors import (
    EdisonError,
    ExitCode,
    Location,
    Problem,
    StoreError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class EdisonProgram(LazyGroup):
    """The program: its help fits one screen, and it knows the former names of commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; raises UsageError with its name of today or the nearest one."""
        if args and args[0] in RENAMED and not ctx.resilient_parsing:
            now = RENAMED[args[0]]
            raise UsageError(
                f"edison {args[0]} is now: edison {now}",
                hint=f"see: edison {now.split(' ')[0]} --help",
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Describe the everyday commands, and name the others by section."""
        sections: dict[str, list[str]] = {}
        table = self.table
        for name, entry in table.items():
            sections.setdefault(entry.section, []).append(name)
        with formatter.section(EVERYDAY):
            everyday = sections.pop(EVERYDAY)
            formatter.write_dl([(name, table[name].line) for name in everyday])
        with formatter.section("More, each with its own --help"):
            formatter.write_dl([(t, ", ".join(map(_named, n))) for t, n in sections.items()])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then all options in one section."""
        self.format_commands(ctx, formatter)
        with formatter.section("Options"):
            records = (param.get_help_record(ctx) for param in self.get_params(ctx))
            formatter.write_dl([record for record in records if record])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes."""
        with formatter.section("Exit codes"):
            codes = (f"{int(code)} {re.split('[,:;]', code.meaning)[0]}" for code in ExitCode)
            formatter.write_text("; ".join(codes))


_WITH_COMMANDS = ("runs", "admin")
"""Groups whose own commands the help names."""


def _named(name: str) -> str:
    """Return the name of a command, with those below it that are nowhere else."""
    table = commands(name) if name in _WITH_COMMANDS else ()
    below = [command for command in table if command not in commands()]
    return f"{name} ({', '.join(below)})" if below else name


@click.command(
    cls=EdisonProgram,
    context_settings={"auto_envvar_prefix": "EDISON"},
)
@click.version_option(
    __version__, "-V", "--version", prog_name="edison", message="%(prog)s %(version)s"
)
def edison() -> None:
    """Evaluate and refine prompts that live in a Git repository."""


def run(args: list[str] | None = None) -> NoReturn:
    """Run a command and exit with its exit code."""
    if instruction := os.environ.get(COMPLETE):
        sys.exit(completion.answer(edison, instruction))
    secrets.learn(os.environ)
    with _redacted_streams():
        _run(list(sys.argv[1:] if args is None else args))


@contextlib.contextmanager
def _redacted_streams() -> Iterator[None]:
    """Redact secrets from everything that is written to stdout and stderr."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        None if stream is None else secrets.RedactingStream(stream) for stream in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _run(words: list[str]) -> NoReturn:
    state = CliState()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupted)
        wait_for_answers_in_pieces()
    try:
        code = _invoke(words, state)
        flush(sys.stdout)
    except BaseException as error:  # the one place where every exception becomes a message
        # A command line that could not be parsed may ask for JSON further on.
        state.json = state.json or "--json" in words
        code = _report_failure(error, state, words)
    flush(sys.stderr)
    sys.exit(code)


def _report_failure(error: BaseException, state: CliState, words: list[str]) -> int:
    try:
        code = _exit_code(error, state, words)
        flush(sys.stdout)
    except UsageError as full:  # stdout cannot be written: report that instead, on stderr
        code = _exit_code(full, state, words)
    return code


def _interrupted(_signal: int, _frame: Any) -> NoReturn:
    raise KeyboardInterrupt


def _invoke(words: list[str], state: CliState) -> int:
    with edison.make_context("edison", words, obj=state) as ctx:
        edison.invoke(ctx)
    return ExitCode.DONE


def _exit_code(error: BaseException, state: CliState, words: list[str]) -> int:
    terminal = Terminal(state)
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        return ExitCode.DONE  # the reader, such as `head`, has seen enough
    if isinstance(error, KeyboardInterrupt | click.exceptions.Abort):
        terminal.note("stopped")
        return ExitCode.PAUSED
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not state.json:
        click.echo(error.format_message(), err=True)
        return ExitCode.INVALID
    if isinstance(error, click.ClickException):
        return terminal.failure(_usage(error, words), ExitCode.INVALID)
    if state.debug:
        terminal.traceback(error)
    if type(error).__module__ == "sqlite3":
        error = StoreError.of(error)
    if isinstance(error, EdisonError):
        return terminal.error(error)
    problem, code = _unexpected(error)
    return terminal.failure(problem, code)


def _unexpected(error: BaseException) -> tuple[Problem, ExitCode]:
    """Return what the machine refused, which no code of this tool can help, or a bug."""
    if _is_refused(error):
        message = f"this machine refused a process, a thread, memory or a file: {error}"
        hint = "free some, or raise its limit (ulimit -a), and run the command again"
        return Problem(Location(""), "machine", message, hint), ExitCode.NOT_MEASURED
    message = f"a bug in edison: {type(error).__name__}: {error}"
    hint = "run again with --debug and report what it prints"
    return Problem(Location(""), "bug", message, hint), ExitCode.BUG


def _is_refused(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
    no_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    return no_thread or isinstance(error, MemoryError)


def _usage(error: click.ClickException, words: list[str]) -> Problem:
    ctx = getattr(error, "ctx", None)
    named = [word for word in words if word in commands()][:1]
    path = ctx.command_path if ctx is not None else " ".join(["edison", *named])
    no_words = isinstance(error, click.exceptions.NoArgsIsHelpError)
    message = "Missing command." if no_words else " ".join(error.format_message().split())
    return Problem(Location(""), "usage", message, f"see: {path} --help")


def all_commands() -> dict[str, click.Command]:
    """Import and return every command by its full name, or its first; for documentation."""
    commands_by_name: dict[str, click.Command] = {}
    for name, command in _below(edison, ""):
        if command not in commands_by_name.values():
            commands_by_name[name] = command
    return commands_by_name


def _below(group: click.Group, words: str) -> Iterator[tuple[str, click.Command]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None, name
        full = f"{words} {name}".strip()
        yield full, command
        if isinstance(command, click.Group):
            yield from _below(command, full)
