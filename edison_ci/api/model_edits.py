"""Adding a model: edits of models.yaml, trust.yaml and the workflows, with comments kept.

Every new text is parsed and compared before any file is written. A key is trusted to a host only if
the host is its vendor's own, which the built-in pairs say, or if the person named the address.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api import trust_edits, workflows
from edison_ci.config import models as config_models
from edison_ci.config import project_files, vendors
from edison_ci.config import trust as config_trust
from edison_ci.documents import files as document_files
from edison_ci.documents import marks, yaml_edit, yaml_text
from edison_ci.errors import UsageError
from edison_ci.spelling import did_you_mean
from edison_ci.store import audit as store_audit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.config.models import Model

LOCAL = "local"
"""The prefix of models that run in this process."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A model that a person wants to add."""

    name: str
    """VENDOR/MODEL, or the model's own name at an address."""
    base_url: str | None = None
    """The address that the person named."""
    key_env: str | None = None
    called: str | None = None
    """Its name in models.yaml."""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelEdit:
    """The files with a new model, before they are written."""

    model: Model
    files: dict[str, str]
    """New texts by path from the root of the project."""
    trusted: tuple[tuple[str, str], ...] = ()
    """Keys and hosts that trust.yaml now allows."""
    built_in: tuple[tuple[str, str], ...] = ()
    """Keys and hosts that are allowed without an entry."""
    without_place: tuple[str, ...] = ()
    """Workflows that run edison and have no place for the key."""


def name_of_model(model: str) -> str:
    """Return the name in models.yaml of a model that is added without one."""
    return _NOT_IN_NAMES.sub("-", model.rpartition("/")[2]).strip("-.") or "model"


def prepare_model(
    project: Project, request: ModelRequest, changed_before: Mapping[str, str] | None = None
) -> ModelEdit:
    """Return the edits that add a model; raises UsageError, and writes nothing.

    Several are added one after another, each to the files that the one before has changed.
    """
    edited = changed_before or {}
    entry = _entry(request)
    name = request.called or name_of_model(str(entry["model"]))
    path = project.file.paths.models
    text = edited.get(path) or _text(project.root, path) or "version: 1\n"
    changed = _with_model(text, name, entry)
    model = _verified(path, text, changed, name)
    trust, trusted, built_in = _trust(project, model, named=request.base_url is not None)
    files = {**trust, path: changed}
    without_place = []
    for file, stored in workflows.workflow_files(project.root):
        before = edited.get(file, stored)
        after = workflows.with_variables(before, workflows.Variables.of([model], project.secrets))
        missing = [env for env in model.keys.values() if f"{env}:" not in after]
        if after != before:
            files[file] = after
        elif missing and "edison" in before:
            without_place.append(file)
    return ModelEdit(model, files, trusted, built_in, tuple(without_place))


def write_model(site: sites.Site, edit: ModelEdit) -> None:
    """Write the files, with an audit entry; who changes trust.yaml has to be an admin."""
    needed = sites.Role.ADMIN if project_files.TRUST in edit.files else sites.Role.EDITOR
    actor = site.require(needed, "models add", edit.model.name)
    after: dict[str, Any] = {
        "model": edit.model.identity(),
        "keys": [*edit.model.keys.values()],
        "trusted": [f"{env} to {host}" for env, host in edit.trusted],
    }
    row = site.entry(actor, "models add", edit.model.name, after=after)
    models = site.file.paths.models
    # The model comes last: nothing names a key before it may be sent.
    for path in sorted(edit.files, key=lambda path: path == models):
        place = document_files.in_repository(site.root, path)
        audit = (lambda: store_audit.write_audit(site.results, row)) if path == models else None
        document_files.replace_file(*place, edit.files[path].encode("utf-8"), just_before=audit)


def vendor_model(vendor: str) -> Model:
    """Return a model made for the service of a vendor."""
    entry = _entry(ModelRequest(f"{vendor}/any"))
    return config_models.RegistryReader(
        yaml_text.read_yaml(_with_model("", vendor, entry), vendor)
    ).read()[vendor]


def _entry(request: ModelRequest) -> dict[str, Any]:
    """Return the entry as it is written."""
    prefix, slash, rest = request.name.partition("/")
    if prefix == LOCAL and rest and request.base_url is None:
        return {"provider": LOCAL, "model": rest}
    vendor = vendors.VENDORS.get(prefix) if slash else None
    if vendor is None and request.base_url is None:
        hint = did_you_mean(prefix, vendors.VENDORS, label="vendors")
        raise UsageError(
            f"{request.name!r} names no known vendor",
            hint=f"write VENDOR/MODEL, or add --base-url; {hint}" if hint else "add --base-url",
        )
    if vendor is not None and not rest:
        raise UsageError(f"{request.name!r} names no model", hint=f"write {prefix}/MODEL")
    service = vendor or vendors.Vendor("openai_compatible")
    if service.needs_address and request.base_url is None:
        raise UsageError(
            f"{prefix} has an own address for each customer", hint="add --base-url https://HOST"
        )
    options = dict(request.options)
    if "deployment" in service.options:
        options.setdefault("deployment", rest)
    if lacking := [name for name in service.options if name not in options]:
        hint = " ".join(f"--option {name}=..." for name in lacking)
        raise UsageError(f"{prefix} needs {' and '.join(lacking)}", hint=f"add {hint}")
    key = request.key_env or service.key_env
    entry = {
        "provider": service.provider,
        "model": rest if vendor is not None else request.name,
        "base_url": request.base_url or service.base_url,
        "key_env": key or None,
        "options": options or None,
        "price": "free" if service.free else None,
    }
    return {name: value for name, value in entry.items() if value is not None}


def _with_model(text: str, name: str, entry: Mapping[str, Any]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"{yaml_edit.scalar(name)}:"]
    for key, value in entry.items():
        if isinstance(value, dict):
            inner = ", ".join(f"{yaml_edit.scalar(k)}: {json.dumps(v)}" for k, v in value.items())
            lines.append(f"  {key}: {{{inner}}}")
        else:
            lines.append(f"  {key}: {yaml_edit.scalar(value)}")
    start = text.rstrip()
    return newline.join([*([start, ""] if start else []), *lines, ""])


def _verified(path: str, before: str, after: str, name: str) -> Model:
    """Return the new model if nothing else has changed; raises UsageError."""
    old = _value(before, path)
    if name in old:
        raise UsageError(
            f"{path} has a model {name!r} already", hint="give another name with --name"
        )
    new = _value(after, path)
    if {key: value for key, value in new.items() if key != name} != old:
        raise yaml_edit.not_editable(path, hint="edit it by hand")
    reader = config_models.RegistryReader(yaml_text.read_yaml(after, path))
    models = reader.read()
    if name not in models:
        problem = next((p for p in reader.problems), None)
        message = problem.message if problem is not None else f"the entry {name!r} is not valid"
        raise UsageError(message, hint=problem.hint if problem is not None else "")
    return models[name]


def _value(text: str, path: str) -> dict[str, Any]:
    try:
        value = yaml_text.read_yaml(text, path).value
    except marks.Fault as fault:
        raise UsageError(f"{path} is not valid: {fault.message}", hint=fault.hint) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise yaml_edit.not_editable(path, hint="edit it by hand")
    return value


def _text(root: Path, path: str) -> str | None:
    tree = document_files.WorkingTree(root)
    return document_files.read(tree, path).decode("utf-8-sig") if tree.exists(path) else None


_Pairs = tuple[tuple[str, str], ...]


def _trust(project: Project, model: Model, *, named: bool) -> tuple[dict[str, str], _Pairs, _Pairs]:
    """Return the new trust.yaml, the pairs that it adds, and those that need no entry."""
    address = model.service or ""
    if not model.keys or not address:
        return {}, (), ()
    host = config_trust.origin(address)
    allowed = config_trust.TrustFile.model_validate({"builtin": project.trust.builtin})
    own_hosts = [env for env in model.keys.values() if allowed.allows(env, address, model.provider)]
    missing = [
        env for env in model.keys.values() if not project.trust.allows(env, address, model.provider)
    ]
    vendors_own = all(
        config_trust.TrustFile().allows(env, address, model.provider) for env in missing
    )
    if missing and not (named or vendors_own):
        raise UsageError(
            f"{', '.join(missing)} is not the key of the vendor at {host}",
            hint=f"leave out --key-env; or, if this host may get it, add --base-url {address}",
        )
    pairs = tuple((env, host) for env in missing)
    built_in = tuple((env, host) for env in own_hosts)
    if not pairs:
        return {}, (), built_in
    changed = trust_edits.trust_text(project.root)
    for env, _ in pairs:
        changed = trust_edits.with_pair(changed, env, host)
    return {project_files.TRUST: changed}, pairs, built_in
