"""edison schema: the JSON Schema of a kind of file."""

from __future__ import annotations

import sys

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import Terminal, write
from edison_ci.resources import KINDS, shipped


@click.command(cls=EdisonCommand)
@click.argument("kind", required=False, type=click.Choice(KINDS), metavar="[KIND]")
@click.pass_obj
def schema(state: State, kind: str | None) -> None:
    """Print the JSON Schema of a file kind.

    KIND is edison, models, experiment, prompt, rubric, dataset, quarantine, labels, licences or
    trust; without it the kinds are listed. The schemas are draft-07, the one that editors speak.

    Examples:
      edison schema experiment
      edison schema rubric > rubric.schema.json
    """
    if kind is None:
        terminal = Terminal(state)
        if terminal.json:
            terminal.document({"kinds": list(KINDS)})
        for name in KINDS:
            terminal.result(name)
        return
    text = (shipped("schemas") / f"{kind}.schema.json").read_text(encoding="utf-8")
    write(sys.stdout, text.rstrip("\n"))
