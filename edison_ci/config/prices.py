"""Prices of models, for tokens or calls, and their tables: the bundled one, a project's own."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import ConfigDict, Field, ValidationError

from edison_ci._dataclass import dataclass
from edison_ci.config import provider_options, vendors
from edison_ci.config.models import OFFLINE, UNKNOWN, Capabilities, Model
from edison_ci.documents.decoding import decode, place
from edison_ci.documents.files import Tree, read
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault, Json
from edison_ci.shape import Shape, items, short

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edison_ci.records import Completion

PROJECT_FILE = ".edison/prices.json"
MAX_BYTES = 10_000_000
MAX_PRICE = 100_000
"""Dollars per million tokens; a higher price is a mistake."""
UNIT = "US dollars per million tokens"

_HAVE_RESPONSES = ("openai", "azure")
_HAVE_BATCHES = ("openai", "anthropic")
DATED = re.compile(r"[-@](?:[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2})$")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ABILITIES = frozenset({"mode", "sampling", "system", "schema", "tools", "reasoning", "thinking"})
_PRICE_KEYS = ("in", "out", "cached_in", "cache_write", "above", "batch")


PricePerMillion = Annotated[float, Field(ge=0, le=100_000)]


FIVE_MINUTES = 1.25
"""Price of a token that is written to the cache of a provider for five minutes, in tokens of input,
where the price does not say it (Anthropic, also through other services)."""
HOUR = 1.6
"""Price of a token that is written for an hour, in tokens that are written for five minutes."""


class Rates(Shape):
    """Dollars per million tokens, which are micro-dollars per token."""

    tokens_in: PricePerMillion = Field(alias="in", description="Input.")
    tokens_out: PricePerMillion = Field(alias="out", description="Output, with reasoning.")
    cached_in: PricePerMillion | None = Field(
        None, description="Input read from the cache of the provider; default: as `in`."
    )
    cache_write: PricePerMillion | None = Field(
        None, description="Input written to that cache; default: 1.25 times `in`."
    )

    @property
    def read(self) -> float:
        """Input that is read from the cache."""
        return self.tokens_in if self.cached_in is None else self.cached_in

    @property
    def written(self) -> float:
        """Input that is written to the cache for five minutes."""
        return FIVE_MINUTES * self.tokens_in if self.cache_write is None else self.cache_write


class RatesAbove(Rates):
    """What a call costs that has more input; the whole call, not only the rest of it."""

    tokens: int = Field(ge=1, le=100_000_000, description="Input above this many tokens.")


class BatchPrice(Rates):
    """Dollars per million tokens of calls in a batch, by the size of a call."""

    above: Annotated[tuple[RatesAbove, ...], items(1, 5)] = Field(
        (), description="Rates of calls with more input."
    )

    def at(self, tokens_in: int) -> Rates:
        """Return the rates of a call with this much input."""
        tiers = [tier for tier in self.above if tokens_in > tier.tokens]
        return max(tiers, key=lambda tier: tier.tokens, default=self)

    def cost(self, used: Completion) -> float:
        """Return the micro-dollars that a call was charged, not rounded."""
        total = used.tokens_in or 0
        rates = self.at(total)
        written = min(max(used.written_in, 0), total)
        hour = min(max(used.written_hour_in, 0), written)
        read = min(max(used.cached_in, 0), total - written)
        return (
            (total - written - read) * rates.tokens_in
            + read * rates.read
            + (written - hour + hour * HOUR) * rates.written
            + (used.tokens_out or 0) * rates.tokens_out
        )

    def charge(self, used: Completion) -> int:
        """Return the same in whole micro-dollars, rounded up."""
        return math.ceil(self.cost(used) - 1e-9)

    def most(self, tokens_in: int, tokens_out: int, *, writes: float = 0.0) -> float:
        """Return the micro-dollars that a call of at most this size can cost.

        `writes` is the weight of a token that may be written to the cache: 0, 1 or `HOUR`.
        """
        return max(
            tokens_in * max(rates.tokens_in, rates.read, writes * rates.written)
            + tokens_out * rates.tokens_out
            for rates in (self, *(tier for tier in self.above if tokens_in > tier.tokens))
        )


def _by_tokens_or_call(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [{"required": schema.pop("required")}, {"required": ["call"]}]


class Price(BatchPrice):
    """Dollars per million tokens, by the size of a call."""

    model_config = ConfigDict(json_schema_extra=_by_tokens_or_call)
    call: Annotated[float, Field(ge=0, le=1_000)] = Field(
        0.0, description="Dollars for each call; for an application, the most that one may cost."
    )
    batch: BatchPrice | None = Field(None, description="Rates of calls in a batch.")

    def cost(self, used: Completion) -> float:
        """Return the micro-dollars that a call was charged, not rounded."""
        if used.cost_microusd is not None:
            return used.cost_microusd
        return BatchPrice.cost(self, used) + 1e6 * self.call

    def most(self, tokens_in: int, tokens_out: int, *, writes: float = 0.0) -> float:
        """Return the micro-dollars that a call of at most this size can cost."""
        return BatchPrice.most(self, tokens_in, tokens_out, writes=writes) + 1e6 * self.call

    def as_json(self) -> dict[str, Any]:
        """Return the price as it is written, without defaults."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by `provider/model`, with date and source."""

    date: str
    source: str
    models: Mapping[str, Mapping[str, Any]]
    origin: str = "bundled"
    """`bundled`, or the file of the project that replaces it."""

    def price_of(self, model: Model) -> Price | None:
        """Return the price of a model: as written, or from the table; None if unknown."""
        if model.price is not None:
            return model.price
        # OpenAI charges nothing for moderation; others do, and models.yaml says what.
        if model.provider in OFFLINE or (model.provider == "openai" and model.moderates):
            return Price.model_construct(tokens_in=0.0, tokens_out=0.0)
        row = self.models.get(key_of(model))
        return None if row is None else price_of_row(row)

    def batch_price_of(self, model: Model) -> BatchPrice | None:
        """Return the price of a model in batches; None if it is not called in batches.

        A service with the protocol of OpenAI has them if models.yaml says so.
        """
        written = model.price if model.provider == "openai_compatible" else None
        price = self.price_of(model) if model.provider in _HAVE_BATCHES else written
        return None if price is None else price.batch

    def lists(self, model: Model) -> bool:
        """Whether the price of a model comes from this table."""
        written = model.price is not None or model.provider in OFFLINE
        return not written and key_of(model) in self.models

    def capabilities(self, model: Model) -> Capabilities:
        """Return what the model accepts, as far as the table knows it."""
        if model.provider == "local":
            room = provider_options.LocalOptions.model_validate(model.options).context
            return replace(UNKNOWN, context=room, schema=True)  # by a grammar, for any model
        keys = list(_keys_of(model))
        bundled_rows = _bundled_table().models
        row = _first(self.models, keys)
        bundled_row = row if self.models is bundled_rows else _first(bundled_rows, keys)
        if not row.keys() & _ABILITIES and not bundled_row:  # a price written by hand
            sizes = {key: row[key] for key in ("context", "max_out") if key in row}
            return replace(UNKNOWN, **sizes)
        can = Capabilities.of_row({**bundled_row, **row})
        return can if model.provider in _HAVE_RESPONSES else replace(can, responses=False)

    def successor(self, model: Model, today: str) -> str | None:
        """Return the newest model of the same vendor and line that stays, with its price."""
        line = _line_of(model.model)
        newer = [
            (_version_of(name), name, row)
            for key, row in self.models.items()
            for name in [key.removeprefix(f"{model.provider}/")]
            if key.startswith(f"{model.provider}/")
            and not DATED.search(name)
            and _line_of(name) == line
            and _version_of(name) > _version_of(DATED.sub("", model.model))
            and str(row.get("retires", "9999")) > today
        ]
        if not line or not newer:
            return None
        _, name, row = max(newer, key=lambda entry: entry[:2])
        return f"{name} (${row['in']:g} in, ${row['out']:g} out per million tokens)"

    def retires(self, model: Model) -> str | None:
        """Return the day on which the vendor retires the model, if known."""
        row = self.models.get(key_of(model), {})
        day = row.get("retires")
        return str(day) if day else None


def price_of_row(row: Mapping[str, Any]) -> Price:
    """Return the price in a row of a table.

    A model without a price for it writes to its cache for the price of plain input.
    """
    return Price.model_validate(_filled({key: row[key] for key in _PRICE_KEYS if key in row}))


def _filled(rates: Any) -> Any:
    if not isinstance(rates, dict):
        return rates
    filled = {"cache_write": rates.get("in"), **rates}
    if isinstance(above := rates.get("above"), list):
        filled["above"] = [_filled(tier) for tier in above]
    if "batch" in rates:
        filled["batch"] = _filled(rates["batch"])
    return filled


def key_of(model: Model) -> str:
    """Return the name of a model in the table; a vendor at its own address has its own rows."""
    vendor = vendors.vendor_at(model.base_url) if model.provider == "openai_compatible" else None
    prefix = vendor.prices if vendor is not None and vendor.prices else model.provider
    return f"{prefix}/{model.model}"


def _line_of(name: str) -> frozenset[str]:
    """Return the words of a name, such as claude and opus, without versions and dates."""
    return frozenset(re.findall(r"[a-z]{2,}", name.lower()))


def _version_of(name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", name))


def _keys_of(model: Model) -> Iterator[str]:
    """Yield the names that a model may have in the table, the best first."""
    yield key_of(model)
    provider, name = model.provider, model.model
    if provider == "openai_compatible":
        yield name  # services for many vendors write VENDOR/MODEL
    if name.startswith("ft:"):
        name = name.split(":")[1]
        yield f"{provider}/{name}"
    yield f"{provider}/{DATED.sub('', name)}"


def _first(rows: Mapping[str, Mapping[str, Any]], keys: Iterable[str]) -> Mapping[str, Any]:
    """Return the row of the first key that has one, else an empty one."""
    return next((row for key in keys if (row := rows.get(key)) is not None), {})


def load_prices(tree: Tree | None = None) -> PriceTable:
    """Return the table of the project if it has one, else the bundled one."""
    if tree is not None and tree.exists(PROJECT_FILE):
        return parse_table(read(tree, PROJECT_FILE, max_bytes=MAX_BYTES), origin=PROJECT_FILE)
    return _bundled_table()


class _BundledRows(Mapping[str, Mapping[str, Any]]):
    """The rows of the bundled table, of which a project needs few: all take 5 ms and 1 MB.

    Not even the text is kept, a quarter of a megabyte that is read in a tenth of a millisecond.
    """

    @cached_property
    def _all(self) -> dict[str, Mapping[str, Any]]:
        return dict(json.loads(bundled())["models"])

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        if "_all" in self.__dict__:
            return self._all[name]
        text = bundled()
        start = _place_of(name, text)
        if start < 0:
            raise KeyError(name)
        # One row to a line, as `dump_table` writes them.
        line = text[start + 1 : text.index(b"\n", start + 1)]
        row: Mapping[str, Any] = json.loads(b"{%b}" % line.rstrip(b","))[name]
        return row

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _place_of(name, bundled()) >= 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


def _place_of(name: str, text: bytes) -> int:
    return text.find(b"\n  %b: {" % json.dumps(name).encode())


@cache
def _bundled_table() -> PriceTable:
    # Its form is tested, so that it is not parsed by parse_table, which takes 35 ms.
    start, _, rest = bundled().partition(b' "models": {')
    about = json.loads(start + rest.rpartition(b"\n },\n")[2])
    return PriceTable(about["date"], about["source"], _BundledRows())


def bundled() -> bytes:
    """Return the text of the bundled price table."""
    return Path(__file__).with_name("prices.json").read_bytes()


def parse_table(data: bytes, *, origin: str) -> PriceTable:
    """Return the table in a file of edison's format; raises Fault."""
    text = decode(data)
    value = parse_json(text)
    if not isinstance(value, dict) or not isinstance(models := value.get("models"), dict):
        raise Fault(
            "prices",
            f"{origin} is not a price table",
            "create it: edison admin prices update --from FILE",
        )
    for name, row in models.items():
        if reason := _wrong_row(row):
            at = place(text, max(text.find(json.dumps(name)), 0))
            hint = "create it again: edison admin prices update --from FILE"
            raise Fault("prices", f"{origin}: {short(name)} {reason}", hint, at=at)
    date, source = value.get("date"), value.get("source")
    if not is_date(date):
        hint = "write the day the prices were valid: 2026-01-31"
        raise Fault("prices", f"{origin}: the table has no date", hint)
    return PriceTable(
        str(date), str(source or ""), cast("dict[str, dict[str, Any]]", models), origin
    )


def _wrong_row(row: Json) -> str:
    """Return the problem of a row, or ''."""
    if not isinstance(row, dict):
        return "is not a map"
    try:
        price_of_row(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = ".".join(map(str, first["loc"]))
        return f"has no valid price {at}, in dollars per million tokens: {first['msg']}"
    for key in ("context", "max_out"):
        size = row.get(key, 1)
        if type(size) is not int or size < 1:
            return f"has {key} {short(size)}, not a number of tokens"
    if "retires" in row and not is_date(row["retires"]):
        return f"retires {short(row['retires'])}, which is not a date"
    return ""


def is_date(value: object) -> bool:
    """Whether a value is the text of a day."""
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return False
    try:
        dt.date.fromisoformat(value)
    except ValueError:
        return False
    return True
