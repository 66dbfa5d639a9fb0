"""Traffic: whether the mix of what users ask changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.stats.arrays import TIE, generator_for, np

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHUFFLES = 4_999


@dataclass(frozen=True, slots=True)
class MixShift:
    """How the shares of categories changed, and whether by more than chance."""

    value: float
    """Half the sum of the absolute changes of shares: 0 for the same mix, 1 for another one."""
    n: int
    """Questions of the newer sample."""
    method: str
    p: float
    category: str
    """The one whose share changed most."""
    before: float
    now: float


def mix_shift(before: Mapping[str, int], now: Mapping[str, int]) -> MixShift | None:
    """Compare two samples of categories by permutation (Pitman 1937); None with an empty one.

    The statistic is Pearson's chi-square of the two rows; questions are shuffled between them.
    """
    names = sorted(before.keys() | now.keys())
    old = np.array([before.get(name, 0) for name in names], dtype=np.int64)
    new = np.array([now.get(name, 0) for name in names], dtype=np.int64)
    if not old.sum() or not new.sum():
        return None
    total, size = old + new, int(new.sum())
    expected = total * size / total.sum()
    rng = generator_for(names, config_hash=f"{old.tolist()} {new.tolist()}")
    drawn = rng.multivariate_hypergeometric(total, size, size=_SHUFFLES)
    seen = float(((new - expected) ** 2 / expected).sum())
    extreme = int((((drawn - expected) ** 2 / expected).sum(axis=1) >= seen - TIE).sum())
    shares = old / old.sum(), new / new.sum()
    moved = np.abs(shares[1] - shares[0])
    most = int(np.argmax(moved))
    return MixShift(
        value=float(moved.sum() / 2),
        n=size,
        method="chi-square by permutation",
        p=(1 + extreme) / (1 + _SHUFFLES),
        category=names[most],
        before=float(shares[0][most]),
        now=float(shares[1][most]),
    )
