"""Commit, branch, author and versions of prompts in every list of runs."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest

from tests.web.conftest import LINES, started

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily


@pytest.fixture
def project(mini: Folder) -> Folder:
    """A project on a branch of its own, with two runs: of a commit, and of changed files."""
    mini.write(".gitignore", ".edison/\n")
    for command in ("init -q --initial-branch=main", "checkout -q -b better-greeting", "add -A"):
        mini.git(*command.split())
    mini.git("commit", "-qm", "first", "--author=Ada & Co <ada@example.org>")
    return mini


def test_lists_name_what_was_run(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    project.edit("prompts/hello.md", "Say hello", "Say a warm hello")
    edison(project, "run", "-q")
    commit = project.git("rev-parse", "HEAD")
    runs = json.loads(edison(project, "status", "--json").out)["runs"]
    assert [run["source"] for run in runs] == [
        {"commit": commit, "branch": "better-greeting", "author": "Ada & Co", "changed": c}
        for c in (True, False)
    ]
    table = edison(project, "status").out.splitlines()
    assert table[0].split()[-2:] == ["prompt", "commit"]
    label = runs[0]["prompts"][0]["label"]
    assert table[1].endswith(f"{label}  {commit[:8]} changed on better-greeting, Ada & Co")
    assert table[2].endswith(f"{commit[:8]} on better-greeting, Ada & Co")
    trend = edison(project, "trends", "hello")
    assert f"{commit[:8]} on better-greeting" in trend.out
    points = json.loads(edison(project, "trends", "hello", "--json").out)["experiments"][0]["runs"]
    assert points[0]["source"]["branch"] == "better-greeting"
    assert points[0]["prompts"] == {"hello": runs[1]["prompts"][0]["label"]}


def test_pages_and_exports_name_it_too(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    commit = project.git("rev-parse", "HEAD")[:8]
    for server in started(project.path, LINES[0], "--offline"):
        for address in ("/-/edison", "/-/edison/experiment/hello", f"/-/edison/search?q={commit}"):
            page = server.get(address).text
            assert f"{commit} on better-greeting, Ada &amp; Co" in page, address
        export = server.get("/-/edison/experiment/hello/export?format=csv").text
    (row,) = csv.DictReader(io.StringIO(export))
    assert (row["branch"], row["author"]) == ("better-greeting", "Ada & Co")


def test_without_a_repository_there_is_no_column(edison: Edison, mini: Folder) -> None:
    edison(mini, "run", "-q")
    assert edison(mini, "status").out.splitlines()[0].split()[-1] == "prompt"
    (run,) = json.loads(edison(mini, "status", "--json").out)["runs"]
    assert run["source"] == {"commit": None, "branch": None, "author": None, "changed": False}


def test_a_job_without_a_branch_names_that_of_the_pull_request(
    edison: Edison, project: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.git("checkout", "-q", "--detach")
    monkeypatch.setenv("GITHUB_HEAD_REF", "from-a-pull-request")
    edison(project, "run", "-q")
    (run,) = json.loads(edison(project, "status", "--json").out)["runs"]
    assert run["source"]["branch"] == "from-a-pull-request"
