"""Statistics of scores: pure mathematics, a module for each subject."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edison_ci.stats.power import (
        DEFAULT_SD,
        MOST_CASES,
        BestRepeats,
        CasesNeeded,
        PairedPower,
        SdRange,
        SmallestEffect,
        VarianceSplit,
        best_repeats,
        cases_for_effect,
        cases_for_margin,
        paired_power,
        sd_range,
        smallest_effect,
        variance_split,
    )

__all__ = [
    "DEFAULT_SD",
    "MOST_CASES",
    "BestRepeats",
    "CasesNeeded",
    "PairedPower",
    "SdRange",
    "SmallestEffect",
    "VarianceSplit",
    "best_repeats",
    "cases_for_effect",
    "cases_for_margin",
    "paired_power",
    "sd_range",
    "smallest_effect",
    "variance_split",
]


def __getattr__(name: str) -> Any:
    """Load a name at first access: numpy and scipy take a third of a second."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("edison_ci.stats.power"), name)
