"""Which key may go to which host."""

from __future__ import annotations

import base64

import pytest
from pydantic import ValidationError

from edison_ci.config.trust import BUILT_IN, TrustFile, origin
from edison_ci.config.trust_entries import TrustedKey
from tests.config.said import said
from tests.respelled import respelled


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

ALLOWED = [
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
]


def test_a_key_goes_to_exactly_the_hosts_it_is_allowed_to(subtests: pytest.Subtests) -> None:
    for env, address, allowed in ALLOWED:
        with subtests.test(env=env, address=address):
            assert TRUST.allows(env, address, "openai_compatible") is allowed


OWN = {
    "OPENAI_API_KEY": "https://api.openai.com/v1",
    "ANTHROPIC_API_KEY": "https://api.anthropic.com",
    "GEMINI_API_KEY": "https://generativelanguage.googleapis.com",
    "MISTRAL_API_KEY": "https://api.mistral.ai",
    "GROQ_API_KEY": "https://api.groq.com",
    "DEEPSEEK_API_KEY": "https://api.deepseek.com",
    "TOGETHER_API_KEY": "https://api.together.ai",
    "FIREWORKS_API_KEY": "https://api.fireworks.ai",
    "XAI_API_KEY": "https://api.x.ai",
    "COHERE_API_KEY": "https://api.cohere.com",
    "OPENROUTER_API_KEY": "https://openrouter.ai",
    "ABLIT_KEY": "https://api.abliteration.ai",
    "AI21_API_KEY": "https://api.ai21.com",
    "AIML_API_KEY": "https://api.aimlapi.com",
    "DASHSCOPE_API_KEY": "https://dashscope-intl.aliyuncs.com",
    "ATLASCLOUD_API_KEY": "https://api.atlascloud.ai",
    "CEREBRAS_API_KEY": "https://api.cerebras.ai",
    "COMETAPI_KEY": "https://api.cometapi.com",
    "HF_TOKEN": "https://router.huggingface.co",
    "HYPERBOLIC_API_KEY": "https://api.hyperbolic.xyz",
    "LLAMA_API_KEY": "https://api.llama.com",
    "MINIMAX_API_KEY": "https://api.minimax.io",
    "MOONSHOT_API_KEY": "https://api.moonshot.ai",
    "NOVITA_API_KEY": "https://api.novita.ai",
    "NSCALE_SERVICE_TOKEN": "https://inference.api.nscale.com",
    "NVIDIA_API_KEY": "https://integrate.api.nvidia.com",
    "ORCAROUTER_API_KEY": "https://api.orcarouter.ai",
    "PERPLEXITY_API_KEY": "https://api.perplexity.ai",
    "PORTKEY_API_KEY": "https://api.portkey.ai",
    "TRUEFOUNDRY_API_KEY": "https://llm-gateway.truefoundry.com",
    "VERCEL_AI_GATEWAY_API_KEY": "https://ai-gateway.vercel.sh",
    "AWS_ACCESS_KEY_ID": "https://bedrock-runtime.eu-central-1.amazonaws.com",
    "AWS_SECRET_ACCESS_KEY": "https://bedrock-runtime.us-gov-west-1.amazonaws.com",
    "AWS_SESSION_TOKEN": "https://bedrock-runtime.ap-southeast-2.amazonaws.com",
    "GOOGLE_APPLICATION_CREDENTIALS": "https://europe-west12-aiplatform.googleapis.com",
}


def test_a_known_key_goes_to_its_vendor_by_its_providers_unless_switched_off() -> None:
    assert OWN.keys() == BUILT_IN.keys()
    for env, host in OWN.items():
        for provider in (
            "openai",
            "anthropic",
            "azure",
            "ollama",
            "vertex",
            "bedrock",
            "openai_compatible",
            "litellm",
        ):
            allowed = provider in BUILT_IN[env].providers
            assert TrustFile().allows(env, host, provider) is allowed, (env, provider)
            assert not TrustFile(builtin=False).allows(env, host, provider)


NOT_THE_VENDOR = [
    ("AWS_SECRET_ACCESS_KEY", "openai_compatible", OWN["AWS_SECRET_ACCESS_KEY"]),
    ("AWS_SECRET_ACCESS_KEY", "litellm", OWN["AWS_SECRET_ACCESS_KEY"]),
    *(
        ("AWS_SECRET_ACCESS_KEY", "bedrock", f"https://{host}")
        for host in (
            "abc123.execute-api.eu-central-1.amazonaws.com",
            "bucket.s3.amazonaws.com",
            "bedrock-runtime.evil.amazonaws.com",
            "bedrock-runtime.eu-central-1.evil.amazonaws.com",
            "bedrock-runtime.eu-central-1.amazonaws.com.evil.example",
            "x-bedrock-runtime.eu-central-1.amazonaws.com",
            "bedrock-runtime.eu-central-1.amazonaws.com:8443",
            "bedrock-runtimexeu-central-1.amazonaws.com",
            "evil.example/bedrock-runtime.eu-central-1.amazonaws.com",
            "evil.example#.bedrock-runtime.eu-central-1.amazonaws.com",
            "bedrock-runtime.eu-central-1.amazonaws.com@evil.example",
        )
    ),
    ("AWS_SECRET_ACCESS_KEY", "bedrock", OWN["AWS_SECRET_ACCESS_KEY"].replace("https", "http")),
    (
        "GOOGLE_APPLICATION_CREDENTIALS",
        "openai_compatible",
        "https://aiplatform.googleapis.com",
    ),
    ("GOOGLE_APPLICATION_CREDENTIALS", "vertex", "https://evilaiplatform.googleapis.com"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "vertex", "https://evil-aiplatform.googleapis.com"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "vertex", "https://storage.googleapis.com"),
    ("AZURE_OPENAI_API_KEY", "azure", "https://evil.openai.azure.com"),
    ("AZURE_OPENAI_API_KEY", "azure", "https://evil.cognitiveservices.azure.com"),
    ("OPENAI_API_KEY", "openai", "https://api.openai.com.evil.example"),
    ("OPENAI_API_KEY", "openai", "https://apixopenai.com"),
    ("OPENAI_API_KEY", "openai", "https://api\u3002openai\uff0ecom"),
    ("OPENAI_API_KEY", "openai", "http://api.openai.com"),
]


def test_a_domain_that_anybody_may_have_a_host_in_is_no_vendor(subtests: pytest.Subtests) -> None:
    for env, provider, address in NOT_THE_VENDOR:
        with subtests.test(env=env, provider=provider, address=address):
            assert not TrustFile().allows(env, address, provider)


def test_hosts_for_models_without_a_key_are_named_exactly() -> None:
    trust = TrustFile.model_validate({"hosts": ["http://10.0.0.5:8000"]})
    assert trust.names("http://10.0.0.5:8000/v1")
    assert not trust.names("http://10.0.0.5/v1")
    assert not trust.names("https://10.0.0.5:8000")
    assert not trust.names("")
    assert not trust.allows("OPENAI_API_KEY", "http://10.0.0.5:8000", "openai")
    assert TRUST.names("http://localhost:8080/v1"), "a host that may have a key may be called"
    assert not TRUST.names("https://api.openai.com")


INEXACT_HOSTS = [
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
]


def test_a_host_is_exact(subtests: pytest.Subtests) -> None:
    for host in INEXACT_HOSTS:
        with subtests.test(host=host):
            (message,) = said(TrustedKey, f'env: KEY\nhosts: ["{host}"]\n')
            assert message.startswith("2:9: ")
            assert "write https://host:port" in message


@pytest.mark.parametrize(
    "host", ["https://host.example:65535", "http://[::1]", "http://10.0.0.1:80"]
)
def test_hosts_may_be_names_and_numbers(host: str) -> None:
    assert said(TrustedKey, f'env: KEY\nhosts: ["{host}"]\n') == []


def test_a_public_key_is_listed_in_one_spelling() -> None:
    """Whoever removes a key would otherwise leave it there, spelled another way."""
    key = base64.b64encode(bytes(range(32))).decode()
    trust = TrustFile.model_validate({"results": {"public_keys": [key]}})
    assert trust.results.public_keys == (key,)
    for text in respelled(key):
        try:
            TrustFile.model_validate({"results": {"public_keys": [text]}})
        except ValidationError:
            continue
        assert base64.b64decode(text) != bytes(range(32)), text
