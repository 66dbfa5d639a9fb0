"""Accepted drafts as files: checked with the whole project before they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.load import inspect_project
from edison_ci.documents.decoding import decode
from edison_ci.documents.files import read, replace_file
from edison_ci.errors import ConfigError, Severity
from edison_ci.operate.site import Role, Site
from edison_ci.refine.candidate import OverlayTree
from edison_ci.refine.patch import diff_of
from edison_ci.store.audit import write_audit

if TYPE_CHECKING:
    from edison_ci.assist.drafting import Draft
    from edison_ci.config.load import Project


@dataclass(frozen=True, slots=True)
class DraftFile:
    """A file as a draft would make it."""

    project: Project
    path: str
    text: str

    @property
    def before(self) -> str:
        """The text that is there; empty if there is none."""
        tree = self.project.tree
        return decode(read(tree, self.path)) if tree.exists(self.path) else ""

    @property
    def diff(self) -> str:
        """The change of the file; empty if nothing changes."""
        return diff_of(self.path, self.before, self.text)

    def check(self) -> None:
        """Raise ConfigError with what the file makes invalid."""
        _, problems = inspect_project(OverlayTree(self.project.tree, self.path, self.text))
        _, known = inspect_project(self.project.tree)
        told = {(problem.where.file, problem.code, problem.message) for problem in known}
        wrong = [
            problem
            for problem in problems
            if problem.severity is Severity.ERROR
            and (problem.where.file, problem.code, problem.message) not in told
        ]
        if wrong:
            raise ConfigError(wrong)

    def write(self, draft: Draft[object]) -> None:
        """Write the file, with an audit entry that names the model and the instructions."""
        self.check()
        site = Site(self.project.root, self.project.file)
        actor = site.require(Role.EDITOR, "assist", self.path)
        after = {"model": draft.model, "instructions": draft.instructions[:12]}
        entry = site.entry(actor, "assist", self.path, after=after)
        target = site.root / self.path
        target.parent.mkdir(parents=True, exist_ok=True)
        site.results.parent.mkdir(parents=True, exist_ok=True)
        replace_file(
            target,
            self.text.encode("utf-8"),
            just_before=lambda: write_audit(site.results, entry),
        )
