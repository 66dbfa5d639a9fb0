"""edison schema: what may stand in a kind of file?"""

from __future__ import annotations

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import Terminal
from edison_ci.shipped import shipped

KINDS = ("edison", "models", "experiment", "prompt", "rubric", "dataset", "quarantine", "trust")


@click.command(cls=EdisonCommand)
@click.argument("kind", required=False, type=click.Choice(KINDS))
@click.pass_obj
def schema(state: State, kind: str | None) -> None:
    r"""Print the JSON Schema of a file kind.

    \b
    Examples:
      edison schema experiment
      edison schema rubric > rubric.schema.json
    """
    if kind is None:
        terminal = Terminal(state)
        if terminal.json:
            terminal.document({"kinds": list(KINDS)})
        else:
            for name in KINDS:
                terminal.result(name)
        return
    text = (shipped("schemas") / f"{kind}.schema.json").read_text(encoding="utf-8")
    click.echo(text, nl=False)
