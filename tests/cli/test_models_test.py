"""edison models test: what is wrong with a model, told apart by one short call."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.api.sessions import run_context
from edison_ci.config.load import load_project
from edison_ci.execute.probe import PROBE_S, probe
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.providers.test_client import FakeTime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


@pytest.fixture
def project(mini: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Folder, str]]:
    monkeypatch.setenv("OWN_KEY", "k-123456789012")
    yield mini, "http://127.0.0.1:1"


def with_server(folder: Folder, url: str) -> None:
    folder.write(
        "models.yaml",
        f"small: {{provider: openai_compatible, base_url: '{url}', model: m, key_env: OWN_KEY, "
        "price: {in: 1, out: 2}, limits: {attempts: 1}}\njudge: {provider: sim, model: judge}\n",
    )
    origin = "/".join(url.split("/")[:3])
    folder.write(
        ".edison/trust.yaml", f"version: 1\nkeys:\n  - {{env: OWN_KEY, hosts: ['{origin}']}}\n"
    )


def told(edison: Edison, folder: Folder, *names: str) -> tuple[int, dict[str, Any]]:
    done = edison(folder, "models", "test", *names, "--json")
    return done.code, {one["name"]: one for one in json.loads(done.out)["models"]}


def test_a_model_that_answers_is_fine(edison: Edison, project: tuple[Folder, str]) -> None:
    folder, _ = project
    with LoopbackServer([]) as server:
        with_server(folder, server.openai_url)
        code, found = told(edison, folder, "small")
        assert (code, found["small"]["ok"], found["small"]["error"]) == (0, True, None)
        assert found["small"]["cost_microusd"] > 0
        assert server.requests[0].headers["authorization"] == "Bearer k-123456789012"
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, {"error": {"message": "Incorrect API key provided"}}, "INVALID_KEY"),
        (
            404,
            {"error": {"message": "no such model", "code": "model_not_found"}},
            "MODEL_NOT_FOUND",
        ),
        (429, {"error": {"message": "quota", "code": "insufficient_quota"}}, "QUOTA"),
    ],
)
def test_what_is_wrong_is_told_apart(
    edison: Edison, project: tuple[Folder, str], status: int, body: dict[str, Any], kind: str
) -> None:
    folder, _ = project
    with LoopbackServer([rule(status=status, body=json.dumps(body))]) as server:
        with_server(folder, server.openai_url)
        code, found = told(edison, folder, "small")
        assert code == 3
        assert found["small"]["error"]["code"] == kind
        done = edison(folder, "models", "test", "small")
        assert kind in done.out
        assert "k-123456789012" not in done.all


def test_a_host_that_is_not_there_is_no_network(
    edison: Edison, project: tuple[Folder, str]
) -> None:
    folder, url = project
    with_server(folder, f"{url}/v1")
    code, found = told(edison, folder, "small")
    assert (code, found["small"]["error"]["code"]) == (3, "NETWORK")


def test_a_wait_that_is_too_long_for_a_test_is_told_at_once(
    edison: Edison, project: tuple[Folder, str]
) -> None:
    folder, _ = project
    body = json.dumps({"error": {"message": "Slow down"}})
    busy = rule(status=429, body=body, headers={"retry-after": "90"})
    with LoopbackServer([busy]) as server:
        with_server(folder, server.openai_url)
        code, found = told(edison, folder, "small")
        assert len(server.requests) == 1
    assert code == 3
    assert found["small"]["error"] == {"code": "RATE_LIMIT", "message": "Slow down (HTTP 429)"}


def test_all_models_are_tested_within_one_deadline(project: tuple[Folder, str]) -> None:
    folder, _ = project
    time = FakeTime()
    with LoopbackServer([rule(status=429, headers={"retry-after": "25"})]) as server:
        with_server(folder, server.openai_url)
        loaded = load_project(folder.path)
        context = replace(run_context(loaded), clock=time.clock())
        found = {one.model.name: one for one in probe(loaded, [*loaded.models.values()], context)}
        assert len(server.requests) == 3
    assert found["small"].error == "RATE_LIMIT"
    assert not found["judge"].error
    assert time.now <= PROBE_S


def test_a_key_that_is_not_set_is_named(
    edison: Edison, project: tuple[Folder, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = project
    monkeypatch.delenv("OWN_KEY")
    with_server(folder, f"{url}/v1")
    code, found = told(edison, folder, "small")
    assert (code, found["small"]["error"]["code"]) == (3, "NO_KEY")
    assert "OWN_KEY" in found["small"]["error"]["message"]


def test_an_unknown_model_gets_the_nearest(edison: Edison, project: tuple[Folder, str]) -> None:
    done = edison(project[0], "models", "test", "smal")
    assert (done.code, "did you mean 'small'?" in done.err) == (2, True)
