"""The embeddings and moderations protocols of OpenAI, which many other services speak too.

Both are calls like any other: booked, retried, limited and stored by the same client. The stored
answer of an embedding is the vector as text; that of a moderation a JSON object with the score of
every category, also of those that are new.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.checks import embeddings as check_embeddings
from edison_ci.contracts import CallError
from edison_ci.providers.openai_compatible import bad_reply, model_name, parse_reply, token_count
from edison_ci.records import Completion, Message, Request, canonical_json

if TYPE_CHECKING:
    from edison_ci.config.models import Model
    from edison_ci.providers.transport import Transport

_MOST = 200
"""Categories of a reply at most."""
_LONGEST = 100
"""Characters of the name of a category at most."""


def embedding_request(model: Model, text: str) -> Request:
    """Return the request for the embedding of a text."""
    return Request(
        provider=model.provider,
        endpoint=model.endpoint,
        model=model.model,
        messages=(Message("user", text),),
        params={},
        embedding=True,
    )


@dataclass(frozen=True, slots=True)
class OpenAIEmbeddings:
    """A model behind an embeddings endpoint."""

    transport: Transport
    names_model: bool = True
    """Whether the body names the model; for Azure the address does."""

    async def complete(self, request: Request) -> Completion:
        """Return the vector of the text, or raise CallError."""
        body: dict[str, Any] = {"model": request.model} if self.names_model else {}
        # A list, as some servers take nothing else; of one text, as each vector is stored alone.
        body["input"] = [message.content for message in request.messages]
        value, latency_ms = await _post(self.transport, body, "are no embeddings")
        vector = _only(value, "data", "embeddings").get("embedding")
        if not isinstance(vector, list):
            raise bad_reply("has no vector in it")
        try:
            text = check_embeddings.pack_vector(vector)
        except ValueError as error:
            raise bad_reply(f"has {error}") from None
        return _completion(value, text, latency_ms)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.transport.aclose()


@dataclass(frozen=True, slots=True)
class OpenAIModerations:
    """A model behind a moderations endpoint."""

    transport: Transport

    async def complete(self, request: Request) -> Completion:
        """Return the scores of the text, or raise CallError."""
        (message,) = request.messages
        body = {"model": request.model, "input": message.content}
        value, latency_ms = await _post(self.transport, body, "is no moderation")
        result = _only(value, "results", "results")
        scores = result.get("category_scores")
        if not isinstance(scores, dict) or not 0 < len(scores) <= _MOST:
            raise bad_reply("has no scores of categories")
        for name, score in scores.items():
            is_number = isinstance(score, int | float) and not isinstance(score, bool)
            valid = is_number and math.isfinite(score) and 0 <= score <= 1
            if not valid or len(name) > _LONGEST:
                raise bad_reply("has a category whose score is not from 0 to 1")
        text = canonical_json({"flagged": result.get("flagged") is True, "scores": scores})
        return _completion(value, text.encode("utf-8", "replace").decode(), latency_ms)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.transport.aclose()


async def _post(
    transport: Transport, body: dict[str, Any], missing: str
) -> tuple[dict[str, Any], int]:
    """Return the reply and its latency in ms; `missing` is what a 404 means."""
    try:
        reply = await transport.post(json.dumps(body, ensure_ascii=False).encode())
    except CallError as error:
        if error.status != 404:
            raise
        message = f"there {missing} at this address or of this model: {error.message}"
        raise CallError(error.kind, message, status=404, charged=error.charged) from None
    return parse_reply(reply.body, transport.scrub), reply.latency_ms


def _only(value: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    """Return the only item of a list in a reply."""
    items = value.get(key)
    if not isinstance(items, list) or len(items) != 1 or not isinstance(items[0], dict):
        count = f"{len(items):,}" if isinstance(items, list) else "no"
        raise bad_reply(f"has {count} {name} for 1 text")
    return items[0]


def _completion(value: dict[str, Any], text: str, latency_ms: int) -> Completion:
    usage = value.get("usage")
    tokens_in = token_count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    return Completion(
        text=text,
        tokens_in=tokens_in,
        tokens_out=None if tokens_in is None else 0,
        latency_ms=latency_ms,
        served_model=model_name(value.get("model")),
    )
