"""Where a model without a key may not be."""

from __future__ import annotations

import socket

import pytest

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.errors import UsageError
from edison_ci.providers.adapters import provider_for
from edison_ci.providers.addresses import is_off_limits
from edison_ci.providers.openai_compatible import OpenAICompatible
from edison_ci.providers.transport import Service, Transport
from tests.providers.kitchen import KEY, ask, model

OFF_LIMITS = (
    "169.254.169.254", "169.254.170.2", "2852039166", "0xa9fea9fe", "0xA9.0xFE.0xA9.0xFE",
    "0251.0376.0251.0376", "169.16689662", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]", "[::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[fe80::1]", "[fe80::1%25eth0]",
    "[fd00:ec2::254]", "168.63.129.16", "100.100.100.200", "metadata.google.internal",
    "Metadata.Google.Internal.", "metadata",
)  # fmt: skip
FINE = (
    "localhost", "127.0.0.1", "2130706433", "[::1]", "0.0.0.0", "10.0.0.5", "172.16.3.4",
    "192.168.1.20", "[fd12:3456::1]", "gpu.lan", "api.openai.com", "metadata.example.com",
    "169.253.1.1", "",
)  # fmt: skip


@pytest.mark.parametrize("host", OFF_LIMITS)
def test_metadata_services_are_off_limits_however_they_are_written(host: str) -> None:
    assert is_off_limits(host)
    with pytest.raises(UsageError, match=r"has no key and is at .* link-local or"):
        provider_for(
            model(f"{{provider: openai_compatible, model: x, base_url: 'http://{host}/v1'}}")
        )


@pytest.mark.parametrize("host", FINE)
def test_this_machine_and_private_networks_are_fine(host: str) -> None:
    assert not is_off_limits(host)


def test_an_address_of_the_environment_is_looked_at_too() -> None:
    one = model("{provider: ollama, model: x, base_url_env: OLLAMA_URL}")
    with pytest.raises(UsageError, match="link-local"):
        provider_for(one, environ={"OLLAMA_URL": "http://169.254.169.254/v1"})
    provider_for(one, environ={"OLLAMA_URL": "http://192.168.1.20:11434/v1"})


async def test_a_name_that_leads_to_one_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolved(host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        assert host == "model.example"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    service = Service("http://model.example/v1/chat/completions", {}, guarded=True)
    provider = OpenAICompatible(Transport(service))
    try:
        with pytest.raises(CallError, match="is at a link-local address") as caught:
            await provider.complete(ask())
    finally:
        await provider.aclose()
    assert (caught.value.kind, caught.value.charged) == (ErrorKind.BAD_REQUEST, False)


async def test_a_model_with_a_key_is_held_to_the_trust_file_instead() -> None:
    one = model(
        "{provider: openai_compatible, model: x, base_url: 'http://169.254.10.1/v1', key_env: K}"
    )
    provider_for(one, environ={"K": KEY})  # without a trust file: as validation has let it through
