"""Accepted drafts as files: checked with the whole project before they are written."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.config import load
from edison_ci.documents import decoding, files, text_diff
from edison_ci.errors import ConfigError, Severity
from edison_ci.store import audit as store_audit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.load import Project
    from edison_ci.features.assist.drafting import Draft


@dataclass(frozen=True, slots=True)
class DraftFile:
    """A file as a draft would make it, with others that go with it."""

    project: Project
    path: str
    text: str
    others: Mapping[str, str] = field(default_factory=dict)
    """Texts by path, of files that are written before it."""

    @property
    def before(self) -> str:
        """The text that is there; empty if there is none."""
        return self._before(self.path)

    def _before(self, path: str) -> str:
        if path.startswith("../"):  # a workflow, in a project below the root of the repository
            file = self.project.root / path
            return file.read_text("utf-8") if file.is_file() else ""
        tree = self.project.tree
        return decoding.decode(files.read(tree, path)) if tree.exists(path) else ""

    @property
    def texts(self) -> dict[str, str]:
        """All texts by path, in the order in which they are written."""
        return {**self.others, self.path: self.text}

    @property
    def diff(self) -> str:
        """The change of the files; empty if nothing changes."""
        return "".join(
            text_diff.diff_of(path, self._before(path), text) for path, text in self.texts.items()
        )

    def changed(self) -> Project:
        """Return the project with the files; raises ConfigError with what they make invalid."""
        tree = self.project.tree
        for path, text in self.texts.items():
            tree = tree if path.startswith("../") else files.OverlayTree(tree, path, text)
        project, problems = load.inspect_project(tree, root=self.project.root)
        _, known = load.inspect_project(self.project.tree)
        told = {(problem.where.file, problem.code, problem.message) for problem in known}
        wrong = [
            problem
            for problem in problems
            if problem.severity is Severity.ERROR
            and (problem.where.file, problem.code, problem.message) not in told
        ]
        if wrong or project is None:
            raise ConfigError(wrong or problems)
        return project

    def write(self, draft: Draft[object]) -> None:
        """Write the files, with an audit entry that names the model and the instructions."""
        self.changed()
        site = sites.Site(self.project.root, self.project.file)
        actor = site.require(sites.Role.EDITOR, "assist", self.path)
        after = {"model": draft.model, "instructions": draft.instructions[:12]}
        entry = site.entry(actor, "assist", self.path, after=after)
        for path, text in self.texts.items():
            place = files.in_repository(site.root, path)
            audit = (
                (lambda: store_audit.write_audit(site.results, entry))
                if path == self.path
                else None
            )
            files.replace_file(*place, text.encode("utf-8"), just_before=audit)
