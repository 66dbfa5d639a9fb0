"""Addresses and keys of imported models, and services over HTTP."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from edison_ci.config.trust import belongs_to_connection
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.features.importing.source import CODE_NOTE
from edison_ci.features.importing.templates import env_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.trust import TrustFile
    from edison_ci.documents.marks import Json
    from edison_ci.features.importing.drafts import ModelDraft
    from edison_ci.features.importing.fidelity import Fidelity, Node

SECRET = re.compile(r"(?i)key|token|secret|password|credential|authorization")
"""Names of options whose values are not copied."""


class UnusableProvider(Exception):
    """A provider without a counterpart; the message says why."""

    def __init__(self, why: str, *, is_text: bool = True) -> None:
        super().__init__(why)
        self.is_text = is_text
        """Whether it answers in text, so that a model can take its place."""


# A configuration may name any host. No key is written for a host that the project does not trust,
# so that a run of an imported file never sends a key to an unknown host.
KEY_OPTIONS = frozenset({"apiKey", "apiKeyEnvar", "apiKeyEnvVar"})
ADDRESS_OPTIONS = frozenset({"apiBaseUrl", "apiHost", "baseUrl", "baseURL", "endpoint"})
_ADDRESS_ENV = {"azure": "AZURE_OPENAI_ENDPOINT", "anthropic": "ANTHROPIC_BASE_URL"}
"""Variables with the address of providers that have a default key."""


def set_access(
    draft: ModelDraft, options: Sequence[Node], trust: TrustFile, fidelity: Fidelity
) -> None:
    """Set address and key of a model from its options, and report them."""
    for option in options:
        if option.name in ADDRESS_OPTIONS:
            _set_address(option, draft, trust, fidelity)
    for option in options:  # a key may go to some addresses only
        if option.name in KEY_OPTIONS:
            _set_key(option, draft, trust, fidelity)


def _set_address(node: Node, draft: ModelDraft, trust: TrustFile, fidelity: Fidelity) -> None:
    text, entry = str(node.value), draft.entry
    name = env_name(text)
    address = (text if "://" in text else f"https://{text}").rstrip("/")
    if name is not None and entry["provider"] != "sim":
        entry.pop("base_url", None)
        entry["base_url_env"] = name
        fidelity.add_mapped(node, f"{draft.mark} base_url_env")
        return
    if not _is_address(address) or entry["provider"] in ("sim", "vertex", "bedrock"):
        fidelity.add_unsupported(node, "this is not a valid address for the provider")
        return
    key = entry.get("key_env")
    entry.pop("base_url_env", None)
    entry["base_url"] = address
    if not isinstance(key, str) or trust.allows(key, address, str(entry["provider"])):
        fidelity.add_mapped(node, f"{draft.mark} base_url")
        return
    host, env = _host(address), _ADDRESS_ENV.get(str(entry["provider"]))
    if env is not None:
        del entry["base_url"]
        entry["base_url_env"] = env
        note = f"the address is read from {env}; allow {host} in .edison/trust.yaml"
    else:
        entry["provider"] = "openai_compatible"
        del entry["key_env"]
        note = f"key_env was left out: {key} is sent to {host} only if .edison/trust.yaml allows it"
    fidelity.add_approximated(node, f"{draft.mark} base_url", note)


def _set_key(node: Node, draft: ModelDraft, trust: TrustFile, fidelity: Fidelity) -> None:
    text, entry = (node.value if isinstance(node.value, str) else ""), draft.entry
    name = env_name(text) if node.name == "apiKey" else text
    usual = entry.get("key_env")
    if name is None or not re.fullmatch(r"[A-Za-z_]\w*", name):
        kept = f"{usual} is read instead" if usual else "name a variable under key_env"
        fidelity.add_unsupported(node, f"a literal key is never copied; {kept}")
    elif draft.offline:
        fidelity.add_mapped(node, "", "a simulated model needs no key")
    elif name == usual or "base_url_env" in entry or _may_go(name, draft, trust):
        entry["key_env"] = name
        fidelity.add_mapped(node, f"{draft.mark} key_env")
    else:
        kept = f"{usual} is read instead" if usual else "no key is sent"
        note = f"{name} is sent to this host only if .edison/trust.yaml allows it; {kept}"
        fidelity.add_approximated(node, f"{draft.mark} key_env", note)


def _may_go(name: str, draft: ModelDraft, trust: TrustFile) -> bool:
    """Whether a key may be sent to the host of a model, by default that of its vendor."""
    address, usual = draft.entry.get("base_url"), draft.entry.get("key_env")
    provider = str(draft.entry["provider"])
    if isinstance(address, str):
        return trust.allows(name, address, provider)
    listed = [host for key in trust.keys if key.env == name for host in key.hosts]
    return any(trust.allows(str(usual), host, provider) for host in listed)


def _host(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    return bool(re.match(r"https?://[^\s{}]+\Z", text) and host and plain)


_PLACE = re.compile(
    r"\s*(?:\(?\s*(?:json|data)\s*(?:,\s*\w+\s*)*\)?\s*=>\s*)?(?:json|data|response)"
    r"(?P<place>(?:\??\.\w+|(?:\?\.)?\[(?:\d+|'[^'.\]]+'|\"[^\".\]]+\")\])+)"
    r"(?P<otherwise>\s*\|\|[\w\s.?|'\"]+)?\s*;?\s*\Z"
)
"""A place in a reply: json.choices[0].message.content."""
_STEP = re.compile(r"\w[^.\[\]'\"?]*")
_PROMPT = re.compile(r"\{\{-?\s*prompt\s*(?:\|\s*(?:safe|dump|escape)\s*)*-?\}\}")
_KEY_HEADER = re.compile(r"(?P<start>[^{}]*)\{\{-?\s*env\.(?P<name>\w+)\s*-?\}\}\s*\Z")


def is_http(id: str) -> bool:
    """Whether a provider is a service over HTTP."""
    return id in ("http", "https") or id.startswith(("http://", "https://"))


def json_place(code: str) -> str | None:
    """Return the place in a reply that an expression reads, as `a.0.b`; None if it is another."""
    match = _PLACE.match(code)
    return ".".join(_STEP.findall(match["place"])) if match else None


def http_entry(
    id: str, config: Node | None, trust: TrustFile, fidelity: Fidelity
) -> tuple[dict[str, Json], str]:
    """Return the entry of a service over HTTP and a note; raises UnusableProvider."""
    options = {child.name: child for child in config.children()} if config is not None else {}
    url, body = options.pop("url", None), options.pop("body", None)
    address = str(url.value) if url is not None else id
    entry: dict[str, Json] = {"provider": "http", "model": "service"}
    if (name := env_name(address)) is not None:
        entry["base_url_env"] = name
    elif _is_address(address):
        entry["base_url"] = address.rstrip("/")
    else:
        raise UnusableProvider("its address is not plain: no query, name or template is supported")
    method = options.pop("method", None)
    if method is not None and str(method.value).upper() != "POST":
        raise UnusableProvider(f"only POST is supported, not {str(method.value)[:20]}")
    sent = body.value if body is not None else None
    if isinstance(sent, str):
        sent = _as_json(_PROMPT.sub("{{ prompt }}", sent))
    if not isinstance(sent, dict) or not sent:
        raise UnusableProvider("its body is not a JSON object")
    settings: dict[str, Json] = {"body": _body(sent)}
    entry["options"] = settings
    assert config is not None
    fidelity.mark_visited(config)
    for node in (url, body, method):
        if node is not None:
            fidelity.add_mapped(node, "options")
    note = _read_reply(options.pop("transformResponse", None), settings, fidelity)
    _headers(options.pop("headers", None), entry, trust, fidelity)
    for node in options.values():
        fidelity.add_unsupported(node, "a service has no such option here")
    return entry, note


def _as_json(text: str) -> Json:
    try:
        return parse_json(text)
    except Fault:
        return None


def _body(value: Json) -> Json:
    """Return a body with the prompt as its only variable; raises UnusableProvider."""
    if isinstance(value, dict):
        return {key: _body(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_body(item) for item in value]
    if not isinstance(value, str):
        return value
    text = _PROMPT.sub("{{ prompt }}", value)
    if "{{" in text.replace("{{ prompt }}", "") or "{%" in text:
        raise UnusableProvider(f"its body uses more than the prompt: {value[:60]!r}")
    return text


def _read_reply(node: Node | None, settings: dict[str, Json], fidelity: Fidelity) -> str:
    """Set where the reply has the answer; return a note if that is not known."""
    place = json_place(str(node.value)) if node is not None else None
    if place is None:
        if node is not None:
            fidelity.add_unsupported(node, f"the answer is read from options.text: {CODE_NOTE}")
        return "set options.text: the place of the answer in the reply"
    assert node is not None
    settings["text"] = place
    if "||" in str(node.value):
        fidelity.add_approximated(node, "options.text", "only the first place is read")
    else:
        fidelity.add_mapped(node, "options.text")
    return ""


def _headers(
    node: Node | None, entry: dict[str, Json], trust: TrustFile, fidelity: Fidelity
) -> None:
    if node is None:
        return
    fidelity.mark_visited(node)
    headers: dict[str, Json] = {}
    for child in node.children():
        text, key = str(child.value), _KEY_HEADER.match(str(child.value))
        if child.name.lower() == "content-type":
            fidelity.add_mapped(child, "", "bodies are always JSON")
        elif belongs_to_connection(child.name):
            fidelity.add_unsupported(child, "no file may set it")
        elif trust.refused_headers([child.name], str(entry.get("base_url", ""))):
            fidelity.add_unsupported(child, "allow it under services in .edison/trust.yaml")
        elif key is not None:
            address = entry.get("base_url")
            if isinstance(address, str) and not trust.allows(key["name"], address, "http"):
                host = _host(address)
                note = f"{key['name']} is sent to {host} only if .edison/trust.yaml allows it"
                fidelity.add_approximated(child, "", note)
                continue
            entry["key_env"] = key["name"]
            headers[child.name] = f"{key['start']}{{{{ key }}}}"
            fidelity.add_mapped(child, "options.headers and key_env")
        elif "{{" in text or SECRET.search(child.name):
            fidelity.add_unsupported(child, "keys are not copied; name a variable under key_env")
        else:
            headers[child.name] = text
            fidelity.add_mapped(child, "options.headers")
    options = entry["options"]
    assert isinstance(options, dict)
    if headers:
        options["headers"] = headers
