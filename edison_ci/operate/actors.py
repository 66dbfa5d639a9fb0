"""Who is acting, and what they may do.

In GitHub Actions the actor is whom GitHub says; elsewhere it is the identity Git would commit with.
That identity is a claim, not a proof: on a machine of their own, people can change files without
us. Roles prevent mistakes and say who did what; what protects a repository is its host.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.errors import RoleError, UsageError
from edison_ci.git.command import run_git

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from edison_ci.config.project import Member

KnownBy = Literal["web", "github", "git", "nobody"]

_NO_REPLY = re.compile(r"(?:\d+\+)?([^@]+)@users\.noreply\.github\.com\Z", re.IGNORECASE)


class Role(IntEnum):
    """What a person may do; each role includes the ones before it."""

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
    """Who somebody is, and how we know."""

    known_by: KnownBy
    login: str = ""
    email: str = ""
    name: str = ""

    @property
    def shown(self) -> str:
        """The best name we have."""
        return self.login or self.email or self.name or "somebody"


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody with a role; None is the role of a stranger."""

    identity: Identity
    role: Role | None

    @property
    def name(self) -> str:
        """The name that the audit keeps."""
        return self.identity.shown

    def may(self, needed: Role) -> bool:
        """Whether the role is enough."""
        return self.role is not None and self.role >= needed


def identify(environment: Mapping[str, str], git: Identity | None = None) -> Identity:
    """Return who acts: whom GitHub says, else whom Git says, else nobody."""
    actor = environment.get("GITHUB_ACTOR", "")
    if environment.get("GITHUB_ACTIONS") == "true" and actor:
        return Identity("github", login=actor)
    return git or Identity("nobody")


def git_identity(root: Path) -> Identity | None:
    """Return the identity that Git would commit with; None without Git or a name."""
    try:
        said = {
            key: run_git("config", "--get", f"user.{key}", cwd=root) for key in ("email", "name")
        }
    except (UsageError, OSError):
        return None
    email, name = (said[key].line if said[key].code == 0 else "" for key in ("email", "name"))
    return Identity("git", email=email, name=name) if email or name else None


def role_of(identity: Identity, members: Sequence[Member]) -> Role | None:
    """Return somebody's role; without members whoever can write the repository owns it."""
    if not members:
        return Role.OWNER
    member = member_of(identity, members)
    return None if member is None else Role[member.role.upper()]


def member_of(identity: Identity, members: Sequence[Member]) -> Member | None:
    """Return the member that somebody is."""
    emails, logins = {identity.email.casefold()}, {identity.login.casefold()}
    if found := _NO_REPLY.match(identity.email):
        logins.add(found[1].casefold())
    for member in members:
        by_login = member.github is not None and member.github.casefold() in logins
        by_email = member.email is not None and member.email.casefold() in emails
        if by_login or by_email:
            return member
    return None


def refuse_below(actor: Actor, needed: Role, action: str, members: Sequence[Member] = ()) -> None:
    """Raise unless the actor may do this."""
    if actor.may(needed):
        return
    have = f"is {_a(actor.role)}" if actor.role is not None else "is not a member"
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
        "nobody": "nothing: set git config user.email",
    }[actor.identity.known_by]
    raise RoleError(
        f"{action} needs {_a(needed)}; {actor.name} {have}",
        hint=f"{ask}change members in edison.yaml (who you are was told by {how})",
    )


def _a(role: Role) -> str:
    return f"{'an' if role.word[0] in 'aeo' else 'a'} {role.word}"
