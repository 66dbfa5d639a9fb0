"""What may a pull request decide about keys, code and money? Nothing: its base decides.

Whoever opens a pull request writes its files, so in a job for one `.edison/trust.yaml` is read from
the base commit: which key may go to which host, whether code may run, and from which of the base's
own files, and how much may be spent. What the pull request says of these counts after its merge.
Nor may it bring results along: they would be taken for answers that models gave.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.config.commit_tree import CommitTree
from edison_ci.config.project_files import ProjectFiles
from edison_ci.config.trust import TrustFile
from edison_ci.errors import ConfigError, UsageError
from edison_ci.forge.changed import base_of, is_foreign
from edison_ci.forge.events import Event, Situation, read_event
from edison_ci.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.load import Project

PROPOSALS = frozenset({"pull_request", "pull_request_target", "merge_group"})
"""Events of jobs that work on what somebody proposes."""


def on_terms_of_base(project: Project, environ: Mapping[str, str] = os.environ) -> Project:
    """Return the project with what its base trusts, in a job for a pull request; else as it is."""
    if project.proposed or not is_proposed(project.root, environ):
        return project
    _refuse_results(project.root.resolve(), project.file.results)
    trust, code = _terms(project.root, read_event(environ))
    return replace(project, trust=trust, code_root=code, proposed=True)


def is_proposed(root: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a job works on what somebody proposes: a pull request, or a commit named by hand."""
    name = environ.get("GITHUB_EVENT_NAME")
    if name in PROPOSALS or name != "workflow_dispatch":
        return name in PROPOSALS
    repository = Repository.find(root)
    head = repository.head() if repository is not None else None
    return head is not None and is_foreign(read_event(environ), head)


def _refuse_results(root: Path, results: str) -> None:
    """Refuse results that came with the checkout, as files or by a link."""
    repository, path = Repository.find(root), root / results
    head = repository.head() if repository is not None else None
    found = [each for each in path.parent.glob(f"{path.name}*") if each.is_symlink()]
    if os.path.realpath(path.parent) != str(path.parent):
        found.append(path.parent)
    if repository is not None and head is not None:
        name = path.relative_to(repository.root.resolve()).as_posix()
        under = name.rpartition("/")[0]
        listed = repository.list_files(head, under)
        found += [repository.root / each for each in listed if each.startswith(name)]
    if found:
        raise UsageError(
            f"{os.path.relpath(found[0], root)} is committed: what it holds would be taken for "
            "answers of models",
            hint=f"take it out: git rm --cached {results}",
        )


@cache
def _terms(root: Path, event: Event) -> tuple[TrustFile, Path | None]:
    repository = Repository.find(root)
    if repository is None or event.situation is Situation.FORK:
        return TrustFile.model_construct(), None
    commit = base_of(event, repository).commit
    if commit is None:
        raise UsageError(
            "the base of this pull request is not known, so neither is what it trusts",
            hint="check out with fetch-depth: 2",
        )
    prefix = root.resolve().relative_to(repository.root.resolve()).as_posix()
    tree = CommitTree(repository, commit, "" if prefix == "." else prefix)
    files = ProjectFiles(tree)
    trust = files.trust()
    if files.problems:
        raise ConfigError(files.problems)
    return trust, _code_of(tree, trust) if trust.code.allow else None


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
