"""The embeddings protocol of OpenAI, also spoken by Azure, Ollama, vLLM and many others.

An embedding is a call like any other: it is booked, retried, limited and stored by the same client.
Its stored answer is the vector as text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.checks import embeddings as check_embeddings
from edison_ci.contracts import CallError
from edison_ci.providers.openai_compatible import bad_reply, model_name, parse_reply, token_count
from edison_ci.records import Completion, Message, Request

if TYPE_CHECKING:
    from edison_ci.config.models import Model
    from edison_ci.contracts import Provider
    from edison_ci.providers.batches import BatchService
    from edison_ci.providers.transport import Transport


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
        try:
            reply = await self.transport.post(json.dumps(body, ensure_ascii=False).encode())
        except CallError as error:
            if error.status != 404:
                raise
            message = f"there are no embeddings at this address or of this model: {error.message}"
            raise CallError(error.kind, message, status=404, charged=error.charged) from None
        return _read(parse_reply(reply.body, self.transport.scrub), reply.latency_ms)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.transport.aclose()


def _read(value: dict[str, Any], latency_ms: int) -> Completion:
    data, usage = value.get("data"), value.get("usage")
    if not isinstance(data, list) or len(data) != 1 or not isinstance(data[0], dict):
        found = f"{len(data):,} embeddings" if isinstance(data, list) else "no embeddings"
        raise bad_reply(f"has {found} for 1 text")
    vector = data[0].get("embedding")
    if not isinstance(vector, list):
        raise bad_reply("has no vector in it")
    try:
        text = check_embeddings.pack_vector(vector)
    except ValueError as error:
        raise bad_reply(f"has {error}") from None
    tokens_in = token_count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    return Completion(
        text=text,
        tokens_in=tokens_in,
        tokens_out=None if tokens_in is None else 0,
        latency_ms=latency_ms,
        served_model=model_name(value.get("model")),
    )


@dataclass(frozen=True, slots=True)
class WithEmbeddings:
    """A model that answers, and a model that embeds, behind one address."""

    chat: Provider
    embeddings: OpenAIEmbeddings

    async def complete(self, request: Request) -> Completion:
        """Return the answer or the embedding, or raise CallError."""
        return await (self.embeddings if request.embedding else self.chat).complete(request)

    @property
    def batches(self) -> BatchService | None:
        """The batches of the model that answers, if it has some."""
        return getattr(self.chat, "batches", None)

    async def aclose(self) -> None:
        """Close the connections of both."""
        await self.embeddings.aclose()
        close = getattr(self.chat, "aclose", None)
        if close is not None:
            await close()
