"""Where a model may not be."""

from __future__ import annotations

import socket
from itertools import product

import pytest

from edison_ci.config.trust import TrustFile
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.errors import UsageError
from edison_ci.providers.adapters import provider_for
from edison_ci.providers.openai_compatible import OpenAICompatible
from edison_ci.providers.transport import Reach, Service, Transport, refusal_reason
from tests.loopback.server import LoopbackServer
from tests.providers.kitchen import KEY, ask, model, refused

OFF_LIMITS = (
    "169.254.169.254", "169.254.170.2", "2852039166", "0xa9fea9fe", "0xA9.0xFE.0xA9.0xFE",
    "0251.0376.0251.0376", "169.16689662", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]", "[::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[fe80::1]", "[fe80::1%25eth0]",
    "[fd00:ec2::254]", "168.63.129.16", "100.100.100.200", "metadata.google.internal",
    "Metadata.Google.Internal.", "metadata",
)  # fmt: skip
WIDE = (
    "\uff11\uff16\uff19.254.169.254", "169\u3002254\u3002169\u3002254", "169\uff0e254.169.254",
    "169\uff61254.169.254", "\u2460\u2465\u2468.254.169.254", "metadata\u3002google.internal",
    "api.\u043epenai.com", "169%2e254%2e169%2e254", "%6cocalhost", "localhost%2E",
)  # fmt: skip
NEARBY = ("localhost", "me.localhost", "127.0.0.1", "2130706433", "0x7f.1", "[::1]", "0.0.0.0",
          "10.0.0.5", "172.16.3.4", "192.168.1.20", "100.64.0.1", "[fd12:3456::1]",
          "[::ffff:10.0.0.5]", "[64:ff9b::a00:5]", "[2002:a00:5::1]")  # fmt: skip
PUBLIC = ("gpu.lan", "api.openai.com", "metadata.example.com", "169.253.1.1", "8.8.8.8",
          "[2606:4700::1111]", "")  # fmt: skip
LAPTOP: dict[str, str] = {"CI": "false"}
JOBS = ({"CI": "true"}, {"CI": "1"}, {"GITHUB_ACTIONS": "true"}, {"GITHUB_EVENT_NAME": "push"})


def at(host: str, *more: str) -> str:
    written = ", ".join(("provider: openai_compatible, model: x", *more))
    return f"{{{written}, base_url: 'http://{host}/v1'}}"


def test_metadata_services_are_off_limits_however_they_are_written(
    subtests: pytest.Subtests,
) -> None:
    for key, host in product(["", "key_env: K"], OFF_LIMITS):
        with subtests.test(key=key, host=host):
            named = TrustFile.model_validate({"hosts": ["http://169.254.169.254"]})
            trust = None if key else named  # without one: as validation has let the key through
            assert refusal_reason(host, Reach.NEARBY)
            assert refusal_reason(host, Reach.PUBLIC)
            with pytest.raises(
                UsageError, match=r"is at .*, which is (?:a link-local|the metadata service)"
            ):
                provider_for(
                    model(at(host, *([key] if key else []))), environ={"K": KEY}, trust=trust
                )


def test_a_host_in_other_letters_is_refused(subtests: pytest.Subtests) -> None:
    for host in WIDE:
        with subtests.test(host=host):
            assert "could be read as another host" in refusal_reason(host, Reach.NEARBY)
            (problem,) = refused(at(host))
            assert "the host of base_url has letters" in problem
            one = model("{provider: ollama, model: x, base_url_env: OLLAMA_URL}")
            with pytest.raises(UsageError, match="could be read as another"):
                provider_for(one, environ={"OLLAMA_URL": f"http://{host}/v1"})


def test_this_machine_and_private_networks_are_fine_where_trust_names_them_or_on_a_laptop(
    subtests: pytest.Subtests,
) -> None:
    for host in NEARBY:
        with subtests.test(host=host):
            one = model(at(host))
            provider_for(one, environ=LAPTOP)
            trust = TrustFile.model_validate({"hosts": [f"http://{host}"]})
            for job in JOBS:
                with pytest.raises(
                    UsageError, match=r"private network; in CI such hosts must be listed"
                ):
                    provider_for(one, environ=job)
                provider_for(one, environ=job, trust=trust)


@pytest.mark.parametrize("host", PUBLIC)
def test_other_hosts_are_fine_everywhere(host: str) -> None:
    assert refusal_reason(host, Reach.PUBLIC) == ""


def test_an_address_of_the_environment_is_looked_at_too() -> None:
    one = model("{provider: ollama, model: x, base_url_env: OLLAMA_URL}")
    with pytest.raises(UsageError, match="link-local"):
        provider_for(one, environ={"OLLAMA_URL": "http://169.254.169.254/v1"})
    near = {"OLLAMA_URL": "http://192.168.1.20:11434/v1"}
    provider_for(one, environ=near)
    with pytest.raises(UsageError, match="private network"):
        provider_for(one, environ={**near, "CI": "true"})


@pytest.mark.parametrize(
    ("found", "reach", "reason"),
    [
        ("169.254.169.254", Reach.NEARBY, "is a link-local address"),
        ("::ffff:169.254.169.254", Reach.NEARBY, "is a link-local address"),
        ("169.254.169.254", Reach.PUBLIC, "is a link-local address"),
        ("127.0.0.1", Reach.PUBLIC, "is this machine or in a private network"),
        ("10.1.2.3", Reach.PUBLIC, "is this machine or in a private network"),
    ],
)
async def test_a_name_that_leads_to_one_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, found: str, reach: Reach, reason: str
) -> None:
    def resolved(host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        assert host == "model.example"
        family = socket.AF_INET6 if ":" in found else socket.AF_INET
        rest = (0, 0) if ":" in found else ()
        return [(family, socket.SOCK_STREAM, 6, "", (found, port, *rest))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    service = Service("http://model.example/v1/chat/completions", {}, reach=reach)
    provider = OpenAICompatible(Transport(service))
    try:
        with pytest.raises(CallError, match=reason) as caught:
            await provider.complete(ask())
    finally:
        await provider.aclose()
    assert (caught.value.kind, caught.value.charged) == (ErrorKind.BAD_REQUEST, False)


async def test_an_address_in_digits_is_held_to_it_too() -> None:
    """Nothing is looked up for it, so whoever looks up names would not see it."""
    with LoopbackServer() as server:
        service = Service(f"{server.openai_url}/chat/completions", {}, reach=Reach.PUBLIC)
        provider = OpenAICompatible(Transport(service))
        try:
            with pytest.raises(CallError, match="private network"):
                await provider.complete(ask())
        finally:
            await provider.aclose()
        assert server.requests == []
