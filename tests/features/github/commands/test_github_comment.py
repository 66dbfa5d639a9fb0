"""A report reaches its pull request, and whatever GitHub does, the verdict stays what it was."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access import proposal_terms
from edison_ci.config.load import load_project
from edison_ci.errors import UsageError
from edison_ci.features.github.sticky_comment import ReportState, parse_marker
from tests.cli.test_against import shop, worsen
from tests.features.github.conftest import open_pull
from tests.features.github.fake_github import TOKEN, FakeGitHub, Fault
from tests.features.github.fake_state import REPOSITORY, Grant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

__all__ = ["shop"]
HEAD = "b" * 40


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGitHub]:
    with FakeGitHub() as server:
        open_pull(server)
        monkeypatch.setenv("GITHUB_API_URL", server.url)
        monkeypatch.setenv("GITHUB_SERVER_URL", server.url)
        monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        yield server


@pytest.fixture
def job(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend to be a job for pull request 1."""

    def started(name: str = "pull_request", *, run: int = 7, fork: bool = False) -> None:
        side = {"sha": HEAD, "ref": "topic", "repo": {"id": 1, "owner": {"login": "acme"}}}
        head = {**side, "repo": {"id": 2 if fork else 1, "owner": {"login": "eve"}}}
        payload: dict[str, Any] = {"pull_request": {"number": 1, "head": head, "base": side}}
        if name == "push":
            payload = {"before": "a" * 40, "after": HEAD, "ref": "refs/heads/main"}
        if name == "workflow_run":
            about = {"head_sha": HEAD, "head_branch": "topic"}
            payload = {"workflow_run": {**about, "head_repository": {"owner": {"login": "eve"}}}}
        file = folder.write("event.json", json.dumps(payload))
        monkeypatch.setenv("GITHUB_EVENT_NAME", name)
        monkeypatch.setenv("GITHUB_EVENT_PATH", str(file))
        monkeypatch.setenv("GITHUB_RUN_ID", str(run))
        monkeypatch.setenv("RUNNER_TEMP", str(folder.path.parent))

    return started


def texts(fake: FakeGitHub) -> list[str]:
    return [comment["body"] for comment in fake.state.comments.values()]


def test_a_job_comments_once_and_updates_it(
    fake: FakeGitHub, edison: Edison, folder: Folder, job: Any
) -> None:
    job()
    running = edison(folder, "github", "comment", "--state", "running")
    assert (running.code, running.err) == (0, "")
    assert running.out.startswith("commented: http://127.0.0.1:")
    log = f"[Log]({fake.url}/acme/prompts/actions/runs/7)"
    assert texts(fake)[0].endswith(f"\n**edison** is evaluating bbbbbbbb. {log}")
    folder.write("report.md", "### edison: pass\r\n")
    done = edison(
        folder, "github", "comment", "--body-file", "report.md", "--verdict", "pass", "--json"
    )
    assert done.code == 0
    said = json.loads(done.out)
    assert (said["outcome"], said["pull_request"], said["reason"]) == ("updated", 1, None)
    assert said["url"].endswith(f"#issuecomment-{said['comment_id']}")
    (text,) = texts(fake)
    assert text.endswith("\n### edison: pass\n")
    assert f'"head": "{HEAD}", "state": "final", "verdict": "pass"' in text
    late = edison(folder, "github", "comment", "--state", "cancelled")
    assert late.out.startswith("kept a newer report: ")


def test_a_dry_run_prints_the_comment_without_token_or_pull_request(
    edison: Edison, shop: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    worsen(shop)
    shop.git("commit", "--quiet", "--all", "--message", "worse")
    edison(shop, "run", "--against", "HEAD^1")
    done = edison(shop, "github", "comment", "--dry-run", "--offline")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "<!-- edison-ci:report:v1 key=edison -->"
    verdict = json.loads(edison(shop, "status", "latest", "--json").out)["verdict"]
    assert lines[3].endswith(f" edison: {verdict}")
    assert lines[5].startswith("**support-reply is ") and lines[5].endswith(".** (simulated)")
    commit, base = (shop.git("rev-parse", name)[:12] for name in ("HEAD", "HEAD^1"))
    assert f"git checkout {commit} && edison run support-reply --against {base}`" in done.out
    assert "```diff\n@@ " in done.out
    assert 0 < done.out.count("**Newly failing** `") <= 3
    document = json.loads(edison(shop, "github", "comment", "--dry-run", "--json").out)
    assert (document["outcome"], document["body"]) == ("dry run", done.out)


def test_the_comment_of_a_private_project_quotes_nothing(edison: Edison, shop: Folder) -> None:
    shop.edit("edison.yaml", "version: 1\n", "version: 1\nsettings: {private: true}\n")
    worsen(shop)
    edison(shop, "run", "--against", "HEAD")
    said = edison(shop, "github", "comment", "--dry-run").out
    assert "```diff\n@@ " in said, "the prompt is in the pull request anyway"
    assert "**Newly failing** `" not in said and "```diff\n- " not in said


def test_a_missing_permission_is_told_exactly_and_changes_no_verdict(
    fake: FakeGitHub, edison: Edison, folder: Folder, job: Any
) -> None:
    job()
    fake.grants[TOKEN] = Grant(permissions={"contents": "read", "pull_requests": "read"})
    folder.write("report.md", "text")
    done = edison(folder, "github", "comment", "--body-file", "report.md")
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        "warning: no comment was posted: GitHub refused to add a comment: Resource not "
        "accessible by "
        "integration (HTTP 403)\n"
        "  add this to the job in the workflow:\n"
        "\n"
        "  permissions:\n"
        "    contents: read\n"
        "    pull-requests: write\n"
    )


def test_a_fork_is_told_that_no_permission_would_help(
    fake: FakeGitHub, edison: Edison, folder: Folder, job: Any
) -> None:
    job(fork=True)
    fake.grants[TOKEN] = Grant(permissions={"contents": "read", "pull_requests": "read"})
    folder.write("report.md", "text")
    done = edison(folder, "github", "comment", "--body-file", "report.md", "--json")
    assert done.code == 0
    said = json.loads(done.out)
    assert said["outcome"] == "failed"
    assert said["hint"].startswith("GitHub gives pull requests from forks and from Dependabot")


@pytest.mark.parametrize(
    ("status", "hint"), [(401, "the token is wrong"), (404, "it does not exist"), (422, "")]
)
def test_no_refusal_of_github_fails_the_job(
    fake: FakeGitHub, edison: Edison, folder: Folder, job: Any, status: int, hint: str
) -> None:
    job()
    fake.faults.append(Fault(status, times=99, body=b"<html><title>Unicorn!</title></html>"))
    done = edison(folder, "github", "comment", "--state", "running")
    assert done.code == 0
    assert f"Unicorn! (HTTP {status})\n" in done.err
    assert f"\n  {hint}" in done.err if hint else done.err.count("\n") == 1
    assert "permissions:" not in done.err


def test_a_locked_conversation_is_not_a_matter_of_permissions(
    fake: FakeGitHub, edison: Edison, folder: Folder, job: Any
) -> None:
    job()
    fake.state.locked = True
    done = edison(folder, "github", "comment", "--state", "running")
    assert (done.code, "permissions:" in done.err) == (0, False)
    assert "is locked" in done.err


def test_in_actions_a_failure_is_an_annotation_too(
    fake: FakeGitHub, edison: Edison, folder: Folder, job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    fake.faults.append(Fault(404, times=99))
    done = edison(folder, "github", "comment", "--state", "running")
    assert done.code == 0
    assert "::warning title=edison%3A comment::GitHub refused to list the comments" in done.err


def test_a_push_has_nothing_to_comment_on(
    fake: FakeGitHub, edison: Edison, folder: Folder, job: Any
) -> None:
    job("push")
    done = edison(folder, "github", "comment", "--state", "running")
    assert (done.code, done.out) == (0, "no pull request to comment on (push)\n")
    assert fake.requests == []


@pytest.mark.parametrize(("sha", "outcome"), [(HEAD, "created"), ("c" * 40, "none")])
def test_after_another_workflow_the_pull_request_is_found_by_its_head(
    fake: FakeGitHub, edison: Edison, folder: Folder, job: Any, sha: str, outcome: str
) -> None:
    job("workflow_run")
    pull = fake.state.pulls[1]
    pull.head_owner, pull.head_sha = "eve", sha
    folder.write("report.md", "text")
    done = edison(folder, "github", "comment", "--body-file", "report.md", "--json")
    assert json.loads(done.out)["outcome"] == outcome


def test_by_hand_it_needs_a_number_and_says_whose_token_it_is(
    fake: FakeGitHub, edison: Edison, folder: Folder
) -> None:
    folder.write("report.md", "text")
    args = ("github", "comment", "--body-file", "report.md")
    unnamed = edison(folder, *args)
    assert (unnamed.code, unnamed.err) == (
        2,
        "error: no pull request: this is not a job for one\n  name it: --pr NUMBER\n",
    )
    fake.grants[TOKEN] = Grant("ada", is_bot=False)
    done = edison(folder, *args, "--pr", "1")
    assert done.code == 0
    assert "use --author ada, or the next report will be a new comment" in done.err
    again = edison(folder, *args, "--pr", "1", "--author", "ada")
    assert again.out.startswith("the comment is up to date")
    assert len(fake.state.comments) == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "there is nothing to report on"),
        (("--verdict", "pass"), "--verdict needs --body-file"),
        (("hello", "--body-file", "x.md"), "cannot be combined"),
        (("--handed-in", "x.json", "--body-file", "x.md"), "cannot be combined"),
        (("--handed-in", "event.json"), "it is not a report of edison"),
        (("--body-file", "nowhere.md"), "cannot be read"),
        (("--state", "running", "--key", "a b"), "is not a valid key"),
        (("--state", "running", "--author", "a b"), "not a valid account name"),
        (("--state", "running", "--offline"), "network access is disabled by --offline"),
    ],
)
def test_mistakes_on_the_command_line_are_told(
    fake: FakeGitHub, edison: Edison, folder: Folder, job: Any, args: tuple[str, ...], said: str
) -> None:
    job()
    done = edison(folder, "github", "comment", *args)
    assert done.code == 2
    assert said in done.err
    assert fake.state.comments == {}


def test_without_a_token_or_a_repository_it_says_what_to_set(
    edison: Edison, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = ("github", "comment", "--state", "running", "--pr", "1")
    assert "there is no token for GitHub" in edison(folder, *args).err
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    done = edison(folder, *args)
    assert done.code == 2
    assert "which repository on GitHub this is" in done.err


def test_the_token_is_in_no_output_log_or_error(
    fake: FakeGitHub, edison: Edison, folder: Folder, job: Any
) -> None:
    job()
    echo = f'{{"message": "bad token {TOKEN}"}}'.encode()
    fake.faults.append(Fault(422, "POST", body=echo))
    seen = edison(folder, "github", "comment", "--state", "running", "--debug", "--log-json").all
    fake.faults.append(Fault(302, headers={"Location": f"https://evil.example/?t={TOKEN}"}))
    seen += edison(folder, "github", "comment", "--state", "running", "--debug").all
    assert "redirected the request" in seen
    assert TOKEN not in seen
    assert TOKEN[8:] not in seen


def test_a_comment_is_audited_and_refused_to_strangers(
    fake: FakeGitHub, edison: Edison, mini: Folder, job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job()
    assert edison(mini, "run", "--quiet").code in (0, 1)
    assert edison(mini, "github", "comment", "--state", "running").code == 0
    rows = json.loads(edison(mini, "admin", "audit", "--json").out)["rows"]
    assert rows[0]["action"] == "github comment: created"
    assert rows[0]["entity"] == "pull request 1"
    mini.write(".edison/results.db", "no database")  # the comment is there all the same
    mini.write("report.md", "done")
    assert edison(mini, "github", "comment", "--body-file", "report.md").code == 0
    mini.write("edison.yaml", "version: 1\nproject: mini\nmembers: [{github: ada, role: owner}]\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_ACTOR", "eve")
    refused = edison(mini, "github", "comment", "--state", "running")
    assert refused.code == 2
    assert "github comment needs a viewer" in refused.err


def test_the_runs_of_a_project_are_reported_in_the_same_comment(
    fake: FakeGitHub, edison: Edison, mini: Folder, job: Any
) -> None:
    job()
    assert edison(mini, "github", "comment", "--state", "running").code == 0
    assert "edison is running" in texts(fake)[0]
    assert edison(mini, "run", "--quiet").code in (0, 1)
    done = edison(mini, "github", "comment", "--json")
    assert json.loads(done.out)["outcome"] == "updated"
    (text,) = texts(fake)
    assert "hello" in text
    assert "simulated" in text
    stamp = parse_marker(text)
    assert stamp is not None
    assert (stamp.head_sha, stamp.run_id, stamp.state) == (HEAD, 7, ReportState.FINAL)
    again = edison(mini, "github", "comment", "hello", "--json")
    assert json.loads(again.out)["outcome"] == "unchanged"
    assert "audit log" not in text.lower()
    verify = ("admin", "audit", "--verify", "--pr", "1")
    whole = edison(mini, *verify)
    assert "is the one that the comment on pull request 1 holds" in whole.out, whole.err
    with closing(sqlite3.connect(mini.path / ".edison/results.db")) as connection:
        connection.executescript(
            "drop trigger audit_stays; delete from audit; "
            "delete from sqlite_sequence where name = 'audit'"
        )
    assert "its end was cut off" in " ".join(edison(mini, *verify).err.split())
    assert edison(mini, *verify, "--author", "eve").code == 2
    late = edison(mini, "github", "comment", "--state", "cancelled", "--json")
    assert json.loads(late.out)["outcome"] == "superseded"
    unknown = edison(mini, "github", "comment", "nothing")
    assert (unknown.code, texts(fake)) == (2, [text])


def test_invalid_files_are_told_in_the_comment(
    fake: FakeGitHub, edison: Edison, mini: Folder, job: Any
) -> None:
    job()
    mini.edit("experiments/hello.yaml", "models: [small]", "models: [smal]")
    assert edison(mini, "github", "comment").code == 0
    (text,) = texts(fake)
    assert "smal" in text
    stamp = parse_marker(text)
    assert stamp is not None
    assert stamp.verdict == "error"


def test_a_broken_project_can_still_be_reported_on(
    fake: FakeGitHub, edison: Edison, mini: Folder, job: Any
) -> None:
    job()
    mini.write("edison.yaml", "version: [")
    mini.write("report.md", "edison.yaml is broken")
    done = edison(mini, "github", "comment", "--body-file", "report.md", "--verdict", "error")
    assert (done.code, done.err) == (0, "")
    assert texts(fake)[0].endswith("edison.yaml is broken")


def test_a_report_without_the_base_says_so_and_does_not_pass(
    fake: FakeGitHub, edison: Edison, repo: Folder, job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout that is too shallow does not keep the comment away."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    job()
    assert edison(repo, "github", "summary").code == 0
    done = edison(repo, "github", "comment", "--json")
    assert json.loads(done.out)["outcome"] == "created", done.all
    assert "The base of the change is unknown" in texts(fake)[0]


def test_a_report_without_the_terms_of_the_base_shows_no_texts(repo: Folder, job: Any) -> None:
    project = load_project(repo.path)
    assert not proposal_terms.to_report_on(project).file.settings.private
    job()
    with pytest.raises(UsageError, match="is not in this clone"):
        proposal_terms.apply_base_terms(project)
    assert proposal_terms.to_report_on(project).file.settings.private
