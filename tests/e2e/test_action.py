"""The action and the workflows, run by `act`: one comment, one verdict, and no secret anywhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.features.github.sticky_comment import ReportState, parse_marker
from tests.conftest import Folder
from tests.e2e.acting import (
    BAD,
    CASES,
    GOOD,
    KEY,
    PROMPT,
    Bench,
    Done,
    lay_out_action,
    needs_environment,
)
from tests.features.github.conftest import open_pull
from tests.features.github.fake_github import TOKEN, FakeGitHub
from tests.features.github.fake_state import Grant
from tests.features.github.mirror import seed
from tests.features.monitor.receiver import receiving
from tests.fixed_keys import signing_keys
from tests.loopback.script import Rule, rule
from tests.loopback.server import LoopbackServer
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.features.github.sticky_comment import ReportMarker

pytestmark = pytest.mark.daily

ACTION = """\
name: action
on: [pull_request]
jobs:
  evaluate:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1
        with: {fetch-depth: 2, persist-credentials: false}
      - id: edison
        uses: edison-ci/edison-ci@1111111111111111111111111111111111111111
        with: {budget-usd: "1"}
        env:
          OPENAI_API_KEY: ${{ secrets.OPENAI_API_KEY }}
      - if: always()
        uses: actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f
        with: {name: edison-report, path: "${{ steps.edison.outputs.report }}"}
      - if: always()
        run: cp '${{ steps.edison.outputs.db }}' "$KEPT/${{ steps.edison.outputs.verdict }}.db"
"""
PLANTED = "echo PWNED; exit 1\n"
READS_ONLY = Grant(permissions={"contents": "read", "pull_requests": "read"})


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A repository as `edison init --github` leaves it, with a project that asks a model."""
    needs_environment()
    repository = Folder(tmp_path / "repository")
    repository.path.mkdir()
    (tmp_path / "kept").mkdir()
    with FakeGitHub() as github, LoopbackServer() as model:
        open_pull(github)
        made = Bench(repository, tmp_path, github, model)
        made.lay_out()
        assert repository.edison("init", "--github", "--workflow", "all").code == 0
        made.base = made.head = made.commit("workflows")
        yield made


def stamp(bench: Bench) -> ReportMarker:
    (comment,) = bench.comments
    found = parse_marker(comment)
    assert found is not None
    return found


# --- the action -----------------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_action_measures_a_pull_request_and_tells_everybody(bench: Bench) -> None:
    lay_out_action(bench.scratch / "action")
    bench.repository.write(".github/workflows/action.yml", ACTION)
    bench.base = bench.commit("use the action")
    for trap in ("yaml.py", "sitecustomize.py", "click.py"):
        bench.repository.write(trap, "raise SystemExit('PWNED')\n")
    bench.repository.write("pip.conf", "[global]\nindex-url = http://127.0.0.1:9/\n")
    bench.propose_prompt(BAD)
    done = bench.act("action.yml", "pull_request", bench.pull_request())
    assert done.code == 1, done.log
    assert "PWNED" not in done.log
    found = done.outputs
    assert (found["verdict"], found["delta"]) == ("fail", "-1.0000")
    assert (found["cells"], found["regressions"]) == (f"{2 * CASES}", f"{CASES}")
    assert round(float(found["cost-usd"]) * 1e6) == bench.model.ledger_total()
    assert found["comment-url"].endswith(f"#issuecomment-{min(bench.github.state.comments)}")
    assert "## ❌ edison: fail\n" in done.log, "the job summary"
    assert "::error file=prompts/hello.md,line=5,endLine=5" in done.log
    kept = sorted(path.name for path in (done.kept / "artifacts/edison-report").iterdir())
    assert kept == ["edison.sarif", "junit.xml", "report.html", "report.json", "report.md"]
    assert (done.kept / "fail.db").exists()
    told = stamp(bench)
    assert (told.head_sha, told.state, told.verdict) == (bench.head, ReportState.FINAL, "fail")
    bearers = {request.headers["authorization"] for request in bench.model.requests}
    assert bearers == {f"Bearer {KEY}"}
    bench.assert_no_secret(done)


# --- the workflows --------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_push_keeps_the_answers_that_the_next_pull_request_starts_from(bench: Bench) -> None:
    pair = signing_keys("ours")
    trust = bench.repository.read(".edison/trust.yaml")
    bench.repository.write(
        ".edison/trust.yaml", f"{trust}results: {{public_keys: [{pair.public}]}}\n"
    )
    bench.base = bench.commit("trust a key")
    bench.secrets["EDISON_SIGNING_KEY"] = pair.private
    pushed = {"before": "0" * 40, "after": bench.base, "ref": "refs/heads/main"}
    done = bench.act("edison-push.yml", "push", pushed)
    assert (done.code, done.outputs["verdict"]) == (0, "skipped"), done.log
    assert (len(bench.model.requests), bench.comments) == (CASES, [])
    assert list((done.kept / "cache").glob("*/results.db.sig")), done.log
    better = PROMPT.format(text=f"{GOOD} Be brief.")
    bench.propose(**{".github/edison/install.sh": PLANTED, "prompts/hello.md": better})
    done = bench.act("edison.yml", "pull_request", bench.pull_request())
    assert (done.code, done.outputs["verdict"]) == (0, "pass"), done.log
    assert "PWNED" not in done.log, "what is installed is the base's"
    assert "starting from the results of an earlier job" in done.log
    assert len(bench.model.requests) == 2 * CASES, "the base is not requested again"
    assert stamp(bench).verdict == "pass"
    bench.assert_no_secret(done)
    bench.repository.git("checkout", "--quiet", "--detach", "main")
    done = bench.act("edison-schedule.yml", "schedule", {"schedule": "17 5 * * 1"})
    assert (done.code, done.outputs["verdict"]) == (0, "pass"), done.log
    assert len(bench.model.requests) == 3 * CASES, "a schedule buys everything anew"
    bench.assert_no_secret(done)


TELLING = """\
notifications:
  - {name: ops, on: [budget], webhook_env: OPS_URL}
  - {name: issues, on: [budget], github_issues: true}
"""


@pytest.mark.nightly
def test_a_scheduled_run_tells_people_and_a_pull_request_tells_nobody(bench: Bench) -> None:
    repository, cron = bench.repository, "17 5 * * 1"
    repository.write("edison.yaml", repository.read("edison.yaml") + TELLING)
    scheduled = f'schedule: [{{name: weekly, cron: "{cron}"}}]\nstop: {{budget_usd: 0.01}}\n'
    file = "experiments/hello.yaml"
    repository.write(file, repository.read(file) + scheduled)
    dear = "params: {max_tokens: 20}\n  price: {in: 40, out: 80}"
    repository.edit("models.yaml", "price: {in: 1, out: 2}", dear)
    assert repository.edison("schedule", "sync").code == 0
    bench.base = bench.commit("tell people")
    writes = {"contents": "write", "pull_requests": "write", "issues": "write"}
    bench.github.grants[TOKEN] = Grant(permissions=writes)
    with receiving() as server:
        bench.secrets["OPS_URL"] = f"{server.url}/canary-of-the-webhook"
        done = bench.act("edison-schedule.yml", "schedule", {"schedule": cron})
        assert done.code == 1, done.log
        assert "hello: stopped by a budget" in server.titles, done.log
        (issue,) = bench.github.state.issues.values()
        assert "stopped by a budget" in issue["body"]
        bench.assert_no_secret(done)
        told = len(server.requests)
        bench.propose_prompt(f"{GOOD} Be brief.")
        proposed = bench.act("edison.yml", "pull_request", bench.pull_request())
        assert proposed.code == 1, "the same budget stops it"
        assert (len(server.requests), len(bench.github.state.issues)) == (told, 1), proposed.log
        bench.assert_no_secret(proposed)


@pytest.mark.nightly
def test_a_pull_request_waits_for_the_approvals_that_the_default_branch_asks_for(
    bench: Bench,
) -> None:
    people = "members:\n  - {github: ada, role: owner}\n" + "".join(
        f"  - {{github: {login}, role: reviewer}}\n" for login in ("bob", "cy")
    )
    project = "version: 1\nproject: greetings\n"
    bench.repository.write("edison.yaml", f"{project}settings: {{approvals: 2}}\n{people}")
    bench.base = bench.commit("people")
    bench.propose(**{"prompts/hello.md": PROMPT.format(text=BAD), "edison.yaml": project})
    pull, state = bench.github.state.pulls[1], bench.github.state  # of ada
    pull.files = [{"filename": "prompts/hello.md", "status": "modified"}]
    event = {**bench.pull_request(), "action": "submitted"}
    for login, code in (("bob", 1), ("cy", 0)):
        approval = {"event": "APPROVE", "body": ""}
        state.add_review(pull, approval, Grant(login, is_bot=False))
        done = bench.act("edison-approvals.yml", "pull_request_review", event)
        assert done.code == code, done.log
    assert "2 of 2 approvals (bob, cy)" in done.log
    assert not bench.model.requests
    bench.assert_no_secret(done)


@pytest.mark.nightly
def test_a_merge_queue_is_measured_and_comments_nowhere(bench: Bench) -> None:
    bench.propose_prompt(BAD)
    group = {
        "head_sha": bench.repository.git("rev-parse", "HEAD"),
        "head_ref": "refs/heads/gh-readonly-queue/main/pr-1",
        "base_sha": bench.base,
        "base_ref": "refs/heads/main",
    }
    done = bench.act("edison.yml", "merge_group", {"merge_group": group})
    assert (done.code, done.outputs["verdict"]) == (1, "fail"), done.log
    assert (bench.github.requests, done.report["verdict"]) == ([], "fail")
    bench.assert_no_secret(done)


def after(bench: Bench, owner: str) -> dict[str, Any]:
    """Return what starts the second workflow."""
    login = {"login": owner}
    run = {
        "id": 7,
        "event": "pull_request",
        "conclusion": "success",
        "head_sha": bench.head,
        "head_branch": "topic",
        "head_repository": {"full_name": f"{owner}/prompts", "owner": login},
        "actor": login,
    }
    return {"action": "completed", "workflow_run": run}


@pytest.mark.nightly
def test_a_fork_gets_no_keys_and_a_second_workflow_comments_for_it(bench: Bench) -> None:
    bench.propose_prompt(BAD)
    bench.secrets = {"GITHUB_TOKEN": TOKEN}  # GitHub gives a fork nothing else
    bench.github.grants[TOKEN] = READS_ONLY
    bench.github.state.pulls[1].head_owner = "eve"
    done = bench.act("edison.yml", "pull_request", bench.pull_request(fork=True))
    assert (done.code, done.outputs["verdict"]) == (0, "inconclusive"), done.log
    assert "A maintainer who has read the change can evaluate it" in done.log
    assert (bench.model.requests, bench.comments) == ([], [])
    assert done.report["planned"][0]["experiment"] == "hello"

    bench.github.grants[TOKEN] = Grant()
    bench.repository.git("checkout", "--quiet", "--detach", "main")
    commented = bench.act("edison-fork-comment.yml", "workflow_run", after(bench, "eve"))
    assert commented.code == 0, commented.log
    told = stamp(bench)
    assert (told.head_sha, told.verdict) == (bench.head, "inconclusive")
    assert "unverified" in bench.comments[0]
    assert bench.model.requests == []
    bench.assert_no_secret(commented)


@pytest.mark.nightly
def test_dependabot_is_treated_like_a_fork(bench: Bench) -> None:
    bench.propose_prompt(BAD)
    bench.secrets = {"GITHUB_TOKEN": TOKEN}
    bench.github.grants[TOKEN] = READS_ONLY
    payload = bench.pull_request()
    done = bench.act("edison.yml", "pull_request", payload, "--actor", "dependabot[bot]")
    assert (done.code, done.outputs["verdict"]) == (0, "inconclusive"), done.log
    assert (bench.model.requests, bench.comments) == ([], [])
    assert "a change by Dependabot" in done.report["undecided"]
    bench.assert_no_secret(done)


@pytest.mark.nightly
def test_a_maintainer_evaluates_a_fork_by_hand_on_the_terms_of_our_branch(bench: Bench) -> None:
    stranger = "http://127.0.0.1:9"
    trusted = bench.repository.read(".edison/trust.yaml")
    theirs = trusted.replace("hosts: [", f"hosts: ['{stranger}', ")
    planted = {".github/edison/install.sh": PLANTED, ".edison/trust.yaml": theirs}
    bench.propose(**planted, **{"prompts/hello.md": PROMPT.format(text=BAD)})
    bench.repository.git("checkout", "--quiet", "--detach", "main")
    read = {"pull-request": "1", "commit": bench.head}
    started = {"inputs": read, "ref": "refs/heads/main"}
    for odd in ("topic", "refs/pull/1/merge", bench.head[:12]):
        other = {**started, "inputs": {**read, "commit": odd}}
        assert bench.act("edison-by-hand.yml", "workflow_dispatch", other).code == 1
    assert bench.model.requests == [], "what may have moved on is not evaluated"
    done = bench.act("edison-by-hand.yml", "workflow_dispatch", started)
    assert (done.code, done.outputs["verdict"]) == (1, "fail"), done.log
    assert (done.outputs["delta"], "PWNED" in done.log) == ("-1.0000", False)
    assert (len(bench.model.requests), bench.comments) == (2 * CASES, [])
    bench.assert_no_secret(done)

    models = bench.repository.read("models.yaml")
    elsewhere = models.replace(bench.model.openai_url, f"{stranger}/v1")
    bench.propose(**{"models.yaml": elsewhere, ".edison/trust.yaml": theirs})
    bench.repository.git("checkout", "--quiet", "--detach", "main")
    started["inputs"] = {**read, "commit": bench.head}
    done = bench.act("edison-by-hand.yml", "workflow_dispatch", started)
    assert (done.code, done.outputs["verdict"]) == (0, "inconclusive"), done.log
    assert "small is not called with another address: the entry of the base was" in done.log
    bench.assert_no_secret(done)


@pytest.mark.nightly
def test_a_run_on_request_is_the_plan_that_was_shown_and_no_other(bench: Bench) -> None:
    shown = json.loads(bench.repository.edison("plan", "hello", "--json").out)["experiments"][0]
    asked = {"experiment": "hello", "budget": "1", "plan": shown["plan_hash"], "request": "r-1"}

    def act(**changed: str) -> Done:
        started = {"inputs": {**asked, **changed}, "ref": "refs/heads/main"}
        return bench.act("edison-run.yml", "workflow_dispatch", started)

    other = act(plan="0" * 64)
    assert other.code == 1, other.log
    assert "the plan of hello is not the one that was shown" in other.log
    planted = bench.scratch / "planted"
    hostile = f"$(touch {planted}) `touch {planted}`; touch {planted}"
    assert act(experiment=hostile, request=hostile).code == 1
    assert not planted.exists()
    assert bench.model.requests == []
    done = act()
    assert (done.code, done.outputs["verdict"]) == (0, "skipped"), done.log
    assert (len(bench.model.requests), done.outputs["cells"]) == (CASES, str(CASES))
    assert list((done.kept / "cache").glob("*/results.db")), "later jobs start from the answers"
    again = act(budget="", plan="")
    assert (again.code, len(bench.model.requests)) == (0, CASES), "stored answers are used again"
    bench.assert_no_secret(again)


@pytest.mark.nightly
def test_a_pull_request_is_decided_by_the_job_that_collects_its_batches(bench: Bench) -> None:
    repository = bench.repository
    models = repository.read("models.yaml")
    priced = models.replace("{in: 1, out: 2}", "{in: 1, out: 2, batch: {in: 0.5, out: 1}}")
    assert priced != models
    repository.write("models.yaml", priced)
    repository.git("rm", "--quiet", ".github/workflows/edison.yml")
    assert repository.edison("init", "--github", "--batch").code == 0
    bench.base = bench.commit("batches")
    bench.propose_prompt(BAD)
    bench.model.batches.ends = True
    bench.model.batches.says = lambda said: "No." if BAD in said else "Welcome, dear friend."
    done = bench.act("edison.yml", "pull_request", bench.pull_request())
    assert (done.code, done.outputs["verdict"]) == (1, "fail"), done.log
    (batch,) = bench.model.batches.made.values()
    assert (len(batch.requests), bench.model.chats) == (2 * CASES, 0)
    assert stamp(bench).verdict == "fail"
    bench.assert_no_secret(done)


@pytest.mark.nightly
def test_a_refinement_becomes_a_pull_request(bench: Bench) -> None:
    repository = bench.repository
    for name in ("edison.yaml", "models.yaml", "prompts", "experiments", "datasets"):
        repository.git("rm", "--quiet", "-r", name)
    assert repository.edison("init", "--template", "customer-support").code == 0
    bench.commit("another project")
    seed(bench.github, repository)
    started = {"inputs": {"experiment": "support-reply"}, "ref": "refs/heads/main"}
    done = bench.act("edison-refine.yml", "workflow_dispatch", started)
    assert done.code == 0, done.log
    (pull,) = [pull for pull in bench.github.state.pulls.values() if pull.number != 1]
    assert pull.head == "edison/refine/support-reply-1"
    prompt = bench.github.state.file_at(pull.head, "prompts/support-reply.md").decode()
    assert prompt != repository.read("prompts/support-reply.md")
    bench.assert_no_secret(done)


# --- cancelling -----------------------------------------------------------------------------------


def descendants(pid: int) -> list[int]:
    """Return the processes below one, parents before their children."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for thread in threads for child in thread.read_text().split()]
    return [*children, *(each for child in children for each in descendants(child))]


class Noticed(Rule):
    """A rule that tells when it has been applied."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.event = threading.Event()

    def fits(self, *request: Any) -> bool:
        found = super().fits(*request)
        if found:
            self.event.set()
        return found


@pytest.mark.nightly
def test_a_cancelled_job_stores_what_was_paid_and_says_so(bench: Bench) -> None:
    bench.propose_prompt(BAD)
    hanging = Noticed(number=5, do="hang")
    bench.model.script[:] = [hanging, rule(text="Welcome, dear friend.")]
    command = bench.command("edison.yml", "pull_request", bench.pull_request())
    file = bench.scratch / "log"
    with file.open("wb") as log:
        job = subprocess.Popen(
            command, cwd=bench.repository.path, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            assert hanging.event.wait(PATIENCE_S), file.read_text(encoding="utf-8")
            step = descendants(job.pid)[0]
            assert b"github\0run" in Path(f"/proc/{step}/cmdline").read_bytes(), "a shell is left"
            os.kill(step, signal.SIGINT)  # what the runner does first, to the process it started
            job.wait(PATIENCE_S)
        finally:
            for pid in descendants(job.pid) if job.poll() is None else ():
                os.kill(pid, signal.SIGKILL)
            job.kill()
            job.wait(PATIENCE_S)
    done = Done(job.returncode, file.read_text(encoding="utf-8"), bench.scratch / "kept")
    assert done.code == 1, done.log
    assert "exit status 130" in done.log, "failed, so that nobody takes it for a pass"
    assert (done.report["runs"][0]["status"], done.report["verdict"]) == ("PAUSED", None)
    told = stamp(bench)
    assert (told.head_sha, told.state, told.verdict) == (bench.head, ReportState.CANCELLED, None)
    assert "The run was cancelled" in bench.comments[0]
    assert done.outputs["verdict"] == ""
    assert float(done.outputs["cost-usd"]) > 0
    bench.assert_no_secret(done)
