"""Embeddings of texts made on this machine, from weights that a Python package carries.

Weights and tokenizer are files of the package `wordllama`, whose own code is never imported: its
newer releases are compiled and have no wheel for ARM64 Linux or Python 3.14, while 0.2.2 is one
wheel for every machine, with the same weights. A text is the mean of the vectors of its tokens.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.checks.evaluation import using
from edison_ci.extras import SAFETENSORS, TOKENIZERS, WORDLLAMA

if TYPE_CHECKING:
    from numpy import float16, float64
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_WEIGHTS = "weights/l2_supercat_256.safetensors"


class _Model(NamedTuple):
    tokenizer: Tokenizer
    weights: NDArray[float16]
    """A row for each token."""

    def vector(self, text: str) -> NDArray[float64]:
        """Return the sum of the vectors of the tokens: the direction is that of their mean."""
        found = self.tokenizer.encode(text, add_special_tokens=False).ids
        # Half-precision numbers have so few digits that double precision adds them up without
        # rounding: the sum does not depend on its order, nor on the machine.
        total: NDArray[float64] = self.weights[found].sum(axis=0, dtype="float64")
        return total


@cache
def _model() -> _Model:
    with using(SAFETENSORS):
        from safetensors.numpy import load_file
    with using(TOKENIZERS):
        from tokenizers import Tokenizer
    with using(WORDLLAMA):
        folder = WORDLLAMA.folder()
        tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        return _Model(tokenizer, load_file(folder / _WEIGHTS)["embedding.weight"])


def cosine(one: str, other: str) -> float:
    """Return the cosine of the embeddings of two texts, 0 where one has no direction."""
    model = _model()
    a, b = model.vector(one), model.vector(other)
    length = math.sqrt(_dot(a, a) * _dot(b, b))
    return _dot(a, b) / length if length else 0.0


def _dot(a: NDArray[float64], b: NDArray[float64]) -> float:
    # Not `a @ b`: the order in which a library adds depends on the machine.
    return math.fsum((a * b).tolist())
