"""edison serve: the results as web pages."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.access import accounts
from edison_ci.access import site as sites
from edison_ci.access.github_oauth import CLIENT_ID, CLIENT_SECRET, OAuthApp
from edison_ci.api import duties as server_duties
from edison_ci.api.bundles import MOST_BYTES
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import ODD, StyledText, Terminal, flush
from edison_ci.config import load
from edison_ci.errors import UsageError
from edison_ci.git import command
from edison_ci.results import stored_runs
from edison_ci.web import databases
from edison_ci.web import serving as web_serving
from edison_ci.web.databases import Actions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.access.site import Site
    from edison_ci.web.databases import OtherProjects

_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{1,60}")
_TAKEN = {"authorization", "cookie", "host", "origin", "x-forwarded-for"}
_MB = 1_000_000
_USUAL_RATE = 100
"""Requests per minute and address, if other machines can reach the pages."""


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """Where the pages are served, to whom, and with which other projects."""

    port: int
    host: str
    open_: bool
    sign_in: bool
    names: tuple[str, ...]
    behind_tls: bool
    behind_proxy: bool
    github_sign_in: bool
    user_header: str | None
    user_header_from: tuple[str, ...]
    rate_limit: int | None
    folder: Path | None
    accept_push: bool
    push_limit: int
    """In megabytes."""

    @property
    def reachable(self) -> bool:
        """Whether other machines can reach the pages, directly or through a proxy."""
        in_front = self.behind_tls or self.behind_proxy or self.user_header
        return bool(in_front or self.names) or not web_serving.is_this_machine(self.host)


@click.command(cls=EdisonCommand)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8001,
    show_default=True,
    metavar="N",
    help="Port; 0 selects a free one.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address; other than loopback, everyone must sign in.",
)
@click.option("--open", "open_", is_flag=True, help="Open the pages in a browser.")
@click.option("--sign-in", is_flag=True, help="Require sign-in on this machine too.")
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="Host name; requests for other names are refused.",
)
@click.option(
    "--behind-tls",
    is_flag=True,
    help="Behind a proxy with HTTPS: cookies and links use HTTPS only.",
)
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="Behind a proxy: trust the last address of X-Forwarded-For.",
)
@click.option(
    "--github-sign-in",
    is_flag=True,
    help=f"Also sign in with GitHub; needs {CLIENT_ID} and {CLIENT_SECRET}.",
)
@click.option(
    "--user-header",
    metavar="NAME",
    help="Header by which a proxy names the visitor; needs --user-header-from.",
)
@click.option(
    "--user-header-from",
    multiple=True,
    metavar="ADDRESS",
    help="Address or network of the proxy whose header is believed.",
)
@click.option(
    "--rate-limit",
    type=click.IntRange(0, 1_000_000),
    metavar="N",
    help="Requests per minute of a member, or of an address without sign-in, static files "
    "excluded; 0 for no limit. "
    "Default: 100 with sign-in, 0 without.",
)
@click.option(
    "--projects",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Serve the projects in this folder too, below /projects/.",
)
@click.option(
    "--accept-push",
    is_flag=True,
    help="Let editors push runs of their projects; needs --projects.",
)
@click.option(
    "--push-limit",
    type=click.IntRange(1, MOST_BYTES // _MB),
    default=MOST_BYTES // _MB,
    show_default=True,
    metavar="MB",
    help="Most megabytes of a run that is pushed.",
)
@click.pass_obj
@takes(ServeRequest)
def serve(state: CliState, request: ServeRequest) -> None:
    """Serve the results as web pages.

    Runs Datasette with the pages of this package: experiments, runs, answers with their grades,
    decisions and costs. Answers can be graded and suggestions reviewed, as with `edison grade` and
    `edison review`. Running experiments are updated live; before the first run, the pages say what
    to do. Stop it with Ctrl-C.

    On the loopback address no sign-in is needed. On any other address, behind a proxy, or with
    --sign-in, every page, table and export needs a member of edison.yaml with a password or a
    token, and the role of the member limits what is allowed. With --github-sign-in members also
    sign in with their GitHub account, and with --user-header a proxy says who they are.

    With --projects this project is a site for others: each folder in FOLDER that has an edison.yaml
    is one, with its own results. Members sign in at the site; a project that lists members is for
    them only. With --accept-push, editors add runs with `edison push`.

    Examples:
      edison serve
      edison serve --open
      edison serve --port 0 --json
      edison serve --behind-tls --behind-proxy --name edison.example.com
      edison serve --behind-tls --name edison.example.com --github-sign-in
      edison serve --projects projects --accept-push
    """
    terminal = Terminal(state)
    site = sites.open_site(state.enter_project(load.find_root(state.folder)))
    serving = _prepare(site, request, offline=state.offline)
    duties = server_duties.duty_statuses(site)

    def ready(address: str, port: int) -> None:
        for warning in _warnings(serving):
            terminal.note(StyledText("warning:", ODD), f" {warning}")
        if terminal.json:
            about = {"url": address, "port": port, "sign_in": serving.access.sign_in}
            done = {status.duty.name: status.state and status.state.done_at for status in duties}
            terminal.document({**about, "results": str(site.results), "duties": done})
        else:
            terminal.result(StyledText(address, bold=True), f"  {site.file.project}, until Ctrl-C")
            terminal.note("runs by itself:")
            for status in duties:
                terminal.note(f"  {status.in_words}")
        flush(sys.stdout)
        if request.open_:
            webbrowser.open(address)

    # Ctrl-C is the normal end.
    with contextlib.suppress(KeyboardInterrupt), server_duties.duties_in_background(site.root):
        web_serving.serve(serving, ready)


def _prepare(site: Site, request: ServeRequest, *, offline: bool) -> web_serving.Serving:
    """Return what is served, and to whom; raises UsageError before the port is opened."""
    if offline and request.github_sign_in:
        raise UsageError("network access is disabled by --offline", hint="remove --github-sign-in")
    access = _access_rules(request)
    if request.reachable and site.file.settings.private:
        raise UsageError(
            "settings.private is set, and other machines could read the pages",
            hint="serve on 127.0.0.1 and tunnel to it (ssh -L)",
        )
    if access.sign_in:
        _require_sign_in(site, request.host, access)
    # Pages are empty until the first run; problems of the file come before the port is opened.
    stored_runs.ensure_results(site)
    return web_serving.Serving(
        site.results,
        site.root,
        site.file.project,
        request.host,
        request.port,
        site.actor().identity,
        Actions(offline=offline),
        access,
        projects=_projects(site, request),
    )


def _warnings(serving: web_serving.Serving) -> Iterator[str]:
    if not web_serving.is_this_machine(serving.host) and not serving.access.tls:
        problem = "without HTTPS, passwords and pages can be read in transit"
        yield f"{problem}; put a proxy in front: --behind-tls"
    for other in serving.projects.listing().unreadable if serving.projects is not None else ():
        yield f"{other.name} is not served: {other.problem}"


def _projects(site: Site, request: ServeRequest) -> OtherProjects | None:
    """Return the other projects to serve; raises UsageError if the folder is missing."""
    if request.folder is None:
        if request.accept_push:
            raise UsageError(
                "--accept-push needs --projects",
                hint="give the folder of the projects that are pushed: --projects projects",
            )
        return None
    place = site.root / request.folder
    if not place.is_dir():
        raise UsageError(
            f"--projects: there is no folder {place}",
            hint=f"make it: mkdir {place}; a project is a folder with an edison.yaml in it",
        )
    opened = feature.required("projects", "site")
    return cast("OtherProjects", opened(site.root, place, reachable=request.reachable))


def _access_rules(request: ServeRequest) -> databases.ServerAccess:
    named = request.github_sign_in or request.user_header
    sign_in = bool(request.sign_in or named or request.reachable)
    most = request.rate_limit
    github = OAuthApp.of(os.environ) if request.github_sign_in else None
    if github is not None and not request.names and not web_serving.is_this_machine(request.host):
        raise UsageError(
            "sign-in with GitHub needs the name of this server",
            hint="give the host of the callback address: --name HOST",
        )
    return databases.ServerAccess(
        github=github,
        user_header=(request.user_header or "").casefold(),
        user_header_from=_proxy_networks(request.user_header, request.user_header_from),
        sign_in=sign_in,
        tls=request.behind_tls,
        proxy=request.behind_proxy,
        names=request.names,
        push_limit=request.push_limit * _MB if request.accept_push else 0,
        per_minute=(_USUAL_RATE if sign_in else 0) if most is None else most,
    )


def _proxy_networks(
    name: str | None, addresses: tuple[str, ...]
) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Return from where the header of a proxy is believed; raises UsageError."""
    if bool(name) != bool(addresses):
        option, other = ("user-header", "user-header-from")[:: 1 if name else -1]
        raise UsageError(
            f"--{option} needs --{other}",
            hint="anyone can send a header: name it, and the address of the proxy that sets it",
        )
    if name and (not _HEADER.fullmatch(name) or name.casefold() in _TAKEN):
        raise UsageError(
            f"the header {name!r} cannot name a visitor", hint="choose one such as Remote-User"
        )
    try:
        return tuple(ipaddress.ip_network(address) for address in addresses)
    except ValueError as error:
        raise UsageError(
            f"--user-header-from: {error}", hint="write an address or network, such as 10.0.0.0/8"
        ) from None


def _require_sign_in(site: Site, host: str, rules: databases.ServerAccess) -> None:
    """Raise UsageError if sign-in is required but no member could sign in."""
    why = "sign-in is required"
    if not web_serving.is_this_machine(host):
        why = f"{host or 'that address'} can be reached from other machines"
    members = site.file.members
    tunnel = "; or serve on 127.0.0.1 and tunnel to it (ssh -L)"
    if not members:
        raise UsageError(
            f"{why}, and edison.yaml has no members",
            hint=f"add members and their roles, then: edison roles passwd NAME{tunnel}",
        )
    if not any(member.role == "owner" for member in members):
        raise UsageError(f"{why}, and no member is an owner", hint="give a member role: owner")
    if (
        command.run_git("ls-files", "--error-unmatch", "--", accounts.AUTH_FILE, cwd=site.root).code
        == 0
    ):
        raise UsageError(
            f"{accounts.AUTH_FILE} is in Git, so its author could sign in",
            hint=f"git rm --cached {accounts.AUTH_FILE}, remove it, and set the passwords again",
        )
    by_github = rules.github is not None and any(member.github for member in members)
    if by_github or rules.user_header:
        return
    access = accounts.Accounts(site).access()
    if not any(member.password_since or member.tokens for member in access):
        raise UsageError(
            f"{why}, and no member has a password or a token",
            hint=f"set one: edison roles passwd {accounts.sign_in_names(members[0])[0]}{tunnel}",
        )
