"""The simulator as a provider: it waits, fails and answers as told."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.checks.evaluation import EvaluationError
from edison_ci.checks.time_limit import limited
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents import files
from edison_ci.documents.decoding import decode
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault as TextFault
from edison_ci.errors import Location, UsageError
from edison_ci.simulator.assistant import assist
from edison_ci.simulator.generator import generate
from edison_ci.simulator.judge import hear
from edison_ci.simulator.options import Fault, SimOptions, breakage, broken, failure
from edison_ci.simulator.pace import stream
from edison_ci.simulator.refiner import refine
from edison_ci.simulator.scripted import echo, parse_script, script

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from edison_ci.documents.files import Tree
    from edison_ci.records import Completion, Json, Request

    Answerer = Callable[[Request, SimOptions], Completion | Fault]

MAX_SCRIPT_BYTES = 10_000_000


def _echo(request: Request, _: SimOptions) -> Completion:
    return echo(request)


ANSWERERS: Mapping[str, Answerer] = {
    "small": generate,
    "large": generate,
    "judge": hear,
    "refiner": refine,
    "assistant": assist,
    "echo": _echo,
}
"""The models of the simulator that need nothing but a request."""


class SimulatedProvider:
    """The simulator behind the contract of a provider."""

    def __init__(
        self,
        options: SimOptions,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        answerer: Answerer | None = None,
    ) -> None:
        self._options, self._sleep, self._answerer = options, sleep, answerer
        self._attempts: Counter[str] = Counter()

    async def complete(self, request: Request) -> Completion:
        """Return a simulated answer, or raise a simulated error."""
        if self._options.error_rate > 0:
            attempt = self._attempts[request.address]
            self._attempts[request.address] += 1
            fault = failure(request, self._options, attempt=attempt)
            if fault is not None:
                raise _error(fault)
        answerer = self._answerer or ANSWERERS.get(request.model, generate)
        try:
            completion = limited("the simulator", lambda: answerer(request, self._options))
        except EvaluationError as error:  # it reads a prompt that somebody else wrote
            raise CallError(ErrorKind.BAD_RESPONSE, str(error), charged=False) from None
        if isinstance(completion, Fault):
            raise _error(completion)
        if self._options.latency_ms > 0:
            await self._sleep(completion.latency_ms / 1000)
        how = breakage(request, self._options)
        if how is None:
            return completion
        rng = stream(request.address, self._options.seed, "broken")
        return replace(completion, text=broken(completion.text, how, rng))


def simulated(name: str, options: Mapping[str, Json], tree: Tree) -> SimulatedProvider | None:
    """Return a model of the simulator by name; None if it has none of this name."""
    settings = SimOptions.from_mapping(options)
    if name in ANSWERERS:
        return SimulatedProvider(settings)
    if name == "script" and settings.file is not None:
        return SimulatedProvider(settings, answerer=scripted(settings.file, tree))
    return None


def scripted(path: str, tree: Tree) -> Answerer:
    """Return the model `script`, which answers from a JSONL file of the project."""
    try:
        text = decode(files.read(tree, path, max_bytes=MAX_SCRIPT_BYTES))
    except TextFault as fault:
        raise UsageError(fault.message, where=Location(path), hint=fault.hint) from None
    lines = parse_script(_rows(text, path))
    return lambda request, _: script(request, lines)


def _rows(text: str, path: str) -> Iterator[dict[str, Json]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = Location(path, number)
        try:
            row = parse_json(line)
        except TextFault as fault:
            raise UsageError(fault.message, where=where, hint=fault.hint) from None
        if not isinstance(row, dict):
            hint = 'write {"match": "...", "text": "..."}'
            raise UsageError("a line of a script is an object", where=where, hint=hint)
        yield row


def _error(fault: Fault) -> CallError:
    try:
        kind = ErrorKind(fault.kind)
    except ValueError:
        message = f"a script names the error {fault.kind!r}, which is none"
        return CallError(ErrorKind.BAD_REQUEST, message, charged=False)
    return CallError(kind, fault.message, retry_after_s=fault.retry_after_s, charged=False)
