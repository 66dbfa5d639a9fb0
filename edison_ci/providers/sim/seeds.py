"""Where does the simulator's chance come from, so that a re-run is identical and a draw is not?"""

from __future__ import annotations

import math
from functools import lru_cache
from hashlib import sha256
from random import Random

_SEPARATOR = "\x1f"


def seed_of(*parts: object) -> int:
    """Return a number that only these parts decide, on every machine."""
    text = _SEPARATOR.join(str(part) for part in parts)
    return int.from_bytes(sha256(text.encode(errors="surrogatepass")).digest()[:8])


def stream(*parts: object) -> Random:
    """Return the chance that belongs to these parts."""
    return Random(seed_of(*parts))


@lru_cache(maxsize=8_192)
def leanings(*parts: object, count: int) -> tuple[float, ...]:
    """Return standard normal numbers that stay with a case, whatever prompt it meets."""
    rng = stream(*parts)
    return tuple(rng.gauss(0.0, 1.0) for _ in range(count))


def share_below(z: float) -> float:
    """Return the share of a standard normal distribution below `z`."""
    return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))


def logit(chance: float) -> float:
    """Return the log odds of a chance strictly between 0 and 1."""
    return math.log(chance / (1.0 - chance))


def chance_of(log_odds: float) -> float:
    """Return the chance that has these log odds."""
    return 1.0 / (1.0 + math.exp(-log_odds))
