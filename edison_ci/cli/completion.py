"""Completion of a command line, for the scripts of bash, zsh and fish.

A name of the project is offered without importing the command that it is for, because a shell waits
for it. Options and choices come from the command itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
)

from edison_ci.cli.groups import commands
from edison_ci.cli.options import COMPLETE, NAMED_BY, complete_name, shared_options

_DIRECTORY = {"-C", "--directory"}
_FLAGS = {opt for option in shared_options() for opt in option.opts} - _DIRECTORY


class _Wanted(NamedTuple):
    """The kinds of names that fit at the end of a command line, and the folder of the project."""

    kinds: tuple[str, ...]
    folder: Path


def _wanted(words: list[str]) -> _Wanted | None:
    """Return what fits after these words, if that is known without the command itself."""
    folder, table, takes, at_value = Path(), commands(), "", ""
    rest, above = iter(words), ""
    for word in rest:
        if word in _DIRECTORY:
            folder = Path(next(rest, "."))
        elif word in NAMED_BY:
            at_value = "" if next(rest, None) is not None else NAMED_BY[word]
        elif word in _FLAGS:
            continue
        elif table and word in table:
            takes = table[word].takes
            table, above = {} if above else commands(word), word
        else:
            return None  # an option of the command, or one of several arguments
    kinds = at_value or takes
    return _Wanted((kinds,), folder) if kinds else None


class _Names(ShellComplete):
    """Completion that offers names of the project first."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return what fits; the command is imported only if names are not what is wanted."""
        fitting = None if incomplete.startswith("-") else _wanted(args)
        if fitting is None:
            return super().get_completions(args, incomplete)
        return complete_name(fitting.kinds, fitting.folder, incomplete)


class _Bash(_Names, BashComplete):
    pass


class _Zsh(_Names, ZshComplete):
    pass


class _Fish(_Names, FishComplete):
    pass


_SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def answer(program: click.Command, instruction: str) -> int:
    """Print the completions that a shell asks for; return the exit code."""
    shell, _, deed = instruction.partition("_")
    kind = _SHELLS.get(shell)
    if kind is None or deed != "complete":
        return 1
    click.echo(kind(program, {}, "edison", COMPLETE).complete())
    return 0
