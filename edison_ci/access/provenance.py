"""Provenance of answers in a proposal: doubts about those that it may have written itself.

In a job for a pull request, a merge queue or a commit that was named by hand, recorded and scripted
answers count only if the bytes of their file are those of the base commit. Others are shown, but
the run is inconclusive at best.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.access import events
from edison_ci.access.proposal_terms import is_proposed
from edison_ci.errors import UsageError
from edison_ci.git.repository import Repository
from edison_ci.providers import replay
from edison_ci.records import BaselineDoubt

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.config.load import Experiment, Project

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
    """Return the doubts about models of an experiment that answer from files."""
    files = [path for _, model, _ in experiment.models for path in (model.store, model.script)]
    return recording_doubts(project.root, [project.root / path for path in files if path])


def _name(root: Path, path: Path) -> str:
    real = path.resolve()
    inside = real.is_relative_to(root.resolve())
    return real.relative_to(root.resolve()).as_posix() if inside else path.name
