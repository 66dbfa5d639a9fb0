"""From a weak prompt to a better one in the repository, with a person in between."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import EXAMPLES, Folder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.daily

PROMPT = "prompts/support-reply.md"

OWN_IGNORE_FILE = "?? .edison/.gitignore"
"""All that a refinement leaves for Git: the file that keeps results and locks out of it."""


def told(folder: Folder, *args: str) -> Any:
    done = folder.edison(*args, "--json")
    assert done.code == 0, done.all
    return json.loads(done.out)


def test_a_refined_prompt_is_proposed_approved_and_in_the_repository(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "customer-support", tmp_path / "support")
    project = Folder(tmp_path / "support")
    bare = Folder(tmp_path / "remote.git")
    bare.path.mkdir()
    bare.git("init", "--quiet", "--bare", "--initial-branch=main")
    project.git("config", "--global", "user.name", "Ada")
    project.git("config", "--global", "user.email", "ada@example.org")
    project.git("init", "--quiet", "--initial-branch=main")
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "start")
    project.git("remote", "add", "origin", str(bare.path))
    project.git("push", "--quiet", "--set-upstream", "origin", "main")
    before = project.read(PROMPT)

    (suggestion,) = told(project, "refine", "support-reply")["suggestions"]
    assert suggestion["status"] == "proposed"
    assert project.read(PROMPT) == before
    assert project.git("status", "--porcelain") == OWN_IGNORE_FILE

    offered = told(project, "propose")
    assert bare.git("rev-parse", offered["branch"]) == offered["commit"]
    refined = bare.git_bytes("show", f"{offered['branch']}:{PROMPT}").decode()
    assert refined != before
    assert project.read(PROMPT) == before

    (decided,) = told(project, "review", "approve", suggestion["id"])["suggestions"]
    assert (decided["status"], decided["decided_by"]) == ("applied", "ada@example.org")
    assert project.read(PROMPT) == refined
    assert project.git_bytes("show", f"HEAD:{PROMPT}").decode() == refined
    assert project.git("status", "--porcelain") == OWN_IGNORE_FILE

    newest, first = told(project, "history", "support-reply")["versions"]
    assert (newest["label"], newest["suggestion"]) == ("v2", suggestion["id"])
    assert newest["version"] == suggestion["new_hash"]
    assert newest["composite"]["estimate"] > first["composite"]["estimate"]
    assert newest["simulated"] is True
