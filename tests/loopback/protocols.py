"""What do the chat protocols of OpenAI and Anthropic look like from the server's side?

Answers depend on the request alone: `The answer is <8 hex of the fingerprint>.`, a JSON object with
that word where JSON is asked for, a call of the first tool where tools are given.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

from tests.loopback.script import SAME, Rule


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat request as far as the server understands it."""

    protocol: str
    """openai, responses, embeddings, moderations or anthropic"""
    body: dict[str, Any]

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def fingerprint(self) -> str:
        """The hash of the body: what was asked, wherever it was sent."""
        return hashlib.sha256(canonical(self.body).encode()).hexdigest()

    @property
    def said(self) -> str:
        """All that the messages say."""
        if self.protocol == "embeddings":
            return "\n".join(self.body["input"])
        if self.protocol == "moderations":
            return str(self.body["input"])
        parts = [self.body.get("system", "")]
        parts += [
            message.get("content", "")
            for message in self.body.get("messages", self.body.get("input", []))
        ]
        return "\n".join(part if isinstance(part, str) else canonical(part) for part in parts)

    @property
    def word(self) -> str:
        """The word of the answer."""
        return hashlib.sha256(self.said.encode()).hexdigest()[:8]

    @property
    def wants_json(self) -> bool:
        forms = (
            self.body.get("response_format"),
            self.body.get("text", {}).get("format"),
            self.body.get("output_config", {}).get("format"),
        )
        return any(form and form["type"] != "text" for form in forms)

    @property
    def tool(self) -> str | None:
        """The name of the first tool."""
        tools = self.body.get("tools") or []
        if not tools:
            return None
        return str(tools[0].get("name") or tools[0]["function"]["name"])

    @property
    def max_tokens(self) -> int:
        names = ("max_completion_tokens", "max_output_tokens", "max_tokens")
        return next((int(self.body[name]) for name in names if self.body.get(name)), 4096)

    @property
    def tokens_in(self) -> int:
        """At least one for each message, never more than bytes."""
        return max(1, len(self.said.encode()) // 4)


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent back, and what it costs."""

    body: dict[str, Any]
    tokens_in: int
    tokens_out: int

    def cost_microusd(self, price_in: float, price_out: float) -> int:
        """Rounded up; prices are dollars per million tokens."""
        return math.ceil(self.tokens_in * price_in + self.tokens_out * price_out - 1e-9)


def reply_to(chat: Chat, rule: Rule) -> Reply:
    """Return the good reply to a request, with the details that the rule wants."""
    if chat.protocol == "embeddings":
        return _embeddings(chat, rule)
    if chat.protocol == "moderations":
        return _moderations(chat, rule)
    text = rule.text(chat.said) if callable(rule.text) else rule.text
    if text is None:
        text = f"The answer is {chat.word}."
        if chat.wants_json:
            text = canonical({"answer": chat.word})
    words = text.split(" ")
    cut = len(words) > chat.max_tokens
    text, tokens_out = " ".join(words[: chat.max_tokens]), min(len(words), chat.max_tokens)
    build = {"anthropic": _anthropic, "responses": _responses}.get(chat.protocol, _openai)
    body = build(chat, text, cut=cut, tokens_out=tokens_out)
    if rule.usage is None:
        del body["usage"]
    elif rule.usage != SAME:
        body["usage"] = rule.usage
    if rule.served_model is not None:
        body["model"] = rule.served_model
    return Reply(body, chat.tokens_in, tokens_out)


def vector(text: str) -> list[float]:
    """The embedding of a text: how often it has each letter."""
    return [float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"]


def _embeddings(chat: Chat, rule: Rule) -> Reply:
    data = [
        {"object": "embedding", "index": index, "embedding": vector(text)}
        for index, text in enumerate(chat.body["input"])
    ]
    body: dict[str, Any] = {"object": "list", "data": data, "model": chat.model or "deployed"}
    if rule.usage is not None:
        body["usage"] = {"prompt_tokens": chat.tokens_in, "total_tokens": chat.tokens_in}
    return Reply(body, chat.tokens_in, 0)


CATEGORIES = (
    "harassment", "harassment/threatening", "hate", "hate/threatening", "illicit",
    "illicit/violent", "self-harm", "self-harm/intent", "self-harm/instructions", "sexual",
    "sexual/minors", "violence", "violence/graphic",
)  # fmt: skip
"""Categories of the moderation of OpenAI, all of which a reply has."""


def _moderations(chat: Chat, rule: Rule) -> Reply:
    """Return the reply of a moderation; the rule's text is JSON with scores, of new names too."""
    told = rule.text(chat.said) if callable(rule.text) else rule.text
    scores = {**dict.fromkeys(CATEGORIES, 0.0001), **json.loads(told or "{}")}
    categories = {name: score >= 0.5 for name, score in scores.items()}
    result = {
        "flagged": any(categories.values()),
        "categories": categories,
        "category_scores": scores,
        "category_applied_input_types": {name: ["text"] for name in scores},
    }
    body: dict[str, Any] = {"id": "modr-1", "model": chat.model, "results": [result]}
    return Reply(body, chat.tokens_in, 0)


def _openai(chat: Chat, text: str, *, cut: bool, tokens_out: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    reason = "length" if cut else "stop"
    if chat.tool is not None:
        arguments = canonical({"answer": chat.word})
        call = {"name": chat.tool, "arguments": arguments}
        tool_call = {"id": f"call_{chat.word}", "type": "function", "function": call}
        message |= {"content": None, "tool_calls": [tool_call]}
        reason = "tool_calls"
    return {
        "id": f"chatcmpl-{chat.word}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": chat.model or "deployed",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": chat.tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": chat.tokens_in + tokens_out,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        },
        "system_fingerprint": "fp_loopback",
    }


def _responses(chat: Chat, text: str, *, cut: bool, tokens_out: int) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item: dict[str, Any] = {"type": "message", "role": "assistant", "content": content}
    if chat.tool is not None:
        arguments = canonical({"answer": chat.word})
        item = {"type": "function_call", "name": chat.tool, "arguments": arguments}
    return {
        "id": f"resp_{chat.word}",
        "object": "response",
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "model": chat.model,
        "output": [{"type": "reasoning", "summary": []}, item],
        "usage": {
            "input_tokens": chat.tokens_in,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": tokens_out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": chat.tokens_in + tokens_out,
        },
    }


def _anthropic(chat: Chat, text: str, *, cut: bool, tokens_out: int) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    reason = "max_tokens" if cut else "end_turn"
    if chat.tool is not None:
        given = {"answer": chat.word}
        content = [
            {"type": "tool_use", "id": f"toolu_{chat.word}", "name": chat.tool, "input": given}
        ]
        reason = "tool_use"
    return {
        "id": f"msg_{chat.word}",
        "type": "message",
        "role": "assistant",
        "model": chat.model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {
            "input_tokens": chat.tokens_in,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": tokens_out,
        },
    }
