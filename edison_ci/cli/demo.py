"""edison demo: what does a first day look like, without a key?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edison_ci.cli.init import TEMPLATES, init
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.plan import plan
from edison_ci.cli.run import run
from edison_ci.cli.terminal import Ink, Terminal
from edison_ci.cli.try_one import try_one
from edison_ci.cli.validate import validate
from edison_ci.config.load import load_project
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


@click.command(cls=EdisonCommand)
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    default="customer-support",
    show_default=True,
    help="What the project is about.",
)
@click.pass_context
def demo(ctx: click.Context, template: str) -> None:
    """See it work, offline, in a minute.

    Makes a project from a template, checks, plans and runs it in a folder that is removed again.
    The models are simulated: their answers are worth what the prompt's instructions are worth, and
    nothing is sent anywhere.

    Examples:
      edison demo
      edison demo --template data-extraction
    """
    state = ctx.ensure_object(State)
    terminal = Terminal(state)
    if state.json:
        hint = "run its steps one by one: edison init, validate, plan, run"
        raise UsageError("a demo is for people and has no JSON", hint=hint)
    with tempfile.TemporaryDirectory(prefix="edison-demo-") as name:
        folder = Path(name) / template
        state.directory, said = Path(name), terminal.note

        def step(line: str, command: Callable[[], object]) -> None:
            said(Ink(f"$ {line}", bold=True))
            command()
            said("")

        step(
            f"edison init {template} --template {template}",
            lambda: ctx.invoke(init, folder=folder, template=template),
        )
        state.directory = folder
        prompt = next(iter(load_project(folder).prompts.values())).id
        step("edison validate", lambda: ctx.invoke(validate))
        step("edison plan", lambda: ctx.invoke(plan))
        step(f"edison try {prompt}", lambda: ctx.invoke(try_one, prompt=prompt))
        step("edison run", lambda: ctx.invoke(run))
        step("edison run  # again: everything is stored", lambda: ctx.invoke(run))
    said("That was all simulated. Make it yours:")
    said(f"  edison init my-prompts --template {template}")
