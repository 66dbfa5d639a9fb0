"""Keys that are sealed in the repository: sealing, opening, and an overview of all keys.

`.edison/secrets.yaml` holds sealed boxes of libsodium (X25519, XSalsa20 and Poly1305). Anyone with
the file can seal a key; only the private key opens one. In CI it is the variable
EDISON_PRIVATE_KEY, on a laptop a file that only its owner can read. In each box are the name of the
variable and the repository, so that a box is of no use under another name or elsewhere: in
another repository, whose jobs may have the same private key, it cannot be opened.

A sealed key is used as if its variable were set; a variable that is set takes precedence.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from edison_ci._dataclass import dataclass
from edison_ci.config.sealed import PRIVATE_KEY, SealedKey, SecretsFile
from edison_ci.config.vendors import VENDORS
from edison_ci.documents.decoding import (
    decode_base64,
    decode_base64url,
    encode_base64,
    encode_base64url,
)
from edison_ci.documents.secrets import remember, variable
from edison_ci.errors import UsageError
from edison_ci.git.command import remote_of, run_git
from edison_ci.git.repository import Repository
from edison_ci.records import canonical_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.access.job import KeyEnvironment
    from edison_ci.config.load import Project

LOCAL = "a repository without a remote"
"""What a box names as the repository, if no host knows it."""
LONGEST = 50_000
_PREFIX = "edison_key_"
_KEY_BYTES = 32
_BLOCK = 256
"""Boxes are padded to this, so that they do not reveal how long a key is."""
_ABOUT = "edison-ci sealed key 1"
_OPEN_TO_OTHERS = 0o077
_SCP = re.compile(r"(?:[^@/:]+@)?([A-Za-z0-9.-]+):(?!//)([^:]+)")


class PrivateKey(NamedTuple):
    """A private key with its public key."""

    text: str
    """As it is stored."""
    public: str

    def __repr__(self) -> str:
        return f"PrivateKey(public={self.public!r})"


def generate_key() -> PrivateKey:
    """Return a new private key."""
    from nacl.public import PrivateKey as Secret

    return _private(bytes(Secret.generate()))


def _private(raw: bytes) -> PrivateKey:
    from nacl.public import PrivateKey as Secret

    text = f"{_PREFIX}{encode_base64url(raw)}"
    remember([text])
    return PrivateKey(text, encode_base64(bytes(Secret(raw).public_key)))


def read_private_key(text: str, where: str) -> PrivateKey:
    """Return a private key from its text; raises UsageError, which does not show it."""
    remember([text])
    try:
        raw = decode_base64url(text.removeprefix(_PREFIX))
    except ValueError:
        raw = b""
    if not text.startswith(_PREFIX) or len(raw) != _KEY_BYTES:
        raise UsageError(
            f"{where} is not a private key of edison",
            hint=f"it starts with {_PREFIX}; create one: edison secrets keygen",
        )
    return _private(raw)


def fingerprint(public: str) -> str:
    """Return a short name of a public key."""
    return hashlib.sha256(public.encode()).hexdigest()[:16]


def key_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of private keys on this machine."""
    config = environ.get("XDG_CONFIG_HOME", "")
    home = Path(config) if Path(config).is_absolute() else Path.home() / ".config"
    return home / "edison" / "keys"


def key_path(public: str) -> Path:
    """Return the file of the private key for a public key on this machine."""
    return key_folder() / f"{fingerprint(public)}.key"


def store_private_key(key: PrivateKey) -> Path:
    """Write a private key to its file, which only this person can read; return the path."""
    path = key_path(key.public)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as stream:
                stream.write(f"{key.text}\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError:  # such as a full disk: half a key is of no use
            path.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(
            f"the private key cannot be stored in {path}: {error.strerror}",
            hint="check the folder, or set XDG_CONFIG_HOME to another one",
        ) from None
    return path


def find_private_key(public: str, environ: Mapping[str, str] = os.environ) -> PrivateKey:
    """Return the private key for a public key; raises UsageError if it is not here."""
    texts = variable(PRIVATE_KEY, environ).split()
    keys = [read_private_key(text, f"the value of {PRIVATE_KEY}") for text in texts]
    for key in keys:
        if key.public == public:
            return key
    path = key_path(public)
    if path.is_file():
        return _stored(path, public)
    if keys:
        raise UsageError(
            f"{PRIVATE_KEY} is another private key than that of .edison/secrets.yaml "
            f"({fingerprint(public)})",
            hint="was it rotated? set the secret to the new one, or merge the new secrets.yaml",
        )
    raise UsageError(
        f"the private key {fingerprint(public)} of .edison/secrets.yaml is not here",
        hint=f"set {PRIVATE_KEY}, or copy the file from a colleague to {path}",
    )


def _stored(path: Path, public: str) -> PrivateKey:
    mode = path.stat().st_mode & 0o777
    if mode & _OPEN_TO_OTHERS:
        raise UsageError(
            f"others can read the private key {path} (mode {mode:04o})", hint=f"chmod 600 {path}"
        )
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the private key {path} cannot be read: {error}", hint="restore it from a backup"
        ) from None
    key = read_private_key(text, str(path))
    if key.public != public:
        raise UsageError(
            f"the private key {path} belongs to another public key", hint="restore the file"
        )
    return key


def repository_name(root: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Return host, owner and name of the repository: as GitHub says, else of its remote."""
    named = environ.get("GITHUB_REPOSITORY", "")
    if environ.get("GITHUB_ACTIONS") == "true" and named:
        host = urlsplit(environ.get("GITHUB_SERVER_URL") or "https://github.com").hostname
        return f"{host}/{named}".casefold()
    repository = Repository.find(root)
    remote = None if repository is None else remote_of(repository.root)
    if repository is None or remote is None:
        return LOCAL
    return _name_of(run_git("config", "--get", f"remote.{remote}.url", cwd=repository.root).line)


def _name_of(url: str) -> str:
    """Return host and path of the URL of a remote; of a folder, that no host knows it."""
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path
    if not host and (match := _SCP.fullmatch(url)):
        host, path = match[1], match[2]
    path = path.strip("/").removesuffix(".git")
    return f"{host}/{path}".casefold() if host and path and parts.scheme != "file" else LOCAL


@dataclass(frozen=True, slots=True)
class Sealed:
    """What is in a box."""

    name: str
    repository: str
    value: str = field(repr=False)

    def box(self, public: str) -> str:
        """Return the sealed box."""
        from nacl.public import PublicKey, SealedBox

        labels = {"about": _ABOUT, "name": self.name, "repository": self.repository}
        data = canonical_json({**labels, "value": self.value}).encode()
        data += b" " * (-len(data) % _BLOCK)
        sealed = SealedBox(PublicKey(decode_base64(public))).encrypt(data)
        return encode_base64(sealed)


def seal(
    name: str, value: str, *, secrets: SecretsFile, repository: str, day: dt.date
) -> SealedKey:
    """Return a key sealed for the public key of a file."""
    remember([value])
    assert secrets.public_key is not None, "there is a public key to seal for"
    box = Sealed(name, repository, value).box(secrets.public_key)
    return SealedKey(name=name, since=day.isoformat(), box=box)


def open_box(key: SealedKey, private: PrivateKey, repository: str) -> str:
    """Return the value of a sealed key; raises UsageError if it is not meant for this place."""
    from nacl.exceptions import CryptoError
    from nacl.public import PrivateKey as Secret
    from nacl.public import SealedBox

    raw = decode_base64url(private.text.removeprefix(_PREFIX))
    try:
        content = json.loads(SealedBox(Secret(raw)).decrypt(decode_base64(key.box)))
    except (CryptoError, ValueError):
        content = None
    if not _is_whole(content):
        raise UsageError(
            f"the sealed key {key.name} cannot be opened: it was damaged, or sealed for another "
            "private key",
            hint=f"seal it again: edison secrets seal {key.name}",
        )
    remember([content["value"]])
    if content["name"] != key.name:
        raise UsageError(
            f"the sealed key {key.name} was sealed as {content['name']!r}, and renamed",
            hint=f"seal it again: edison secrets seal {key.name}",
        )
    if content["repository"] != repository:
        raise UsageError(
            f"the sealed key {key.name} was sealed for {content['repository']}, and this is "
            f"{repository}",
            hint="if the repository was renamed: edison secrets rotate --was "
            f"{content['repository'] if content['repository'] != LOCAL else 'none'}",
        )
    return str(content["value"])


def _is_whole(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and content.get("about") == _ABOUT
        and all(isinstance(content.get(part), str) for part in ("name", "repository", "value"))
    )


Source = Literal["environment", "sealed", "identity", "missing"]
SHOWN = 4
LEAST = 12
"""Of a shorter key nothing is shown."""


@dataclass(frozen=True, slots=True)
class KeyState:
    """A key that a model or a notification names, or that is sealed."""

    name: str
    source: Source
    """Where a run would take it from."""
    sealed: bool
    ending: str = ""
    """Its last characters; empty if it is short, or cannot be opened here."""
    since: str = ""
    """Day on which it was sealed."""
    age_days: int | None = None
    """Days since then; None if it is not sealed, or dated in the future."""
    models: tuple[str, ...] = ()
    vendors: tuple[str, ...] = ()
    """Vendors whose models take it unless they name another one."""
    fault: str = ""
    """Why it cannot be opened here."""


def key_states(project: Project, environ: KeyEnvironment, today: dt.date) -> list[KeyState]:
    """Return the keys that models and notifications name, and all sealed ones, by name."""
    users: dict[str, list[str]] = {key.name: [] for key in environ.secrets.keys}
    for model in project.models.values():
        for name in model.keys.values():
            users.setdefault(name, []).append(model.name)
    for program in project.trust.programs:
        for name in program.env:
            users.setdefault(name, []).append(program.model)
    for recipient in project.file.notifications:
        for name in recipient.secrets:
            users.setdefault(name, []).append(f"notification {recipient.name}")
    states = [_state(name, users[name], environ, today) for name in sorted(users)]
    return [
        replace(state, source="identity") if _is_replaced(project, state) else state
        for state in states
    ]


def _is_replaced(project: Project, key: KeyState) -> bool:
    """Whether jobs of GitHub call all models that name a missing key with an identity."""
    models = [project.models[name] for name in key.models if name in project.models]
    return bool(key.source == "missing" and models) and all(
        project.trust.identity(model.provider, model.service or "") for model in models
    )


def _state(name: str, users: list[str], environ: KeyEnvironment, today: dt.date) -> KeyState:
    sealed = environ.secrets.of(name)
    value, fault = "", ""
    try:
        value = environ.get(name, "").strip()
    except UsageError as error:
        fault = f"{error.message} ({error.hint})"
    days = None if sealed is None else (today - dt.date.fromisoformat(sealed.since)).days
    source: Source = "environment" if environ.is_set(name) else "sealed" if sealed else "missing"
    return KeyState(
        name,
        source,
        sealed is not None,
        value[-SHOWN:] if len(value) >= LEAST and value.isprintable() else "",
        "" if sealed is None else sealed.since,
        days if days is not None and days >= 0 else None,
        tuple(dict.fromkeys(users)),
        tuple(vendor for vendor, defaults in VENDORS.items() if defaults.key_env == name),
        fault,
    )
