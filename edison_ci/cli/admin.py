"""edison admin: upkeep of stored results and prices, file schemas and shell completion."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from edison_ci.cli.groups import LazyGroup
from edison_ci.cli.options import COMPLETE, EdisonCommand
from edison_ci.cli.terminal import write


@click.group(cls=LazyGroup)
def admin() -> None:
    """Look after stored results, prices and the shell.

    Examples:
      edison admin db check
      edison admin cache stats
      edison admin audit --verify
      edison admin completion bash >> ~/.bashrc
    """


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
