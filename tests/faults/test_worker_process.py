"""Workers as processes of their own: what they refuse, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import signal
import socketserver
import ssl
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from edison_ci.features.cluster.tls import issue_certificates, read_certificates
from tests import forked
from tests.conftest import ROOT
from tests.faults.stage import TONE_CHECK, copied, name_of, with_code, with_reasons
from tests.features.cluster.test_nodes import ask
from tests.loopback.script import rule
from tests.timing import PATIENCE_S, poll

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.faults.conftest import MakeStage
    from tests.faults.stage import Stage

pytestmark = pytest.mark.daily

pytest.importorskip("distributed")

KEY = "sk-0123456789abcdef-of-a-worker"
EDISON = ["-P", "-m", "edison_ci"]
OLDER = "import edison_ci; edison_ci.__version__ = '0.0.9'; "
AHEAD = "import time; real = time.time; time.time = lambda: real() + 3600; "
MAIN = "import sys; sys.argv[0] = 'edison'; from edison_ci.__main__ import main; main()"


Refuse: TypeAlias = "Callable[[socket.socket, ssl.SSLContext], None]"


@dataclass(eq=False)
class Part:
    """A scheduler or a worker."""

    process: subprocess.Popen[Any]
    err: Path

    @property
    def said(self) -> str:
        return self.err.read_text("utf-8")

    def until_it_says(self, text: str) -> None:
        poll(f"it says {text!r}", lambda: text in self.said)

    def ended(self) -> int:
        return self.process.wait(PATIENCE_S)


class Cluster:
    """A scheduler, workers in checkouts, and their certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.team = folder, folder / "team"
        issue_certificates(self.team, (), days=2)
        self.address = ""
        self._parts: list[Part] = []

    @property
    def variables(self) -> dict[str, str]:
        return {"EDISON_TLS": str(self.team)}

    def schedule(self) -> Part:
        """Start the scheduler, again at the same address."""
        part = self.start("worker", "scheduler", "--listen", self.address or "tls://127.0.0.1:0")
        self.address = first_line(part).split()[-1]
        return part

    def work(self, checkout: Path, *options: str, **given: Any) -> Part:
        """Start a worker."""
        return self.start("worker", "--connect", self.address, *options, cwd=checkout, **given)

    def start(
        self, *words: str, cwd: Path | None = None, code: str = "", key: str = "", **given: str
    ) -> Part:
        """Start a command; what else is given are variables."""
        err = self.folder / f"err-{len(self._parts)}"
        python = ["-P", "-c", code + MAIN] if code else EDISON
        variables = {**os.environ, **self.variables, **given}
        # What is changed before edison is imported cannot be forked.
        start = subprocess.Popen if code else forked.Popen
        with err.open("wb") as stream:
            process = start(
                [sys.executable, *python, *words],
                cwd=cwd or self.folder,
                env={**variables, **({"WORKER_KEY": key} if key else {})},
                stdout=subprocess.PIPE,
                stderr=stream,
            )
        self._parts.append(Part(process, err))
        return self._parts[-1]

    def close(self) -> None:
        for part in self._parts:
            if part.process.poll() is None:
                part.process.kill()
            part.ended()
            assert part.process.stdout is not None
            part.process.stdout.close()
            assert "Traceback" not in part.said
            assert KEY not in part.said


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with contextlib.closing(Cluster(folder)) as found:
        found.schedule()
        yield found


def first_line(part: Part) -> str:
    assert part.process.stdout is not None
    line: bytes = part.process.stdout.readline()
    assert line, part.said
    return line.decode().strip()


def keyed(stage: Stage) -> Path:
    """Let the models need a key, and return the folder of the project."""
    text = stage.folder.read("models.yaml")
    stage.folder.write("models.yaml", text.replace("model: ", "key_env: WORKER_KEY, model: "))
    stage.folder.write(
        ".edison/trust.yaml",
        f"version: 1\nkeys:\n  - {{env: WORKER_KEY, hosts: ['{stage.server.url}']}}\n",
    )
    return stage.folder.path


@pytest.mark.nightly
def test_a_worker_finishes_its_calls_at_sigterm(make_stage: MakeStage, cluster: Cluster) -> None:
    stage = make_stage(cases=40, concurrency=3)
    stage.script(rule(model="small-1", latency_s=0.5))
    expected = stage.undisturbed()
    checkout = keyed(stage)
    first, second = (cluster.work(checkout, key=KEY) for _ in range(2))
    first_line(second)
    assert first_line(first).endswith(f"is ready for runs of {cluster.address}")
    assert "calls small (WORKER_KEY)\ncalls judge (WORKER_KEY)\n" in first.said
    named = ("--tls", str(cluster.team))
    run = stage.start("run", "--on", cluster.address, *named, env={"EDISON_TLS": "/nowhere"})
    poll("both work", lambda: stage.server.in_flight > 3)
    first.process.send_signal(signal.SIGTERM)
    assert first.ended() == 0
    assert "ending: no new calls; " in first.said
    assert first.said.endswith("\nended\n")
    done = run.wait()
    assert done.code == 0, done.all
    assert " has left; 1 worker left" in done.err
    assert stage.results() == expected
    stage.check_settled(lost=0)
    second.until_it_says(": over, ")
    calls = len(stage.server.requests)
    again = stage.edison("run", "--on", cluster.address, *named)
    assert again.code == 0, again.all
    assert "  0 calls made, 80 reused" in again.out
    assert (stage.results(), len(stage.server.requests)) == (expected, calls)


@pytest.mark.nightly
def test_hostile_workers_of_the_team_change_no_run(make_stage: MakeStage, cluster: Cluster) -> None:
    stage = make_stage(cases=20, concurrency=6)
    expected = stage.undisturbed()
    first_line(cluster.work(keyed(stage), key=KEY))
    hostile = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.hostile_workers", cluster.address],
        env={**os.environ, **cluster.variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    with hostile:
        assert hostile.stdout is not None and hostile.stdout.readline() == b"ready\n"
        run = stage.start("run", "--on", cluster.address, env=cluster.variables)
        done = run.wait()
        hostile.communicate()
    assert done.code == 0, done.all
    assert stage.results() == expected
    stage.check_settled(lost=0)
    for name in ("bomb", "endless", "costly", "thief"):
        assert done.err.count(f"worker {name} was dropped: ") == 1, done.err
    assert done.err.count("worker leaving is gone") in (1, 2, 3)
    assert run.peak_mb < 1_000
    assert KEY not in done.all
    assert KEY.encode() not in stage.database.read_bytes()


@pytest.mark.nightly
def test_a_worker_that_does_not_fit_says_why(
    make_stage: MakeStage, cluster: Cluster, tmp_path: Path
) -> None:
    stage = make_stage(cases=2)
    checkout = keyed(stage)
    issue_certificates(tmp_path / "other", (), days=2)
    unfit = {
        cluster.work(checkout): "no model of this project can be called here: small needs "
        "WORKER_KEY, not set here; judge needs WORKER_KEY, not set here",
        cluster.work(checkout, key=KEY, code=AHEAD): "this machine cannot work here: its clock is "
        "3,600 seconds ahead of that of the scheduler; at most 60 s are allowed",
        cluster.work(
            checkout, key=KEY, EDISON_TLS=str(tmp_path / "other")
        ): "is not one of this team",
        cluster.start("worker", "--connect", "tcp://192.0.2.1:8786"): "is not encrypted",
        cluster.work(cluster.folder, key=KEY): "no edison.yaml",
        cluster.work(checkout, "--name", "a b", key=KEY): "'a b' is not a name for a worker",
    }
    for part, said in unfit.items():
        assert part.ended() == 2
        assert said in part.said
    run = stage.start("run", "--on", cluster.address, env=cluster.variables)
    run.until_it_says(f"none at {cluster.address} yet; waiting 60 s for one")
    older = cluster.work(checkout, key=KEY, code=OLDER)
    first_line(older)
    done = run.wait()
    assert done.code == 2
    assert "it has edison 0.0.9, the coordinator 0.1.0" in done.err
    assert stage.server.ledger_rows() == []


def test_a_coordinator_sends_no_key_elsewhere(make_stage: MakeStage, cluster: Cluster) -> None:
    """Its own files may allow what it likes: those of the worker decide."""
    stage, theirs = make_stage(cases=2), make_stage(cases=2)
    checkout = keyed(stage)
    worker = cluster.work(checkout, key=KEY)
    address = first_line(worker).split()[3]
    for message in (
        {"op": "run", "function": pickle.dumps(os.getpid)},
        {"op": "plugin-add", "plugin": pickle.dumps(os.getpid), "name": "x"},
        {"op": "upload_file", "filename": "x.py", "data": b"raise SystemExit"},
        {"op": "terminate"},
    ):
        assert asyncio.run(ask(address, read_certificates(cluster.team), **message)) is None
    for with_key in (True, False):
        theirs.models()
        if with_key:
            keyed(theirs)
        done = theirs.start("run", "--on", cluster.address, env=cluster.variables).wait()
        assert done.code == 2
        where = f"http://127.0.0.1:{theirs.server.url.rpartition(':')[2]}"
        why = (
            f"would send the key WORKER_KEY to {where}, which is not trusted"
            if with_key
            else f"is not in models.yaml here, and .edison/trust.yaml here does not name {where}"
        )
        worker.until_it_says(f"small is not called: model 'small' {why}")
        assert why in done.err
    assert theirs.server.requests == []
    assert stage.server.requests == []


def job_of_a_fork(folder: Path) -> dict[str, str]:
    """Return the variables of a job for a pull request, and let it be in a repository."""
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "theirs"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    sides = {
        name: {"sha": "1" * 40, "ref": name, "repo": {"id": at, "full_name": f"{at}/r"}}
        for at, name in enumerate(("head", "base"))
    }
    event = {
        "number": 7,
        "pull_request": {"number": 7, **sides},
        "repository": {"id": 1, "full_name": "1/r", "default_branch": "main"},
    }
    path = folder.parent / "event.json"
    path.write_text(json.dumps(event))
    return {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(path)}


@pytest.mark.nightly
def test_a_worker_runs_only_the_code_of_its_own_checkout(
    make_stage: MakeStage, cluster: Cluster, tmp_path: Path
) -> None:
    """It needs the flag, the same files, and trust in its own checkout."""
    stage = make_stage(cases=6)
    expected = with_code(stage)
    other, theirs = (copied(stage, tmp_path / name) for name in ("changed", "fork"))
    other.folder.write("checks/words.py", "LONG = 8\n")
    fork = job_of_a_fork(theirs.folder.path)
    allow, checkout = "--allow-code", stage.folder.path
    workers = {
        "allowed": cluster.work(checkout, allow, "--name", "allowed"),
        "plain": cluster.work(checkout, "--name", "plain"),
        "changed": cluster.work(other.folder.path, allow, "--name", "changed"),
        "fork": cluster.work(theirs.folder.path, allow, "--name", "fork", **fork),
    }
    for part in workers.values():
        first_line(part)
    assert f"\nruns {TONE_CHECK}\n" in workers["allowed"].said
    assert f"\nnot run {TONE_CHECK}: start it with --allow-code\n" in workers["plain"].said
    assert f"\nnot run {TONE_CHECK}: the base allows no code\n" in workers["fork"].said
    last = rule(model="small-1", contains=name_of(5), held=True)
    stage.script(last)
    run = stage.start("run", "--on", cluster.address, "--allow-code", env=cluster.variables)
    poll("checks are run", lambda: " run\n" in stage.edison("status", "latest").out)
    status = stage.edison("status", "latest").out
    reasons = {
        "plain": "code is not allowed at this worker",
        "fork": "code is not allowed at this worker",
        "changed": "its files are not those of the run",
    }
    for name, why in reasons.items():
        told = f"worker {name} does not run command python3 checks/grade.py: {why} (and 1 more)"
        assert told in status
        assert f": {TONE_CHECK} is not run: {why}\n" in workers[name].said
    assert "worker allowed does not run" not in status
    stage.server.release()
    done = run.wait()
    assert done.code == 0, done.all
    assert with_reasons(stage) == expected
    for name, part in workers.items():
        part.until_it_says(": over, ")
        assert (", 0 checks run\n" in part.said) == (name != "allowed")


@pytest.mark.nightly
def test_a_scheduler_that_vanishes_stops_no_run(make_stage: MakeStage, cluster: Cluster) -> None:
    stage = make_stage(cases=10, concurrency=2)
    stage.script(rule(model="small-1", contains=name_of(9), held=True))
    expected = stage.undisturbed()
    checkout = keyed(stage)
    worker = cluster.work(checkout, "--wait", "1", key=KEY)
    first_line(worker)
    run = stage.start("run", "--on", cluster.address, env=cluster.variables)
    poll("answers arrive", lambda: len(stage.server.ledger_rows()) > 2)
    kill_scheduler(cluster)
    worker.until_it_says("the scheduler is gone; runs that are served continue")
    run.until_it_says("the scheduler does not answer (")
    again = cluster.schedule()
    worker.until_it_says("the scheduler is back")
    run.until_it_says("the scheduler answers again")
    stage.server.release()
    done = run.wait()
    assert done.code == 0, done.all
    assert "; the run has 1 worker\n" in done.err
    assert stage.results() == expected
    stage.check_settled(lost=0)
    again.process.kill()
    assert worker.ended() == 3
    assert f"error: no scheduler answers at {cluster.address}: " in worker.said


def kill_scheduler(cluster: Cluster) -> None:
    scheduler = cluster._parts[0]
    scheduler.process.kill()
    scheduler.ended()


def greet_and_close(client: socket.socket, context: ssl.SSLContext) -> None:
    """Be a scheduler until something is asked, then refuse."""
    with context.wrap_socket(client, server_side=True) as stream:
        stream.sendall(b"x")
        stream.recv(1)


def greet_and_wait(client: socket.socket, context: ssl.SSLContext) -> None:
    """Answer nothing after the first byte, not even the end of TLS."""
    with context.wrap_socket(client, server_side=True) as stream:
        stream.sendall(b"x")
        while stream.recv(4_096):
            pass


def close_at_once(client: socket.socket, context: ssl.SSLContext) -> None:
    with context.wrap_socket(client, server_side=True):
        pass


def say_nothing(client: socket.socket, context: ssl.SSLContext) -> None:
    """Accept a connection, and no TLS."""
    del context
    while client.recv(4_096):
        pass


class NoScheduler(socketserver.ThreadingTCPServer):
    """Accepts connections with a certificate of the team, and refuses them in some way."""

    allow_reuse_address, daemon_threads, block_on_close = True, True, False


@contextlib.contextmanager
def refusing(team: Path, refuse: Refuse, port: int = 0) -> Iterator[str]:
    """Run a server that is no scheduler, and yield its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(team / "cert.pem", team / "key.pem")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                refuse(self.request, context)

    with NoScheduler(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"tls://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.nightly
@pytest.mark.parametrize("refuse", [greet_and_close, greet_and_wait, close_at_once, say_nothing])
def test_a_worker_that_no_scheduler_takes_ends(
    make_stage: MakeStage, cluster: Cluster, refuse: Refuse
) -> None:
    """Whatever is refused of TLS, or after it: it does not ask for ever."""
    checkout = keyed(make_stage(cases=1))
    with refusing(cluster.team, refuse) as cluster.address:
        worker = cluster.work(checkout, "--wait", "1", key=KEY)
        assert worker.ended() == 3, worker.said
    assert f" {cluster.address}" in worker.said.splitlines()[-2]


@pytest.mark.nightly
def test_a_worker_that_is_not_taken_again_ends(make_stage: MakeStage, cluster: Cluster) -> None:
    """Something else listens in the place of its scheduler, with a certificate of the team."""
    worker = cluster.work(keyed(make_stage(cases=1)), "--wait", "1", key=KEY)
    first_line(worker)
    kill_scheduler(cluster)
    with refusing(cluster.team, greet_and_close, int(cluster.address.rpartition(":")[2])):
        assert worker.ended() == 3, worker.said
    assert "the scheduler is gone; runs that are served continue" in worker.said


def test_a_second_signal_aborts(make_stage: MakeStage, cluster: Cluster) -> None:
    stage = make_stage(cases=2)
    stage.script(rule(model="small-1", latency_s=PATIENCE_S))
    worker = cluster.work(keyed(stage), key=KEY)
    first_line(worker)
    run = stage.start("run", "--on", cluster.address, env=cluster.variables)
    poll("calls are made", lambda: stage.server.in_flight)
    worker.process.send_signal(signal.SIGTERM)
    worker.until_it_says("ending: no new calls; 2 calls in flight, at most 60 s")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ended() == 130
    assert "aborted with 2 calls in flight" in worker.said
    run.until_it_says("2 calls of it will be asked again")
    run.until_it_says("none can call small and judge; the run waits for one")
    run.send(signal.SIGINT)
    done = run.wait()
    assert done.code == 130
    assert "\n  lost calls " in done.out and "judging" not in done.out
