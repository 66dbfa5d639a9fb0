"""Accounts of the pages: passwords, tokens and sessions.

Members of edison.yaml sign in with a password or a token. What they may do is their role there, at
the time they ask: whoever is taken out of the file is out at once.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import ipaddress
import secrets
import unicodedata
from typing import TYPE_CHECKING

from edison_ci import formatting
from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.names import did_you_mean
from edison_ci.operate.actors import Actor, Identity, Role, member_of
from edison_ci.store.auth import AuthFile, Password, Session, Token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.project import Member
    from edison_ci.operate.site import Site


# Hashed with scrypt (Percival, 2009) at a cost that takes about a quarter of a second and 32 MB.
# The cost is kept with each hash, so that it can be raised.
SHORTEST = 12
LONGEST = 1_000
"""Characters; whoever sends more wants to keep us busy."""
Cost = tuple[int, int, int]
"""n, r and p of scrypt."""
COST = (2**15, 8, 3)
_FEWEST_DIFFERENT = 5
_MEMORY = 64 * 1024 * 1024


def refuse_weak(password: str, names: Sequence[str]) -> None:
    """Refuse a password that is too short, or that everybody would try first."""
    said = ""
    known = {part.casefold() for name in names for part in (name, name.partition("@")[0])}
    if len(password) < SHORTEST:
        said = f"a password has at least {SHORTEST} characters"
    elif len(password) > LONGEST:
        said = f"a password has at most {LONGEST:,} characters"
    elif password.strip().casefold() in known:
        said = "a password is not the name of its account"
    elif len(set(password.casefold())) < _FEWEST_DIFFERENT:
        said = f"a password has at least {_FEWEST_DIFFERENT} different characters"
    if said:
        raise UsageError(said, hint="several words that do not belong together are good")


def hashed(name: str, password: str, now: str, *, cost: Cost = COST) -> Password:
    """Return a password as it is kept."""
    salt = secrets.token_bytes(16)
    return Password(name, _hash(password, salt, cost), salt, cost, now)


def fits(password: str, kept: Password | None, *, cost: Cost = COST) -> bool:
    """Whether a password is the one that is kept; takes as long if none is."""
    if kept is None:
        _hash(password, b"nobody has it...", cost)
        return False
    return hmac.compare_digest(_hash(password, kept.salt, kept.cost), kept.hash)


def _hash(password: str, salt: bytes, cost: Cost) -> bytes:
    # The same letters can be typed in several ways (NIST SP 800-63B asks for this).
    text = unicodedata.normalize("NFKC", password[:LONGEST]).encode("utf-8", "surrogatepass")
    n, r, p = cost
    return hashlib.scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=_MEMORY, dklen=32)


AUTH_FILE = ".edison/auth.db"
SESSION = dt.timedelta(days=7)
REMEMBERED = dt.timedelta(days=30)
ATTEMPTS = 5
WINDOW = dt.timedelta(minutes=15)
TOKEN_PREFIX = "edison_token_"  # by which a leaked one is recognised
_MOST_SESSIONS = 20
_SEEN_EVERY = dt.timedelta(minutes=5)
"""How exactly it is kept when somebody was seen last."""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Somebody who is in."""

    actor: Actor
    cookie: str
    """What the browser is to send from now on."""
    lasts: dt.timedelta


@dataclass(frozen=True, slots=True)
class NotSignedIn:
    """Somebody who is not in; nothing says whether the account exists."""

    wait_s: int = 0
    """Seconds until another attempt is looked at; 0 if it may be made at once."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a member can sign in."""

    member: Member
    password_since: str | None
    tokens: tuple[Token, ...]
    sessions: int
    last_seen: str | None


def names_of(member: Member) -> list[str]:
    """Return the names under which a member signs in, the first of which is kept."""
    return [name.casefold() for name in (member.github, member.email) if name]


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts of a project."""

    site: Site
    cost: Cost = COST
    """Of passwords that are set."""

    @property
    def file(self) -> AuthFile:
        """Where they are kept."""
        return AuthFile(self.site.root / AUTH_FILE)

    def member(self, name: str) -> Member:
        """Return the member of a name; anybody else is an error."""
        found = self._member(name)
        if found is not None:
            return found
        known = [each for member in self.site.file.members for each in names_of(member)]
        hint = did_you_mean(name, known, label="members are") if known else ""
        raise UsageError(
            f"{name!r} is not a member",
            hint=hint or "add them to members in edison.yaml, with github or email, and a role",
        )

    # --- passwords and tokens ---------------------------------------------------------------------

    def set_password(self, name: str, password: str) -> int:
        """Set somebody's password; all their sessions end. Returns how many there were."""
        member = self.member(name)
        actor = self._admitted(member, "roles passwd")
        refuse_weak(password, names_of(member))
        kept, *others = names_of(member)
        new = self.file.password([kept, *others]) is None
        kept_hash = hashed(kept, password, self.site.now(), cost=self.cost)
        ended = self.file.put_password(kept_hash, others)
        done = {"password": "set" if new else "changed", "sessions_ended": ended}
        self.site.note(self.site.entry(actor, "roles passwd", kept, after=done))
        return ended

    def new_token(self, name: str, *, label: str, days: int | None) -> tuple[Token, str]:
        """Make a token for somebody; it can be read now, and never again."""
        member = self.member(name)
        actor = self._admitted(member, "roles token")
        secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
        now, kept = self.site.clock(), names_of(member)[0]
        until = None if days is None else formatting.stamp(now + dt.timedelta(days=days))
        token = Token(secrets.token_hex(4), kept, label, formatting.stamp(now), until, None)
        self.file.put_token(token, _sha256(secret))
        made = {"token": token.id, "label": label, "expires_at": until}
        self.site.note(self.site.entry(actor, "roles token", kept, after=made))
        return token, secret

    def revoke(self, named: str) -> list[Token]:
        """Take a token away, or all that lets somebody in; return the tokens that are gone."""
        tokens = [token for token in self.file.tokens() if token.id == named]
        if tokens:
            self._revoked(tokens[0].name, tokens)
            return tokens
        member = self._member(named)
        names = names_of(member) if member else [named.casefold()]
        tokens = [token for token in self.file.tokens() if token.name in names]
        if not tokens and self.file.password(names) is None:
            raise UsageError(
                f"there is no token and no password for {named!r}", hint="see: edison roles tokens"
            )
        if member is not None:
            self._refuse_last_owner(member)
        self._revoked(names[0], tokens, everything=names)
        return tokens

    def _refuse_last_owner(self, member: Member) -> None:
        """Refuse to lock out the last owner who can sign in."""
        owners = [each for each in self.access() if each.member.role == "owner"]
        able = [each.member for each in owners if each.password_since or each.tokens]
        if able == [member]:
            raise UsageError(
                f"{names_of(member)[0]} is the last owner who can sign in",
                hint="set another password, which ends every session: edison roles passwd; or "
                "take tokens away one by one",
            )

    def _revoked(self, name: str, tokens: list[Token], everything: Sequence[str] = ()) -> None:
        member = self._member(name)
        if member is None:  # somebody who is no longer there
            actor = self.site.require(Role.ADMIN, "roles revoke", name)
        else:
            actor = self._admitted(member, "roles revoke")
        self.file.drop([token.id for token in tokens], everything)
        taken = [{"token": token.id, "label": token.label} for token in tokens]
        said = {"tokens": taken, "password": bool(everything)}
        self.site.note(self.site.entry(actor, "roles revoke", name, before=said))

    def access(self) -> list[Access]:
        """Return how each member can sign in."""
        tokens = self.file.tokens()
        return [self._access(member, tokens) for member in self.site.file.members]

    def _access(self, member: Member, tokens: Sequence[Token]) -> Access:
        names, now = names_of(member), self.site.now()
        password, sessions = self.file.password(names), self.file.sessions(names)
        own = tuple(token for token in tokens if token.name in names)
        seen = [session.seen_at for session in sessions]
        seen += [token.used_at for token in own if token.used_at is not None]
        return Access(
            member=member,
            password_since=password.changed_at if password else None,
            tokens=tuple(token for token in own if not _over(token.expires_at, now)),
            sessions=sum(not _over(session.expires_at, now) for session in sessions),
            last_seen=max(seen, default=None),
        )

    # --- signing in -------------------------------------------------------------------------------

    def sign_in(
        self, name: str, password: str, *, address: str, remember: bool = False
    ) -> SignedIn | NotSignedIn:
        """Let somebody in whose name and password fit."""
        member, now = self._member(name.strip()), self.site.clock()
        account = _account(names_of(member)[0] if member else name.strip().casefold())
        place, stamp = f"address:{network_of(address)}", formatting.stamp(now)
        blocked_since = self.file.begin_attempt(
            [account, place], now=stamp, since=formatting.stamp(now - WINDOW), most=ATTEMPTS
        )
        if blocked_since is not None:
            self._tell_blocked(member, address, stamp)
            over = dt.datetime.fromisoformat(blocked_since) + WINDOW
            return NotSignedIn(wait_s=max(1, -(-(over - now) // dt.timedelta(seconds=1))))
        kept = self.file.password(names_of(member)) if member else None
        if not fits(password, kept, cost=self.cost) or member is None or kept is None:
            self._refused(member, address, "name and password do not fit")
            return NotSignedIn()
        cookie, lasts = secrets.token_urlsafe(32), REMEMBERED if remember else SESSION
        until = formatting.stamp(now + lasts)
        session = Session(names_of(member)[0], stamp, until, stamp, address)
        if not self.file.put_session(session, _sha256(cookie), kept, most=_MOST_SESSIONS):
            return NotSignedIn()  # the password was changed at this very moment
        self.file.attempt_worked(account, [place], stamp)
        actor = _actor(member)
        self.site.note(self.site.entry(actor, "sign in", after={"from": address, "until": until}))
        return SignedIn(actor, cookie, lasts)

    def by_session(self, cookie: str) -> Actor | None:
        """Return who a session belongs to, if it goes on and they are still a member."""
        now = self.site.now()
        session = self.file.session(_sha256(cookie))
        member = self._member(session.name) if session else None
        if session is None or member is None or _over(session.expires_at, now):
            return None
        if self._long_ago(session.seen_at):
            self.file.session_seen(_sha256(cookie), now)
        return _actor(member)

    def by_token(self, secret: str) -> Actor | None:
        """Return who a token belongs to, if it is valid and they are still a member."""
        now = self.site.now()
        token = self.file.token(_sha256(secret))
        member = self._member(token.name) if token else None
        if token is None or member is None or _over(token.expires_at, now):
            return None
        if token.used_at is None or self._long_ago(token.used_at):
            self.file.token_used(token.id, now)
        return _actor(member)

    def sign_out(self, actor: Actor, cookie: str, *, everywhere: bool = False) -> int:
        """End a session, or all of somebody's; return how many ended."""
        member = member_of(actor.identity, self.site.file.members)
        if everywhere and member is not None:
            ended = self.file.end_sessions(names_of(member))
        else:
            ended = int(self.file.end_session(_sha256(cookie)))
        if ended:
            self.site.note(self.site.entry(actor, "sign out", after={"sessions_ended": ended}))
        return ended

    def end(self, cookie: str) -> None:
        """End a session that is replaced by another."""
        self.file.end_session(_sha256(cookie))

    # --- who --------------------------------------------------------------------------------------

    def _member(self, name: str) -> Member | None:
        wanted = name.casefold()
        members = self.site.file.members
        return next((each for each in members if wanted in names_of(each)), None)

    def _admitted(self, member: Member, action: str) -> Actor:
        """Return the actor: everybody looks after themselves, admins after all but owners."""
        actor = self.site.actor()
        needed = Role.OWNER if member.role == "owner" else Role.ADMIN
        if member_of(actor.identity, self.site.file.members) is member:
            needed = Role.VIEWER
        return self.site.admit(actor, needed, action, names_of(member)[0])

    def _long_ago(self, seen_at: str) -> bool:
        return seen_at < formatting.stamp(self.site.clock() - _SEEN_EVERY)

    # --- telling ----------------------------------------------------------------------------------

    def _tell_blocked(self, member: Member | None, address: str, now: str) -> None:
        # Whoever is refused can go on asking; the audit is not to grow with it.
        if self.file.tell_once(network_of(address), now):
            self._refused(member, address, "too many attempts")

    def _refused(self, member: Member | None, address: str, why: str) -> None:
        # What was typed for the name of no member may be a password, and is not kept.
        actor = _actor(member) if member else Actor(Identity("nobody"), None)
        entry = self.site.entry(actor, "refused: sign in", after={"from": address, "why": why})
        self.site.note(entry)


def network_of(address: str) -> str:
    """Return the address that attempts are counted for; a home has a whole /64 of IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def _actor(member: Member) -> Actor:
    identity = Identity("web", login=member.github or "", email=member.email or "")
    return Actor(identity, Role[member.role.upper()])


def _account(name: str) -> str:
    # A hash, as it may be a password that was typed into the wrong field.
    return f"account:{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _over(until: str | None, now: str) -> bool:
    return until is not None and until <= now


def _sha256(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
