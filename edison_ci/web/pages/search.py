"""The search over experiments, datasets, prompts, cases and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.results.search import MOST
from edison_ci.results.search import search as search_results
from edison_ci.web.page_context import Page
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    from edison_ci.config.load import Project
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
    datasets = _datasets(project, text) if project is not None and text else []
    return Page(
        "search",
        f"Search for {wanted}" if wanted else "Search",
        {
            "q": wanted,
            "found": found,
            "models": models,
            "unrun": unrun,
            "datasets": datasets,
            "count": found.count + len(models) + len(unrun) + len(datasets),
        },
        area="search",
    )


class FoundDataset(NamedTuple):
    """A file of cases, with the first experiment that uses it."""

    path: str
    experiment: str
    description: str


def _datasets(project: Project, text: str) -> list[FoundDataset]:
    """Return the files of cases with a text in their path, or in what is said about them."""
    homes: dict[str, str] = {}
    for name, experiment in project.experiments.items():
        for entry in experiment.file.data:
            homes.setdefault(entry.path, name)
    found = []
    for path, name in sorted(homes.items()):
        about = project.abouts.get(path)
        if text in path.casefold() or (about is not None and about.has(text)):
            found.append(FoundDataset(path, name, about.description if about else ""))
    return found[:MOST]
