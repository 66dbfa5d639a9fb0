"""A job is told what it may do and what changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.access.test_events import example

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


@pytest.fixture
def merged(mini: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A checkout of the commit that merges a pull request into main, and its event."""
    mini.git("init", "--quiet", "--initial-branch=main")
    mini.git("add", "--all")
    mini.git("commit", "--quiet", "--message", "start")
    mini.git("checkout", "--quiet", "-b", "topic")
    mini.edit("prompts/hello.md", "friendly", "warm")
    mini.git("commit", "--quiet", "--all", "--message", "warmer")
    mini.git("checkout", "--quiet", "--detach", "main")
    mini.git("merge", "--quiet", "--no-ff", "--message", "merge", "topic")
    payload = example("pull_request")
    payload["pull_request"]["head"]["sha"] = mini.git("rev-parse", "topic")
    payload["pull_request"]["base"]["sha"] = mini.git("rev-parse", "main")
    file = tmp_path / "event.json"
    file.write_text(json.dumps(payload))
    monkeypatch.setenv("GITHUB_EVENT_NAME", "pull_request")
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(file))
    return mini


def test_a_pull_request_is_described(edison: Edison, merged: Folder) -> None:
    done = edison(merged, "github", "event")
    assert (done.code, done.err) == (0, "")
    head, base = merged.git("rev-parse", "topic"), merged.git("rev-parse", "main")
    assert done.out.splitlines() == [
        "pull_request 2: pull request",
        "  mode  live: the branch is in this repository",
        f"  head  {head}",
        f"  base  {base}: the base that the pull request was merged into",
        "  1 file changed",
        "    prompts/hello.md",
    ]
    said = json.loads(edison(merged, "github", "event", "--json").out)
    assert said["changed"] == ["prompts/hello.md"]
    assert (said["mode"], said["trusted"], said["compare_with"]) == ("live", True, base)


def test_what_it_names_is_what_a_run_compares_with(edison: Edison, merged: Folder) -> None:
    base = json.loads(edison(merged, "github", "event", "--json").out)["compare_with"]
    planned = edison(merged, "plan", "--changed-since", base, "--json")
    assert [e["experiment"] for e in json.loads(planned.out)["experiments"]] == ["hello"]


def test_outside_of_a_job_and_of_a_repository_it_says_so(
    edison: Edison, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = edison(folder, "github", "event")
    assert done.code == 2
    assert "this is not a job of GitHub Actions" in done.err
    monkeypatch.setenv("GITHUB_EVENT_NAME", "schedule")
    done = edison(folder, "github", "event")
    assert (done.code, done.out.splitlines()[-1]) == (0, "  every file counts as changed")
