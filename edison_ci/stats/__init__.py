"""What do the numbers say: pure mathematics on scores, with a file per question."""

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
