"""edison roles: members, passwords and tokens of the web pages."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from edison_ci.access import accounts as site_accounts
from edison_ci.access import site as sites
from edison_ci.cli.groups import LazyGroup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.roles_members import add, invite, remove, set_, transfer_
from edison_ci.cli.terminal import SCHEMA_VERSION, Terminal
from edison_ci.config import load
from edison_ci.errors import UsageError
from edison_ci.numeric import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.access.accounts import MemberAccess
    from edison_ci.store.auth import Token

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


for each in (add, set_, remove, transfer_, invite):
    roles.add_command(each)


@roles.command("list", cls=EdisonCommand)
@click.pass_obj
def list_members(state: CliState) -> None:
    """List the members with their roles and sign-in methods.

    Examples:
      edison roles list
      edison roles list --json
    """
    terminal, accounts = Terminal(state), _accounts(state)
    found = accounts.access()
    if terminal.json:
        terminal.document({"members": [_access_json(each) for each in found]})
        return
    rows = [
        (
            _name(each),
            each.member.role,
            _sign_in_methods(each),
            str(each.sessions),
            each.last_seen or "",
        )
        for each in found
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
    known = str(member.github or member.email)
    if terminal.json:
        terminal.document({"member": known, "role": member.role, "sessions_ended": ended})
        return
    terminal.result(f"{known} ({member.role}) can sign in with the new password")
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
    said = " ".join(label.split())
    if len(said) > _LABEL:
        raise UsageError(f"a name has at most {_LABEL} characters", hint="use a shorter name")
    made, secret = accounts.new_token(name, label=said, days=expires)
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
    found = accounts.file.tokens(names, most=_PAGE, skip=(page - 1) * _PAGE)
    if terminal.json:
        listed = [_token_json(each) for each in found]
        terminal.document({"tokens": listed, "total": total, "page": page, "pages": pages})
        return
    rows = [
        (e.id, e.name, e.label, e.created_at, e.expires_at or "never", e.used_at or "never")
        for e in found
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
    one = [each.id for each in gone] == [token_or_name]
    if terminal.json:
        terminal.document({"revoked": [_token_json(each) for each in gone], "password": not one})
        return
    if one:
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
    return site_accounts.Accounts(
        sites.open_site(state.enter_project(load.find_root(state.folder)))
    )


def _new_password(name: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError("the password prompt needs a terminal", hint="pass it on stdin: --stdin")
    said = f"New password of {name}, at least {site_accounts.SHORTEST} characters"
    return str(click.prompt(said, hide_input=True, confirmation_prompt=True, err=True))


def _read() -> str:
    try:
        return sys.stdin.readline(site_accounts.LONGEST + 10).rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError("the password is not UTF-8", hint="type another one") from None


def _name(access: MemberAccess) -> str:
    return " / ".join(each for each in (access.member.github, access.member.email) if each)


def _sign_in_methods(access: MemberAccess) -> str:
    ways = ["password"] if access.password_since else []
    if access.tokens:
        ways.append(counted(len(access.tokens), "token"))
    return ", ".join(ways) or "nothing"


def _access_json(access: MemberAccess) -> dict[str, Any]:
    return {
        "github": access.member.github,
        "email": access.member.email,
        "role": access.member.role,
        "password_since": access.password_since,
        "tokens": [each.id for each in access.tokens],
        "sessions": access.sessions,
        "last_seen": access.last_seen,
    }


def _token_json(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "member": token.name,
        "name": token.label,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "last_used_at": token.used_at,
    }
