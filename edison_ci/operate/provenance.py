"""Which answers of a proposal prove nothing: those that the proposal itself may have written.

In a job for a pull request, a merge queue or a commit that was named by hand, a recording counts
only if its bytes are those of the base commit, and a simulated or recorded model only where the
base has one too. Whatever else was answered is shown, but the run is inconclusive at best.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.forge.changed import base_of
from edison_ci.forge.events import read_event
from edison_ci.git.repository import Repository
from edison_ci.operate.proposal_terms import is_proposed
from edison_ci.plan.baseline import Doubt
from edison_ci.plan.baseline import base_of as compared_with
from edison_ci.plan.fingerprint import file_digest
from edison_ci.providers.recording import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.documents.files import Tree

_MADE_UP = {"sim": "simulated", "replay": "answered from a recording"}
"""Providers that ask no model, and what their answers are."""
STORED = Doubt(
    "provenance",
    "Answers come from results of another job, which prove nothing without a signature.",
)


class Proposal(NamedTuple):
    """What somebody proposes, and the commit that it is proposed to."""

    repository: Repository
    base: str | None
    """None if it is not known: then nothing is proven."""

    @classmethod
    def here(cls, root: Path) -> Proposal | None:
        """Return the proposal that this job works on; None if it works on nobody's."""
        repository = Repository.find(root)
        if repository is None or not is_proposed(root):
            return None
        return cls(repository, base_of(read_event(os.environ), repository).commit)

    def has(self, path: Path, data: bytes) -> bool:
        """Whether the base has a file with exactly these bytes in this place."""
        top, real = self.repository.root.resolve(), path.resolve()
        if self.base is None or not real.is_relative_to(top):
            return False
        place = real.relative_to(top).as_posix()
        try:
            return self.repository.read(self.base, place, max_bytes=MAX_BYTES) == data
        except UsageError:
            return False


def doubted_recordings(root: Path, paths: list[Path]) -> tuple[Doubt, ...]:
    """Return why a replay of these files proves nothing; nothing where it may."""
    proposal = Proposal.here(root) if paths else None
    if proposal is None:
        return ()
    foreign = [path for path in paths if not proposal.has(path, path.read_bytes())]
    return tuple(
        Doubt("provenance", f"The base does not have {_name(root, path)} so, and it was replayed.")
        for path in foreign
    )


def doubted_models(project: Project, experiment: Experiment) -> tuple[Doubt, ...]:
    """Return why the answers of an experiment's models prove nothing; nothing where they may."""
    if not any(model.provider in _MADE_UP for _, model, _ in experiment.models):
        return ()
    proposal = Proposal.here(project.root)
    if proposal is None:
        return ()
    if proposal.base is None:
        return (
            Doubt("provenance", "The base is not known, so no made-up answer proves anything."),
        )
    base = compared_with(project, experiment, proposal.base, commit=proposal.base)
    known = {} if base.experiment is None else {n: m for n, m, _ in base.experiment.models}
    tree = None if base.project is None else base.project.tree
    said = [
        each
        for name, model, _ in experiment.models
        for each in _doubted(name, model, known.get(name), (project.tree, tree))
    ]
    return tuple(Doubt("provenance", each) for each in said)


def _doubted(
    name: str, model: Model, before: Model | None, trees: tuple[Tree, Tree | None]
) -> Iterator[str]:
    how = _MADE_UP.get(model.provider)
    if how is None:
        return
    if before is not None and before.provider not in _MADE_UP:
        yield f"Model {name} is {how} here, and asked at the base."
    now, then = trees
    for path in filter(None, (model.store, model.options.get("file"))):
        if then is None or not _same(str(path), now, then):
            yield f"Model {name} is {how}: from {path}, which the base does not have so."


def _same(path: str, now: Tree, then: Tree) -> bool:
    try:
        then.open(path).close()
    except Fault:
        return False
    return file_digest(now, path) == file_digest(then, path)


def _name(root: Path, path: Path) -> str:
    real = path.resolve()
    inside = real.is_relative_to(root.resolve())
    return real.relative_to(root.resolve()).as_posix() if inside else path.name
