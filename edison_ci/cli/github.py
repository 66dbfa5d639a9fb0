"""edison github: what does a job on GitHub tell the pull request it runs for?"""

from __future__ import annotations

import click

from edison_ci.cli.github_comment import comment
from edison_ci.cli.github_event import event
from edison_ci.cli.options import EdisonGroup


@click.group(cls=EdisonGroup)
def github() -> None:
    """Report on a pull request, from a job on GitHub.

    Examples:
      edison github event
      edison github comment --body-file report.md --verdict pass
    """


github.add_command(comment)
github.add_command(event)
