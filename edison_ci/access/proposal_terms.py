"""Terms of a proposal: its base decides about all but what the closed list leaves to it.

The author of a pull request writes its files, so in a job for one `.edison/trust.yaml` and
`.edison/secrets.yaml` are read from the newest commit of the default branch: which key may be sent
to which host, which code of the base may run, how much may be spent, and the sealed keys. Prices,
on which budgets depend, are not below those of the base. Of all other files counts what
`closed_list` names. Changes of the rest take effect after the merge, or in a job that a person
approved in the environment of GitHub that the base's trust.yaml names. Nor may a proposal contain
files that only a run writes: results in it would count as answers of models.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.access import closed_list, events, github_api
from edison_ci.config import base_limits as config_base_limits
from edison_ci.config.load import inspect_project
from edison_ci.config.prices import load_prices
from edison_ci.config.project_files import ProjectFiles
from edison_ci.config.sealed import SecretsFile
from edison_ci.config.trust import TrustFile
from edison_ci.documents.files import OWN_FOLDER, inside, may_be_committed
from edison_ci.documents.marks import Fault
from edison_ci.errors import ConfigError, UsageError
from edison_ci.git import objects
from edison_ci.git.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.config.prices import PriceTable
    from edison_ci.config.project import ProjectFile


# Only a run writes results, locks and copies: answers in a committed results file would count as
# answers of models, and a link in place of a lock would be written through. Only files of the
# commit are read: a link could lead to files of earlier steps of the job, such as credentials.
_BESIDE = ("", "-wal", "-shm", "-journal")
_LINK = "120000"
_FILES = ("100644", "100755")


@cache
def refuse_committed_results(root: Path, results: str) -> None:
    """Raise UsageError if results, locks, copies or links to them are committed."""
    results = inside(results)
    for name in (OWN_FOLDER, results):
        if link := _link_on_the_way(root, name):
            raise _committed_error(link)
    repository = Repository.find(root)
    head = repository.head() if repository is not None else None
    if repository is None or head is None:
        return
    modes = repository.modes(head)
    top = repository.root.resolve()
    folder = root.relative_to(top).as_posix()
    prefix = "" if folder == "." else f"{folder}/"
    written = {f"{results}{suffix}".casefold() for suffix in _BESIDE}
    for path, mode in modes.items():
        name = path.removeprefix(prefix)
        if not path.startswith(prefix):
            continue
        # Some file systems are not case-sensitive.
        folded = name.casefold()
        own = folded == OWN_FOLDER or folded.startswith(f"{OWN_FOLDER}/")
        may_come = mode in _FILES and may_be_committed(name)
        if folded in written or (own and not may_come):
            raise _committed_error(name)
        if mode == _LINK:
            _refuse_astray(top, path, modes)


def _link_on_the_way(root: Path, name: str) -> str:
    """Return the first part of a path that is a link; empty if there is none."""
    path = root
    for part in Path(name).parts:
        path = path / part
        if path.is_symlink():
            return os.path.relpath(path, root)
    return ""


def _refuse_astray(top: Path, path: str, modes: dict[str, str]) -> None:
    """Raise for a link to a file that is not in the commit; a broken link is harmless."""
    real = Path(os.path.realpath(top / path))
    if not real.exists():
        return
    target = real.relative_to(top).as_posix() if real.is_relative_to(top) else ""
    if target not in modes and not any(name.startswith(f"{target}/") for name in modes if target):
        raise UsageError(
            f"{path} is a link to a file that is not part of the commit",
            hint="replace the link by a copy of the file",
        )


def _committed_error(path: str) -> UsageError:
    return UsageError(
        f"{path} is committed, but only a run may write it: results in it would count as "
        "answers of models",
        hint=f"remove it: git rm --cached {path}",
    )


def apply_base_terms(project: Project, environ: Mapping[str, str] = os.environ) -> Project:
    """Return the project on the terms of its base, in a job for a proposal; else unchanged."""
    if project.proposed or not is_proposed(project.root, environ):
        return project
    refuse_committed_results(project.root.resolve(), project.file.results)
    terms = _terms(project.root, events.read_event(environ))
    return _on(terms, project, environ)


def to_report_on(project: Project, environ: Mapping[str, str] = os.environ) -> Project:
    """Return the project for a report on runs that were made: no key is used, and no code.

    Where the clone lacks the branch that sets the terms, the report is made without any text.
    """
    try:
        return apply_base_terms(project, environ)
    except UsageError:
        if _has_base(project.root, environ):
            raise
    settings = project.file.settings.model_copy(update={"private": True})
    return replace(
        project, file=project.file.model_copy(update={"settings": settings}), proposed=True
    )


def _has_base(root: Path, environ: Mapping[str, str]) -> bool:
    repository = Repository.find(root)
    event = events.read_event(environ)
    return repository is None or events.policy_commit(event, repository) is not None


def _on(terms: BaseTerms, project: Project, environ: Mapping[str, str]) -> Project:
    prices = config_base_limits.with_minimum_prices(
        project.prices, terms.models.values(), terms.prices or load_prices()
    )
    environment = terms.trust.environment
    if environment is None or not github_api.is_approved(environment, environ):
        project, overruled = closed_list.on_terms_of(terms.project, project)
        quiet = tuple(entry.place for entry in overruled if not entry.decides)
        doubts = closed_list.doubts_about(overruled)
        project = replace(project, doubts=doubts, overruled=quiet)
    return replace(
        project,
        trust=terms.trust,
        secrets=terms.secrets,
        code_root=terms.code,
        prices=prices,
        proposed=True,
        base_limits=terms.limits,
        base_models=terms.models,
    )


def base_trust(root: Path, environ: Mapping[str, str] = os.environ) -> TrustFile:
    """Return the trust file of the base of a proposal."""
    return _terms(root, events.read_event(environ)).trust


def base_secrets(root: Path, environ: Mapping[str, str] = os.environ) -> SecretsFile:
    """Return the sealed keys of the base of a proposal."""
    return _terms(root, events.read_event(environ)).secrets


def base_file(root: Path, environ: Mapping[str, str] = os.environ) -> ProjectFile | None:
    """Return edison.yaml of the base of a proposal; None if it has no valid one."""
    project = _terms(root, events.read_event(environ)).project
    return None if project is None else project.file


def is_proposed(root: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this is a job for a proposal; elsewhere the trust of its own files applies."""
    if not environ.get("GITHUB_EVENT_NAME"):
        return False
    repository = Repository.find(root)
    head = repository.head() if repository is not None else None
    return events.is_proposal(events.read_event(environ), head)


class BaseTerms(NamedTuple):
    """The terms that the base of a proposal sets."""

    trust: TrustFile
    secrets: SecretsFile = SecretsFile.model_construct()
    code: Path | None = None
    """A folder with the code that may run."""
    project: Project | None = None
    """Its files; None if it is no valid project."""
    prices: PriceTable | None = None
    limits: config_base_limits.BaseLimits | None = None

    @property
    def models(self) -> Mapping[str, Model]:
        """The models of the base."""
        return {} if self.project is None else self.project.models


@cache
def _terms(root: Path, event: events.Event) -> BaseTerms:
    repository = Repository.find(root)
    if repository is None:
        return BaseTerms(TrustFile.model_construct())
    commit = events.policy_commit(event, repository)
    if commit is None:
        raise UsageError(
            f"this job works on a proposal ({event.name}), and the branch that sets its terms is "
            f"not in this clone: {event.default_branch or 'the default branch'}",
            hint="check out with `fetch-depth: 0`",
        )
    prefix = root.resolve().relative_to(repository.root.resolve()).as_posix()
    tree = objects.CommitTree(repository, commit, "" if prefix == "." else prefix)
    files = ProjectFiles(tree)
    trust, secrets = files.trust(), files.secrets()
    if files.problems:
        raise ConfigError(files.problems)
    project, _ = inspect_project(tree, root=root)
    if event.situation is events.Situation.FORK:
        trust, secrets = TrustFile.model_construct(), SecretsFile.model_construct()
    code = _code_of(tree, trust) if trust.code.allow else None
    terms = BaseTerms(trust, secrets, code, project)
    return terms if project is None else _with_budgets(terms, tree, project)


def _with_budgets(terms: BaseTerms, tree: objects.CommitTree, project: Project) -> BaseTerms:
    """Return the terms with the prices and budgets of the base."""
    stops = {name: experiment.file.stop for name, experiment in project.experiments.items()}
    try:
        prices = load_prices(tree)
    except Fault:
        prices = load_prices()
    limits = config_base_limits.limits_of(project.file, stops, terms.trust.budget_usd_max)
    return terms._replace(prices=prices, limits=limits)


def _code_of(tree: objects.CommitTree, trust: TrustFile) -> Path:
    """Return a folder with only the code of the base that may run."""
    folder = Path(tempfile.mkdtemp(prefix="edison-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for allowed in trust.code.paths:
        for path in tree.under(allowed):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with tree.open(path) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy)
    return folder
