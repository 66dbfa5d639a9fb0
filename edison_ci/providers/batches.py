"""Batches at OpenAI and Anthropic: many requests that are answered within a day, for less.

OpenAI takes a file with a request in each line, and returns files with results and errors; a batch
carries metadata, by which it is found again. Anthropic takes all requests in one body and has no
metadata: a batch is found again by the names of its requests, once it has ended.

Results come from outside like any reply: a line may be anything. Paths are made here, never taken
from a reply, so that a key is sent to the configured host only.
"""

from __future__ import annotations

import json
import re
import secrets
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.failures import status_error
from edison_ci.providers.openai_compatible import bad_reply, parse_reply
from edison_ci.providers.transport import MAX_REPLY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    from edison_ci.providers.transport import Transport
    from edison_ci.records import Completion, Request

WINDOW_H = 24
"""Hours within which a batch ends."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_LISTED = 100
_MOST_PAGES = 10
_METADATA = "edison_batch"
_as_json = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class RemoteBatch:
    """A batch as its provider describes it."""

    id: str
    status: str
    """In the words of the provider, with how many requests are done."""
    ended: bool = False
    files: tuple[str, ...] = ()
    """Paths of its results."""
    failure: str = ""
    """Why no request of it was accepted; empty if some were."""
    cut_short: bool = False
    """Whether it expired or was cancelled: requests without a result were not answered."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of one request: an answer, an error, or none of them if it was not answered."""

    custom_id: str
    reply: dict[str, Any] | None = None
    error: CallError | None = None


class BatchService(Protocol):
    """Batches of one model."""

    most_requests: int
    most_bytes: int

    def request(self, custom_id: str, request: Request) -> tuple[bytes, bool]:
        """Return a request as it is submitted, and whether a tool gives its answer the form."""
        ...

    async def create(self, batch_id: str, requests: Sequence[bytes]) -> RemoteBatch:
        """Submit requests; raises CallError."""
        ...

    async def find(self, batch_id: str, count: int, others: frozenset[str]) -> RemoteBatch | None:
        """Return a batch that was submitted, by our id of it; raises CallError.

        None if it is not there. `others` are batches that are known to be another one.
        """
        ...

    async def check(self, remote_id: str) -> RemoteBatch:
        """Return the state of a batch; raises CallError."""
        ...

    async def fetch(self, remote: RemoteBatch, into: BinaryIO) -> None:
        """Write the results of a batch that has ended to a file; raises CallError."""
        ...

    def result(self, value: dict[str, Any]) -> BatchResult | None:
        """Return the result in a line; None if it is none."""
        ...

    def read(self, reply: dict[str, Any], latency_ms: int, *, formed: bool) -> Completion:
        """Return the answer in a reply; raises CallError."""
        ...


def read_lines(file: BinaryIO) -> Iterator[dict[str, Any] | None]:
    """Yield the JSON objects of a file of results, and None for every other line."""
    file.seek(0)
    while line := file.readline(MAX_REPLY_BYTES):
        if not line.strip():
            continue
        rest = b"" if line.endswith(b"\n") else file.readline(MAX_REPLY_BYTES)
        whole = not rest
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(MAX_REPLY_BYTES)
        yield _object(line) if whole else None


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _name(value: object) -> str:
    """Return the name of a batch or file, which becomes part of a path; raises CallError."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise bad_reply("has no valid name of a batch or file in it")
    return value


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _count(value: object, *names: str) -> int:
    counts = value if isinstance(value, dict) else {}
    values = [counts.get(name) for name in names]
    return sum(value for value in values if isinstance(value, int) and 0 <= value < 10**9)


class _Http:
    """Requests for JSON."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def get(self, path: str) -> dict[str, Any]:
        reply = await self.transport.send("GET", path)
        return parse_reply(reply.body, self.transport.scrub)

    async def post(self, path: str, body: bytes, kind: str = "application/json") -> dict[str, Any]:
        reply = await self.transport.send("POST", path, body, kind=kind)
        return parse_reply(reply.body, self.transport.scrub)


@dataclass(frozen=True, slots=True)
class OpenAIBatches:
    """Batches at OpenAI, or at a service with its protocol."""

    transport: Transport
    endpoint: str
    """Path of the calls, such as `/v1/chat/completions`."""
    body: Callable[[Request], dict[str, Any]]
    parse: Callable[[dict[str, Any], int], Completion]
    most_requests: int = 50_000
    most_bytes: int = 100_000_000

    def request(self, custom_id: str, request: Request) -> tuple[bytes, bool]:
        """Return the line of a request."""
        line = {
            "custom_id": custom_id,
            "method": "POST",
            "url": self.endpoint,
            "body": self.body(request),
        }
        return _as_json(line).encode(), False

    async def create(self, batch_id: str, requests: Sequence[bytes]) -> RemoteBatch:
        """Upload the requests as a file, and submit it; raises CallError."""
        http, mark = _Http(self.transport), secrets.token_hex(16)
        parts = [
            f'--{mark}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n',
            f'--{mark}\r\nContent-Disposition: form-data; name="file"; '
            f'filename="{batch_id}.jsonl"\r\nContent-Type: application/jsonl\r\n\r\n',
        ]
        data = "".join(parts).encode() + b"\n".join(requests) + f"\r\n--{mark}--\r\n".encode()
        try:
            file = await http.post("/files", data, f"multipart/form-data; boundary={mark}")
        except CallError as error:
            error.charged = False  # a file alone costs nothing
            raise
        batch = {
            "input_file_id": _name(file.get("id")),
            "endpoint": self.endpoint,
            "completion_window": f"{WINDOW_H}h",
            "metadata": {_METADATA: batch_id},
        }
        return self._remote(await http.post("/batches", _as_json(batch).encode()))

    async def find(self, batch_id: str, count: int, others: frozenset[str]) -> RemoteBatch | None:
        """Return the batch with our id in its metadata, if there is one."""
        after = ""
        for _ in range(_MOST_PAGES):
            page = await _Http(self.transport).get(f"/batches?limit={_LISTED}{after}")
            batches = _objects(page.get("data"))
            for batch in batches:
                metadata = batch.get("metadata")
                if isinstance(metadata, dict) and metadata.get(_METADATA) == batch_id:
                    return self._remote(batch)
            if not page.get("has_more") or not batches:
                return None
            after = f"&after={_name(batches[-1].get('id'))}"
        raise bad_reply(f"lists more than {_LISTED * _MOST_PAGES:,} batches")

    async def check(self, remote_id: str) -> RemoteBatch:
        """Return the state of a batch."""
        return self._remote(await _Http(self.transport).get(f"/batches/{_name(remote_id)}"))

    def _remote(self, value: dict[str, Any]) -> RemoteBatch:
        status, counts = str(value.get("status"))[:40], value.get("request_counts")
        done = _count(counts, "completed", "failed")
        names = [value.get(key) for key in ("output_file_id", "error_file_id")]
        failure = ""
        if status == "failed":
            errors = value.get("errors")
            errors = {"error": errors.get("data") if isinstance(errors, dict) else errors}
            told = status_error(400, _as_json(errors).encode(), self.transport.scrub)
            failure = told.message
        return RemoteBatch(
            _name(value.get("id")),
            f"{status}, {done:,} of {_count(counts, 'total'):,} done",
            status in ("completed", "failed", "expired", "cancelled"),
            tuple(f"/files/{_name(name)}/content" for name in names if name),
            failure,
            status in ("expired", "cancelled"),
        )

    async def fetch(self, remote: RemoteBatch, into: BinaryIO) -> None:
        """Write the results and the errors to a file."""
        for path in remote.files:
            await self.transport.send("GET", path, into=into)
            into.write(b"\n")

    def result(self, value: dict[str, Any]) -> BatchResult | None:
        """Return the result in a line of a file of results or errors."""
        custom_id, response, error = (value.get(key) for key in ("custom_id", "response", "error"))
        if not isinstance(custom_id, str):
            return None
        if isinstance(response, dict):
            status, body = response.get("status_code"), response.get("body")
            if status == 200 and isinstance(body, dict):
                return BatchResult(custom_id, body)
            status = status if isinstance(status, int) and 400 <= status < 600 else 500
            failure = status_error(status, _as_json(body).encode(), self.transport.scrub)
            failure.charged = False  # only answers of a batch are charged
            return BatchResult(custom_id, error=failure)
        code = str(error.get("code")) if isinstance(error, dict) else ""
        if code in ("batch_expired", "batch_cancelled"):
            return BatchResult(custom_id)
        return BatchResult(custom_id, error=_refused(self.transport, error))

    def read(self, reply: dict[str, Any], latency_ms: int, *, formed: bool) -> Completion:
        """Return the answer in a reply."""
        return self.parse(reply, latency_ms)


def _refused(transport: Transport, error: object) -> CallError:
    failure = status_error(400, _as_json({"error": error}).encode(), transport.scrub)
    failure.charged = False
    return failure


_SERVER_ERRORS = ("api_error", "overloaded_error", "timeout_error", "rate_limit_error")


@dataclass(frozen=True, slots=True)
class AnthropicBatches:
    """Message batches at Anthropic."""

    transport: Transport
    body: Callable[[Request], dict[str, Any]]
    parse: Callable[..., Completion]
    is_formed: Callable[[dict[str, Any]], bool]
    most_requests: int = 100_000
    most_bytes: int = 100_000_000

    def request(self, custom_id: str, request: Request) -> tuple[bytes, bool]:
        """Return a request with its name."""
        params = self.body(request)
        line = {"custom_id": custom_id, "params": params}
        return _as_json(line).encode(), self.is_formed(params)

    async def create(self, batch_id: str, requests: Sequence[bytes]) -> RemoteBatch:
        """Submit all requests in one body; raises CallError."""
        body = b'{"requests":[' + b",".join(requests) + b"]}"
        return self._remote(await _Http(self.transport).post("/batches", body))

    async def find(self, batch_id: str, count: int, others: frozenset[str]) -> RemoteBatch | None:
        """Return the batch whose first result has our id, or one that may still become it."""
        page = await _Http(self.transport).get(f"/batches?limit={_LISTED}")
        open_one = None
        for batch in _objects(page.get("data")):
            counts = batch.get("request_counts")
            total = _count(counts, "processing", "succeeded", "errored", "canceled", "expired")
            if total != count or batch.get("id") in others:
                continue
            remote = self._remote(batch)
            if not remote.ended:
                open_one = open_one or remote
            elif await self._is_ours(remote, batch_id):
                return remote
        if open_one is not None:
            message = f"batch {open_one.id} may be this one; it is not finished"
            raise CallError(ErrorKind.PROVIDER_ERROR, message)
        return None

    async def _is_ours(self, remote: RemoteBatch, batch_id: str) -> bool:
        with TemporaryFile() as file:
            await self.fetch(remote, file)
            for value in read_lines(file):
                return str((value or {}).get("custom_id")).startswith(f"{batch_id}-")
        return False

    async def check(self, remote_id: str) -> RemoteBatch:
        """Return the state of a batch."""
        return self._remote(await _Http(self.transport).get(f"/batches/{_name(remote_id)}"))

    def _remote(self, value: dict[str, Any]) -> RemoteBatch:
        name, status = _name(value.get("id")), str(value.get("processing_status"))[:40]
        counts = value.get("request_counts")
        done = _count(counts, "succeeded", "errored", "canceled", "expired")
        total = done + _count(counts, "processing")
        return RemoteBatch(
            name,
            f"{status}, {done:,} of {total:,} done",
            status == "ended",
            (f"/batches/{name}/results",),
        )

    async def fetch(self, remote: RemoteBatch, into: BinaryIO) -> None:
        """Write the results to a file."""
        for path in remote.files:
            await self.transport.send("GET", path, into=into)

    def result(self, value: dict[str, Any]) -> BatchResult | None:
        """Return the result in a line."""
        custom_id, result = value.get("custom_id"), value.get("result")
        if not isinstance(custom_id, str) or not isinstance(result, dict):
            return None
        kind, message = result.get("type"), result.get("message")
        if kind == "succeeded" and isinstance(message, dict):
            return BatchResult(custom_id, message)
        if kind in ("canceled", "expired"):
            return BatchResult(custom_id)
        error = result.get("error")
        inner = error.get("error") if isinstance(error, dict) else None
        named = inner.get("type") if isinstance(inner, dict) else None
        status = 500 if named in _SERVER_ERRORS else 400
        failure = status_error(status, _as_json(error).encode(), self.transport.scrub)
        failure.charged = False  # only answers of a batch are charged
        return BatchResult(custom_id, error=failure)

    def read(self, reply: dict[str, Any], latency_ms: int, *, formed: bool) -> Completion:
        """Return the answer in a reply."""
        return self.parse(reply, latency_ms, formed=formed)
