"""Fixed versions that gates compare with: a tag, or the prompt versions in production.

Both are read from the trusted side of a change, never from files that the change could edit: the
mark `production` from the prompts at the base, and a tag only if it is part of the base's history.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError
from edison_ci.git.repository import Repository
from edison_ci.plan.baseline import project_at
from edison_ci.plan.versions import past_versions

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.config.prompt import Prompt

VERSION_LABEL = re.compile(r"v([1-9][0-9]*)")


def tagged_commit(repository: Repository, tag: str, trusted: str) -> str:
    """Return the commit of a tag; raises UsageError unless a trusted commit descends from it.

    The author of a change may be able to push a tag, but not one into the history of its base.
    """
    whole = " (in Actions: check out with `fetch-depth: 0`)" if repository.is_shallow() else ""
    commit = repository.tagged(tag)
    if commit is None:
        hint = f"git fetch --tags{whole}"
        raise UsageError(f"this clone has no tag {tag}", hint=hint)
    if not repository.is_ancestor(commit, trusted):
        said = f"tag {tag} is not in the history of the base, {trusted[:8]}{whole}"
        raise UsageError(said, hint="name a tag on the default branch")
    return commit


def production_versions(
    repository: Repository, project: Project, experiment: str, trusted: str
) -> dict[str, str]:
    """Return the versions in production by prompt, as a trusted commit marks them."""
    before = project_at(repository, project, trusted)
    found = None if before is None else before.experiments.get(experiment)
    prompts = () if found is None else found.prompts
    marks = {p.id: production_version(p, project.root) for p in prompts if p.header.production}
    if not marks:
        raise UsageError(
            f"no prompt of {experiment} is marked as in production at {trusted[:8]}",
            hint="run edison promote PROMPT VERSION, and merge that",
        )
    return {str(prompt): version for prompt, version in marks.items()}


def production_version(prompt: Prompt, root: Path) -> str:
    """Return the first digits of the version that a prompt names as in production."""
    name = prompt.header.production
    label = VERSION_LABEL.fullmatch(name)
    if label is None:
        return name
    repository = Repository.find(root)
    past = past_versions(prompt.path, root, repository) if repository else []
    number = int(label[1])
    if number > len(past):
        raise UsageError(f"{prompt.id} has no version {name}", hint="write its hash instead")
    return past[number - 1]
