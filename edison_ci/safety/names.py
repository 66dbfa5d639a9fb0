"""Kinds of personal data, and names in a text by a pipeline of spaCy that is installed.

A pipeline is a separate package, which `python -m spacy download NAME` installs. It is loaded by
the name of its package only: a folder of the repository may hold code that loading it would run.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

PII_KINDS = (
    "e-mail", "phone", "ssn", "national-id", "iban", "card", "ip", "person", "place"
)  # fmt: skip
"""Kinds of personal data; the last two are found by a pipeline of spaCy."""
KINDS = {"PERSON": "person", "PER": "person", "GPE": "place", "LOC": "place"}
"""Kinds of personal data by the labels of the pipelines."""
_PIECE = 100_000
"""Characters that a pipeline reads at once; its memory grows with them."""


def find_names(text: str, pipeline: str) -> Iterator[tuple[str, int, int]]:
    """Yield kind, start and end of the names in a text."""
    model = load_pipeline(pipeline)
    for start in range(0, len(text), _PIECE):
        for entity in model(text[start : start + _PIECE]).ents:
            if (kind := KINDS.get(entity.label_)) is not None:
                yield kind, start + entity.start_char, start + entity.end_char


@cache
def load_pipeline(pipeline: str) -> Any:
    """Load a pipeline, which takes seconds; raises UsageError if it cannot be loaded."""
    try:
        return importlib.import_module(pipeline).load()
    except Exception as error:  # anything the package raises, such as for another version of spaCy
        raise UsageError(
            f"the pipeline {pipeline} cannot be loaded: {type(error).__name__}: {error}",
            hint=f"install it again: python -m spacy download {pipeline}",
        ) from None
