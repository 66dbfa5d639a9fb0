"""Options of commands that make calls: budget, agreement and code."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edison_ci.checks.child import WITHOUT_SANDBOX

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = TypeVar("Command", bound=Callable[..., Any])

budget = click.option(
    "--budget", type=click.FloatRange(min=0), metavar="USD", help="Most to spend."
)
yes = click.option("--yes", is_flag=True, help="Do not ask, whatever it costs.")
_allow_code = click.option(
    "--allow-code", is_flag=True, help="Let checks run code of the repository."
)


def _without_sandbox(context: click.Context, option: click.Parameter, chosen: bool) -> None:
    if chosen:
        os.environ[WITHOUT_SANDBOX] = "1"


_allow_without_sandbox = click.option(
    "--allow-code-without-sandbox",
    is_flag=True,
    expose_value=False,
    callback=_without_sandbox,
    help="Let it run where nothing keeps it from the network, keys and files.",
)


def allow_code(command: Command) -> Command:
    """Give a command the options that let code of the repository run."""
    return _allow_code(_allow_without_sandbox(command))


def spending(command: Command) -> Command:
    """Give a command the options of everything that costs money and grades answers."""
    return budget(allow_code(yes(command)))


def microusd(usd: float | None) -> int | None:
    """Return a budget as it is booked; None for none."""
    return None if usd is None else round(usd * 1_000_000)
