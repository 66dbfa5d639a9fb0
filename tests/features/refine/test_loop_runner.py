"""A loop that is killed at every named point comes to the same end, and pays for nothing twice."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edison_ci.features.refine import loop_runner as runner
from edison_ci.features.refine.loop_rows import LoopState
from tests import forked
from tests.conftest import Folder
from tests.opened import opened
from tests.timing import PATIENCE_S

pytestmark = pytest.mark.daily

POINTS = (
    "measuring", "measured", "deciding", "refining", "refined", "reviewing", "committing",
    "committed",
    "confirming", "confirmed", "reporting", "written",
)  # fmt: skip
JOBS = """
import json, os, signal, sys
import edison_ci.features.refine.loop_command
import edison_ci.features.refine.loop_runner as runner
from edison_ci.cli.app import run

def process(folder, point):
    os.chdir(folder)
    def arrive(at):
        if at == point:
            os.kill(os.getpid(), signal.SIGKILL)
    runner.reach_point = arrive
    with open("out.json", "w") as out:
        os.dup2(out.fileno(), 1)
    run(["loop", "support-reply", "--auto-approve", "--json"])

for folder, point in json.loads(sys.argv[1]):
    pid = os.fork()
    if pid == 0:
        process(folder, point)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""Starts a process for each job, which dies at its point; forked, since importing takes long."""
BRANCH = "edison/loop/support-reply"


def prepared(folder: Folder) -> Folder:
    """Return the template in a repository, with a loop that ends after one change."""
    folder.edit(
        "edison.yaml", "version: 1", "version: 1\nsettings: {require_review_approval: false}"
    )
    folder.edit(
        "experiments/support-reply.yaml",
        "stop: {max_iterations: 5, budget_usd: 5}",
        "stop: {max_iterations: 5, budget_usd: 5, window: 1, min_delta: 0.9}",
    )
    folder.edit(
        "experiments/support-reply.yaml",
        "  - {path: datasets/adversarial.jsonl, kind: adversarial}\n",
        "",
    )
    folder.edit("experiments/support-reply.yaml", "kind: golden}", "kind: golden, take: 40}")
    folder.write(
        ".gitignore",
        ".edison/\nout.json\n",
    )
    folder.git("init", "-q", "--initial-branch=main")
    folder.git("config", "user.name", "Ada")
    folder.git("config", "user.email", "ada@example.org")
    folder.git("add", "-A")
    folder.git("commit", "-qm", "start")
    return folder


def processes(jobs: list[tuple[Folder, str | None]]) -> list[int]:
    """Run the command in one process after the other; return how each of them ended."""
    told = json.dumps([(str(folder.path), point) for folder, point in jobs])
    done = forked.run(
        [sys.executable, "-c", JOBS, told], capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return [int(line) for line in done.stdout.split()]


def ended(folder: Folder) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(folder.read("out.json"))
    assert told.get("status") == "done", told
    return told


def what_came(folder: Folder, told: dict[str, Any]) -> dict[str, Any]:
    """Return the end of a loop, without what differs from one time to the next."""
    with opened(folder.path / ".edison/results.db") as connection:
        paid = connection.execute(
            "select phase, count(*), count(distinct request_hash) from attempt where state = "
            "'settled' "
            "group by phase order by phase"
        ).fetchall()
        runs = connection.execute(
            "select status, count(*) from run where trigger = 'loop' group by status"
        ).fetchall()
        suggestions = connection.execute("select id, status from suggestion order by id").fetchall()
    return {
        "scores": [(one["version"], one["score"], one["suggestion"]) for one in told["iterations"]],
        "why": told["stopped_by"],
        "sentence": told["sentence"],
        "holdout": told["holdout"],
        "prompt": folder.git("show", f"{BRANCH}:prompts/support-reply.md"),
        "commits": folder.git("rev-list", "--count", f"main..{BRANCH}"),
        "best": (folder.path / told["files"]["prompt_md"]).read_text(),
        "paid": paid,
        "runs": runs,
        "suggestions": suggestions,
    }


@pytest.fixture
def counterpart(support: Folder, tmp_path: Path) -> Folder:
    """A copy of the prepared template."""
    prepared(support)
    copy = tmp_path / "twin"
    subprocess.run(["cp", "-r", str(support.path), str(copy)], check=True)
    return Folder(copy)


@pytest.mark.nightly
def test_killed_at_each_named_point_it_comes_to_the_same_end(
    support: Folder, counterpart: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    dying: list[tuple[Folder, str | None]] = [(support, point) for point in POINTS]
    codes = processes([*dying, (support, None), (counterpart, None)])
    assert codes == [-signal.SIGKILL] * len(POINTS) + [0, 0]
    came, expected = what_came(support, ended(support)), what_came(counterpart, ended(counterpart))
    assert came == expected
    assert expected["why"] == "converged"
    assert expected["commits"] == "1"
    assert "On 17 held-out cases the new prompt is +" in expected["sentence"], expected["sentence"]
    assert all(calls == asked for _, calls, asked in expected["paid"])
    assert expected["runs"] == [("COMPLETED", 2)]
    for folder in (support, counterpart):
        assert folder.git("status", "--porcelain") == "", "nothing of the working tree changed"
        assert folder.git("branch", "--show-current") == "main"
    assert support.edison("admin", "db", "check").code == 0
    taken_elsewhere(support, counterpart)


@pytest.mark.nightly
def test_killed_half_way_through_several_prompts_it_comes_to_the_same_end(
    support: Folder, counterpart: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    for folder in (support, counterpart):
        text = folder.read("prompts/support-reply.md").replace("id: support-reply", "id: warm")
        warm = text.replace("# user\n", "# user\nThank the customer.\n")
        folder.write("prompts/warm.md", warm)
        both = "prompts: [prompts/support-reply.md, prompts/warm.md]"
        folder.edit("experiments/support-reply.yaml", "prompts: [prompts/support-reply.md]", both)
        folder.git("add", "-A")
        folder.git("commit", "-qm", "two prompts")
    points = ("measured", "refined", "committed", "confirmed")
    dying: list[tuple[Folder, str | None]] = [(support, point) for point in points]
    codes = processes([*dying, (support, None), (counterpart, None)])
    assert codes == [-signal.SIGKILL] * len(points) + [0, 0]
    came, expected = what_came(support, ended(support)), what_came(counterpart, ended(counterpart))
    assert came == expected
    assert expected["commits"] == "2", "one for each prompt, and none twice"
    assert all(calls == asked for _, calls, asked in expected["paid"])
    assert expected["runs"] == [("COMPLETED", 2)]


def taken_elsewhere(support: Folder, counterpart: Folder) -> None:
    """What a loop took on its branch is not lost: another loop waits for it, or takes it again."""
    waiting = support.edison("loop", "support-reply")
    assert waiting.code == 0, waiting.all
    assert f"is applied on {BRANCH}, but not" in waiting.out
    counterpart.git("branch", "-D", BRANCH)
    again = counterpart.edison("loop", "support-reply", "--auto-approve", "--json")
    assert again.code == 0, again.all
    assert json.loads(again.out)["cost_microusd"] == 0
    assert counterpart.git("rev-list", "--count", f"main..{BRANCH}") == "1"


def test_every_named_point_is_listed_and_killed_at() -> None:
    listed = re.findall(r"^    (\w+) {2,}\w", runner.__doc__ or "", re.M)
    named = re.findall(r'reach_point\("(\w+)"\)', Path(runner.__file__).read_text())
    assert set(listed) == set(POINTS) == {*named, *LoopState} - {"done"}
