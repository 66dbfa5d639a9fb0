"""Keys of tests: each is made from a label, so that a test works with the same one every time."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric import ec

from edison_ci.access.sealed_keys import read_private_key
from edison_ci.documents.decoding import encode_base64, encode_base64url
from edison_ci.documents.signatures import KeyPair, Signer

if TYPE_CHECKING:
    from edison_ci.access.sealed_keys import PrivateKey


def signing_keys(label: str) -> KeyPair:
    """Return a pair of keys that signs results, answers and bundles."""
    private = encode_base64(_bytes(label))
    return KeyPair(private, Signer(private).public)


def sealing_key(label: str) -> PrivateKey:
    """Return a private key that opens sealed keys, with its public key."""
    return read_private_key(f"edison_key_{encode_base64url(_bytes(label))}", label)


def certificate_key(label: str) -> ec.EllipticCurvePrivateKey:
    """Return a private key for a certificate."""
    return ec.derive_private_key(int.from_bytes(_bytes(label)), ec.SECP256R1())


def _bytes(label: str) -> bytes:
    return hashlib.sha256(f"a key of tests: {label}".encode()).digest()
