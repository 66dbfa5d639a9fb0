"""edison demo: a whole first day, offline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edison_ci.cli.init import TEMPLATES

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_is_made_checked_planned_and_run(
    edison: Edison, folder: Folder, template: str
) -> None:
    done = edison(folder, "demo", "--template", template, "--offline")
    assert done.code == 0
    steps = [line for line in done.err.splitlines() if line.startswith("$ edison")]
    assert [step.split()[2] for step in steps] == ["init", "validate", "plan", "try", "run", "run"]
    assert "COMPLETED  simulated" in done.out
    assert "0 calls made" in done.out, "the second run buys nothing"
    assert done.err.rstrip().endswith(f"edison init my-prompts --template {template}")
    assert list(folder.path.iterdir()) == []
