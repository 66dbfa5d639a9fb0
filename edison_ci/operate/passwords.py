"""Which passwords are good enough, and does one fit?

Hashed with scrypt (Percival, 2009) at a cost that takes about a quarter of a second and 32 MB. The
cost is kept with each hash, so that it can be raised.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import unicodedata
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError
from edison_ci.store.auth import Password

if TYPE_CHECKING:
    from collections.abc import Sequence

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
