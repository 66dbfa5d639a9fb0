"""Attached results databases with their projects, and the settings of `edison serve`."""

from __future__ import annotations

import secrets
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from edison_ci._dataclass import dataclass
from edison_ci.results.stored_runs import is_results_file
from edison_ci.web.cache import PageMemory
from edison_ci.web.page_context import PREFIX

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

    from edison_ci.access.github_oauth import OAuthApp
    from edison_ci.access.site import Identity, Site
    from edison_ci.web.security import RateLimit

PROJECT_FILE = "edison.yaml"


BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the times that are counted together."""
_METHODS = frozenset({"GET", "HEAD", "POST"})


class Traffic:
    """Requests by page, method and status, their times, and who signed in."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = {}
        self.times: dict[str, tuple[list[int], float]] = {}
        self.sign_ins = {"accepted": 0, "refused": 0}

    def count(self, page: str, method: str, status: int, seconds: float) -> None:
        """Count a request; `page` is one of a fixed set of names."""
        key = (page, method if method in _METHODS else "other", status)
        self.requests[key] = self.requests.get(key, 0) + 1
        counts, total = self.times.get(page, ([0] * (len(BOUNDS_S) + 1), 0.0))
        place = next((n for n, bound in enumerate(BOUNDS_S) if seconds <= bound), len(BOUNDS_S))
        counts[place] += 1
        self.times[page] = (counts, total + seconds)
        if (page, method) == ("sign-in", "POST"):
            self.sign_ins["accepted" if status == 303 else "refused"] += 1


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
    memory: PageMemory = field(default_factory=PageMemory)
    """What the pages remember between requests."""
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
_memories: WeakKeyDictionary[Any, PageMemory] = WeakKeyDictionary()
"""Of Datasettes that `edison serve` did not start."""


def register_settings(datasette: Any, settings: ServerSettings) -> None:
    """Store the settings of a Datasette instance."""
    _settings[datasette] = settings


def settings_of(datasette: Any) -> ServerSettings | None:
    """Return the settings of a Datasette instance; None unless `edison serve` started it."""
    return _settings.get(datasette)


def memory_of(datasette: Any) -> PageMemory:
    """Return what the pages of a Datasette instance remember."""
    settings = settings_of(datasette)
    return settings.memory if settings else _memories.setdefault(datasette, PageMemory())


async def results_databases(datasette: Any) -> list[ResultsDatabase]:
    """Return the attached results databases, in their order."""
    known_databases = _known.setdefault(datasette, {})
    attached = []
    for name, database in datasette.databases.items():
        new = name not in known_databases and not database.is_memory and not name.startswith("_")
        if new and await database.execute_fn(is_results_file):
            known_databases[name] = _attached(datasette, name, database)
        if name in known_databases:
            attached.append(known_databases[name])
    return attached


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
