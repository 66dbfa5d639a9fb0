"""The prompt of an answer, rendered again as it was sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.opened import opened

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

ADDRESS = "ada@example.org"


@pytest.fixture
def project(mini: Folder) -> Folder:
    """A project with two messages, whose model repeats the last one."""
    mini.edit("models.yaml", "model: small}", "model: echo}")
    mini.write(
        "prompts/hello.md",
        "# system\nYou greet people in one short and friendly sentence.\n"
        "# user\nSay hello to {{ name }}, who is <b>new</b> here.\n",
    )
    for command in ("init -q", "add -A", "commit -qm first"):
        mini.git(*command.split())
    return mini


def explained(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "explain", *(args or ("ada@small",)), "--json")
    assert done.code == 0, done.all
    found = json.loads(done.out)
    assert isinstance(found, dict)
    return found


def test_the_messages_are_those_that_the_model_got(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    found = explained(edison, project)
    system, user = found["sent"]["messages"]
    assert (system["role"], user["role"]) == ("system", "user")
    assert system["content"] == "You greet people in one short and friendly sentence."
    assert user["content"] == "Say hello to Ada, who is <b>new</b> here."
    assert found["answer"]["raw"] == user["content"], "the model repeats what it got"
    assert found["sent"]["why_not"] is None
    lines = edison(project, "explain", "ada@small").out.splitlines()
    at = lines.index("--- sent as system")
    assert lines[at + 2 : at + 4] == ["--- sent as user", user["content"]]


def test_an_older_version_comes_from_git(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    before = explained(edison, project)["sent"]
    project.edit("prompts/hello.md", "Say hello to", "Welcome our guest")
    assert explained(edison, project)["sent"] == before, "the commit of the run has it"
    edison(project, "run", "-q")
    changed = explained(edison, project)["sent"]
    assert changed["messages"][1]["content"].startswith("Welcome our guest Ada")
    project.edit("prompts/hello.md", "Welcome our guest", "Greet")
    lost = explained(edison, project)["sent"]
    assert lost["messages"] == []
    assert lost["why_not"].endswith("is neither in the files nor in the history of Git")
    assert "--- sent\n" + lost["why_not"] in edison(project, "explain", "ada@small").out
    project.edit("prompts/hello.md", "Greet", "Welcome our guest")
    project.git("commit", "-qam", "second")
    project.edit("prompts/hello.md", "Welcome our guest", "Greet")
    assert explained(edison, project)["sent"] == changed, "it was committed after the run"


def test_the_prompt_of_the_base_is_that_of_the_base(edison: Edison, project: Folder) -> None:
    project.edit("prompts/hello.md", "Say hello to", "Welcome our guest")
    assert edison(project, "run", "-q", "--against", "HEAD").code in {0, 1}
    with opened(project.path / ".edison/results.db") as connection:
        (cell,) = connection.execute(
            "select id from cell where side = 'base' and case_id = 'ada' limit 1"
        ).fetchone()
    sent = explained(edison, project, cell[:12])["sent"]["messages"]
    assert sent[1]["content"] == "Say hello to Ada, who is <b>new</b> here."


def test_what_may_not_be_shown_is_not(edison: Edison, project: Folder) -> None:
    project.edit("datasets/names.jsonl", '"name": "Ada"', f'"name": "Ada, {ADDRESS}"')
    project.edit("experiments/hello.yaml", "gates:", "safety: {pii: block}\ngates:")
    edison(project, "run", "-q")
    blocked = explained(edison, project)
    assert blocked["status"] == "blocked"
    assert blocked["sent"]["messages"] == []
    assert "blocked" in blocked["sent"]["why_not"]
    project.edit("experiments/hello.yaml", "safety: {pii: block}\n", "")
    project.edit("edison.yaml", "version: 1\n",
                 "version: 1\nsettings: {redact_pii_before_storage: true}\n")  # fmt: skip
    edison(project, "run", "-q")
    done = edison(project, "explain", "ada@small")
    assert "Say hello to Ada, [E-MAIL], who" in done.out
    assert ADDRESS not in done.all


def test_a_changed_case_has_no_prompt(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    project.edit("datasets/names.jsonl", '"name": "Ada"', '"name": "Eve"')
    assert explained(edison, project)["sent"] == {"messages": [], "why_not": None}
    assert "--- sent" not in edison(project, "explain", "ada@small").out
