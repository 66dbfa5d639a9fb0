"""edison admin completion and schema: scripts for shells, and schemas for editors."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from edison_ci.checks import options
from edison_ci.cli.options import COMPLETE, CliState, EdisonCommand
from edison_ci.cli.terminal import Terminal, write
from edison_ci.config import schema as config_schema
from edison_ci.resources import KINDS, MESSAGES, resource_folder

SHELLS = ("bash", "zsh", "fish")


@click.command(cls=EdisonCommand)
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    SHELL is bash, zsh or fish. The script asks edison for completions, so it stays valid when
    commands are added.

    Examples:
      edison admin completion bash >> ~/.bashrc
      edison admin completion zsh > "${fpath[1]}/_edison"
      edison admin completion fish > ~/.config/fish/completions/edison.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    source = kind(ctx.find_root().command, {}, "edison", COMPLETE)
    # Only the template: click's `source()` starts bash to check its version.
    write(sys.stdout, source.source_template % source.source_vars())


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
        text = config_schema.text_of(kind)  # without plugins, the packaged schema is the same
    else:
        text = (resource_folder("schemas") / f"{kind}.schema.json").read_text(encoding="utf-8")
    write(sys.stdout, text.rstrip("\n"))
