"""The search over experiments, prompts, cases and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.results.search import MOST
from edison_ci.results.search import search as search_results
from edison_ci.web.page_context import Page
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    from edison_ci.web.page_context import PageContext


def search(context: PageContext) -> Page:
    """Return what a text was found in; models of the project by their name as well."""
    wanted = context.args.text("q")
    found = search_results(context.connection, wanted)
    project = project_of(context)
    text = wanted.casefold()
    models = [] if project is None or not text else sorted(project.models)
    models = [name for name in models if text in name.casefold()][:MOST]
    unrun = [] if project is None or not text else sorted(project.experiments)
    known = {each.name for each in found.experiments}
    unrun = [name for name in unrun if text in name.casefold() and name not in known][:MOST]
    return Page(
        "search",
        f"Search for {wanted}" if wanted else "Search",
        {
            "q": wanted,
            "found": found,
            "models": models,
            "unrun": unrun,
            "count": found.count + len(models) + len(unrun),
        },
        area="search",
    )
