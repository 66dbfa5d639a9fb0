"""edison github run: the right mode, one comment, every output, and an exit code that is true."""

from __future__ import annotations

import json
import math
import re
import shutil
import signal
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from genai_prices import Usage, calc_price

from edison_ci.api.change import exit_code_for
from edison_ci.config.model_entry import PROVIDERS
from edison_ci.contracts import ProviderPlugin
from edison_ci.features.github.sticky_comment import ReportState, parse_marker
from edison_ci.records import Completion, Request
from edison_ci.results.report import Report
from tests import forked
from tests.conftest import Folder
from tests.e2e.acting import BAD, CASES, EXPERIMENT, GOOD, KEY, PROMPT, TRUST, Bench
from tests.features.github.conftest import open_pull
from tests.features.github.fake_github import TOKEN, Arrived, FakeGitHub, Fault
from tests.features.github.fake_state import REPOSITORY, Grant
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.offered import offer
from tests.report.page import assert_harmless
from tests.report.runner import Runner, read_outputs
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.cli.conftest import Edison
    from tests.conftest import Result

pytestmark = pytest.mark.daily


class Job:
    """A job of GitHub Actions in this process."""

    def __init__(
        self, bench: Bench, edison: Edison, monkeypatch: pytest.MonkeyPatch, scratch: Path
    ) -> None:
        self.bench, self._edison, self._patch, self._scratch = bench, edison, monkeypatch, scratch
        self._number = 0
        for name, value in {
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTOR": "ada",
            "GITHUB_API_URL": bench.github.url,
            "GITHUB_SERVER_URL": bench.github.url,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_TOKEN": TOKEN,
            "GITHUB_WORKSPACE": str(bench.repository.path),
            "RUNNER_TEMP": str(scratch / "temp"),
            "OPENAI_API_KEY": KEY,
        }.items():
            monkeypatch.setenv(name, value)

    def __call__(self, event: str, payload: dict[str, Any], *args: str) -> Result:
        self.describe(event, payload)
        return self._edison(self.bench.repository, "github", "run", *args)

    def describe(self, event: str, payload: dict[str, Any]) -> None:
        """Tell the process what started it, as the runner does."""
        self._number += 1
        about = {"full_name": REPOSITORY, "default_branch": "main"}
        file = self._scratch / "event.json"
        file.write_text(json.dumps({"repository": about, **payload}), encoding="utf-8")
        for name, value in {
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(file),
            "GITHUB_REF": payload.get("ref", "refs/heads/main"),
            "GITHUB_RUN_ID": str(self._number),
            "GITHUB_OUTPUT": str(self._scratch / f"outputs-{self._number}"),
            "GITHUB_STEP_SUMMARY": str(self._scratch / f"summary-{self._number}"),
        }.items():
            self._patch.setenv(name, value)

    def pull_request(self, *args: str, fork: bool = False) -> Result:
        return self("pull_request", self.bench.pull_request(fork=fork), *args)

    @property
    def outputs(self) -> dict[str, str]:
        return read_outputs((self._scratch / f"outputs-{self._number}").read_text("utf-8"))

    @property
    def summary(self) -> str:
        return (self._scratch / f"summary-{self._number}").read_text("utf-8")


@pytest.fixture
def job(tmp_path: Path, edison: Edison, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    (tmp_path / "repository").mkdir()
    with FakeGitHub() as github, LoopbackServer() as model:
        open_pull(github)
        bench = Bench(Folder(tmp_path / "repository"), tmp_path, github, model)
        bench.lay_out()
        yield Job(bench, edison, monkeypatch, tmp_path)


def states(job: Job) -> list[str | None]:
    """Return the states that the comment went through."""
    sent = [r.body for r in job.bench.github.requests if r.method in ("POST", "PATCH")]
    stamps = [parse_marker(body["body"]) for body in sent]
    return [f"{stamp.state}: {stamp.verdict}" if stamp else None for stamp in stamps]


# --- verdicts -------------------------------------------------------------------------------------


def test_a_worse_prompt_fails_and_everything_says_so(job: Job) -> None:
    job.bench.propose_prompt(BAD)
    done = job.pull_request()
    assert done.code == 1, done.all
    found = job.outputs
    assert {"verdict", "composite", "delta", "cost-usd", "cells", "regressions"} < found.keys()
    assert (found["verdict"], found["delta"], found["regressions"]) == (
        "fail",
        "-1.0000",
        str(CASES),
    )
    assert states(job) == ["running: None", "final: fail"]
    assert found["comment-url"] in done.out
    assert job.summary.startswith("## ❌ edison: fail\n")
    assert_harmless(job.summary)
    report = json.loads(_read(found["report"], "report.json"))
    assert (report["verdict"], report["regressions"]) == ("fail", CASES)
    assert _read(found["report"], "junit.xml").startswith("<?xml")
    assert_readable(_read(found["report"], "report.html"))
    obeyed = [command for command in Runner().read(done.out) if command.name == "error"]
    assert obeyed[0].properties["file"] == "prompts/hello.md"
    assert done.out.startswith("::stop-commands::")


def assert_readable(page: str, *, texts: bool = True) -> None:
    """The page for people is one file, in which the bad answers can be read."""
    assert page.startswith("<!doctype html>")
    assert not re.search(r"<script|<link|<img|src=|href=\"http", page)
    assert (">No.<" in page) == texts
    assert "Welcome" in page, "the reason why an answer is bad"


def _read(folder: str, name: str) -> str:
    return (Path(folder) / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("code", "verdict", "fail_on", "ends"),
    [
        (0, "pass", "inconclusive", 0),
        (0, "skipped", "inconclusive", 0),
        (1, "fail", "fail", 1),
        (1, "fail", "inconclusive", 1),
        (1, "fail", "never", 0),
        (0, "inconclusive", "fail", 0),
        (0, "inconclusive", "inconclusive", 5),
        (5, "inconclusive", "fail", 5),
        (5, "inconclusive", "never", 0),
        (3, "error", "never", 3),
        (4, None, "never", 4),
        (2, "error", "never", 2),
        (130, None, "never", 130),
    ],
)
def test_which_verdict_fails_the_job_is_the_owners_choice_but_an_error_always_does(
    code: int, verdict: str | None, fail_on: Any, ends: int
) -> None:
    assert exit_code_for(code, fail_on, verdict) == ends


def test_what_cannot_be_decided_for_lack_of_keys_fails_no_gate(job: Job) -> None:
    verdict = Report(undecided="a fork").verdict
    assert exit_code_for(5, "fail", verdict, undecided=True) == 0
    assert exit_code_for(5, "inconclusive", verdict, undecided=True) == 5


def test_nothing_affected_is_green_and_makes_no_comment_of_its_own(job: Job) -> None:
    job.bench.propose(**{"NOTES.md": "nothing that a run depends on\n"})
    done = job.pull_request()
    assert (done.code, job.outputs["verdict"], states(job)) == (0, "skipped", [])
    assert "No experiment is affected" in job.summary
    assert job.bench.model.requests == []
    job.bench.propose_prompt(BAD)
    assert job.pull_request().code == 1
    job.bench.propose(**{"NOTES.md": "the prompt is as it was again\n"})
    assert job.pull_request().code == 0
    assert states(job)[-1] == "final: skipped", "a comment that is there is kept right"


def test_invalid_files_are_an_error_that_the_comment_explains(job: Job) -> None:
    job.bench.propose(**{"experiments/hello.yaml": EXPERIMENT.replace("[small]", "[smal]")})
    done = job.pull_request("--fail-on", "never")
    assert done.code == 2
    assert "did you mean 'small'?" in done.err
    assert (job.outputs["verdict"], states(job)) == ("error", ["final: error"])
    assert "smal" in job.bench.comments[0]
    assert "edison: error" in _read(job.outputs["report"], "report.md")
    assert job.bench.model.requests == []


@pytest.mark.nightly
def test_a_comment_that_fails_changes_no_verdict(job: Job) -> None:
    job.bench.propose_prompt(f"{GOOD} Be brief.")
    job.bench.github.grants[TOKEN] = Grant(permissions={"pull_requests": "read"})
    done = job.pull_request()
    assert (done.code, job.outputs["verdict"], job.outputs["comment-url"]) == (0, "pass", "")
    assert "pull-requests: write" in done.err
    job.bench.github.faults.append(Fault(404, times=99))
    assert job.pull_request().code == 0
    quiet = job.pull_request("--no-comment")
    assert (quiet.code, "there is no comment" in quiet.err) == (0, False)


@pytest.mark.nightly
def test_pushes_are_counted_by_the_comment(job: Job) -> None:
    job.bench.propose_prompt(f"{GOOD} Be brief.")
    job.pull_request()
    assert "ush 1 of" not in job.summary and "earlier pushes" not in job.summary
    job.bench.propose_prompt(f"{GOOD} Be kind.")
    job.pull_request()
    assert "Push 2 of this pull request: to pass takes 99.24% confidence." in job.summary
    job.pull_request()  # the same commit again is not another push
    assert "Push 2 of this pull request" in job.summary
    job.pull_request("--no-comment")
    assert "Number of earlier pushes unknown: not counted." in job.summary


def test_as_json_it_is_one_document(job: Job) -> None:
    job.bench.propose_prompt(BAD)
    told = json.loads(job.pull_request("--json").out)
    assert (told["verdict"], told["exit_code"], told["mode"]) == ("fail", 1, "live")
    assert told["base"] == job.bench.base
    assert told["outputs"] == job.outputs
    assert told["comment"]["outcome"] == "updated"
    assert told["annotations"][0]["file"] == "prompts/hello.md"


def _workflow(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the job the workflow that `init` writes, as the runner names it."""
    assert job.bench.repository.edison("init", "--github").code == 0
    job.bench.base = job.bench.commit("workflow")
    path = ".github/workflows/edison.yml"
    monkeypatch.setenv("GITHUB_WORKFLOW_REF", f"{REPOSITORY}/{path}@refs/pull/1/merge")
    monkeypatch.setenv("GITHUB_JOB", "evaluate")
    monkeypatch.setenv("GITHUB_ACTION", "edison")


def test_a_missing_secret_is_named_with_the_workflow_and_the_step(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    _workflow(job, monkeypatch)
    job.bench.propose_prompt(BAD)
    monkeypatch.setenv("OPENAI_API_KEY", "")  # what GitHub makes of a secret that is not there
    done = job.pull_request()
    assert (done.code, job.outputs["verdict"]) == (2, "error"), done.all
    assert (
        "the secret OPENAI_API_KEY of the repository is missing or empty: the step 'Evaluate' of "
        ".github/workflows/edison.yml passes on nothing, and model small needs it"
    ) in done.err
    assert "with: gh secret set OPENAI_API_KEY" in done.err
    assert job.bench.model.requests == []
    (comment,) = job.bench.comments
    for words in ("`OPENAI_API_KEY`", "`.github/workflows/edison.yml`", "`gh secret set"):
        assert words.rstrip("`").lstrip("`") in comment


def test_a_key_that_the_workflow_does_not_pass_on_is_named_with_the_line_to_add(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    _workflow(job, monkeypatch)
    job.bench.propose_prompt(BAD)
    monkeypatch.delenv("OPENAI_API_KEY")
    done = job.pull_request()
    assert (done.code, job.bench.model.requests) == (2, [])
    step = "the step 'Evaluate' of .github/workflows/edison.yml"
    assert f"{step} does not pass on OPENAI_API_KEY, which model small needs" in done.err
    assert "add to env of the step: OPENAI_API_KEY: ${{ secrets.OPENAI_API_KEY }}" in done.err


def test_options_come_from_variables_too(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.bench.propose_prompt(BAD)
    for name, value in {
        "EXPERIMENTS": "hello\n",
        "MODE": "auto",
        "BUDGET": "",
        "FAIL_ON": "never",
        "COMMENT": "false",
    }.items():
        monkeypatch.setenv(f"EDISON_GITHUB_RUN_{name}", value)
    done = job.pull_request()
    assert (done.code, job.outputs["verdict"], states(job)) == (0, "fail", [])
    monkeypatch.setenv("EDISON_GITHUB_RUN_EXPERIMENTS", "hello helo")
    assert "did you mean 'hello'?" in job.pull_request().err
    monkeypatch.setenv("EDISON_GITHUB_RUN_EXPERIMENTS", "")
    monkeypatch.setenv("EDISON_GITHUB_RUN_BUDGET", "0.000001")
    job.bench.propose_prompt(f"{BAD} And say nothing else.")
    done = job.pull_request()
    assert (done.code, job.outputs["verdict"]) == (4, "")
    assert "--budget" in done.all


def test_a_budget_is_for_all_runs_of_the_job(job: Job) -> None:
    second = EXPERIMENT.replace("experiment: hello", "experiment: hallo")
    job.bench.propose(
        **{
            "experiments/hallo.yaml": second.replace("prompts/hello", "prompts/hallo"),
            "prompts/hallo.md": PROMPT.format(text=f"{GOOD} Now!").replace("hello", "hallo"),
            "prompts/hello.md": PROMPT.format(text=f"{GOOD} Soon!"),
        }
    )
    assert job.pull_request().code == 0
    spent = job.bench.model.ledger_total()
    (job.bench.repository.path / ".edison/results.db").unlink()
    (job.bench.scratch / "temp/edison/results.db").unlink()
    done = job.pull_request("--budget", f"{(spent - 100) / 1e6:f}")
    assert done.code == 4, done.all
    assert job.bench.model.ledger_total() - spent < spent


# --- forks and others without keys ----------------------------------------------------------------


def test_a_fork_without_recorded_answers_is_planned_and_inconclusive(job: Job) -> None:
    job.bench.propose_prompt(BAD)
    done = job.pull_request(fork=True)
    assert (done.code, job.outputs["verdict"]) == (0, "inconclusive"), done.all
    assert "from a fork, which gets no keys" in job.summary
    assert "manually started workflow" in job.summary
    assert "| `hello` | 20 | 20 | 20 |" in job.summary
    assert_harmless(job.summary)
    assert (job.bench.model.requests, job.bench.github.requests) == ([], [])
    assert job.pull_request("--fail-on", "inconclusive", fork=True).code == 5
    refused = job.pull_request("--mode", "live", fork=True)
    assert (refused.code, job.bench.model.requests) == (2, [])
    assert "mode live is not allowed for this event" in refused.err


@pytest.mark.nightly
def test_a_fork_is_replayed_from_recordings_of_the_repository(job: Job, edison: Edison) -> None:
    repository = job.bench.repository
    repository.write("recordings/.keep", "")
    assert edison(repository, "run", "--record", "recordings/hello.jsonl").code == 0
    (repository.path / ".edison/results.db").unlink()
    job.bench.base = job.bench.commit("record")
    asked = len(job.bench.model.requests)
    stricter = EXPERIMENT.replace("Welcome", "Welcome, dear")
    job.bench.propose(**{"experiments/hello.yaml": stricter})
    done = job.pull_request(fork=True)
    assert (done.code, job.outputs["verdict"]) == (0, "inconclusive"), done.all
    assert "come from 20 answers recorded before" in job.summary
    assert "replayed" in job.summary
    assert job.outputs["composite"] == "1.0000", "the numbers are there, with no key"
    job.bench.propose_prompt(BAD)
    done = job.pull_request(fork=True)
    assert (done.code, job.outputs["verdict"]) == (0, "inconclusive"), done.all
    assert len(job.bench.model.requests) == asked


@pytest.mark.nightly
def test_a_fork_is_replayed_from_results_that_an_earlier_job_left(job: Job) -> None:
    pushed = {"before": "0" * 40, "after": job.bench.head, "ref": "refs/heads/main"}
    assert job("push", pushed).code == 0
    handed_on = job.outputs["db"]
    asked = len(job.bench.model.requests)
    assert asked == CASES
    (job.bench.repository.path / ".edison/results.db").unlink()  # another machine
    job.bench.propose(**{"experiments/hello.yaml": EXPERIMENT.replace("Welcome", "friend")})
    done = job.pull_request(fork=True)
    assert "the results of an earlier job are not signed: they do not count as evidence" in done.err
    assert (done.code, job.outputs["verdict"]) == (0, "inconclusive"), done.all
    assert (job.outputs["composite"], job.outputs["db"]) == ("1.0000", handed_on)
    assert len(job.bench.model.requests) == asked


def test_a_replay_that_was_asked_for_needs_answers(job: Job) -> None:
    job.bench.propose(**{"experiments/hello.yaml": EXPERIMENT.replace("Welcome", "friend")})
    done = job.pull_request("--mode", "replay")
    assert done.code == 2
    assert "there are no recorded answers to replay" in done.err


@pytest.mark.nightly
@pytest.mark.parametrize("event", ["pull_request", "merge_group"])
@pytest.mark.parametrize("brought", [False, True], ids=["of the base", "of the change"])
def test_a_replay_decides_with_recordings_of_the_base_only(
    job: Job, edison: Edison, event: str, brought: bool
) -> None:
    bench = job.bench
    recording = "recordings/hello.jsonl"
    bench.repository.write("recordings/.keep", "")
    assert edison(bench.repository, "run", "--record", recording).code == 0
    (bench.repository.path / ".edison/results.db").unlink()
    answers = bench.repository.read(recording)
    if brought:
        (bench.repository.path / recording).unlink()
    bench.base = bench.commit("record")
    changed = {"experiments/hello.yaml": EXPERIMENT.replace("Welcome", "friend")}
    bench.propose(**changed, **({recording: answers} if brought else {}))
    payload = bench.pull_request()
    if event == "merge_group":
        names = {"head_ref": "refs/heads/queue", "base_ref": "refs/heads/main"}
        payload = {"merge_group": {"head_sha": bench.head, "base_sha": bench.base, **names}}
    done = job(event, payload, "--mode", "replay")
    assert (done.code, job.outputs["verdict"]) == (0, "inconclusive" if brought else "pass"), (
        done.all
    )
    assert ("The base does not have `recordings" in job.summary) == brought
    (bench.repository.path / ".edison/results.db").unlink()
    flags = ("--against", "main", "--replay", recording, "--json")
    found = json.loads(edison(bench.repository, "run", *flags).out)
    assert found["verdict"] == ("inconclusive" if brought else "pass")


RECORDED = "small: {provider: replay, model: m, store: recordings/mine.jsonl}\n"
MADE_UP = "small: {provider: sim, model: script, options: {file: recordings/mine.json}}\n"


@pytest.mark.nightly
@pytest.mark.parametrize("models", [RECORDED, MADE_UP, "small: {provider: sim, model: small}\n"])
def test_a_model_that_asks_nobody_proves_nothing_where_the_base_asks(job: Job, models: str) -> None:
    job.bench.propose(
        **{
            "models.yaml": models,
            "prompts/hello.md": PROMPT.format(text=BAD),
            "recordings/mine.jsonl": '{"edison_recording":1}\n',
            "recordings/mine.json": '{"text": "Welcome, dear friend."}\n',
        }
    )
    done = job.pull_request()
    assert job.outputs["verdict"] == "fail", done.all
    assert "models.yaml: small is not called with another provider" in job.summary
    assert len(job.bench.model.requests) == 2 * CASES, "the entry of the base was measured"


SECOND = EXPERIMENT.replace("hello", "second").replace("prompts/second.md", "prompts/hello.md")
SECOND = SECOND.partition("gates:")[0] + "gates: [{metric: pass_rate, at_least: 60%}]\n"
RUBRIC = """\
rubric: tone
criteria:
  - {name: Warmth, description: Is kind to the person., weight: 0.5, scale: 0-5}
  - {name: Use, description: Helps the person., weight: 0.5, scale: 0-5}
"""
SCORES = {name: {"reason": "kind", "score": 5} for name in ("Warmth", "Use")}
ORDINARY = {
    "another text": {"prompts/hello.md": PROMPT.format(text=f"{GOOD} Be brief.")},
    "another model name": {"models.yaml": "model: m-2"},
    "a case": {"datasets/names.jsonl": '{"id": "new", "name": "Ada"}\n'},
    "a prompt": {
        "prompts/second.md": PROMPT.format(text=GOOD).replace("hello", "second"),
        "experiments/second.yaml": SECOND.replace("prompts/hello.md", "prompts/second.md"),
    },
    "a rubric": {"rubrics/tone.yaml": RUBRIC.replace("kind to", "friendly to")},
    "an experiment": {"experiments/second.yaml": SECOND},
    "a schedule": {
        "experiments/hello.yaml": "schedule: [{name: nightly, cron: '0 3 * * *', budget_usd: 1}]\n",
        "prompts/hello.md": PROMPT.format(text=f"{GOOD} Be brief."),
    },
}


@pytest.mark.parametrize("name", [*ORDINARY])
def test_an_ordinary_proposal_is_measured_and_passes(job: Job, name: str) -> None:
    bench = job.bench
    read, score = bench.repository.read, json.dumps({"scores": SCORES, "flags": []})
    bench.model.script.insert(0, rule(contains="Warmth", text=score))
    bench.repository.write("rubrics/tone.yaml", RUBRIC)
    judged = "rubric: rubrics/tone.yaml\njudges: {pointwise: [small]}\ngates:"
    bench.repository.write("experiments/hello.yaml", EXPERIMENT.replace("gates:", judged))
    bench.base = bench.commit("a judge")
    changed = dict(ORDINARY[name])
    for path in ("datasets/names.jsonl", "experiments/hello.yaml"):
        if path in changed:
            changed[path] = read(path) + changed[path]
    if name == "another model name":
        changed = {"models.yaml": read("models.yaml").replace("model: m", "model: m-2")}
    bench.propose(**changed)
    done = job.pull_request()
    assert (done.code, job.outputs["verdict"]) == (0, "pass"), job.summary
    asked = [request.json for request in bench.model.requests]
    assert len(asked) >= CASES
    if name == "another model name":
        assert {each["model"] for each in asked} == {"m", "m-2"}


@pytest.mark.parametrize(("script", "verdict"), [("same", "pass"), ("other", "inconclusive")])
def test_made_up_answers_decide_only_where_the_base_has_the_same(
    job: Job, script: str, verdict: str
) -> None:
    bench, row = job.bench, '{"text": "Welcome, dear friend."}\n'
    bench.repository.write("models.yaml", MADE_UP)
    bench.repository.write("recordings/mine.json", row)
    bench.base = bench.commit("a script")
    more = {"recordings/mine.json": row.replace("dear", "my")} if script == "other" else {}
    bench.propose(**{"prompts/hello.md": PROMPT.format(text=BAD)}, **more)
    done = job.pull_request()
    assert (done.code, job.outputs["verdict"]) == (0, verdict), done.all


class Polite(ProviderPlugin):
    """Says what its options tell it to."""

    async def complete(self, request: Request) -> Completion:
        return Completion(self.settings.options["says"])


PLUGIN = "small: {{provider: polite, model: m, price: free, options: {{says: '{}'}}}}\n"


@pytest.mark.parametrize(
    ("says", "verdict", "doubt"),
    [
        ("Welcome, dear friend.", "pass", ""),
        ("Welcome, my friend.", "inconclusive", "small is not called with another options"),
    ],
)
def test_a_plugin_decides_only_with_the_options_of_the_base(
    job: Job, monkeypatch: pytest.MonkeyPatch, says: str, verdict: str, doubt: str
) -> None:
    offer(monkeypatch, PROVIDERS, polite=Polite)
    job.bench.repository.write("models.yaml", PLUGIN.format("Welcome, dear friend."))
    job.bench.base = job.bench.commit("a plugin")
    prompt = PROMPT.format(text=BAD)
    job.bench.propose(**{"prompts/hello.md": prompt, "models.yaml": PLUGIN.format(says)})
    done = job.pull_request()
    assert (done.code, job.outputs["verdict"]) == (0, verdict), done.all
    assert doubt in job.summary


@pytest.mark.nightly
def test_a_plugin_in_the_place_of_a_model_proves_nothing(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, PROVIDERS, polite=Polite)
    prompt = PROMPT.format(text=BAD)
    models = PLUGIN.format("Welcome, dear friend.")
    job.bench.propose(**{"prompts/hello.md": prompt, "models.yaml": models})
    done = job.pull_request()
    assert job.outputs["verdict"] == "fail", done.all
    assert "small is not called with another provider" in job.summary


def test_dependabot_gets_no_keys_and_a_token_that_may_only_read(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTOR", "dependabot[bot]")
    job.bench.github.grants[TOKEN] = Grant(permissions={"pull_requests": "read"})
    job.bench.propose_prompt(BAD)
    done = job.pull_request()
    assert (done.code, job.outputs["verdict"]) == (0, "inconclusive"), done.all
    assert "a change by Dependabot" in job.summary
    assert "the result is in the job summary" in done.err
    assert job.bench.model.requests == []


def test_keys_for_the_files_of_a_stranger_are_refused_with_an_explanation(job: Job) -> None:
    job.bench.propose_prompt(BAD)
    done = job("pull_request_target", job.bench.pull_request(fork=True))
    assert (done.code, job.outputs["verdict"]) == (2, "error")
    assert "pull_request_target gives the code of a fork the keys" in done.err
    assert (job.bench.model.requests, job.bench.github.requests) == ([], [])


def test_a_member_list_does_not_keep_forks_from_being_replayed(job: Job) -> None:
    members = "version: 1\nproject: greetings\nmembers: [{github: bob, role: owner}]\n"
    bench = job.bench
    bench.repository.write("edison.yaml", members)
    bench.base = bench.commit("members")
    bench.propose_prompt(BAD)
    assert job.pull_request(fork=True).code == 0
    refused = job.pull_request()
    assert refused.code == 2
    assert "run needs an editor" in refused.err
    assert bench.model.requests == []


# --- other events ---------------------------------------------------------------------------------


def test_a_push_is_measured_against_what_the_branch_was_before(job: Job) -> None:
    before = job.bench.base
    job.bench.repository.write("prompts/hello.md", PROMPT.format(text=BAD))
    after = job.bench.commit("worse")
    done = job("push", {"before": before, "after": after, "ref": "refs/heads/main"})
    assert (done.code, job.outputs["verdict"], states(job)) == (1, "fail", [])
    assert job.outputs["delta"] == "-1.0000"


def test_a_merge_queue_is_evaluated_without_a_comment(job: Job) -> None:
    job.bench.propose_prompt(f"{GOOD} Be brief.")
    group = {
        "head_sha": job.bench.repository.git("rev-parse", "HEAD"),
        "head_ref": "refs/heads/gh-readonly-queue/main/pr-1",
        "base_sha": job.bench.base,
        "base_ref": "refs/heads/main",
    }
    done = job("merge_group", {"merge_group": group})
    assert (done.code, job.outputs["verdict"], states(job)) == (0, "pass", [])


@pytest.mark.nightly
def test_a_schedule_buys_new_answers_to_everything(job: Job) -> None:
    for times in (1, 2):
        assert job("schedule", {"schedule": "0 9 * * 1-5"}).code == 0
        assert len(job.bench.model.requests) == times * CASES
        assert job.outputs["verdict"] == ("skipped" if times == 1 else "pass")
    assert float(job.outputs["cost-usd"]) > 0


@pytest.mark.nightly
def test_a_schedule_asks_a_fallback_and_decides_without_it(job: Job) -> None:
    bench = job.bench
    backup = "  fallback: [backup]\nbackup: {use: small, model: backup-1, fallback: []}\n"
    bench.repository.write("models.yaml", bench.repository.read("models.yaml") + backup)
    bench.commit("a fallback")
    bench.model.script.insert(0, rule(model="m", contains="Greet N7,", status=503))
    bench.model.script.insert(1, rule(model="backup-1", text="No."))
    done = job("schedule", {"schedule": "0 9 * * 1-5"})
    assert done.code == 0, done.all
    said = "1 cell of small was answered by its fallback backup (score 0.0, 0 of 1 pass)."
    assert said in done.out
    assert said in job.summary
    assert float(job.outputs["composite"]) == 1.0
    assert job("workflow_dispatch", {}).code == 0
    asked = [json.loads(each.body)["model"] for each in bench.model.requests]
    assert asked.count("backup-1") == 1, "a person who starts it is no schedule"


@pytest.mark.nightly
def test_what_is_started_by_hand_on_somebody_elses_commit_trusts_our_own(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = "http://127.0.0.1:9"
    job.bench.propose_prompt(BAD)
    monkeypatch.setenv("GITHUB_SHA", job.bench.base)
    done = job("workflow_dispatch", {})
    assert (done.code, job.outputs["verdict"]) == (1, "fail"), done.all
    assert job.outputs["delta"] == "-1.0000"
    models = job.bench.repository.read("models.yaml")
    job.bench.propose(
        **{
            "models.yaml": models.replace(job.bench.model.openai_url, f"{stranger}/v1"),
            ".edison/trust.yaml": TRUST.format(host=stranger),
        }
    )
    done = job("workflow_dispatch", {})
    assert (done.code, job.outputs["verdict"]) == (0, "inconclusive"), done.all
    assert "small is not called with another address" in job.summary


# --- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["a file", "a link", "another place"])
def test_a_pull_request_cannot_bring_answers_along(job: Job, edison: Edison, how: str) -> None:
    repository = job.bench.repository
    assert edison(repository, "run").code == 0
    results = repository.path / ".edison/results.db"
    planted = repository.path / "planted.db"
    planted.write_bytes(results.read_bytes())
    if how != "a file":
        results.unlink()
    if how == "a link":
        results.symlink_to("../planted.db")
    if how == "another place":
        repository.write("edison.yaml", "version: 1\nproject: greetings\nresults: planted.db\n")
    repository.write(".gitignore", "")
    repository.write(".edison/.gitignore", "")
    job.bench.propose_prompt(BAD)
    done = job.pull_request()
    assert done.code == 2, done.all
    assert "would count as answers of models" in done.err
    assert len(job.bench.model.requests) == CASES


def test_a_pull_request_cannot_lead_results_out_of_the_repository(job: Job, edison: Edison) -> None:
    repository, outside = job.bench.repository, job.bench.scratch / "outside"
    assert edison(repository, "run").code == 0
    left = job.bench.scratch / "temp/edison/results.db"
    left.parent.mkdir(parents=True)
    shutil.move(repository.path / ".edison/results.db", left)
    outside.mkdir()
    (repository.path / "out").symlink_to(outside)
    led = "version: 1\nproject: greetings\nresults: out/results.db\n"
    job.bench.propose(**{"edison.yaml": led, "prompts/hello.md": PROMPT.format(text=BAD)})
    done = job.pull_request()
    assert done.code == 2, done.all
    assert "git rm --cached out" in done.err
    assert not (outside / "results.db").exists()


def test_the_results_of_a_private_project_are_not_handed_on(job: Job) -> None:
    private = "version: 1\nproject: greetings\nsettings: {private: true}\n"
    job.bench.propose(**{"edison.yaml": private, "prompts/hello.md": PROMPT.format(text=BAD)})
    done = job.pull_request()
    assert (done.code, job.outputs["db"]) == (1, "")
    assert not (job.bench.scratch / "temp/edison/results.db").exists()
    page = _read(job.outputs["report"], "report.html")
    assert ">No.<" not in page and "is not in the answer" not in page


@pytest.mark.nightly
def test_results_that_cannot_be_used_cost_money_and_nothing_else(job: Job) -> None:
    place = job.bench.scratch / "temp/edison/results.db"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"no database")
    pushed = {"before": "0" * 40, "after": job.bench.head, "ref": "refs/heads/main"}
    done = job("push", pushed)
    assert done.code == 0, done.all
    assert "the results of an earlier job cannot be used" in done.err
    place.write_bytes(b"no database")
    (job.bench.repository.path / ".edison/results.db").unlink()
    job.bench.propose_prompt(BAD)
    done = job.pull_request(fork=True)  # which would be replayed from them
    assert (done.code, job.outputs["verdict"]) == (0, "inconclusive"), done.all


def test_outside_of_a_job_it_says_what_is_missing(
    job: Job, edison: Edison, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GITHUB_EVENT_NAME", "GITHUB_EVENT_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert "GITHUB_EVENT_NAME" in edison(job.bench.repository, "github", "run").err
    monkeypatch.delenv("RUNNER_TEMP")
    assert "set --out DIR" in edison(job.bench.repository, "github", "run").err


@pytest.mark.nightly
def test_the_state_of_a_running_comment_names_the_head(job: Job) -> None:
    job.bench.propose_prompt(BAD)
    job.pull_request()
    first, *_ = [r.body["body"] for r in job.bench.github.requests if r.method == "POST"]
    stamp = parse_marker(first)
    assert stamp is not None
    assert (stamp.head_sha, stamp.state, stamp.run_id) == (job.bench.head, ReportState.RUNNING, 1)


@pytest.mark.nightly
def test_a_summary_that_cannot_be_written_hides_no_verdict(job: Job) -> None:
    job.bench.propose_prompt(BAD)
    (job.bench.scratch / "summary-1").mkdir()
    (job.bench.scratch / "outputs-2").mkdir()
    done = job.pull_request()
    assert (done.code, job.outputs["verdict"]) == (1, "fail")
    assert "summary-1 cannot be written" in done.err
    job.bench.propose_prompt(f"{GOOD} Be brief.")
    assert job.pull_request().code == 2
    assert states(job)[-1] == "final: inconclusive", "a second push takes more confidence"


def test_a_shallow_checkout_of_the_merge_commit_is_enough(job: Job, tmp_path: Path) -> None:
    job.bench.propose_prompt(BAD)
    whole = job.bench.repository
    whole.git("branch", "--force", "merged", "HEAD")
    address = whole.path.as_uri()
    shallow = tmp_path / "shallow"
    whole.git("clone", "--quiet", "--depth=2", "--branch=merged", address, str(shallow))
    job.bench.repository = Folder(shallow)
    shutil.rmtree(whole.path)  # nothing can be fetched any more
    done = job.pull_request()
    assert (done.code, job.outputs["delta"]) == (1, "-1.0000"), done.all


@pytest.mark.nightly
def test_nothing_that_files_or_models_say_is_a_command(job: Job) -> None:
    trick = "::error::PWNED"
    cases = "".join(json.dumps({"id": f"{trick}{n}", "name": f"N{n}"}) + "\n" for n in range(20))
    job.bench.model.script[:] = [
        rule(contains=BAD, text=f"\n{trick}\n##[error]PWNED\n::add-mask::well"),
        rule(text="Welcome"),
    ]
    job.bench.propose(
        **{"datasets/names.jsonl": cases, "prompts/hello.md": PROMPT.format(text=BAD)}
    )
    done = job.pull_request()
    assert done.code == 1, done.all
    obeyed = Runner().read(done.out) + Runner().read(done.err)
    assert {command.name for command in obeyed} <= {"error", "warning", "notice", "stop-commands"}
    assert not [command for command in obeyed if command.data.startswith("PWNED")]
    assert_harmless(job.summary)
    assert job.bench.base not in job.summary, "a commit is called by its short id"


# --- cancelling -----------------------------------------------------------------------------------


class Interrupting(FakeGitHub):
    """Cancels the job at its first comment."""

    process: subprocess.Popen[bytes] | None = None

    def answer(self, arrived: Arrived) -> tuple[int, dict[str, str], bytes]:
        if arrived.method == "POST" and self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process = None
        return super().answer(arrived)


def test_a_job_that_is_cancelled_before_its_run_says_so(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.bench.propose_prompt(BAD)
    with Interrupting() as github:
        open_pull(github)
        monkeypatch.setenv("GITHUB_API_URL", github.url)
        job.describe("pull_request", job.bench.pull_request())
        words = [sys.executable, "-P", "-m", "edison_ci", "github", "run"]
        with (tmp_path / "log").open("wb") as log:
            github.process = process = forked.Popen(
                words, cwd=job.bench.repository.path, stdout=log, stderr=log
            )
            assert process.wait(PATIENCE_S) == 130, (tmp_path / "log").read_text(encoding="utf-8")
        (comment,) = [each["body"] for each in github.state.comments.values()]
    stamp = parse_marker(comment)
    assert stamp is not None
    assert (stamp.state, stamp.verdict) == (ReportState.CANCELLED, None)
    assert "Nothing was decided" in comment
    assert "edison: cancelled" in job.summary
    assert (job.outputs["verdict"], job.bench.model.requests) == ("", [])


# --- dodging the gate -----------------------------------------------------------------------------


@pytest.mark.parametrize(("fail_on", "code"), [("fail", 0), ("inconclusive", 5)])
def test_an_experiment_that_is_archived_is_announced_first_and_does_not_pass(
    job: Job, edison: Edison, fail_on: str, code: int
) -> None:
    job.bench.propose(
        **{
            "prompts/hello.md": PROMPT.format(text=BAD),
            "experiments/hello.yaml": EXPERIMENT + "archived: true\n",
        }
    )
    done = job.pull_request("--fail-on", fail_on)
    assert done.code == code, done.all
    assert job.outputs["verdict"] == "inconclusive"
    (comment,) = (str(c["body"]) for c in job.bench.github.state.comments.values())
    for text in (job.summary, comment):
        told = text.index("The base gates hello, which is archived now.")
        assert told < text.index("edison: inconclusive") + 200
        assert_harmless(text, link=f"{job.bench.github.url}/{REPOSITORY}/actions/runs/1")
    for command in ("summary", "annotations"):
        step = edison(job.bench.repository, "github", command, "--json")
        assert json.loads(step.out)["verdict"] == "inconclusive", "in a step of its own too"


# --- several vendors and an application -----------------------------------------------------------

FOUR = """\
gpt: {{provider: openai, model: gpt-5.2-pro, base_url: '{url}/v1', key_env: OPENAI_API_KEY}}
claude: {{provider: anthropic, model: claude-opus-4-7, base_url: '{url}', key_env: OPENAI_API_KEY}}
gemini:
  provider: openai_compatible
  model: gemini-2.5-flash
  base_url: '{url}/v1beta/openai'
  key_env: OPENAI_API_KEY
  price: {{in: 0.3, out: 2.5}}
service:
  provider: http
  base_url: '{url}/own/chat/completions'
  options:
    body: {{model: own, messages: "{{{{ messages }}}}"}}
    text: choices.0.message.content
  price: {{call: 0.0015}}
"""


@pytest.mark.nightly
def test_three_vendors_and_an_application_are_billed_to_the_micro_dollar(job: Job) -> None:
    bench = job.bench
    bench.model.strict = True  # it refuses what the vendors refuse
    bench.repository.write("models.yaml", FOUR.format(url=bench.model.url))
    experiment = EXPERIMENT.replace("[small]", "[gpt, claude, gemini, service]")
    bench.repository.write("experiments/hello.yaml", experiment)
    trust = bench.repository.read(".edison/trust.yaml")
    bench.repository.write(".edison/trust.yaml", trust + "hosts: [" + repr(bench.model.url) + "]\n")
    bench.base = bench.commit("four models")
    bench.propose_prompt(BAD)
    done = job.pull_request()
    assert (done.code, job.outputs["verdict"]) == (1, "fail"), done.all
    lines = [json.loads(line) for line in bench.model.ledger.read_text("utf-8").splitlines()]
    assert len(lines) == 4 * 2 * CASES
    bill = sum(charged(line) for line in lines)
    assert Decimal(job.outputs["cost-usd"]) == Decimal(bill) / 1_000_000


def charged(line: dict[str, Any]) -> int:
    """Return what a vendor charges for a call, by an independent table of prices."""
    usage = Usage(input_tokens=line["tokens_in"], output_tokens=line["tokens_out"])
    if line["model"] == "own":
        return 1500
    cost = calc_price(usage, model_ref=line["model"]).total_price * 1_000_000
    return math.ceil(cost)


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_batch_is_never_a_success_until_another_job_has_collected_it(
    job: Job, edison: Edison, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench, batches = job.bench, job.bench.model.batches
    models = (bench.repository.path / "models.yaml").read_text("utf-8")
    priced = models.replace("{in: 1, out: 2}", "{in: 1, out: 2, batch: {in: 0.5, out: 1}}")
    bench.repository.write("models.yaml", priced)
    bench.commit("batches cost half")
    bench.propose_prompt(f"{GOOD} Be brief.")
    submitted = job.pull_request("--batch", "--fail-on", "never")
    assert submitted.code == 5, submitted.all
    assert job.outputs["verdict"] == "inconclusive"
    assert len(batches.made) == 1
    # Another job, on another machine, which downloads the results of the first.
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path / "other"))
    assert edison(bench.repository, "admin", "db", "adopt").code == 0
    waiting = job.pull_request()
    assert (waiting.code, job.outputs["verdict"]) == (5, "inconclusive"), waiting.all
    batches.ends = True
    collected = job.pull_request()
    assert job.outputs["verdict"] in ("pass", "fail"), collected.all
    assert bench.model.chats == 0
