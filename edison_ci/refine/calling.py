"""How is a refiner reached: through which layer, and within which budget?"""

from __future__ import annotations

import asyncio
import datetime as dt
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from edison_ci import times
from edison_ci.errors import Interrupted
from edison_ci.execute.standalone import desk
from edison_ci.providers.budgeting import BudgetExhausted
from edison_ci.refine.trying import GOES_ON, out_of_budget
from edison_ci.store.ledger import Cap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from edison_ci.execute.clients import Lanes
    from edison_ci.refine.trying import Bench

Found = TypeVar("Found")


def waited_for(asking: Coroutine[Any, Any, Found]) -> Found:
    """Return what a coroutine returns, in an event loop of its own."""
    try:
        return asyncio.run(asking)
    except KeyboardInterrupt:
        raise Interrupted("stopped", hint=GOES_ON) from None


@asynccontextmanager
async def calling(bench: Bench) -> AsyncIterator[Lanes]:
    """Yield lanes to every model, within what is left to spend; what they cost is counted."""
    subject = bench.subject
    reuse = dt.timedelta(days=subject.project.file.settings.reuse_days)
    with bench.opened() as tools:
        opened = desk(
            subject.project,
            subject.experiment,
            tools,
            purpose="refine",
            newer_than=times.stamp(tools.now() - reuse),
        )
        async with opened as lanes:
            left = bench.wallet.left
            if left is not None:
                cap = Cap(f"run:{lanes.purse.run_id}", None, microusd=left, name="--budget")
                lanes.purse.caps = (*lanes.purse.caps, cap)
            try:
                yield lanes
            except BudgetExhausted as error:
                raise out_of_budget(error.refused.cap.name) from None
            finally:
                bench.wallet.spent_microusd += lanes.tally.cost_microusd
