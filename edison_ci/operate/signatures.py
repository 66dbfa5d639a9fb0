"""Signatures of results files: a pair of keys, signing, and the check before anything is believed.

A results file that another job left says whatever its writer liked. One that is signed with the
private key of the project (Ed25519) was handed on by a job that holds it. What is signed is the
SHA-256 of the very bytes of the file; the signature stands beside it, in `FILE.sig`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.documents.secrets import remember
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

VARIABLE = "EDISON_SIGNING_KEY"
"""The variable that holds the private key; it is read from nowhere else."""
_ABOUT = b"edison-ci results 1\n"
"""Stands before the digest, so that no signature of anything else fits."""
_KIND = "ed25519 "
_LONGEST = 200
_KEY_BYTES = 32
_LOGS = ("-wal", "-journal")


class Pair(NamedTuple):
    """A private key, and the public one that its signatures are checked with; both as base64."""

    private: str
    public: str


def make_pair() -> Pair:
    """Return a new pair of keys."""
    key = _ed25519().Ed25519PrivateKey.generate()
    return Pair(_text(key.private_bytes_raw()), _text(key.public_key().public_bytes_raw()))


def signature_beside(path: Path) -> Path:
    """Return where the signature of a file stands."""
    return path.with_name(f"{path.name}.sig")


def sign(path: Path, private: str) -> str:
    """Sign a file, and write the signature beside it; return the public key."""
    remember([private])
    raw = _bytes(private.strip())
    if raw is None or len(raw) != _KEY_BYTES:
        raise UsageError(
            f"{VARIABLE} holds no private key for results",
            hint="make one, and keep it as a secret of an environment: edison db keygen",
        )
    _refuse_unfinished(path)
    key = _ed25519().Ed25519PrivateKey.from_private_bytes(raw)
    signature = key.sign(_ABOUT + _digest(path))
    signature_beside(path).write_text(f"{_KIND}{_text(signature)}\n", encoding="ascii")
    return _text(key.public_key().public_bytes_raw())


def is_signed(path: Path, keys: Iterable[str]) -> bool:
    """Whether one of these public keys fits the signature beside a file, to its very bytes."""
    known = [raw for key in keys if (raw := _bytes(key)) is not None and len(raw) == _KEY_BYTES]
    signature = _signature(path)
    if not known or signature is None or any(map(_has_content, _logs(path))):
        return False
    library = _ed25519()
    said = _ABOUT + _digest(path)
    return any(_fits(library.Ed25519PublicKey.from_public_bytes(raw), signature, said)
               for raw in known)  # fmt: skip


def _fits(key: Any, signature: bytes, said: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, said)
    except InvalidSignature:
        return False
    return True


def _signature(path: Path) -> bytes | None:
    """Return the signature beside a file; None if there is none that could fit."""
    try:
        with signature_beside(path).open("rb") as stream:
            text = stream.read(_LONGEST).decode("ascii")
    except (OSError, UnicodeDecodeError):
        return None
    return _bytes(text.strip().removeprefix(_KIND)) if text.startswith(_KIND) else None


def _refuse_unfinished(path: Path) -> None:
    """Refuse a file that has a log beside it: its bytes are not all there is of it."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint="name a copy: edison db backup")
    if any(map(_has_content, _logs(path))):
        raise UsageError(
            f"{path} is in use: a log stands beside it", hint="sign a copy: edison db backup"
        )


def _logs(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in _LOGS]


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _digest(path: Path) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _ed25519() -> Any:
    """Return the library, which only those need who sign, or trust a signature."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise UsageError(
            "signed results need the library cryptography, which is not installed",
            hint="pip install 'cryptography>=46'",
        ) from None
    return ed25519
