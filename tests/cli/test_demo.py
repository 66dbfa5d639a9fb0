"""edison demo: a whole first day, offline, from an empty folder to a better prompt on a branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edison_ci.cli.init import TEMPLATES

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder, Result

KEPT = "customer-support"
"""The template that is kept in a test of its own."""
STEPS = ["init", "validate", "plan", "try", "run", "run", "refine", "propose"]


def steps(done: Result) -> list[str]:
    """Return the commands of a demo."""
    return [line.split()[2] for line in done.err.splitlines() if line.startswith("$ edison")]


@pytest.mark.parametrize("template", [name for name in TEMPLATES if name != KEPT])
def test_every_template_goes_all_the_way_to_a_branch(
    edison: Edison, folder: Folder, template: str
) -> None:
    done = edison(folder, "demo", "--template", template, "--offline")
    assert done.code == 0
    assert steps(done) == STEPS
    assert "COMPLETED  simulated" in done.out
    assert "0 calls made" in done.out, "the second run buys nothing"
    assert "On the branch: edison/refine/" in done.out
    gains = next(line for line in done.out.splitlines() if line.startswith("Its gain: +"))
    assert "unseen cases  simulated" in gains
    assert done.err.rstrip().endswith(f"edison init my-prompts --template {template}")
    assert list(folder.path.iterdir()) == []


def test_what_is_kept_is_a_repository_with_the_branch(folder: Folder) -> None:
    done = folder.edison("demo", "--keep", "--offline", env={"TMPDIR": str(folder.path)})
    assert done.code == 0, done.err
    (home,) = folder.path.iterdir()
    kept = type(folder)(home / KEPT)
    assert steps(done) == STEPS
    assert f"The repository is in {kept.path}" in done.err
    branch = "edison/refine/support-reply-1"
    assert kept.git("rev-parse", "--abbrev-ref", "HEAD") == "main"
    assert kept.git("status", "--porcelain") == ""
    assert kept.git("diff", "--name-only", "main", branch) == "prompts/support-reply.md"
    assert "Edison-Suggestion: " in kept.git("log", "-1", "--format=%B", branch)
    assert kept.git("rev-list", "--count", f"main..{branch}") == "1"
