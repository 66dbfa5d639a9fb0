"""What is kept and shown of a gate's decision?"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from edison_ci.frozen import dataclass
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RowVerdict: TypeAlias = Literal["pass", "fail", "inconclusive", "skipped"]

SHOWN = (
    "metric",
    "prompt",
    "model",
    "verdict",
    "sentence",
    "estimate",
    "low",
    "high",
    "n",
    "n_more",
    "p",
    "p_holm",
)
"""Keys of a gate in `--json`, in their order; they are promises."""


@dataclass(frozen=True, slots=True)
class GateRow:
    """What a gate says about a prompt with a model, or about everything."""

    metric: str
    prompt: str | None
    """None, like `model`, when the decision is about the whole run."""
    model: str | None
    verdict: RowVerdict
    sentence: str
    estimate: float | None = None
    """A change in points of 0-1, a relative change, or a level, as `detail["kind"]` says."""
    low: float | None = None
    """With `high`: two-sided, for people; the verdict rests on one-sided bounds."""
    high: float | None = None
    n: int = 0
    """Cases; for shares and latencies, answers."""
    n_more: int | None = None
    """Further cases that would settle it; None when it is settled, or beyond every plan."""
    p: float | None = None
    p_holm: float | None = None
    """After allowing for every other row that has a p."""
    if_unclear: str = "neutral"
    gate: Mapping[str, Any] = field(default_factory=dict)
    """The gate as it was when it decided."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """How the numbers were found: kind, method, level, bounds, missing, seed, notes."""

    @property
    def word(self) -> str:
        """The verdict as people see it; what judges without a licence say is advice."""
        return "ADVISORY" if "advisory" in self.detail else self.verdict.upper()

    @property
    def doubt(self) -> bool:
        """Whether it is no gate, but what keeps the run from passing."""
        return bool(self.detail.get("doubt"))

    def as_json(self) -> dict[str, Any]:
        """Return the row as it appears in `--json`."""
        shown = {name: getattr(self, name) for name in SHOWN}
        return {**shown, "if_unclear": self.if_unclear, "detail": dict(self.detail)}


def looks_json(rows: Sequence[GateRow]) -> dict[str, Any] | None:
    """Return how far a run with several looks came; None if it was looked at once."""
    looks = [row.detail["look"] for row in rows if row.detail.get("look")]
    if not looks:
        return None
    last = max(looks, key=lambda look: int(look["number"]))
    shown = {name: last[name] for name in ("kind", "number", "of", "at", "most")}
    return {**shown, "sentence": stopped_sentence(rows)}


def stopped_sentence(rows: Sequence[GateRow]) -> str | None:
    """Say how early sampling stopped; None if cases were not taken one after another."""
    sampled = [row for row in rows if row.detail.get("look", {}).get("kind") == "cases"]
    if not sampled:
        return None
    last = max((row.detail["look"] for row in sampled), key=lambda look: int(look["number"]))
    at, most = int(last["at"]), int(last["most"])
    reached = f"{at:,} of {most:,} cases"
    if any(row.verdict == "inconclusive" for row in sampled):
        return f"Still not clear after {reached} (early-stopping corrected)."
    if at >= most:
        return f"Clear after all {most:,} cases (early-stopping corrected)."
    saved = f"Saved about {fixed(100 * (1 - at / most))}% of the cost."
    return f"Stopped after {reached}: already clear (early-stopping corrected). {saved}"
