"""An endpoint of the user answers as a model: its own body, and its own places in the reply."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.trust import TrustFile
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.errors import TrustError
from edison_ci.providers.adapters import provider_for
from edison_ci.providers.application import at
from tests.providers.kitchen import KEY, ask, model, refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.records import Completion


class Endpoint:
    """A service with a form of its own."""

    def __init__(self) -> None:
        self.reply: Any = {"answer": {"text": "Hello."}}
        self.status = 200
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.names: list[list[str]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                endpoint.bodies.append(json.loads(self.rfile.read(size)))
                endpoint.headers.append({k.lower(): v for k, v in self.headers.items()})
                endpoint.names.append([name.lower() for name in self.headers])
                self.send_response(endpoint.status)
                self.end_headers()
                reply = endpoint.reply
                self.wfile.write(reply if isinstance(reply, bytes) else json.dumps(reply).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/ask"

    def answer(
        self, options: str, key: str = "", *, trust: TrustFile | None = None, **asked: Any
    ) -> Completion:
        entry = f"{{provider: http, base_url: '{self.url}', options: {options}{key}}}"

        async def call() -> Completion:
            provider = provider_for(model(entry), environ={"APP_KEY": KEY}, trust=trust)
            try:
                return await provider.complete(ask(**asked))
            finally:
                await provider.aclose()  # type: ignore[attr-defined]  # it has connections

        return asyncio.run(call())


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    service = Endpoint()
    thread = threading.Thread(target=service.server.serve_forever)
    thread.start()
    yield service
    service.server.shutdown()
    thread.join()
    service.server.server_close()


WHOLE = """{body: {q: "Q: {{ prompt }}", all: "{{ messages }}", heat: "{{ params.temperature }}",
 fixed: [1, true]}, text: answer.text, usage: {in: used.0, out: used.1, cost_usd: bill.usd},
 context: docs}"""


def test_the_body_is_filled_in_and_the_reply_is_read(endpoint: Endpoint) -> None:
    endpoint.reply = {
        "answer": {"text": "Hi."},
        "used": [7, 2],
        "bill": {"usd": 0.25},
        "docs": ["a"],
    }
    params: Any = {"temperature": 0.5}
    found = endpoint.answer(WHOLE, text='say "hi"', system="Be kind.", params=params)
    assert (found.text, found.tokens_in, found.tokens_out) == ("Hi.", 7, 2)
    assert (found.cost_microusd, found.details) == (250_000, {"context": ["a"]})
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": 'say "hi"'},
    ]
    expected = {"q": 'Q: say "hi"', "all": messages, "heat": 0.5, "fixed": [1, True]}
    assert endpoint.bodies == [expected]
    assert "authorization" not in endpoint.headers[0]


def test_a_key_is_sent_as_bearer_or_where_a_header_has_it(endpoint: Endpoint) -> None:
    endpoint.reply = {"text": "Hi."}
    endpoint.answer("{body: {}}", ", key_env: APP_KEY")
    endpoint.answer("{body: {}, headers: {X-Key: 'k {{ key }}'}}", ", key_env: APP_KEY")
    first, second = endpoint.headers
    assert first["authorization"] == f"Bearer {KEY}"
    assert second["x-key"] == f"k {KEY}"
    assert "authorization" not in second


def test_a_header_in_other_letters_is_not_sent_beside_ours(endpoint: Endpoint) -> None:
    endpoint.reply = {"text": "Hi."}
    headers = "{user-agent: own, AUTHORIZATION: Basic abc, content-Type: text/plain}"
    trust = TrustFile.model_validate(
        {
            "keys": [{"env": "APP_KEY", "hosts": [endpoint.url.removesuffix("/ask")]}],
            "services": [
                {
                    "host": endpoint.url.removesuffix("/ask"),
                    "paths": ["/ask"],
                    "headers": ["CONTENT-TYPE"],
                }
            ],
        }
    )
    endpoint.answer(f"{{body: {{}}, headers: {headers}}}", ", key_env: APP_KEY", trust=trust)
    (names,), (sent,) = endpoint.names, endpoint.headers
    assert len(names) == len({*names})
    assert (sent["user-agent"], sent["content-type"]) == ("own", "text/plain")
    assert sent["authorization"] == f"Bearer {KEY}"


def test_a_header_of_no_list_is_not_sent_without_trust(endpoint: Endpoint) -> None:
    with pytest.raises(TrustError, match="may not send the header X-Role"):
        endpoint.answer("{body: {}, headers: {X-Role: admin}}")
    assert endpoint.headers == []


@pytest.mark.parametrize("paths", [[], ["/other"], ["/as"], ["/ask/more"]])
def test_a_key_is_sent_to_no_path_that_trust_does_not_name(
    endpoint: Endpoint, paths: list[str]
) -> None:
    host = endpoint.url.removesuffix("/ask")
    trust = TrustFile.model_validate(
        {
            "keys": [{"env": "APP_KEY", "hosts": [host]}],
            "services": [{"host": host, "paths": paths}],
        }
    )
    with pytest.raises(TrustError, match="would send APP_KEY to /ask of"):
        endpoint.answer("{body: {}}", ", key_env: APP_KEY", trust=trust)
    assert endpoint.headers == []


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"error": "out of credit"}, "the service says: out of credit"),
        ({"answer": 5}, "the reply has no text at text"),
        (b"<html>", "the reply is a web page, perhaps of a proxy"),
        ([], "the reply has no text at text"),
        (b"[" * 100_000, "the reply is not JSON"),
    ],
)
def test_another_reply_is_an_error_of_the_call(endpoint: Endpoint, reply: Any, said: str) -> None:
    endpoint.reply = reply
    with pytest.raises(CallError, match=said) as caught:
        endpoint.answer("{body: {}}")
    assert caught.value.kind is ErrorKind.BAD_RESPONSE


def test_a_status_is_the_error_that_it_means(endpoint: Endpoint) -> None:
    endpoint.status, endpoint.reply = 429, {"error": "slow down"}
    with pytest.raises(CallError) as caught:
        endpoint.answer("{body: {}}")
    assert caught.value.kind is ErrorKind.RATE_LIMIT


@pytest.mark.parametrize(
    ("place", "found"),
    [("a.b", 1), ("a.c", None), ("l.0", "x"), ("l.-1", "y"), ("l.9", None), ("l.x", None),
     ("a.b.c", None), ("a", {"b": 1})],
)  # fmt: skip
def test_a_place_in_a_reply(place: str, found: Any) -> None:
    assert at({"a": {"b": 1}, "l": ["x", "y"]}, place) == found


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("{}", "body"),
        ("{body: {q: '{{ promt }}'}}", "a body has no variable 'promt'"),
        ("{body: {q: '{{ prompt'}}", "{{ prompt"),
        ("{body: {}, text: 'a..b'}", "a place in a reply"),
        ("{body: {}, txt: a}", "txt"),
    ],
)
def test_options_that_cannot_work_are_refused(options: str, said: str) -> None:
    problems = refused(f"{{provider: http, base_url: 'https://a.example/x', options: {options}}}")
    assert any(said in problem for problem in problems), problems
