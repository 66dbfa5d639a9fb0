"""What a proposal may not decide: keys, code and money are on the terms of its base.

Whoever opens a pull request writes its files, so in a job for one `.edison/trust.yaml` is read from
the base commit: which key may go to which host, whether code may run, and from which of the base's
own files, and how much may be spent. Prices, by which that is held, are not below the base's. What
the pull request says of these counts after its merge. Nor may it bring along what only a run
writes: results would be taken for answers that models gave.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.config.base_limits import BaseLimits, limits_of
from edison_ci.config.price_floor import floored
from edison_ci.config.prices import load_prices
from edison_ci.config.project_files import ProjectFiles
from edison_ci.config.trust import TrustFile
from edison_ci.documents.files import inside
from edison_ci.documents.marks import Fault
from edison_ci.errors import ConfigError, UsageError
from edison_ci.forge.changed import authority_of, is_proposal
from edison_ci.forge.events import Event, Situation, read_event
from edison_ci.git.commit_tree import CommitTree
from edison_ci.git.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.config.prices import PriceTable


# Only a run writes results, locks and copies: answers in a results file would be taken for answers
# of models, and a link in the place of a lock would be written through. And only what is in the
# commit is read: a link could lead to what earlier steps of the job left behind, such as
# credentials. The rule is about names in the commit and about where links lead, so no other
# spelling is let in.
_OWN = ".edison"
_MAY_COME = re.compile(
    r"\.edison/(?:trust\.yaml|prices\.json|\.gitignore|schemas/[a-z]+\.schema\.json)"
)
"""What of `.edison` belongs into a commit, by its whole name."""
_BESIDE = ("", "-wal", "-shm", "-journal")
_LINK = "120000"
_FILES = ("100644", "100755")


@cache
def refuse_planted(root: Path, results: str) -> None:
    """Refuse results, locks, copies and links that came with the checkout, before any is used."""
    results = inside(results)
    for name in (_OWN, results):
        if link := _link_on_the_way(root, name):
            raise _refused(link)
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
        # Some file systems do not tell upper from lower case.
        folded = name.casefold()
        own = folded == _OWN or folded.startswith(f"{_OWN}/")
        may_come = mode in _FILES and _MAY_COME.fullmatch(name)
        if folded in written or (own and not may_come):
            raise _refused(name)
        if mode == _LINK:
            _refuse_astray(top, path, modes)


def _link_on_the_way(root: Path, name: str) -> str:
    """Return the first part of a path that is a link, or ''."""
    path = root
    for part in Path(name).parts:
        path = path / part
        if path.is_symlink():
            return os.path.relpath(path, root)
    return ""


def _refuse_astray(top: Path, path: str, modes: dict[str, str]) -> None:
    """Refuse a link to anything that is not in the commit; one that leads nowhere is harmless."""
    real = Path(os.path.realpath(top / path))
    if not real.exists():
        return
    target = real.relative_to(top).as_posix() if real.is_relative_to(top) else ""
    if target not in modes and not any(name.startswith(f"{target}/") for name in modes if target):
        raise UsageError(
            f"{path} is a link to something that is not part of the commit",
            hint="copy the file into the project",
        )


def _refused(path: str) -> UsageError:
    return UsageError(
        f"{path} is part of the commit, and only a run may write it: results in it would be "
        "taken for answers of models",
        hint=f"take it out: git rm --cached {path}",
    )


def on_terms_of_base(project: Project, environ: Mapping[str, str] = os.environ) -> Project:
    """Return the project with what its base trusts, in a job for a pull request; else as it is."""
    if project.proposed or not is_proposed(project.root, environ):
        return project
    refuse_planted(project.root.resolve(), project.file.results)
    terms = _terms(project.root, read_event(environ))
    prices = floored(project.prices, terms.models, terms.prices or load_prices())
    return replace(
        project,
        trust=terms.trust,
        code_root=terms.code,
        prices=prices,
        proposed=True,
        base_limits=terms.limits,
    )


def trust_of_base(root: Path, environ: Mapping[str, str] = os.environ) -> TrustFile:
    """Return what the base of a proposal trusts."""
    return _terms(root, read_event(environ)).trust


def is_proposed(root: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this is a job for what somebody proposes; anything else has its own files' trust."""
    if not environ.get("GITHUB_EVENT_NAME"):
        return False
    repository = Repository.find(root)
    head = repository.head() if repository is not None else None
    return is_proposal(read_event(environ), head)


class Terms(NamedTuple):
    """What the base of a pull request allows."""

    trust: TrustFile
    code: Path | None = None
    """A folder with the code that may run."""
    models: tuple[Model, ...] = ()
    prices: PriceTable | None = None
    limits: BaseLimits | None = None


@cache
def _terms(root: Path, event: Event) -> Terms:
    repository = Repository.find(root)
    if repository is None or event.situation is Situation.FORK:
        return Terms(TrustFile.model_construct())
    commit = authority_of(event, repository)
    if commit is None:
        raise UsageError(
            f"this job works on a proposal ({event.name}), and the branch that says what it may do "
            f"is not here: {event.default_branch or 'the default branch'}",
            hint="check out with fetch-depth: 0",
        )
    prefix = root.resolve().relative_to(repository.root.resolve()).as_posix()
    tree = CommitTree(repository, commit, "" if prefix == "." else prefix)
    files = ProjectFiles(tree)
    trust = files.trust()
    if files.problems:
        raise ConfigError(files.problems)
    code = _code_of(tree, trust) if trust.code.allow else None
    return _with_money(Terms(trust, code), tree)


def _with_money(terms: Terms, tree: CommitTree) -> Terms:
    """Return the terms with the base's prices and budgets.

    What of the base cannot be read limits nothing: it is not the pull request's fault.
    """
    files = ProjectFiles(tree)
    header = files.project()
    if header is None:
        return terms
    models = tuple(files.models(header.paths.models).values())
    paths = files.in_folder(header.paths.experiments, (".yaml", ".yml"))
    found = [file[0] for path in paths if (file := files.experiment(path))]
    stops = {file.experiment: file.stop for file in found}
    try:
        prices = load_prices(tree)
    except Fault:
        prices = load_prices()
    limits = limits_of(header, stops, terms.trust.budget_usd_max)
    return terms._replace(models=models, prices=prices, limits=limits)


def _code_of(tree: CommitTree, trust: TrustFile) -> Path:
    """Return a folder with the code of the base that may run, and nothing else."""
    folder = Path(tempfile.mkdtemp(prefix="edison-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for allowed in trust.code.paths:
        for path in tree.under(allowed):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with tree.open(path) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy)
    return folder
