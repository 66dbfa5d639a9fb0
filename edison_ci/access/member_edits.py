"""Edits of the members in edison.yaml: add, change, remove and transfer, with comments kept.

Admins change everyone but owners; what concerns an owner needs an owner. There is always an owner:
the last one can be neither removed nor given a lower role.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from edison_ci.access.accounts import Accounts, sign_in_names
from edison_ci.access.site import Role, find_member
from edison_ci.config.project import Member
from edison_ci.config.project_files import PROJECT, ProjectFiles, only_errors
from edison_ci.documents.files import OverlayTree, WorkingTree, read
from edison_ci.documents.marks import Fault
from edison_ci.documents.yaml_edit import with_entry, with_values, without_entry
from edison_ci.errors import ConfigError, Location, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.access.site import Actor, Site


def new_member(name: str, role: str, email: str | None = None) -> Member:
    """Return a member by login or e-mail address; raises UsageError if a name is not valid."""
    identities: dict[str, str] = {"email": name} if "@" in name.lstrip("@") else {"github": name}
    if email is not None:
        if "email" in identities:
            raise UsageError(f"{name!r} is an e-mail address already", hint="leave out --email")
        identities["email"] = email
    try:
        return Member.model_validate({**identities, "role": role})
    except ValueError:
        named = " and ".join(map(repr, identities.values()))
        raise UsageError(
            f"{named} cannot name a member",
            hint="use a GitHub login, without @, or an e-mail address",
        ) from None


def shown_name(member: Member) -> str:
    """Return the name of a member in messages; with an @, GitHub would notify people."""
    return str(member.github or member.email)


def member_entry(member: Member) -> dict[str, Any]:
    """Return a member as it is written to the file."""
    return member.model_dump(exclude_none=True)


def same_member(site: Site, member: Member) -> Member | None:
    """Return the member of the file with one of the same names and this role; None without one."""
    names = {str(name).casefold() for name in (member.github, member.email) if name}
    return next(
        (
            one
            for one in site.file.members
            if one.role == member.role and names & {*sign_in_names(one)}
        ),
        None,
    )


def text_with_member(site: Site, member: Member) -> str:
    """Return edison.yaml with one more member; raises UsageError, ConfigError."""
    members = site.file.members
    if not members and member.role != "owner":
        raise UsageError(
            "the first member has to be an owner",
            hint="without members everyone is one; add yourself first: edison roles add NAME owner",
        )
    entry = member_entry(member)
    return _edited(site, lambda text: with_entry(text, "members", entry), [*members, member])


def locks_out(site: Site, member: Member) -> str:
    """Return what follows if a member is added to a project without any; empty if nothing.

    Until then everyone is an owner: the first member takes that from all others.
    """
    caller, name = site.actor().identity, shown_name(member)
    if site.file.members or member.role != "owner" or find_member(caller, [member]) is not None:
        return ""
    return (
        f"{name} would be the only member, and you ({caller.display_name}) would have no role; "
        f"only {name} could undo it here, or somebody who may push edison.yaml"
    )


def add_member(site: Site, member: Member) -> None:
    """Add a member to edison.yaml."""
    actor = _admit(site, "roles add", shown_name(member), member.role)
    text = text_with_member(site, member)
    after = member_entry(member)
    site.replace(PROJECT, text, site.entry(actor, "roles add", shown_name(member), after=after))


def set_role(site: Site, name: str, role: str) -> Member:
    """Give a member another role; return the member as it was."""
    member = Accounts(site).member(name)
    actor = _admit(site, "roles set", shown_name(member), member.role, role)
    if role != "owner":
        _refuse_last_owner(site, member)
    place = site.file.members.index(member)
    members = [*site.file.members]
    members[place] = member.model_copy(update={"role": role})
    if members[place] == member:
        return member
    text = _edited(site, lambda text: with_values(text, "members", place, {"role": role}), members)
    entity, before = shown_name(member), member.role
    site.replace(PROJECT, text, site.entry(actor, "roles set", entity, before=before, after=role))
    return member


def remove_member(site: Site, name: str) -> Member:
    """Remove a member from edison.yaml."""
    removed = Accounts(site).member(name)
    actor = _admit(site, "roles remove", shown_name(removed), removed.role)
    _refuse_last_owner(site, removed)
    place = site.file.members.index(removed)
    left = [member for member in site.file.members if member is not removed]
    text = _edited(site, lambda text: without_entry(text, "members", place), left)
    before = member_entry(removed)
    site.replace(
        PROJECT, text, site.entry(actor, "roles remove", shown_name(removed), before=before)
    )
    return removed


def transfer(site: Site, name: str) -> tuple[Member, Member]:
    """Make another member the owner in place of the actor, who becomes an admin; return both."""
    new = Accounts(site).member(name)
    actor = site.require(Role.OWNER, "roles transfer", shown_name(new))
    old = find_member(actor.identity, site.file.members)
    assert old is not None, "an owner is a member, where there are members"
    if old is new:
        raise UsageError(f"{shown_name(new)} is you", hint="name another member")
    members = [*site.file.members]
    places = members.index(new), members.index(old)
    members[places[0]] = new.model_copy(update={"role": "owner"})
    members[places[1]] = old.model_copy(update={"role": "admin"})

    def edit(text: str) -> str:
        text = with_values(text, "members", places[0], {"role": "owner"})
        return with_values(text, "members", places[1], {"role": "admin"})

    after = {"owner": shown_name(new), "admin": shown_name(old)}
    text = _edited(site, edit, members)
    site.replace(PROJECT, text, site.entry(actor, "roles transfer", shown_name(new), after=after))
    return new, old


def _admit(site: Site, action: str, entity: str, *roles: str) -> Actor:
    return site.require(Role.OWNER if "owner" in roles else Role.ADMIN, action, entity)


def _refuse_last_owner(site: Site, member: Member) -> None:
    owners = [owner for owner in site.file.members if owner.role == "owner"]
    if owners == [member]:
        raise UsageError(
            f"{shown_name(member)} is the last owner",
            hint="make another member an owner first: edison roles transfer NAME",
        )


def _edited(site: Site, edit: Callable[[str], str], wanted: Sequence[Member]) -> str:
    """Return the edited text if its members are exactly as wanted, and nothing else changed."""
    tree = WorkingTree(site.root)
    before = read(tree, PROJECT).decode("utf-8-sig")
    changed: str | None = None
    with contextlib.suppress(Fault, ValueError, IndexError, AssertionError):
        changed = edit(before)
    if changed is not None:
        files = ProjectFiles(OverlayTree(tree, PROJECT, changed.encode("utf-8")))
        file = files.project()
        if file is None:
            raise ConfigError(only_errors(files.problems))
        others = file.model_copy(update={"members": site.file.members})
        if list(file.members) == list(wanted) and others == site.file:
            return changed
    raise UsageError(
        "the members are written in a way that cannot be edited safely",
        hint="edit them by hand, then run edison validate",
        where=Location(PROJECT),
    )
