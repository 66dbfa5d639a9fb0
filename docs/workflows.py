"""Writes what the documentation says of action.yml and of the workflows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from docs.reference import table

_ROOT = Path(__file__).parent.parent


def _action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((_ROOT / "action.yml").read_text(encoding="utf-8"))
    return found


def inputs() -> str:
    """Return the inputs of the action."""
    rows = [
        (f"`{name}`", f"`{about['default']}`" if about["default"] else "", about["description"])
        for name, about in _action()["inputs"].items()
    ]
    return table(("input", "default", "says"), rows)


def outputs() -> str:
    """Return the outputs of the action."""
    rows = [(f"`{name}`", about["description"]) for name, about in _action()["outputs"].items()]
    return table(("output", "is"), rows)
