"""Which options does every command take, before or after its name?"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource


@dataclass(slots=True)
class State:
    """What the shared options say."""

    directory: Path | None = None
    quiet: bool = False
    verbose: int = 0
    debug: bool = False
    json: bool = False
    offline: bool = False
    log_json: bool = False
    no_color: bool = False

    @property
    def folder(self) -> Path:
        """The folder to work in."""
        return self.directory or Path.cwd()


_SHARED: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("-C", "--directory"),
        {
            "type": click.Path(exists=True, file_okay=False, path_type=Path),
            "metavar": "DIR",
            "help": "Work in this folder.",
        },
    ),
    (("-q", "--quiet"), {"is_flag": True, "help": "Print results only."}),
    (("-v", "--verbose"), {"count": True, "help": "Say more; twice for even more."}),
    (("--debug",), {"is_flag": True, "help": "Show tracebacks and log everything."}),
    (("--json",), {"is_flag": True, "help": "Print one JSON document."}),
    (("--offline",), {"is_flag": True, "help": "Refuse every call to the network."}),
    (("--log-json",), {"is_flag": True, "help": "Log as JSON lines."}),
    (("--no-color",), {"is_flag": True, "help": "Print without colour."}),
)
SHARED_NAMES = frozenset(
    {"directory", "quiet", "verbose", "debug", "json", "offline", "log_json", "no_color"}
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
    state = ctx.ensure_object(State)
    given = ctx.get_parameter_source(str(param.name)) is not ParameterSource.DEFAULT
    if given and param.name:
        setattr(state, param.name, value)
        if param.name in ("verbose", "debug", "log_json"):
            _configure_logging(state)
    return value


class EdisonCommand(click.Command):
    """A command that takes the shared options too and shows them apart."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(shared_options())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then the shared ones."""
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                (shared if param.name in SHARED_NAMES else own).append(record)
        with formatter.section("Options"):
            formatter.write_dl(own)
        with formatter.section("Shared options"):
            formatter.write_dl(shared)


class _JsonLines(logging.Formatter):
    _STANDARD = frozenset(vars(logging.makeLogRecord({})))

    def format(self, record: logging.LogRecord) -> str:
        import json

        extra = {k: v for k, v in vars(record).items() if k not in self._STANDARD}
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **extra,
        }
        return json.dumps(line, default=str)


def _configure_logging(state: State) -> None:
    import time

    handler = logging.StreamHandler(sys.stderr)
    if state.log_json:
        handler.setFormatter(_JsonLines())
        handler.formatter.converter = time.gmtime  # type: ignore[union-attr]  # set above
    else:
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("edison_ci")
    logger.handlers[:] = [handler]
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    logger.setLevel(logging.DEBUG if state.debug else levels[min(state.verbose, 2)])
