"""edison push and edison pull: runs move between this project and a site."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import GOOD, ODD, StyledText, Terminal
from edison_ci.features.site import transfer
from edison_ci.features.site import transfer as run_transfer
from edison_ci.numeric import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edison_ci.features.site.transfer import Progress, Remote, Sent

    Move = Callable[[Remote, Sequence[str], Callable[[Progress], None]], Iterator[Sent]]


@click.command(cls=EdisonCommand)
@click.argument("url")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.pass_obj
def push(state: CliState, url: str, runs: tuple[str, ...]) -> None:
    """Send runs to a site of a team.

    URL is the address of a site that was started with `edison serve --projects FOLDER
    --accept-push`. Without RUN, every run that has ended and is not there yet is sent. The first
    push makes the project at the site. It needs the role editor there, and a token of the site in
    the variable EDISON_TOKEN.

    A run is sent in parts. If the connection breaks, or the command is stopped, the same command
    continues where it was; a run is never there in part, and never twice. Where EDISON_SIGNING_KEY
    is set, runs are signed: a site serves them as base only if its trust.yaml lists the key.

    Examples:
      edison push https://edison.example.com
      edison push https://edison.example.com 20260114T093000-4f1c
    """
    _move(state, url, runs, run_transfer.push, "pushed")


@click.command(cls=EdisonCommand)
@click.argument("url")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.pass_obj
def pull(state: CliState, url: str, runs: tuple[str, ...]) -> None:
    """Fetch runs of this project from a site of a team.

    Without RUN, every run that is not here yet is fetched. It needs the role viewer at the site,
    and a token of the site in the variable EDISON_TOKEN. The bundles are checked as by `edison
    import bundle`. A run serves as base here only if it is signed with a key in trust.yaml.

    Examples:
      edison pull https://edison.example.com
      edison pull https://edison.example.com 20260114T093000-4f1c
    """
    _move(state, url, runs, run_transfer.pull, "pulled")


def _move(state: CliState, url: str, runs: Sequence[str], move: Move, word: str) -> None:
    terminal = Terminal(state)
    site = lookup.open_site(state)
    moved = []
    with transfer.connect(site, url, offline=state.offline) as remote:
        for sent in move(remote, runs, _meter(terminal)):
            moved.append(sent)
            if not terminal.json:
                _tell(terminal, sent, word)
    if terminal.json:
        terminal.document({"site": remote.address, "runs": [run._asdict() for run in moved]})
    elif not moved:
        terminal.result("nothing new: the site and this project have the same runs")
    else:
        terminal.note(f"{counted(sum(run.new for run in moved), 'run')} {word}")


def _tell(terminal: Terminal, sent: Sent, word: str) -> None:
    if not sent.new:
        terminal.result(f"exists  {sent.run_id}")
        return
    trust = "trusted" if sent.trusted else StyledText("not trusted: never serves as base", ODD)
    terminal.result(StyledText(word, GOOD), f"  {sent.run_id}  {sent.bytes:,} bytes  ", trust)


def _meter(terminal: Terminal) -> Callable[[Progress], None]:
    """Return what reports the progress of large runs, each tenth once."""
    tenths: dict[str, int] = {}

    def show(progress: Progress) -> None:
        if progress.waiting:
            terminal.note(f"{progress.run_id}: another process fetches runs here; waiting for it")
        tenth = 10 * progress.done // max(1, progress.total)
        if progress.total > _LARGE and tenth > tenths.get(progress.run_id, 0):
            tenths[progress.run_id] = tenth
            terminal.note(f"{progress.run_id}: {tenth * 10}% of {progress.total:,} bytes")

    return show


_LARGE = 5_000_000
