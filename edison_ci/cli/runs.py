"""edison runs: the group of commands about one run."""

from __future__ import annotations

import click

from edison_ci.cli.groups import LazyGroup


@click.group(cls=LazyGroup)
def runs() -> None:
    """Follow, steer, pause, cancel and merge runs.

    Examples:
      edison runs status
      edison runs watch
      edison runs steer --concurrency small=20
      edison runs pause support-reply
      edison runs merge shards/*.db
    """
