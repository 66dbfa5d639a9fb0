"""edison admin schema: the JSON Schema of a kind of file."""

from __future__ import annotations

import sys

import click

from edison_ci.checks import options
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import Terminal, write
from edison_ci.resources import KINDS, MESSAGES, resource_folder


@click.command(cls=EdisonCommand)
@click.argument("kind", required=False, type=click.Choice((*KINDS, *MESSAGES)), metavar="[KIND]")
@click.pass_obj
def schema(state: CliState, kind: str | None) -> None:
    """Print the JSON Schema of a file kind.

    KIND is edison, models, experiment, prompt, rubric, dataset, about, quarantine, labels,
    judge_approvals, trust or secrets, or notification for what is posted to a webhook; without it
    the kinds are listed. The schemas are draft-07, which most editors support. The schema of
    experiments includes the checks of installed plugins.

    Examples:
      edison admin schema experiment
      edison admin schema rubric > rubric.schema.json
    """
    if kind is None:
        terminal = Terminal(state)
        if terminal.json:
            terminal.document({"kinds": [*KINDS, *MESSAGES]})
        for name in (*KINDS, *MESSAGES):
            terminal.result(name)
        return
    if kind == "experiment" and options.REGISTRY.names() != sorted(options.REGISTRY.built_in):
        # Imports the models of all files; without plugins the packaged schema is the same.
        from edison_ci.config.schema import text_of

        text = text_of(kind)
    else:
        text = (resource_folder("schemas") / f"{kind}.schema.json").read_text(encoding="utf-8")
    write(sys.stdout, text.rstrip("\n"))
