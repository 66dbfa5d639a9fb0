"""Price tables of models: the bundled one, that of a project, and updates from litellm."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from edison_ci._dataclass import dataclass
from edison_ci.config.model_entry import Price
from edison_ci.config.models import OFFLINE, Model
from edison_ci.documents.decoding import decode, place
from edison_ci.documents.files import Tree, read
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault, Json
from edison_ci.shape import short

if TYPE_CHECKING:
    from collections.abc import Mapping

PROJECT_FILE = ".edison/prices.json"
MAX_BYTES = 10_000_000
MAX_PRICE = 100_000
"""Dollars per million tokens; a higher price is a mistake."""
UNIT = "US dollars per million tokens"

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FREE = Price.model_construct(tokens_in=0.0, tokens_out=0.0)


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
        if model.provider in OFFLINE:
            return _FREE
        row = self.models.get(key_of(model))
        if row is None:
            return None
        return Price.model_validate({k: row[k] for k in ("in", "out", "cached_in") if k in row})

    def retires(self, model: Model) -> str | None:
        """Return the day on which the vendor retires the model, if known."""
        row = self.models.get(key_of(model), {})
        day = row.get("retires")
        return str(day) if day else None

    def context(self, model: Model) -> int | None:
        """Return the maximum input tokens of the model, if known."""
        size = self.models.get(key_of(model), {}).get("context")
        return int(size) if size else None


def key_of(model: Model) -> str:
    """Return the name of a model in the table."""
    return f"{model.provider}/{model.model}"


def load_prices(tree: Tree | None = None) -> PriceTable:
    """Return the table of the project if it has one, else the bundled one."""
    if tree is not None and tree.exists(PROJECT_FILE):
        return parse_table(read(tree, PROJECT_FILE, max_bytes=MAX_BYTES), origin=PROJECT_FILE)
    return _bundled_table()


@cache
def _bundled_table() -> PriceTable:
    value = json.loads(bundled())  # tested, so not parsed by the seven times slower parse_table
    return PriceTable(value["date"], value["source"], value["models"])


def bundled() -> bytes:
    """Return the text of the bundled price table."""
    return Path(__file__).with_name("prices.json").read_bytes()


def parse_table(data: bytes, *, origin: str) -> PriceTable:
    """Return the table in a file of edison's format; raises Fault."""
    text = decode(data)
    value = parse_json(text)
    if not isinstance(value, dict) or not isinstance(models := value.get("models"), dict):
        raise Fault(
            "prices", f"{origin} is not a price table", "create it with edison prices update"
        )
    for name, row in models.items():
        if reason := _wrong_row(row):
            at = place(text, max(text.find(json.dumps(name)), 0))
            hint = "create it again with edison prices update"
            raise Fault("prices", f"{origin}: {short(name)} {reason}", hint, at=at)
    date, source = value.get("date"), value.get("source")
    if not _is_date(date):
        hint = "write the day the prices were valid: 2026-01-31"
        raise Fault("prices", f"{origin}: the table has no date", hint)
    return PriceTable(
        str(date), str(source or ""), cast("dict[str, dict[str, Any]]", models), origin
    )


def _wrong_row(row: Json) -> str:
    """Return the problem of a row, or ''."""
    if not isinstance(row, dict):
        return "is not a map"
    if not all(_is_price(row.get(key)) for key in ("in", "out")):
        return "has no prices in and out, in dollars per million tokens"
    if not _is_price(row.get("cached_in", 0)):
        return "has no price cached_in, in dollars per million tokens"
    for key in ("context", "max_out"):
        size = row.get(key, 1)
        if type(size) is not int or size < 1:
            return f"has {key} {short(size)}, not a number of tokens"
    if "retires" in row and not _is_date(row["retires"]):
        return f"retires {short(row['retires'])}, which is not a date"
    return ""


def _is_price(value: object) -> bool:
    return type(value) in (int, float) and 0 <= cast("float", value) <= MAX_PRICE


def _is_date(value: object) -> bool:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return False
    try:
        dt.date.fromisoformat(value)
    except ValueError:
        return False
    return True


def dump_table(table: PriceTable) -> str:
    """Return the text of a table, one model per line, so that diffs are small."""
    rows = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(dict(row), sort_keys=True)}"
        for name, row in sorted(table.models.items())
    )
    return (
        f'{{\n "date": {json.dumps(table.date)},\n "models": {{\n{rows}\n }},\n'
        f' "source": {json.dumps(table.source)},\n "unit": {json.dumps(UNIT)},\n "version": 1\n}}\n'
    )


@dataclass(frozen=True, slots=True)
class PriceChanges:
    """Changes of an update."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    kept_retired: tuple[str, ...]
    """Models that the new source no longer lists; kept for the warning about retired models."""


def update_table(
    old: PriceTable, data: bytes, *, name: str, today: dt.date
) -> tuple[PriceTable, PriceChanges]:
    """Return the table updated from a file of edison or of litellm."""
    value = parse_json(decode(data))
    if not isinstance(value, dict):
        raise Fault(
            "prices", f"{name} is not a price table", "give a price file of litellm or of edison"
        )
    if isinstance(value.get("models"), dict):
        new = parse_table(data, origin=name)
        fresh, date, source = dict(new.models), new.date, new.source
    else:
        fresh, date, source = dict(from_litellm(value)), today.isoformat(), f"{name} (litellm)"
    if not fresh:
        raise Fault(
            "prices",
            f"{name} lists no model with a price",
            "give a price file of litellm or of edison",
        )
    gone = {k: v for k, v in old.models.items() if k not in fresh}
    retired = {k: {**v, "retires": v.get("retires", date)} for k, v in gone.items()}
    changes = PriceChanges(
        added=tuple(sorted(k for k in fresh if k not in old.models)),
        changed=tuple(sorted(k for k in fresh if k in old.models and fresh[k] != old.models[k])),
        kept_retired=tuple(sorted(retired)),
    )
    return PriceTable(date, source, {**fresh, **retired}, PROJECT_FILE), changes


# --- litellm's file -------------------------------------------------------------------------------

_PROVIDERS = {
    "openai": "openai",
    "text-completion-openai": "openai",
    "anthropic": "anthropic",
    "azure": "azure",
    "azure_text": "azure",
    "bedrock": "bedrock",
    "bedrock_converse": "bedrock",
    "fireworks_ai-embedding-models": "litellm/fireworks_ai",
    **{
        name: f"litellm/{name}"
        for name in (
            "cohere_chat",
            "deepseek",
            "fireworks_ai",
            "gemini",
            "groq",
            "mistral",
            "together_ai",
            "xai",
        )
    },
}
_MODES = ("chat", "completion", "responses", "embedding")
_PREFIX = {"vertex": "vertex_ai/"}
_REGIONAL = ("azure", "bedrock")  # a "/" left in these names is a region or a route
_SKIP_NAME = re.compile(
    r"^ft:|^(together|fireworks)-ai-|\b(audio|flux|image|lyria|ocr|tts|voxtral)\b"
)
_MEDIA_PRICES = ("output_cost_per_audio_token", "output_cost_per_video_token")


def from_litellm(raw: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the rows for litellm's file: text models of known providers with a price per token.

    If litellm lists a model with and without its provider's prefix, the former is used.
    """
    table: dict[str, dict[str, Any]] = {}
    for name in sorted(raw, key=lambda name: ("/" not in name, name)):
        entry = raw[name]
        if isinstance(entry, dict) and (key := _key(name, entry)) and (row := _row(entry)):
            table.setdefault(key, row)
    return dict(sorted(table.items()))


def _key(name: str, entry: Mapping[str, Any]) -> str | None:
    source = str(entry.get("litellm_provider", ""))
    provider = "vertex" if source.startswith("vertex_ai") else _PROVIDERS.get(source)
    if provider is None or _SKIP_NAME.search(name):
        return None
    model = name.removeprefix(_PREFIX.get(provider, provider.removeprefix("litellm/") + "/"))
    if provider in _REGIONAL and "/" in model:
        return None
    return f"{provider}/{model}"


def _row(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    mode, makes = entry.get("mode"), entry.get("supported_output_modalities")
    if mode not in _MODES or (isinstance(makes, list) and ("audio" in makes or "video" in makes)):
        return None
    price_in = _per_million(entry.get("input_cost_per_token"))
    price_out = _per_million(entry.get("output_cost_per_token"))
    if not price_in or any(entry.get(name) for name in _MEDIA_PRICES):
        return None
    if not price_out and mode != "embedding":
        return None  # free trials, and routers that bill the model behind them on top
    row: dict[str, Any] = {"in": price_in, "out": price_out}
    if cached := _per_million(entry.get("cache_read_input_token_cost")):
        row["cached_in"] = cached
    if context := _count(entry.get("max_input_tokens")):
        row["context"] = context
    if mode != "embedding" and (max_out := _count(entry.get("max_output_tokens"))):
        row["max_out"] = max_out
    if mode != "chat":
        row["mode"] = str(mode)
    date = entry.get("deprecation_date")
    if _is_date(date):
        row["retires"] = date
    return row


def _per_million(per_token: object) -> float:
    """Return 0.15 for 1.5e-07, by decimal arithmetic to avoid binary noise."""
    if not isinstance(per_token, int | float) or not 0 < per_token <= MAX_PRICE / 1_000_000:
        return 0.0
    return float(round(Decimal(str(per_token)) * 1_000_000, 6))


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0
