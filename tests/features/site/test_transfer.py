"""Runs between projects and a site: pushed, pulled, cut off, killed, forged, and all at once."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import zipfile
import zlib
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

import httpx
import pytest

from edison_ci.access.accounts import Accounts
from edison_ci.access.site import Actor, Identity, Role, open_site
from edison_ci.api.bundles import Arrival, import_bundle, write_bundle
from edison_ci.documents.signatures import Signer
from edison_ci.errors import DeliveryError, UsageError
from edison_ci.features.site.client import SiteClient, site_address
from edison_ci.features.site.shared_budget import _send
from edison_ci.features.site.transfer import Remote, pull, push
from edison_ci.features.site.uploads import MOST_OPEN, UploadRefused, Uploads
from edison_ci.features.upkeep.project_bundles import restore_project_bundle, write_project_bundle
from edison_ci.store.database import migrations, open_database, open_reader
from edison_ci.store.liveness import try_lock
from edison_ci.store.runs import find_run
from edison_ci.web.security import MOST_PART
from tests import forked
from tests.conftest import MINIMAL, Folder
from tests.fixed_keys import signing_keys
from tests.opened import opened
from tests.ports import held_port
from tests.respelled import same_bytes
from tests.timing import PATIENCE_S, poll

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.daily

KEYS, STRANGER = signing_keys("team"), signing_keys("stranger")
HOME = """\
version: 1
project: Team place
members:
  - {email: ann@example.org, role: owner}
  - {github: eve, role: editor}
  - {github: vic, role: viewer}
"""
TRUST = f"version: 1\nresults: {{public_keys: ['{KEYS.public}']}}\n"


def project(path: Path, name: str) -> Folder:
    """Make a project of this name that has no results."""
    path.mkdir()
    folder = Folder(path)
    for place, text in MINIMAL.items():
        folder.write(place, text)
    file = folder.read("edison.yaml")
    title = next(line for line in file.splitlines() if line.startswith("project:"))
    folder.edit("edison.yaml", title, f"project: {name}\ndescription: What {name} found.")
    return folder


@dataclass
class Place:
    """A served site, which can be killed and started again."""

    root: Path
    options: tuple[str, ...] = ("--accept-push",)
    tokens: dict[str, str] = field(default_factory=dict)
    port: int = 0
    process: Any = None

    def start(self) -> None:
        command = ("serve", "--projects", "projects", "--sign-in", "--json", "--rate-limit", "0")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("EDISON_", "GITHUB_"))}
        with (self.root / "serve.log").open("a") as log:
            self.process = forked.Popen(
                [sys.executable, "-P", "-m", "edison_ci", *command, "--port", str(self.port),
                 *self.options],
                cwd=self.root,
                env=kept,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )  # fmt: skip
        told = ""
        for text in self.process.stdout:
            told += text
            if text.startswith("}"):
                break
        self.port = json.loads(told)["port"]

    def kill(self) -> None:
        """End it as the kernel would."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=PATIENCE_S)
        self.process.stdout.close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def env(self, who: str, *, signed: bool = False) -> dict[str, str]:
        key = {"EDISON_SIGNING_KEY": KEYS.private} if signed else {}
        return {"EDISON_TOKEN": self.tokens[who], **key}

    def runs(self, name: str) -> list[str]:
        with opened(self.root / "projects" / name / ".edison/results.db") as connection:
            return [row[0] for row in connection.execute("select id from run order by id")]

    def audit(self, name: str) -> list[tuple[str, str]]:
        with opened(self.root / "projects" / name / ".edison/results.db") as connection:
            return connection.execute("select actor, action from audit order by seq").fetchall()

    def ask(self, method: str, path: str, who: str, **given: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.tokens[who]}", **given.pop("headers", {})}
        with httpx.Client(base_url=self.address, timeout=PATIENCE_S, trust_env=False) as client:
            return client.request(method, path, headers=headers, **given)


def make_site(root: Path) -> Place:
    """Make a site with tokens of its members."""
    (root / "projects").mkdir(parents=True)
    (root / "edison.yaml").write_text(HOME)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), "config", "user.email", "ann@example.org"], check=True)
    open_database(root / ".edison/results.db").close()
    place, accounts = Place(root), Accounts(open_site(root))
    for name in ("eve", "vic"):
        place.tokens[name] = accounts.new_token(name, label="t", days=1)[1]
    return place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    found = make_site(tmp_path_factory.mktemp("team") / "site")
    with held_port() as found.port:
        found.start()
        yield found
        found.kill()


@pytest.fixture
def own_place(tmp_path: Path) -> Iterator[Place]:
    """A site of one test, which starts and kills it."""
    made = make_site(tmp_path / "site")
    with held_port() as made.port:
        yield made


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A project with a run, which each test copies under a name of its own."""
    folder = project(tmp_path_factory.mktemp("measured") / "one", "measured")
    assert folder.edison("run", "-q").code == 0
    return folder


@pytest.fixture
def here(measured: Folder, tmp_path: Path, request: pytest.FixtureRequest) -> Folder:
    """A project with one run, named like the test."""
    name = "t-" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    return with_run(measured, tmp_path / "here", name)


def with_run(measured: Folder, path: Path, name: str) -> Folder:
    """Make a project of this name with the run of another one."""
    folder = project(path, name)
    results = folder.path / ".edison/results.db"
    results.parent.mkdir(exist_ok=True)
    with opened(measured.path / ".edison/results.db") as source:
        source.execute("vacuum into ?", (str(results),))
    return folder


def slug(folder: Folder) -> str:
    return open_site(folder.path).file.slug


def run_of(folder: Folder) -> str:
    with closing(open_reader(folder.path / ".edison/results.db")) as reader:
        return find_run(reader, "latest").id


def contents(database: Path) -> list[list[Any]]:
    tables = ("cell", "component", "decision", "rollup_run", "answer_text")
    with opened(database) as connection:
        return [
            sorted(connection.execute(f"select * from {table}").fetchall(), key=repr)
            for table in tables
        ]


# --- there and back -------------------------------------------------------------------------------


def test_a_signed_run_goes_to_the_site_and_to_another_machine(
    place: Place, here: Folder, tmp_path: Path
) -> None:
    name, run = slug(here), run_of(here)
    first = here.edison("push", place.address, env=place.env("eve", signed=True))
    assert (first.code, first.out.split()[:2]) == (0, ["pushed", run]), first.err
    assert "not trusted" in first.out  # the site does not know the key
    again = here.edison("push", place.address, env=place.env("eve", signed=True))
    assert (again.code, again.out) == (
        0, "nothing new: the site and this project have the same runs\n"
    )  # fmt: skip
    assert here.edison("push", place.address, run, env=place.env("eve")).out == f"exists  {run}\n"
    assert place.runs(name) == [run]
    there = place.root / "projects" / name
    assert contents(there / ".edison/results.db") == contents(here.path / ".edison/results.db")
    assert f'description: "What {name} found."' in (there / "edison.yaml").read_text()
    assert place.audit(name) == [("eve", "push runs")]
    assert list((there / ".edison/transfer").glob("*.part")) == []
    page = place.ask("GET", f"/projects/{name}/-/edison/run/{run}", "vic").text
    assert "pushed by eve" in page
    assert "not signed with a trusted key" in page
    # Trust is asked when it matters: once the key is listed, the run is trusted, and passed on.
    (there / ".edison/trust.yaml").write_text(TRUST)
    page = place.ask("GET", f"/projects/{name}/-/edison/run/{run}", "vic").text
    assert "signed with a trusted key" in page
    other = project(tmp_path / "other", name)
    pulled = other.edison("pull", place.address, "--json", env=place.env("vic"))
    (found,) = json.loads(pulled.out)["runs"]
    assert (found["run_id"], found["new"], found["trusted"]) == (run, True, False)
    assert contents(other.path / ".edison/results.db") == contents(there / ".edison/results.db")
    with opened(other.path / ".edison/results.db") as connection:
        (row,) = connection.execute("select ran_as, way, signed_by, source from run_origin")
        assert row == ("cli", "pull", None, f"127.0.0.1:{place.port}")  # the site has no key
        with opened(there / ".edison/results.db") as site:
            (origin,) = site.execute("select ran_by, ran_on, brought_by, signed_by from run_origin")
        (who,) = connection.execute("select ran_by, ran_on from run_origin")
    assert who == origin[:2]
    assert origin[2:] == ("eve", KEYS.public)
    assert ("vic", "export") in place.audit(name)
    foreign = other.edison("push", place.address, run, env=place.env("eve"))
    assert (foreign.code, "its signature is not trusted here" in foreign.err) == (2, True)


def test_pages_show_what_was_restored_and_where_it_is_from(
    place: Place, here: Folder, tmp_path: Path
) -> None:
    name, run = slug(here), run_of(here)
    with opened(here.path / ".edison/results.db") as connection:
        (cell,) = connection.execute("select id from cell limit 1").fetchone()
        connection.execute(
            "insert into manual_grade (cell_id, experiment, case_id, request_hash, answer_no, "
            "actor, scale, score, passed, flagged, seed, graded_at) select id, 'hello', case_id, "
            "request_hash, answer_no, 'ann', '0-1', 1.0, 1, 0, 0, '2026-11-19T05:00:00Z' from cell"
        )
    write_project_bundle(open_site(here.path), tmp_path / "p.zip")
    restore_project_bundle(tmp_path / "p.zip", place.root / "projects" / name)
    page = place.ask("GET", f"/projects/{name}/-/edison/run/{run}", "vic").text
    assert "restored by" in page
    assert "not signed with a trusted key" in page
    page = place.ask("GET", f"/projects/{name}/-/edison/cell/{cell[:12]}", "vic").text
    assert f"ann (came with run {run})" in page


@pytest.mark.nightly
def test_who_may_not_push_or_pull_is_told_why(place: Place, here: Folder) -> None:
    name = slug(here)
    refused = here.edison("push", place.address, env=place.env("vic"))
    assert (refused.code, "create project needs an editor; vic is a viewer" in refused.err) == (
        2, True
    )  # fmt: skip
    assert not (place.root / "projects" / name).exists()
    assert here.edison("push", place.address, env=place.env("eve")).code == 0
    path = f"/projects/{name}/-/edison/api/transfer/uploads/{'0' * 64}"
    assert place.ask("POST", path, "vic", content=b"x").status_code == 403
    assert ("vic", "refused: push runs") in place.audit(name)
    wrong = here.edison("push", place.address, env={"EDISON_TOKEN": "edison_token_wrong"})
    assert (wrong.code, "HTTP 401" in wrong.err) == (2, True)
    unset = here.edison("pull", place.address)
    assert (unset.code, "EDISON_TOKEN is not set" in unset.err) == (2, True)
    nowhere = here.edison("--offline", "pull", place.address, env=place.env("vic"))
    assert "disabled by --offline" in nowhere.err
    here.edit("edison.yaml", "description:", "settings: {private: true}\ndescription:")
    with opened(here.path / ".edison/results.db") as connection:
        connection.execute("update run set plan_hash = plan_hash || '0'")
    (place.root / "projects" / name / "edison.yaml").write_text(
        f"version: 1\nproject: {name}\nsettings: {{private: true}}\n"
    )
    private = place.ask("GET", f"/projects/{name}/-/edison/api/transfer/runs/{run_of(here)}", "vic")
    assert (private.status_code, "this project is private" in private.text) == (400, True)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://192.0.2.1", "is not encrypted"),
        ("https://eve:secret@edison.example.com", "has a name or password"),  # not-a-secret
        ("ftp://edison.example.com", "is not the address of a site"),
        ("edison.example.com", "is not the address of a site"),
        ("https://[::1", "is not the address of a site"),
        ("https://edison.example.com/?x=1", "is not the address of a site"),
    ],
)
def test_an_address_that_cannot_be_used(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        site_address(url, "URL")
    assert "secret" not in str(refused.value)


def test_an_address_is_taken_as_a_browser_shows_it() -> None:
    assert site_address("https://e.example.com/-/edison/runs", "URL") == "https://e.example.com"
    assert (
        site_address("https://e.example.com:8443/team/", "URL") == "https://e.example.com:8443/team"
    )
    assert site_address("http://localhost:8001", "URL") == "http://localhost:8001"


# --- cut off and killed ---------------------------------------------------------------------------


class CuttingProxy:
    """Passes bytes on to a server, and cuts each connection after so many of the client's."""

    def __init__(self, port: int, after: int) -> None:
        self._port, self._after = port, after
        self.passed: list[int] = []
        """Bytes of each connection that went to the server."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        index = len(self.passed)
        self.passed.append(0)
        # A command that is killed resets its connection.
        with (
            client,
            socket.create_connection(("127.0.0.1", self._port)) as server,
            suppress(OSError),
        ):
            back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
            back.start()
            while self.passed[index] < self._after:
                room = min(65_536, self._after - self.passed[index])
                data = client.recv(room)
                if not data:
                    break
                server.sendall(data)
                self.passed[index] += len(data)
            else:
                client.shutdown(socket.SHUT_RDWR)
            server.shutdown(socket.SHUT_WR)
            back.join(PATIENCE_S)

    def close(self) -> None:
        self._listening.close()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
    except OSError:
        pass


@contextmanager
def cutting(port: int, after: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(port, after)
    try:
        yield proxy
    finally:
        proxy.close()


def bundle_of(folder: Folder, target: Path) -> Path:
    site = open_site(folder.path)
    with closing(open_reader(site.results)) as reader:
        run = find_run(reader, "latest")
    write_bundle(site, [run], target)
    return target


@pytest.mark.nightly
def test_a_push_that_is_cut_again_and_again_arrives_whole(place: Place, here: Folder) -> None:
    """Each connection ends after some bytes; the next goes on at the byte that is there."""
    with cutting(place.port, after=9_000) as proxy:
        done = here.edison("push", proxy.address, env=place.env("eve"))
    assert done.code == 0, done.err
    assert place.runs(slug(here)) == [run_of(here)]
    size = int(done.out.split()[2].replace(",", ""))
    assert proxy.passed.count(9_000) >= size // 9_000 > 1


@pytest.mark.nightly
def test_a_push_that_was_killed_goes_on_at_the_byte_that_is_there(
    place: Place, here: Folder, tmp_path: Path
) -> None:
    """At each offset: nothing is visible of a part, and only the rest is sent by the next push."""
    name, run = slug(here), run_of(here)
    place.ask("POST", "/-/edison/api/transfer/projects", "eve", data={"project": name})
    bundle = bundle_of(here, tmp_path / "b.zip")
    data = bundle.read_bytes()
    path = f"/projects/{name}/-/edison/api/transfer/uploads/{hashlib.sha256(data).hexdigest()}"
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\nAuthorization: Bearer "
    head += f"{place.tokens['eve']}\r\nUpload-Length: {len(data)}\r\n"
    here_now = 0
    for step in (0, 1, 2, 63, 1_024, 9_001):
        rest = data[here_now:]
        sizes = {"upload-offset": str(here_now), "upload-length": str(len(data))}
        reply = place.ask("POST", path, "eve", content=rest[:step], headers=sizes)
        here_now += step
        assert (reply.status_code, reply.json()) == (200, {"received": here_now})
        # What is cut off is stored up to some byte, or not at all.
        more = f"Upload-Offset: {here_now}\r\nContent-Length: {len(rest) - step}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", place.port)) as client:
            client.sendall((head + more).encode() + rest[step : 2 * step])
        received = place.ask("GET", path, "eve").json()["received"]
        assert here_now <= received <= here_now + step
        here_now = received
        assert place.runs(name) == []
    assert place.ask("GET", f"/projects/{name}/-/edison", "vic").status_code == 200
    with cutting(place.port, after=10**9) as proxy:
        done = here.edison("push", proxy.address, env=place.env("eve"))
    assert (done.code, place.runs(name)) == (0, [run]), done.err
    assert sum(proxy.passed) < len(data) - here_now + 4_000  # the same run is the same bundle


@pytest.mark.nightly
@pytest.mark.parametrize("after", [0, 400, 9_000, 15_000])
def test_a_push_command_that_is_killed_is_finished_by_the_next(
    place: Place, here: Folder, after: int
) -> None:
    """Killed once so many bytes went to the site: the next push sends no run twice."""
    with cutting(place.port, after=10**9) as proxy:
        push = forked.Popen(
            [sys.executable, "-P", "-m", "edison_ci", "push", proxy.address],
            cwd=here.path,
            env={**os.environ, **place.env("eve")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        poll("it has sent enough", lambda: proxy.passed and sum(proxy.passed) >= after)
        push.kill()
        push.wait(timeout=PATIENCE_S)
    name, run = slug(here), run_of(here)
    pushed = []
    for _ in range(2):
        done = here.edison("push", place.address, "--json", env=place.env("eve"))
        assert done.code == 0, done.err
        pushed.append([each["run_id"] for each in json.loads(done.out)["runs"]])
        assert place.runs(name) == [run]
    # What was sent whole before the kill may be there already.
    assert pushed == [[run], []] or (after >= 9_000 and pushed == [[], []])
    there = place.root / "projects" / name / ".edison/results.db"
    assert contents(there) == contents(here.path / ".edison/results.db")
    assert [action for _, action in place.audit(name)].count("push runs") == 1


class BusySite(http.server.BaseHTTPRequestHandler):
    """Refuses each request a few times, and does not say for how long."""

    refusals = 0

    def do_GET(self) -> None:
        self._reply()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self._reply()

    def _reply(self) -> None:
        cls = type(self)
        cls.refusals = max(0, cls.refusals - 1)
        busy = cls.refusals > 0
        body = b'{"received": 0, "granted_microusd": 5}'
        self.send_response(429 if busy else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


class OddSite(http.server.BaseHTTPRequestHandler):
    """Answers requests by what a test says, and counts them."""

    replies: ClassVar[dict[str, Callable[[int], bytes]]] = {}
    """By the end of the path: the body of the reply to the n-th request."""
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        cls, path = type(self), self.path.partition("?")[0]
        cls.asked.append(path)
        end = next(end for end in cls.replies if path.endswith(end))
        body = cls.replies[end](sum(one.endswith(end) for one in cls.asked))
        self.send_response(200)
        self.send_header("etag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


@contextmanager
def odd_site(folder: Folder, replies: dict[str, Callable[[int], bytes]]) -> Iterator[Remote]:
    """Yield a site that answers as a test says; it describes itself as sites do."""
    told = {"results_version": len(migrations()), "push_limit_bytes": 10**9, "part_bytes": 10**6}
    OddSite.asked.clear()
    OddSite.replies = {"/transfer": lambda _: json.dumps(told).encode(), **replies}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), OddSite) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with httpx.Client(trust_env=False) as client:
            address = f"http://127.0.0.1:{server.server_port}"
            yield Remote(open_site(folder.path), address, client, lambda _: None)
        server.shutdown()


def page(*runs: str, after: str | None = None) -> bytes:
    listed = [{"run_id": run, "trusted": True} for run in runs]
    return json.dumps({"runs": listed, "next": after}).encode()


def test_a_site_that_sends_another_run_changes_nothing(here: Folder, tmp_path: Path) -> None:
    """What was asked for is compared with what came before anything is stored."""
    other, asked = bundle_of(here, tmp_path / "b.zip").read_bytes(), "20260101T000000-abcd"
    there = elsewhere(here, tmp_path / "there").site
    replies = {"/runs": lambda _: page(asked), f"/runs/{asked}": lambda _: other}
    with (
        odd_site(Folder(there.root), replies) as remote,
        pytest.raises(UsageError, match=f"it is not run {asked}"),
    ):
        list(pull(remote, [], lambda _: None))
    with opened(there.results) as connection:
        assert connection.execute("select count(*) from run").fetchone() == (0,)
        assert connection.execute("select count(*) from answer").fetchone() == (0,)
        assert connection.execute("select count(*) from booked").fetchone() == (0,)
        assert connection.execute("select action from audit").fetchall() == [
            ("refused: pull runs",)
        ]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (lambda number: page(f"run-{number}", after=f"run-{number}"), "does not end within 200"),
        (lambda _: page("run", after="run"), "does not end within 200"),
        (lambda _: b'{"runs": [{"run_id": "run"}], "next": null}', "no list of runs"),
        (lambda _: b'{"runs": 7, "next": null}', "no list of runs"),
        (lambda _: b"{}", "no list of runs"),
    ],
)
def test_a_list_of_runs_has_an_end(here: Folder, reply: Callable[[int], bytes], why: str) -> None:
    with odd_site(here, {"/runs": reply}) as remote, pytest.raises(UsageError, match=why):
        list(pull(remote, [], lambda _: None))
    assert len(OddSite.asked) <= 1 + 200


@pytest.mark.parametrize("numbers", ["0", "-1", "1e9", '"x"', "01", "0123456789" * 10])
def test_a_site_that_keeps_nothing_of_a_push_is_given_up(here: Folder, numbers: str) -> None:
    """Also one that loses what it had, again and again."""
    cycle = numbers if numbers.isdecimal() else [numbers]

    def received(number: int) -> bytes:
        if number > 90:  # so that the test ends
            return b"{}"
        return b'{"received": %s}' % str(cycle[number % len(cycle)]).encode()

    with (
        odd_site(here, {"/runs": lambda _: page(), "": received}) as remote,
        pytest.raises((DeliveryError, UsageError), match=r"keeps no more of it|no valid received"),
    ):
        list(push(remote, [], lambda _: None))
    assert len(OddSite.asked) < 80


def test_a_site_that_is_busy_is_asked_again_later_also_if_it_names_no_time(here: Folder) -> None:
    """Sites count requests by the minute, so a push waits longer than for a broken connection."""
    site = open_site(here.path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), BusySite) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address, waits = f"http://127.0.0.1:{server.server_port}", list[float]()
        with httpx.Client(trust_env=False) as client:
            remote = Remote(site, address, client, waits.append)
            BusySite.refusals = 4
            assert remote.describe() is not None
            assert waits == [15.0] * 3
            BusySite.refusals = 100
            with pytest.raises(DeliveryError, match="HTTP 429"):
                remote.describe()
            assert sum(waits) > 60 + 45, "longer than a site counts"
        leased = SiteClient(address, {})
        BusySite.refusals = 3
        found = asyncio.run(_send(leased, "/budget/leases/x", {}, PATIENCE_S))
        assert found["granted_microusd"] == 5
        server.shutdown()


@pytest.mark.nightly
def test_the_team_that_pays_is_that_of_the_sites_file(own_place: Place) -> None:
    """What a machine says of its team counts only for a project that the site does not have."""
    place = own_place
    with (place.root / "edison.yaml").open("a") as file:
        file.write("limits: {teams: {support: 0.5, sales: 9}}\n")
    (place.root / "projects" / "shop").mkdir()
    text = "version: 1\nproject: shop\nteam: support\n"
    (place.root / "projects" / "shop" / "edison.yaml").write_text(text)
    place.start()
    api = "/-/edison/api/v1/budget"
    used = []
    for number, project in enumerate(("shop", "elsewhere")):
        body = {"project": project, "team": "sales", "spent_microusd": 0, "needs_microusd": 1_000}
        path = f"{api}/leases/{str(number) * 32}"
        reply = place.ask("POST", path, "eve", json=body)
        assert reply.status_code == 200, reply.text
        limits = place.ask("GET", api, "eve").json()["limits"]
        used.append({each["of"]: each["used_microusd"] > 0 for each in limits})
    assert used == [{"support": True, "sales": False}, {"support": True, "sales": True}]
    # More than its own team has is refused, whatever team is named.
    body["needs_microusd"] = 600_000
    reply = place.ask("POST", f"{api}/leases/{'2' * 32}", "eve", json={**body, "project": "shop"})
    assert (reply.status_code, reply.json()["error"]["limit"]) == (409, "limits.teams.support")
    place.kill()


@pytest.mark.nightly
def test_a_site_that_is_killed_has_a_run_whole_or_not(
    own_place: Place, tmp_path: Path, measured: Folder
) -> None:
    place = own_place
    place.start()
    for number, delay_s in enumerate((0.0, 0.05, 0.2)):
        here = with_run(measured, tmp_path / f"here-{number}", f"killed-{number}")
        kill_at_a_push(place, here, delay_s)
        done = here.edison("push", place.address, env=place.env("eve"))
        name, run = slug(here), run_of(here)
        assert (done.code, place.runs(name)) == (0, [run]), done.err
        there = place.root / "projects" / name / ".edison/results.db"
        assert contents(there) == contents(here.path / ".edison/results.db")
    place.kill()


def kill_at_a_push(place: Place, here: Folder, delay_s: float) -> None:
    """Kill a site a while after it began to receive a run, and start it again."""
    name, run = slug(here), run_of(here)
    place.ask("POST", "/-/edison/api/transfer/projects", "eve", data={"project": name})
    place.ask("GET", f"/projects/{name}/-/edison", "eve")
    data = bundle_of(here, here.path / "b.zip").read_bytes()
    path = f"/projects/{name}/-/edison/api/transfer/uploads/{hashlib.sha256(data).hexdigest()}"
    headers = {"upload-offset": "0", "upload-length": str(len(data))}

    def send() -> None:
        with suppress(httpx.HTTPError):
            place.ask("POST", path, "eve", content=data, headers=headers)

    sender = threading.Thread(target=send)
    sender.start()
    sender.join(delay_s)
    place.kill()
    sender.join(PATIENCE_S)
    assert place.runs(name) in ([], [run])
    place.start()


@pytest.mark.nightly
def test_a_pull_that_is_cut_goes_on(place: Place, here: Folder, tmp_path: Path) -> None:
    """The bytes that came stay, also when the command is killed; the next one asks for the rest."""
    name, run = slug(here), run_of(here)
    assert here.edison("push", place.address, env=place.env("eve")).code == 0
    path = f"/projects/{name}/-/edison/api/transfer/runs/{run}"
    whole = place.ask("GET", path, "vic")
    assert whole.headers["etag"].strip('"') == hashlib.sha256(whole.content).hexdigest()
    other = project(tmp_path / "other", name)
    left = other.path / ".edison/transfer" / f"{hashlib.sha256(run.encode()).hexdigest()[:24]}.pull"
    left.parent.mkdir(parents=True)
    left.write_bytes(whole.content[:70_001])
    left.with_suffix(".etag").write_text(whole.headers["etag"].strip('"'))
    done = other.edison("pull", place.address, env=place.env("vic"))
    assert (done.code, done.out.split()[:2]) == (0, ["pulled", run]), done.err
    there = place.root / "projects" / name / ".edison/results.db"
    assert contents(other.path / ".edison/results.db") == contents(there)
    rest = place.ask(
        "GET", path, "vic", headers={"range": "bytes=70001-", "if-range": whole.headers["etag"]}
    )
    assert (rest.status_code, rest.content) == (206, whole.content[70_001:])
    stale = place.ask("GET", path, "vic", headers={"range": "bytes=9-", "if-range": '"other"'})
    assert (stale.status_code, stale.content) == (200, whole.content)
    # Bytes of another bundle are noticed by their checksum, and fetched again.
    fresh = project(tmp_path / "fresh", name)
    left = fresh.path / ".edison/transfer" / left.name
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x" * 1_000)
    left.with_suffix(".etag").write_text(whole.headers["etag"].strip('"'))
    assert fresh.edison("pull", place.address, env=place.env("vic")).code == 0
    assert not left.exists()


def two_at_once(place: Place, folder: Folder, word: str) -> list[forked.Popen]:
    command = [sys.executable, "-P", "-m", "edison_ci", word, place.address, "--json"]
    return [
        forked.Popen(
            command,
            cwd=folder.path,
            env={**os.environ, **place.env("eve")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]


@pytest.mark.nightly
def test_two_pushes_at_once_are_one_run_while_pages_are_read(place: Place, here: Folder) -> None:
    name = slug(here)
    place.ask("POST", "/-/edison/api/transfer/projects", "eve", data={"project": name})
    both = two_at_once(place, here, "push")
    while any(each.poll() is None for each in both):
        assert place.ask("GET", f"/projects/{name}/-/edison", "vic").status_code == 200
    told = [each.communicate(timeout=PATIENCE_S) for each in both]
    assert [each.returncode for each in both] == [0, 0], told
    new = [run["new"] for out, _ in told for run in json.loads(out)["runs"]]
    assert new.count(True) == 1
    assert place.runs(name) == [run_of(here)]


@pytest.mark.nightly
def test_two_pulls_at_once_are_one_run(place: Place, here: Folder, tmp_path: Path) -> None:
    assert here.edison("push", place.address, env=place.env("eve")).code == 0
    there = project(tmp_path / "other", slug(here))
    locks = there.path / ".edison/locks"
    with try_lock(locks, "pull"):
        both = two_at_once(place, there, "pull")
        said = [each.stderr.readline() for each in both if each.stderr]
    assert [line.partition(": ")[2] for line in said] == [
        "another process fetches runs here; waiting for it\n"
    ] * 2
    told = [each.communicate(timeout=PATIENCE_S) for each in both]
    assert [each.returncode for each in both] == [0, 0], told
    assert sorted(len(json.loads(out)["runs"]) for out, _ in told) == [0, 1]


# --- what is refused ------------------------------------------------------------------------------


@pytest.fixture
def uploads(here: Folder, tmp_path: Path) -> Uploads:
    return elsewhere(here, tmp_path / "there")


def elsewhere(here: Folder, path: Path) -> Uploads:
    """Return the uploads of the same project on another machine."""
    there = project(path, slug(here))
    there.write(".edison/trust.yaml", TRUST)
    site = open_site(there.path)
    open_database(site.results).close()
    return Uploads(site, 50_000_000, EVE)


EVE = Actor(Identity("token", login="eve"), Role.EDITOR)


def sent(uploads: Uploads, data: bytes, name: str = "") -> Any:
    name = name or hashlib.sha256(data).hexdigest()
    uploads.add(name, uploads.received(name), len(data), data)
    return uploads.finish(name)


def files_of(bundle: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(bundle) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_files(bundle: Path, files: dict[str, bytes]) -> bytes:
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return bundle.read_bytes()


def changed(bundle: Path, manifest: dict[str, Any], *, drop: str = "", runs: str = "") -> bytes:
    """Return a bundle with another manifest, without one of its files, or with other results."""
    files = {name: data for name, data in files_of(bundle).items() if name != drop}
    told = {**json.loads(files["manifest.json"]), **manifest}
    if runs:
        inner = bundle.with_suffix(".db")
        inner.write_bytes(files["results.db"])
        with opened(inner) as connection:
            connection.execute(runs)
        files["results.db"] = inner.read_bytes()
        sha256 = hashlib.sha256(files["results.db"]).hexdigest()
        told["files"][0] |= {"size_bytes": len(files["results.db"]), "sha256": sha256}
    told = {key: value for key, value in told.items() if value is not None}
    files["manifest.json"] = json.dumps(told).encode()
    return write_files(bundle, files)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"manifest": {"project": "other"}}, "its signature does not fit"),
        ({"manifest": {}, "drop": "manifest.json.sig"}, "its signature does not fit"),
        ({"manifest": {"public_key": None}}, "its signature does not fit"),
        ({"manifest": {"public_key": 7}}, "its signature does not fit"),
        ({"manifest": {"public_key": STRANGER.public}}, "its signature does not fit"),
        ({"manifest": {}, "runs": "update cell set composite = 1.0"}, "its signature does not fit"),
        (
            {"manifest": {"project": "x", "public_key": None}, "drop": "manifest.json.sig"},
            "it is not of the project",
        ),
        (
            {
                "manifest": {"public_key": None},
                "drop": "manifest.json.sig",
                "runs": "update run set status = 'PAUSED'",
            },
            "has not ended",
        ),
        (
            {
                "manifest": {"public_key": None},
                "drop": "manifest.json.sig",
                "runs": "update run set status = 'EXECUTING'",
            },
            "a run has not ended",
        ),
    ],
)
def test_a_forged_bundle_is_refused_whole(
    monkeypatch: pytest.MonkeyPatch,
    here: Folder,
    uploads: Uploads,
    tmp_path: Path,
    change: dict[str, Any],
    why: str,
) -> None:
    monkeypatch.setenv("EDISON_SIGNING_KEY", KEYS.private)
    data = changed(bundle_of(here, tmp_path / "b.zip"), **change)
    with pytest.raises(UploadRefused) as refused:
        sent(uploads, data)
    assert (refused.value.status, why in refused.value.message) == (422, True), refused.value
    assert str(tmp_path) not in refused.value.message
    assert uploads.received(hashlib.sha256(data).hexdigest()) == 0
    with opened(uploads.site.results) as connection:
        assert connection.execute("select count(*) from run").fetchone() == (0,)
        (row,) = connection.execute("select actor, action, after from audit")
        assert row[:2] == ("eve", "refused: push runs")
        assert why in row[2]


def test_a_signature_is_read_in_one_spelling_only(
    monkeypatch: pytest.MonkeyPatch, here: Folder, uploads: Uploads, tmp_path: Path
) -> None:
    monkeypatch.setenv("EDISON_SIGNING_KEY", KEYS.private)
    bundle = bundle_of(here, tmp_path / "b.zip")
    files = files_of(bundle)
    signature = files["manifest.json.sig"].decode()
    arrival = Arrival("push", "a bundle", EVE, (KEYS.public,))
    for text in (*same_bytes(signature), ""):
        write_files(bundle, {**files, "manifest.json.sig": text.encode()})
        with pytest.raises(UsageError, match="its signature does not fit"):
            import_bundle(uploads.site, bundle, dry_run=True, arrival=arrival)
    write_files(bundle, files)
    assert import_bundle(uploads.site, bundle, dry_run=True, arrival=arrival).trusted


def test_a_key_signs_a_bundle_in_one_spelling_only(
    monkeypatch: pytest.MonkeyPatch, here: Folder, uploads: Uploads, tmp_path: Path
) -> None:
    """A run is trusted by the text of its key: another text would be another key."""
    monkeypatch.setenv("EDISON_SIGNING_KEY", KEYS.private)
    bundle = bundle_of(here, tmp_path / "b.zip")
    files = files_of(bundle)
    told = json.loads(files["manifest.json"])
    for key in same_bytes(KEYS.public):
        manifest = json.dumps({**told, "public_key": key}).encode()
        digest = hashlib.sha256(manifest).digest()
        signed = Signer(KEYS.private).sign(b"edison-ci bundle 1\n", digest)
        signature = signed.signature.encode()
        write_files(bundle, {**files, "manifest.json": manifest, "manifest.json.sig": signature})
        with pytest.raises(UsageError, match="its signature does not fit"):
            import_bundle(uploads.site, bundle, dry_run=True)


@pytest.mark.nightly
def test_a_signature_is_worth_what_the_key_is(
    monkeypatch: pytest.MonkeyPatch, here: Folder, tmp_path: Path
) -> None:
    plain = bundle_of(here, tmp_path / "plain.zip").read_bytes()
    monkeypatch.setenv("EDISON_SIGNING_KEY", STRANGER.private)
    foreign = bundle_of(here, tmp_path / "foreign.zip").read_bytes()
    monkeypatch.setenv("EDISON_SIGNING_KEY", KEYS.private)
    own = bundle_of(here, tmp_path / "own.zip").read_bytes()
    assert own == bundle_of(here, tmp_path / "again.zip").read_bytes()
    found = []
    for number, data in enumerate((plain, foreign, own)):
        taken = sent(elsewhere(here, tmp_path / str(number)), data)
        found.append((bool(taken.new), taken.signed_by is not None, taken.trusted))
    assert found == [(True, False, False), (True, True, False), (True, True, True)]


def test_bytes_that_do_not_fit_are_refused(here: Folder, uploads: Uploads, tmp_path: Path) -> None:
    data = bundle_of(here, tmp_path / "b.zip").read_bytes()
    name = hashlib.sha256(data).hexdigest()
    with pytest.raises(UploadRefused, match="its bytes differ from its name"):
        sent(uploads, data, "0" * 64)
    with pytest.raises(UploadRefused, match="is not a valid bundle"):
        sent(uploads, data[:-30])
    for odd in ("../../evil", "A" * 64, "x"):
        with pytest.raises(UploadRefused, match="named by its SHA-256"):
            uploads.add(odd, 0, 1, b"x")
    assert uploads.add(name, 0, len(data), data[:10]) == 10
    for offset, more in ((0, b"x"), (11, b"x"), (10, data)):
        with pytest.raises(UploadRefused) as refused:
            uploads.add(name, offset, len(data), more)
        assert (refused.value.status, refused.value.received) == (409, 10)
    with pytest.raises(UploadRefused, match="this site accepts 50,000,000") as large:
        uploads.add(name, 10, 50_000_001, b"x")
    assert large.value.status == 413
    for number in range(MOST_OPEN - 1):
        uploads.add(f"{number:064x}", 0, 9, b"x")
    with pytest.raises(UploadRefused, match="20 other bundles of yours are being pushed"):
        uploads.add("f" * 64, 0, 9, b"x")
    ned = replace(uploads, actor=Actor(Identity("token", login="ned"), Role.EDITOR))
    assert ned.received(name) == 0
    assert ned.add(name, 0, len(data), data) == len(data)
    assert len(ned.finish(name).new) == 1, "a member who leaves pushes unfinished stops no other"


def bomb_of(bundle: Path) -> bytes:
    """Return a bundle whose results are 200 MB of nothing."""
    files = files_of(bundle)
    return write_files(bundle.with_suffix(".bomb"), {**files, "results.db": bytes(200_000_000)})


@pytest.mark.nightly
def test_no_push_of_a_stranger_changes_a_site(place: Place, here: Folder, tmp_path: Path) -> None:
    """Of no member, of a viewer, into other projects, cut off, too large, and with odd lengths."""
    name, run = slug(here), run_of(here)
    assert here.edison("push", place.address, env=place.env("eve")).code == 0
    closed = project(place.root / "projects" / f"closed-{name}", f"closed-{name}")
    closed.edit(
        "edison.yaml", "description:", "members: [{github: ann, role: owner}]\ndescription:"
    )
    bundle = bundle_of(here, tmp_path / "b.zip")
    data, bomb = bundle.read_bytes(), bomb_of(bundle)
    foreign = changed(bundle, {"project": "other"})
    place.tokens |= {"nobody": "edison_token_x"}
    uploads = f"/projects/{name}/-/edison/api/transfer/uploads"

    def push(
        who: str, sent: bytes, base: str = uploads, named: str = "", **headers: str
    ) -> tuple[int, str]:
        sha256 = named or hashlib.sha256(sent).hexdigest()
        told = {"upload-offset": "0", "upload-length": str(len(sent))}
        told |= {key.replace("_", "-"): value for key, value in headers.items()}
        reply = place.ask("POST", f"{base}/{sha256}", who, content=sent, headers=told)
        return reply.status_code, reply.text

    def cut_off() -> tuple[int, str]:
        head = f"POST {uploads}/{'c' * 64} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        head += f"Authorization: Bearer {place.tokens['eve']}\r\nUpload-Offset: 0\r\n"
        head += f"Upload-Length: {len(data)}\r\nContent-Length: {len(data)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", place.port)) as client:
            client.sendall(head.encode() + data[:1_000])
        received = place.ask("GET", f"{uploads}/{'c' * 64}", "eve").json()["received"]
        return (200, "cut") if received <= 1_000 else (0, str(received))

    there = place.root / "projects" / name / ".edison"
    before = contents(there / "results.db")
    attacks: dict[str, tuple[int, str]] = {
        "without a token": push("eve", data, authorization="Basic eve"),
        "with a token of nobody": push("nobody", data),
        "as a viewer": push("vic", data),
        "as a viewer, of a bomb": push("vic", bomb),
        "into a project of others": push("eve", data, uploads.replace(name, f"closed-{name}")),
        "into no project": push("eve", data, uploads.replace(name, "nowhere")),
        "into a folder above": push("eve", data, uploads.replace(name, "..%2f" + name)),
        "into the site itself": push("eve", data, "/-/edison/api/transfer/uploads"),
        "under a name with a path": push("eve", data, named="..%2f..%2fedison.yaml"),
        "under another name": push("eve", data, named="d" * 64),
        "of another project": push("eve", foreign),
        "of a bomb": push("eve", bomb),
        "of half a bundle": push("eve", data[: len(data) // 2]),
        "of no bytes": push("eve", b""),
        "packed once more": push("eve", zlib.compress(data), content_encoding="deflate"),
        "from a byte that is not there": push("eve", data, upload_offset="7"),
        "longer than it says": push("eve", data, upload_length="9"),
        "of more than is accepted": push("eve", data, upload_length="999999999999"),
        "of a negative length": push("eve", data, upload_length="-1"),
        "of a length in other digits": push("eve", data, upload_length="1e9"),
        "of a part that is too long": push("eve", bytes(MOST_PART + 1)),
        "from the page of another site": push("eve", data, sec_fetch_site="cross-site"),
        "cut off": cut_off(),
    }
    allowed = {"cut off": (200,), "into a folder above": (302, 404)}
    for what, (status, text) in attacks.items():
        assert status in allowed.get(what, (400, 401, 403, 404, 409, 413, 422)), (what, status)
        assert str(place.root) not in text, what
    assert place.runs(name) == [run]
    assert contents(there / "results.db") == before
    assert not (closed.path / ".edison/transfer").exists()
    assert sum(path.stat().st_size for path in (there / "transfer").iterdir()) < 2_000
    assert [path.name for path in place.root.parent.iterdir()] == ["site"]
    refused = [action for _, action in place.audit(name) if action == "refused: push runs"]
    assert len(refused) > 5
    again = here.edison("push", place.address, run, env=place.env("eve"))
    assert (again.code, again.out) == (0, f"exists  {run}\n")


def test_a_full_disk_loses_nothing(here: Folder, uploads: Uploads, tmp_path: Path) -> None:
    data = bundle_of(here, tmp_path / "b.zip").read_bytes()
    name, before = hashlib.sha256(data).hexdigest(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(UploadRefused) as full:
            uploads.add(name, 0, len(data), data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (full.value.status, uploads.received(name)) == (507, 10_000)
    uploads.add(name, 10_000, len(data), data[10_000:])
    with opened(uploads.site.results) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    # Neither the place for unpacking nor the results have room.
    for room in (100_000, uploads.site.results.stat().st_size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            with pytest.raises(UploadRefused) as full:
                uploads.finish(name)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert (full.value.status, uploads.received(name)) == (507, len(data)), full.value
    assert len(uploads.finish(name).new) == 1


@pytest.mark.nightly
def test_a_site_refuses_what_it_does_not_accept(own_place: Place, here: Folder) -> None:
    place = own_place
    place.options = ()
    place.start()
    refused = here.edison("push", place.address, env=place.env("eve"))
    assert (refused.code, "this site accepts no runs" in refused.err) == (2, True)
    place.kill()
    place.options = ("--accept-push", "--push-limit", "1")
    place.start()
    with opened(here.path / ".edison/results.db") as connection:
        connection.execute("drop trigger if exists answer_text_is_kept")
        connection.execute(
            "update answer_text set text = ? where rowid = (select min(rowid) from answer_text)",
            (Random(1).randbytes(2_000_000).hex(),),
        )
    large = here.edison("push", place.address, env=place.env("eve"))
    assert (large.code, "accepts 1,000,000" in large.err) == (2, True), large.err
    path = f"/projects/{slug(here)}/-/edison/api/transfer/uploads/{'0' * 64}"
    head = {"upload-offset": "0", "upload-length": "1000001"}
    reply = place.ask("POST", path, "eve", content=b"x", headers=head)
    assert reply.status_code == 413
    assert reply.json()["error"]["hint"].endswith("raise --push-limit")
    assert ("eve", "refused: push runs") in place.audit(slug(here))
    place.kill()
