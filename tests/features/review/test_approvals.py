"""Approvals by several people: on the command line, on the pages and as a check on GitHub."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access.site import Actor, Identity, Role, open_site
from edison_ci.config.load import load_project
from edison_ci.errors import UsageError
from edison_ci.features.github.code_owners import owned_paths
from edison_ci.features.review.actions import ReviewActions
from edison_ci.records import SuggestionStatus
from tests.access.test_events import example
from tests.features.github.fake_state import Grant
from tests.suggested import ADDED, PATH, keep, stored, suggestion_for

if TYPE_CHECKING:
    from edison_ci.store.suggestions import Suggestion
    from tests.conftest import Edison, Folder, Result
    from tests.features.github.fake_github import FakeGitHub

pytestmark = pytest.mark.daily

TWO = """settings: {approvals: 2}
members:
  - {github: ada, email: ada@example.org, role: owner}
  - {github: bob, email: bob@example.org, role: reviewer}
  - {github: cy, role: editor}
  - {github: eve, email: eve@example.org, role: viewer}
"""


@pytest.fixture
def two(repo: Folder) -> Folder:
    """A project in which two people have to approve; Ada runs the commands."""
    repo.edit("edison.yaml", "project: mini\n", f"project: mini\n{TWO}")
    repo.git("commit", "--all", "--quiet", "--message", "members")
    return repo


def approve(edison: Edison, folder: Folder, one: Suggestion, email: str, *more: str) -> Result:
    folder.git("config", "--global", "user.email", email)
    return edison(folder, "review", "approve", one.id, *more)


def test_the_second_person_applies_it_and_one_with_two_names_counts_once(
    edison: Edison, two: Folder
) -> None:
    one, start = keep(two, suggestion_for(two)), two.git("rev-parse", "HEAD")
    for name in ("ada@example.org", "7+ada@users.noreply.github.com", "ADA@example.org"):
        done = approve(edison, two, one, name)
        assert done.code == 0, done.all
        assert "1 of 2 approvals (ada): another reviewer has to approve it" in done.err
    assert approve(edison, two, one, "eve@example.org").code == 2, "a viewer"
    assert two.git("rev-parse", "HEAD") == start
    assert stored(two, one).status is SuggestionStatus.PROPOSED
    assert "  1 of 2 approvals (ada)" in edison(two, "review", "show", one.id).out
    done = approve(edison, two, one, "bob@example.org")
    assert done.code == 0, done.all
    assert stored(two, one).status is SuggestionStatus.APPLIED
    assert two.read(PATH).endswith(ADDED)
    rows = json.loads(edison(two, "admin", "audit", "--json").out)["rows"]
    assert [row["action"] for row in rows].count("review approval") == 4


def test_who_edited_a_suggestion_does_not_approve_it(
    edison: Edison, two: Folder, tmp_path: Path
) -> None:
    one = keep(two, suggestion_for(two))
    (tmp_path / "better.md").write_text(two.read(PATH) + "Be warm.\n")
    edited = edison(two, "review", "edit", one.id, "--from", str(tmp_path / "better.md"), "--json")
    (new,) = json.loads(edited.out)["suggestions"]
    assert new["author"] == "ada@example.org"
    one = stored(two, one)
    for name in ("ada@example.org", "ada@users.noreply.github.com"):
        two.git("config", "--global", "user.email", name)
        done = edison(two, "review", "approve", new["id"])
        assert done.code == 2
        assert "edited suggestion" in done.err
        assert "2 other reviewers have to approve it" in done.err


def test_a_member_who_left_or_became_a_viewer_counts_no_more(edison: Edison, two: Folder) -> None:
    one = keep(two, suggestion_for(two))
    assert approve(edison, two, one, "bob@example.org").code == 0
    two.edit("edison.yaml", "email: bob@example.org, role: reviewer", "role: viewer")
    done = approve(edison, two, one, "ada@example.org")
    assert "1 of 2 approvals (ada)" in done.err


def web(login: str) -> Actor:
    return Actor(Identity("web", login=login), Role.REVIEWER)


def test_on_the_pages_the_last_approval_proposes_it(two: Folder) -> None:
    one, actions, site = keep(two, suggestion_for(two)), ReviewActions(True), open_site(two.path)
    project = load_project(two.path)
    may = actions.permissions(project, web("bob"), one).approve
    assert may == (True, "Stores your approval: 0 of 2 approvals so far.")
    for _ in range(2):  # a double click
        done = actions.approve(site, web("bob"), one.id, "proposed")
        assert done.suggestion.status is SuggestionStatus.PROPOSED
    may = actions.permissions(project, web("bob"), one).approve
    assert may == (False, "You approved it: 1 of 2 approvals (bob). Another reviewer has to as "
                   "well.")  # fmt: skip
    assert actions.permissions(project, web("ada"), one).approve.text.startswith("Puts the change")
    done = actions.approve(site, web("ada"), one.id, "proposed")
    assert done.suggestion.status is SuggestionStatus.APPROVED
    assert done.suggestion.branch is not None


# --- on GitHub ------------------------------------------------------------------------------------


def review(github: FakeGitHub, number: int, login: str, event: str = "APPROVE") -> None:
    pull, body = github.state.pulls[number], "" if event == "APPROVE" else "no"
    github.state.add_review(pull, {"event": event, "body": body}, Grant(login, is_bot=False))


def test_on_a_pull_request_the_reviews_of_github_count(
    edison: Edison, two: Folder, github: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.git("push", "--quiet", "origin", "main")
    one = keep(two, suggestion_for(two))
    assert edison(two, "propose", one.id, "--open-pr").code == 0
    for login in ("ada", "bob", "mallory"):
        github.grants[f"ghp_{login}"] = Grant(login, is_bot=False)
    review(github, 1, "mallory")  # no member
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_ada")
    done = edison(two, "review", "approve", one.id, "--merge")
    assert "1 of 2 approvals (ada) on pull request 1" in done.err
    assert stored(two, one).status is SuggestionStatus.PROPOSED
    assert github.state.pulls[1].merged is False
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_bob")
    done = edison(two, "review", "approve", one.id)
    assert (done.code, stored(two, one).status) == (0, SuggestionStatus.APPROVED)


def test_a_merge_with_too_few_approvals_is_reported(
    edison: Edison, two: Folder, github: FakeGitHub
) -> None:
    two.git("push", "--quiet", "origin", "main")
    one = keep(two, suggestion_for(two))
    assert edison(two, "propose", one.id, "--open-pr").code == 0
    pull = github.state.pulls[1]
    github.state.merge(pull, pull.head_sha, Grant("mallory", is_bot=False))
    done = edison(two, "review", "sync", "--json")
    assert stored(two, one).status is SuggestionStatus.APPLIED
    assert json.loads(done.out)["problems"] == [
        f"suggestion {one.id}: pull request 1 was merged with 0 of 2 approvals"
    ]


@pytest.fixture
def job(
    two: Folder, github: FakeGitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> FakeGitHub:
    """A job for pull request 1 of cy, which changes a prompt and makes itself easier."""
    two.git("push", "--quiet", "origin", "main")
    two.git("switch", "--quiet", "--create", "topic")
    two.git("commit", "--allow-empty", "--quiet", "--message", "change")
    two.git("push", "--quiet", "origin", "topic")
    two.git("switch", "--quiet", "main")
    fields = {"title": "Change", "head": "topic", "base": "main"}
    number = github.state.open_pull(fields, Grant("cy", is_bot=False)).number
    changed(github, PATH)
    payload = example("pull_request_review")
    pull: dict[str, Any] = payload["pull_request"]
    pull["number"] = number
    pull["head"]["sha"] = github.state.pulls[number].head_sha
    pull["base"] |= {"sha": two.git("rev-parse", "HEAD"), "ref": "main"}
    payload["repository"]["default_branch"] = "main"
    (tmp_path / "event.json").write_text(json.dumps(payload))
    monkeypatch.setenv("GITHUB_EVENT_NAME", "pull_request_review")
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
    two.edit("edison.yaml", "approvals: 2", "approvals: 1")
    two.edit("edison.yaml", "eve@example.org, role: viewer", "eve@example.org, role: owner")
    return github


def changed(github: FakeGitHub, *paths: str) -> None:
    github.state.pulls[1].files = [{"filename": path, "status": "modified"} for path in paths]


def test_the_check_waits_for_two_members_who_are_not_the_author(
    edison: Edison, two: Folder, job: FakeGitHub
) -> None:
    done = edison(two, "github", "approvals")
    assert (done.code, done.out.splitlines()[0]) == (
        1, "waiting  pull request 1: 0 of 2 approvals for 1 file")  # fmt: skip
    for login in ("eve", "mallory", "bob", "BOB"):
        review(job, 1, login)
    done = edison(two, "github", "approvals", "--json")
    assert (done.code, json.loads(done.out)["by"]) == (1, ["bob"])
    review(job, 1, "ada")
    done = edison(two, "github", "approvals")
    assert (done.code, done.out) == (
        0,
        "ok  pull request 1: 2 of 2 approvals (bob, ada) for 1 file\n",
    )
    review(job, 1, "bob", "REQUEST_CHANGES")
    assert edison(two, "github", "approvals").code == 1
    review(job, 1, "bob", "COMMENT")
    assert edison(two, "github", "approvals").code == 1
    review(job, 1, "bob")
    assert edison(two, "github", "approvals").code == 0
    for one in job.state.reviews[1]:
        one["commit_id"] = "0" * 40
    assert edison(two, "github", "approvals").code == 1, "approvals of an older commit"


def test_what_decides_about_trust_needs_an_admin_and_other_files_nobody(
    edison: Edison, two: Folder, job: FakeGitHub
) -> None:
    job.state.pulls[1].author = Grant("ada", is_bot=False)
    changed(job, "edison.yaml")
    for login in ("bob", "cy"):
        review(job, 1, login)
    done = edison(two, "github", "approvals")
    assert (done.code, done.out.splitlines()[1]) == (
        1, "  one of the approvals has to be by an admin or owner")  # fmt: skip
    changed(job, "README.md")
    done = edison(two, "github", "approvals")
    assert (done.code, "changes no file of the project" in done.out) == (0, True)


ELSEWHERE = {
    "models.yaml": """\
small: {provider: sim, model: small}
judge: {provider: sim, model: judge}
scripted: {provider: sim, model: script, options: {file: shared/answers.yaml}}
app: {provider: command, options: {run: [python3, main.py], setup: [sh, ./tools/build.sh],
      files: [src/app, settings.json]}}
keyed: {provider: command, options: {run: [python3, main.py], files: [src/keyed]}}
""",
    ".edison/trust.yaml": """\
code: {allow: true, paths: [trusted, later]}
programs: [{model: app}, {model: keyed, env: [APP_KEY]}]
""",
    "shared/answers.yaml": "hi: hello\n",
    "main.py": "",
    "tools/build.sh": "",
    "src/app/.hidden": "",
    "src/app/run.py": "",
    "settings.json": "{}",
    "src/keyed/run.py": "",
    "trusted/tone.py": "",
    "lib/near.py": "",
    "lib/grade.py": "def check(output):\n    return True\n",
    "shared/reply.md": """\
---
output: shared/answer.json
tools: shared/tools.json
---
# user
Write to {{ name }}.
""",
    "shared/grader.md": """\
---
type: grader
---
# user
Is {{ output }} polite? Answer with a number from 0 to 1.
""",
    "shared/answer.json": '{"type": "object"}',
    "shared/form.json": '{"type": "object"}',
    "shared/tools.json": '[{"name": "look", "parameters": {"type": "object"}}]',
    "shared/cases.jsonl": '{"id": "a", "input": {"name": "Ada"}, "expected": "Ada"}\n',
    "shared/cases.about.yaml": "owner: ann@example.com\n",
    "shared/warm.yaml": """\
rubric: warm
criteria:
  - {name: Warmth, description: Sounds friendly and warm., weight: 0.5}
  - {name: Brevity, description: One short sentence only., weight: 0.5}
calibration: {labels: shared/labels.jsonl}
""",
    "shared/labels.jsonl": "",
    "experiments/elsewhere.yaml": """\
experiment: elsewhere
objective: Greet people by their name in a friendly way.
prompts: [shared/reply.md]
models: [small, scripted, app, keyed]
dataset: shared/cases.jsonl
checks:
  - python: lib/grade.py:check
  - command: [sh, ./tools/build.sh]
  - json_schema: shared/form.json
rubric: shared/warm.yaml
judges: {pointwise: [judge], graders: [{prompt: shared/grader.md, by: judge}]}
""",
}
"""An experiment whose files are in no folder of the project."""


@pytest.fixture
def elsewhere(two: Folder) -> Folder:
    """A default branch with an experiment that uses files in many places."""
    for name, text in ELSEWHERE.items():
        two.write(name, text)
    two.git("add", "--all")
    two.git("commit", "--quiet", "--message", "an experiment with files elsewhere")
    return two


REVIEWED = (
    *(f"shared/{name}" for name in (
        "reply.md", "grader.md", "answer.json", "form.json", "tools.json", "cases.jsonl",
        "cases.about.yaml", "warm.yaml", "labels.jsonl", "answers.yaml",
    )),
    "lib/grade.py", "lib/near.py", "lib/new.py", "tools/build.sh", "settings.json",
    "src/app/run.py", "src/app/.hidden", "src/app/node_modules/x.js", "judges/pointwise.md",
    "prompts/hello.md",
)  # fmt: skip
TRUSTED = (
    "src/keyed/run.py", "src/keyed/new.py", "main.py", "trusted/tone.py", "later/x.py", "later",
    ".edison/trust.yaml",
)  # fmt: skip
"""Code that gets keys, and code that pull requests may run, decide about trust."""


def test_all_that_a_project_uses_has_owners_wherever_it_lies(
    elsewhere: Folder, subtests: pytest.Subtests
) -> None:
    paths = owned_paths(load_project(elsewhere.path))
    for path in (*REVIEWED, *TRUSTED):
        with subtests.test(path):
            roles = [owned.role for owned in paths if owned.covers(path)]
            assert max(roles) is (Role.ADMIN if path in TRUSTED else Role.REVIEWER)
    for path in ("README.md", "shared/unused.md", "src/other/run.py"):
        assert not any(owned.covers(path) for owned in paths)


def test_what_the_base_uses_needs_approvals_wherever_it_lies(
    edison: Edison, elsewhere: Folder, job: FakeGitHub
) -> None:
    # The pull request says that it uses none of it.
    (elsewhere.path / "experiments/elsewhere.yaml").unlink()
    elsewhere.write("models.yaml", "small: {provider: sim, model: small}\n")
    for path, role in (
        ("shared/reply.md", "reviewer"), ("lib/grade.py", "reviewer"),
        ("src/keyed/run.py", "admin"), ("trusted/tone.py", "admin"),
    ):  # fmt: skip
        changed(job, "README.md", path)
        done = edison(elsewhere, "github", "approvals", "--json")
        told = json.loads(done.out)
        assert (done.code, told["files"], told["role"]) == (1, 1, role), done.all
    changed(job, "README.md", "shared/unused.md", "src/other/run.py")
    assert edison(elsewhere, "github", "approvals").code == 0


def test_where_a_file_of_the_base_is_invalid_every_file_needs_approvals(
    edison: Edison, elsewhere: Folder, job: FakeGitHub
) -> None:
    elsewhere.git("stash", "--quiet")
    elsewhere.write("experiments/elsewhere.yaml", "experiment: elsewhere\nprompts: 5\n")
    elsewhere.git("commit", "--all", "--quiet", "--message", "broken")
    elsewhere.git("push", "--quiet", "origin", "main")
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text())
    event["pull_request"]["base"]["sha"] = elsewhere.git("rev-parse", "HEAD")
    Path(os.environ["GITHUB_EVENT_PATH"]).write_text(json.dumps(event))
    changed(job, "README.md")
    done = edison(elsewhere, "github", "approvals", "--json")
    assert (done.code, json.loads(done.out)["files"]) == (1, 1), done.all


def test_a_number_that_cannot_be_reached_is_refused(edison: Edison, repo: Folder) -> None:
    for more, said in (
        ("settings: {approvals: 2}\n", "2 people have to approve, but 0 of the members may"),
        ("settings: {approvals: 2, require_review_approval: false}\n",
         "2 people approve a refinement, and require_review_approval is false"),
    ):  # fmt: skip
        before = repo.read("edison.yaml")
        repo.write("edison.yaml", before + more)
        done = edison(repo, "validate")
        assert (done.code, said in done.err + done.out) == (2, True)
        repo.write("edison.yaml", before)


def test_an_approval_by_name_alone_is_not_one(two: Folder) -> None:
    one, actions, site = keep(two, suggestion_for(two)), ReviewActions(True), open_site(two.path)
    stranger = Actor(Identity("git", name="Bob"), None)
    with pytest.raises(Exception, match="is not a member") as refused:
        actions.approve(site, stranger, one.id, "proposed")
    assert not isinstance(refused.value, UsageError)
