"""Paths to which http models may send keys: those that trust.yaml names, else the committed ones.

An http model sends any body to its address, and a host has other paths than that of its models. So
a key goes at or below the paths that `services` of `.edison/trust.yaml` names for a host. Of a host
without paths there, it goes to those that models have on the default branch.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edison_ci.config import trust_entries
from edison_ci.config.project_files import ProjectFiles
from edison_ci.config.trust import origin, path_of, target_of
from edison_ci.errors import Problem
from edison_ci.git import objects
from edison_ci.git.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.config.trust import TrustFile


def effective_trust(project: Project, environ: Mapping[str, str] = os.environ) -> TrustFile:
    """Return the trust file of a project, with the paths of the default branch where it has none.

    In a job for a proposal they are those of the base. What is in no repository yet has no default
    branch: there the paths are those of its own files.
    """
    trust = project.trust
    if not any(model.posts_key for model in project.models.values()):
        return trust
    named = {origin(entry.host) for entry in trust.services if entry.paths}
    committed = [
        trust_entries.TrustedService.model_construct(host=host, paths=(path_of(address) or "/",))
        for model in _committed_models(project, environ)
        if model.posts_key
        and (host := target_of(address := address_of(model, environ))) is not None
        and host not in named
    ]
    return trust.model_copy(update={"services": (*trust.services, *committed)})


def address_of(model: Model, environ: Mapping[str, str]) -> str:
    """Return the address of a model, also one in a variable; empty if that is not set."""
    if model.base_url_env is not None:
        return environ.get(model.base_url_env, "")
    return model.service or ""


def path_refusal(model: Model, address: str, trust: TrustFile) -> tuple[str, str] | None:
    """Return why a model may not send its key to the path of its address, and what to do.

    None if it may, and where the host may not get the key at all.
    """
    key = next(iter(model.keys.values()), "")
    if not model.posts_key or not trust.allows(key, address, model.provider):
        return None
    if trust.reaches(address):
        return None
    host, path = origin(address), path_of(address) or "/"
    return (
        f"model {model.name!r} would send {key} to {path} of {host}, where no http model of the "
        "default branch sends a key",
        f'add to .edison/trust.yaml: services: [{{host: "{host}", paths: ["{path}"]}}]',
    )


def path_problems(project: Project) -> Iterator[Problem]:
    """Yield a problem for each model that may not send its key to the path of its address."""
    trust = effective_trust(project)
    for model in project.models.values():
        if model.base_url is not None and (refusal := path_refusal(model, model.base_url, trust)):
            yield Problem(model.where, "trust", *refusal)


def _committed_models(project: Project, environ: Mapping[str, str]) -> Iterable[Model]:
    """Return the models of the default branch."""
    if project.proposed:
        return project.base_models.values()
    repository = Repository.find(project.root)
    commit = None if repository is None else _default_commit(repository, environ)
    if repository is None or commit is None:
        return project.models.values()
    folder = project.root.resolve().relative_to(repository.root.resolve()).as_posix()
    files = ProjectFiles(objects.CommitTree(repository, commit, "" if folder == "." else folder))
    file = files.project() or files.valid_project()
    return () if file is None else files.models(file.paths.models).values()


def _default_commit(repository: Repository, environ: Mapping[str, str]) -> str | None:
    """Return the newest commit of the default branch; None before the first one.

    A job of GitHub that is not for a proposal works on it, and its clone may not know the branch.
    """
    default = None if environ.get("GITHUB_EVENT_NAME") else repository.default_commit()
    return default or repository.head()
