"""edison runs: the group of commands about one run."""

from __future__ import annotations

import click

from edison_ci.cli.groups import TABLES, LazyGroup


@click.group(cls=LazyGroup, table=TABLES["runs"])
def runs() -> None:
    """Follow, steer, pause, cancel and merge runs.

    Examples:
      edison runs status
      edison runs watch
      edison runs steer --concurrency small=20
      edison runs pause support-reply
      edison runs merge shards/*.db
    """
