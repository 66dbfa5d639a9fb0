"""What changed since a run was planned, and may it go on all the same?

A run goes on with what it was planned on and nothing else. Prices are the exception: what they
change is what the next call costs, not what it says.
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import TYPE_CHECKING, Any

from edison_ci.config.model_entry import Price
from edison_ci.config.prices import PriceTable
from edison_ci.frozen import dataclass
from edison_ci.plan.fingerprint import describe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.execute.orders import Against, RunOptions

_PRICE = "the price of "


def planned_on(
    project: Project,
    sides: Mapping[str, Experiment],
    options: RunOptions,
    against: Against | None,
) -> str:
    """Return everything that a run depends on, as it is kept with it."""
    told: dict[str, Any] = {}
    for side, experiment in sides.items():
        mark = "" if side == "head" else f"{side}: "
        found = describe(project, options.selection.narrow(experiment))
        told.update({f"{mark}{place}": value for place, value in found.items()})
    chosen = {
        "selection": options.selection.as_json(),
        "reuse": options.reuse,
        "allow_code": options.allow_code,
        "regrade": options.regrade,
        "budget_microusd": options.budget_microusd,
        "against": against.as_json() if against is not None else None,
        "doubts": [[*doubt] for doubt in options.doubts],
    }
    return json.dumps({**told, "command line": chosen}, sort_keys=True, default=str)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the places whose content is not what it was."""
    return [key for key in {**now, **before} if before.get(key) != now.get(key)]


def repriced(changed: Iterable[str]) -> list[str]:
    """Return the models whose price changed; none if anything else changed as well."""
    names = list(changed)
    only = all(name.startswith(_PRICE) for name in names)
    return [name.removeprefix(_PRICE) for name in names] if only else []


@dataclass(frozen=True, slots=True)
class KeptPrices(PriceTable):
    """The prices with which a run was planned."""

    snapshot: Mapping[str, Any] = field(default_factory=dict)

    def price_of(self, model: Model) -> Price | None:
        """Return what the model cost then."""
        kept = self.snapshot.get(f"{_PRICE}{model.name}")
        if not isinstance(kept, dict):
            return None
        fields = {"in": "tokens_in", "out": "tokens_out", "cached_in": "cached_in"}
        told = {name: kept.get(field) for name, field in fields.items()}
        return Price.model_validate(
            {name: value for name, value in told.items() if value is not None}
        )
