"""A pull request decides neither where keys go, nor which code runs, nor how much is spent."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access import github_api
from edison_ci.access.proposal_terms import apply_base_terms
from edison_ci.config.load import load_project
from edison_ci.config.model_entry import PROVIDERS
from edison_ci.config.prices import Price
from edison_ci.contracts import ProviderPlugin
from edison_ci.execute.budgets import caps_of, job_cap, run_limit
from edison_ci.features.site.shared_budget import MoneyLease
from edison_ci.records import Completion, Request
from edison_ci.store.database import open_database
from edison_ci.store.liveness import ProcessLock
from tests.loopback.fixture import loopback
from tests.offered import offer
from tests.opened import opened

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Edison
    from tests.conftest import Folder
    from tests.loopback.server import LoopbackServer

pytestmark = pytest.mark.daily

__all__ = ["loopback"]

KEY = "sk-canary-0123456789abcdef"
EXPERIMENT = """\
experiment: hello
objective: Greet people by their name in a friendly way.
prompts: [prompts/hello.md]
models: [small]
dataset: datasets/names.jsonl
checks:
  - {check}
"""
TRUST = "version: 1\nkeys:\n  - {{env: VENDOR_KEY, hosts: ['{host}']}}\n"
CODE = "code: {allow: true, paths: [checks]}\n"


SHA = "1" * 40
MAIN = "refs/heads/main"
PUSH = {"before": SHA, "after": SHA}
RUN = {"head_sha": SHA, "head_branch": "main", "head_repository": {"owner": {"login": "o"}}}


def started(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    name: str,
    payload: dict[str, Any],
    *,
    ref: str,
    sha: str,
) -> None:
    """Tell the process what started its job, as the runner does."""
    about = {"full_name": "o/r", "default_branch": "main"}
    (folder / "event.json").write_text(json.dumps({"repository": about, **payload}))
    for variable, value in {
        "GITHUB_EVENT_NAME": name,
        "GITHUB_EVENT_PATH": str(folder / "event.json"),
        "GITHUB_REF": ref,
        "GITHUB_SHA": sha,
    }.items():
        monkeypatch.setenv(variable, value)


def commit(project: Folder, message: str) -> None:
    project.git("add", "--all", "--force")
    project.git("commit", "--quiet", "--allow-empty", "--message", message)


def laid_out(project: Folder, host: str, *, check: str = "contains: '{{ expected }}'") -> None:
    model = f"provider: openai_compatible, model: m, base_url: {host}/v1, key_env: VENDOR_KEY"
    project.write("models.yaml", f"small: {{{model}, price: {{in: 1, out: 2}}}}\n")
    project.write("experiments/hello.yaml", EXPERIMENT.replace("{check}", check))
    project.write(".edison/trust.yaml", TRUST.format(host=host))


def only_asks_the_base(
    edison: Edison, project: Folder, ours: LoopbackServer, *, what: str = "address"
) -> None:
    """Run a proposal that changed the service of its model: the entry of the base is measured."""
    before = len(ours.requests)
    done = edison(project, "run", "--yes")
    assert done.code == 0, done.all
    assert len(ours.requests) == before + 2
    assert all(KEY in str(request.headers) for request in ours.requests)
    with opened(project.path / ".edison/results.db") as connection:
        (doubts,) = connection.execute(
            "select snapshot ->> '$.\"command line\".doubts' from run order by id desc limit 1"
        ).fetchone()
    assert f"models.yaml: small is not called with another {what}" in doubts


@pytest.fixture
def proposal(
    ours: LoopbackServer, mini: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Folder:
    """A repository whose base trusts one host, with a branch checked out in a job for it."""
    (mini.path / "rubrics/tone.yaml").unlink()
    mini.write(".gitignore", ".edison/results.db*\n.edison/locks/\n.edison/snapshots/\n")
    laid_out(mini, ours.url)
    mini.git("init", "--quiet", "--initial-branch=main")
    commit(mini, "start")
    base = mini.git("rev-parse", "HEAD")
    mini.git("checkout", "--quiet", "-b", "change")
    owner = {"login": "o"}
    repository = {"id": 1, "full_name": "o/r", "owner": owner, "default_branch": "main"}
    side = {"repo": {**repository, "fork": False}, "user": owner}
    pull = {
        "number": 7,
        "draft": False,
        "head": {**side, "ref": "change", "sha": base},
        "base": {**side, "ref": "main", "sha": base},
    }
    event = {"number": 7, "pull_request": pull, "repository": repository}
    (tmp_path / "event.json").write_text(json.dumps(event))
    monkeypatch.setenv("GITHUB_EVENT_NAME", "pull_request")
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    monkeypatch.setenv("GITHUB_ACTOR", "somebody")
    monkeypatch.setenv("VENDOR_KEY", KEY)
    return mini


def test_a_key_goes_only_where_the_base_lets_it_go(
    edison: Edison,
    proposal: Folder,
    ours: LoopbackServer,
    loopback: LoopbackServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    laid_out(proposal, loopback.url)
    commit(proposal, "send the key here")
    only_asks_the_base(edison, proposal, ours)
    assert loopback.requests == []
    monkeypatch.delenv("GITHUB_EVENT_NAME")  # at home it is the owner who wrote it
    assert edison(proposal, "run", "--yes").code == 0
    assert KEY in str(loopback.requests[0].headers)


HTTP = """\
small:
  provider: http
  model: m
  base_url: {host}/v1/chat/completions
  key_env: VENDOR_KEY
  options:
    body: {{model: m, messages: [{{role: user, content: "{{{{ prompt }}}}"}}]}}
    text: {text}
    usage: {{cost_usd: nothing.at.all}}
  price: {{call: 0.001}}
"""


@pytest.mark.parametrize("text", ["choices.0.message.content", "model"])
def test_a_model_that_becomes_an_application_is_measured_as_the_base_has_it(
    edison: Edison, proposal: Folder, ours: LoopbackServer, text: str
) -> None:
    """It could say that it costs nothing, or read its answers from where they are always right."""
    proposal.write("models.yaml", HTTP.format(host=ours.url, text=text))
    commit(proposal, "an application at the host of the base")
    only_asks_the_base(edison, proposal, ours, what="provider")
    assert {request.path for request in ours.requests} == {"/v1/chat/completions"}
    with opened(proposal.path / ".edison/results.db") as connection:
        (cost,) = connection.execute("select sum(cost_microusd) from attempt").fetchone()
    assert cost > 0


def test_a_batch_is_not_cheaper_than_the_base_says(proposal: Folder, tmp_path: Path) -> None:
    entry = proposal.read("models.yaml")
    for base_batch, least in (("", (1, 2)), (", batch: {in: 0.5, out: 1}", (0.5, 1))):
        proposal.write("models.yaml", entry.replace("out: 2}", f"out: 2{base_batch}}}"))
        rebased(proposal, tmp_path)
        free = entry.replace("out: 2}", "out: 2, batch: {in: 0, out: 0}}")
        proposal.write("models.yaml", free)
        commit(proposal, "batches for free")
        project = apply_base_terms(load_project(proposal.path))
        (model,) = project.models.values()
        price = project.prices.price_of(model)
        assert price is not None
        assert price.batch is not None
        assert (price.batch.tokens_in, price.batch.tokens_out) == least


def test_a_proposal_does_not_publish_what_its_base_keeps_private(
    edison: Edison, proposal: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    header = proposal.read("edison.yaml")
    proposal.write("edison.yaml", f"{header}settings: {{private: true}}\n")
    rebased(proposal, tmp_path)
    proposal.write("edison.yaml", f"{header}settings: {{private: false}}\n")
    commit(proposal, "for everybody to read")
    assert edison(proposal, "run", "--yes").code == 0
    with opened(proposal.path / ".edison/results.db") as connection:
        (snapshot,) = connection.execute("select snapshot from run").fetchone()
    assert "edison.yaml: settings.private: the value of the base was used." in snapshot
    done = edison(proposal, "try", "hello", "--case", "ada")
    assert (done.code, "this project is private" in done.err) == (2, True), done.all


def test_a_stricter_proposal_is_followed(proposal: Folder) -> None:
    header = proposal.read("edison.yaml")
    own = "settings: {private: true, reuse_days: 30}\ndefaults: {budget_usd: 1}\n"
    proposal.write("edison.yaml", f"{header}{own}")
    proposal.write("models.yaml", proposal.read("models.yaml").replace("model: m,", "model: n,"))
    commit(proposal, "another model, in private")
    project = apply_base_terms(load_project(proposal.path))
    assert (project.file.settings.private, project.file.defaults.budget_usd) == (True, 1)
    assert (project.models["small"].model, project.doubts) == ("n", ())


def test_an_approved_environment_evaluates_a_proposal_as_it_is(
    proposal: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loopback: LoopbackServer
) -> None:
    trust = proposal.read(".edison/trust.yaml") + "environment: evaluation\n"
    proposal.write(".edison/trust.yaml", trust)
    rebased(proposal, tmp_path)
    laid_out(proposal, loopback.url)
    commit(proposal, "another host")
    asked = list[str]()

    def approved(environment: str, _: object) -> bool:
        asked.append(environment)
        return len(asked) > 1

    monkeypatch.setattr(github_api, "is_approved", approved)
    refused, followed = (apply_base_terms(load_project(proposal.path)) for _ in range(2))
    assert asked == ["evaluation", "evaluation"]
    assert refused.models["small"].base_url != f"{loopback.url}/v1"
    assert (followed.models["small"].base_url, followed.doubts) == (f"{loopback.url}/v1", ())
    for project in (refused, followed):
        assert not project.trust.allows("VENDOR_KEY", loopback.url, "openai_compatible")


SIDE: dict[str, Any] = {"repo": {"id": 1, "owner": {"login": "o"}}, "sha": "1" * 40}
PULL = {"number": 7, "head": {**SIDE, "ref": "change"}, "base": {**SIDE, "ref": "main"}}
EVENTS: dict[str, tuple[str, dict[str, Any], str]] = {
    # Name, payload, and the ref of the job; of all of them only these say that it is our own.
    "issue_comment": ("issue_comment", {"issue": {"number": 7, "pull_request": {}}}, MAIN),
    "review": ("pull_request_review", {"review": {}, "pull_request": PULL}, "refs/pull/7/merge"),
    "review comment": ("pull_request_review_comment", {}, "refs/pull/7/merge"),
    "after a workflow": ("workflow_run", {"workflow_run": RUN}, MAIN),
    "check": ("check_run", {"check_run": {}}, MAIN),
    "by the interface": ("repository_dispatch", {"action": "go"}, MAIN),
    "label": ("label", {}, MAIN),
    "release": ("release", {}, "refs/tags/v1"),
    "tag": ("push", {**PUSH, "ref": "refs/tags/v1"}, "refs/tags/v1"),
    "branch": ("push", {**PUSH, "ref": "refs/heads/change"}, "refs/heads/change"),
    "branch named like it": ("push", {**PUSH, "ref": "refs/heads/x/main"}, "refs/heads/x/main"),
    "by hand on a branch": ("workflow_dispatch", {"ref": "refs/heads/change"}, "refs/heads/change"),
    "one that is new": ("something_new", {}, MAIN),
}


@pytest.mark.parametrize("kind", EVENTS)
def test_only_the_default_branch_decides_whatever_starts_the_job(
    edison: Edison,
    proposal: Folder,
    ours: LoopbackServer,
    loopback: LoopbackServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
) -> None:
    laid_out(proposal, loopback.url)
    commit(proposal, "send the key here")
    name, payload, ref = EVENTS[kind]
    base, head = proposal.git("rev-parse", "HEAD^", "HEAD").split()
    payload = json.loads(json.dumps(payload).replace(SIDE["sha"], base))
    started(monkeypatch, tmp_path, name, payload, ref=ref, sha=head)
    only_asks_the_base(edison, proposal, ours)
    assert loopback.requests == []


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("push", {"before": SHA, "after": SHA, "ref": MAIN}),
        ("schedule", {"schedule": "0 9 * * *"}),
        ("workflow_dispatch", {"ref": MAIN}),
    ],
)
def test_the_default_branch_decides_for_itself_as_long_as_it_is_what_is_checked_out(
    edison: Edison,
    proposal: Folder,
    ours: LoopbackServer,
    loopback: LoopbackServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    payload: dict[str, Any],
) -> None:
    start = proposal.git("rev-parse", "HEAD")
    laid_out(proposal, loopback.url)
    commit(proposal, "send the key here")
    head = proposal.git("rev-parse", "HEAD")
    started(monkeypatch, tmp_path, name, payload, ref=MAIN, sha=start)
    only_asks_the_base(edison, proposal, ours)
    assert loopback.requests == []
    started(monkeypatch, tmp_path, name, payload, ref=MAIN, sha=head)
    assert edison(proposal, "run", "--yes").code == 0


@pytest.mark.parametrize("base", ["another branch", "an old commit"])
def test_a_pull_request_cannot_choose_what_it_is_held_to(
    edison: Edison,
    proposal: Folder,
    ours: LoopbackServer,
    loopback: LoopbackServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    base: str,
) -> None:
    """Neither a branch of its own to be merged into, nor a day on which more was allowed."""
    laid_out(proposal, loopback.url)
    commit(proposal, "what once was trusted")
    lax = proposal.git("rev-parse", "HEAD")
    event = json.loads((tmp_path / "event.json").read_text())
    pull = event["pull_request"]
    if base == "another branch":
        pull["base"] |= {"ref": "lax", "sha": lax}
    else:
        laid_out(proposal, ours.url)
        commit(proposal, "no longer")
        proposal.git("branch", "--force", "main")
        pull["base"]["sha"] = proposal.git("rev-parse", "HEAD")
        proposal.git("reset", "--quiet", "--hard", lax)
    proposal.write("prompts/hello.md", proposal.read("prompts/hello.md") + "Be brief.\n")
    commit(proposal, "a change")
    pull["head"]["sha"] = proposal.git("rev-parse", "HEAD")
    (tmp_path / "event.json").write_text(json.dumps(event))
    monkeypatch.setenv("GITHUB_RUN_ID", "99")
    only_asks_the_base(edison, proposal, ours)
    assert loopback.requests == []


def test_code_that_the_base_does_not_allow_does_not_run(
    edison: Edison, proposal: Folder, loopback: LoopbackServer
) -> None:
    laid_out(proposal, loopback.url, check="python: checks/mine.py:check")
    proposal.write("models.yaml", "small: {provider: sim, model: echo}\n")
    proposal.write(".edison/trust.yaml", TRUST.format(host=loopback.url) + CODE)
    marker = proposal.path / "PWNED"
    proposal.write("checks/mine.py", f"open({str(marker)!r}, 'w')\ncheck = lambda *a: False\n")
    commit(proposal, "run my code")
    done = edison(proposal, "run", "--yes", "--allow-code")
    assert done.code == 3, done.all  # no answer could be graded
    assert not marker.exists()
    with opened(proposal.path / ".edison/results.db") as connection:
        (said,) = connection.execute("select distinct reason from component").fetchall()
    assert "code of the repository is not allowed" in said[0]


def test_code_of_the_base_runs_where_the_base_allows_it(
    edison: Edison,
    proposal: Folder,
    loopback: LoopbackServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    laid_out(proposal, loopback.url, check="python: checks/mine.py:check")
    proposal.write(".edison/trust.yaml", TRUST.format(host=loopback.url) + CODE)
    proposal.write("checks/mine.py", "def check(output, expected, case):\n    return True\n")
    commit(proposal, "the base")
    event = json.loads((tmp_path / "event.json").read_text())
    event["pull_request"]["base"]["sha"] = proposal.git("rev-parse", "HEAD")
    (tmp_path / "event.json").write_text(json.dumps(event))
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "2")
    proposal.write("checks/mine.py", "def check(output, expected, case):\n    return False\n")
    commit(proposal, "other code")
    done = edison(proposal, "run", "--yes", "--allow-code", "--json")
    assert done.code == 0, done.all
    (run,) = json.loads(done.out)["runs"]
    assert run["pass_rate"]["estimate"] == 1


def test_the_base_limits_what_may_be_spent(
    edison: Edison,
    proposal: Folder,
    loopback: LoopbackServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    laid_out(proposal, loopback.url)
    limited = TRUST.format(host=loopback.url) + "budget_usd_max: 0.000001\n"
    proposal.write(".edison/trust.yaml", limited)
    commit(proposal, "the base")
    event = json.loads((tmp_path / "event.json").read_text())
    event["pull_request"]["base"]["sha"] = proposal.git("rev-parse", "HEAD")
    (tmp_path / "event.json").write_text(json.dumps(event))
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "3")
    proposal.write(".edison/trust.yaml", TRUST.format(host=loopback.url))
    commit(proposal, "spend more")
    done = edison(proposal, "run", "--yes")
    assert done.code == 4, done.all
    assert "the budget of the base" in done.all
    with opened(proposal.path / ".edison/results.db") as connection:
        assert connection.execute("select count(*) from answer").fetchone() == (0,)


def rebased(proposal: Folder, tmp_path: Path) -> None:
    """Let what is committed be the base of the pull request."""
    commit(proposal, "the base")
    event = json.loads((tmp_path / "event.json").read_text())
    event["pull_request"]["base"]["sha"] = proposal.git("rev-parse", "HEAD")
    event["number"] += 1
    (tmp_path / "event.json").write_text(json.dumps(event))


def test_a_pull_request_cannot_make_a_model_free_to_get_around_the_budget(
    edison: Edison, proposal: Folder, loopback: LoopbackServer, tmp_path: Path
) -> None:
    laid_out(proposal, loopback.url)
    rebased(proposal, tmp_path)
    proposal.edit("models.yaml", "price: {in: 1, out: 2}", "price: free")
    commit(proposal, "all for free")
    done = edison(proposal, "run", "--yes", "--json")
    assert done.code == 0, done.all
    (run,) = json.loads(done.out)["runs"]
    assert run["cost_microusd"] == loopback.ledger_total() > 0, "counted at the price of the base"


def test_prices_of_the_programs_own_table_are_no_matter_of_opinion(
    edison: Edison, proposal: Folder
) -> None:
    row = {"in": 0, "out": 0}
    table = {"version": 1, "date": "2026-01-01", "models": {"openai/gpt-4o": row}}
    proposal.write(".edison/prices.json", json.dumps(table))
    proposal.write("models.yaml", "small: {provider: openai, model: gpt-4o}\n")
    commit(proposal, "cheap")
    project = load_project(proposal.path)
    model = project.models["small"]
    said = project.prices.price_of(model)
    assert said is not None
    assert (said.tokens_in, said.tokens_out, said.written) == (0, 0, 0)
    least = apply_base_terms(project).prices.price_of(model)
    assert least is not None
    assert least.tokens_in >= 2.5
    assert least.tokens_out >= 10
    assert least.written >= 2.5
    assert least.read >= 1.25


SPELLINGS = {
    "free": ("price: {in: 1, out: 2}", "price: free"),
    "slash": ("/v1,", "/v1/,"),
    "another path": ("/v1,", "/v1/../v1,"),
    "another provider": ("provider: openai_compatible", "provider: openai"),
    "by litellm": ("provider: openai_compatible, model: m", "provider: litellm, model: openai/m"),
    "by variable": ("base_url: {host}/v1", "base_url_env: HOST_OF_MODEL"),
    "another model": ("model: m", "model: other"),
    "case of the model": ("model: m", "model: M"),
    "another name": ("small:", "tiny:"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_price_is_that_of_the_host_however_it_is_written(
    proposal: Folder, ours: LoopbackServer, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    host = ours.url
    monkeypatch.setenv("HOST_OF_MODEL", f"{host}/")
    old, new = (text.replace("{host}", host) for text in SPELLINGS[spelling])
    written = proposal.read("models.yaml")
    assert old in written
    free = written.replace(old, new).replace("price: {in: 1, out: 2}", "price: free")
    proposal.write("models.yaml", free)
    if spelling == "another name":
        proposal.edit("experiments/hello.yaml", "[small]", "[tiny]")
    commit(proposal, "all for free")
    project = load_project(proposal.path)
    (model,) = project.models.values()
    assert project.prices.price_of(model) == Price.model_validate({"in": 0, "out": 0})
    least = apply_base_terms(project).prices.price_of(model)
    assert least is not None
    assert (least.tokens_in, least.tokens_out) == (1, 2)


@pytest.mark.parametrize(
    ("entry", "at_least"),
    [
        ("provider: openai_compatible, model: gpt-4o, base_url: 'https://api.openai.com'", 10),
        ("provider: litellm, model: openai/gpt-4o", 10),
        ("provider: openai, model: gpt-4o-of-tomorrow", 600),
        ("provider: litellm, model: openrouter/x, key_env: OPENROUTER_API_KEY", 600),
        ("provider: bedrock, model: eu.anthropic.x, options: {region: eu-west-1}", 15),
    ],
)
def test_a_vendor_is_never_free(proposal: Folder, entry: str, at_least: float) -> None:
    key = "" if "key_env" in entry or "bedrock" in entry else ", key_env: OPENAI_API_KEY"
    proposal.write("models.yaml", f"small: {{{entry}{key}, price: free}}\n")
    commit(proposal, "cheap")
    project = load_project(proposal.path)
    least = apply_base_terms(project).prices.price_of(project.models["small"])
    assert least is not None
    assert least.tokens_out >= at_least


class Acme(ProviderPlugin):
    async def complete(self, request: Request) -> Completion:
        return Completion("fine")


def test_a_plugin_is_free_only_where_the_base_says_so(
    proposal: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, PROVIDERS, acme=Acme, other=Acme)
    entry = "small: {{provider: {}, model: m, price: free}}\n"
    proposal.write("models.yaml", entry.format("acme"))
    rebased(proposal, tmp_path)
    project = load_project(proposal.path)
    free = apply_base_terms(project).prices.price_of(project.models["small"])
    assert free is not None
    assert (free.tokens_in, free.tokens_out) == (0, 0)
    proposal.write("models.yaml", entry.format("other"))
    commit(proposal, "another plugin, which may have a key of its own")
    project = load_project(proposal.path)
    dear = apply_base_terms(project).prices.price_of(project.models["small"])
    assert dear is not None
    assert dear.tokens_out >= 600


def test_a_model_without_a_key_may_be_free(proposal: Folder) -> None:
    entry = "provider: ollama, model: llama, price: free"
    proposal.write("models.yaml", f"small: {{{entry}}}\n")
    commit(proposal, "our own machine")
    project = load_project(proposal.path)
    free = apply_base_terms(project).prices.price_of(project.models["small"])
    assert free == Price.model_validate({"in": 0, "out": 0})


def test_no_limit_of_the_base_can_be_dropped(proposal: Folder, tmp_path: Path) -> None:
    stop = "stop: {daily_budget_usd: 0.5, max_total_tokens: 700, budget_usd: 2}\n"
    bare = proposal.read("experiments/hello.yaml")
    proposal.write("experiments/hello.yaml", bare + stop)
    header = proposal.read("edison.yaml")
    proposal.write("edison.yaml", f"{header}settings: {{monthly_budget_usd: 3}}\n")
    rebased(proposal, tmp_path)
    proposal.write("experiments/hello.yaml", f"{bare}stop: {{daily_budget_usd: 9}}\n")
    proposal.write("edison.yaml", header)
    commit(proposal, "without limits")
    project = apply_base_terms(load_project(proposal.path))
    caps = caps_of(project, project.experiments["hello"], "1", None)
    least = {(cap.scope, cap.days): cap.microusd for cap in caps if cap.name.endswith("the base")}
    assert least == {
        ("run:1", None): None,
        ("experiment:hello", 1): 500_000,
        ("project", 30): 3_000_000,
    }
    assert min(cap.tokens for cap in caps if cap.tokens is not None) == 700
    assert run_limit(caps) == 2_000_000
    job = job_cap(project, {"GITHUB_RUN_ID": "5", "GITHUB_JOB": "evaluate"})
    assert job is not None
    assert (job.scope, job.microusd) == ("job:5--evaluate", 500_000), "what a day may cost"


@pytest.mark.parametrize("change", ["", "shared_budget: {url_env: OTHER_URL, token_env: T}\n"])
def test_the_base_decides_on_the_shared_budget(
    proposal: Folder, tmp_path: Path, change: str
) -> None:
    """A pull request neither leaves it nor turns to another site, project or team."""
    header = proposal.read("edison.yaml")
    shared = "shared_budget: {url_env: SITE_URL, token_env: SITE_TOKEN}\n"
    proposal.write("edison.yaml", f"{header}team: support\n{shared}")
    rebased(proposal, tmp_path)
    other = header.replace("project: mini", "project: other")
    assert other != header
    proposal.write("edison.yaml", f"{other}team: sales\n{change}")
    commit(proposal, "another budget")
    project = apply_base_terms(load_project(proposal.path))
    found = project.file.shared_budget
    assert found is not None
    assert (found.url_env, found.token_env) == ("SITE_URL", "SITE_TOKEN")
    path = tmp_path / "leases.db"
    with closing(open_database(path)) as reader:
        lease = MoneyLease(project, found, reader, ProcessLock(tmp_path / "locks"))
        told = lease._report("x")
    assert (told["project"], told["team"]) == ("mini", "support")


def test_no_limit_of_the_base_is_left_behind_with_a_name(proposal: Folder, tmp_path: Path) -> None:
    bare = proposal.read("experiments/hello.yaml")
    proposal.write(
        "experiments/hello.yaml", f"{bare}stop: {{daily_budget_usd: 0.5, max_total_tokens: 700}}\n"
    )
    rebased(proposal, tmp_path)
    (proposal.path / "experiments/hello.yaml").unlink()
    proposal.write("experiments/other.yaml", bare.replace("hello\n", "other\n", 1))
    commit(proposal, "another name")
    project = apply_base_terms(load_project(proposal.path))
    caps = caps_of(project, project.experiments["other"], "1", None)
    assert {cap.tokens for cap in caps if cap.tokens is not None} == {700}
    job = job_cap(project, {"GITHUB_RUN_ID": "5"})
    assert job is not None
    assert job.microusd == 500_000


def test_the_base_limits_a_job_and_not_only_each_of_its_runs(
    edison: Edison, proposal: Folder, loopback: LoopbackServer, tmp_path: Path
) -> None:
    laid_out(proposal, loopback.url)
    dear = "{in: 1, out: 200}, params: {max_tokens: 5}"
    proposal.edit("models.yaml", "{in: 1, out: 2}", dear)
    limited = TRUST.format(host=loopback.url) + "budget_usd_max: 0.01\n"
    proposal.write(".edison/trust.yaml", limited)
    rebased(proposal, tmp_path)
    for number in range(3):
        text = proposal.read("experiments/hello.yaml").replace("hello\n", f"again-{number}\n", 1)
        proposal.write(f"experiments/again-{number}.yaml", f"{text}repeats: {number + 2}\n")
    commit(proposal, "the same again")
    done = edison(proposal, "run", "--yes", "--no-cache")
    assert (done.code, "the budget of the base for a job" in done.all) == (4, True), done.all
    with opened(proposal.path / ".edison/results.db") as connection:
        (spent,) = connection.execute("select sum(cost_microusd) from answer").fetchone()
        runs = connection.execute("select count(distinct run_id) from attempt").fetchone()
    assert (spent <= 10_000, runs[0] > 1) == (True, True)


def test_a_pull_request_may_not_spend_more_than_its_base_would(
    edison: Edison, proposal: Folder, loopback: LoopbackServer, tmp_path: Path
) -> None:
    laid_out(proposal, loopback.url)
    stop = "stop: {budget_usd: 0.01}\n"
    proposal.write("experiments/hello.yaml", proposal.read("experiments/hello.yaml") + stop)
    proposal.edit("edison.yaml", "project: mini\n", "project: mini\ndefaults: {budget_usd: 0.01}\n")
    rebased(proposal, tmp_path)
    proposal.edit("experiments/hello.yaml", stop, "stop: {budget_usd: 9000}\nrepeats: 50\n")
    proposal.edit("edison.yaml", "budget_usd: 0.01", "budget_usd: 9000")
    commit(proposal, "spend more")
    done = edison(proposal, "run", "--yes", "--budget", "500")
    assert done.code == 4, done.all
    assert "edison run --budget" not in done.all, "no option raises it"
    assert loopback.ledger_total() <= 10_000
