"""Writes what the documentation says of action.yml and of the workflows."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import yaml

from docs.reference import table
from edison_ci.api.workflows import FURTHER

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


def workflow(name: str) -> str:
    """Return a workflow as `edison init --github` writes it."""
    text = (_ROOT / "examples" / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
    return f'```yaml title=".github/workflows/{name}.yml"\n{text}```'


def list_of_workflows() -> str:
    """Return what each workflow is for, how it is requested and what it may do."""
    options = {file: f"`--workflow {name}`" for name, file in FURTHER.items()}
    options |= {"edison.yml": "always", "edison-batch.yml": "`--batch`, as `edison.yml`"}
    rows = []
    for file, option in sorted(options.items(), key=lambda each: each[1] != "always"):
        text = (_ROOT / "examples" / "workflows" / file).read_text(encoding="utf-8")
        *_, job = yaml.safe_load(text)["jobs"].values()
        about = " ".join(itertools.takewhile(bool, (_comment(line) for line in text.splitlines())))
        may = ", ".join(f"`{what}: {how}`" for what, how in job["permissions"].items())
        rows.append((f"`{file}`", option, about, may))
    return table(("workflow", "written with", "does", "may"), rows)


def _comment(line: str) -> str:
    return line[1:].strip() if line.startswith("#") else ""


def outputs() -> str:
    """Return the outputs of the action."""
    rows = [(f"`{name}`", about["description"]) for name, about in _action()["outputs"].items()]
    return table(("output", "is"), rows)
