"""Files that come with the package: schemas, examples, requirements."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent
KINDS = (
    "edison",
    "models",
    "experiment",
    "prompt",
    "rubric",
    "dataset",
    "quarantine",
    "labels",
    "licences",
    "trust",
)
"""The kinds of file a project has, each with a schema."""


def shipped(kind: str) -> Path:
    """Return the folder of one kind of them, in an installation or a checkout."""
    installed = _HERE / "_shipped" / kind
    return installed if installed.is_dir() else _HERE.parent / kind
