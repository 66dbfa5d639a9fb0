"""edison roles: members, passwords and tokens of the web pages."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlsplit

import click

from edison_ci import feature, ranges, utc
from edison_ci._dataclass import dataclass
from edison_ci.access import accounts as site_accounts
from edison_ci.access import member_edits
from edison_ci.access import site as sites
from edison_ci.cli import lookup
from edison_ci.cli.groups import LazyGroup
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import SCHEMA_VERSION, Terminal
from edison_ci.config import project_files
from edison_ci.config.project import Role as RoleName
from edison_ci.documents import files
from edison_ci.documents.record_json import fields_of
from edison_ci.errors import UsageError
from edison_ci.git.host import is_loopback
from edison_ci.numeric import counted
from edison_ci.proposals import context, file_proposal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.access.accounts import MemberAccess
    from edison_ci.config.load import Project
    from edison_ci.config.project import Member
    from edison_ci.store.auth import Invitation, Token

_ROLE = click.argument("role", type=click.Choice(get_args(RoleName)), metavar="ROLE")
_EMAIL = click.option("--email", metavar="ADDRESS", help="Also the e-mail address of Git.")
_SYNC = "commit edison.yaml, and update CODEOWNERS: edison roles sync"
_MOST_DAYS = 3_650
_LABEL = 60
_PAGE = 100
"""Tokens on a page of the list."""


@click.group(cls=LazyGroup)
def roles() -> None:
    """Manage who may sign in to the pages.

    Members and their roles are in edison.yaml, which is reviewed like other files. Passwords,
    tokens and sessions are stored as hashes in .edison/auth.db, on this machine only.

    Examples:
      edison roles list
      edison roles add bob reviewer
      edison roles invite bob reviewer
      edison roles passwd ada
      edison roles token ada --name ci --expires 90
      edison roles revoke 1f2e3d4c
      edison roles check
      edison roles sync
    """


@roles.command(cls=EdisonCommand)
@click.argument("name")
@_ROLE
@_EMAIL
@click.option("--yes", is_flag=True, help="Do not ask whether somebody else is the first member.")
@click.pass_obj
def add(state: CliState, name: str, role: str, email: str | None, yes: bool) -> None:
    """Add a member to edison.yaml.

    NAME is a GitHub login or an e-mail address, ROLE is viewer, reviewer, editor, admin or owner.
    Comments and the rest of the file stay. Needs an admin; for an owner, an owner. Before a first
    member who is not you it asks: you would have no role afterwards.

    Examples:
      edison roles add bob reviewer
      edison roles add bob reviewer --email bob@example.com
    """
    site, member = lookup.open_site(state), member_edits.new_member(name, role, email)
    if not yes and (warning := member_edits.locks_out(site, member)):
        if not sys.stdin.isatty() or state.json:
            hint = "add yourself first, or run with --yes"
            raise UsageError(f"nothing is written: {warning}", hint=hint)
        click.confirm(f"{warning}. Add {member_edits.shown_name(member)}?", abort=True, err=True)
    member_edits.add_member(site, member)
    _told(
        state,
        f"{member_edits.shown_name(member)} is a member: {role}",
        {"added": member_edits.member_entry(member)},
    )


@roles.command("set", cls=EdisonCommand)
@click.argument("name")
@_ROLE
@click.pass_obj
def set_(state: CliState, name: str, role: str) -> None:
    """Give a member another role.

    Needs an admin; for an owner, an owner. The last owner stays one.

    Examples:
      edison roles set bob editor
    """
    before = member_edits.set_role(lookup.open_site(state), name, role)
    sentence = f"{member_edits.shown_name(before)} is {role}, before: {before.role}"
    changed = {**member_edits.member_entry(before), "role": role, "before": before.role}
    _told(state, sentence, {"changed": changed})


@roles.command(cls=EdisonCommand)
@click.argument("name")
@click.pass_obj
def remove(state: CliState, name: str) -> None:
    """Remove a member from edison.yaml.

    They can no longer sign in, from the next request on. Needs an admin; for an owner, an owner.
    The last owner stays.

    Examples:
      edison roles remove bob
    """
    gone = member_edits.remove_member(lookup.open_site(state), name)
    _told(
        state,
        f"{member_edits.shown_name(gone)} is no longer a member",
        {"removed": member_edits.member_entry(gone)},
    )
    terminal = Terminal(state)
    if not terminal.json:
        terminal.note(f"delete their password and tokens as well: edison roles revoke {name}")


@roles.command("transfer", cls=EdisonCommand)
@click.argument("name")
@click.pass_obj
def transfer_(state: CliState, name: str) -> None:
    """Make a member the owner in your place.

    You become an admin. Needs an owner.

    Examples:
      edison roles transfer bob
    """
    new, old = member_edits.transfer(lookup.open_site(state), name)
    sentence = (
        f"{member_edits.shown_name(new)} is an owner, and {member_edits.shown_name(old)} an admin"
    )
    _told(
        state,
        sentence,
        {"owner": member_edits.shown_name(new), "admin": member_edits.shown_name(old)},
    )


@dataclass(frozen=True, slots=True)
class InviteRequest:
    """The person to invite, and how."""

    name: str
    role: str
    email: str | None
    note: str
    url: str | None
    """Address of the pages; None to make no link."""
    days: int


@roles.command(cls=EdisonCommand)
@click.argument("name")
@_ROLE
@_EMAIL
@click.option("--note", default="", metavar="TEXT", help="The reason, for the pull request.")
@click.option(
    "--url", metavar="ADDRESS", help="Address of the pages: also make a link to set a password."
)
@click.option(
    "--days",
    type=click.IntRange(*ranges.INVITATION_DAYS),
    default=7,
    show_default=True,
    metavar="N",
    help="Days that the link is valid.",
)
@click.pass_obj
@takes(InviteRequest)
def invite(state: CliState, request: InviteRequest) -> None:
    """Propose a member in a pull request, and invite them to the pages.

    The branch edison/invite/NAME has one commit that adds the member to edison.yaml; with a token
    in GITHUB_TOKEN the pull request is opened, and its merge makes them a member. Your branch and
    files stay as they are. Needs an editor: who may approve it is decided by CODEOWNERS.

    With --url the person gets a link by which they set their password, once and within --days. It
    works from the merge on, for this role. If they have an e-mail address and `notifications` has a
    mail server, it is sent to them; otherwise it is printed, for you to pass on. Needs an admin;
    for an owner, an owner. A member is only sent a new link.

    Examples:
      edison roles invite bob reviewer --note "reviews the support prompts"
      edison roles invite bob@example.com viewer --url https://edison.example.com
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    site = sites.open_site(project.root)
    member = member_edits.new_member(request.name, request.role, request.email)
    base = None if request.url is None else _base_of(request.url)
    present = member_edits.same_member(site, member)
    document: dict[str, Any] = {"invited": member_edits.member_entry(present or member)}
    lines: list[str] = []
    made = None if base is None else _accounts(state).invite(present or member, request.days)
    if present is None or base is None:
        done = _proposed(state, project, site, member, request.note)
        pull, lines = done.result.pull_request, [line.replace("`", "") for line in done.notes]
        document |= {
            "branch": done.result.branch,
            "pull_request": None if pull is None else pull.url,
        }
    link = None
    if made is not None:
        invitation, key = made
        link = f"{base}{site_accounts.INVITATION}?key={key}"
        document |= {"link_expires_at": invitation.expires_at}
        lines.append(_sent(state, project, present or member, invitation, link))
    if terminal.json:
        if link is not None:
            document |= {"link": link}
        whole = {"schema_version": SCHEMA_VERSION, **document}
        terminal.raw(json.dumps(whole, indent=2))  # every other output redacts keys
        return
    for text in lines:
        terminal.result(text)
    if link is not None:
        terminal.raw(link)


def _base_of(url: str) -> str:
    """Return the address of the pages; raises UsageError if a link to it would be unsafe."""
    parts = urlsplit(url)
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not safe or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise UsageError(f"{url!r} is not the address of the pages", hint="write https://HOST")
    return url.rstrip("/")


def _proposed(
    state: CliState, project: Project, site: sites.Site, member: Member, note: str
) -> file_proposal.Proposed:
    """Propose a member in a pull request."""
    shown = member_edits.shown_name(member)
    actor = site.require(sites.Role.EDITOR, "roles invite", shown)
    text = member_edits.text_with_member(site, member)
    review = context.ReviewContext.of(project, offline=state.offline, actor=actor)
    label = "".join(letter if letter.isalnum() else "-" for letter in shown.casefold()).strip("-")
    about = file_proposal.ChangeText(
        f"edison/invite/{label}",
        f"Add {shown} as {member.role}",
        " ".join(note.split()) or f"{actor.name} invites {shown}.",
        actor.name,
        ending=f"Proposed by {actor.name}. A merge makes {shown} a "
        "member with this role. Afterwards update CODEOWNERS: `edison roles sync`.",
    )
    before = files.read(files.WorkingTree(project.root), project_files.PROJECT)
    done = file_proposal.propose_file(
        review, project_files.PROJECT, before=before, after=text.encode("utf-8"), about=about
    )
    after = {**member_edits.member_entry(member), "branch": done.result.branch}
    site.note(site.entry(actor, "roles invite", shown, after=after))
    return done


def _sent(
    state: CliState, project: Project, member: Member, invitation: Invitation, link: str
) -> str:
    """Send the link to the person, if possible; return what they know, and what to do."""
    until, name = utc.to_minute(invitation.expires_at), member_edits.shown_name(member)
    failed: str | None = None
    if member.email is not None and not state.offline:
        title = f"You are invited to {project.file.project} as {member.role}"
        sentences = [
            f"{invitation.invited_by} invites you to the pages of {project.file.project}.",
            f"Set your password here, until {until}: {link}",
            "The link works once, and only after the invitation was approved.",
        ]
        failed = feature.ask("mail", project, member.email, title, sentences)
        if failed == "":
            return f"{member.email} was sent this link; it works once, until {until}:"
    why = f"not sent: {failed}; " if failed else ""
    return f"{why}pass this link on to {name}; it works once, until {until}:"


def _told(state: CliState, sentence: str, document: dict[str, Any]) -> None:
    terminal = Terminal(state)
    if terminal.json:
        terminal.document(document)
        return
    terminal.result(sentence)
    terminal.note(_SYNC)


@roles.command("list", cls=EdisonCommand)
@click.pass_obj
def list_members(state: CliState) -> None:
    """List the members with their roles and sign-in methods.

    Examples:
      edison roles list
      edison roles list --json
    """
    terminal, accounts = Terminal(state), _accounts(state)
    members = accounts.access()
    if terminal.json:
        terminal.document({"members": [_access_json(access) for access in members]})
        return
    rows = [
        (
            _name(access),
            access.member.role,
            _sign_in_methods(access),
            str(access.sessions),
            access.last_seen or "",
        )
        for access in members
    ]
    head = ("member", "role", "signs in with", "signed in", "last seen")
    nothing = "no members in edison.yaml: everyone with write access to the repository is an owner"
    if rows:
        terminal.table([head, *rows], right=(3,), totals=0)
    else:
        terminal.note(nothing)


@roles.command(cls=EdisonCommand)
@click.argument("name")
@click.option("--stdin", is_flag=True, help="Read the password from the first line of stdin.")
@click.pass_obj
def passwd(state: CliState, name: str, stdin: bool) -> None:
    """Set the password of a member.

    NAME is a login or an e-mail address of members in edison.yaml. The password is prompted for
    twice and stored as a hash. Setting it ends every session of the member. Members may set their
    own password, admins those of all but owners, owners those of all.

    Examples:
      edison roles passwd ada
      edison roles passwd ada@example.com --stdin
    """
    terminal, accounts = Terminal(state), _accounts(state)
    member = accounts.member(name)
    ended = accounts.set_password(name, _read() if stdin else _new_password(name))
    name_in_file = str(member.github or member.email)
    if terminal.json:
        terminal.document({"member": name_in_file, "role": member.role, "sessions_ended": ended})
        return
    terminal.result(f"{name_in_file} ({member.role}) can sign in with the new password")
    if ended:
        terminal.note(f"{counted(ended, 'session')} ended; tokens stay valid: edison roles tokens")


@roles.command(cls=EdisonCommand)
@click.argument("name")
@click.option("--name", "label", default="", metavar="LABEL", help="Purpose of the token.")
@click.option(
    "--expires",
    type=click.IntRange(1, _MOST_DAYS),
    metavar="DAYS",
    help="Days of validity; default: until revoked.",
)
@click.pass_obj
def token(state: CliState, name: str, label: str, expires: int | None) -> None:
    """Create a token with which a program signs in as a member.

    The token is printed once; only its hash is stored. A program sends it as `Authorization: Bearer
    TOKEN` and has the role of the member.

    Examples:
      edison roles token ada --name dashboard --expires 90
      edison roles token ada --json
    """
    terminal, accounts = Terminal(state), _accounts(state)
    purpose = " ".join(label.split())
    if len(purpose) > _LABEL:
        raise UsageError(f"a name has at most {_LABEL} characters", hint="use a shorter name")
    made, secret = accounts.new_token(name, label=purpose, days=expires)
    if terminal.json:
        document = {"schema_version": SCHEMA_VERSION, "token": secret, **_token_json(made)}
        terminal.raw(json.dumps(document, indent=2))  # every other output redacts tokens
        return
    terminal.raw(secret)
    until = f"until {made.expires_at}" if made.expires_at else "until it is revoked"
    terminal.note(f"token {made.id} of {made.name}, valid {until}; it is not shown again")


@roles.command(cls=EdisonCommand)
@click.argument("name", required=False)
@click.option(
    "--page", type=click.IntRange(1), default=1, metavar="N", help=f"Page of {_PAGE} tokens."
)
@click.pass_obj
def tokens(state: CliState, name: str | None, page: int) -> None:
    """List the tokens with their last use, oldest first.

    NAME, a login or an e-mail address, lists those of one person only.

    Examples:
      edison roles tokens
      edison roles tokens ada
      edison roles tokens --page 2 --json
    """
    terminal, accounts = Terminal(state), _accounts(state)
    names = None if name is None else accounts.names_of(name)
    total = accounts.file.count_tokens(names)
    pages = max(1, -(-total // _PAGE))
    if page > pages:
        raise UsageError(f"there is no page {page}", hint=f"the last one is --page {pages}")
    tokens_of_page = accounts.file.tokens(names, most=_PAGE, skip=(page - 1) * _PAGE)
    if terminal.json:
        listed = [_token_json(token) for token in tokens_of_page]
        terminal.document({"tokens": listed, "total": total, "page": page, "pages": pages})
        return
    rows = [
        (e.id, e.name, e.label, e.created_at, e.expires_at or "never", e.used_at or "never")
        for e in tokens_of_page
    ]
    head = ("id", "member", "name", "made", "expires", "last used")
    _show_table(terminal, head, rows, "there are no tokens; create one: edison roles token NAME")
    if pages > 1:
        terminal.note(f"page {page} of {pages}, {total:,} tokens; the others: --page N")


@roles.command(cls=EdisonCommand)
@click.argument("token_or_name", metavar="TOKEN|NAME")
@click.pass_obj
def revoke(state: CliState, token_or_name: str) -> None:
    """Revoke a token, or all access of a member.

    TOKEN is the id of a token. NAME is a login or an e-mail address: its password, tokens and
    sessions are removed, even if it is no longer a member.

    Examples:
      edison roles revoke 1f2e3d4c
      edison roles revoke ada
    """
    terminal, accounts = Terminal(state), _accounts(state)
    gone = accounts.revoke(token_or_name)
    single = [token.id for token in gone] == [token_or_name]
    if terminal.json:
        terminal.document(
            {"revoked": [_token_json(token) for token in gone], "password": not single}
        )
        return
    if single:
        terminal.result(f"token {token_or_name} of {gone[0].name} is revoked")
    else:
        terminal.result(
            f"{token_or_name} can no longer sign in: password, sessions and "
            f"{counted(len(gone), 'token')} are removed"
        )


def _show_table(
    terminal: Terminal,
    head: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    nothing: str,
) -> None:
    """Print rows with their headings, or a note if there are none."""
    if rows:
        terminal.table([head, *rows])
    else:
        terminal.note(nothing)


def _accounts(state: CliState) -> site_accounts.Accounts:
    return site_accounts.Accounts(lookup.open_site(state))


def _new_password(name: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError("the password prompt needs a terminal", hint="pass it on stdin: --stdin")
    question = f"New password of {name}, at least {site_accounts.SHORTEST} characters"
    return str(click.prompt(question, hide_input=True, confirmation_prompt=True, err=True))


def _read() -> str:
    try:
        return sys.stdin.readline(site_accounts.LONGEST + 10).rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError("the password is not UTF-8", hint="type another one") from None


def _name(access: MemberAccess) -> str:
    return " / ".join(name for name in (access.member.github, access.member.email) if name)


def _sign_in_methods(access: MemberAccess) -> str:
    ways = ["password"] if access.password_since else []
    if access.tokens:
        ways.append(counted(len(access.tokens), "token"))
    return ", ".join(ways) or "nothing"


def _access_json(access: MemberAccess) -> dict[str, Any]:
    return {
        **fields_of(access.member, "github", "email", "role"),
        **fields_of(access, "password_since", "sessions", "last_seen"),
        "tokens": [token.id for token in access.tokens],
    }


def _token_json(token: Token) -> dict[str, Any]:
    named = fields_of(token, "id", "created_at", "expires_at", last_used_at="used_at")
    return {**named, "member": token.name, "name": token.label}
