"""Options and log settings that all commands share, and the layout of their help."""

from __future__ import annotations

import functools
import inspect
import logging
import math
import os
import re
import sys
import time
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from edison_ci import ranges
from edison_ci._dataclass import dataclass
from edison_ci.cli import log_file as cli_log_file
from edison_ci.errors import UsageError
from edison_ci.sanitize import json_text, line
from edison_ci.spelling import did_you_mean
from edison_ci.telemetry import spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


COMPLETE = "_EDISON_COMPLETE"
"""Environment variable by which a shell requests completions."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(state: CliState) -> None:
    """Send the log of the package to stderr, at the level that the options ask for.

    A log file has JSON lines from level info on, or from a lower one that is asked for.
    """
    level = _level(state)
    handlers: list[logging.Handler] = [_Stderr(sys.stderr)]
    handlers[0].setFormatter(_JsonLines() if state.log_json else _Lines())
    handlers[0].setLevel(level)
    if state.log_file is not None:
        file = cli_log_file.LogFile(state.folder / state.log_file, days=state.log_days)
        file.setFormatter(_JsonLines())
        handlers.append(file)
        level = min(level, logging.INFO)
    logger = logging.getLogger("edison_ci")
    logger.handlers[:] = handlers
    logger.propagate = False
    logger.setLevel(level)


def _level(state: CliState) -> int:
    if state.debug:
        return logging.DEBUG
    if state.quiet:
        return logging.ERROR
    return (logging.WARNING, logging.INFO, logging.DEBUG)[min(state.verbose, 2)]


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to the current sys.stderr, which progress bars replace while they are shown."""

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)


class _Lines(logging.Formatter):
    """`warning: could not fetch (remote=origin)` on one line without secrets, a hint below it."""

    def format(self, record: logging.LogRecord) -> str:
        extra = _extra(record)
        hint = extra.pop("hint", "")
        data = ", ".join(f"{key}={value}" for key, value in extra.items())
        message = f"{record.getMessage()} ({data})" if data else record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        below = f"\n  {line(hint)}" if hint else ""
        return f"{record.levelname.lower()}: {line(message)}{below}"


class _JsonLines(logging.Formatter):
    """One JSON object per line, without secrets, with the ids of the run and the cell."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **spans.current_ids(),
            **_extra(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json_text(entry, indent=None, ascii_only=True)


logger = logging.getLogger(__name__)


def _set_aside(root: Path) -> Path | None:
    # Imports the models of all files, which a command without a project does not need.
    from edison_ci.access.own_results import set_aside_untrusted

    return set_aside_untrusted(root)


@dataclass(slots=True)
class CliState:
    """Values of the shared options, and the project that was found."""

    directory: Path | None = None
    quiet: bool = False
    verbose: int = 0
    debug: bool = False
    json: bool = False
    offline: bool = False
    log_json: bool = False
    log_file: Path | None = None
    log_days: int | None = None
    no_color: bool = False
    root: Path | None = None
    """Root of the project, once it is known."""
    started: bool = False
    """Whether the command has begun to make calls, so that an error is not all that happened."""
    sources: dict[str, ParameterSource] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder to work in."""
        try:
            return self.directory or Path.cwd()
        except FileNotFoundError:
            raise UsageError(
                "the current folder no longer exists", hint="cd to another one, or use -C DIR"
            ) from None

    def enter_project(self, root: Path) -> Path:
        """Remember the root of the project, so that its files are named relative to the folder."""
        self.root = root
        logger.info("project", extra={"root": str(root)})
        # Results that a job for a pull request has not made itself must not be read.
        if "GITHUB_EVENT_NAME" in os.environ and (aside := _set_aside(root)) is not None:
            why = "set aside: they are not signed, and this job has not made them"
            click.echo(f"results {why}: {aside}", err=True)
        return root

    def set_option(self, name: str, value: Any, source: ParameterSource) -> None:
        """Set a shared option; a flag anywhere on the command line beats a variable."""
        flag = ParameterSource.COMMANDLINE
        if self.sources.get(name) is flag:
            if source is not flag:
                return
            if name == "verbose":
                value += self.verbose
        self.sources[name] = source
        setattr(self, name, value)


_SHARED: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("-C", "--directory"),
        {
            "type": click.Path(exists=True, file_okay=False, path_type=Path),
            "metavar": "DIR",
            "help": "Run as if started in this folder.",
        },
    ),
    (("-q", "--quiet"), {"is_flag": True, "help": "Print errors only."}),
    (("-v", "--verbose"), {"count": True, "help": "Log more; twice for debug messages."}),
    (("--debug",), {"is_flag": True, "help": "Show tracebacks and log everything."}),
    (("--json",), {"is_flag": True, "help": "Print one JSON document."}),
    (("--offline",), {"is_flag": True, "help": "Disable network access."}),
    (("--log-json",), {"is_flag": True, "help": "Log as JSON lines."}),
    (
        ("--log-file",),
        {
            "type": click.Path(dir_okay=False, path_type=Path),
            "metavar": "FILE",
            "help": "Also log to a file that rotates.",
        },
    ),
    (
        ("--log-days",),
        {
            "type": click.IntRange(*ranges.LOG_DAYS),
            "metavar": "N",
            "help": "Keep the log file for N days.",
        },
    ),
    (("--no-color",), {"is_flag": True, "help": "Print without color."}),
)


def shared_options() -> list[click.Parameter]:
    """Return fresh copies of the shared options."""
    return [
        click.Option(
            names,
            expose_value=False,
            callback=_remember,
            envvar=f"EDISON_{names[-1].lstrip('-').replace('-', '_').upper()}",
            **attributes,
        )
        for names, attributes in _SHARED
    ]


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    source = ctx.get_parameter_source(str(param.name))
    if source is not None and source is not ParameterSource.DEFAULT:
        ctx.ensure_object(CliState).set_option(str(param.name), value, source)
    return value


SHARED_NAMES = frozenset(option.name for option in shared_options())

NAMED_BY = {
    "--model": "models",
    "--judge": "models",
    "--by": "models",
    "--case": "cases",
    "--cell": "cells",
    "--experiment": "experiments",
    "--prompt": "prompts",
    "--run": "runs",
}
"""Options whose value is a name of the project, with the kind of name."""

_ARGUMENTS = {
    "EXPERIMENT": "experiments",
    "PROMPT": "prompts",
    "CASE": "cases",
    "CELL": "cells",
    "RUN": "runs",
}


def kinds_of(param: click.Parameter) -> tuple[str, ...]:
    """Return the kinds of names that an argument or an option takes."""
    if isinstance(param, click.Option):
        return tuple(NAMED_BY[option] for option in param.opts if option in NAMED_BY)
    words = re.findall(r"[A-Z]+", param.metavar or str(param.name).upper())
    return tuple(_ARGUMENTS[word] for word in words if word in _ARGUMENTS)


def complete_name(kinds: tuple[str, ...], folder: Path, incomplete: str) -> list[CompletionItem]:
    """Return the names of these kinds that begin so, in the project of a folder."""
    # Reads YAML and SQLite, which only a completion of names needs.
    from edison_ci.api.names import names_of

    names = (name for kind in kinds for name in names_of(kind, folder, incomplete))
    return [CompletionItem(name) for name in dict.fromkeys(names)]


class NameType(click.types.StringParamType):
    """A text that is a name of the project, which a shell can complete."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self.kinds = kinds

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so."""
        state = ctx.find_object(CliState)
        return complete_name(self.kinds, (state and state.directory) or Path(), incomplete)


_EXAMPLES = "Examples:\n"


class Helpful(click.Command):
    """A command whose help lists its examples verbatim and the shared options apart."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            if param.type is click.STRING and (kinds := kinds_of(param)):
                param.type = NameType(kinds)
        self.help = inspect.cleandoc(self.help or "")
        self.params.extend(shared_options())

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """Return the names in any context: click keeps the option for the next one."""
        return ["-h", "--help"]

    def make_parser(self, ctx: click.Context) -> Any:
        """Return the parser, which knows short options at once.

        Else it looks first for the long name nearest to each, and loads what finds that.
        """
        parser = super().make_parser(ctx)
        parser._long_opt |= parser._short_opt  # click has no other way
        return parser

    def invoke(self, ctx: click.Context) -> Any:
        """Configure the log and run."""
        configure_logging(ctx.ensure_object(CliState))
        return super().invoke(ctx)

    @property
    def examples(self) -> list[str]:
        """The examples of the help text, line by line."""
        _, _, listed = str(self.help).partition(_EXAMPLES)
        return [line.strip() for line in listed.splitlines()]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description, then the examples without wrapping their lines."""
        about, _, listed = str(self.help).partition(_EXAMPLES)
        with formatter.indentation():
            for paragraph in about.strip().split("\n\n"):
                formatter.write_paragraph()
                formatter.write_text(paragraph)
        if listed:
            with formatter.section("Examples"):
                for line in listed.rstrip().splitlines():
                    formatter.write(f"{line.rstrip()}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then the shared ones."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        own = [option for option in options if option.name not in SHARED_NAMES]
        shared = [option for option in options if option.name in SHARED_NAMES]
        for title, listed in (("Options", own), ("Shared options", shared)):
            with formatter.section(title):
                formatter.write_dl([r for o in listed if (r := o.get_help_record(ctx))])


class EdisonCommand(Helpful):
    """A command without subcommands."""


class EdisonGroup(Helpful, click.Group):
    """A command with subcommands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; raises UsageError with the nearest name."""
        names = self.list_commands(ctx)
        if (
            args and args[0] not in names and not ctx.resilient_parsing
        ):  # not while a shell asks for completions
            raise click.UsageError(unknown_command(args[0], names), ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands before the options."""
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)


def takes(record: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that passes arguments and options as one record, whose fields they fill.

    It is placed directly above the function, below `click.pass_obj`.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(state: Any, /, **values: Any) -> None:
            function(state, record(**values))

        vars(command)["takes"] = record
        return command

    return decorate


def optional_first(first: str, second: str) -> Callable[[Any], Any]:
    """Return a decorator that adds two arguments as `names`, of which the first may be left out."""

    def split(
        ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
    ) -> tuple[str | None, str]:
        if not value and not ctx.resilient_parsing:
            raise click.UsageError(f"Missing argument '{second}'.", ctx=ctx)
        if len(value) > 2:
            raise click.UsageError(f"Got unexpected extra argument ({value[2]})", ctx=ctx)
        return (value[0] if len(value) > 1 else None, value[-1] if value else "")

    return click.argument("names", nargs=-1, metavar=f"[{first}] {second}", callback=split)


MEANT = {
    **dict.fromkeys(("test", "tests", "eval", "evaluate", "start", "exec"), "run"),
    **dict.fromkeys(("check", "lint", "verify"), "validate"),
    **dict.fromkeys(("view", "ui", "web", "dashboard"), "serve"),
    **dict.fromkeys(("new", "create", "setup"), "init"),
    **dict.fromkeys(("ls", "list", "results"), "status"),
}
"""Words of other tools for commands, whose nearest name means something else."""


def unknown_command(name: str, names: Iterable[str]) -> str:
    """Return the message about an unknown command."""
    known_names = [*names]
    meant = MEANT.get(name, "")
    hint = f"did you mean {meant!r}?" if meant in known_names else ""
    hint = hint or did_you_mean(name, known_names, label="commands")
    return f"unknown command {name!r}; {hint or 'see: edison --help'}"


class NumberRange(click.FloatRange):
    """A number in a range; unlike for click, nan is in none."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class ScoreType(click.ParamType[float]):
    """An option value: points out of 100, a percentage, or a share from 0 to 1."""

    name = "score"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the score from 0 to 1."""
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = -1.0
        share = number / 100 if text.endswith("%") or number > 1 else number
        if not 0 <= share <= 1:
            self.fail(f"{text!r} is not a score: write 80, 80% or 0.8", param, ctx)
        return share
