""".edison/trust.yaml: permissions to send keys, explained and edited with its comments kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from edison_ci._dataclass import dataclass
from edison_ci.access.site import Role
from edison_ci.api.key_edits import refuse_name
from edison_ci.config import service_paths
from edison_ci.config.project_files import TRUST
from edison_ci.config.trust import BUILT_IN, Host, TrustFile, origin, path_of, trust_hint
from edison_ci.documents.files import WorkingTree, read
from edison_ci.documents.marks import Fault
from edison_ci.documents.yaml_edit import edited, not_editable, values_of, with_entry
from edison_ci.errors import UsageError
from edison_ci.git.host import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edison_ci.access.site import Site
    from edison_ci.config.load import Project
    from edison_ci.config.models import Model

Basis = Literal["trust.yaml", "built in", "identity", "not allowed"]
_FRESH = (
    "# yaml-language-server: $schema=schemas/trust.schema.json\n"
    "# Which key may be sent to which host. In a pull request the base commit's copy counts.\n"
    "version: 1\n"
)


@dataclass(frozen=True, slots=True)
class Permission:
    """A key of a model, the host it goes to, and what allows that."""

    model: str
    key: str
    host: str
    """Empty if the address is in a variable that is not set."""
    basis: Basis
    variable: str = ""
    """The variable of the address, if it has one."""
    path: str = ""
    """The path that may not get the key, where the host may."""
    hint: str = ""
    """What allows it, if nothing does."""


def permissions(project: Project, environ: Mapping[str, str]) -> list[Permission]:
    """Return each key of each model with the host that it goes to."""
    trust = service_paths.effective_trust(project, environ)
    return [
        _permission(trust, model, key, environ)
        for model in project.models.values()
        for key in model.keys.values()
    ]


def _permission(trust: TrustFile, model: Model, key: str, environ: Mapping[str, str]) -> Permission:
    variable, address = model.base_url_env or "", service_paths.address_of(model, environ)
    basis: Basis = "not allowed"
    if trust.allows(key, address, model.provider):
        own = trust.model_copy(update={"builtin": False})
        basis = "trust.yaml" if own.allows(key, address, model.provider) else "built in"
    elif trust.identity(model.provider, address) is not None:
        basis = "identity"
    try:
        host = origin(address) if address else ""
    except ValueError:
        host = ""
    if refusal := service_paths.path_refusal(model, address, trust):
        path = path_of(address) or "/"
        return Permission(model.name, key, host, "not allowed", variable, path, refusal[1])
    return Permission(model.name, key, host, basis, variable, "", trust_hint(key, address))


@dataclass(frozen=True, slots=True)
class TrustedPair:
    """A key, where it may be sent, what says so, and the models that do it."""

    key: str
    hosts: str
    """One host; of built-in pairs a pattern."""
    basis: Basis
    models: tuple[str, ...] = ()


def trusted_pairs(project: Project, permissions: list[Permission]) -> list[TrustedPair]:
    """Return the pairs of trust.yaml, and the built-in ones of keys that models name."""
    pairs = []
    for key in project.trust.keys:
        for host in map(origin, key.hosts):
            models = [
                permission.model
                for permission in permissions
                if (permission.key, permission.host) == (key.env, host)
            ]
            pairs.append(TrustedPair(key.env, host, "trust.yaml", tuple(models)))
    for name in dict.fromkeys(permission.key for permission in permissions):
        pair = BUILT_IN.get(name) if project.trust.builtin else None
        if pair is not None:
            models = [
                permission.model
                for permission in permissions
                if (permission.key, permission.basis) == (name, "built in")
            ]
            hosts = f"https://{pair.host}".replace("\\.", ".")
            pairs.append(TrustedPair(name, hosts, "built in", tuple(models)))
    return pairs


def trust_key(
    site: Site, trust: TrustFile, key: str, address: str, *, unencrypted: bool = False
) -> str:
    """Allow a key to be sent to a host; return the host as it is compared.

    Without encryption only to this machine, unless `unencrypted` insists.
    """
    actor = site.require(Role.ADMIN, "trust add", key)
    refuse_name(key)
    try:
        host = origin(TypeAdapter(Host).validate_python(address))
    except ValidationError as error:
        raise UsageError(
            str(error.errors()[0]["msg"]), hint="write https://host:port, without a path"
        ) from None
    parts = urlsplit(host)
    if parts.scheme == "http" and not unencrypted and not is_loopback(parts.hostname or ""):
        raise UsageError(
            f"{key} would be sent to {host} without encryption, and everyone on the way could read "
            "it",
            hint="use https://; to allow it in a network of your own, add --unencrypted",
        )
    if (key, host) in {(k.env, origin(h)) for k in trust.keys for h in k.hosts}:
        raise UsageError(f"{key} may be sent to {host} already", hint="edison trust list")
    row = site.entry(actor, "trust add", key, after={"host": host})
    changed = with_pair(trust_text(site.root), key, host)
    site.replace(TRUST, changed, row)
    return host


def trust_text(root: Path) -> str:
    """Return the text of trust.yaml, or that of a new one."""
    tree = WorkingTree(root)
    return read(tree, TRUST).decode("utf-8-sig") if tree.exists(TRUST) else _FRESH


def with_pair(text: str, env: str, host: str) -> str:
    """Return trust.yaml with one more pair, and nothing else changed."""
    entry: dict[str, Any] = {"env": env, "hosts": [host]}
    try:
        old = values_of(text, TRUST)
    except Fault:
        old = {}
    goal = {**old, "keys": [*(old.get("keys") or ()), entry]}
    refusal = not_editable(TRUST, hint="edit it by hand")
    return edited(text, lambda text: with_entry(text, "keys", entry), goal, refusal)
