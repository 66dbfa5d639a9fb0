"""Passwords, tokens, sessions and failed attempts, in a separate file.

In `.edison/auth.db`, apart from the results, which are shared: readable by its owner only, ignored
by Git, in no backup, bundle or export. Its content is no use for a sign-in: passwords are hashed
with salt, of tokens and sessions only the SHA-256 of 256 random bits is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.store.database import marks
from edison_ci.store.private_file import FileLayout, PrivateFile

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    _Noted = Callable[[int], object]

AUTH_ID = 0x45444155  # "EDAU"
_VERSION = 2
_INVITATION = """
create table invitation (                   -- links by which people set their first password
  sha256     blob primary key,              -- of the key in the link
  name       text not null unique,
  role       text not null,                 -- for which it was made; it is void for another one
  invited_by text not null,
  expires_at text not null
) strict, without rowid"""
_SCHEMA = """
create table password (                     -- one for each person
  name       text primary key,              -- login or e-mail address of a member, in lower case
  hash       blob not null,
  salt       blob not null,
  cost       text not null,                 -- n,r,p of scrypt when it was hashed
  changed_at text not null
) strict, without rowid;
create table token (
  sha256     blob primary key,              -- of the token
  id         text not null unique,          -- by which people name it
  name       text not null,
  label      text not null,
  created_at text not null,
  expires_at text,
  used_at    text
) strict, without rowid;
create index token_by_name on token (name, created_at);
create table account (                      -- accounts on GitHub that have signed in
  name       text primary key,              -- login, in lower case
  github_id  integer not null,              -- of the account; a login can change hands
  since      text not null
) strict, without rowid;
create table session (
  sha256     blob primary key,              -- of the cookie's value
  name       text not null,
  created_at text not null,
  expires_at text not null,
  seen_at    text not null,
  address    text not null
) strict, without rowid;
create index session_by_name on session (name);
create table attempt (                      -- sign-ins that failed, or are being checked
  id   integer primary key,
  who  text not null,                       -- account:HASH or address:IP; told:... once audited
  time text not null
) strict;
create index attempt_by_who on attempt (who, time);
create table refusal (                      -- refused sign-ins of a quarter of an hour
  began   text primary key,
  listed  integer not null,                 -- with a row of their own in the audit
  counted integer not null                  -- the others, which the audit counts
) strict, without rowid;
"""


@dataclass(frozen=True, slots=True)
class Password:
    """A password as it is stored."""

    name: str
    hash: bytes
    salt: bytes
    cost: tuple[int, int, int]
    """n, r and p of scrypt."""
    changed_at: str


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is stored."""

    id: str
    name: str
    label: str
    created_at: str
    expires_at: str | None
    used_at: str | None


@dataclass(frozen=True, slots=True)
class Session:
    """A sign-in that has not ended."""

    name: str
    created_at: str
    expires_at: str
    seen_at: str
    address: str


class Invitation(NamedTuple):
    """A link by which a person sets their first password, once."""

    name: str
    role: str
    invited_by: str
    expires_at: str


class AuthFile(PrivateFile):
    """The file of one project."""

    layout = FileLayout(
        AUTH_ID,
        _VERSION,
        f"{_SCHEMA.rstrip().rstrip(';')};{_INVITATION};\n",
        "an account file",
        "then set passwords and tokens again",
        {1: _INVITATION},
    )

    # What gives or takes access calls `noted` before it takes effect, for a row of the audit: a
    # process that is killed leaves a row without a change, and never a change without a row.

    def put_password(self, password: Password, also: Sequence[str], noted: _Noted) -> int:
        """Keep a password in place of those under the same names; end all their sessions.

        Returns how many ended, which `noted` gets too.
        """
        with self.writing() as connection:
            for name in {password.name, *also}:
                connection.execute("delete from password where name = ?", (name,))
                connection.execute("delete from invitation where name = ?", (name,))
            ended = _end_sessions(connection, [password.name, *also])
            cost = ",".join(map(str, password.cost))
            row = (password.name, password.hash, password.salt, cost, password.changed_at)
            connection.execute("insert into password values (?, ?, ?, ?, ?)", row)
            noted(ended)
        return ended

    def password(self, names: Sequence[str]) -> Password | None:
        """Return the password kept under one of these names."""
        passwords = self.passwords(names)
        return passwords[0] if passwords else None

    def passwords(self, names: Sequence[str] | None = None) -> list[Password]:
        """Return the passwords kept under these names, or all."""
        where, values = _where(names)
        passwords = []
        for name, hashed, salt, cost, changed_at in self.rows(
            f"select * from password {where}", values
        ):
            n, r, p = map(int, cost.split(","))
            passwords.append(Password(name, hashed, salt, (n, r, p), changed_at))
        return passwords

    def put_token(self, token: Token, sha256: bytes, noted: _Noted) -> None:
        """Keep a token."""
        row = (sha256, token.id, token.name, token.label, token.created_at, token.expires_at)
        with self.writing() as connection:
            connection.execute("insert into token values (?, ?, ?, ?, ?, ?, null)", row)
            noted(0)

    def put_invitation(self, invitation: Invitation, sha256: bytes, noted: _Noted) -> None:
        """Keep an invitation in place of an earlier one of the same person."""
        with self.writing() as connection:
            connection.execute("delete from invitation where name = ?", (invitation.name,))
            connection.execute("insert into invitation values (?, ?, ?, ?, ?)",
                               (sha256, *invitation))  # fmt: skip
            noted(0)

    def invitation(self, sha256: bytes) -> Invitation | None:
        """Return an invitation by the hash of its key."""
        columns = "name, role, invited_by, expires_at"
        rows = self.rows(f"select {columns} from invitation where sha256 = ?", [sha256])
        return Invitation(*rows[0]) if rows else None

    def token(self, sha256: bytes) -> Token | None:
        """Return a token by its hash."""
        tokens = self._tokens("where sha256 = ?", [sha256])
        return tokens[0] if tokens else None

    def tokens(
        self, names: Sequence[str] | None = None, *, most: int = -1, skip: int = 0
    ) -> list[Token]:
        """Return tokens, oldest first: all, those of a person, or a page of them."""
        where, values = _where(names)
        return self._tokens(f"{where} order by created_at, id limit ? offset ?",
                            [*values, most, skip])  # fmt: skip

    def count_tokens(self, names: Sequence[str] | None = None) -> int:
        """Return how many tokens there are."""
        where, values = _where(names)
        rows = self.rows(f"select count(*) from token {where}", values)
        return int(rows[0][0]) if rows else 0

    def token_by_id(self, token_id: str) -> Token | None:
        """Return a token by the id that people name it by."""
        tokens = self._tokens("where id = ?", [token_id])
        return tokens[0] if tokens else None

    def drop_token(self, token_id: str, noted: _Noted) -> None:
        """Forget a token."""
        with self.writing() as connection:
            connection.execute("delete from token where id = ?", (token_id,))
            noted(0)

    def token_used(self, token_id: str, now: str) -> None:
        """Remember when a token was used last."""
        with self.writing() as connection:
            connection.execute("update token set used_at = ? where id = ?", (now, token_id))

    def is_same_account(self, name: str, github_id: int, now: str) -> bool:
        """Whether a login still belongs to the account that first signed in with it."""
        with self.writing() as connection:
            row = (name, github_id, now)
            connection.execute("insert or ignore into account values (?, ?, ?)", row)
            sql = "select github_id from account where name = ?"
            return bool(connection.execute(sql, (name,)).fetchone()[0] == github_id)

    def drop(self, names: Sequence[str], noted: _Noted) -> None:
        """Forget the tokens, password, account and sessions of a person."""
        with self.writing() as connection:
            for table in ("token", "password", "account", "session", "invitation"):
                sql = f"delete from {table} where name in ({marks(names)})"
                connection.execute(sql, [*names])
            noted(0)

    def _tokens(self, where: str, values: Sequence[object]) -> list[Token]:
        columns = "id, name, label, created_at, expires_at, used_at"
        return [Token(*row) for row in self.rows(f"select {columns} from token {where}", values)]

    def put_session(
        self, session: Session, sha256: bytes, password: Password | None, *, most: int
    ) -> bool:
        """Keep a session, if the password is still the one that was given.

        None for a sign-in without a password. The oldest sessions beyond `most` of the same person
        end, and all that ran out.
        """
        row = (sha256, session.name, session.created_at, session.expires_at, session.seen_at,
               session.address)  # fmt: skip
        with self.writing() as connection:
            connection.execute("delete from session where expires_at <= ?", (session.created_at,))
            bound_to = (None, None) if password is None else (password.name, password.hash)
            kept = connection.execute(
                "insert into session select ?, ?, ?, ?, ?, ? where ?7 is null or exists "
                "(select 1 from password where name = ?7 and hash = ?8)",
                (*row, *bound_to),
            ).rowcount
            connection.execute(
                "delete from session where name = ? and sha256 not in (select sha256 from session "
                "where name = ? order by created_at desc limit ?)",
                (session.name, session.name, most),
            )
        return kept == 1

    def session(self, sha256: bytes) -> Session | None:
        """Return a session by its hash."""
        columns = "name, created_at, expires_at, seen_at, address"
        rows = self.rows(f"select {columns} from session where sha256 = ?", [sha256])
        return Session(*rows[0]) if rows else None

    def sessions(self, names: Sequence[str] | None = None) -> list[Session]:
        """Return the sessions of a person, or all, newest first."""
        columns = "name, created_at, expires_at, seen_at, address"
        where, values = _where(names)
        sql = f"select {columns} from session {where} order by created_at desc"
        return [Session(*row) for row in self.rows(sql, values)]

    def touch_session(self, sha256: bytes, now: str) -> None:
        """Store when a session was last used."""
        with self.writing() as connection:
            connection.execute("update session set seen_at = ? where sha256 = ?", (now, sha256))

    def end_session(self, sha256: bytes) -> bool:
        """End a session; return whether there was one."""
        with self.writing() as connection:
            sql = "delete from session where sha256 = ?"
            return connection.execute(sql, (sha256,)).rowcount > 0

    def end_sessions(self, names: Sequence[str]) -> int:
        """End every session of a person; return how many there were."""
        with self.writing() as connection:
            return _end_sessions(connection, names)

    def begin_attempt(self, keys: Sequence[str], *, now: str, since: str, most: int) -> str | None:
        """Count an attempt before it is checked, so that many at once cannot pass.

        Returns the time of the attempt whose end has to be waited for, if there were `most` for
        one of the keys already; that one is then not counted.
        """
        with self.writing() as connection:
            connection.execute("delete from attempt where time <= ?", (since,))
            # A clock that was ahead for a while must not close an account for as long.
            connection.execute("update attempt set time = ?1 where time > ?1", (now,))
            waiting = []
            for key in keys:
                times = connection.execute(
                    "select time from attempt where who = ? order by time desc limit ?", (key, most)
                ).fetchall()
                waiting += [times[-1][0]] if len(times) == most else []
            if waiting:
                return str(max(waiting))
            rows = [(key, now) for key in keys]
            connection.executemany("insert into attempt (who, time) values (?, ?)", rows)
        return None

    def attempt_worked(self, account: str, others: Sequence[str]) -> None:
        """Forget the failures of an account, and one attempt of each other key."""
        with self.writing() as connection:
            connection.execute("delete from attempt where who = ?", (account,))
            for key in others:
                connection.execute(
                    "delete from attempt where id = (select id from attempt where who = ? "
                    "order by time desc limit 1)",
                    (key,),
                )

    def report_once(self, key: str, now: str) -> bool:
        """Whether to audit a refusal: only the first, while its attempts count."""
        with self.writing() as connection:
            sql = "select 1 from attempt where who = ?"
            if connection.execute(sql, (f"told:{key}",)).fetchone():
                return False
            row = (f"told:{key}", now)
            connection.execute("insert into attempt (who, time) values (?, ?)", row)
        return True

    def list_refusal(self, began: str, *, most: int) -> bool:
        """Count a refusal of the window that began then; return whether the audit lists it."""
        with self.writing() as connection:
            connection.execute("insert or ignore into refusal values (?, 0, 0)", (began,))
            listed = connection.execute(
                "update refusal set listed = listed + 1 where began = ? and listed < ?",
                (began, most),
            ).rowcount
            if not listed:
                connection.execute(
                    "update refusal set counted = counted + 1 where began = ?", (began,)
                )
        return bool(listed)

    def counted_refusals(self, before: str) -> list[tuple[str, int]]:
        """Take the windows that are over: when each began, and how many were not listed."""
        if not self.rows("select 1 from refusal where began < ? limit 1", [before]):
            return []
        with self.writing() as connection:
            rows = connection.execute(
                "delete from refusal where began < ? returning began, counted", (before,)
            ).fetchall()
        return sorted((began, counted) for began, counted in rows if counted)


def _end_sessions(connection: sqlite3.Connection, names: Sequence[str]) -> int:
    sql = f"delete from session where name in ({marks(names)})"
    return connection.execute(sql, [*names]).rowcount


def _where(names: Sequence[str] | None) -> tuple[str, Sequence[str]]:
    return ("", ()) if names is None else (f"where name in ({marks(names)})", names)
