"""edison serve: the results as pages in a browser."""

from __future__ import annotations

import contextlib
import sys
import webbrowser
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import ODD, Ink, Terminal, flush
from edison_ci.config.load import find_root
from edison_ci.errors import UsageError
from edison_ci.git.command import run_git
from edison_ci.operate.accounts import AUTH_FILE, Accounts, names_of
from edison_ci.operate.site import site_at
from edison_ci.review.actions import ReviewActions
from edison_ci.store.database import open_reader
from edison_ci.web.databases import Door
from edison_ci.web.serving import Serving, is_this_machine
from edison_ci.web.serving import serve as serve_pages

if TYPE_CHECKING:
    from edison_ci.operate.site import Site

_USUAL_RATE = 100
"""Requests that one address may make in a minute, where others can reach the pages."""


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
    help="Address to serve on; beyond this machine everybody signs in.",
)
@click.option("--open", "open_", is_flag=True, help="Open the pages in a browser.")
@click.option("--sign-in", is_flag=True, help="Let everybody sign in, at this machine too.")
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="Name of this server; with it other names are refused.",
)
@click.option(
    "--behind-tls",
    is_flag=True,
    help="A proxy in front speaks HTTPS: cookies and links are for HTTPS only.",
)
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="A proxy in front says who asks: believe the last address of X-Forwarded-For.",
)
@click.option(
    "--rate-limit",
    type=click.IntRange(0, 1_000_000),
    metavar="N",
    help="Requests of one address in a minute, files of pages aside; 0 for any number. "
    "100 where people sign in, 0 otherwise.",
)
@click.pass_obj
def serve(state: State, /, port: int, host: str, open_: bool, **options: Any) -> None:
    """Show the results as pages in a browser.

    Datasette with the pages of this package: experiments, runs, answers with their grades,
    decisions and costs. Grade answers and decide about suggestions there as with `edison grade` and
    `edison review`. A run that goes on meanwhile is shown as it goes. Ctrl-C ends it.

    On this machine nobody is asked who they are. On any other address, behind a proxy, or with
    --sign-in, every page, table, export and number needs a member of edison.yaml with a password or
    a token, and each may do what the role allows.

    Examples:
      edison serve
      edison serve --open
      edison serve --port 0 --json
      edison serve --behind-tls --behind-proxy --name edison.example.com
    """
    terminal = Terminal(state)
    site = site_at(state.entered(find_root(state.folder)))
    entry = _door(host, options)
    if _is_beyond(host, options) and site.file.settings.private:
        raise UsageError(
            "settings.private keeps texts on this machine, and others could read the pages",
            hint="serve on 127.0.0.1 and tunnel to it (ssh -L)",
        )
    if entry.sign_in:
        _refuse_unless_people_can_sign_in(site, host)
    with closing(open_reader(site.results)):
        pass  # whatever is wrong with the file is said before a port is taken
    person = site.actor().identity
    actions = ReviewActions(offline=state.offline)
    serving = Serving(
        site.results, site.root, site.file.project, host, port, person, actions, entry
    )

    def ready(address: str, port: int) -> None:
        if terminal.json:
            told = {"url": address, "port": port, "sign_in": entry.sign_in}
            terminal.document({**told, "results": str(site.results)})
        else:
            terminal.result(Ink(address, bold=True), f"  {site.file.project}, until Ctrl-C")
        if not is_this_machine(host) and not entry.tls:
            said = "without HTTPS, passwords and pages can be read on their way"
            terminal.note(Ink("warning:", ODD), f" {said}; put a proxy in front: --behind-tls")
        flush(sys.stdout)
        if open_:
            webbrowser.open(address)

    with contextlib.suppress(KeyboardInterrupt):  # that is how it ends
        serve_pages(serving, ready)


def _door(host: str, options: dict[str, Any]) -> Door:
    sign_in, most = options["sign_in"] or _is_beyond(host, options), options["rate_limit"]
    return Door(
        sign_in=sign_in,
        tls=options["behind_tls"],
        proxy=options["behind_proxy"],
        names=options["names"],
        per_minute=(_USUAL_RATE if sign_in else 0) if most is None else most,
    )


def _is_beyond(host: str, options: dict[str, Any]) -> bool:
    """Whether others can reach the pages, if only through something that stands in front."""
    in_front = options["behind_tls"] or options["behind_proxy"] or bool(options["names"])
    return in_front or not is_this_machine(host)


def _refuse_unless_people_can_sign_in(site: Site, host: str) -> None:
    """Refuse to serve to people of whom none could say who they are."""
    why = "everybody is to be asked who they are"
    if not is_this_machine(host):
        why = f"{host or 'that address'} can be reached from other machines"
    members = site.file.members
    tunnel = "; or serve on 127.0.0.1 and tunnel to it (ssh -L)"
    if not members:
        raise UsageError(
            f"{why}, and edison.yaml has no members",
            hint=f"add members and their roles, then: edison roles passwd NAME{tunnel}",
        )
    if not any(member.role == "owner" for member in members):
        raise UsageError(f"{why}, and no member is an owner", hint="give somebody role: owner")
    if run_git("ls-files", "--error-unmatch", "--", AUTH_FILE, cwd=site.root).code == 0:
        raise UsageError(
            f"{AUTH_FILE} is in Git, so whoever wrote it could sign in",
            hint=f"git rm --cached {AUTH_FILE}, remove it, and set the passwords anew",
        )
    access = Accounts(site).access()
    if not any(each.password_since or each.tokens for each in access):
        raise UsageError(
            f"{why}, and no member has a password or a token",
            hint=f"set one: edison roles passwd {names_of(members[0])[0]}{tunnel}",
        )
