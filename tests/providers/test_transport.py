"""Real HTTP, good and bad: what arrives, what it is called, and whether it may be charged."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.openai_compatible import OpenAICompatible
from edison_ci.providers.transport import (
    MAX_REPLY_BYTES,
    Service,
    Transport,
    is_loopback,
    proxy_for,
)
from tests.conftest import ROOT
from tests.loopback.fixture import loopback
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.ports import held_port
from tests.providers.kitchen import KEY, ask, certificate
from tests.timing import PATIENCE_S, poll

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from edison_ci.records import Completion

    Asking = Callable[..., Any]

__all__ = ["loopback"]

HEADERS = {"Authorization": f"Bearer {KEY}"}


def provider(url: str, **values: Any) -> OpenAICompatible:
    service = Service(f"{url}/v1/chat/completions", HEADERS, (KEY,), **values)
    return OpenAICompatible(Transport(service))


async def until(fact: Callable[[], bool]) -> None:
    """Wait for a fact about the server, which runs in another thread."""
    await asyncio.to_thread(poll, "the server says so", fact)


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    """Ask a server one question, or expect a failure; everything is closed in the end."""
    made: list[OpenAICompatible] = []

    async def asked(server: LoopbackServer, **values: Any) -> Completion | CallError:
        made.append(provider(server.url, **values))
        try:
            return await made[-1].complete(ask())
        except CallError as error:
            return error

    yield asked
    for one in made:
        await one.aclose()


# --- faults -------------------------------------------------------------------------------------

FAULTS = [
    # deed, kind, retried, what the message says
    ("close", ErrorKind.NETWORK, True, "interrupted"),
    ("reset", ErrorKind.NETWORK, True, "interrupted"),
    ("truncate", ErrorKind.BAD_RESPONSE, True, "not JSON"),
    ("short", ErrorKind.BAD_RESPONSE, True, "truncated"),
    ("bad_chunk", ErrorKind.BAD_RESPONSE, True, "truncated"),
    ("html", ErrorKind.BAD_RESPONSE, True, "web page, perhaps of a proxy"),
    ("empty", ErrorKind.BAD_RESPONSE, True, "empty"),
    ("error_in_200", ErrorKind.BAD_RESPONSE, False, "the server had an error"),
    ("invalid_json", ErrorKind.BAD_RESPONSE, True, "not JSON"),
    ("wrong_schema", ErrorKind.BAD_RESPONSE, False, "no answer"),
    ("garbage", ErrorKind.BAD_RESPONSE, True, "corrupted"),
]


@pytest.mark.parametrize(("deed", "kind", "retried", "said"), FAULTS)
async def test_a_bad_reply_is_named_and_stays_booked(
    loopback: LoopbackServer, asking: Asking, deed: str, kind: ErrorKind, retried: bool, said: str
) -> None:
    loopback.script = [rule(do=deed)]
    error = await asking(loopback)
    assert isinstance(error, CallError)
    assert (error.kind, error.retried, error.charged) == (kind, retried, True)
    assert said in error.message
    assert len(loopback.requests) == 1, "only the retry loop asks again"


async def test_every_success_is_one(loopback: LoopbackServer, asking: Asking) -> None:
    loopback.script = [rule(status=201)]
    assert (await asking(loopback)).text.startswith("The answer is ")


IN_PLACE_OF_JSON = [
    ("\ufeff{}", "begins with a byte order mark, which JSON must not have"),
    ('data: {"choices": []}\n\ndata: [DONE]\n\n', "is an event stream in place of JSON"),
    ("event: message_start\ndata: {}\n\n", "is an event stream in place of JSON"),
    (": keep-alive\n\ndata: {}\n\n", "is an event stream in place of JSON"),
]


@pytest.mark.parametrize(("body", "said"), IN_PLACE_OF_JSON)
async def test_what_stands_in_place_of_json_is_named_and_not_asked_for_again(
    loopback: LoopbackServer, asking: Asking, body: str, said: str
) -> None:
    loopback.script = [rule(body=body)]
    error = await asking(loopback)
    assert f"the reply {said}" in error.message
    assert (error.kind, error.retried) == (ErrorKind.BAD_RESPONSE, False)


async def test_a_reply_cut_anywhere_is_garbled(
    subtests: pytest.Subtests, loopback: LoopbackServer, asking: Asking
) -> None:
    text = '{"choices": [{"message": {"content": "a\\u00e9b", "n": [1, -2.5e3, true, null]}}]}'
    for at in range(1, 60):
        with subtests.test(at=at):
            place = 1 + at * (len(text) - 2) // 60
            loopback.script = [rule(body=text[:place])]
            assert (await asking(loopback)).garbled


async def test_a_connection_that_is_refused_was_not_charged(asking: Asking) -> None:
    with held_port() as port:
        one = provider(f"http://127.0.0.1:{port}")
        with pytest.raises(CallError, match="cannot connect") as caught:
            await one.complete(ask())
        await one.aclose()
    assert (caught.value.kind, caught.value.charged) == (ErrorKind.NETWORK, False)
    assert caught.value.retried


async def test_a_host_that_nobody_knows_was_not_charged() -> None:
    one = provider("http://no-such-host.invalid")
    with pytest.raises(CallError, match="cannot resolve") as caught:
        await one.complete(ask())
    await one.aclose()
    assert (caught.value.kind, caught.value.charged) == (ErrorKind.NETWORK, False)


@pytest.mark.parametrize("deed", ["hang", "dribble", "endless_wait"])
async def test_a_reply_that_does_not_come_times_out(
    loopback: LoopbackServer, asking: Asking, deed: str
) -> None:
    late = rule(latency_s=PATIENCE_S) if deed == "endless_wait" else rule(do=deed, interval_s=0.05)
    loopback.script = [late]
    # Long enough to be sent, which decides whether it was charged.
    error = await asking(loopback, timeout_s=1.5)
    assert (error.kind, error.charged, error.retried) == (ErrorKind.TIMEOUT, True, True)


@pytest.mark.nightly
async def test_a_connection_that_hangs_was_not_charged() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        # Nobody answers the greeting of TLS, so that nothing can be sent. A listener whose queue is
        # full would not do: some kernels let a caller believe that it is connected.
        waiting = provider(f"https://127.0.0.1:{deaf.getsockname()[1]}", timeout_s=5)
        with pytest.raises(CallError) as caught:
            await waiting.complete(ask())
        await waiting.aclose()
    found = caught.value
    assert (found.kind, found.charged) == (ErrorKind.TIMEOUT, False), found


async def test_a_call_that_is_cancelled_leaves_nothing_open(loopback: LoopbackServer) -> None:
    loopback.script = [rule(do="hang")]
    one = provider(loopback.url)
    task = asyncio.create_task(one.complete(ask()))
    await until(lambda: loopback.in_flight == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await one.aclose()
    await until(lambda: loopback.in_flight == 0)


@pytest.mark.nightly
@pytest.mark.parametrize("deed", ["endless", "gzip_bomb"])
async def test_a_reply_without_end_is_cut_at_the_cap(
    loopback: LoopbackServer, asking: Asking, deed: str
) -> None:
    loopback.script = [rule(do=deed)]
    tracemalloc.start()
    try:
        error = await asking(loopback)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (error.kind, error.charged) == (ErrorKind.BAD_RESPONSE, True)
    assert "20 MB" in error.message
    assert not error.retried
    assert peak < 3 * MAX_REPLY_BYTES


async def test_a_large_reply_under_the_cap_arrives(
    loopback: LoopbackServer, asking: Asking
) -> None:
    loopback.script = [rule(text="é" * 3_000_000)]
    answer = await asking(loopback)
    assert len(answer.text) == 3_000_000


async def test_a_compressed_reply_is_read(loopback: LoopbackServer, asking: Asking) -> None:
    loopback.script = [rule(do="gzip")]
    assert (await asking(loopback)).text.startswith("The answer is ")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"X-RateLimit-Reset-Tokens": "6m0s"}, 360),
        ({"Retry-After": "-1"}, None),
        ({}, None),
    ],
)
async def test_a_refusal_tells_when_to_come_back(
    loopback: LoopbackServer, asking: Asking, headers: dict[str, str], seconds: float | None
) -> None:
    loopback.script = [rule(status=429, headers=headers)]
    error = await asking(loopback)
    assert (error.kind, error.charged, error.status) == (ErrorKind.RATE_LIMIT, False, 429)
    assert error.retry_after_s == seconds
    assert loopback.ledger_total() == 0


# --- keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(
    loopback: LoopbackServer, asking: Asking, status: int
) -> None:
    with LoopbackServer() as other:
        target = f"{other.url}/v1/chat/completions?stolen={KEY}"
        loopback.script = [rule(status=status, do="status", headers={"Location": target})]
        error = await asking(loopback)
    assert other.requests == []
    assert (error.kind, error.charged, error.retried) == (ErrorKind.BAD_RESPONSE, False, False)
    assert other.url in error.message
    assert KEY not in str(error)


def chain(error: BaseException | None) -> str:
    """Return all that an exception and those behind it could show."""
    shown = ""
    while error is not None:
        shown += f"{error!s} {error!r} {vars(error)!r} "
        error = error.__cause__ or error.__context__
    return shown


@pytest.mark.parametrize(
    "deed", [deed for deed, *_ in FAULTS] + ["status", "redirect", "hang", "endless"]
)
async def test_no_failure_shows_the_key(
    loopback: LoopbackServer, caplog: pytest.LogCaptureFixture, deed: str
) -> None:
    body = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    loopback.script = [rule(do=deed, status=401, body=body, location=f"http://x/{KEY}")]
    one = provider(loopback.url, timeout_s=1.5)
    with caplog.at_level(logging.DEBUG), pytest.raises(CallError) as caught:
        await one.complete(ask())
    await one.aclose()
    assert loopback.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert "canary" not in chain(caught.value)
    assert "canary" not in caplog.text


def test_no_object_shows_the_key() -> None:
    service = Service("https://x/v1", HEADERS, (KEY,), proxy="http://me:secret@proxy:1")
    transport = Transport(service)
    shown = f"{service!r} {transport!r} {transport.scrub!r} {OpenAICompatible(transport)!r}"
    assert "canary" not in shown
    assert "secret" not in shown


# --- TLS and proxies ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "expired", "said"),
    [
        ("IP:127.0.0.1", False, ""),
        ("IP:127.0.0.1", True, "expired"),
        ("DNS:other.example", False, "mismatch"),
    ],
)
async def test_certificates_are_checked(
    tmp_path: Path, host: str, expired: bool, said: str
) -> None:
    made, key = certificate(tmp_path / "tls", host=host, expired=expired)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    with LoopbackServer(tls=context) as server:
        one = provider(server.url, ca_file=str(made))
        if not said:
            assert (await one.complete(ask())).text
        else:
            with pytest.raises(CallError, match=said) as caught:
                await one.complete(ask())
            assert (caught.value.kind, caught.value.charged) == (ErrorKind.NETWORK, False)
            assert server.requests == []
        await one.aclose()


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    made, key = certificate(tmp_path / "tls", host="IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    with LoopbackServer(tls=context) as server:
        one = provider(server.url)
        with pytest.raises(CallError, match="self-signed"):
            await one.complete(ask())
        await one.aclose()
        assert server.requests == []


CALLED_TWICE = """
import asyncio, sys, uvloop
from edison_ci.providers.transport import Service, Transport

async def call():
    asked = Transport(Service(sys.argv[1], {}))
    for _ in range(2):
        await asked.post(b"{}")
    await asked.aclose()

globals()[sys.argv[2]].run(call())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_certificates_of_the_system_are_trusted(tmp_path: Path, loop: str) -> None:
    made, key = certificate(tmp_path / "tls", host="IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    with LoopbackServer(tls=context) as server:
        done = subprocess.run(
            [sys.executable, "-c", CALLED_TWICE, f"{server.url}/v1/chat/completions", loop],
            env={**os.environ, "SSL_CERT_FILE": str(made)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert len(server.requests) == 2


@pytest.mark.parametrize("text", [None, "no certificate"])
async def test_certificates_that_cannot_be_read_are_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "own.pem").write_text(text)
    one = provider("https://model.example", ca_file=str(tmp_path / "own.pem"))
    with pytest.raises(CallError, match="SSL_CERT_FILE") as caught:
        await one.complete(ask())
    assert not caught.value.charged


PROXIES = [
    ("https://a.example/v1", {}, None),
    ("https://a.example/v1", {"https_proxy": "http://p:1"}, "http://p:1"),
    ("https://a.example/v1", {"HTTPS_PROXY": "p:1"}, "http://p:1"),
    ("https://a.example/v1", {"http_proxy": "http://p:1"}, None),
    ("http://a.example/v1", {"http_proxy": "http://p:1"}, "http://p:1"),
    ("https://a.example/v1", {"ALL_PROXY": "http://p:1"}, "http://p:1"),
    ("https://a.example/v1", {"https_proxy": "http://p:1", "no_proxy": "a.example"}, None),
    ("https://a.example/v1", {"https_proxy": "http://p:1", "NO_PROXY": "x, .example"}, None),
    ("https://a.example/v1", {"https_proxy": "http://p:1", "no_proxy": "*"}, None),
    ("https://ba.example/v1", {"https_proxy": "http://p:1", "no_proxy": "a.example"},
     "http://p:1"),
    ("http://127.0.0.1:11434/v1", {"http_proxy": "http://p:1"}, None),
]  # fmt: skip


def test_the_environments_proxies_are_honoured(subtests: pytest.Subtests) -> None:
    for url, environ, proxy in PROXIES:
        with subtests.test(url=url, environ=environ):
            assert proxy_for(url, environ) == proxy


async def test_calls_go_through_the_proxy(loopback: LoopbackServer) -> None:
    one = provider("http://model.example", proxy=loopback.url)
    answer = await one.complete(ask())
    await one.aclose()
    assert answer.text.startswith("The answer is ")
    assert loopback.requests[0].path == "http://model.example/v1/chat/completions"


async def test_a_proxy_that_is_not_there_was_not_charged() -> None:
    one = provider("http://model.example", proxy="http://127.0.0.1:9")
    with pytest.raises(CallError, match="proxy") as caught:
        await one.complete(ask())
    await one.aclose()
    assert (caught.value.kind, caught.value.charged) == (ErrorKind.NETWORK, False)


async def test_netrc_is_not_read(
    loopback: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    one = OpenAICompatible(Transport(Service(f"{loopback.openai_url}/chat/completions", {})))
    await one.complete(ask())
    await one.aclose()
    assert "authorization" not in loopback.requests[0].headers


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:1/v1", True),
        ("http://127.0.0.1", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:80", True),
        ("http://a.localhost", True),
        ("https://api.openai.com", False),
        ("http://127.0.0.1.example.com", False),
        ("http://10.0.0.1", False),
        ("", False),
    ],
)
def test_what_is_on_this_machine(url: str, here: bool) -> None:
    assert is_loopback(url) is here


# --- connections --------------------------------------------------------------------------------


async def test_connections_are_kept_and_as_many_as_are_needed(loopback: LoopbackServer) -> None:
    one = provider(loopback.url)
    loopback.script = [rule(latency_s=0.05)]
    for _ in range(3):
        await asyncio.gather(*(one.complete(ask(str(n))) for n in range(20)))
    await one.aclose()
    assert loopback.connections == 20
    assert loopback.peak == 20


async def test_cookies_are_not_kept(loopback: LoopbackServer) -> None:
    loopback.script = [rule(headers={"Set-Cookie": "session=1"})]
    one = provider(loopback.url)
    await one.complete(ask("a"))
    await one.complete(ask("b"))
    await one.aclose()
    assert "cookie" not in loopback.requests[1].headers


async def test_it_can_be_closed_twice_and_used_again(loopback: LoopbackServer) -> None:
    one = provider(loopback.url)
    await one.aclose()
    await one.complete(ask())
    await one.aclose()
    await one.aclose()


@pytest.mark.nightly
def test_aiohttp_is_imported_by_the_first_call_only() -> None:
    code = (
        "import sys, edison_ci.providers.adapters;"
        "assert not {'aiohttp', 'litellm', 'httpx'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=PATIENCE_S)
