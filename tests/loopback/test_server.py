"""The server itself: deterministic answers, an exact ledger, and faults as scripted."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import ROOT
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

BODY = {"model": "m", "messages": [{"role": "user", "content": "Say hello."}]}


def post(server: LoopbackServer, path: str = "/v1/chat/completions", body: Any = None) -> Any:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=PATIENCE_S)
    try:
        connection.request("POST", path, json.dumps(body or BODY))
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()
    finally:
        connection.close()


def test_answers_depend_on_the_messages_alone() -> None:
    with LoopbackServer() as server:
        first, second = post(server)[2], post(server)[2]
        other = post(server, body={**BODY, "messages": [{"role": "user", "content": "?"}]})[2]
    assert first == second
    assert json.loads(first)["choices"][0]["message"]["content"].startswith("The answer is ")
    assert other != first


def test_every_charged_request_is_in_the_ledger(tmp_path: Path) -> None:
    with LoopbackServer([rule(number=2, status=500)], ledger=tmp_path / "l") as server:
        for _ in range(3):
            post(server)
        rows, total = server.ledger_rows(), server.ledger_total()
    assert [row["number"] for row in rows] == [1, 3]
    assert {row["fingerprint"] for row in rows} == {rows[0]["fingerprint"]}
    assert total == 2 * (2 * 1 + 4 * 2)


def test_rules_fit_by_number_content_and_count() -> None:
    script = [rule(contains="hello", times=1, status=429), rule(number=[3], do="html")]
    with LoopbackServer(script) as server:
        got = [post(server) for _ in range(4)]
    assert [status for status, _, _ in got] == [429, 200, 200, 200]
    assert got[2][2].startswith(b"<!DOCTYPE")


def test_a_storm_ends_after_its_time() -> None:
    storm = rule(for_s=0.2, status=429)
    assert [storm.fits(2, "m", "", elapsed_s) for elapsed_s in (0.0, 0.19, 0.2)] == [1, 1, 0]
    with LoopbackServer([storm]) as server:
        assert post(server)[0] == 429
        while post(server)[0] != 200:
            pass


@pytest.mark.parametrize("deed", ["close", "reset", "short", "bad_chunk", "garbage"])
def test_bad_wires_are_bad(deed: str) -> None:
    with LoopbackServer([rule(do=deed)]) as server:
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            post(server)
        assert server.ledger_total() == 10


def test_messages_of_anthropic_are_understood() -> None:
    with LoopbackServer() as server:
        status, _, body = post(server, "/v1/messages", {**BODY, "system": "Be kind."})
    assert status == 200
    assert json.loads(body)["content"][0]["text"].startswith("The answer is ")


def test_a_tool_is_called_and_json_is_given_when_asked_for() -> None:
    tool = {"type": "function", "function": {"name": "interim", "parameters": {}}}
    with LoopbackServer() as server:
        called = json.loads(post(server, body={**BODY, "tools": [tool]})[2])
        structured = json.loads(
            post(server, body={**BODY, "response_format": {"type": "json_object"}})[2]
        )
    call = called["choices"][0]["message"]["tool_calls"][0]["function"]
    assert call["name"] == "interim"
    assert "answer" in json.loads(structured["choices"][0]["message"]["content"])


def test_it_runs_as_a_process_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"number": 1, "status": 503}]))
    command = [sys.executable, "-m", "tests.loopback.server", "--ledger", str(tmp_path / "ledger")]
    with subprocess.Popen(
        [*command, "--script", str(script)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            url = f"http://127.0.0.1:{int(child.stdout.readline())}"
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE_S)
            statuses = []
            for _ in range(2):
                connection.request("POST", "/v1/chat/completions", json.dumps(BODY))
                response = connection.getresponse()
                response.read()
                statuses.append(response.status)
            connection.close()
            with urllib.request.urlopen(f"{url}/-/requests") as told:
                seen = json.loads(told.read())
        finally:
            child.kill()
    assert statuses == [503, 200]
    assert len((tmp_path / "ledger").read_text().splitlines()) == 1
    assert len(seen) == 3
