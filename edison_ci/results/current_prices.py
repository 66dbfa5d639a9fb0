"""Current prices for stored answers: what a call would cost now, from the tokens that it used.

An answer keeps the cost that was paid for it. Models are compared by what their calls cost now, and
reuse saves what the call would cost now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.records import Completion, Side
from edison_ci.results.snapshot import snapshot_of

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.config.prices import Price
    from edison_ci.store.runs import Run


@dataclass(frozen=True, slots=True)
class CurrentPrices:
    """The prices in models.yaml and the price table of a project."""

    project: Project

    def price_of(self, run: Run, side: str, configuration: str) -> Price | None:
        """Return the current price of a model as it was in a run.

        None if models.yaml has no such model any more, or another one of that name, or no price.
        """
        name = configuration.partition("[")[0]
        model = self.project.models.get(name)
        mark = "" if side == Side.HEAD else f"{side}: "
        kept = snapshot_of(run).get(f"{mark}{self.project.file.paths.models}: {name}")
        if model is None or not isinstance(kept, list) or kept[:1] != [model.identity()]:
            return None
        return self.project.prices.price_of(model)


def cost_now(
    price: Price | None, tokens: tuple[int | None, int | None, int], paid_microusd: int
) -> int:
    """Return the cost of an answer at a price, in micro-dollars; what was paid without one.

    `tokens` are input, output, and the input that was read from the cache of the provider.
    """
    read, written, cached = tokens
    if price is None or read is None or written is None:
        return paid_microusd
    return price.charge(Completion("", tokens_in=read, tokens_out=written, cached_in=cached))
