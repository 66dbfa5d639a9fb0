"""Check of the roles: members against CODEOWNERS, the history and the protection of the branch.

`members` decide what this tool allows; what reaches the default branch is decided by the host. The
check reports where the two disagree. It never changes the settings of a host.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.access.site import Identity, Role, find_member
from edison_ci.api.workflows import FURTHER, WORKFLOWS
from edison_ci.config.load import load_project
from edison_ci.documents.files import WorkingTree, read
from edison_ci.documents.marks import Fault
from edison_ci.errors import ForgeError, Location, UsageError
from edison_ci.features.github.code_owners import (
    MAX_BYTES,
    PLACES,
    owned_paths,
    owners_of,
    read_rules,
    rule_of,
    section,
    with_section,
)
from edison_ci.features.github.forge import GitHub
from edison_ci.git.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.access.site import Site
    from edison_ci.config.project import Member
    from edison_ci.features.github.code_owners import OwnedPath
    from edison_ci.features.github.protection import BranchProtection
    from edison_ci.git.host import RepositoryAddress

_CHECKS = {"edison.yml": "evaluate", FURTHER["approvals"]: "approvals"}
"""The checks of workflows, which have to be required if the workflow is there."""
_COMMITS = 2_000
"""Commits whose authors are looked at."""
_MOST_FILES = 10_000
_NAMED = 3


class RoleFinding(NamedTuple):
    """Something that does not fit the members."""

    code: str
    message: str
    hint: str
    problem: bool = True
    """Whether it makes the check fail; else it is a note."""


@dataclass(frozen=True, slots=True)
class RolesReport:
    """What a check of the roles found."""

    findings: tuple[RoleFinding, ...]
    looked_at: tuple[str, ...]
    """What was compared, as short sentences."""
    not_looked_at: tuple[str, ...]
    """What could not be compared, with the reason."""

    @property
    def ok(self) -> bool:
        """Whether there is no problem; notes do not count."""
        return not any(finding.problem for finding in self.findings)


@dataclass(frozen=True, slots=True)
class CodeOwnersFile:
    """CODEOWNERS of a repository, as it is and as the members want it."""

    top: Repository | None
    path: str
    """From the top of the repository."""
    text: str
    exists: bool
    paths: tuple[OwnedPath, ...]
    wanted: str

    @property
    def current(self) -> bool:
        """Whether nothing has to be written."""
        return self.text == self.wanted


def code_owners(site: Site) -> CodeOwnersFile:
    """Return CODEOWNERS of the repository of a project; raises UsageError if it is unfit.

    Raises ConfigError if a file of the project is invalid: it could use any file.
    """
    repository = Repository.find(site.root)
    top = repository.root if repository is not None else site.root
    folder = site.root.resolve().relative_to(top.resolve()).as_posix()
    paths = owned_paths(load_project(site.root), "" if folder == "." else f"{folder}/")
    tree = WorkingTree(top)
    existing = next((place for place in PLACES if tree.exists(place)), None)
    place, text = existing or PLACES[0], ""
    if existing is not None:
        try:
            text = read(tree, place, max_bytes=MAX_BYTES).decode("utf-8")
        except (Fault, UnicodeDecodeError) as fault:
            reason = fault.message if isinstance(fault, Fault) else "it is not UTF-8"
            raise UsageError(
                f"{place} cannot be read: {reason}",
                hint="GitHub ignores such a file; correct it first",
                where=Location(place),
            ) from None
    expected = with_section(text, section(paths, site.file.members), place)
    return CodeOwnersFile(repository, place, text, existing is not None, tuple(paths), expected)


def write_code_owners(site: Site, file: CodeOwnersFile) -> None:
    """Write the section of CODEOWNERS, with an audit entry; needs an admin."""
    actor = site.require(Role.ADMIN, "roles sync", file.path)
    top = file.top.root if file.top is not None else site.root
    entry = site.entry(actor, "roles sync", file.path, after={"members": len(site.file.members)})
    site.replace(file.path, file.wanted, entry, top=top)


def check_roles(
    site: Site, address: RepositoryAddress | None, *, why_no_forge: str = ""
) -> RolesReport:
    """Compare the members with CODEOWNERS, the history and the protection of the branch."""
    members = site.file.members
    if not members:
        sentence = "edison.yaml has no members: everyone with write access is an owner"
        finding = RoleFinding("no-members", sentence, "add members and their roles", problem=False)
        return RolesReport((finding,), (), ("CODEOWNERS and the protected branch: no members",))
    file = code_owners(site)
    findings = [*_owners(members), *_owned(file, members), *_history(file.top, members)]
    roles = ", ".join(
        f"{count} {role.word}{'' if count == 1 else 's'}"
        for role in reversed(Role)
        if (count := sum(member.role == role.word for member in members))
    )
    looked = [f"members: {roles}"]
    looked += [f"{file.path}: {len(read_rules(file.text))} lines"] if file.exists else []
    skipped = []
    if address is None:
        skipped.append(f"the protected branch: {why_no_forge}")
    else:
        try:
            branch, protection = asyncio.run(_protection(address))
        except ForgeError as error:
            skipped.append(f"the protected branch: {error.message}")
        else:
            findings += missing_protection(site, branch, protection, file.top)
            looked.append(f"rules of the branch {branch} of {address.repository}")
            if protection.classic_unknown:
                skipped.append(
                    f"classic protection of {branch}: the token lacks administration: read"
                )
    return RolesReport(tuple(findings), tuple(looked), tuple(skipped))


async def _protection(address: RepositoryAddress) -> tuple[str, BranchProtection]:
    async with GitHub(address) as github:
        branch = await github.default_branch()
        return branch, await github.protection(branch)


def _owners(members: Sequence[Member]) -> Iterator[RoleFinding]:
    if all(member.role != "owner" for member in members):
        yield RoleFinding("no-owner", "no member is an owner", "give a member role: owner")
    elif sum(member.role == "owner" for member in members) == 1:
        yield RoleFinding(
            "one-owner",
            "there is one owner only: no one else can approve their changes, or take over",
            "give a second person role: owner: edison roles set NAME owner",
            problem=False,
        )


def _owned(file: CodeOwnersFile, members: Sequence[Member]) -> Iterator[RoleFinding]:
    hint = "write it: edison roles sync"
    if file.top is None:
        return
    if not file.exists:
        yield RoleFinding("code-owners", "the repository has no CODEOWNERS", hint)
        return
    if len(file.text.encode()) > MAX_BYTES:
        yield RoleFinding("code-owners", f"{file.path} is too large for GitHub", "shorten it")
    rules = read_rules(file.text)
    head = file.top.head()
    files = file.top.list_files(head)[:_MOST_FILES] if head is not None else ()
    for owned in file.paths:
        inside = [path for path in files if owned.covers(path)]
        # A file that is not there yet has owners as well.
        samples = [*inside, f"{owned.path}new-file" if owned.path.endswith("/") else owned.path]
        seen = set()
        for path in samples:
            rule = rule_of(rules, path)
            owners = rule.owners if rule is not None else ()
            if owners not in seen:
                seen.add(owners)
                where = f"{file.path}:{rule.line}" if rule is not None else file.path
                yield from _disagreement(owned, where, owners, members, path)


def _disagreement(
    owned: OwnedPath,
    where: str,
    owners: Sequence[str],
    members: Sequence[Member],
    path: str,
) -> Iterator[RoleFinding]:
    hint, role = "write it: edison roles sync", owned.role.word
    if not owners:
        yield RoleFinding(
            "code-owners", f"{where}: {path} has no code owner, so anyone may approve it", hint
        )
        return
    expected = {name.casefold(): name for name in owners_of(members, owned.role)}
    there = {name.casefold(): name for name in owners}
    teams = [name for name in there.values() if name.startswith("@") and "/" in name]
    extra = [name for key, name in there.items() if key not in expected and name not in teams]
    if extra:
        yield RoleFinding(
            "code-owners",
            f"{where}: {_listed(extra)} may approve {path}, which needs the role {role} or above",
            hint,
        )
    missing = [name for key, name in expected.items() if key not in there]
    if missing and not teams:
        yield RoleFinding(
            "code-owners", f"{where}: {_listed(missing)} may not approve {path}, a {role} may", hint
        )
    if teams:
        yield RoleFinding(
            "team",
            f"{where}: {_listed(teams)} may approve {path}; who is in it is not known here",
            "list people in members, or keep the team in step with them",
            problem=False,
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _history(repository: Repository | None, members: Sequence[Member]) -> Iterator[RoleFinding]:
    """Find one person with two entries, and one address of two people, among the authors."""
    if repository is None or repository.head() is None:
        return
    names_of: dict[str, dict[str, str]] = {}
    members_of: dict[str, list[Member]] = {}
    for name, email in repository.authors(most=_COMMITS):
        member = find_member(Identity("git", email=email), members)
        if member is None:
            continue
        names_of.setdefault(email.casefold(), {}).setdefault(_plain(name), name)
        same_name = members_of.setdefault(_plain(name), [])
        if member not in same_name:
            same_name.append(member)
    for email, names in sorted(names_of.items()):
        if len(names) > 1:
            yield RoleFinding(
                "shared-email",
                f"commits by {_listed([*names.values()])} have the same address {email}",
                "if these are several people, each needs a separate address: they are one "
                "member now",
                problem=False,
            )
    for people in members_of.values():
        if len(people) > 1:
            yield RoleFinding(
                "two-identities",
                f"{_listed([str(m.github or m.email) for m in people])} commit under one name",
                "if this is one person, make it one entry with github and email, so that they "
                "count once",
                problem=False,
            )


def _plain(name: str) -> str:
    return " ".join(name.casefold().split())


def missing_protection(
    site: Site, branch: str, protection: BranchProtection, repository: Repository | None
) -> list[RoleFinding]:
    """Return the requirements that the roles promise and the branch does not have."""
    met = {
        "pull-request": protection.pull_request,
        "approvals": protection.approvals >= site.file.settings.approvals,
        "code-owner-review": protection.code_owners,
        "stale-approvals": protection.dismiss_stale,
        "last-push": protection.last_push,
        "checks": protection.checks >= {*_checks(repository)},
        "force-push": protection.no_force_push,
        "deletion": protection.no_deletion,
    }
    return [
        RoleFinding("protection", f"{branch}: {promise}", f"set: {setting}")
        for (code, promise, setting) in _promises(site, _checks(repository))
        if not met[code]
    ]


def _checks(repository: Repository | None) -> list[str]:
    """Return the checks of the workflows that the repository has."""
    if repository is None:
        return []
    folder = repository.root / WORKFLOWS
    return [check for file, check in _CHECKS.items() if (folder / file).is_file()]


def protection_advice(site: Site) -> list[str]:
    """Return the settings of the default branch that make the host keep the roles."""
    checks = _checks(Repository.find(site.root)) or [_CHECKS["edison.yml"]]
    return [setting for _, _, setting in _promises(site, checks)]


def _promises(site: Site, checks: Sequence[str]) -> list[tuple[str, str, str]]:
    count = site.file.settings.approvals
    few = f"a pull request is merged with fewer approvals than {count}"
    return [
        (
            "pull-request",
            "commits can be pushed without a pull request",
            "Require a pull request before merging",
        ),
        ("approvals", few, f"Required approvals: {count}"),
        (
            "code-owner-review",
            "CODEOWNERS is not enforced",
            "Require review from Code Owners",
        ),
        (
            "stale-approvals",
            "an approval counts for commits that came after it",
            "Dismiss stale pull request approvals when new commits are pushed",
        ),
        (
            "last-push",
            "an approver can push the last commit themselves",
            "Require approval of the most recent reviewable push",
        ),
        (
            "checks",
            f"not required: {', '.join(checks)}",
            f"Require status checks to pass: {', '.join(checks)}",
        ),
        ("force-push", "force pushes can rewrite it", "Block force pushes"),
        ("deletion", "it can be deleted", "Restrict deletions"),
    ]
