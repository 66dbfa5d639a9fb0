"""What may stand in models.yaml?"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from edison_ci.config.extra import Extra
from edison_ci.shape import (
    ENV_PATTERN,
    ONE_OR_MANY,
    UNIQUE,
    EnvName,
    FilePath,
    Name,
    Or,
    Shape,
    Written,
    items,
    short,
    wrong,
)

ProviderName = Literal[
    "openai",
    "anthropic",
    "azure",
    "ollama",
    "vertex",
    "bedrock",
    "openai_compatible",
    "litellm",
    "sim",
    "local",
    "replay",
]

SIM_MODELS = ("small", "large", "judge", "refiner", "assistant", "echo", "script")

Temperature = Annotated[float, Field(ge=0, le=2)]
MaxTokens = Annotated[int, Field(ge=1, le=100_000)]
TopP = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
StopTexts = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=500)], ...], items(1, 4), UNIQUE
]


def _written(params: Shape) -> dict[str, Any]:
    names = (name for name in type(params).model_fields if name in params.model_fields_set)
    values = {name: getattr(params, name) for name in names}
    if isinstance(extra := values.get("extra"), Extra):
        values["extra"] = extra.written()
    return values


class Params(Shape):
    """Sampling parameters, as written; a default that is not written is left to the sender."""

    tombstones: ClassVar[dict[str, str]] = {
        "max_completion_tokens": "write max_tokens",
        "n": "write draws in the experiment",
    }

    temperature: Temperature | None = Field(None, description="0-2; 1.0 by default.")
    max_tokens: MaxTokens | None = Field(None, description="Longest answer; 4096 by default.")
    top_p: TopP | None = Field(None, description="Nucleus sampling, 0-1.")
    frequency_penalty: Penalty | None = Field(None, description="-2 to 2.")
    presence_penalty: Penalty | None = Field(None, description="-2 to 2.")
    seed: Seed | None = Field(None, description="Seed, where the provider takes one.")
    stop: StopTexts | None = Field(None, description="Up to 4 texts at which the answer ends.")
    extra: Extra | None = Field(None, description="Parameters that only some services take.")

    def written(self) -> dict[str, Any]:
        """Return the parameters the user wrote."""
        return _written(self)


TemperatureGrid = Annotated[tuple[Temperature, ...], items(1, 10), UNIQUE, ONE_OR_MANY]
MaxTokensGrid = Annotated[tuple[MaxTokens, ...], items(1, 10), UNIQUE, ONE_OR_MANY]
TopPGrid = Annotated[tuple[TopP, ...], items(1, 10), UNIQUE, ONE_OR_MANY]
PenaltyGrid = Annotated[tuple[Penalty, ...], items(1, 10), UNIQUE, ONE_OR_MANY]
SeedGrid = Annotated[tuple[Seed, ...], items(1, 10), UNIQUE, ONE_OR_MANY]


class GridParams(Shape):
    """Parameters in an experiment; a list makes one configuration for each of its values."""

    tombstones: ClassVar[dict[str, str]] = Params.tombstones

    temperature: TemperatureGrid | None = Field(None, description="0-2.")
    max_tokens: MaxTokensGrid | None = Field(None, description="Longest answer.")
    top_p: TopPGrid | None = Field(None, description="0-1.")
    frequency_penalty: PenaltyGrid | None = Field(None, description="-2 to 2.")
    presence_penalty: PenaltyGrid | None = Field(None, description="-2 to 2.")
    seed: SeedGrid | None = Field(None, description="Seed.")
    stop: StopTexts | None = Field(None, description="Up to 4 texts at which the answer ends.")
    extra: Extra | None = Field(None, description="Parameters that only some services take.")

    def written(self) -> dict[str, Any]:
        """Return the parameters the user wrote."""
        return _written(self)


PricePerMillion = Annotated[float, Field(ge=0, le=100_000)]


class Price(Shape):
    """Dollars per million tokens."""

    tokens_in: PricePerMillion = Field(alias="in", description="Input.")
    tokens_out: PricePerMillion = Field(alias="out", description="Output.")
    cached_in: PricePerMillion | None = Field(None, description="Cached input; as `in` by default.")


def _price(value: Any) -> Any:
    if value == "free":
        return {"in": 0.0, "out": 0.0}
    if isinstance(value, str):
        said = f"{short(value)} is not a price"
        raise wrong("price", said, "write free or {in: 0.15, out: 0.6}, per million tokens")
    return value


PriceText = Annotated[Price, BeforeValidator(_price), Or({"const": "free"})]


class Limits(Shape):
    """How hard a model may be driven."""

    concurrency: int = Field(10, ge=1, le=1_000, description="Calls at the same time.")
    rpm: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None, description="Requests per minute."
    )
    tpm: Annotated[int, Field(ge=1, le=10_000_000_000)] | None = Field(
        None, description="Tokens per minute."
    )
    timeout_s: float = Field(60, ge=1, le=3_600, description="Longest a call may take, in seconds.")
    attempts: int = Field(3, ge=1, le=10, description="Attempts at a call, the first included.")


def _address(value: str) -> str:
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not re.match(r"https?://", value) or not host or re.search(r"\s", value) or port == 0:
        raise wrong("address", f"{short(value)} is not an address", "write https://host:port/path")
    if not host.isascii() or ("%" in host and ":" not in host):
        said = "the host of base_url is written in letters that could be read as another host"
        raise wrong("address", said, "write it as DNS does: xn--...")
    if parts.username or parts.password:
        raise wrong("secret", "base_url contains a user or password", "use key_env")
    if parts.query or parts.fragment:
        raise wrong("address", "base_url has a query or fragment", "leave it out")
    return value


Address = Annotated[
    str,
    Field(max_length=2_000),
    AfterValidator(_address),
    Field(json_schema_extra={"pattern": "^https?://"}),
]


def _key_names(value: Any) -> Any:
    return {"api_key": value} if isinstance(value, str) else value


_KeyField = Annotated[
    str,
    Written(
        "[a-z][a-z0-9_]*", "a field of a key", "write access_key_id: NAME_OF_VARIABLE", "key-field"
    ),
]
KeyNames = Annotated[
    dict[_KeyField, EnvName],
    Field(min_length=1, max_length=10),
    BeforeValidator(_key_names),
    Or({"type": "string", "maxLength": 100, "pattern": ENV_PATTERN}),
]
"""Name of the variable with the key, or a map of fields to names."""


class ModelEntry(Shape):
    """One model of the registry, as written: what it lacks may come from the one it `use`s."""

    tombstones: ClassVar[dict[str, str]] = {
        "api_key": "keys are never written down; give key_env: NAME_OF_VARIABLE",
        "key": "keys are never written down; give key_env: NAME_OF_VARIABLE",
        "temperature": "put it under params",
        "max_tokens": "put it under params",
        "url": "write base_url",
    }

    use: Name | None = Field(None, description="Model to inherit from; mappings merge deeply.")
    provider: ProviderName | None = Field(None, description="Who serves the model.")
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="The provider's name for it."
    )
    base_url: Address | None = Field(None, description="Address of the service.")
    base_url_env: EnvName | None = Field(None, description="Variable with the address.")
    key_env: KeyNames | None = Field(None, description="Variable with the key; never the key.")
    options: dict[str, Any] | None = Field(
        None,
        description="openai: organization; azure: deployment, api_version; vertex: project, "
        "location; bedrock: region; sim: latency_ms, error_rate, ...",
    )
    params: Params | None = Field(None, description="Sampling parameters.")
    price: PriceText | None = Field(None, description="Dollars per million tokens, or free.")
    limits: Limits | None = Field(None, description="Concurrency, rates, time-out, attempts.")
    fallback: Annotated[tuple[Name, ...], items(0, 5), UNIQUE] = Field(
        (), description="Other models, tried only in assistants and schedules."
    )
    store: FilePath | None = Field(None, description="Recording that a replay model answers from.")


class OpenaiOptions(Shape):
    """Options of OpenAI."""

    organization: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Organization that pays."
    )


_ApiVersion = Annotated[
    str,
    Written(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:-preview)?",
        "a version of the interface",
        'write a date in quotes: "2024-10-21"',
        "api-version",
    ),
]


class AzureOptions(Shape):
    """Options of Azure."""

    deployment: str = Field(min_length=1, max_length=200, description="Name of the deployment.")
    api_version: _ApiVersion = Field(description="Date of the interface, such as 2024-10-21.")


_Project = Annotated[
    str,
    Field(min_length=1, max_length=200),
    Written("[a-z0-9.:-]+", "a project", "write the id that Google Cloud shows", "project"),
]
_Region = Annotated[
    str,
    Field(min_length=1, max_length=50),
    Written("[a-z0-9-]+", "a region", "write eu-central-1 or the like", "region"),
]


class VertexOptions(Shape):
    """Options of Vertex."""

    project: _Project = Field(description="Project in Google Cloud.")
    location: _Region = Field(description="Region, such as us-central1.")


class BedrockOptions(Shape):
    """Options of Bedrock."""

    region: _Region = Field(description="Region, such as eu-central-1.")


class SimOptions(Shape):
    """Options of the simulator."""

    latency_ms: float = Field(0, ge=0, le=60_000, description="How long a call takes.")
    error_rate: float = Field(0, ge=0, le=1, description="Share of calls that fail.")
    malformed_rate: float = Field(0, ge=0, le=1, description="Share of answers in a wrong form.")
    noise: float = Field(0.05, ge=0, le=1, description="How much quality varies.")
    position_bias: float = Field(
        0, ge=-0.5, le=0.5, description="How much a pairwise judge prefers the first answer."
    )
    bad_diff_rate: float = Field(0, ge=0, le=1, description="Share of diffs that do not apply.")
    seed: int = Field(0, ge=0, le=2**32, description="Changes every simulated answer.")
    file: FilePath | None = Field(None, description="Answers of the model `script`.")


class LocalOptions(Shape):
    """Options of models run in process."""

    threads: int = Field(1, ge=1, le=256, description="Threads that compute.")
    context: int = Field(2_048, ge=256, le=1_000_000, description="Tokens of context.")


OPTIONS: dict[str, type[Shape]] = {
    "openai": OpenaiOptions,
    "azure": AzureOptions,
    "vertex": VertexOptions,
    "bedrock": BedrockOptions,
    "sim": SimOptions,
    "local": LocalOptions,
    "litellm": OpenaiOptions,
}
"""Which options a provider takes; a provider not listed takes none."""
