"""Runs started, steered, paused, resumed and cancelled: over HTTP with a token, and on pages."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import jsonschema
import pytest
from playwright.async_api import expect

from edison_ci.access.accounts import Accounts
from edison_ci.access.site import open_site
from edison_ci.git.host import RUN_WORKFLOW
from edison_ci.web.api import API, MOST_BYTES, document, routes
from tests import forked
from tests.conftest import ROOT
from tests.features.github.fake_github import TOKEN, FakeGitHub, Fault
from tests.features.github.fake_state import REPOSITORY
from tests.features.github.test_dispatch import with_workflow
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.opened import opened
from tests.planted import Planted, plant
from tests.timing import PATIENCE_S, poll
from tests.web.conftest import in_browser
from tests.web.test_browser import barriers_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.async_api import Browser

    from tests.conftest import Folder

CASES = 20
KEY = "k-123456789012"
EXPERIMENT = """\
experiment: hello
objective: Greet every person by name, in one short and friendly sentence.
prompts: [prompts/hello.md]
models: [small]
dataset: datasets/names.jsonl
checks: [chars: {min: 1}]
stop: {budget_usd: 0.02}
"""
MEMBERS = """\
members:
  - {email: ada@example.org, role: owner}
  - {email: ed@example.org, role: editor}
  - {email: vi@example.org, role: viewer}
"""


@dataclass(frozen=True)
class Site:
    """A served project, its models, and tokens of its members."""

    folder: Folder
    models: LoopbackServer
    address: str
    tokens: dict[str, str]
    process: subprocess.Popen[str]

    def send(
        self, who: str, method: str, path: str, body: Any = None, **headers: str
    ) -> httpx.Response:
        """Send a request with somebody's token, and hold the reply against the document."""
        token = {"authorization": f"Bearer {self.tokens[who]}"} if who else {}
        content = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        reply = httpx.request(
            method,
            f"{self.address}{API}{path}",
            headers={**token, **{k.replace("_", "-"): v for k, v in headers.items()}},
            content=content if method == "POST" else None,
            timeout=PATIENCE_S,
        )
        assert reply.headers["content-type"].startswith("application/json")
        _validate(method, path, reply)
        return reply

    def plan_hash(self) -> str:
        return str(self.send("vi", "GET", "/experiments/hello/plan").json()["plan_hash"])

    def start(self, key: str = "one", who: str = "ed") -> httpx.Response:
        body = {"plan_hash": self.plan_hash(), "budget_usd": 0.01}
        return self.send(who, "POST", "/experiments/hello/runs", body, idempotency_key=key)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with opened(self.folder.path / ".edison" / "results.db") as connection:
            return connection.execute(sql).fetchall()


def _validate(method: str, path: str, reply: httpx.Response) -> None:
    """Fail if a reply is not what the published document says."""
    parts = path.partition("?")[0].strip("/").split("/")
    known = document()["paths"]
    for template, operations in known.items():
        names = template.strip("/").split("/")
        same = len(names) == len(parts) and all(
            a == b or a.startswith("{") for a, b in zip(names, parts, strict=True)
        )
        if same and method.lower() in operations:
            response = operations[method.lower()]["responses"][str(reply.status_code)]
            if "$ref" in response:
                response = document()["components"]["responses"][response["$ref"].split("/")[-1]]
            schema = response["content"]["application/json"]["schema"]
            whole = {**schema, "components": document()["components"]}
            jsonschema.Draft202012Validator(whole).validate(reply.json())
            return
    assert reply.status_code in (404, 405, 411)


@contextmanager
def served(
    folder: Folder, models: LoopbackServer, *options: str, key: str = KEY, **variables: str
) -> Iterator[Site]:
    accounts = Accounts(open_site(folder.path), cost=(2**4, 8, 1))
    tokens = {
        name: accounts.new_token(f"{name}@example.org", label="test", days=None)[1]
        for name in ("ada", "ed", "vi")
    }
    process = forked.Popen(
        [sys.executable, "-P", "-m", "edison_ci", "--json", "serve", "--port", "0", *options],
        cwd=folder.path,
        env={**os.environ, **({"OWN_KEY": key} if key else {}), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        text = ""
        while not text.endswith("\n}\n"):
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            text += line
        address = json.loads(text)["url"].partition("/-/")[0]
        yield Site(folder, models, address, tokens, process)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def models(tmp_path: Path) -> Iterator[LoopbackServer]:
    with LoopbackServer(ledger=tmp_path / "ledger.jsonl") as server:
        yield server


@pytest.fixture
def project(mini: Folder, models: LoopbackServer) -> Folder:
    mini.git("config", "--global", "user.email", "ada@example.org")
    rows = (f'{{"id": "c{i}", "input": {{"name": "P{i}."}}}}\n' for i in range(CASES))
    mini.write("datasets/names.jsonl", "".join(rows))
    mini.write("edison.yaml", f"version: 1\nproject: mini\n{MEMBERS}")
    mini.write("experiments/hello.yaml", EXPERIMENT)
    mini.write(
        "models.yaml",
        f"small: {{provider: openai_compatible, base_url: '{models.openai_url}', model: small, "
        "key_env: OWN_KEY, params: {max_tokens: 40}, price: {in: 1, out: 2}, "
        "limits: {concurrency: 3, attempts: 1}}\n",
    )
    keys = f"version: 1\nkeys:\n  - {{env: OWN_KEY, hosts: ['{models.url}']}}\n"
    mini.write(".edison/trust.yaml", keys)
    return mini


@pytest.fixture
def site(project: Folder, models: LoopbackServer) -> Iterator[Site]:
    with served(project, models, "--sign-in") as found:
        yield found


# --- the document ---------------------------------------------------------------------------------


def test_the_published_document_names_the_address_and_the_limit_of_the_server() -> None:
    published = json.loads((ROOT / "schemas" / "openapi.json").read_bytes())
    assert published == document()
    assert [server["url"] for server in published["servers"]] == [API]
    too_large = published["components"]["responses"]["TooLarge"]["description"]
    assert too_large == f"The body has more than {MOST_BYTES} bytes."


def test_the_document_has_every_operation_and_no_other() -> None:
    described = {
        (method.upper(), path)
        for path, operations in document()["paths"].items()
        for method in operations
        if method != "parameters"
    }
    assert described == {(route.method, route.path) for route in routes()}
    ids = [
        operation["operationId"]
        for operations in document()["paths"].values()
        for method, operation in operations.items()
        if method != "parameters"
    ]
    assert len(set(ids)) == len(ids) == len(routes())


def openapi_errors(whole: Any) -> list[str]:
    """Return what the published schema of OpenAPI 3.1 (2022-10-07) finds wrong in a document."""
    file = ROOT / "tests" / "web" / "openapi-3.1.schema.json"
    checker = jsonschema.Draft202012Validator(json.loads(file.read_bytes()))
    return [f"{error.json_path}: {error.message[:200]}" for error in checker.iter_errors(whole)]


def test_the_published_document_is_openapi() -> None:
    published = json.loads((ROOT / "schemas" / "openapi.json").read_bytes())
    assert published["openapi"].startswith("3.1.")
    assert openapi_errors(published) == []
    for path, operations in published["paths"].items():
        own = operations.get("parameters", [])
        named = {each["name"] for each in own if each.get("in") == "path"}
        assert named == set(re.findall(r"{(\w+)}", path)), path
        for method, operation in operations.items():
            assert method == "parameters" or any(s.startswith("2") for s in operation["responses"])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("openapi",), "4.0.0"),
        (("info", "version"), 1),
        (("paths", "/runs/{run}", "get", "responses"), []),
        (("paths", "/runs/{run}", "get", "responses", "200"), {"content": {}}),
        (("paths", "/runs/{run}", "parameters"), [{"name": "run", "in": "path"}]),
        (("paths", "runs"), {}),
        (("components", "securitySchemes", "token", "type"), "bearer"),
        (("server",), []),
    ],
)
def test_a_document_that_is_not_openapi_is_found_out(where: tuple[str, ...], value: Any) -> None:
    whole = json.loads(json.dumps(document()))
    place: Any = whole
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    assert openapi_errors(whole)


def schemas_in(value: Any) -> Iterator[Any]:
    """Yield every schema of a document, wherever it stands."""
    if isinstance(value, dict):
        yield from (value[key] for key in ("schema",) if key in value)
        for each in value.values():
            yield from schemas_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from schemas_in(each)


def test_every_schema_of_the_document_is_valid_and_every_reference_leads_somewhere() -> None:
    whole = document()
    inline = [*schemas_in(whole)]
    assert inline
    for schema in [*whole["components"]["schemas"].values(), *inline]:
        jsonschema.Draft202012Validator.check_schema(schema)
    text = json.dumps(whole)
    for part in text.split('"$ref": "')[1:]:
        found: Any = whole
        for step in part.partition('"')[0].removeprefix("#/").split("/"):
            found = found[step]
        assert found


# --- who may do what ------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_token_is_needed_and_its_role_counts(site: Site) -> None:
    refused = site.send("", "GET", "/experiments/hello/plan")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "token")
    cookie = site.send("", "GET", "/experiments/hello/plan", cookie="edison_session=x")
    assert cookie.status_code == 401
    wrong = httpx.get(
        f"{site.address}{API}/runs/hello", headers={"authorization": "Bearer edison_token_x"}
    )
    assert wrong.status_code == 401
    plan = site.send("vi", "GET", "/experiments/hello/plan").json()
    assert (plan["cells"], plan["calls"]["to_make"]) == (CASES, CASES)
    assert plan["budget_microusd"] == 20_000
    denied = site.start(who="vi")
    assert (denied.status_code, denied.json()["error"]["code"]) == (403, "role")
    assert site.rows("select count(*) from run") == [(0,)]
    assert ("refused: start run", "vi@example.org", "token") in site.rows(
        "select action, actor, known_by from audit"
    )


WRONG_STARTS: list[tuple[Any, int, str]] = [
    (b"{", 400, "the body is not JSON"),
    (b"[]", 400, "not a JSON object"),
    (b"{}", 400, "'plan_hash' is missing"),
    ({"plan_hash": "0" * 64}, 409, "the plan of hello has changed since it was shown"),
    ({"plan_hash": "x", "more": 1}, 400, "unknown field 'more'"),
    ({"plan_hash": "x", "budget_usd": -1}, 400, "a budget is $0 to $1,000,000"),
    (b'{"plan_hash": "x", "budget_usd": 1e999}', 400, "a budget is $0 to $1,000,000"),
    (b'{"plan_hash": "x", "budget_usd": NaN}', 400, "a budget is $0 to $1,000,000"),
    ({"plan_hash": "x", "budget_usd": True}, 400, "budget_usd is not a number"),
    (b'{"plan_hash": "' + b"x" * MOST_BYTES + b'"}', 413, "more than 65,536 bytes"),
]


def test_runs_results_and_schedules_are_listed_page_by_page(
    project: Folder, models: LoopbackServer
) -> None:
    schedules = "schedule:\n" + "".join(
        f"  - {{name: {name}, cron: '0 9 * * *'}}\n" for name in ("a-day", "b-day", "c-day")
    )
    project.write("experiments/hello.yaml", f"{EXPERIMENT}\n{schedules}")
    plant(
        project,
        *(
            Planted(f"r{n}", f"2026-11-1{n}T09:00:00Z", {"small": [0.5, 0.7, 0.9]})
            for n in range(5)
        ),
    )
    with served(project, models, "--sign-in") as site:
        seen: list[str] = []
        after: str | None = ""
        while after is not None:
            page = site.send("vi", "GET", f"/runs?experiment=hello&limit=2&after={after}").json()
            seen += [run["run_id"] for run in page["runs"]]
            after = page["next"]
        assert seen == ["r4", "r3", "r2", "r1", "r0"]
        first = site.send("vi", "GET", "/runs?limit=1").json()["runs"][0]
        assert first["composite"]["estimate"] == pytest.approx(0.7)
        assert site.send("vi", "GET", "/runs?status=paused").json() == {"runs": [], "next": None}
        cells: list[str] = []
        after = ""
        while after is not None:
            page = site.send("vi", "GET", f"/runs/r4/results?limit=2&after={after}").json()
            cells += [f"{cell['case']} {cell['composite']}" for cell in page["results"]]
            after = page["next"]
        assert cells == ["c0 0.5", "c1 0.7", "c2 0.9"]
        assert site.send("vi", "GET", "/runs/r4/results?status=error").json()["results"] == []
        page = site.send("vi", "GET", "/schedules?limit=2").json()
        assert [one["name"] for one in page["schedules"]] == ["a-day", "b-day"]
        page = site.send("vi", "GET", f"/schedules?after={page['next']}").json()
        assert [one["name"] for one in page["schedules"]] == ["c-day"]
        assert page["scheduler"]["running"] is False
        for path, status in (
            ("/runs?limit=0", 400),
            ("/runs?limit=201", 400),
            ("/runs?order=best", 400),
            ("/runs?after=nothing", 404),
            ("/runs/nothing/results", 404),
            ("/schedules?after=nothing", 404),
        ):
            assert site.send("vi", "GET", path).status_code == status, path
        assert site.send("", "GET", "/runs").status_code == 401
        site.folder.edit("edison.yaml", "  - {email: vi@example.org, role: viewer}\n", "")
        assert site.send("vi", "GET", "/runs").status_code == 401, "the role is read each time"


@pytest.mark.nightly
def test_a_wrong_start_is_refused_and_starts_nothing(site: Site) -> None:
    for body, status, said in WRONG_STARTS:
        reply = site.send("ed", "POST", "/experiments/hello/runs", body, idempotency_key="k")
        assert reply.status_code == status, body
        assert said in reply.json()["error"]["message"]
        assert site.rows("select count(*) from run") == [(0,)]
        assert site.models.chats == 0


@pytest.mark.nightly
def test_an_unknown_address_method_or_key_is_told(site: Site) -> None:
    assert site.send("ed", "GET", "/nothing").status_code == 404
    assert site.send("ed", "GET", "/runs/20260101T000000-abcdef").status_code == 404
    assert site.send("ed", "GET", "/experiments/nobody/plan").status_code == 404
    assert site.send("ed", "POST", "/runs/hello").status_code == 405
    assert site.send("ed", "DELETE", "/runs/hello").json()["error"]["code"] == "refused"
    body = {"plan_hash": site.plan_hash()}
    missing = site.send("ed", "POST", "/experiments/hello/runs", body)
    assert missing.json()["error"]["code"] == "key_missing"


# --- a run over HTTP ------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_run_is_started_once_steered_paused_resumed_and_ends(site: Site) -> None:
    held = threading.Event()
    site.models.script = [rule(until=held)]
    begun = site.start()
    assert begun.status_code == 201, begun.text
    run_id = begun.json()["run_id"]
    poll("3 calls at once", lambda: site.models.in_flight == 3)
    again = site.start()
    assert (again.status_code, again.json()["run_id"]) == (201, run_id)
    assert site.rows("select id, trigger from run") == [(run_id, "api")]
    other = site.send(
        "ed", "POST", "/experiments/hello/runs", {"plan_hash": "x"}, idempotency_key="one"
    )
    assert "used for another start" in other.json()["error"]["message"]

    change = {"action": "concurrency", "model": "small", "calls": 7}
    done = site.send("ed", "POST", f"/runs/{run_id}/steer", change)
    assert done.status_code == 200, done.text
    assert done.json()["answer"]["said"] == "small makes 7 calls at once, before 3"
    poll("7 calls at once", lambda: site.models.in_flight == 7)
    state = site.send("vi", "GET", f"/runs/{run_id}").json()
    assert (state["status"], state["moving"]) == ("EXECUTING", True)
    assert state["budget"]["limit_microusd"] == 10_000
    change["model"] = "nobody"
    refused = site.send("ed", "POST", f"/runs/{run_id}/steer", change)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "refused")
    above = {"action": "budget", "budget_usd": 5}
    refused = site.send("ed", "POST", f"/runs/{run_id}/steer", above)
    assert "stop.budget_usd allows" in refused.json()["error"]["message"]

    assert site.send("vi", "POST", f"/runs/{run_id}/pause").status_code == 403
    assert site.send("ed", "POST", f"/runs/{run_id}/pause").status_code == 202
    path = f"/runs/{run_id}"
    poll("the pause", lambda: site.rows("select status from run") == [("PAUSED",)])
    held.set()
    assert site.send("ed", "POST", f"{path}/steer", change).status_code == 400
    assert site.send("ed", "POST", f"{path}/resume").status_code == 202
    poll("the end", lambda: site.rows("select status from run") == [("COMPLETED",)])
    assert site.send("vi", "GET", path).json()["done"] == CASES
    assert site.send("ed", "POST", f"{path}/cancel").status_code == 400
    audited = site.rows("select action, actor, known_by, run_id from audit order by seq")
    mine = [action for action, actor, _, of in audited if (actor, of) == ("ed@example.org", run_id)]
    assert mine == ["start run", *["steer"] * 3, "pause run", "resume run"]
    assert {known for _, actor, known, _ in audited if actor == "ed@example.org"} == {"token"}


@pytest.mark.nightly
def test_many_starts_with_one_key_at_once_start_one_run(site: Site) -> None:
    body = {"plan_hash": site.plan_hash()}
    replies: list[httpx.Response] = []

    def send() -> None:
        path = "/experiments/hello/runs"
        replies.append(site.send("ed", "POST", path, body, idempotency_key="same"))

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    ((run_id,),) = site.rows("select id from run")
    assert [reply.json().get("run_id") for reply in replies] == [run_id] * 3


@pytest.mark.nightly
def test_a_run_goes_on_when_the_server_is_killed(site: Site) -> None:
    held = threading.Event()
    site.models.script = [rule(until=held)]
    run_id = site.start().json()["run_id"]
    poll("3 calls at once", lambda: site.models.in_flight == 3)
    site.process.send_signal(signal.SIGKILL)
    site.process.wait(PATIENCE_S)
    held.set()
    poll("the end", lambda: site.rows("select status from run") == [("COMPLETED",)])
    assert site.rows("select run_id, count(*) from cell group by run_id") == [(run_id, CASES)]


def test_a_server_without_the_keys_starts_nothing_and_names_them(
    project: Folder, models: LoopbackServer
) -> None:
    with served(project, models, key="") as site:
        reply = site.start()
        assert (reply.status_code, reply.json()["error"]["code"]) == (409, "cannot_start")
        assert "OWN_KEY" in reply.json()["error"]["message"]
        hint = reply.json()["error"]["hint"]
        assert "let GitHub run it (docs/serving.md): there is no token for GitHub" in hint
        assert site.rows("select count(*) from start_request") == [(0,)]
        page = httpx.get(f"{site.address}/-/edison/experiment/hello/plan").text
        assert "It cannot be started here" in page
        assert "neither GITHUB_TOKEN nor GH_TOKEN is set" in page
        assert "Start the run" not in page


# --- on GitHub ------------------------------------------------------------------------------------


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with FakeGitHub() as server:
        yield with_workflow(server)


@contextmanager
def keyless(
    project: Folder, models: LoopbackServer, github: FakeGitHub, *options: str
) -> Iterator[Site]:
    """Serve a project without its key, with a token for a repository."""
    variables = {
        "GITHUB_TOKEN": TOKEN,
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_API_URL": github.url,
        "GITHUB_SERVER_URL": github.url,
    }
    with served(project, models, *options, key="", **variables) as site:
        yield site


def workflow_page(github: FakeGitHub) -> str:
    return f"{github.url}/{REPOSITORY}/actions/workflows/{RUN_WORKFLOW}"


@pytest.mark.nightly
def test_a_server_without_the_keys_lets_github_run_it_once(
    project: Folder, models: LoopbackServer, github: FakeGitHub
) -> None:
    with keyless(project, models, github) as site:
        plan = site.send("vi", "GET", "/experiments/hello/plan").json()
        assert plan["blockers"] == ["OWN_KEY is not set (small needs it)"]
        url = workflow_page(github)
        assert plan["dispatch"] == {"repository": REPOSITORY, "workflow_url": url}
        assert site.start(who="vi").status_code == 403
        assert github.state.dispatched == [], "a plan and a viewer start nothing"
        begun = site.start()
        assert begun.status_code == 202, begun.text
        told = begun.json()
        assert (told["experiment"], told["workflow_url"]) == ("hello", url)
        (sent,) = github.state.dispatched
        assert (sent["file"], sent["ref"]) == (RUN_WORKFLOW, "main")
        assert sent["inputs"] == {
            "experiment": "hello",
            "plan": plan["plan_hash"],
            "request": told["request"],
            "budget": "0.010000",
        }
        assert site.start().json() == told
        assert len(github.state.dispatched) == 1
        without = {"plan_hash": plan["plan_hash"]}
        path = "/experiments/hello/runs"
        assert site.send("ed", "POST", path, without, idempotency_key="two").status_code == 202
        assert github.state.dispatched[1]["inputs"]["budget"] == "0.020000", "of the experiment"
        changed = site.send("ed", "POST", path, {"plan_hash": "x"}, idempotency_key="three")
        assert (changed.status_code, len(github.state.dispatched)) == (409, 2)
        assert site.rows("select count(*) from run") == [(0,)]
        audited = site.rows("select action, actor, entity, run_id, after from audit order by seq")
        mine = [row for row in audited if row[0] == "dispatch run"]
        assert [row[1:4] for row in mine] == [("ed@example.org", "hello", None)] * 2
        assert json.loads(mine[0][4])["run"] == told["request"]
        for name in (".edison/results.db", ".edison/results.db-wal"):
            file = project.path / name
            assert not file.exists() or TOKEN.encode() not in file.read_bytes()
    assert models.chats == 0


def test_many_starts_with_one_key_at_once_ask_github_once(
    project: Folder, models: LoopbackServer, github: FakeGitHub
) -> None:
    held = threading.Event()
    github.faults.append(Fault(204, "POST", "/dispatches", body=b"", after=True, until=held))
    with keyless(project, models, github) as site:
        body = {"plan_hash": site.plan_hash()}
        replies: list[httpx.Response] = []

        def send() -> None:
            path = "/experiments/hello/runs"
            replies.append(site.send("ed", "POST", path, body, idempotency_key="same"))

        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        poll("the request", lambda: len(github.state.dispatched) == 1)
        held.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert [reply.status_code for reply in replies] == [202] * 3
        assert len({reply.json()["request"] for reply in replies}) == 1
        assert len(github.state.dispatched) == 1


@pytest.mark.nightly
def test_a_refusal_of_github_is_told_and_can_be_repeated(
    project: Folder, models: LoopbackServer, github: FakeGitHub
) -> None:
    declared = github.state.workflows.pop(RUN_WORKFLOW)
    with keyless(project, models, github) as site:
        refused = site.start()
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "cannot_start")
        assert "Not Found (HTTP 404)" in refused.json()["error"]["message"]
        assert "edison init --github --workflow run" in refused.json()["error"]["hint"]
        assert site.rows("select count(*) from start_request") == [(0,)]
        github.state.workflows[RUN_WORKFLOW] = declared
        assert site.start().status_code == 202
        actions = [row[0] for row in site.rows("select action from audit order by seq")]
        assert [each for each in actions if "dispatch" in each] == [
            "dispatch run",
            "refused: dispatch run",
            "dispatch run",
        ]


@pytest.mark.nightly
def test_what_is_not_known_is_said_to_be_so_and_never_sent_again(
    project: Folder, models: LoopbackServer, github: FakeGitHub
) -> None:
    github.faults.append(Fault(502, "POST", "/dispatches", after=True))
    with keyless(project, models, github) as site:
        for said in ("HTTP 502", "there was no answer"):
            reply = site.start()
            error = reply.json()["error"]
            assert (reply.status_code, error["code"]) == (502, "dispatch_unknown")
            assert "it is not known whether it does" in error["message"]
            assert said in error["message"]
            assert workflow_page(github) in error["hint"]
        assert len(github.sent("POST", "/dispatches")) == 1
        page = httpx.get(f"{site.address}/-/edison/experiment/hello/plan").text
        assert "Not certain." in page
        assert ", not confirmed" in page
        assert site.start("two").status_code == 202, "with another key, on purpose"
        assert len(github.sent("POST", "/dispatches")) == 2
        log = httpx.get(f"{site.address}/-/edison/audit").text
        assert "ed@example.org could not learn from GitHub whether it runs hello: " in log


def test_an_offline_server_asks_nobody(
    project: Folder, models: LoopbackServer, github: FakeGitHub
) -> None:
    with keyless(project, models, github, "--offline") as site:
        assert site.send("vi", "GET", "/experiments/hello/plan").json()["dispatch"] is None
        error = site.start().json()["error"]
        assert (error["code"], "disabled by --offline" in error["hint"]) == ("cannot_start", True)
    assert github.requests == []


@pytest.mark.nightly
@in_browser
@pytest.mark.parametrize("scripts", [True, False])
async def test_an_editor_lets_github_run_it_on_the_pages(
    project: Folder, models: LoopbackServer, github: FakeGitHub, browser: Browser, scripts: bool
) -> None:
    wrong: list[str] = []
    with keyless(project, models, github) as site:
        async with await browser.new_context(
            base_url=site.address,
            java_script_enabled=scripts,
            viewport={"width": 390, "height": 900},
        ) as context:
            context.set_default_timeout(1000 * PATIENCE_S)
            page = await context.new_page()
            page.on("console", lambda said: wrong.append(said.text))
            await page.goto("/-/edison/experiment/hello/plan")
            await expect(page.get_by_text("Calls to make")).to_be_visible()
            await expect(page.get_by_text("OWN_KEY is not set")).to_be_visible()
            await expect(page.get_by_text(f"with the keys of {REPOSITORY}")).to_be_visible()
            if scripts:
                await _check(page)
            assert github.requests == [], "the plan is shown first"
            declared = github.state.workflows.pop(RUN_WORKFLOW)
            await page.get_by_role("button", name="Start it on GitHub").click()
            await expect(page.get_by_role("heading", name="Not possible now")).to_be_visible()
            await expect(page.get_by_text("edison init --github --workflow run")).to_be_visible()
            github.state.workflows[RUN_WORKFLOW] = declared
            await page.goto("/-/edison/experiment/hello/plan")
            await page.get_by_label("Budget in dollars").fill("0.01")
            await page.get_by_role("button", name="Start it on GitHub").click()
            await expect(page.get_by_role("status")).to_contain_text("GitHub starts a run of hello")
            ((request,),) = site.rows("select run_id from start_request")
            link = page.get_by_role("link", name=request)
            assert await link.get_attribute("href") == workflow_page(github)
            if scripts:
                await _check(page)
        (sent,) = github.state.dispatched
        assert (sent["inputs"]["request"], sent["inputs"]["budget"]) == (request, "0.010000")
    assert [said for said in wrong if "409" not in said] == []


# --- the pages ------------------------------------------------------------------------------------


@pytest.mark.nightly
@in_browser
@pytest.mark.parametrize("scripts", [True, False])
async def test_an_editor_starts_steers_and_cancels_a_run_on_the_pages(
    project: Folder, models: LoopbackServer, browser: Browser, scripts: bool
) -> None:
    held = threading.Event()
    models.script = [rule(until=held)]
    wrong: list[str] = []
    with served(project, models) as site:
        async with await browser.new_context(
            base_url=site.address,
            java_script_enabled=scripts,
            viewport={"width": 390, "height": 900},
        ) as context:
            context.set_default_timeout(1000 * PATIENCE_S)
            page = await context.new_page()
            page.on("console", lambda said: wrong.append(said.text))
            await page.goto("/-/edison/experiment/hello")
            await page.get_by_role("link", name="See its plan and start it").click()
            await expect(page.get_by_text("Calls to make")).to_be_visible()
            await expect(page.get_by_text(f"{CASES} cases")).to_be_visible()
            if scripts:
                await _check(page)
            await page.get_by_label("Budget in dollars").fill("0.01")
            await page.get_by_role("button", name="Start the run").click()
            await page.wait_for_url("**/run/*")
            poll("3 calls at once", lambda: models.in_flight == 3)
            steer = page.get_by_role("link", name="Steer, pause or cancel")
            # Without scripts the page reloads itself, which may take the place of a click.
            await page.goto(str(await steer.get_attribute("href")))
            await page.get_by_role("spinbutton", name="Calls at once of small").fill("6")
            await page.get_by_role("button", name="Set").click()
            await expect(page.get_by_role("status")).to_contain_text(
                "Done: small makes 6 calls at once, before 3"
            )
            poll("6 calls at once", lambda: models.in_flight == 6)
            await page.get_by_role("button", name="Pause small").click()
            await expect(page.get_by_role("status")).to_contain_text("small is paused")
            await page.get_by_role("button", name="Resume small").click()
            await expect(page.get_by_role("status")).to_contain_text("small is resumed")
            if scripts:
                await _check(page)
            await expect(page.get_by_text(f"0 of {CASES} cells are done, for $")).to_be_visible()
            await page.get_by_role("button", name="Cancel the run for good").click()
            poll("the end", lambda: site.rows("select status from run") == [("CANCELLED",)])
            await page.reload()
            await expect(page.get_by_text("The run has ended")).to_be_visible()
        held.set()
        assert site.rows("select trigger from run") == [("page",)]
        actions = [row[0] for row in site.rows("select action from audit order by seq")]
        assert [each for each in actions if each in _ACTIONS] == [
            "start run",
            "steer",
            "steer",
            "steer",
            "cancel run",
        ]
    assert wrong == []


_ACTIONS = ("start run", "steer", "cancel run", "pause run")


async def _check(page: Any) -> None:
    """Find nothing that is too wide, or serious for axe."""
    assert not await page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    assert await barriers_of(page) == []


def test_a_form_of_another_site_or_without_its_token_starts_nothing(
    project: Folder, models: LoopbackServer
) -> None:
    with served(project, models) as site:
        address = f"{site.address}/-/edison/experiment/hello/start"
        form = {"plan_hash": site.plan_hash(), "key": "k"}
        for headers in ({"origin": "https://evil.example"}, {"cookie": "ds_csrftoken=x"}):
            assert httpx.post(address, data=form, headers=headers).status_code == 403
        assert site.rows("select count(*) from run") == [(0,)]


def test_a_plan_that_changed_since_it_was_shown_is_not_started(
    project: Folder, models: LoopbackServer
) -> None:
    with served(project, models) as site:
        shown = site.plan_hash()
        project.write("datasets/names.jsonl", '{"id": "c0", "input": {"name": "Z."}}\n')
        body = {"plan_hash": shown}
        reply = site.send("ed", "POST", "/experiments/hello/runs", body, idempotency_key="k")
        assert (reply.status_code, reply.json()["error"]["code"]) == (409, "plan_changed")
        assert models.chats == 0
