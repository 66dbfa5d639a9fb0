"""Estimates of calls, tokens, dollars and seconds, and the counting of tokens.

Low and high ends are the 10th and 90th percentile of past output lengths where there are any, else
500 tokens more or less 20%. The limit on spending is not an estimate but a reservation: every call
books its worst case before it is sent.
"""

from __future__ import annotations

import hashlib
import math
import os
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.model_entry import APPLICATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from edison_ci.config.model_entry import Price
    from edison_ci.config.models import Model


_BYTES_PER_TOKEN = 4
_PER_MESSAGE = 4
_PER_REPLY = 3  # OpenAI's chat format opens the answer with three tokens
_CHUNK = 10_000
_NEWEST = "o200k_base"
_VOCABULARIES = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
"""sha256 of each vocabulary; tiktoken would download one that is missing or another."""
_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """A way to count tokens, and whether it is the model's own."""

    method: str
    exact: bool
    count: Callable[[str], int]
    per_reply: int = 0

    def of_messages(self, texts: list[str]) -> int:
        """Return the tokens of a chat, with what each message adds around its text."""
        return sum(self.count(text) + _PER_MESSAGE for text in texts) + self.per_reply


def estimate_tokens(text: str) -> int:
    """Return a rough count: a token is about four bytes."""
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)


ESTIMATE = TokenCounter("about 4 bytes a token", False, estimate_tokens)


def counter_for(model: Model) -> TokenCounter:
    """Return the model's tokenizer where one is installed, else the estimate."""
    if model.provider not in ("openai", "azure") or find_spec("tiktoken") is None:
        return ESTIMATE
    return _counter(model.model.lower())


@cache
def _counter(model: str) -> TokenCounter:
    import tiktoken

    try:
        encoding = tiktoken.encoding_name_for_model(model)
    except KeyError:
        return _tiktoken(_NEWEST, exact=False)
    return _tiktoken(encoding, exact=True)


@cache
def _tiktoken(encoding: str, *, exact: bool) -> TokenCounter:
    """Return tiktoken with a vocabulary that litellm carries; nothing is downloaded."""
    import tiktoken

    folder = _folder_with(encoding)
    if folder is None:
        return ESTIMATE
    with _cache_in(folder):
        encode = tiktoken.get_encoding(encoding).encode_ordinary

    def count(text: str) -> int:
        try:
            return len(encode(text))
        except ValueError:  # a run of blanks that is too long for its regular expression
            parts = (text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK))
            return sum(len(encode(part)) for part in parts)

    method = f"tiktoken {encoding}" if exact else f"tiktoken {encoding}, of another model"
    return TokenCounter(method, exact, count, _PER_REPLY)


def _folder_with(encoding: str) -> Path | None:
    """Return the folder of litellm that has this very vocabulary under tiktoken's name for it."""
    litellm = find_spec("litellm")
    if litellm is None or not litellm.origin or encoding not in _VOCABULARIES:
        return None
    folder = Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers"
    name = hashlib.sha1(_ADDRESS.format(encoding).encode(), usedforsecurity=False).hexdigest()
    try:
        data = (folder / name).read_bytes()
    except OSError:
        return None
    return folder if hashlib.sha256(data).hexdigest() == _VOCABULARIES[encoding] else None


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["TIKTOKEN_CACHE_DIR"]
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = before


_FAST_TOKENS_PER_S, _SLOW_TOKENS_PER_S = 120.0, 25.0
_FAST_START_S, _SLOW_START_S = 0.3, 1.5
_SIMULATED_CALL_S = 0.001


@dataclass(frozen=True, slots=True)
class CostRange:
    """A low and a high end."""

    low: float
    high: float

    def __add__(self, other: CostRange) -> CostRange:
        return CostRange(self.low + other.low, self.high + other.high)

    def times(self, low: float, high: float | None = None) -> CostRange:
        """Return the span scaled, its ends by different factors if two are given."""
        return CostRange(self.low * low, self.high * (low if high is None else high))

    def at_most(self, limit: float) -> CostRange:
        """Return the span with neither end above the limit."""
        return CostRange(min(self.low, limit), min(self.high, limit))

    def rounded(self) -> dict[str, int]:
        """Return both ends as whole numbers."""
        return {"low": math.floor(self.low), "high": math.ceil(self.high)}


ZERO = CostRange(0, 0)
ONCE = CostRange(1, 1)

TYPICAL_OUTPUT = CostRange(400, 600)
"""500 tokens more or less 20%."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one model would do in one phase."""

    phase: str
    model: Model
    name: str
    """Name of the model or of one of its configurations."""
    price: Price | None
    once_calls: int = 0
    """Calls of one iteration."""
    once_in: CostRange = ZERO
    """Input tokens of one iteration, all calls together."""
    once_out: CostRange = ZERO
    iterations: CostRange = ONCE
    exact_tokens: bool = False
    """Whether the input was counted with the model's own tokenizer."""

    @property
    def calls(self) -> int:
        """Calls, of all iterations if there are several."""
        return round(self.once_calls * self.iterations.high)

    @property
    def tokens_in(self) -> CostRange:
        """Input tokens of all iterations."""
        return self.once_in.times(self.iterations.low, self.iterations.high)

    @property
    def tokens_out(self) -> CostRange:
        """Output tokens of all iterations."""
        return self.once_out.times(self.iterations.low, self.iterations.high)

    @property
    def tokens(self) -> CostRange:
        """Tokens in and out."""
        return self.tokens_in + self.tokens_out

    @property
    def cost_microusd(self) -> CostRange | None:
        """Cost in micro-dollars (dollars per million tokens are micro-dollars per token)."""
        price, calls = self.price, max(self.once_calls, 1)
        if price is None:
            return None
        low, high = (
            price.at(round(each / calls)) for each in (self.once_in.low, self.once_in.high)
        )
        flat = 1e6 * price.call * self.once_calls
        # An application may tell that a call cost less.
        called = CostRange(0 if self.model.provider in APPLICATIONS else flat, flat)
        spent_in = self.tokens_in.times(low.tokens_in, high.tokens_in)
        spent_in += called.times(self.iterations.low, self.iterations.high)
        return spent_in + self.tokens_out.times(low.tokens_out, high.tokens_out)

    @property
    def seconds(self) -> CostRange:
        """Time with as many calls at once as the model allows, one iteration after another."""
        if not self.once_calls:
            return ZERO
        return self._once_seconds().times(self.iterations.low, self.iterations.high)

    def _once_seconds(self) -> CostRange:
        calls, limits = self.once_calls, self.model.limits
        rounds = math.ceil(calls / limits.concurrency)
        if self.model.simulated:
            each = float(self.model.options.get("latency_ms", 0)) / 1000
            return CostRange(rounds * each, rounds * each + _SIMULATED_CALL_S * calls)
        out, both = self.once_out.times(1 / calls), self.once_in + self.once_out
        low = [rounds * (_FAST_START_S + out.low / _FAST_TOKENS_PER_S)]
        high = [rounds * (_SLOW_START_S + out.high / _SLOW_TOKENS_PER_S)]
        for rate, wanted in ((limits.rpm, CostRange(calls, calls)), (limits.tpm, both)):
            if rate:
                low.append(60 * wanted.low / rate)
                high.append(60 * wanted.high / rate)
        return CostRange(max(low), max(high))


def total(spans: Iterable[CostRange]) -> CostRange:
    """Return the sum of spans."""
    summed = ZERO
    for span in spans:
        summed += span
    return summed


def total_cost(loads: Iterable[Load]) -> CostRange | None:
    """Return the cost of all loads; None when one of them has no price."""
    costs = [load.cost_microusd for load in loads if load.calls]
    return None if None in costs else total(cost for cost in costs if cost is not None)


def total_seconds(loads: Iterable[Load]) -> CostRange:
    """Return the time of all loads: models run side by side, one model's work in a row."""
    clients: dict[str, CostRange] = {}
    for load in loads:
        clients[load.model.name] = clients.get(load.model.name, ZERO) + load.seconds
    spans = list(clients.values()) or [ZERO]
    return CostRange(max(span.low for span in spans), max(span.high for span in spans))
