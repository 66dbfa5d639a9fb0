"""Models that llama.cpp runs in this process, from a file of weights.

Nothing but the request decides an answer: samplers that it does not set are off, and nothing is
kept of earlier calls. So a call with temperature 0 has the same answer each time on one machine.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.errors import UsageError
from edison_ci.providers.failures import Scrubber
from edison_ci.providers.openai_compatible import Dialect, read_completion, request_body

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edison_ci.records import Completion, Request

_DIALECT = Dialect(names_model=False)
_BATCH = 64
"""Tokens of a prompt that are read at once; a call can be stopped in between."""
_SEEDS = 2**32 - 1
"""Seeds of llama.cpp; the next number means a random one."""
_NEUTRAL = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
_STREAM = {"stream": True, "return_progress": True, "stream_options": {"include_usage": True}}


class LoadedModel:
    """Weights in memory, with a thread that answers one call after the other."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="llama")


@cache
def load(path: Path, *, threads: int, context: int) -> LoadedModel:
    """Return the model in a file, which is loaded once; raises UsageError if it cannot be."""
    # Imported here, as it takes a tenth of a second and most commands do not need it.
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.fit_params = context, 1, False
    params.n_batch = params.n_ubatch = _BATCH
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    # What an earlier call left behind would change the last digits of the next one.
    params.cache_prompt, params.cache_ram_mib = False, 0
    params.warmup, params.verbosity, params.offline = False, -1, True
    # It listens on a free port of this machine as well, with a random key.
    params.api_keys, params.n_threads_http, params.ui = [secrets.token_hex()], 1, False
    try:
        return LoadedModel(xllamacpp.Server(params))
    except (RuntimeError, ValueError):
        raise UsageError(
            f"{path.name} cannot be loaded: it is not a model, is damaged, or needs more memory",
            hint="download it again, or set a smaller options.context",
        ) from None


class LocalModel:
    """A model in this process."""

    def __init__(self, loaded: LoadedModel, timeout_s: float) -> None:
        self._loaded, self._timeout_s = loaded, timeout_s

    async def complete(self, request: Request) -> Completion:
        """Return the answer, or raise CallError."""
        call = _Call(self._loaded.server, request, self._timeout_s)
        try:
            return await asyncio.wrap_future(self._loaded.thread.submit(call.run))
        except asyncio.CancelledError:
            call.given_up = True
            raise


class _Call:
    """One call: the answer comes piece by piece, so that it can be stopped."""

    def __init__(self, server: Any, request: Request, timeout_s: float) -> None:
        self._server, self._request, self._timeout_s = server, request, timeout_s
        self._deadline = float("inf")
        self._text: list[str] = []
        self._finish: str | None = None
        self._usage: Any = None
        self._error: Any = None
        self._late = False
        self.given_up = False
        """Whether the caller no longer waits for the answer."""

    def run(self) -> Completion:
        """Return the answer; the time limit starts when the model does."""
        started = time.monotonic()
        self._deadline = started + self._timeout_s
        try:
            self._server.handle_chat_completions(_body(self._request), self._take)
        except (RuntimeError, ValueError) as error:  # what it cannot turn into tokens or a grammar
            self._error = {"code": 400, "message": str(error)}
        if self._late:
            raise CallError(ErrorKind.TIMEOUT, f"no answer within {self._timeout_s:g} s")
        if self._error is not None:
            raise _failure(self._error)
        message = {"content": "".join(self._text)}
        reply = {
            "choices": [{"message": message, "finish_reason": self._finish}],
            "usage": self._usage,
            "model": self._request.model,
        }
        return read_completion(reply, round(1000 * (time.monotonic() - started)))

    def _take(self, piece: Mapping[str, Any]) -> bool:
        """Keep a piece of the answer; True stops the model. It may not raise."""
        self._error = piece.get("error", self._error)
        self._usage = piece.get("usage", self._usage)
        for choice in piece.get("choices", ()):
            self._text.append(choice["delta"].get("content") or "")
            self._finish = choice["finish_reason"] or self._finish
        self._late = self._finish is None and time.monotonic() > self._deadline
        return self._late or self.given_up


def _body(request: Request) -> dict[str, Any]:
    body = {**_NEUTRAL, **request_body(request, _DIALECT), **_STREAM}
    if "seed" in body:
        body["seed"] %= _SEEDS
    return body


def _failure(error: Mapping[str, Any]) -> CallError:
    kind = ErrorKind.BAD_REQUEST if error.get("code") == 400 else ErrorKind.PROVIDER_ERROR
    if error.get("type") == "exceed_context_size_error":
        kind = ErrorKind.CONTEXT_LENGTH
    return CallError(kind, Scrubber(())(str(error.get("message"))), charged=False)
