"""An edited prompt becomes a branch with a pull request, and nothing else changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.access.site import Actor, Identity, Role, open_site
from edison_ci.errors import UsageError
from edison_ci.features.review.actions import ReviewActions
from edison_ci.features.review.prompt_drafts import EditedPrompt
from edison_ci.store.database import open_database

if TYPE_CHECKING:
    from edison_ci.proposals.file_proposal import Proposed
    from tests.conftest import Folder
    from tests.features.github.fake_github import FakeGitHub

ADA = Actor(Identity("git", email="ada@example.org"), Role.EDITOR)
CY = Actor(Identity("web", email="cy@example.org"), Role.EDITOR)
NOTE = "Ask for a warm ending\nMany answers stop abruptly."
PATH = "prompts/hello.md"


def save(
    folder: Folder, added: str = "Wish them a good day.\n", *, note: str = NOTE, actor: Actor = ADA
) -> Proposed:
    text = folder.read(PATH) + added
    edited = EditedPrompt("hello", "hello", text)
    return ReviewActions().save_prompt(open_site(folder.path), actor, edited, note)


def audited(folder: Folder) -> list[tuple[str, str, str]]:
    rows = json.loads(folder.edison("admin", "audit", "--json").out)["rows"]
    return [(row["actor"], row["action"], row["entity"]) for row in rows]


def test_a_pull_request_is_opened_with_the_note_and_the_editor(
    repo: Folder, github: FakeGitHub
) -> None:
    open_database(repo.path / ".edison" / "results.db").close()
    before = (repo.read(PATH), repo.git("rev-parse", "main"), repo.git("status", "--porcelain"))
    done = save(repo, actor=CY)
    pull = github.state.pulls[1]
    assert pull.title == "Change hello: Ask for a warm ending"
    assert "Many answers stop abruptly." in pull.body
    assert "Edited on the pages by cy@example.org." in pull.body
    branch = done.result.branch
    assert branch.startswith("edison/edit/hello-")
    told, link = done.notes
    assert told == f"Pull request #1 is open, from the branch `{branch}` to `main`."
    assert link.startswith(github.url)
    assert link.endswith("/pull/1")
    assert repo.git("diff", "--name-only", f"main...{branch}").strip() == PATH
    assert repo.git("show", f"{branch}:{PATH}").endswith("Wish them a good day.")
    after = (repo.read(PATH), repo.git("rev-parse", "main"), repo.git("status", "--porcelain"))
    assert after == before, "neither the file nor the default branch changes"
    assert ("cy@example.org", "edit prompt", "prompt hello") in audited(repo)


def test_saving_twice_is_one_pull_request(repo: Folder, github: FakeGitHub) -> None:
    first, second = save(repo), save(repo)
    assert first.result.branch == second.result.branch
    assert len(github.state.pulls) == 1
    assert second.notes[0] == "The change is already pull request #1."
    save(repo, "Another line.\n")
    assert len(github.state.pulls) == 2


def test_without_a_token_the_branch_is_pushed_and_the_next_step_is_told(
    repo: Folder, bare: Folder
) -> None:
    done = save(repo)
    branch = done.result.branch
    assert branch in bare.git("for-each-ref", "--format=%(refname:short)")
    assert done.notes[0].startswith(f"The change is on the branch `{branch}` of `origin`")
    assert "pull request" in done.notes[1]
    assert bare.git("rev-parse", "main") == repo.git("rev-parse", "main")


def test_without_a_remote_the_branch_stays_here(repo: Folder) -> None:
    done = save(repo)
    assert done.notes == (
        f"The change is on the branch `{done.result.branch}` of this repository, as commit "
        f"`{done.result.commit[:8]}`.",
        "There is no remote. Once it is reviewed: "
        f"`git switch main && git merge {done.result.branch}`",
    )


@pytest.mark.parametrize(("note", "said"), [("too short", "9"), ("x" * 501, "501")])
def test_a_note_has_10_to_500_characters(repo: Folder, note: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"the note has {said} characters; 10 to 500"):
        save(repo, note=note)
    assert "edison/" not in repo.git("branch", "--all", "--list")


def test_what_is_not_valid_or_not_changed_is_not_proposed(repo: Folder) -> None:
    with pytest.raises(UsageError, match=r"not a valid prompt: line \d+"):
        save(repo, "{{ nobody.knows( }}\n")
    with pytest.raises(UsageError, match="was not changed"):
        save(repo, "")
    assert "edison/" not in repo.git("branch", "--all", "--list")


def test_a_version_that_no_branch_has_is_not_overwritten(repo: Folder, bare: Folder) -> None:
    repo.write(PATH, repo.read(PATH) + "An edit that is not committed.\n")
    with pytest.raises(UsageError, match="is not the version of origin/main"):
        save(repo)
    edited = EditedPrompt("hello", "hello", repo.read(PATH) + "x\n", base="0" * 64)
    with pytest.raises(UsageError, match="has changed since the page was opened"):
        ReviewActions().save_prompt(open_site(repo.path), ADA, edited, NOTE)
