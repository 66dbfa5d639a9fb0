"""edison serve: the results as pages in a browser."""

from __future__ import annotations

import contextlib
import sys
import webbrowser
from contextlib import closing

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import Ink, Terminal, flush
from edison_ci.config.load import find_root
from edison_ci.operate.site import site_at
from edison_ci.report.datasette_plugin.serving import Serving, refuse_beyond_this_machine
from edison_ci.report.datasette_plugin.serving import serve as serve_pages
from edison_ci.review.clerk import DeskClerk
from edison_ci.store.database import open_reader


@click.command(cls=EdisonCommand)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8001,
    show_default=True,
    metavar="N",
    help="Port to serve on; 0 takes a free one.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to serve on, of this machine only.",
)
@click.option("--open", "open_", is_flag=True, help="Open the pages in a browser.")
@click.pass_obj
def serve(state: State, port: int, host: str, open_: bool) -> None:
    """Show the results as pages in a browser.

    Datasette with the pages of this package, on this machine: experiments, runs, answers with their
    grades, decisions and costs. Grade answers and decide about suggestions there as with `edison
    grade` and `edison review`. A run that goes on meanwhile is shown as it goes. Ctrl-C ends it.
    Beyond this machine nothing is served, as nobody is asked who they are.

    Examples:
      edison serve
      edison serve --open
      edison serve --port 0 --json
    """
    terminal = Terminal(state)
    refuse_beyond_this_machine(host)
    site = site_at(state.entered(find_root(state.folder)))
    with closing(open_reader(site.results)):
        pass  # whatever is wrong with the file is said before a port is taken
    person = site.actor().identity
    clerk = DeskClerk(offline=state.offline)
    serving = Serving(site.results, site.root, site.file.project, host, port, person, clerk)

    def ready(address: str) -> None:
        if terminal.json:
            terminal.document({"url": address, "results": str(site.results)})
        else:
            terminal.result(Ink(address, bold=True), f"  {site.file.project}, until Ctrl-C")
        flush(sys.stdout)
        if open_:
            webbrowser.open(address)

    with contextlib.suppress(KeyboardInterrupt):  # that is how it ends
        serve_pages(serving, ready)
