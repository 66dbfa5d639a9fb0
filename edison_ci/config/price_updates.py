"""Updates of a project's price table from that of litellm."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.config.prices import (
    MAX_PRICE,
    PROJECT_FILE,
    UNIT,
    PriceTable,
    is_date,
    parse_table,
)
from edison_ci.documents.decoding import decode
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping


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
        if isinstance(entry, dict) and (key := _key(name, entry)) and (row := _row(name, entry)):
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


def _row(name: str, entry: Mapping[str, Any]) -> dict[str, Any] | None:
    mode, makes = entry.get("mode"), entry.get("supported_output_modalities")
    if mode not in _MODES or (isinstance(makes, list) and ("audio" in makes or "video" in makes)):
        return None
    row = _rates(entry)
    if not row.get("in") or any(entry.get(name) for name in _MEDIA_PRICES):
        return None
    if not row["out"] and mode != "embedding":
        return None  # free trials, and routers that bill the model behind them on top
    row |= _tiers(entry)
    if (batch := _rates(entry, "_batches")) and batch["in"] and batch["out"]:
        row["batch"] = batch | _tiers(entry, "_batches")
    if context := _count(entry.get("max_input_tokens")):
        row["context"] = context
    if mode != "embedding" and (max_out := _count(entry.get("max_output_tokens"))):
        row["max_out"] = max_out
    if mode != "chat":
        row["mode"] = str(mode)
    date = entry.get("deprecation_date")
    if is_date(date):
        row["retires"] = date
    return row if mode == "embedding" else row | _abilities(entry, claude="claude" in name)


_LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def _abilities(entry: Mapping[str, Any], *, claude: bool) -> dict[str, Any]:
    """Return what a model accepts; only what differs from a plain chat model is written."""
    abilities: dict[str, Any] = {}
    if entry.get("supports_sampling_params") is False:
        abilities["sampling"] = False
    if entry.get("supports_system_messages") is False:
        abilities["system"] = False
    # For other models of Anthropic, litellm makes it from a tool call.
    native = "supports_native_structured_output" if claude else "supports_response_schema"
    if entry.get(native):
        abilities["schema"] = True
    if entry.get("supports_function_calling"):
        abilities["tools"] = True
    if levels := _reasoning(entry, claude=claude):
        abilities["reasoning"] = levels
        if entry.get("supports_adaptive_thinking"):
            abilities["thinking"] = "adaptive"
    return abilities


def _reasoning(entry: Mapping[str, Any], *, claude: bool) -> list[str]:
    """Return the levels of reasoning that a model accepts."""
    named = entry.get("reasoning_effort_levels")
    if isinstance(named, list):
        return [level for level in _LEVELS if level in named]
    if not entry.get("supports_reasoning"):
        return []
    # Models of Anthropic think only on request, unless they always do.
    off = claude and not entry.get("thinking_always_on")
    usual = ("none", "low", "medium", "high") if off else ("low", "medium", "high")
    return [
        level
        for level in _LEVELS
        if level in usual or entry.get(f"supports_{level}_reasoning_effort")
    ]


_TIER = re.compile(r"input_cost_per_token_above_([0-9]+)k_tokens")


def _rates(entry: Mapping[str, Any], suffix: str = "") -> dict[str, Any]:
    """Return the rates of an entry; `suffix` names those of a batch or of a size."""
    row: dict[str, Any] = {
        "in": _per_million(entry.get(f"input_cost_per_token{suffix}")),
        "out": _per_million(entry.get(f"output_cost_per_token{suffix}")),
    }
    for key, name in (("cached_in", "cache_read"), ("cache_write", "cache_creation")):
        if rate := _per_million(entry.get(f"{name}_input_token_cost{suffix}")):
            row[key] = rate
    return row


def _tiers(entry: Mapping[str, Any], suffix: str = "") -> dict[str, Any]:
    """Return the rates of calls with more input."""
    sizes = sorted(int(match[1]) for name in entry if (match := _TIER.fullmatch(name)))
    above = [
        {"tokens": 1_000 * size, **rates}
        for size in sizes
        if (rates := _rates(entry, f"_above_{size}k_tokens{suffix}"))["in"] and rates["out"]
    ]
    return {"above": above} if above else {}


def _per_million(per_token: object) -> float:
    """Return 0.15 for 1.5e-07, by decimal arithmetic to avoid binary noise."""
    if not isinstance(per_token, int | float) or not 0 < per_token <= MAX_PRICE / 1_000_000:
        return 0.0
    return float(round(Decimal(str(per_token)) * 1_000_000, 6))


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0
