"""Which key may go to which host."""

from __future__ import annotations

import pytest

from edison_ci.config.trust import BUILT_IN, TrustedKey, TrustFile, origin
from tests.config.said import said


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://Host.Example/v1/chat", "https://host.example:443"),
        ("http://host.example", "http://host.example:80"),
        ("https://host.example:8443/", "https://host.example:8443"),
        ("HTTPS://host.example", "https://host.example:443"),
        ("http://[::1]:8080/v1", "http://[::1]:8080"),
    ],
)
def test_an_origin_is_scheme_host_and_port_in_one_form(address: str, expected: str) -> None:
    assert origin(address) == expected


TRUST = TrustFile.model_validate(
    {"keys": [{"env": "KEY", "hosts": ["https://host.example", "http://localhost:8080"]}]}
)


@pytest.mark.parametrize(
    ("env", "address", "allowed"),
    [
        ("KEY", "https://host.example/v1", True),
        ("KEY", "https://host.example:443/v1", True),
        ("KEY", "http://localhost:8080", True),
        ("KEY", "http://host.example", False),
        ("KEY", "https://host.example:444", False),
        ("KEY", "https://host.example.evil.example", False),
        ("KEY", "https://evil.example/host.example", False),
        ("KEY", "https://sub.host.example", False),
        ("OTHER", "https://host.example", False),
        ("OPENAI_API_KEY", "https://api.openai.com/v1", True),
        ("OPENAI_API_KEY", "https://api.anthropic.com", False),
        ("KEY", "https://api.openai.com", False),
    ],
)
def test_a_key_goes_to_exactly_the_hosts_it_is_allowed_to(
    env: str, address: str, allowed: bool
) -> None:
    assert TRUST.allows(env, address) is allowed


def test_the_built_in_pairs_can_be_switched_off() -> None:
    strict = TrustFile(builtin=False)
    for env, hosts in BUILT_IN.items():
        assert all(TrustFile().allows(env, host) for host in hosts)
        assert not any(strict.allows(env, host) for host in hosts)


@pytest.mark.parametrize(
    "host",
    [
        "host.example",
        "ftp://host.example",
        "https://",
        "https://host.example/v1",
        "https://user@host.example",
        "https://*.example",
        "https://host.example:",
        "https://host.example:0x50",
        "https://h\u00f6st.example",
        "https://host.example:99999",
        "http://[::::1]",
        " https://host.example",
    ],
)
def test_a_host_is_exact(host: str) -> None:
    (message,) = said(TrustedKey, f'env: KEY\nhosts: ["{host}"]\n')
    assert message.startswith("2:9: ")
    assert "write https://host:port" in message


@pytest.mark.parametrize(
    "host", ["https://host.example:65535", "http://[::1]", "http://10.0.0.1:80"]
)
def test_hosts_may_be_names_and_numbers(host: str) -> None:
    assert said(TrustedKey, f'env: KEY\nhosts: ["{host}"]\n') == []
