"""edison completion: what does a shell need to complete our commands?"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from edison_ci.cli.options import EdisonCommand


@click.command(cls=EdisonCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    r"""Print a shell's completion.

    \b
    Examples:
      edison completion bash >> ~/.bashrc
      edison completion zsh > "${fpath[1]}/_edison"
      edison completion fish > ~/.config/fish/completions/edison.fish
    """
    kind = get_completion_class(shell)
    if kind is None:  # pragma: no cover - the choices are click's own
        raise click.UsageError(f"no completion for {shell}")
    root = ctx.find_root().command
    source = kind(root, {}, "edison", "_EDISON_COMPLETE")
    # The template alone: click's own `source()` asks bash for its version first.
    click.echo(source.source_template % source.source_vars())
