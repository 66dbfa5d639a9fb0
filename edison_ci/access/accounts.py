"""Accounts of the web pages: passwords, tokens and sessions.

Members of edison.yaml sign in with a password or a token. Their role is read from the file for each
request: a member who is removed from it loses access at once.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import ipaddress
import re
import secrets
import unicodedata
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.access.site import Actor, Identity, Role, find_member
from edison_ci.errors import UsageError
from edison_ci.spelling import did_you_mean
from edison_ci.store.audit import write_audit
from edison_ci.store.auth import AuthFile, Invitation, Password, Session, Token

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.access.site import KnownBy, Site
    from edison_ci.config.project import Member
    from edison_ci.store.audit import AuditEntry


# Hashed with scrypt (Percival, 2009) at a cost that takes about a quarter of a second and 32 MB.
# The cost is stored with each hash, so that it can be raised later.
SHORTEST = 12
LONGEST = 1_000
"""Characters; longer input would only waste processor time."""
Cost = tuple[int, int, int]
"""n, r and p of scrypt."""
COST = (2**15, 8, 3)
_FEWEST_DIFFERENT = 5
_MEMORY = 64 * 1024 * 1024


INVITATION = "/-/edison/sign-in/invitation"
"""Path of the page on which invited people set their password."""
_ASK_AGAIN = "ask an admin of the project for a new one"


def refuse_weak(password: str, names: Sequence[str]) -> None:
    """Raise UsageError for a password that is too short or easy to guess."""
    message = ""
    own_names = {part.casefold() for name in names for part in (name, name.partition("@")[0])}
    if len(password) < SHORTEST:
        message = f"a password needs at least {SHORTEST} characters"
    elif len(password) > LONGEST:
        message = f"a password may have at most {LONGEST:,} characters"
    elif password.strip().casefold() in own_names:
        message = "the password must not be the name of the account"
    elif len(set(password.casefold())) < _FEWEST_DIFFERENT:
        message = f"a password needs at least {_FEWEST_DIFFERENT} different characters"
    if message:
        raise UsageError(message, hint="use several unrelated words")


def hash_password(name: str, password: str, now: str, *, cost: Cost = COST) -> Password:
    """Return a password as it is stored."""
    salt = secrets.token_bytes(16)
    return Password(name, _hash(password, salt, cost), salt, cost, now)


def verify_password(password: str, kept: Password | None, *, cost: Cost = COST) -> bool:
    """Whether a password is the stored one; takes as long if none is stored."""
    if kept is None:
        _hash(password, b"nobody has it...", cost)
        return False
    return hmac.compare_digest(_hash(password, kept.salt, kept.cost), kept.hash)


def _hash(password: str, salt: bytes, cost: Cost) -> bytes:
    # NIST SP 800-63B requires this, as the same characters can be encoded in several ways.
    text = unicodedata.normalize("NFKC", password[:LONGEST]).encode("utf-8", "surrogatepass")
    n, r, p = cost
    return hashlib.scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=_MEMORY, dklen=32)


_Named = TypeVar("_Named", Password, Token, Session)
AUTH_FILE = ".edison/auth.db"
SESSION = dt.timedelta(days=7)
REMEMBERED = dt.timedelta(days=30)
ATTEMPTS = 5
WINDOW = dt.timedelta(minutes=15)
CLOCK_SLACK = dt.timedelta(days=1)
"""How far a clock may go back without ending the sessions that it has begun."""
_MINUTE = dt.timedelta(minutes=1)
_WITH_PORT = re.compile(r"\[([^]]*)\](?::\d+)?|([\d.]+):\d+")
TOKEN_PREFIX = "edison_token_"  # so that scanners recognise a leaked token
LISTED = 50
"""Refused sign-ins of a window that have their own row in the audit; others are counted."""
_MOST_SESSIONS = 20
_AUDITED = 20
"""Revoked tokens that an audit entry names; it counts all."""
_SEEN_EVERY = dt.timedelta(minutes=5)
"""Resolution of the time at which an account was last seen."""


class GitHubAccount(NamedTuple):
    """An account on GitHub."""

    id: int
    """It stays when the login changes."""
    login: str


@dataclass(frozen=True, slots=True)
class SignInSuccess:
    """A successful sign-in."""

    actor: Actor
    cookie: str
    """The cookie of the session."""
    lasts: dt.timedelta


@dataclass(frozen=True, slots=True)
class SignInFailure:
    """A failed sign-in, which does not reveal whether the account exists."""

    why: str = ""
    """The reason, if it may be shown: GitHub has proved the account."""
    wait_s: int = 0
    """Seconds until another attempt is accepted; 0 if it is at once."""


@dataclass(frozen=True, slots=True)
class MemberAccess:
    """The means by which a member can sign in."""

    member: Member
    password_since: str | None
    tokens: tuple[Token, ...]
    sessions: int
    last_seen: str | None


def sign_in_names(member: Member) -> list[str]:
    """Return the names by which a member signs in; the first one is stored."""
    return [name.casefold() for name in (member.github, member.email) if name]


@dataclass(frozen=True, slots=True)
class _Held:
    """What is stored for people, by name: read once, however many there are."""

    passwords: Mapping[str, list[Password]]
    tokens: Mapping[str, list[Token]]
    sessions: Mapping[str, list[Session]]
    now: str

    def of(self, member: Member) -> MemberAccess:
        """Return the access of a member."""
        names = sign_in_names(member)
        passwords = [each for name in names for each in self.passwords.get(name, ())]
        tokens = [each for name in names for each in self.tokens.get(name, ())]
        sessions = [each for name in names for each in self.sessions.get(name, ())]
        seen = [each.seen_at for each in sessions]
        seen += [each.used_at for each in tokens if each.used_at is not None]
        return MemberAccess(
            member=member,
            password_since=passwords[0].changed_at if passwords else None,
            tokens=tuple(each for each in tokens if not _over(each.expires_at, self.now)),
            sessions=sum(not _over(each.expires_at, self.now) for each in sessions),
            last_seen=max(seen, default=None),
        )


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts of a project."""

    site: Site
    cost: Cost = COST
    """Cost of new password hashes."""

    @property
    def file(self) -> AuthFile:
        """The file of the accounts."""
        return AuthFile(self.site.root / AUTH_FILE)

    def member(self, name: str) -> Member:
        """Return the member of a name; raises UsageError if there is none."""
        member = self._member(name)
        if member is not None:
            return member
        names = [each for member in self.site.file.members for each in sign_in_names(member)]
        hint = did_you_mean(name, names, label="members are") if names else ""
        raise UsageError(
            f"{name!r} is not a member",
            hint=hint or "add them to members in edison.yaml, with github or email, and a role",
        )

    def names_of(self, name: str) -> list[str]:
        """Return the stored names of a person, who need not be a member any more."""
        member = self._member(name)
        return sign_in_names(member) if member else [name.casefold()]

    def set_password(self, name: str, password: str) -> int:
        """Set the password of a member and end all their sessions; return how many ended."""
        member = self.member(name)
        actor = self._admit(member, "roles passwd")
        refuse_weak(password, sign_in_names(member))
        kept, *others = sign_in_names(member)
        new = self.file.password([kept, *others]) is None
        kept_hash = hash_password(kept, password, self.site.now(), cost=self.cost)

        def noted(ended: int) -> None:
            done = {"password": "set" if new else "changed", "sessions_ended": ended}
            self._write_down(self.site.entry(actor, "roles passwd", kept, after=done))

        return self.file.put_password(kept_hash, others, noted)

    def invite(self, member: Member, days: int) -> tuple[Invitation, str]:
        """Create a link by which a person sets their password; return it with its key.

        They need not be a member yet; the link counts once they are one, with this role.
        """
        needed = Role.OWNER if member.role == "owner" else Role.ADMIN
        name = sign_in_names(member)[0]
        actor = self.site.require(needed, "roles invite", name)
        key = secrets.token_urlsafe(32)
        until = utc.timestamp(self.site.clock() + dt.timedelta(days=days))
        invitation = Invitation(name, member.role, actor.name, until)
        made = {"role": member.role, "expires_at": until}
        entry = self.site.entry(actor, "roles link", name, after=made)
        self.file.put_invitation(invitation, _sha256(key), lambda _: self._write_down(entry))
        return invitation, key

    def invited(self, key: str) -> Member:
        """Return the member whom the key of an invitation invites; raises UsageError."""
        invitation = self.file.invitation(_sha256(key))
        if invitation is None:
            message, hint = "this invitation was used, or replaced by a newer one", _ASK_AGAIN
        elif _over(invitation.expires_at, self.site.now()):
            message = f"this invitation was valid until {utc.to_minute(invitation.expires_at)}"
            hint = f"ask {invitation.invited_by} for a new one"
        else:
            member = self._member(invitation.name)
            if member is not None and member.role == invitation.role:
                return member
            message = f"{invitation.name} is not a {invitation.role} of this project (yet)"
            hint = "open the link again once the pull request of the invitation is merged"
        raise UsageError(message, hint=hint)

    def accept(self, key: str, password: str) -> Member:
        """Set the password of an invited member; the invitation ends with it."""
        member = self.invited(key)
        refuse_weak(password, sign_in_names(member))
        kept, *others = sign_in_names(member)
        hashed = hash_password(kept, password, self.site.now(), cost=self.cost)
        entry = self.site.entry(_actor(member), "accept invitation", kept)
        self.file.put_password(hashed, others, lambda _: self._write_down(entry))
        return member

    def new_token(self, name: str, *, label: str, days: int | None) -> tuple[Token, str]:
        """Create a token for a member; return it with its secret, which is not stored."""
        member = self.member(name)
        actor = self._admit(member, "roles token")
        secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
        now, kept = self.site.clock(), sign_in_names(member)[0]
        until = None if days is None else utc.timestamp(now + dt.timedelta(days=days))
        token = Token(secrets.token_hex(4), kept, label, utc.timestamp(now), until, None)
        made = {"token": token.id, "label": label, "expires_at": until}
        entry = self.site.entry(actor, "roles token", kept, after=made)
        self.file.put_token(token, _sha256(secret), lambda _: self._write_down(entry))
        return token, secret

    def revoke(self, named: str) -> list[Token]:
        """Revoke a token, or all access of a member; return the revoked tokens."""
        token = self.file.token_by_id(named)
        if token is not None:
            self._revoke(token.name, [token])
            return [token]
        member = self._member(named)
        names = self.names_of(named)
        tokens = self.file.tokens(names)
        if not tokens and self.file.password(names) is None:
            raise UsageError(
                f"{named!r} has no token and no password", hint="list them: edison roles tokens"
            )
        if member is not None:
            self._refuse_last_owner(member)
        self._revoke(names[0], tokens, everything=names)
        return tokens

    def _refuse_last_owner(self, member: Member) -> None:
        """Raise UsageError if this would lock out the last owner."""
        owners = [owner for owner in self.site.file.members if owner.role == "owner"]
        held = [self.access_of(owner) for owner in owners]
        able = [owner.member for owner in held if owner.password_since or owner.tokens]
        if able == [member]:
            raise UsageError(
                f"{sign_in_names(member)[0]} is the last owner who can sign in",
                hint="set a new password, which ends all sessions: edison roles passwd "
                f"{sign_in_names(member)[0]}; or revoke tokens one by one",
            )

    def _revoke(self, name: str, tokens: list[Token], everything: Sequence[str] = ()) -> None:
        member = self._member(name)
        if member is None:  # no longer a member
            actor = self.site.require(Role.ADMIN, "roles revoke", name)
        else:
            actor = self._admit(member, "roles revoke")
        taken = [{"token": token.id, "label": token.label} for token in tokens[:_AUDITED]]
        revoked = {"tokens": taken, "count": len(tokens), "password": bool(everything)}
        entry = self.site.entry(actor, "roles revoke", name, before=revoked)
        if everything:
            self.file.drop(everything, lambda _: self._write_down(entry))
        else:
            self.file.drop_token(tokens[0].id, lambda _: self._write_down(entry))

    def _write_down(self, entry: AuditEntry) -> None:
        """Add a row to the audit, if there is a results file; raises StoreError."""
        if self.site.results.exists():
            write_audit(self.site.results, entry)

    def access(self) -> list[MemberAccess]:
        """Return the access of each member."""
        return [*map(self._held().of, self.site.file.members)]

    def access_of(self, member: Member) -> MemberAccess:
        """Return the access of one member."""
        return self._held(sign_in_names(member)).of(member)

    def _held(self, names: Sequence[str] | None = None) -> _Held:
        passwords, tokens = self.file.passwords(names), self.file.tokens(names)
        sessions = self.file.sessions(names)
        now = self.site.now()
        return _Held(_by_name(passwords), _by_name(tokens), _by_name(sessions), now)

    def sign_in(
        self, name: str, password: str, *, address: str, remember: bool = False
    ) -> SignInSuccess | SignInFailure:
        """Sign in with name and password; attempts are limited by account and network."""
        member, now = self._member(name.strip()), self.site.clock()
        account = _account(sign_in_names(member)[0] if member else name.strip().casefold())
        place, stamp = f"address:{network_key(address)}", utc.timestamp(now)
        blocked_since = self.file.begin_attempt(
            [account, place], now=stamp, since=utc.timestamp(now - WINDOW), most=ATTEMPTS
        )
        if blocked_since is not None:
            self._audit_block(member, address, stamp)
            return _wait(blocked_since, now)
        kept = self.file.password(sign_in_names(member)) if member else None
        if not verify_password(password, kept, cost=self.cost) or member is None or kept is None:
            self._audit_refusal(member, address, "name and password do not fit")
            return SignInFailure()
        lasts = REMEMBERED if remember else SESSION
        session = self._begin_session(member, address, "password", lasts, kept)
        if session is None:
            return SignInFailure()  # the password was changed meanwhile
        self.file.attempt_worked(account, [place])
        return session

    def _begin_session(
        self,
        member: Member,
        address: str,
        by: str,
        lasts: dt.timedelta,
        password: Password | None = None,
    ) -> SignInSuccess | None:
        now, cookie = self.site.clock(), secrets.token_urlsafe(32)
        stamp, until = utc.timestamp(now), utc.timestamp(now + lasts)
        session = Session(sign_in_names(member)[0], stamp, until, stamp, address)
        if not self.file.put_session(session, _sha256(cookie), password, most=_MOST_SESSIONS):
            return None
        actor, after = _actor(member), {"from": address, "until": until, "by": by}
        self._note_counted()
        self.site.note(self.site.entry(actor, "sign in", after=after))
        return SignInSuccess(actor, cookie, lasts)

    def begin_github(self, address: str) -> SignInFailure | None:
        """Count an attempt to sign in with GitHub; a failure if there were too many."""
        now = self.site.clock()
        blocked_since = self.file.begin_attempt(
            [f"address:{network_key(address)}"],
            now=utc.timestamp(now),
            since=utc.timestamp(now - WINDOW),
            most=ATTEMPTS,
        )
        if blocked_since is None:
            return None
        self._audit_block(None, address, utc.timestamp(now))
        return _wait(blocked_since, now)

    def sign_in_github(self, account: GitHubAccount, address: str) -> SignInSuccess | SignInFailure:
        """Sign in the member with the login of a GitHub account."""
        login = account.login.casefold()
        members = self.site.file.members
        member = next((m for m in members if (m.github or "").casefold() == login), None)
        if member is None:
            self._audit_refusal(None, address, f"the GitHub account {account.login} is no member")
            return SignInFailure(f"The GitHub account {account.login} is not a member.")
        now = self.site.now()
        if not self.file.is_same_account(login, account.id, now):
            self._audit_refusal(member, address, "the login belongs to another account by now")
            return SignInFailure(
                f"{account.login} is another account than before. An admin can allow it: "
                f"edison roles revoke {account.login}"
            )
        session = self._begin_session(member, address, "github", SESSION)
        assert session is not None, "there is no password to change"
        self.file.attempt_worked("", [f"address:{network_key(address)}"])
        return session

    def by_header(self, name: str, *, audited: bool = True) -> Actor | None:
        """Return the actor that a trusted proxy names; None if they are no member."""
        member = self._member(name)
        if member is None:
            if audited:
                self._audit_refusal(None, "", "the proxy names nobody who is a member")
            return None
        return _actor(member, "proxy")

    def by_session(self, cookie: str) -> Actor | None:
        """Return the actor of a session; None if it has expired or they are no longer a member."""
        now = self.site.now()
        session = self.file.session(_sha256(cookie))
        member = self._member(session.name) if session else None
        if session is None or member is None or _over(session.expires_at, now):
            return None
        if session.created_at > utc.timestamp(self.site.clock() + CLOCK_SLACK):
            return None  # made by a clock that was ahead, it would last too long
        if self._long_ago(session.seen_at):
            self.file.touch_session(_sha256(cookie), now)
        return _actor(member)

    def by_token(self, secret: str, *, audited: bool = True) -> Actor | None:
        """Return the actor of a token; None if it is not valid or they are no longer a member."""
        now = self.site.now()
        token = self.file.token(_sha256(secret))
        member = self._member(token.name) if token else None
        if token is None or member is None or _over(token.expires_at, now):
            if audited:
                self._audit_refusal(member, "", "the token is not valid")
            return None
        if token.used_at is None or self._long_ago(token.used_at):
            self.file.token_used(token.id, now)
        return _actor(member, "token")

    def sign_out(self, actor: Actor, cookie: str, *, everywhere: bool = False) -> int:
        """End a session, or all sessions of the actor; return how many ended."""
        member = find_member(actor.identity, self.site.file.members)
        if everywhere and member is not None:
            ended = self.file.end_sessions(sign_in_names(member))
        else:
            ended = int(self.file.end_session(_sha256(cookie)))
        if ended:
            self.site.note(self.site.entry(actor, "sign out", after={"sessions_ended": ended}))
        return ended

    def end(self, cookie: str) -> None:
        """End a session that is replaced by another one."""
        self.file.end_session(_sha256(cookie))

    def _member(self, name: str) -> Member | None:
        sign_in_name = name.casefold()
        members = self.site.file.members
        return next((member for member in members if sign_in_name in sign_in_names(member)), None)

    def _admit(self, member: Member, action: str) -> Actor:
        """Return the actor if they are the member, or an admin; owners need an owner."""
        actor = self.site.actor()
        needed = Role.OWNER if member.role == "owner" else Role.ADMIN
        if find_member(actor.identity, self.site.file.members) is member:
            needed = Role.VIEWER
        return self.site.admit(actor, needed, action, sign_in_names(member)[0])

    def _long_ago(self, seen_at: str) -> bool:
        return seen_at < utc.timestamp(self.site.clock() - _SEEN_EVERY)

    def _audit_block(self, member: Member | None, address: str, now: str) -> None:
        # Only once for each network and time window, so that attempts do not fill the audit.
        if self.file.report_once(network_key(address), now):
            self._audit_refusal(member, address, "too many attempts")

    def _audit_refusal(self, member: Member | None, address: str, why: str) -> None:
        # The name is not stored unless it is a member: it may be a password typed in the wrong
        # field.
        actor = _actor(member) if member else Actor(Identity("nobody"), None)
        began = self._note_counted()
        if self.file.list_refusal(began, most=LISTED):
            entry = self.site.entry(actor, "refused: sign in", after={"from": address, "why": why})
            self.site.note(entry)

    def _note_counted(self) -> str:
        """Audit how many refusals of earlier windows were not listed; return this window."""
        now = self.site.clock()
        began = utc.timestamp(now - (now - dt.datetime.min.replace(tzinfo=dt.UTC)) % WINDOW)
        for window, number in self.file.counted_refusals(began):
            why = f"{number:,} more times in the {WINDOW // _MINUTE} minutes from {window}"
            nobody = Actor(Identity("nobody"), None)
            after = {"why": why, "count": number, "since": window}
            self.site.note(self.site.entry(nobody, "refused: sign in", after=after))
        return began


def _wait(blocked_since: str, now: dt.datetime) -> SignInFailure:
    over = dt.datetime.fromisoformat(blocked_since) + WINDOW
    return SignInFailure(wait_s=max(1, -(-(over - now) // dt.timedelta(seconds=1))))


def network_key(address: str) -> str:
    """Return the network that attempts are counted for: an IPv4 address, or a /64 of IPv6.

    Some proxies add a port.
    """
    if host := _WITH_PORT.fullmatch(address):
        address = host[1] or host[2]
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def _actor(member: Member, known_by: KnownBy = "web") -> Actor:
    identity = Identity(known_by, login=member.github or "", email=member.email or "")
    return Actor(identity, Role[member.role.upper()])


def _account(name: str) -> str:
    # Hashed, as it may be a password typed in the wrong field.
    return f"account:{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _by_name(entries: Sequence[_Named]) -> dict[str, list[_Named]]:
    groups: dict[str, list[_Named]] = {}
    for entry in entries:
        groups.setdefault(entry.name, []).append(entry)
    return groups


def _over(until: str | None, now: str) -> bool:
    return until is not None and until <= now


def _sha256(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
