"""With which options does a command that makes calls say how much it may spend, and run?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = TypeVar("Command", bound=Callable[..., Any])

budget = click.option(
    "--budget", type=click.FloatRange(min=0), metavar="USD", help="Most to spend."
)
yes = click.option("--yes", is_flag=True, help="Do not ask, whatever it costs.")
allow_code = click.option(
    "--allow-code", is_flag=True, help="Let checks run code of the repository."
)


def spending(command: Command) -> Command:
    """Give a command the options of everything that costs money and grades answers."""
    return budget(allow_code(yes(command)))


def microusd(usd: float | None) -> int | None:
    """Return a budget as it is booked; None for none."""
    return None if usd is None else round(usd * 1_000_000)
