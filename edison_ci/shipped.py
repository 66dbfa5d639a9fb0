"""Where are the files that come with the package: schemas and example projects?"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent


def shipped(kind: str) -> Path:
    """Return the folder of `schemas` or `examples`, in an installation or a checkout."""
    installed = _HERE / "_shipped" / kind
    return installed if installed.is_dir() else _HERE.parent / kind
