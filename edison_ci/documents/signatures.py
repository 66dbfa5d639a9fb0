"""Signatures: what was signed with the private key of a project, and who can check it.

They are Ed25519, over a prefix that names the kind of thing and the SHA-256 of its bytes. The
private key is in a variable of the environment and nowhere else; public keys are listed in
`.edison/trust.yaml`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.documents.decoding import decode_base64, encode_base64
from edison_ci.documents.secrets import remember
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

VARIABLE = "EDISON_SIGNING_KEY"
"""Environment variable of the private key, its only source."""
_KEY_BYTES = 32


class KeyPair(NamedTuple):
    """A private key and its public key, both as base64."""

    private: str
    public: str


class Signed(NamedTuple):
    """A signature and the public key that it fits, both as base64."""

    signature: str
    public: str


def generate_keys() -> KeyPair:
    """Return a new pair of keys."""
    key = _ed25519().Ed25519PrivateKey.generate()
    return KeyPair(
        encode_base64(key.private_bytes_raw()), encode_base64(key.public_key().public_bytes_raw())
    )


class Signer:
    """Signs digests with a private key; raises UsageError if that is none."""

    def __init__(self, private: str) -> None:
        remember([private])
        raw = _bytes(private.strip())
        if raw is None or len(raw) != _KEY_BYTES:
            raise UsageError(
                f"{VARIABLE} is not a valid private key",
                hint="create one: `edison admin db keygen`, and store it as a secret of an "
                "environment",
            )
        self._key = _ed25519().Ed25519PrivateKey.from_private_bytes(raw)
        self.public = encode_base64(self._key.public_key().public_bytes_raw())

    def sign(self, about: bytes, digest: bytes) -> Signed:
        """Return the signature of a digest; `about` is the prefix of its kind."""
        return Signed(encode_base64(self._key.sign(about + digest)), self.public)


def signer_of(about: bytes, digest: bytes, signature: str, keys: Iterable[str]) -> str | None:
    """Return the public key, of some, that a signature fits; None if it fits none."""
    raw_keys = {key: raw for key in keys if (raw := _key(key)) is not None}
    value = _bytes(signature)
    if not raw_keys or value is None:
        return None
    library = _ed25519()
    signed = about + digest
    return next(
        (
            key
            for key, raw in raw_keys.items()
            if _fits(library.Ed25519PublicKey.from_public_bytes(raw), value, signed)
        ),
        None,
    )


def _fits(key: Any, signature: bytes, signed: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def _key(text: str) -> bytes | None:
    raw = _bytes(text)
    return raw if raw is not None and len(raw) == _KEY_BYTES else None


def _bytes(text: str) -> bytes | None:
    try:
        return decode_base64(text)
    except ValueError:
        return None


def _ed25519() -> Any:
    """Return the library, which is needed for signatures only."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise UsageError(
            "signatures need the library cryptography, which is not installed",
            hint="pip install 'cryptography>=46'",
        ) from None
    return ed25519
