"""The projects of a site: the home page lists them, and each is served below `/projects/NAME/`.

Every project has its own Datasette, made when it is first asked for, so that no page, table or
query of one can reach the results of another. People sign in once, at the site.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from edison_ci._dataclass import dataclass
from edison_ci.errors import EdisonError, UsageError
from edison_ci.features.site.projects import Projects
from edison_ci.results.run_lists import experiments
from edison_ci.results.stored_runs import open_results
from edison_ci.web.identity import current_site
from edison_ci.web.page_context import PREFIX, Page, PageContext, paged
from edison_ci.web.security import NotForVisitor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from edison_ci.access.site import Role
    from edison_ci.features.site.projects import SiteProject

    App = Callable[[Mapping[str, Any], Any, Any], Awaitable[None]]

PLACE = "/projects/"
"""Path of all projects."""
MOST_OPEN = 32
"""Projects that are kept open; another one closes the one that was not asked for longest."""
_ADDRESS = re.compile(rf"{PLACE}([a-z0-9-]+)(/.*)?")
_OF_SITE = re.compile(rf"{PREFIX}/(?:sign-in|sign-out|static|you)(?:/.*)?")
"""Pages below a project that are those of the site."""


def project_address(name: str) -> str:
    """Return the path of a project."""
    return f"{PLACE}{name}/"


@dataclass(slots=True)
class _Open:
    """A project that is served."""

    project: SiteProject
    datasette: Any
    app: App
    requests: int = field(default=0)
    """Requests that are being answered."""


class ProjectApps:
    """Hands each request to the project that its address names, or to the site."""

    def __init__(
        self, site: App, projects: Projects, make: Callable[..., Any], most_open: int = MOST_OPEN
    ) -> None:
        self._site, self._projects, self._make = site, projects, make
        self._most_open = most_open
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._guard = asyncio.Lock()

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """Answer a request."""
        raw: bytes = scope.get("raw_path") or scope.get("path", "").encode()
        match = _ADDRESS.fullmatch(raw.decode("latin-1").partition("?")[0])
        if scope["type"] != "http" or match is None:
            await self._site(scope, receive, send)
            return
        name, rest = match[1], match[2] or "/"
        inner = {**scope, "path": unquote(rest), "raw_path": rest.encode("latin-1")}
        if _OF_SITE.fullmatch(rest):
            await self._site(inner, receive, send)
            return
        served = await self._find(name)
        if served is None:
            await self._site(scope, receive, send)
            return
        try:
            await served.app(inner, receive, send)
        except NotForVisitor:  # as if it did not exist
            await self._site(scope, receive, send)
        finally:
            served.requests -= 1

    async def _find(self, name: str) -> _Open | None:
        project = await asyncio.to_thread(self._projects.find, name)
        async with self._guard:
            served = self._open.get(name)
            if project is None:
                return None
            if served is None or served.project.site.results != project.site.results:
                with suppress(EdisonError):  # its file cannot be opened: reported as missing
                    served = await self._start(name, project)
            if served is not None:
                self._open.move_to_end(name)
                served.requests += 1
            self._close_idle()
            return served

    async def _start(self, name: str, project: SiteProject) -> _Open:
        make = self._make
        datasette = await asyncio.to_thread(make, project, base=project_address(name))
        served = self._open[name] = _Open(project, datasette, datasette.app())
        return served

    def _close_idle(self) -> None:
        idle = [name for name, served in self._open.items() if not served.requests]
        for name in idle[: max(0, len(self._open) - self._most_open)]:
            self._open.pop(name).datasette.executor.shutdown(wait=False)


class ProjectLine(NamedTuple):
    """A project in the list."""

    project: SiteProject
    role: Role
    members: int
    experiments: int | None
    """Experiments with a stored run; None if its results cannot be read."""


_counts: dict[Path, tuple[str, int | None]] = {}
"""Experiments by results file, and when that had changed when they were counted."""
_guard = threading.Lock()


def projects(context: PageContext) -> Page:
    """Return the projects of the site for its visitor, those that changed last first."""
    server, actor = context.server, context.actor
    if server is None or not isinstance(server.projects, Projects) or not server.is_site:
        raise UsageError(
            "this server has one project", hint="serve several with: edison serve --projects FOLDER"
        )
    text, home = context.args.text("q").casefold(), current_site(server.home)
    seen = server.projects.for_visitor(home, actor.identity) if actor is not None else ()
    visible = [(project, role) for project, role in seen if _matches(text, project)]
    visible.sort(key=lambda row: row[0].name)
    visible.sort(key=lambda row: row[0].changed_at or "", reverse=True)
    page = paged(context, visible, "projects", q=context.args.text("q"))
    lines = [
        ProjectLine(
            project, role, len(project.site.file.members or home.file.members), _count(project)
        )
        for project, role in page.rows
    ]
    values = {"lines": lines, "q": context.args.text("q"), "address": project_address}
    values |= page.values
    return Page("projects", "Projects", values, area="projects")


def _matches(text: str, project: SiteProject) -> bool:
    texts = (project.name, project.title, project.description, project.site.file.team or "")
    return not text or any(text in part.casefold() for part in texts)


def _count(project: SiteProject) -> int | None:
    """Return the number of experiments, counted again after the results have changed."""
    path, changed_at = project.site.results, project.changed_at
    if changed_at is None:
        return 0
    with _guard:
        kept = _counts.get(path)
    if kept is None or kept[0] != changed_at:
        try:
            with open_results(path) as reader:
                kept = (changed_at, len(experiments(reader)))
        except EdisonError:
            kept = (changed_at, None)
        with _guard:
            _counts[path] = kept
    return kept[1]
