"""The projects of a site: a folder with one project in each of its folders.

A site is a project itself, whose members sign in. `SITE/projects/NAME/` has the `edison.yaml` of a
project and, in its `.edison` folder, its own results file; NAME is the name of the project in
kebab-case. A folder may be a whole checkout, or have no more than what a push brought.

A project that lists members is for them only; any other is for all members of the site. The owners
of the site are owners of every project in it.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.access.site import Role, Site, open_site, role_in
from edison_ci.errors import EdisonError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.access.site import Actor, Identity

PROJECTS = "projects"
"""Usual name of the folder."""
_FILE = "edison.yaml"
_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_LONGEST = 50
_LOGS = ("", "-wal")


class SiteProject(NamedTuple):
    """A project of a site."""

    name: str
    """Its folder, and its name in addresses."""
    site: Site

    @property
    def title(self) -> str:
        """Its name in edison.yaml."""
        return self.site.file.project

    @property
    def description(self) -> str:
        """Its description in edison.yaml."""
        return self.site.file.description

    @property
    def changed_at(self) -> str | None:
        """When its results last changed; None without results."""
        times = [_mtime(Path(f"{self.site.results}{suffix}")) for suffix in _LOGS]
        newest = max(times)
        return utc.timestamp(dt.datetime.fromtimestamp(newest, dt.UTC)) if newest else None


class UnreadableProject(NamedTuple):
    """A folder of the site that is not served: its edison.yaml is not valid, or forbids it."""

    name: str
    problem: str


@dataclass(frozen=True, slots=True)
class ProjectList:
    """The projects of a site by name, and the folders that cannot be read."""

    projects: tuple[SiteProject, ...]
    unreadable: tuple[UnreadableProject, ...]


class Projects:
    """The registry of the projects of a site; files are read again after they have changed."""

    def __init__(self, home: Path, folder: Path, *, reachable: bool = False) -> None:
        self.home = home
        """The project whose members sign in."""
        self.folder = folder
        self._reachable = reachable
        """Whether other machines can reach the pages: private projects are left out then."""
        self._known: dict[str, tuple[tuple[int, int], SiteProject | UnreadableProject]] = {}
        self._guard = threading.Lock()

    def find(self, name: str) -> SiteProject | None:
        """Return a project by the name of its folder; None if there is none, or not a valid one."""
        project = self._read(name) if is_project_name(name) else None
        return project if isinstance(project, SiteProject) else None

    def listing(self) -> ProjectList:
        """Return all projects, by name."""
        try:
            names = sorted(p.name for p in self.folder.iterdir() if is_project_name(p.name))
        except OSError:
            names = []
        projects = [project for project in map(self._read, names) if project is not None]
        return ProjectList(
            tuple(project for project in projects if isinstance(project, SiteProject)),
            tuple(project for project in projects if isinstance(project, UnreadableProject)),
        )

    def for_visitor(self, home: Site, identity: Identity) -> Iterable[tuple[SiteProject, Role]]:
        """Yield the projects that a person may see, with their role in each."""
        for project in self.listing().projects:
            role = role_in(home, project.site, identity)
            if role is not None:
                yield project, role

    def _read(self, name: str) -> SiteProject | UnreadableProject | None:
        root = self.folder / name
        try:
            status = (root / _FILE).stat()
        except OSError:
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        with self._guard:
            kept = self._known.get(name)
            if kept is None or kept[0] != stamp:
                kept = self._known[name] = (stamp, self._opened(name, root))
            return kept[1]

    def _opened(self, name: str, root: Path) -> SiteProject | UnreadableProject:
        try:
            site = open_site(root)
        except EdisonError as error:
            return UnreadableProject(name, error.message)
        if site.file.slug != name:
            reason = f"its edison.yaml is of the project {site.file.project!r}"
            return UnreadableProject(name, f"{reason}: the folder has to be named {site.file.slug}")
        if self._reachable and site.file.settings.private:
            reason = "settings.private is set, and other machines could read its pages"
            return UnreadableProject(name, reason)
        return SiteProject(name, site)


def create_project(
    home: Site, actor: Actor, projects: Projects, title: str, description: str
) -> SiteProject:
    """Make a project of the site; return it also if it is there already."""
    words = {"version": 1, "project": title, "description": description}
    # JSON of a text is YAML of it.
    text = "".join(f"{name}: {json.dumps(value)}\n" for name, value in words.items() if value)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=projects.folder) as folder:
        root = Path(folder) / "project"
        root.mkdir()
        (root / _FILE).write_text(text, encoding="ascii")
        name = open_site(root).file.slug
        if is_project_name(name):
            with suppress(OSError):  # there already, perhaps since a moment
                root.rename(projects.folder / name)
                home.note(home.entry(actor, "create project", name))
    project = projects.find(name)
    if (
        project is None
        or project.title != title
        or role_in(home, project.site, actor.identity) is None
    ):
        raise UsageError(
            f"a project {title!r} cannot be made: the name {name!r} is taken or not valid",
            hint="choose another name in edison.yaml, or ask an owner of the site",
        )
    return project


def is_project_name(name: str) -> bool:
    """Whether a text is the name of a project in kebab-case, which is safe as a file name."""
    return len(name) <= _LONGEST and _SLUG.fullmatch(name) is not None


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
