"""Which knobs does the simulator have, and where do they stand?"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from edison_ci.errors import UsageError
from edison_ci.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.records import Json


@dataclass(frozen=True, slots=True)
class SimOptions:
    """The `options` of a model of provider `sim`, as config has checked them."""

    latency_ms: float = 0.0
    """Mean time an answer pretends to take. 0: the model's own pace is reported, nobody waits."""
    error_rate: float = 0.0
    malformed_rate: float = 0.0
    noise: float = 0.05
    """Standard deviation of a judge's score, as a share of the scale."""
    position_bias: float = 0.0
    """Added to the chance that the answer shown first wins a comparison."""
    bad_diff_rate: float = 0.0
    seed: int = 0
    file: str | None = None
    """Answers of the model `script`; read by the adapter."""

    @classmethod
    def from_mapping(cls, options: Mapping[str, Json]) -> SimOptions:
        """Return the options that a configuration file names."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise UsageError(
                f"the simulator has no option {unknown[0]!r}",
                hint=f"it has {', '.join(sorted(known))}",
            )
        given: dict[str, Any] = {
            name: value for name, value in options.items() if value is not None
        }
        return cls(**given)
