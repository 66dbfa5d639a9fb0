"""The site of a project: its files, the acting person and their role, and the audit.

In GitHub Actions the actor is the one that GitHub names; elsewhere it is the identity that Git
would commit with. That identity is a claim, not a proof: on their own machine, people can change
files without this tool. Roles prevent mistakes and record who did what; a repository is protected
by its host.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
from dataclasses import replace
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.config.project import identity_keys
from edison_ci.config.project_files import ProjectFiles, only_errors
from edison_ci.documents.files import WorkingTree, replace_file
from edison_ci.errors import ConfigError, EdisonError, RoleError, UsageError
from edison_ci.git import command
from edison_ci.store import audit
from edison_ci.store.audit import read_audit
from edison_ci.store.database import open_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from edison_ci.config.project import Member, ProjectFile
    from edison_ci.config.quarantine import QuarantinedCase
    from edison_ci.errors import Problem

KnownBy = Literal["web", "token", "proxy", "github", "git", "settings", "nobody"]
REMOTE = frozenset({"web", "token", "proxy"})
"""Sources of people who use the pages, or their API, of another machine."""


class Role(IntEnum):
    """The rights of a person; each role includes the ones before it."""

    VIEWER = 1
    REVIEWER = 2
    EDITOR = 3
    ADMIN = 4
    OWNER = 5

    @property
    def word(self) -> str:
        """The role as it is written in edison.yaml."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Identity:
    """A person, and the source of that information."""

    known_by: KnownBy
    login: str = ""
    email: str = ""
    name: str = ""

    @property
    def display_name(self) -> str:
        """The best known name."""
        return self.login or self.email or self.name or "somebody"


@dataclass(frozen=True, slots=True)
class Actor:
    """A person with a role; None if they are not a member."""

    identity: Identity
    role: Role | None

    @property
    def name(self) -> str:
        """The name in the audit."""
        return self.identity.display_name

    def may(self, needed: Role) -> bool:
        """Whether the role is enough."""
        return self.role is not None and self.role >= needed


BY_ITSELF = Actor(Identity("settings", name="edison"), Role.ADMIN)
"""Acts as edison.yaml says, without a person."""


def identify(environment: Mapping[str, str], git: Identity | None = None) -> Identity:
    """Return the acting person: as named by GitHub, else by Git, else unknown."""
    actor = environment.get("GITHUB_ACTOR", "")
    if environment.get("GITHUB_ACTIONS") == "true" and actor:
        return Identity("github", login=actor)
    return git or Identity("nobody")


def git_identity(root: Path) -> Identity | None:
    """Return the identity that Git would commit with; None without Git or a name."""
    try:
        output = command.run_git(
            "config", "-z", "--get-regexp", "^user[.](email|name)$", cwd=root
        ).out
    except (UsageError, OSError):
        return None
    settings = dict(command.decode(entry).partition("\n")[::2] for entry in output.split(b"\0"))
    email, name = settings.get("user.email", ""), settings.get("user.name", "")
    return Identity("git", email=email, name=name) if email or name else None


def find_role(identity: Identity, members: Sequence[Member]) -> Role | None:
    """Return the role of a person; without a list of members everybody is an owner."""
    if not members:
        return Role.OWNER
    member = find_member(identity, members)
    return None if member is None else Role[member.role.upper()]


def find_member(identity: Identity, members: Sequence[Member]) -> Member | None:
    """Return the member with this identity; None if there is none."""
    own_keys = {
        key
        for kind, name in (("github", identity.login), ("email", identity.email))
        if name
        for key in identity_keys(kind, name)
    }
    for member in members:
        names = (("github", member.github), ("email", member.email))
        if own_keys & {key for kind, name in names if name for key in identity_keys(kind, name)}:
            return member
    return None


def require_role(actor: Actor, needed: Role, action: str, members: Sequence[Member] = ()) -> None:
    """Raise RoleError unless the role of the actor is sufficient."""
    if actor.may(needed):
        return
    have = f"is {_with_article(actor.role)}" if actor.role is not None else "is not a member"
    able = [
        str(member.github or member.email)
        for member in members
        if Role[member.role.upper()] >= needed
    ]
    ask = f"ask {', '.join(able[:3])}, or " if able else ""
    how = {
        "github": "GITHUB_ACTOR",
        "git": "git config user.email",
        "web": "the sign-in",
        "token": "the token",
        "proxy": "the proxy",
        "settings": "the settings",
        "nobody": "nothing: set git config user.email",
    }[actor.identity.known_by]
    raise RoleError(
        f"{action} needs {_with_article(needed)}; {actor.name} {have}",
        hint=f"{ask}change members in edison.yaml (your identity comes from {how})",
    )


def _with_article(role: Role) -> str:
    return f"{'an' if role.word[0] in 'aeo' else 'a'} {role.word}"


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Site:
    """A project; only its edison.yaml has to be valid."""

    root: Path
    file: ProjectFile
    clock: Callable[[], dt.datetime] = utc.now

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

    def quarantine(self) -> tuple[QuarantinedCase, ...]:
        """Return the quarantined cases; raises ConfigError if the file is not valid."""
        files = ProjectFiles(WorkingTree(self.root))
        entries = files.quarantine()
        if only_errors(files.problems):
            raise ConfigError(only_errors(files.problems))
        return entries

    def production(self) -> tuple[tuple[str, str], ...]:
        """Return the prompts with a version in production; raises ConfigError.

        The version is as written in the file: the start of a hash, or a label.
        """
        files = ProjectFiles(WorkingTree(self.root))
        paths = files.in_folder(self.file.paths.prompts, (".md",))
        prompts = [prompt for path in paths if (prompt := files.prompt(path)) is not None]
        if only_errors(files.problems):
            raise ConfigError(only_errors(files.problems))
        return tuple((p.id, p.header.production) for p in prompts if p.header.production)

    def now(self) -> str:
        """Return the time as it is stored."""
        return utc.timestamp(self.clock())

    def at_one_time(self) -> Site:
        """Return the site with its clock stopped.

        What is found is written as seen before the results were read: a run that ends meanwhile is
        later, and may close an alert.
        """
        now = self.clock()
        return replace(self, clock=lambda: now)

    def seconds_ago(self, seconds: float) -> str:
        """Return the time `seconds` ago as it is stored."""
        return utc.timestamp(self.clock() - dt.timedelta(seconds=seconds))

    def days_ago(self, days: int) -> str:
        """Return the time `days` ago as it is stored."""
        return utc.timestamp(self.clock() - dt.timedelta(days=days))

    def actor(self) -> Actor:
        """Return the acting person with their role."""
        in_actions = os.environ.get("GITHUB_ACTIONS") == "true"
        identity = identify(os.environ, None if in_actions else git_identity(self.root))
        return Actor(identity, find_role(identity, self.file.members))

    def require(self, needed: Role, action: str, entity: str = "") -> Actor:
        """Return the actor if their role is sufficient; a refusal is audited and raised."""
        return self.admit(self.actor(), needed, action, entity)

    def admit(self, actor: Actor, needed: Role, action: str, entity: str = "") -> Actor:
        """Return a known actor if their role is sufficient; a refusal is audited and raised."""
        try:
            require_role(actor, needed, action, self.file.members)
        except RoleError as refused:
            self.note(self.entry(actor, f"refused: {action}", entity, after=refused.message))
            raise
        return actor

    def entry(
        self, actor: Actor, action: str, entity: str = "", *, before: Any = None, after: Any = None
    ) -> audit.AuditEntry:
        """Return a row of the audit."""
        known_by = actor.identity.known_by
        return audit.AuditEntry(self.now(), actor.name, known_by, action, entity, before, after)

    def replace(
        self, path: str, text: str, entry: audit.AuditEntry, *, top: Path | None = None
    ) -> None:
        """Replace a file of the project, or of another folder, with a row of the audit."""
        just_before = partial(audit.write_audit, self.results, entry)
        replace_file(top or self.root, path, text.encode("utf-8"), just_before=just_before)

    def note_export(self, what: str, where: str, actor: Actor | None = None) -> None:
        """Write a row of the audit about texts or results that leave the results file."""
        self.note(self.entry(actor or self.actor(), audit.EXPORT, f"{what} to {where}"))

    def record(
        self, actor: Actor, action: str, entity: str = "", *, before: Any = None, after: Any = None
    ) -> None:
        """Write a row of the audit; raises StoreError."""
        row = self.entry(actor, action, entity, before=before, after=after)
        audit.write_audit(self.results, row)

    def note(self, entry: audit.AuditEntry) -> None:
        """Write a row of the audit, if there is a results file; a failure is logged."""
        if not self.results.exists():
            return
        try:
            audit.write_audit(self.results, entry)
        except EdisonError as error:
            # A refusal must be raised even if it cannot be audited.
            logger.error("the audit could not be written", extra={"reason": error.message})


def open_site(root: Path) -> Site:
    """Return the site of the project at `root`; other files than edison.yaml may be invalid."""
    files = ProjectFiles(WorkingTree(root))
    file = files.project()
    if file is None:
        raise ConfigError(only_errors(files.problems))
    return Site(root, file)


def role_in(home: Site, project: Site, identity: Identity) -> Role | None:
    """Return the role of a member of the site in one of its projects; None if it is not for them.

    Only members of the site have one, regardless of the files of its projects.
    """
    role = find_role(identity, home.file.members)
    if role is None or role is Role.OWNER or not project.file.members:
        return role
    return find_role(identity, project.file.members)


def audit_untrusted(root: Path, problems: Iterable[Problem]) -> None:
    """Write a row of the audit for each key that files would send to a host that is not trusted.

    The same row is not written twice in succession: files are validated with every save.
    """
    refused = [problem for problem in problems if problem.code == "trust"]
    if not refused:
        return
    with contextlib.suppress(EdisonError):  # the problems themselves are raised in any case
        site = open_site(root)
        if not site.results.exists():
            return
        with contextlib.closing(open_reader(site.results)) as connection:
            newest = [row.entry for row in read_audit(connection, limit=len(refused))]
        newest_rows = [(entry.actor, entry.action, entry.entity, entry.after) for entry in newest]
        for problem in refused:
            row = site.entry(
                site.actor(), "refused: send a key", problem.where.file, after=problem.message
            )
            if (row.actor, row.action, row.entity, row.after) not in newest_rows:
                site.note(row)
