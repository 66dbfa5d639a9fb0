"""The search over experiments, datasets, prompts, cases and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.plan.versions import MOST
from edison_ci.results.run_lists import search as search_results
from edison_ci.web.page_context import Page
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.web.page_context import PageContext


def search(context: PageContext) -> Page:
    """Return what a text was found in; models of the project by their name as well."""
    query = context.args.text("q")
    results = search_results(context.connection, query)
    project = project_of(context)
    text = query.casefold()
    models = [] if project is None or not text else sorted(project.models)
    models = [name for name in models if text in name.casefold()][:MOST]
    unrun = [] if project is None or not text else sorted(project.experiments)
    run_names = {experiment.name for experiment in results.experiments}
    unrun = [name for name in unrun if text in name.casefold() and name not in run_names][:MOST]
    datasets = _datasets(project, text) if project is not None and text else []
    return Page(
        "search",
        f"Search for {query}" if query else "Search",
        {
            "q": query,
            "found": results,
            "models": models,
            "unrun": unrun,
            "datasets": datasets,
            "count": results.count + len(models) + len(unrun) + len(datasets),
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
    datasets = []
    for path, name in sorted(homes.items()):
        about = project.abouts.get(path)
        if text in path.casefold() or (about is not None and about.has(text)):
            datasets.append(FoundDataset(path, name, about.description if about else ""))
    return datasets[:MOST]
