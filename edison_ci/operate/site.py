"""The site of a project: its files, and who is working on them."""

from __future__ import annotations

import datetime as dt
import logging
import os
from typing import TYPE_CHECKING, Any

from edison_ci import formatting
from edison_ci._dataclass import dataclass
from edison_ci.config.project_files import ProjectFiles, only_errors
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import ConfigError, EdisonError, RoleError
from edison_ci.operate.actors import Actor, Role, git_identity, identify, refuse_below, role_of
from edison_ci.store.audit import AuditEntry, write_audit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edison_ci.config.project import ProjectFile
    from edison_ci.config.quarantine import QuarantineFile

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Site:
    """A project of which only edison.yaml need be valid."""

    root: Path
    file: ProjectFile
    clock: Callable[[], dt.datetime] = formatting.now

    @property
    def results(self) -> Path:
        """The results file."""
        return self.root / self.file.results

    @property
    def locks(self) -> Path:
        """The folder of locks."""
        return self.root / ".edison" / "locks"

    @property
    def backups(self) -> Path:
        """The folder of backups."""
        return self.root / ".edison" / "backups"

    def quarantine(self) -> QuarantineFile:
        """Return the cases that are set aside; an invalid file is an error."""
        files = ProjectFiles(WorkingTree(self.root))
        found = files.quarantine()
        if only_errors(files.problems):
            raise ConfigError(only_errors(files.problems))
        return found

    def production(self) -> tuple[tuple[str, str], ...]:
        """Return the prompts that say which version is in production; an invalid one is an error.

        The version is as somebody wrote it: the start of a hash, or a label.
        """
        files = ProjectFiles(WorkingTree(self.root))
        paths = files.in_folder(self.file.paths.prompts, (".md",))
        prompts = [prompt for path in paths if (prompt := files.prompt(path)) is not None]
        if only_errors(files.problems):
            raise ConfigError(only_errors(files.problems))
        return tuple((p.id, p.header.production) for p in prompts if p.header.production)

    def now(self) -> str:
        """Return the time as it is stored."""
        return formatting.stamp(self.clock())

    def days_ago(self, days: int) -> str:
        """Return the time so many days ago as it is stored."""
        return formatting.stamp(self.clock() - dt.timedelta(days=days))

    def actor(self) -> Actor:
        """Return who is acting."""
        in_actions = os.environ.get("GITHUB_ACTIONS") == "true"
        identity = identify(os.environ, None if in_actions else git_identity(self.root))
        return Actor(identity, role_of(identity, self.file.members))

    def require(self, needed: Role, action: str, entity: str = "") -> Actor:
        """Return the actor if the role is enough; a refusal is raised and audited."""
        return self.admit(self.actor(), needed, action, entity)

    def admit(self, actor: Actor, needed: Role, action: str, entity: str = "") -> Actor:
        """Return somebody who is known already, if their role is enough."""
        try:
            refuse_below(actor, needed, action, self.file.members)
        except RoleError as refused:
            self.note(self.entry(actor, f"refused: {action}", entity, after=refused.message))
            raise
        return actor

    def entry(
        self, actor: Actor, action: str, entity: str = "", *, before: Any = None, after: Any = None
    ) -> AuditEntry:
        """Return a row for the audit."""
        known_by = actor.identity.known_by
        return AuditEntry(self.now(), actor.name, known_by, action, entity, before, after)

    def note(self, entry: AuditEntry) -> None:
        """Audit what has happened already, such as a refusal, if there are results."""
        if not self.results.exists():
            return
        try:
            write_audit(self.results, entry)
        except EdisonError as error:
            # The refusal itself matters more than that it could not be written down.
            logger.error("the audit could not be written", extra={"reason": error.message})


def site_at(root: Path) -> Site:
    """Return the site of the project at `root`; problems of other files do not matter."""
    files = ProjectFiles(WorkingTree(root))
    file = files.project()
    if file is None:
        raise ConfigError(only_errors(files.problems))
    return Site(root, file)
