"""Changes of .edison/secrets.yaml: a first pair of keys, sealing, removing and rotating."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.access.sealed_keys import (
    LOCAL,
    LONGEST,
    find_private_key,
    fingerprint,
    generate_key,
    key_path,
    open_box,
    repository_name,
    seal,
    store_private_key,
)
from edison_ci.access.site import Role
from edison_ci.api.workflows import Variables, with_variables, workflow_files
from edison_ci.config.project_files import SECRETS
from edison_ci.config.sealed import PRIVATE_KEY
from edison_ci.documents.files import in_repository, replace_file
from edison_ci.errors import EdisonError, UsageError
from edison_ci.numeric import counted
from edison_ci.shape import ENV_PATTERN
from edison_ci.spelling import did_you_mean
from edison_ci.store.audit import write_audit

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.access.sealed_keys import PrivateKey
    from edison_ci.access.site import Actor, Site
    from edison_ci.config.load import Project
    from edison_ci.config.sealed import SealedKey, SecretsFile
    from edison_ci.store.audit import AuditEntry

_LONGEST_NAME = 100
_RESERVED = ("EDISON_", "GITHUB_", "ACTIONS_", "RUNNER_")
"""Names that others set, or that are no keys of models."""


class Kept(NamedTuple):
    """A private key and where it lies on this machine."""

    key: PrivateKey
    path: Path


def create_pair(site: Site, secrets: SecretsFile) -> Kept:
    """Store a new private key on this machine, and write its public key to secrets.yaml."""
    actor = site.require(Role.ADMIN, "secrets keygen")
    if secrets.public_key is not None:
        raise UsageError(
            f"{SECRETS} has a public key already ({fingerprint(secrets.public_key)})",
            hint="replace it with: edison secrets rotate",
        )
    key = generate_key()
    kept = _store(site, actor, key)
    _write(site, secrets.model_copy(update={"public_key": key.public}))
    return kept


def _store(site: Site, actor: Actor, key: PrivateKey) -> Kept:
    """Store a private key on this machine; a process that dies leaves no key without its row."""
    site.record(actor, "secrets keygen", fingerprint(key.public))
    return Kept(key, store_private_key(key))


def pass_to_workflows(root: Path) -> tuple[list[str], list[str]]:
    """Let the workflows pass the private key on, where keys are passed on already.

    Returns the changed files, and those that run edison and have no such place.
    """
    changed, without_place = [], []
    for file, text in workflow_files(root):
        after = with_variables(text, Variables((PRIVATE_KEY,)))
        if after != text:
            replace_file(*in_repository(root, file), after.encode())
            changed.append(file)
        elif "edison" in text and f"{PRIVATE_KEY}:" not in text:
            without_place.append(file)
    return changed, without_place


def seal_key(site: Site, secrets: SecretsFile, name: str, value: str) -> SealedKey:
    """Seal a key and write it to secrets.yaml; return the entry."""
    actor = site.require(Role.ADMIN, "secrets seal", name)
    refuse_name(name)
    public = require_public_key(secrets)
    repository = repository_name(site.root)
    key = seal(
        name, _checked(name, value), secrets=secrets, repository=repository, day=site.clock().date()
    )
    former = secrets.of(name)
    about = {"for": fingerprint(public), "repository": repository}
    row = site.entry(
        actor,
        "secrets seal",
        name,
        before=None if former is None else {"since": former.since},
        after=about,
    )
    _write(site, secrets.with_key(key), row)
    return key


def require_public_key(secrets: SecretsFile) -> str:
    """Return the public key that keys are sealed for; raises UsageError if there is none."""
    if secrets.public_key is None:
        raise UsageError(
            "there is no private key for sealed keys yet", hint="create it: edison secrets keygen"
        )
    return secrets.public_key


def refuse_name(name: str) -> None:
    """Raise UsageError for a name that no key can have."""
    if not re.fullmatch(ENV_PATTERN, name) or len(name) > _LONGEST_NAME:
        # Not shown: it may be the key itself.
        raise UsageError(
            "this is not the name of a variable",
            hint="give the name only, such as OPENAI_API_KEY; the key is asked for",
        )
    if name.upper().startswith(_RESERVED):
        raise UsageError(
            f"{name} is not the key of a model", hint="keep it as a secret of the repository"
        )


def _checked(name: str, value: str) -> str:
    value = value.strip()
    if not value:
        raise UsageError(f"the key {name} is empty", hint="type it, or pipe it to the command")
    if len(value) > LONGEST:
        raise UsageError(
            f"the key {name} is longer than {LONGEST:,} characters", hint="is this the key?"
        )
    if any(not letter.isprintable() and letter not in "\n\r\t" for letter in value):
        raise UsageError(
            f"the key {name} contains control characters", hint="copy it again, as plain text"
        )
    return value


def remove_key(site: Site, project: Project, name: str) -> SealedKey:
    """Remove a sealed key; raises UsageError while a model names it."""
    actor = site.require(Role.ADMIN, "secrets remove", name)
    sealed = project.secrets.of(name)
    if sealed is None:
        names = [key.name for key in project.secrets.keys]
        hint = did_you_mean(name, names, label="sealed keys") if names else "none is sealed"
        raise UsageError(f"there is no sealed key {name!r}", hint=hint)
    users = [model.name for model in project.models.values() if name in model.variables]
    users += [entry.model for entry in project.trust.programs if name in entry.env]
    if users:
        raise UsageError(
            f"{counted(len(users), 'model')} would lose the key {name}: "
            f"{', '.join(dict.fromkeys(users))}",
            hint=f"take {name} out of {project.file.paths.models} first",
        )
    recipients = [entry.name for entry in project.file.notifications if name in entry.secrets]
    if recipients:
        notifications = counted(len(recipients), "notification")
        raise UsageError(
            f"{notifications} would lose {name}: {', '.join(recipients)}",
            hint=f"take {name} out of edison.yaml first",
        )
    row = site.entry(actor, "secrets remove", name, before={"since": sealed.since})
    _write(site, project.secrets.without_key(name), row)
    return sealed


def rotate_pair(site: Site, secrets: SecretsFile, *, was: str | None = None) -> tuple[Kept, Path]:
    """Seal every key for a new private key; return it, and the file of the former one.

    Nothing changes if one of the keys cannot be opened. With `was` they may have been sealed for a
    repository of this name.
    """
    actor = site.require(Role.ADMIN, "secrets rotate")
    public = require_public_key(secrets)
    former = find_private_key(public)
    values, faults = {}, []
    repository = repository_name(site.root)
    for key in secrets.keys:
        try:
            values[key.name] = _opened(key, former, repository, was)
        except EdisonError as error:
            faults.append(error)
    if faults:
        listed = "; ".join(error.message for error in faults)
        raise UsageError(f"nothing was rotated: {listed}", hint=faults[0].hint)
    new = generate_key()
    changed = secrets.model_copy(update={"public_key": new.public})
    for key in secrets.keys:
        box = seal(
            key.name,
            values[key.name],
            secrets=changed,
            repository=repository,
            day=site.clock().date(),
        )
        # The key of the vendor is as old as before.
        changed = changed.with_key(box.model_copy(update={"since": key.since}))
    kept = _store(site, actor, new)
    names = [fingerprint(public), fingerprint(new.public)]
    row = site.entry(actor, "secrets rotate", names[1], before=names[0], after=[*values])
    _write(site, changed, row)
    return kept, key_path(public)


def _opened(key: SealedKey, private: PrivateKey, repository: str, was: str | None) -> str:
    try:
        return open_box(key, private, repository)
    except UsageError:
        if was is None:
            raise
        return open_box(key, private, LOCAL if was == "none" else was.casefold())


def _write(site: Site, secrets: SecretsFile, row: AuditEntry | None = None) -> None:
    """Replace the file atomically, with its audit row if the change has none yet."""
    just_before = None if row is None else partial(write_audit, site.results, row)
    replace_file(site.root, SECRETS, secrets.text().encode(), just_before=just_before)
