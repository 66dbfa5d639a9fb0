"""Which commands are there, and how does a command end?

Commands live in modules of their own, imported only when asked for; this table carries their
one-line descriptions so that `edison --help` imports none of them.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, NoReturn

import click

from edison_ci import __version__
from edison_ci.cli.options import EdisonCommand, State, shared_options
from edison_ci.cli.terminal import Terminal
from edison_ci.errors import ConfigError, EdisonError, ExitCode

COMMANDS: dict[str, tuple[str, str, str]] = {
    "init": ("Start", "edison_ci.cli.init:init", "Make a project that runs offline at once."),
    "validate": ("Start", "edison_ci.cli.validate:validate", "Check every file, line by line."),
    "plan": ("Start", "edison_ci.cli.plan:plan", "Show what a run would do and cost."),
    "render": ("Start", "edison_ci.cli.render:render", "Show exactly what a model would be sent."),
    "models": ("Look up", "edison_ci.cli.models:models", "List the models of the project."),
    "prices": ("Look up", "edison_ci.cli.prices:prices", "Show or update the price table."),
    "schema": ("Look up", "edison_ci.cli.schema:schema", "Print the JSON Schema of a file kind."),
    "doctor": ("Look up", "edison_ci.cli.doctor:doctor", "Check this machine and this project."),
    "completion": ("Look up", "edison_ci.cli.completion:completion", "Print a shell's completion."),
}
"""Section, place and one line about each command."""


class LazyGroup(click.Group):
    """A group that imports a command when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry[1].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command, or name the nearest one."""
        if args and args[0] not in COMMANDS:
            from edison_ci.names import did_you_mean

            hint = did_you_mean(args[0], COMMANDS)
            raise click.UsageError(
                f"no command {args[0]!r}; {hint or 'see edison --help'}", ctx=ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their sections."""
        for section in dict.fromkeys(entry[0] for entry in COMMANDS.values()):
            rows = [(name, entry[2]) for name, entry in COMMANDS.items() if entry[0] == section]
            with formatter.section(section):
                formatter.write_dl(rows)


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "EDISON"},
    params=shared_options(),
    epilog="Exit codes: 0 done, 1 a gate failed, 2 invalid, 3 not measured, 4 budget, "
    "5 inconclusive, 70 a bug, 130 paused.",
)
@click.version_option(
    __version__, "-V", "--version", prog_name="edison", message="%(prog)s %(version)s"
)
def edison() -> None:
    r"""Evaluate and refine prompts that live in a Git repository.

    \b
    Examples:
      edison init my-prompts        make a project that runs offline
      edison validate               check every file
      edison plan                   what a run would do and cost
    """


def run(args: list[str] | None = None) -> NoReturn:
    """Run a command and end the process with its exit code."""
    state = State()
    try:
        code = edison.main(args=args, prog_name="edison", standalone_mode=False, obj=state)
    except BaseException as error:  # the one place where every ending is turned into words
        code = _ending(error, state)
    _flush()
    sys.exit(int(code) if isinstance(code, int) else 0)


def _ending(error: BaseException, state: State) -> int:
    terminal = Terminal(state)
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, KeyboardInterrupt | click.exceptions.Abort):
        terminal.note("stopped")
        return ExitCode.PAUSED
    if isinstance(error, BrokenPipeError):
        return ExitCode.DONE
    if state.debug:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, click.ClickException):
        ctx = getattr(error, "ctx", None)
        hint = f"see: {ctx.command_path} --help" if ctx is not None else ""
        return terminal.failure("usage", error.format_message(), ExitCode.INVALID, hint=hint)
    if isinstance(error, ConfigError):
        return terminal.invalid(error)
    if isinstance(error, EdisonError):
        return terminal.failure(
            error.code, error.message, error.exit_code, where=error.where, hint=error.hint
        )
    return terminal.failure(
        "bug",
        f"a bug in edison: {type(error).__name__}: {error}",
        ExitCode.BUG,
        hint="run again with --debug and report what it prints",
    )


def _flush() -> None:
    """Flush, so that a closed pipe ends here and not in the interpreter's shutdown."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, ValueError):
            import os

            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def all_commands() -> dict[str, Any]:
    """Return every command, imported; for documentation and tests."""
    ctx = click.Context(edison, info_name="edison")
    return {name: edison.get_command(ctx, name) for name in COMMANDS}


__all__ = ["COMMANDS", "EdisonCommand", "all_commands", "edison", "run"]
