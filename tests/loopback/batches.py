"""What do the batches of OpenAI and Anthropic look like from the server's side?

A batch is in progress until `ends` is set. Then every request of it has the fate that `fates` gives
to the first text that it says, else a good answer, charged at half the price:

    error      refused, not charged         expired, cancelled    not asked
    missing    no line about it             garbage               a reply that is no completion
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.loopback.protocols import Chat, reply_to
from tests.loopback.script import Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.loopback.protocols import Reply

_STARTED = 1_700_000_000


@dataclass
class Batch:
    """A batch that arrived."""

    id: str
    protocol: str
    requests: list[tuple[str, dict[str, Any]]]
    metadata: dict[str, str] = field(default_factory=dict)
    lines: dict[str, list[bytes]] = field(default_factory=dict)
    """Results and errors, once it has ended."""


class Batches:
    """All batches of a server."""

    def __init__(self, charge: Callable[[Chat, Reply], None]) -> None:
        self._charge = charge
        self.made: dict[str, Batch] = {}
        self.ends = False
        self.ends_after: int | None = None
        """After how many more requests for its state a batch ends."""
        self.status = "completed"
        """How a batch of OpenAI ends: completed, failed, expired or cancelled."""
        self.fates: dict[str, str] = {}
        self.extra: list[bytes] = []
        """Lines that are put before the results."""
        self.gone = False
        """Whether no batch is there any more."""
        self.silent = False
        """Whether a batch is accepted and the reply about it never sent."""
        self.says: Callable[[str], str] | None = None
        """The answer to what a request says, in place of the usual one."""
        self._files: dict[str, bytes] = {}

    def respond(self, method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        """Return status and body, or None if it is not about batches."""
        path = path.partition("?")[0]
        if path.endswith("/files") and method == "POST":
            return 200, _json(self._upload(body))
        if found := re.search(r"/files/([^/]+)/content$", path):
            return 200, self._files[found[1]]
        if found := re.search(r"(/messages)?/batches(?:/([^/]+))?(/results)?$", path):
            return self._batch(method, bool(found[1]), found[2], bool(found[3]), body)
        return None

    def _batch(
        self, method: str, anthropic: bool, name: str | None, results: bool, body: bytes
    ) -> tuple[int, bytes]:
        describe = self._anthropic if anthropic else self._openai
        protocol = "anthropic" if anthropic else "openai"
        if method == "POST":
            ends, self.ends = self.ends, False  # it takes a moment at least
            made = _json(describe(self._create(json.loads(body), anthropic)))
            self.ends = ends
            return (0 if self.silent else 200), made
        if name is None:
            mine = [b for b in self.made.values() if (b.protocol == "anthropic") == anthropic]
            return 200, _json({"data": [describe(b) for b in mine], "has_more": False})
        if name not in self.made or self.gone:
            return 404, _json({"error": {"message": f"no {protocol} batch {name}"}})
        batch = self.made[name]
        if self.ends_after is not None and not self.ends:
            self.ends_after -= 1
            self.ends = self.ends_after <= 0
        if results:
            self._end(batch)
            return 200, b"\n".join([*self.extra, *batch.lines["output"], *batch.lines["error"]])
        return 200, _json(describe(batch))

    def _upload(self, body: bytes) -> dict[str, Any]:
        assert b'name="purpose"\r\n\r\nbatch\r\n' in body
        content = body.split(b"\r\n\r\n")[2].rpartition(b"\r\n--")[0]
        name = f"file-{len(self._files)}"
        self._files[name] = content
        return {"id": name, "object": "file", "purpose": "batch"}

    def _create(self, asked: dict[str, Any], anthropic: bool) -> Batch:
        number = len(self.made)
        if anthropic:
            requests = [(one["custom_id"], one["params"]) for one in asked["requests"]]
            batch = Batch(f"msgbatch_{number}", "anthropic", requests)
        else:
            assert asked["completion_window"] == "24h"
            lines = [json.loads(x) for x in self._files[asked["input_file_id"]].splitlines()]
            assert {line["url"] for line in lines} == {asked["endpoint"]}
            protocol = "responses" if asked["endpoint"].endswith("responses") else "openai"
            requests = [(line["custom_id"], line["body"]) for line in lines]
            batch = Batch(f"batch_{number}", protocol, requests, asked.get("metadata") or {})
        assert len({name for name, _ in batch.requests}) == len(batch.requests)
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name, _ in batch.requests)
        self.made[batch.id] = batch
        return batch

    # --- how it ends ------------------------------------------------------------------------------

    def _end(self, batch: Batch) -> None:
        if batch.lines or not self.ends:
            return
        batch.lines = {"output": [], "error": []}
        for name, body in reversed(batch.requests):  # in no order
            chat = Chat(batch.protocol, body)
            fate = next((f for text, f in self.fates.items() if text in chat.said), "")
            if self.status == "failed" or fate == "missing":
                continue
            reply = reply_to(chat, Rule(text=self.says(chat.said) if self.says else None))
            if not fate:
                self._charge(chat, reply)
            build = _anthropic_line if batch.protocol == "anthropic" else _openai_line
            kind = "output" if fate in ("", "garbage") else "error"
            batch.lines[kind].append(_json(build(name, fate, reply)))

    def _openai(self, batch: Batch) -> dict[str, Any]:
        self._end(batch)
        status = self.status if self.ends else "in_progress"
        told: dict[str, Any] = {"id": batch.id, "object": "batch", "status": status}
        for key, kind in (("output_file_id", "output"), ("error_file_id", "error")):
            told[key] = None
            if lines := batch.lines.get(kind):
                told[key] = f"{batch.id}-{kind}"
                first = self.extra if kind == "output" else []
                self._files[told[key]] = b"\n".join([*first, *lines])
        done, failed = (len(batch.lines.get(kind, [])) for kind in ("output", "error"))
        if status == "failed":
            data = [{"code": "invalid_json_line", "message": "line 1 is not valid", "line": 1}]
            told["errors"] = {"object": "list", "data": data}
        counts = {"total": len(batch.requests), "completed": done, "failed": failed}
        return {**told, "metadata": batch.metadata, "request_counts": counts}

    def _anthropic(self, batch: Batch) -> dict[str, Any]:
        self._end(batch)
        left = 0 if self.ends else len(batch.requests)
        counts = {"processing": left, "succeeded": len(batch.requests) - left, "errored": 0}
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if self.ends else "in_progress",
            "request_counts": {**counts, "canceled": 0, "expired": 0},
            "results_url": "https://elsewhere.invalid/results" if self.ends else None,
        }


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _openai_line(name: str, fate: str, reply: Reply) -> dict[str, Any]:
    if fate in ("expired", "cancelled"):
        error = {"code": f"batch_{fate}", "message": "this request was not executed in time"}
        return {"id": "x", "custom_id": name, "response": None, "error": error}
    body = {"error": {"message": "this is refused", "type": "invalid_request_error"}}
    response = {"status_code": 400, "request_id": "r", "body": body}
    if fate in ("", "garbage"):
        good = reply.body if not fate else {"object": "list"}
        response = {"status_code": 200, "request_id": "r", "body": good}
    return {"id": "x", "custom_id": name, "response": response, "error": None}


def _anthropic_line(name: str, fate: str, reply: Reply) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "succeeded", "message": reply.body}
    if fate == "garbage":
        result["message"] = {"object": "list"}
    elif fate == "error":
        error = {"type": "invalid_request_error", "message": "this is refused"}
        result = {"type": "errored", "error": {"type": "error", "error": error}}
    elif fate:
        result = {"type": "canceled" if fate == "cancelled" else fate}
    return {"custom_id": name, "result": result}
