"""Embeddings of texts: how a vector is stored, read and compared."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from edison_ci.checks.evaluation import EvaluationError
from edison_ci.documents.decoding import decode_base64, encode_base64

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_NUMBERS = 65_536
"""Longer vectors are not plausible."""
_FORM = "float32:"
_SIZE = 4


def pack_vector(numbers: Sequence[float]) -> str:
    """Return a vector as text; raises ValueError unless all of it are finite numbers."""
    if not 0 < len(numbers) <= MOST_NUMBERS:
        raise ValueError(f"a vector of {len(numbers):,} numbers")
    if not all(type(x) in (int, float) and math.isfinite(x) for x in numbers):
        raise ValueError("a vector with values that are not numbers")
    try:
        # Models compute in single precision at most, and half the bytes of JSON hold it.
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
    except (OverflowError, struct.error):
        raise ValueError("a vector with numbers that are too large") from None
    return _FORM + encode_base64(packed)


def is_vector(text: str) -> bool:
    """Whether a stored text is a vector."""
    return text.startswith(_FORM)


def unpack_vector(text: str) -> tuple[float, ...]:
    """Return the vector in a stored text; raises EvaluationError if it is none."""
    try:
        raw = decode_base64(text.removeprefix(_FORM)) if is_vector(text) else b""
        numbers = struct.unpack(f"<{len(raw) // _SIZE}f", raw)
    except (ValueError, struct.error):
        numbers = ()
    if not 0 < len(numbers) <= MOST_NUMBERS or not all(map(math.isfinite, numbers)):
        raise EvaluationError("the stored embedding is not a vector")
    return numbers


def cosine_of_vectors(vector: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of two vectors; 0 if one is zero. Raises EvaluationError."""
    if len(vector) != len(other):
        sizes = f"{len(vector):,} and {len(other):,} numbers"
        raise EvaluationError(f"the embeddings cannot be compared: vectors of {sizes}")
    length = math.sqrt(_dot(vector, vector) * _dot(other, other))
    return _dot(vector, other) / length if length else 0.0


def _dot(vector: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(vector, other, strict=True))
