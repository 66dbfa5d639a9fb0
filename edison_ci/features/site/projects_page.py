"""The home page of a site: the projects that a visitor may see."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import EdisonError, UsageError
from edison_ci.features.site.project_addresses import project_address
from edison_ci.features.site.projects import Projects
from edison_ci.results.run_lists import experiments
from edison_ci.results.stored_runs import open_results
from edison_ci.web.identity import current_site
from edison_ci.web.page_context import Page, PageContext, paged

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.access.site import Role
    from edison_ci.features.site.projects import SiteProject


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
    visible.sort(key=lambda one: one[0].name)
    visible.sort(key=lambda one: one[0].changed_at or "", reverse=True)
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
