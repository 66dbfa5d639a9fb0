"""Files of the plan of a run: its snapshot, prices, copies of its datasets, and its commit."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.config import expected_form
from edison_ci.config.prices import Price, PriceTable
from edison_ci.documents.files import OverlayTree, make_folder
from edison_ci.git.repository import Repository
from edison_ci.plan.fingerprint import describe
from edison_ci.records import Side
from edison_ci.store.liveness import explain_write_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.execute.run_options import BaseReference, RunOptions

# A run is resumed only with the files that it was planned with. Prices are the exception: they
# change what the next call costs, not what it answers.
_PRICE = "the price of "


def plan_snapshot(
    project: Project,
    sides: Mapping[Side, Experiment],
    options: RunOptions,
    against: BaseReference | None,
) -> str:
    """Return everything that a run depends on, as JSON that is stored with it."""
    snapshot: dict[str, Any] = {}
    for side, experiment in sides.items():
        mark = "" if side == Side.HEAD else f"{side}: "
        places = describe(project, options.selection.narrow(experiment))
        snapshot.update({f"{mark}{place}": value for place, value in places.items()})
    chosen = {
        "selection": options.selection.as_json(),
        "reuse": options.reuse,
        "allow_code": options.allow_code,
        "batch": options.batch,
        "regrade": options.regrade,
        "outputs": options.outputs,
        "budget_microusd": options.budget_microusd,
        "against": against.as_json() if against is not None else None,
        "doubts": [[*doubt] for doubt in dict.fromkeys((*options.doubts, *project.doubts))],
        "push": options.push,
        "forms": [
            *(
                f"{prompt.path}:{note.line}: {note.sentence}; {note.hint}"
                for prompt in sides[Side.HEAD].prompts
                for note in expected_form.notes_on(prompt.detected)
            ),
            *(against.held if against is not None else ()),
        ],
        "outside": sorted(options.selection.narrow(sides[Side.HEAD]).outside),
        "git": checkout_of(project.root),
    }
    return json.dumps({**snapshot, "command line": chosen}, sort_keys=True, default=str)


def checkout_of(root: Path) -> dict[str, str | None] | None:
    """Return the commit, branch and author that are checked out; None without a commit.

    A job of GitHub has no branch checked out, and names it in its environment.
    """
    repository = Repository.find(root)
    head = None if repository is None else repository.head()
    if repository is None or head is None:
        return None
    branch = repository.branch() or os.environ.get("GITHUB_HEAD_REF")
    return {
        "commit": head,
        "branch": branch or os.environ.get("GITHUB_REF_NAME") or None,
        "author": next((name for name, _ in repository.authors(most=1)), None),
    }


def changed_places(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the keys of two snapshots whose values differ."""
    return [key for key in {**now, **before} if before.get(key) != now.get(key)]


def repriced_models(changed: Iterable[str]) -> list[str]:
    """Return the models whose price changed; none if anything else changed as well."""
    names = list(changed)
    only = all(name.startswith(_PRICE) for name in names)
    return [name.removeprefix(_PRICE) for name in names] if only else []


@dataclass(frozen=True, slots=True)
class PlannedPrices(PriceTable):
    """The prices with which a run was planned."""

    snapshot: Mapping[str, Any] = field(default_factory=dict)

    def price_of(self, model: Model) -> Price | None:
        """Return the price of a model at that time."""
        kept = self.snapshot.get(f"{_PRICE}{model.name}")
        if not isinstance(kept, dict):
            return None
        return Price.model_validate(kept)


@contextlib.contextmanager
def copy_datasets(project: Project, experiment: Experiment, folder: Path) -> Iterator[Project]:
    """Yield the project with copies of the experiment's datasets, so that edits do not matter.

    Everything else is in memory once a project is loaded; datasets are read case by case, once for
    each model. What a killed process left in the folder is removed first; no other process uses it.
    """
    shutil.rmtree(folder, ignore_errors=True)
    try:
        tree = project.tree
        with explain_write_errors(folder):
            make_folder(folder)
            for number, entry in enumerate(experiment.file.data):
                copy = folder / f"{number}-{entry.path.rpartition('/')[2]}"
                tree = OverlayTree(tree, entry.path, copy)
                with project.tree.open(entry.path) as source, copy.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
        yield replace(project, tree=tree)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_SHARED = ("edison.yaml", "quarantine.yaml", ".edison/prices.json")
"""Files of a project that every experiment depends on, besides the models."""


def commit_of(project: Project, experiment: Experiment) -> str | None:
    """Return HEAD if no file that the experiment depends on differs from it, else None."""
    repository = Repository.find(project.root)
    head = repository.head() if repository is not None else None
    if repository is None or head is None:
        return None
    prefix = repository.prefix_of(project.root)
    named = {*project.files_of(experiment), *_SHARED, project.file.paths.models}
    return None if repository.changed_paths(head) & {prefix + path for path in named} else head
