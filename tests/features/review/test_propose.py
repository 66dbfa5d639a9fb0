"""edison propose: a suggestion becomes a branch, a patch, a pull request or lines, once."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.features.github.forge import GitHub
from edison_ci.proposals.branches import BranchState, find_branch_in_git, find_branch_on_github
from edison_ci.records import SuggestionStatus
from tests.conftest import Folder
from tests.features.github.emulator import emulator
from tests.features.github.fake_github import TOKEN, FakeGitHub
from tests.features.github.fake_state import REPOSITORY, Grant
from tests.features.github.git_remote import GitRemote
from tests.features.github.mirror import seed
from tests.suggested import ADDED, EVIDENCE, PATH, keep, stored, suggestion_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.git.host import RepositoryAddress
    from tests.conftest import Edison

pytestmark = pytest.mark.daily

BRANCH = "edison/refine/hello-1"


def proposed(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "propose", *args, "--json")
    assert done.code == 0, done.all
    found = json.loads(done.out)
    assert isinstance(found, dict)
    return found


def untouched(folder: Folder) -> tuple[str, str, str]:
    return (
        folder.git("status", "--porcelain"),
        folder.git("symbolic-ref", "HEAD"),
        folder.git("ls-files", "--stage"),
    )


# --- Git alone ------------------------------------------------------------------------------------


def test_without_a_remote_there_is_a_branch_and_a_patch(edison: Edison, repo: Folder) -> None:
    one = keep(repo, suggestion_for(repo))
    repo.write("prompts/other.txt", "being edited\n")
    repo.git("add", "prompts/other.txt")
    repo.write(PATH, repo.read(PATH) + "my own idea\n")
    before = untouched(repo)
    done = edison(repo, "propose")
    assert (done.code, done.out) == (
        0,
        f"{one.id}  is proposed: prompts/hello.md  simulated\n"
        f"  branch        {BRANCH}, for main\n"
        "  patch         .edison/suggestions/hello-1.patch\n",
    )
    assert done.err == f"accept it with: edison review approve {one.id}\n"
    assert untouched(repo) == before
    assert repo.git("rev-list", "--count", f"main..{BRANCH}") == "1"
    assert (
        repo.git("show", f"{BRANCH}:{PATH}")
        == (repo.git("show", f"main:{PATH}") + f"\n{ADDED}").strip()
    )
    message = repo.git("log", "-1", "--format=%B", BRANCH)
    assert message == (
        "Refine hello: Warmth\n\n"
        "Suggested by edison for the experiment hello.\n"
        "On 22 held-out cases: +4.8 points (+0.9 to +8.7).\n"
        "On 40 training cases: +9.0 points (+4.0 to +14.0).\n"
        "Measured with simulated models.\n\n"
        f"Edison-Suggestion: {one.hash}"
    )
    kept = stored(repo, one)
    assert (kept.status, kept.branch, kept.pull_request) == (
        SuggestionStatus.PROPOSED,
        BRANCH,
        None,
    )
    assert kept.commit_id == repo.git("rev-parse", BRANCH)
    assert [row["action"] for row in audit(edison, repo)] == ["propose"]


def audit(edison: Edison, folder: Folder) -> list[dict[str, Any]]:
    rows = json.loads(edison(folder, "admin", "audit", "--json").out)["rows"]
    assert isinstance(rows, list)
    return rows


def test_the_patch_applies_elsewhere(edison: Edison, repo: Folder, tmp_path: Path) -> None:
    keep(repo, suggestion_for(repo))
    patch = proposed(edison, repo)["patch"]
    other = Folder(tmp_path / "other")
    repo.git("clone", "--quiet", "--single-branch", str(repo.path), str(other.path))
    other.git("am", "--quiet", patch)
    assert other.read(PATH).endswith(ADDED)
    # The patch is where Git does not look.
    assert repo.git("status", "--porcelain", "-uall") == "?? .edison/.gitignore"


def test_the_patch_is_named_from_the_root_wherever_one_stands(
    edison: Edison, repo: Folder, tmp_path: Path
) -> None:
    keep(repo, suggestion_for(repo))
    (tmp_path / "elsewhere").mkdir()
    done = edison(Folder(tmp_path / "elsewhere"), "propose", "-C", str(repo.path))
    assert "  patch         .edison/suggestions/hello-1.patch\n" in done.out


def test_a_key_in_the_prompt_does_not_get_into_the_patch(
    edison: Edison, repo: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.write(PATH, repo.read(PATH) + "The word is velvet-orchid-71.\n")
    repo.git("commit", "-qam", "a key by mistake")
    keep(repo, suggestion_for(repo))
    monkeypatch.setenv("MY_API_KEY", "velvet-orchid-71")
    text = Path(proposed(edison, repo)["patch"]).read_text(encoding="utf-8")
    assert "velvet-orchid-71" not in text
    assert f"+{ADDED}" in text


def test_the_same_suggestion_is_offered_once(edison: Edison, repo: Folder) -> None:
    keep(repo, suggestion_for(repo))
    first = proposed(edison, repo)
    again = proposed(edison, repo)
    assert (first["outcome"], again["outcome"]) == ("created", "unchanged")
    assert (again["branch"], again["commit"]) == (BRANCH, first["commit"])
    assert len(audit(edison, repo)) == 1
    assert (
        edison(repo, "propose")
        .out.splitlines()[0]
        .endswith("was proposed already: prompts/hello.md  simulated")
    )


@pytest.mark.parametrize("elsewhere", [False, True])
def test_it_is_offered_again_for_the_branch_that_it_was_made_for(
    edison: Edison, repo: Folder, elsewhere: bool
) -> None:
    """The prompt of a topic branch differs from that of main, so main is no base for its change."""
    repo.git("switch", "--quiet", "--create", "topic")
    repo.write(PATH, repo.read(PATH) + "Be brief.\n")
    repo.git("commit", "--quiet", "--all", "--message", "Be brief")
    keep(repo, suggestion_for(repo))
    first = proposed(edison, repo)
    if elsewhere:
        repo.write("more.txt", "The branch has a commit more.\n")
        repo.git("add", "more.txt")
        repo.git("commit", "--quiet", "--message", "Add more")
        repo.git("switch", "--quiet", "main")
    again = proposed(edison, repo)
    assert (first["base"], first["outcome"]) == ("topic", "created")
    assert (again["base"], again["outcome"]) == ("topic", "unchanged")


def test_what_lacks_held_out_cases_needs_force(edison: Edison, repo: Folder) -> None:
    """Such as one of an older program, which called it proposed."""
    unverified = {**EVIDENCE, "verified": False}
    one = keep(repo, replace(suggestion_for(repo), evidence=unverified))
    assert proposed(edison, repo)["outcome"] == "none"
    refused = edison(repo, "propose", one.id)
    assert refused.code == 2
    assert "--force" in refused.err
    assert proposed(edison, repo, one.id, "--force")["suggestion"]["forced"] is True


def test_the_next_suggestion_gets_the_next_number(edison: Edison, repo: Folder) -> None:
    one = keep(repo, suggestion_for(repo))
    two = keep(repo, suggestion_for(repo, "Smile while you write it.\n"))
    assert proposed(edison, repo, one.id[:6])["branch"] == BRANCH
    assert proposed(edison, repo)["suggestion"]["id"] == two.id  # the one that was not offered yet
    assert proposed(edison, repo, two.id[:6])["branch"] == "edison/refine/hello-2"


def test_a_project_below_the_top_of_its_repository_is_changed_there(
    edison: Edison, repo: Folder, tmp_path: Path
) -> None:
    (tmp_path / "mono/team").mkdir(parents=True)
    mono = Folder(tmp_path / "mono")
    mono.git("init", "--quiet", "--initial-branch=main")
    repo.git("checkout-index", "--all", f"--prefix={mono.path}/team/")
    mono.git("add", "--all")
    mono.git("commit", "--quiet", "--message", "start")
    team = Folder(mono.path / "team")
    keep(team, suggestion_for(team))
    found = proposed(edison, team)
    assert mono.git("show", "--format=", "--name-only", found["commit"]) == f"team/{PATH}"


def test_it_is_pushed_to_a_bare_remote_and_found_there_from_elsewhere(
    edison: Edison, repo: Folder, bare: Folder, tmp_path: Path
) -> None:
    one = keep(repo, suggestion_for(repo))
    first = proposed(edison, repo)
    assert bare.git("rev-parse", BRANCH) == first["commit"]
    assert first["compare_url"] is None
    other = Folder(tmp_path / "other")
    repo.git("clone", "--quiet", "--single-branch", str(bare.path), str(other.path))
    keep(other, one)
    again = proposed(edison, other)
    assert (again["outcome"], again["branch"]) == ("unchanged", BRANCH)
    assert again["commit"] == first["commit"]
    assert stored(other, one).branch == BRANCH
    assert bare.git("branch", "--list", "edison/*").split() == [BRANCH]


def test_a_commit_of_a_person_on_the_branch_stays_where_it_is(
    edison: Edison, repo: Folder, bare: Folder, tmp_path: Path
) -> None:
    keep(repo, suggestion_for(repo))
    proposed(edison, repo)
    other = Folder(tmp_path / "other")
    repo.git("clone", "--quiet", str(bare.path), str(other.path))
    other.git("switch", "--quiet", BRANCH)
    other.git("commit", "--quiet", "--allow-empty", "--message", "By hand")
    other.git("push", "--quiet")
    theirs = bare.git("rev-parse", BRANCH)
    assert proposed(edison, repo)["outcome"] == "unchanged"
    assert bare.git("rev-parse", BRANCH) == theirs


def test_commits_that_were_not_pushed_are_not_pushed_along(
    edison: Edison, repo: Folder, bare: Folder
) -> None:
    repo.edit(PATH, "friendly", "kind")
    repo.git("commit", "--quiet", "--all", "--message", "Kind")
    keep(repo, suggestion_for(repo))
    done = edison(repo, "propose")
    assert done.code == 2
    assert "but on origin/main it is" in done.err
    assert "git push first" in done.err
    assert bare.git("branch", "--list") == "* main"


def test_offline_nothing_is_pushed(edison: Edison, repo: Folder, bare: Folder) -> None:
    keep(repo, suggestion_for(repo))
    assert proposed(edison, repo, "--offline")["branch"] == BRANCH
    assert bare.git("branch", "--list") == "* main"


def test_a_remote_that_cannot_be_reached_is_an_error_in_words(
    edison: Edison, repo: Folder, tmp_path: Path
) -> None:
    repo.git("remote", "add", "origin", str(tmp_path / "nowhere.git"))
    repo.git("update-ref", "refs/remotes/origin/main", "HEAD")
    one = keep(repo, suggestion_for(repo))
    done = edison(repo, "propose")
    assert done.code == 3
    assert "cannot push the branch 'edison/refine/hello-1' to 'origin'" in done.err
    assert stored(repo, one).branch is None


# --- what is refused ------------------------------------------------------------------------------


def test_what_was_not_shown_to_help_needs_force_and_is_marked(edison: Edison, repo: Folder) -> None:
    unproven = {**EVIDENCE, "proven": False, "sentence": "Not enough data."}
    one = keep(repo, suggestion_for(repo, status=SuggestionStatus.TRIED, evidence=unproven))
    nothing = edison(repo, "propose")
    assert (nothing.code, "nothing to propose" in nothing.out) == (0, True)
    assert proposed(edison, repo)["outcome"] == "none"
    done = edison(repo, "propose", one.id)
    assert done.code == 2
    assert "is not shown to help: Not enough data." in done.err
    assert "--force" in done.err
    assert repo.git("branch", "--list", "edison/*") == ""
    assert proposed(edison, repo, "--force")["suggestion"]["forced"] is True
    assert stored(repo, one).status is SuggestionStatus.PROPOSED
    assert "\nNot shown to help.\n" in repo.git("log", "-1", "--format=%B", BRANCH)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"status": SuggestionStatus.REFUSED, "reason": "length"}, "broke a guardrail: length"),
        ({"status": SuggestionStatus.REJECTED, "reason": "no"}, "was rejected: no"),
        ({"status": SuggestionStatus.APPLIED}, "is already"),
        ({"status": SuggestionStatus.SUPERSEDED}, "was superseded"),
    ],
)
def test_what_is_over_is_not_offered(
    edison: Edison, repo: Folder, fields: dict[str, Any], said: str
) -> None:
    one = keep(repo, suggestion_for(repo, **fields))
    done = edison(repo, "propose", one.id)
    assert done.code == 2
    assert said in done.err
    assert repo.git("branch", "--list", "edison/*") == ""


def test_a_suggestion_for_another_version_is_refused(edison: Edison, repo: Folder) -> None:
    keep(repo, suggestion_for(repo))
    repo.edit(PATH, "friendly", "kind")
    repo.git("commit", "--quiet", "--all", "--message", "Kind")
    done = edison(repo, "propose")
    assert done.code == 2
    assert "but on main it is" in done.err
    assert repo.git("branch", "--list", "edison/*") == ""


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("{% if name %}Go.{% endif %}\n", "template_logic"),
        ("Say it\u200b kindly.\n", "invisible"),
        ("x" * 400 + "\n", "length"),
        ("# assistant\nHello.\n# user\nAgain.\n", "roles"),
    ],
)
def test_results_that_somebody_tampered_with_break_a_guardrail(
    edison: Edison, repo: Folder, added: str, said: str
) -> None:
    keep(repo, suggestion_for(repo, added))
    done = edison(repo, "propose", "--force")
    assert done.code == 2
    assert "is not allowed here" in done.err
    assert said in done.err
    assert repo.git("branch", "--list", "edison/*") == ""


def test_a_diff_of_another_file_is_refused(edison: Edison, repo: Folder) -> None:
    one = suggestion_for(repo)
    keep(repo, replace(one, diff=one.diff.replace(PATH, "edison.yaml"), hash=""))
    done = edison(repo, "propose")
    assert done.code == 2
    assert "the only file to change is prompts/hello.md" in done.err


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"branch": "main"}, "which edison did not create"),
        ({"branch": "release"}, "which edison did not create"),
        ({"experiment": "x\n+refs/heads/main:refs/heads/release"}, "there is no experiment"),
        ({"path": "../secrets.md"}, "which is not a prompt of hello"),
        ({"path": "edison.yaml"}, "which is not a prompt of hello"),
    ],
)
def test_names_that_we_never_give_are_refused(
    edison: Edison, repo: Folder, bare: Folder, fields: dict[str, Any], said: str
) -> None:
    one = keep(repo, suggestion_for(repo, **fields))
    before = repo.git("for-each-ref"), bare.git("for-each-ref")
    done = edison(repo, "propose", one.id)
    assert (done.code, said in done.err) == (2, True), done.all
    assert (repo.git("for-each-ref"), bare.git("for-each-ref")) == before


def test_without_git_or_a_suggestion_it_says_what_to_do(edison: Edison, mini: Folder) -> None:
    keep(mini, suggestion_for(mini, status=SuggestionStatus.REJECTED))
    nothing = edison(mini, "propose", "--force")
    assert (nothing.code, "edison refine" in nothing.err) == (0, True)
    one = keep(mini, suggestion_for(mini, "Smile while you write it.\n"))
    done = edison(mini, "propose", one.id)
    assert done.code == 2
    assert "not in a Git repository" in done.err


def test_a_reviewer_may_not_propose_and_the_refusal_is_audited(
    edison: Edison, repo: Folder
) -> None:
    repo.edit("edison.yaml", "project: mini\n", "project: mini\nmembers:\n"
              "  - {email: ada@example.org, role: reviewer}\n"
              "  - {email: bo@example.org, role: owner}\n")  # fmt: skip
    repo.git("commit", "--quiet", "--all", "--message", "Members")
    one = keep(repo, suggestion_for(repo))
    done = edison(repo, "propose")
    assert done.code == 2
    assert "propose needs an editor; ada@example.org is a reviewer" in done.err
    (row,) = audit(edison, repo)
    assert (row["action"], row["entity"]) == ("refused: propose", f"suggestion {one.id}")


# --- GitHub ---------------------------------------------------------------------------------------


def test_a_branch_is_pushed_and_a_pull_request_opened_once(
    edison: Edison, repo: Folder, bare: Folder, github: FakeGitHub
) -> None:
    one = keep(repo, suggestion_for(repo))
    before = untouched(repo)
    done = edison(repo, "propose", "--open-pr")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == f"  pull request  {github.url}/acme/prompts/pull/1"
    (pull,) = github.state.pulls.values()
    assert (pull.title, pull.head, pull.base) == ("Refine hello: Warmth", BRANCH, "main")
    assert pull.body.startswith(f"<!-- edison-ci:suggestion:v1 {one.hash} -->\n")
    assert pull.head_sha == bare.git("rev-parse", BRANCH)
    assert untouched(repo) == before
    again = proposed(edison, repo, "--open-pr")
    assert (again["outcome"], again["pull_request"]) == ("unchanged", 1)
    assert len(github.state.pulls) == 1
    kept = stored(repo, one)
    assert (kept.pull_request, kept.pull_request_url) == (1, f"{github.url}/acme/prompts/pull/1")


def test_where_nobody_may_open_pull_requests_there_is_a_link(
    edison: Edison, repo: Folder, bare: Folder, github: FakeGitHub
) -> None:
    github.grants[TOKEN] = Grant(permissions={"contents": "write", "pull_requests": "read"})
    keep(repo, suggestion_for(repo))
    found = proposed(edison, repo, "--open-pr")
    assert found["pull_request"] is None
    link = f"{github.url}/acme/prompts/compare/main...{BRANCH}?expand=1"
    assert found["compare_url"] == link
    assert "Resource not accessible" in found["why"]
    assert bare.git("rev-parse", BRANCH) == found["commit"]
    done = edison(repo, "propose", "--open-pr")
    assert (done.code, f"  open it here  {link}" in done.out) == (0, True)


def test_without_open_pr_no_pull_request_is_opened(
    edison: Edison, repo: Folder, github: FakeGitHub
) -> None:
    keep(repo, suggestion_for(repo))
    found = proposed(edison, repo)
    assert found["why"] == "to open a pull request, use --open-pr"
    assert github.state.pulls == {}
    assert proposed(edison, repo, "--open-pr")["pull_request"] == 1


@pytest.fixture
def job(repo: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGitHub]:
    """A job of GitHub Actions in a shallow checkout, whose remote cannot be pushed to."""
    with FakeGitHub() as server:
        seed(server, repo)
        monkeypatch.setattr(
            "edison_ci.access.github_api.WRITE_GAP_S", 0.0
        )  # the fake needs no rest
        for name, value in {
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTOR": "ada",
            "GITHUB_API_URL": server.url,
            "GITHUB_SERVER_URL": server.url,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_TOKEN": TOKEN,
        }.items():
            monkeypatch.setenv(name, value)
        yield server


def test_in_a_workflow_the_commit_is_made_through_github(
    edison: Edison, repo: Folder, job: FakeGitHub
) -> None:
    one = keep(repo, suggestion_for(repo))
    found = proposed(edison, repo, "--open-pr")
    assert (found["outcome"], found["pull_request"], found["branch"]) == ("created", 1, BRANCH)
    assert job.state.file_at(BRANCH, PATH) == (repo.read(PATH) + ADDED).encode()
    assert job.state.commits[found["commit"]]["message"].endswith(
        f"\n\nEdison-Suggestion: {one.hash}\n"
    )
    assert repo.git("branch", "--list", "edison/*") == ""  # nothing here
    again = proposed(edison, repo, "--open-pr")
    assert (again["outcome"], again["commit"]) == ("unchanged", found["commit"])
    other = keep(repo, suggestion_for(repo, "Smile while you write it.\n"))
    assert proposed(edison, repo, other.id, "--open-pr")["branch"] == "edison/refine/hello-2"


def test_a_workflow_opens_the_pull_request_for_the_branch_that_the_change_is_for(
    edison: Edison, repo: Folder, job: FakeGitHub
) -> None:
    repo.git("switch", "--quiet", "--create", "topic")
    repo.write(PATH, repo.read(PATH) + "Be brief.\n")
    repo.git("commit", "--quiet", "--all", "--message", "Be brief")
    seed(job, repo, "topic")
    keep(repo, suggestion_for(repo))
    first = proposed(edison, repo)
    again = proposed(edison, repo, "--open-pr")
    assert (first["base"], again["base"]) == ("topic", "topic")
    assert job.state.pulls[again["pull_request"]].base == "topic"


def test_a_workflow_that_may_not_open_pull_requests_ends_with_0(
    edison: Edison, repo: Folder, job: FakeGitHub
) -> None:
    job.state.may_open_pull_requests = False
    keep(repo, suggestion_for(repo))
    done = edison(repo, "propose", "--open-pr")
    assert done.code == 0
    assert f"{job.url}/acme/prompts/compare/main...{BRANCH}?expand=1" in done.out
    assert "not permitted to create or approve pull requests" in done.err


def test_what_people_decided_is_not_offered_again(
    edison: Edison, repo: Folder, job: FakeGitHub
) -> None:
    keep(repo, suggestion_for(repo))
    proposed(edison, repo, "--open-pr")
    job.state.pulls[1].state = "closed"
    found = proposed(edison, repo, "--open-pr")
    assert found["why"] == "pull request 1 with this change was closed"
    assert len(job.state.pulls) == 1


# --- somebody's own pull request ------------------------------------------------------------------


@pytest.fixture
def own(repo: Folder, bare: Folder, github: FakeGitHub) -> FakeGitHub:
    """A person's pull request that adds a line to the prompt, checked out."""
    repo.git("switch", "--quiet", "--create", "topic")
    repo.write(PATH, repo.read(PATH) + "Keep it short.\n")
    repo.git("commit", "--quiet", "--all", "--message", "Short")
    repo.git("push", "--quiet", "--set-upstream", "origin", "topic")
    fields = {"title": "Short", "head": "topic", "base": "main"}
    pull = github.state.open_pull(fields, Grant("ada", is_bot=False))
    patch = "@@ -3,3 +3,4 @@\n ---\n # user\n Say hello\n+Keep it short."
    pull.files = [{"filename": PATH, "status": "modified", "patch": patch}]
    pull.diff_lines = {PATH: {3, 4, 5, 6}}
    return github


def test_lines_are_suggested_in_a_pull_request_that_changes_the_prompt(
    edison: Edison, repo: Folder, bare: Folder, own: FakeGitHub
) -> None:
    one = keep(repo, suggestion_for(repo))
    done = edison(repo, "propose", "--open-pr")
    assert done.code == 0, done.all
    assert f"  1 suggested change in {own.url}/acme/prompts/pull/1" in done.out
    (comment,) = own.state.line_comments[1]
    assert (comment["path"], comment["line"], comment["side"]) == (PATH, 6, "RIGHT")
    assert (
        "\n```suggestion\nKeep it short.\nBe warm, and use the name once.\n```" in comment["body"]
    )
    (review,) = own.state.reviews[1]
    assert review["state"] == "COMMENTED"
    assert "Commit the suggested lines to accept it" in review["body"]
    assert len(own.state.pulls) == 1
    assert bare.git("branch", "--list", "edison/*") == ""
    kept = stored(repo, one)
    assert (kept.pull_request, kept.branch) == (1, None)
    assert proposed(edison, repo, "--open-pr")["outcome"] == "unchanged"
    assert len(own.state.line_comments[1]) == 1


def test_a_job_for_a_pull_request_suggests_lines_there(
    edison: Edison, repo: Folder, job: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.git("switch", "--quiet", "--create", "topic")
    repo.write(PATH, repo.read(PATH) + "Keep it short.\n")
    repo.git("commit", "--quiet", "--all", "--message", "Short")
    head = seed(job, repo, "topic")
    repo.git("switch", "--quiet", "--detach")  # as a job has it
    fields = {"title": "Short", "head": "topic", "base": "main"}
    pull = job.state.open_pull(fields, Grant("ada", is_bot=False))
    pull.files = [{"filename": PATH, "status": "modified", "patch": "@@ -5 +5,2 @@\n x\n+y"}]
    pull.diff_lines = {PATH: {5, 6}}
    repository = {"id": 1, "owner": {"login": "acme"}, "default_branch": "main"}
    side = {"sha": head, "ref": "topic", "repo": repository}
    base = {**side, "sha": repo.git("rev-parse", "main"), "ref": "main"}
    event = {"repository": repository, "pull_request": {"number": 1, "head": side, "base": base}}
    monkeypatch.setenv("GITHUB_EVENT_NAME", "pull_request")
    monkeypatch.setenv(
        "GITHUB_EVENT_PATH", str(repo.write(".edison/event.json", json.dumps(event)))
    )
    monkeypatch.setenv("RUNNER_TEMP", str(repo.path.parent))
    keep(repo, suggestion_for(repo))
    assert edison(repo, "admin", "db", "adopt").code == 0  # made by an earlier job of the same run
    found = proposed(edison, repo, "--open-pr")
    assert (found["pull_request"], found["suggested_lines"], found["branch"]) == (1, 1, None)
    assert len(job.state.line_comments[1]) == 1


def test_lines_that_the_pull_request_does_not_show_become_a_pull_request_for_it(
    edison: Edison, repo: Folder, own: FakeGitHub
) -> None:
    own.state.pulls[1].files[0]["patch"] = "@@ -1 +1 @@\n+---"
    keep(repo, suggestion_for(repo))
    found = proposed(edison, repo, "--open-pr")
    assert (found["pull_request"], found["base"], found["suggested_lines"]) == (2, "topic", 0)
    again = proposed(edison, repo, "--open-pr")
    assert (again["pull_request"], again["base"], again["outcome"]) == (2, "topic", "unchanged")


# --- other remotes --------------------------------------------------------------------------------


def test_a_branch_is_pushed_over_http(edison: Edison, repo: Folder, tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    Folder(served).git("init", "--quiet", "--bare", "--initial-branch=main", "prompts.git")
    hosted = Folder(served / "prompts.git")
    hosted.git("config", "http.receivepack", "true")
    with GitRemote(served) as server:
        repo.git("remote", "add", "origin", f"{server.url}/prompts.git")
        repo.git("push", "--quiet", "--set-upstream", "origin", "main")
        keep(repo, suggestion_for(repo))
        found = proposed(edison, repo)
        assert hosted.git("rev-parse", BRANCH) == found["commit"]
        assert proposed(edison, repo)["outcome"] == "unchanged"


@pytest.mark.nightly
def test_a_server_that_somebody_else_wrote_understands_it_all(
    edison: Edison, repo: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with emulator(tmp_path) as address:
        asyncio.run(put_on_main(address, PATH, repo.read(PATH).encode()))
        for name, value in {
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": address.api_url,
            "GITHUB_SERVER_URL": address.server_url,
            "GITHUB_REPOSITORY": address.repository,
            "GITHUB_TOKEN": address.token,
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("edison_ci.access.github_api.WRITE_GAP_S", 0.0)
        one = keep(repo, suggestion_for(repo))
        first = proposed(edison, repo, "--open-pr")
        again = proposed(edison, repo, "--open-pr")
        assert (first["outcome"], again["outcome"]) == ("created", "unchanged")
        assert first["pull_request"] == again["pull_request"] is not None
        two = keep(repo, suggestion_for(repo, "Smile while you write it.\n"))
        assert proposed(edison, repo, two.id, "--open-pr")["branch"] == "edison/refine/hello-2"
        assert edison(repo, "review", "reject", two.id, "--reason", "no smiles").code == 0
        assert edison(repo, "review", "approve", one.id, "--merge").code == 0
        assert stored(repo, one).status is SuggestionStatus.APPLIED
        assert stored(repo, two).status is SuggestionStatus.REJECTED


async def put_on_main(address: RepositoryAddress, path: str, data: bytes) -> None:
    async with GitHub(address) as github:
        tip = await github.git.tip("main")
        assert tip is not None
        tree = (await github.git.commit(tip)).tree
        blob = await github.git.create_blob(data)
        made = await github.git.create_tree(tree, {path: blob})
        commit = await github.git.create_commit("start", tree=made, parent=tip)
        await github.git.advance_branch("main", commit)


# --- at the same time -----------------------------------------------------------------------------


def test_a_name_that_somebody_takes_meanwhile_is_left_to_them(
    edison: Edison, repo: Folder, bare: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Folder(tmp_path / "other")
    repo.git("clone", "--quiet", str(bare.path), str(other.path))
    theirs = keep(other, suggestion_for(other, "Smile while you write it.\n"))
    ours = keep(repo, suggestion_for(repo))
    asked = []

    def slow(*args: Any) -> BranchState:
        """Let the other machine be faster, the first time."""
        found = find_branch_in_git(*args)
        asked.append(found)
        if len(asked) == 1:
            assert proposed(edison, other)["branch"] == BRANCH
            monkeypatch.chdir(repo.path)
        return found

    monkeypatch.setattr("edison_ci.proposals.proposal.find_branch_in_git", slow)
    assert proposed(edison, repo)["branch"] == "edison/refine/hello-2"
    tips = {
        name: bare.git("log", "-1", "--format=%B", name) for name in (BRANCH, f"{BRANCH[:-1]}2")
    }
    assert theirs.hash in tips[BRANCH]
    assert ours.hash in tips[f"{BRANCH[:-1]}2"]
    assert bare.git("rev-list", "--count", f"main..{BRANCH[:-1]}2") == "1"


def test_github_gives_a_taken_name_to_nobody_else(
    edison: Edison, repo: Folder, job: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = keep(repo, suggestion_for(repo))
    two = keep(repo, suggestion_for(repo, "Smile while you write it.\n"))
    asked = []

    async def slow(*args: Any) -> BranchState:
        """Tell, the first time, what was there before the other one came."""
        found = await find_branch_on_github(*args)
        asked.append(found)
        return BranchState() if len(asked) == 2 else found

    monkeypatch.setattr("edison_ci.proposals.proposal.find_branch_on_github", slow)
    proposed(edison, repo, one.id, "--open-pr")
    found = proposed(edison, repo, two.id, "--open-pr")
    assert (found["branch"], len(asked)) == ("edison/refine/hello-2", 3)
    assert len(job.state.commits[found["commit"]]["parents"]) == 1
    assert job.state.commits[found["commit"]]["parents"] == [job.state.refs["heads/main"]]


def test_a_job_that_may_not_write_is_told_what_it_needs(
    edison: Edison, repo: Folder, job: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.grants[TOKEN] = Grant(permissions={"contents": "read", "pull_requests": "read"})
    monkeypatch.setenv("GITHUB_EVENT_NAME", "schedule")
    keep(repo, suggestion_for(repo))
    done = edison(repo, "propose", "--open-pr")
    assert done.code == 3
    assert "the job needs permissions: {contents: write, pull-requests: write}" in done.err
