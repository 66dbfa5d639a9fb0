"""edison completion: completion of our commands for shells."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from edison_ci.cli.options import EdisonCommand
from edison_ci.cli.terminal import write

SHELLS = ("bash", "zsh", "fish")


@click.command(cls=EdisonCommand)
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell's completion.

    SHELL is bash, zsh or fish. The script asks edison itself what can follow, so it need not be
    made again when commands are added.

    Examples:
      edison completion bash >> ~/.bashrc
      edison completion zsh > "${fpath[1]}/_edison"
      edison completion fish > ~/.config/fish/completions/edison.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    source = kind(ctx.find_root().command, {}, "edison", "_EDISON_COMPLETE")
    # The template alone: click's own `source()` asks bash for its version first.
    write(sys.stdout, source.source_template % source.source_vars())
