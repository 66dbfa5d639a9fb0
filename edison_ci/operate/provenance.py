"""Provenance of answers in a proposal: doubts about those that it may have written itself.

In a job for a pull request, a merge queue or a commit that was named by hand, a recording counts
only if its bytes are those of the base commit, a simulated or recorded model only if the base has
one too, and a model of a plugin only with the plugin and options of the base. Other answers are
shown, but the run is inconclusive at best.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.documents.files import file_digest
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.forge import events
from edison_ci.git.repository import Repository
from edison_ci.operate.proposal_terms import is_proposed
from edison_ci.plan import baseline
from edison_ci.providers import replay
from edison_ci.records import BaselineDoubt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.documents.files import Tree

_MADE_UP = {"sim": "simulated", "replay": "answered from a recording"}
"""Providers that call no model, and how their answers are described."""
STORED = BaselineDoubt(
    "provenance",
    "Answers come from results of another job, which prove nothing without a signature.",
)


class Proposal(NamedTuple):
    """A proposal, and its base commit."""

    repository: Repository
    base: str | None
    """None if it is not known."""

    @classmethod
    def find(cls, root: Path) -> Proposal | None:
        """Return the proposal of this job; None if it works on none."""
        repository = Repository.find(root)
        if repository is None or not is_proposed(root):
            return None
        return cls(repository, events.find_base(events.read_event(os.environ), repository).commit)

    def has(self, path: Path, data: bytes) -> bool:
        """Whether the base has a file with exactly these bytes at this path."""
        top, real = self.repository.root.resolve(), path.resolve()
        if self.base is None or not real.is_relative_to(top):
            return False
        place = real.relative_to(top).as_posix()
        try:
            return self.repository.read(self.base, place, max_bytes=replay.MAX_BYTES) == data
        except UsageError:
            return False


def recording_doubts(root: Path, paths: list[Path]) -> tuple[BaselineDoubt, ...]:
    """Return the doubts about answers that are taken from these files."""
    proposal = Proposal.find(root) if paths else None
    if proposal is None:
        return ()
    foreign = [path for path in paths if not proposal.has(path, path.read_bytes())]
    return tuple(
        BaselineDoubt(
            "provenance",
            f"The base does not have {_name(root, path)} so, and answers were taken from it.",
        )
        for path in foreign
    )


def model_doubts(project: Project, experiment: Experiment) -> tuple[BaselineDoubt, ...]:
    """Return the doubts about the answers of the models of an experiment."""
    if not any(m.provider in _MADE_UP or m.installed for _, m, _ in experiment.models):
        return ()
    proposal = Proposal.find(project.root)
    if proposal is None:
        return ()
    if proposal.base is None:
        return (
            BaselineDoubt(
                "provenance", "The base is not known, so no made-up answer proves anything."
            ),
        )
    base = baseline.base_of(project, experiment, proposal.base, commit=proposal.base)
    known = {} if base.experiment is None else {n: m for n, m, _ in base.experiment.models}
    tree = None if base.project is None else base.project.tree
    texts = [
        each
        for name, model, _ in experiment.models
        for each in _doubts_about(name, model, known.get(name), (project.tree, tree))
    ]
    return tuple(BaselineDoubt("provenance", each) for each in texts)


def _doubts_about(
    name: str, model: Model, before: Model | None, trees: tuple[Tree, Tree | None]
) -> Iterator[str]:
    if model.installed and before is not None:
        # It is unknown whether a plugin calls a model, and how its options change the answers.
        if before.provider != model.provider:
            yield f"Model {name} is answered by the plugin {model.provider} here only."
        elif dict(before.options) != dict(model.options):
            yield f"Model {name} has other options of the plugin {model.provider} than the base."
    how = _MADE_UP.get(model.provider)
    if how is None:
        return
    if before is not None and before.provider not in _MADE_UP:
        yield f"Model {name} is {how} here, and asked at the base."
    now, then = trees
    for path in filter(None, (model.store, model.script)):
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
