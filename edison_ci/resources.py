"""Data files of the package: schemas, examples, requirements."""

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
    "about",
    "quarantine",
    "labels",
    "judge_approvals",
    "trust",
    "secrets",
)
"""The kinds of project files, each with a schema."""
MESSAGES = ("notification",)
"""Other things with a schema: what is sent to programs."""


def resource_folder(kind: str) -> Path:
    """Return the folder of one kind of data files, in an installation or a checkout."""
    installed = _HERE / "_shipped" / kind
    return installed if installed.is_dir() else _HERE.parent / kind
