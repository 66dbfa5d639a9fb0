"""Who answers the requests of a model?"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.contracts import CallError, ErrorKind, Provider
from edison_ci.errors import UsageError
from edison_ci.providers.sim.faults import Fault, breakage, broken, failure
from edison_ci.providers.sim.generator import generate
from edison_ci.providers.sim.options import SimOptions
from edison_ci.providers.sim.scripted import echo
from edison_ci.providers.sim.seeds import stream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from edison_ci.config.models import Model
    from edison_ci.records import Completion, Request


class SimulatedProvider:
    """The simulator behind the contract of a provider: it waits, fails and answers as told."""

    def __init__(
        self, options: SimOptions, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._options, self._sleep = options, sleep
        self._attempts: Counter[str] = Counter()

    async def complete(self, request: Request) -> Completion:
        """Return a simulated answer, or raise a simulated error."""
        if self._options.error_rate > 0:
            attempt = self._attempts[request.address]
            self._attempts[request.address] += 1
            fault = failure(request, self._options, attempt=attempt)
            if fault is not None:
                raise _error(fault)
        completion = echo(request) if request.model == "echo" else generate(request, self._options)
        if self._options.latency_ms > 0:
            await self._sleep(completion.latency_ms / 1000)
        how = breakage(request, self._options)
        if how is None:
            return completion
        rng = stream(request.address, self._options.seed, "broken")
        return replace(completion, text=broken(completion.text, how, rng))


def _error(fault: Fault) -> CallError:
    return CallError(
        ErrorKind(fault.kind), fault.message, retry_after_s=fault.retry_after_s, charged=False
    )


def provider_for(model: Model) -> Provider:
    """Return the adapter of a model's provider."""
    if model.provider == "sim" and model.model in ("small", "large", "echo"):
        return SimulatedProvider(SimOptions.from_mapping(model.options))
    raise UsageError(
        f"model {model.name!r}: answers of {model.provider}/{model.model} cannot be had yet",
        hint="use a simulated model: {provider: sim, model: small}",
    )
