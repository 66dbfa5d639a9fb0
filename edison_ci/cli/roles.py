"""edison roles: who may sign in to the pages, and how."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import EdisonCommand, EdisonGroup, State
from edison_ci.cli.terminal import SCHEMA_VERSION, Terminal, counted
from edison_ci.config.load import find_root
from edison_ci.errors import UsageError
from edison_ci.operate.accounts import LONGEST, SHORTEST, Accounts
from edison_ci.operate.site import site_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.operate.accounts import Access
    from edison_ci.store.auth import Token

_MOST_DAYS = 3_650
_LABEL = 60


@click.group(cls=EdisonGroup)
def roles() -> None:
    """Say who may sign in to the pages, and how.

    Members and their roles are in edison.yaml, under review like everything else. Passwords, tokens
    and sessions are in .edison/auth.db, hashed, on this machine only.

    Examples:
      edison roles list
      edison roles passwd ada
      edison roles token ada --name ci --expires 90
      edison roles revoke 1f2e3d4c
    """


@roles.command("list", cls=EdisonCommand)
@click.pass_obj
def list_members(state: State) -> None:
    """List the members, their roles and how each can sign in.

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
        (_name(each), each.member.role, _ways(each), str(each.sessions), each.last_seen or "")
        for each in found
    ]
    head = ("member", "role", "signs in with", "signed in", "last seen")
    nothing = "no members in edison.yaml: whoever can write the repository owns it"
    _listed(terminal, head, rows, nothing, right=(3,))


@roles.command(cls=EdisonCommand)
@click.argument("name")
@click.option("--stdin", is_flag=True, help="Read it from the first line of standard input.")
@click.pass_obj
def passwd(state: State, name: str, stdin: bool) -> None:
    """Set the password with which a member signs in.

    NAME is a login or an e-mail address of members in edison.yaml. The password is asked for twice,
    without showing it, and kept as a hash. Setting it ends every session of that member. Everybody
    may set their own; admins that of everybody but owners; owners everybody's.

    Examples:
      edison roles passwd ada
      edison roles passwd ada@example.com --stdin
    """
    terminal, accounts = Terminal(state), _accounts(state)
    member = accounts.member(name)
    ended = accounts.set_password(name, _read() if stdin else _asked(name))
    known = str(member.github or member.email)
    if terminal.json:
        terminal.document({"member": known, "role": member.role, "sessions_ended": ended})
        return
    terminal.result(f"{known} ({member.role}) can sign in with the new password")
    if ended:
        terminal.note(f"{counted(ended, 'session')} ended; tokens stay: edison roles tokens")


@roles.command(cls=EdisonCommand)
@click.argument("name")
@click.option("--name", "label", default="", metavar="LABEL", help="What it is for.")
@click.option(
    "--expires",
    type=click.IntRange(1, _MOST_DAYS),
    metavar="DAYS",
    help="Days that it is valid; until it is revoked by default.",
)
@click.pass_obj
def token(state: State, name: str, label: str, expires: int | None) -> None:
    """Make a token with which a program signs in as a member.

    It is printed once and never again; only its hash is kept. A program sends it as `Authorization:
    Bearer TOKEN` and may do what the member may.

    Examples:
      edison roles token ada --name dashboard --expires 90
      edison roles token ada --json
    """
    terminal, accounts = Terminal(state), _accounts(state)
    said = " ".join(label.split())
    if len(said) > _LABEL:
        raise UsageError(f"a name has at most {_LABEL} characters", hint="say it shorter")
    made, secret = accounts.new_token(name, label=said, days=expires)
    if terminal.json:
        document = {"schema_version": SCHEMA_VERSION, "token": secret, **_token_json(made)}
        terminal.raw(json.dumps(document, indent=2))  # everywhere else a token is cut short
        return
    terminal.raw(secret)
    until = f"until {made.expires_at}" if made.expires_at else "until it is revoked"
    terminal.note(f"token {made.id} of {made.name}, valid {until}; it is not shown again")


@roles.command(cls=EdisonCommand)
@click.pass_obj
def tokens(state: State) -> None:
    """List the tokens, and when each was used last.

    Examples:
      edison roles tokens
      edison roles tokens --json
    """
    terminal, accounts = Terminal(state), _accounts(state)
    found = accounts.file.tokens()
    if terminal.json:
        terminal.document({"tokens": [_token_json(each) for each in found]})
        return
    rows = [
        (e.id, e.name, e.label, e.created_at, e.expires_at or "never", e.used_at or "never")
        for e in found
    ]
    head = ("id", "member", "name", "made", "expires", "last used")
    _listed(terminal, head, rows, "there are no tokens: edison roles token NAME makes one")


@roles.command(cls=EdisonCommand)
@click.argument("token_or_name", metavar="TOKEN|NAME")
@click.pass_obj
def revoke(state: State, token_or_name: str) -> None:
    """Take a token away, or everything that lets a member in.

    TOKEN is the id of a token. NAME is a login or an e-mail address: password, tokens and sessions
    of that account are removed, also when they are no longer a member.

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
        terminal.result(f"token {token_or_name} of {gone[0].name} is gone")
    else:
        terminal.result(
            f"{token_or_name} can no longer sign in: password, sessions and "
            f"{counted(len(gone), 'token')} are gone"
        )


def _listed(
    terminal: Terminal,
    head: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    nothing: str,
    right: tuple[int, ...] = (),
) -> None:
    """Print rows below their heads, or that there are none."""
    if rows:
        terminal.table([head, *rows], right=right)
    else:
        terminal.note(nothing)


def _accounts(state: State) -> Accounts:
    return Accounts(site_at(state.entered(find_root(state.folder))))


def _asked(name: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError(
            "a password is asked for on a terminal", hint="or give it on standard input: --stdin"
        )
    said = f"New password of {name}, at least {SHORTEST} characters"
    return str(click.prompt(said, hide_input=True, confirmation_prompt=True, err=True))


def _read() -> str:
    try:
        return sys.stdin.readline(LONGEST + 10).rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError("the password is no text in UTF-8", hint="type another one") from None


def _name(access: Access) -> str:
    return " / ".join(each for each in (access.member.github, access.member.email) if each)


def _ways(access: Access) -> str:
    ways = ["password"] if access.password_since else []
    if access.tokens:
        ways.append(counted(len(access.tokens), "token"))
    return ", ".join(ways) or "nothing"


def _access_json(access: Access) -> dict[str, Any]:
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
