"""A stored vector has one text."""

from __future__ import annotations

import pytest

from edison_ci.checks.embeddings import pack_vector, unpack_vector
from edison_ci.checks.evaluation import EvaluationError
from tests.respelled import same_bytes

START = "float32:"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_vector_comes_back(size: int) -> None:
    numbers = (0.5, -2.0, 1024.0)[:size]
    assert unpack_vector(pack_vector(numbers)) == numbers


def test_a_vector_in_another_spelling_is_none() -> None:
    text = pack_vector([0.5]).removeprefix(START)
    for other in same_bytes(text):
        with pytest.raises(EvaluationError, match="the stored embedding is not a vector"):
            unpack_vector(f"{START}{other}")
