"""Options of providers: what models.yaml may say under `options`, by provider."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from edison_ci.config.trust import HeaderName, HeaderValue, distinct
from edison_ci.shape import (
    UNIQUE,
    EnvName,
    FilePath,
    Shape,
    TextPattern,
    items,
    short,
    wrong,
)
from edison_ci.spelling import did_you_mean
from edison_ci.templating.templates import TemplateFaults, compile_template

if TYPE_CHECKING:
    from collections.abc import Iterator


class OpenaiOptions(Shape):
    """Options of OpenAI."""

    organization: Annotated[HeaderValue, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Organization that is billed."
    )


_ApiVersion = Annotated[
    str,
    TextPattern(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:-preview)?",
        "an API version",
        'write a date in quotes: "2024-10-21"',
        "api-version",
    ),
]


class AzureOptions(Shape):
    """Options of Azure."""

    deployment: str = Field(min_length=1, max_length=200, description="Name of the deployment.")
    api_version: _ApiVersion = Field(description="API version, such as 2024-10-21.")


_Project = Annotated[
    str,
    Field(min_length=1, max_length=200),
    TextPattern("[a-z0-9.:-]+", "a project", "write the project id of Google Cloud", "project"),
]
_Region = Annotated[
    str,
    Field(min_length=1, max_length=50),
    TextPattern("[a-z0-9-]+", "a region", "write a region such as eu-central-1", "region"),
]


class VertexOptions(Shape):
    """Options of Vertex."""

    project: _Project = Field(description="Google Cloud project.")
    location: _Region = Field(description="Region, such as us-central1.")


class BedrockOptions(Shape):
    """Options of Bedrock."""

    region: _Region = Field(description="Region, such as eu-central-1.")


class SimOptions(Shape):
    """Options of the simulator."""

    latency_ms: float = Field(0, ge=0, le=60_000, description="Latency of a call.")
    error_rate: float = Field(0, ge=0, le=1, description="Share of calls that fail.")
    malformed_rate: float = Field(0, ge=0, le=1, description="Share of malformed answers.")
    noise: float = Field(0.05, ge=0, le=1, description="Variation of quality.")
    position_bias: float = Field(
        0, ge=-0.5, le=0.5, description="Bias of a pairwise judge towards the first answer."
    )
    bad_diff_rate: float = Field(0, ge=0, le=1, description="Share of diffs that do not apply.")
    seed: int = Field(0, ge=0, le=2**32, description="Seed of the simulated answers.")
    file: FilePath | None = Field(None, description="Answers of the model `script`.")


class LocalOptions(Shape):
    """Options of models run in process."""

    file_env: EnvName | None = Field(
        None, description="Variable with the path of a .gguf file; default: the installed weights."
    )
    threads: int = Field(1, ge=1, le=256, description="Number of threads.")
    context: int = Field(
        2_048, ge=256, le=1_000_000, description="Tokens of a prompt and its answer at most."
    )


_Arguments = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=1_000)], ...], items(1, 50)
]


class CommandOptions(Shape):
    """Options of a program of the repository."""

    run: _Arguments = Field(description="The program and its arguments; no shell.")
    files: Annotated[tuple[FilePath, ...], items(1, 100), UNIQUE] = Field(
        description="Files and folders that it consists of; if one changes, it is another program."
    )
    setup: _Arguments | None = Field(
        None, description="A program that builds it, before its first call; no shell."
    )


_JsonPlace = Annotated[
    str,
    Field(min_length=1, max_length=300),
    TextPattern(
        r"[^.\s]+(?:\.[^.\s]+)*", "a place in a reply", "write choices.0.message.content", "place"
    ),
]


class UsagePlaces(Shape):
    """Where a reply has its usage."""

    tokens_in: _JsonPlace | None = Field(None, alias="in", description="Input tokens.")
    tokens_out: _JsonPlace | None = Field(None, alias="out", description="Output tokens.")
    cost_usd: _JsonPlace | None = Field(None, description="Dollars of the call.")


_IN_BODY = frozenset({"prompt", "system", "messages", "params", "model", "tools", "output"})


def _templates(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _templates(item)
    elif isinstance(value, list):
        for item in value:
            yield from _templates(item)


def _body(value: dict[str, Any]) -> dict[str, Any]:
    for text in _templates(value):
        try:
            uses = compile_template(text).uses
        except TemplateFaults as error:
            fault = error.faults[0]
            raise wrong("template", f"{short(text)}: {fault.message}", fault.hint) from None
        for name in sorted(uses.keys() - _IN_BODY):
            hint = partial(did_you_mean, name, _IN_BODY)
            raise wrong("template", f"a body has no variable {name!r}", hint)
    return value


class HttpOptions(Shape):
    """Options of an endpoint of your own."""

    body: Annotated[dict[str, Any], AfterValidator(_body)] = Field(
        description="What is sent, as JSON: texts are templates over `prompt`, `system`, "
        "`messages`, `params`, `model`, `tools` and `output`."
    )
    headers: Annotated[
        dict[HeaderName, Annotated[HeaderValue, Field(max_length=2_000)]],
        Field(max_length=20),
        AfterValidator(distinct),
    ] = Field(
        default_factory=dict,
        description="Headers of a closed list, and others that `services` of trust.yaml adds; "
        "`{{ key }}` is the key of key_env.",
    )
    text: _JsonPlace = Field("text", description="Where the reply has the answer.")
    error: _JsonPlace = Field("error", description="Where it has an error.")
    context: _JsonPlace = Field("context", description="Where it has what was retrieved.")
    usage: UsagePlaces = Field(
        default_factory=UsagePlaces.model_construct, description="Where it has tokens and cost."
    )


OPTIONS: dict[str, type[Shape]] = {
    "command": CommandOptions,
    "http": HttpOptions,
    "openai": OpenaiOptions,
    "azure": AzureOptions,
    "vertex": VertexOptions,
    "bedrock": BedrockOptions,
    "sim": SimOptions,
    "local": LocalOptions,
    "litellm": OpenaiOptions,
}
"""Options by provider; other providers have none."""
