"""The first day of a new user: make a project, commit, break, mend, compare, split."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


def test_a_project_from_its_first_file_to_its_first_pull_request(folder: Folder) -> None:
    assert folder.edison("init", "--template", "customer-support").code == 0
    folder.git("init", "--quiet", "--initial-branch=main")
    folder.git("add", "--all")
    folder.git("commit", "--quiet", "--message", "start")
    assert folder.edison("validate", "--strict").code == 0
    assert folder.git("status", "--porcelain") == "", "looking changes nothing"

    folder.git("checkout", "--quiet", "-b", "better")
    done = folder.edison("plan", "--changed-since", "main")
    assert (done.code, done.out.splitlines()[-1]) == (0, "skipped: nothing affected")

    folder.edit("prompts/support-reply.md", "{{ message }}", "{{ mesage }}")
    done = folder.edison("validate", "prompts/support-reply.md")
    assert done.code == 2
    assert "did you mean 'message'?" in done.out
    place = next(line for line in done.out.splitlines() if "variable 'mesage'" in line).split(":")
    line = folder.read(place[0]).splitlines()[int(place[1]) - 1]
    assert line[int(place[2]) - 1 :].startswith("mesage")

    folder.edit("prompts/support-reply.md", "{{ mesage }}", "{{ message }}")
    folder.edit("prompts/support-reply.md", "Write a reply", "Write a short, kind reply")
    folder.git("commit", "--quiet", "--all", "--message", "better")
    told = json.loads(folder.edison("plan", "--changed-since", "main", "--json").out)
    assert told["changed_since"]["affected"] == [
        {"experiment": "support-reply", "because": ["prompts/support-reply.md"]}
    ]
    (planned,) = told["experiments"]

    rendered = json.loads(folder.edison("try", "--dry-run", "support-reply", "--json").out)
    assert rendered["prompt"]["label"] == f"v1+{rendered['prompt']['hash'][:8]}"
    assert rendered["messages"][-1]["content"].startswith("Write a short, kind reply")

    matrix = json.loads(folder.edison("plan", "--shards", "4").out)["include"]
    assert sum(row["cases"] for row in matrix) == planned["cases"]
