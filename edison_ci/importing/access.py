"""Where does an imported model live, and which key may go there?

A configuration may name any host. No key is written for a host that the project does not trust, so
that importing a file never sends a key anywhere.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from edison_ci.importing.templates import env_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.trust import TrustFile
    from edison_ci.importing.drafts import ModelDraft
    from edison_ci.importing.fidelity import Fidelity, Node

KEY_OPTIONS = frozenset({"apiKey", "apiKeyEnvar", "apiKeyEnvVar"})
ADDRESS_OPTIONS = frozenset({"apiBaseUrl", "apiHost", "baseUrl", "baseURL", "endpoint"})
_ADDRESS_ENV = {"azure": "AZURE_OPENAI_ENDPOINT", "anthropic": "ANTHROPIC_BASE_URL"}
"""Where the address of a provider that has a key by default is read from."""


def settle_access(
    draft: ModelDraft, options: Sequence[Node], trust: TrustFile, fidelity: Fidelity
) -> None:
    """Set address and key of a model from its options, and report them."""
    for node in (each for each in options if each.name in ADDRESS_OPTIONS):
        _set_address(node, draft, trust, fidelity)
    for node in (each for each in options if each.name in KEY_OPTIONS):
        _set_key(node, draft, trust, fidelity)


def _set_address(node: Node, draft: ModelDraft, trust: TrustFile, fidelity: Fidelity) -> None:
    text, entry = str(node.value), draft.entry
    name = env_name(text)
    address = (text if "://" in text else f"https://{text}").rstrip("/")
    if name is not None and entry["provider"] != "sim":
        entry.pop("base_url", None)
        entry["base_url_env"] = name
        fidelity.mapped(node, f"{draft.mark} base_url_env")
        return
    if not _is_address(address) or entry["provider"] in ("sim", "vertex", "bedrock"):
        fidelity.unsupported(node, "it is not an address that this provider takes here")
        return
    key = entry.get("key_env")
    entry.pop("base_url_env", None)
    entry["base_url"] = address
    if not isinstance(key, str) or trust.allows(key, address, str(entry["provider"])):
        fidelity.mapped(node, f"{draft.mark} base_url")
        return
    host, env = _host(address), _ADDRESS_ENV.get(str(entry["provider"]))
    if env is not None:
        del entry["base_url"]
        entry["base_url_env"] = env
        note = f"the address is read from {env}; {host} needs a place in .edison/trust.yaml"
    else:
        entry["provider"] = "openai_compatible"
        del entry["key_env"]
        note = f"key_env was left out: {key} may not go to {host} unless .edison/trust.yaml says so"
    fidelity.approximated(node, f"{draft.mark} base_url", note)


def _set_key(node: Node, draft: ModelDraft, trust: TrustFile, fidelity: Fidelity) -> None:
    text, entry = (node.value if isinstance(node.value, str) else ""), draft.entry
    name = env_name(text) if node.name == "apiKey" else text
    usual = entry.get("key_env")
    if name is None or not re.fullmatch(r"[A-Za-z_]\w*", name):
        kept = f"{usual} is read instead" if usual else "name a variable under key_env"
        fidelity.unsupported(node, f"a literal key is never copied; {kept}")
    elif draft.offline:
        fidelity.mapped(node, "", "a simulated model needs no key")
    elif name == usual or "base_url_env" in entry or _may_go(name, draft, trust):
        entry["key_env"] = name
        fidelity.mapped(node, f"{draft.mark} key_env")
    else:
        kept = f"{usual} is read instead" if usual else "no key is sent"
        note = f"{name} may not go to this host unless .edison/trust.yaml says so; {kept}"
        fidelity.approximated(node, f"{draft.mark} key_env", note)


def _may_go(name: str, draft: ModelDraft, trust: TrustFile) -> bool:
    """Whether a key may go to where the model lives; a vendor's own host, if nothing is said."""
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
