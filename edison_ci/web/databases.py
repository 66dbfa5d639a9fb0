"""Attached results databases with their projects, and the settings of `edison serve`."""

from __future__ import annotations

import secrets
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from edison_ci._dataclass import dataclass
from edison_ci.store.database import is_results_file
from edison_ci.web.page_context import PREFIX
from edison_ci.web.traffic import Traffic

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

    from edison_ci.access.github_oauth import OAuthApp
    from edison_ci.access.site import Identity, Site
    from edison_ci.web.security import RateLimit

PROJECT_FILE = "edison.yaml"


class OtherProject(Protocol):
    """A project of a site."""

    name: str
    site: Site

    @property
    def title(self) -> str:
        """Its name for people."""
        ...


class OtherProjects(Protocol):
    """The projects of a site, besides the one that it is."""

    home: Path

    def find(self, name: str) -> OtherProject | None:
        """Return a project, or None."""
        ...

    def listing(self) -> Any:
        """Return the projects, and those that cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class Actions:
    """How the pages of `edison serve` carry out what people ask for."""

    offline: bool = False


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """Access to the server: sign-in, TLS, proxy and limits."""

    sign_in: bool = False
    """Whether visitors have to sign in."""
    tls: bool = False
    """Whether a proxy in front terminates HTTPS."""
    proxy: bool = False
    """Whether to trust the last address of X-Forwarded-For, set by our proxy."""
    names: tuple[str, ...] = ()
    """Host names of this server; others are refused."""
    per_minute: int = 0
    """Requests per minute of a caller; 0 for no limit."""
    github: OAuthApp | None = None
    """The OAuth app for sign-in with GitHub; None without it."""
    user_header: str = ""
    """The header by which a proxy names the visitor, in lower case; empty without one."""
    push_limit: int = 0
    """Most bytes of a bundle that is pushed; 0 if none is accepted."""
    user_header_from: tuple[IPv4Network | IPv6Network, ...] = ()
    """The addresses from which that header is believed."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of `edison serve` that Datasette does not have."""

    root: Path
    """The project whose results are served."""
    hosts: frozenset[str] | None
    """Allowed Host headers, against DNS rebinding. None for any: with sign-in a rebound name has no
    cookie."""
    person: Identity | None = None
    """The person who started the server; None for read-only pages."""
    actions: Actions | None = None
    """Carries out review actions; None for read-only pages."""
    access: ServerAccess = ServerAccess()
    synchronous: bool = False
    """Whether slow results are computed at once, for pages written to files."""
    traffic: Traffic = field(default_factory=Traffic)
    """Counts of requests."""
    limit: RateLimit | None = None
    """Counts requests of each caller; None for no limit."""
    key: bytes = field(default_factory=partial(secrets.token_bytes, 32), repr=False)
    """Signs what a browser keeps for this server."""
    projects: OtherProjects | None = None
    """The projects of the site, for the site itself and for each of them; None without others."""

    @property
    def is_site(self) -> bool:
        """Whether it has projects besides its own."""
        return self.projects is not None and self.root == self.home

    @property
    def front(self) -> str:
        """The path of the page that visitors see first."""
        return f"{PREFIX}/projects" if self.is_site else PREFIX

    @property
    def home(self) -> Path:
        """The project whose members sign in."""
        return self.root if self.projects is None else self.projects.home

    @property
    def is_home(self) -> bool:
        """Whether it is that project, and not another one of the site."""
        return self.root == self.home


@dataclass(frozen=True, slots=True)
class ResultsDatabase:
    """A results database."""

    name: str
    """Its name in Datasette."""
    path: Path | None
    root: Path | None
    """Its project with prompts and cases, if accessible."""


_settings: WeakKeyDictionary[Any, ServerSettings] = WeakKeyDictionary()
_known: WeakKeyDictionary[Any, dict[str, ResultsDatabase]] = WeakKeyDictionary()


def register_settings(datasette: Any, settings: ServerSettings) -> None:
    """Store the settings of a Datasette instance."""
    _settings[datasette] = settings


def settings_of(datasette: Any) -> ServerSettings | None:
    """Return the settings of a Datasette instance; None unless `edison serve` started it."""
    return _settings.get(datasette)


async def results_databases(datasette: Any) -> list[ResultsDatabase]:
    """Return the attached results databases, in their order."""
    known = _known.setdefault(datasette, {})
    found = []
    for name, database in datasette.databases.items():
        new = name not in known and not database.is_memory and not name.startswith("_")
        if new and await database.execute_fn(is_results_file):
            known[name] = _attached(datasette, name, database)
        if name in known:
            found.append(known[name])
    return found


def _attached(datasette: Any, name: str, database: Any) -> ResultsDatabase:
    path = Path(database.path) if database.path else None
    settings = settings_of(datasette)
    return ResultsDatabase(
        name=name,
        path=path,
        root=settings.root if settings else _project_of_file(path),
    )


def _project_of_file(path: Path | None) -> Path | None:
    """Return the project that has the file in its `.edison` folder."""
    if path is None or path.absolute().parent.name != ".edison":
        return None
    root = path.absolute().parent.parent
    return root if (root / PROJECT_FILE).is_file() else None
