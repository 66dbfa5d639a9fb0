"""What every simulated table has: a number of data sets, and rows of figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Setting:
    """How often, and from which random numbers."""

    runs: int
    rng: np.random.Generator


@dataclass(frozen=True)
class Figures:
    """A table: what was measured, and its columns."""

    title: str
    first: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    promise: str


def percent(share: float) -> str:
    return f"{100 * share:.1f}"
