"""Which commit is a run a run of?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.repository import Repository

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project

_SHARED = ("edison.yaml", "quarantine.yaml", ".edison/prices.json")
"""Files of a project that every experiment depends on, beside its models."""


def commit_of(project: Project, experiment: Experiment) -> str | None:
    """Return HEAD if no file that the experiment depends on differs from it, else None."""
    repository = Repository.find(project.root)
    head = repository.head() if repository is not None else None
    if repository is None or head is None:
        return None
    folder = project.root.resolve().relative_to(repository.root).as_posix()
    prefix = "" if folder == "." else f"{folder}/"
    named = {*project.files_of(experiment), *_SHARED, project.file.paths.models}
    return None if repository.changed_paths(head) & {prefix + path for path in named} else head
