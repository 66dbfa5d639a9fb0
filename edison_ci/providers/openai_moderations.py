"""The moderations protocol of OpenAI, also spoken by Mistral and some gateways.

A moderation is a call like any other: it is booked, retried, limited and stored by the same client.
Its stored answer is a JSON object with the score of every category, also of those that are new.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError
from edison_ci.providers.openai_compatible import bad_reply, model_name, parse_reply, token_count
from edison_ci.records import Completion, canonical_json

if TYPE_CHECKING:
    from edison_ci.providers.transport import Transport
    from edison_ci.records import Request

_MOST = 200
"""Categories of a reply at most."""
_LONGEST = 100
"""Characters of the name of a category at most."""


@dataclass(frozen=True, slots=True)
class OpenAIModerations:
    """A model behind a moderations endpoint."""

    transport: Transport

    async def complete(self, request: Request) -> Completion:
        """Return the scores of the text, or raise CallError."""
        (message,) = request.messages
        body = {"model": request.model, "input": message.content}
        try:
            reply = await self.transport.post(json.dumps(body, ensure_ascii=False).encode())
        except CallError as error:
            if error.status != 404:
                raise
            told = f"there is no moderation at this address or of this model: {error.message}"
            raise CallError(error.kind, told, status=404, charged=error.charged) from None
        return _read(parse_reply(reply.body, self.transport.scrub), reply.latency_ms)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.transport.aclose()


def _read(value: dict[str, Any], latency_ms: int) -> Completion:
    results, usage = value.get("results"), value.get("usage")
    if not isinstance(results, list) or len(results) != 1 or not isinstance(results[0], dict):
        found = f"{len(results):,} results" if isinstance(results, list) else "no results"
        raise bad_reply(f"has {found} for 1 text")
    scores = results[0].get("category_scores")
    if not isinstance(scores, dict) or not 0 < len(scores) <= _MOST:
        raise bad_reply("has no scores of categories")
    for name, score in scores.items():
        known = isinstance(score, int | float) and not isinstance(score, bool)
        if not known or not math.isfinite(score) or not 0 <= score <= 1 or len(name) > _LONGEST:
            raise bad_reply("has a category whose score is not from 0 to 1")
    tokens_in = token_count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    text = canonical_json({"flagged": results[0].get("flagged") is True, "scores": scores})
    return Completion(
        text=text.encode("utf-8", "replace").decode(),
        tokens_in=tokens_in,
        tokens_out=None if tokens_in is None else 0,
        latency_ms=latency_ms,
        served_model=model_name(value.get("model")),
    )
