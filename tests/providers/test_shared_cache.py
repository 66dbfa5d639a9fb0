"""An object of the shared cache is whole, or it is refused."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edison_ci import utc
from edison_ci.documents.signatures import Signer
from edison_ci.providers import shared_cache
from edison_ci.providers.budget import RunBudget
from edison_ci.providers.shared_cache import (
    CacheAccess,
    NotAnObject,
    RefusedObject,
    SharedCache,
    read_object,
    write_object,
)
from edison_ci.providers.transport import Service
from edison_ci.records import Completion, FinishReason
from edison_ci.store.answers import Settlement
from edison_ci.store.writer import Writer
from tests.cache_server import CacheServer
from tests.fixed_keys import signing_keys
from tests.respelled import respelled
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

HASH = hashlib.sha256(b"a request").hexdigest()
ANSWER = Completion(
    "Grüße, 東京\n",
    FinishReason.LENGTH,
    tokens_in=12,
    tokens_out=None,
    cached_in=3,
    latency_ms=40,
    served_model="m-2",
    tool_calls=[{"name": "f", "arguments": {"x": 1}}],
    left_out=("seed", "top_p"),
    details={"context": ["a"]},
)
BOUGHT = Settlement(ANSWER, 7, "estimated", "2026-01-02T03:04:05.678Z")
PAIR = signing_keys("ours")
WHOLE = write_object(HASH, BOUGHT, Signer(PAIR.private))


def test_an_answer_comes_back_as_it_was_bought() -> None:
    found = read_object(WHOLE, HASH, (PAIR.public,))
    assert (found.completion, found.cost_microusd, found.cost_kind) == (ANSWER, 7, "estimated")
    assert (found.created_at, found.trusted) == (BOUGHT.now, True)
    assert not read_object(WHOLE, HASH, (signing_keys("theirs").public,)).trusted
    assert not read_object(unsigned(WHOLE), HASH, (PAIR.public,)).trusted


def unsigned(data: bytes, **changed: object) -> bytes:
    value = {**json.loads(data.partition(b"\n")[2]), **changed}
    body = json.dumps(value).encode()
    return f"edison-answer 1 unsigned {hashlib.sha256(body).hexdigest()}\n".encode() + body


@pytest.mark.parametrize("data", [WHOLE, unsigned(WHOLE)], ids=["signed", "unsigned"])
def test_no_object_is_read_that_was_cut_off_or_changed(data: bytes) -> None:
    for length in range(1, len(data)):
        with pytest.raises(RefusedObject):
            read_object(data[:length], HASH, (PAIR.public,))
    for place in range(len(b"edison-answer 1 "), len(data)):
        other = bytearray(data)
        other[place] ^= 1
        with pytest.raises(RefusedObject):
            read_object(bytes(other), HASH, (PAIR.public,))


def test_no_object_is_read_whose_signature_or_key_is_spelled_another_way() -> None:
    head, _, body = WHOLE.partition(b"\n")
    start, key, signature = head.decode().rsplit(" ", 2)
    heads = [
        *(f"{start} {key} {text}" for text in respelled(signature)),
        *(f"{start} {text} {signature}" for text in respelled(key)),
    ]
    for text in heads:
        with pytest.raises(RefusedObject):
            read_object(b"%s\n%s" % (text.encode(errors="surrogatepass"), body), HASH, (key,))


def test_a_renamed_object_is_refused() -> None:
    with pytest.raises(RefusedObject, match="answers another request than its name says"):
        read_object(WHOLE, "0" * 64, (PAIR.public,))


@pytest.mark.parametrize("data", [b"", b"<html></html>", b"{}", b"edison-answer 2 unsigned\n{}"])
def test_what_is_no_object_at_all_is_told_apart(data: bytes) -> None:
    with pytest.raises(NotAnObject):
        read_object(data, HASH, (PAIR.public,))


REFUSED_VALUES: list[dict[str, object]] = [
    {"cost_microusd": 2**63},
    {"cost_microusd": -1},
    {"cost_kind": "replayed"},
    {"tokens_in": True},
    {"tokens_out": 1.5},
    {"latency_ms": None},
    {"text": None},
    {"text": "\ud800"},
    {"details": [float("nan")]},
    {"tool_calls": "f"},
    {"finish_reason": "tired"},
    {"left_out": ["two words"]},
    {"created_at": "yesterday"},
    {"more": 1},
]


def test_values_that_a_run_would_not_store_are_refused(subtests: pytest.Subtests) -> None:
    """Any of them would otherwise stop the thread that writes results."""
    for changed in REFUSED_VALUES:
        with subtests.test(changed=changed), pytest.raises(RefusedObject):
            read_object(unsigned(WHOLE, **changed), HASH, ())


def test_a_signature_of_something_else_is_not_one_of_an_answer() -> None:
    body = WHOLE.partition(b"\n")[2]
    signed = Signer(PAIR.private).sign(b"edison-ci results 1\n", hashlib.sha256(body).digest())
    head = f"edison-answer 1 ed25519 {signed.public} {signed.signature}\n"
    with pytest.raises(RefusedObject, match="does not fit its signature"):
        read_object(head.encode() + body, HASH, (PAIR.public,))


def test_writers_of_one_object_leave_one_that_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_cache, "FLUSH_S", PATIENCE_S)
    monkeypatch.setattr(shared_cache, "WRITE_S", PATIENCE_S)
    names = [hashlib.sha256(bytes([number])).hexdigest() for number in range(20)]
    said: list[str] = []

    async def write(url: str) -> None:
        now = utc.timestamp(utc.now())
        writer = Writer(tmp_path / "results.db")
        budget = RunBudget(writer, "run", "me", (), (), lambda: now, lambda _: True)
        service = Service(url.rstrip("/"), {})
        access = CacheAccess(service, signer=Signer(PAIR.private))
        caches = [SharedCache(access, budget, said.append, reads=False) for _ in range(3)]
        for name in names:
            for number, cache in enumerate(caches):
                completion = Completion(f"answer {number} " * 2_000)
                cache.offer(name, replace(BOUGHT, completion=completion))
        await asyncio.gather(*(cache.close() for cache in caches))

    with CacheServer() as server:
        asyncio.run(write(server.url))
        assert (said, server.count("PUT")) == ([], 3 * len(names))
        found = {name: read_object(server.objects[name], name, (PAIR.public,)) for name in names}
    assert all(answer.trusted for answer in found.values())


def test_an_answer_without_tools_and_tokens_is_an_answer() -> None:
    bare = replace(BOUGHT, completion=Completion(""), cost_kind="billed")
    data = write_object(HASH, bare, Signer(PAIR.private))
    assert read_object(data, HASH, (PAIR.public,)).completion == Completion("")
