"""Checkouts share answers: none is bought twice, and none that is not signed decides anything."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.documents.signatures import Signer
from edison_ci.providers import shared_cache
from tests.cache_server import CacheServer, Server
from tests.conftest import Folder
from tests.e2e.acting import CASES, EXPERIMENT, GOOD, IGNORE, PROMPT, TRUST
from tests.features.github.commands.test_github_run import Job, job
from tests.fixed_keys import signing_keys
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.opened import opened
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from edison_ci.documents.signatures import KeyPair
    from tests.cache_server import Handler
    from tests.cli.conftest import Edison

pytestmark = pytest.mark.daily

__all__ = ["job"]

WELCOME = "Welcome, dear friend."
RUBRIC = (
    "rubric: tone\ncriteria:\n"
    "  - {name: Warmth, description: Sounds friendly and warm., weight: 0.5}\n"
    "  - {name: Brevity, description: One short sentence only., weight: 0.5}\n"
)
SCORES = {name: {"score": 4, "reason": "fine"} for name in ("Warmth", "Brevity")}
JUDGED = "rubric: rubrics/tone.yaml\njudges: {pointwise: [judge]}\nrepeats: 2\n"
MODELS = """\
small: {{provider: openai_compatible, model: m, base_url: "{url}", price: {{in: 1, out: 2}}}}
judge: {{provider: openai_compatible, model: j, base_url: "{url}", price: {{in: 1, out: 2}}}}
"""
NAMES = 6
ANSWERS = 2 * NAMES
"""Two repeats of each case."""
CALLS = ANSWERS + NAMES
"""The judge reads the same text twice."""


class Team:
    """A repository, its checkouts, a model and a shared cache."""

    def __init__(self, scratch: Path, model: LoopbackServer, cache: CacheServer) -> None:
        self.model, self.cache, self._scratch = model, cache, scratch
        self.pair = signing_keys("team")
        self.origin = Folder(scratch / "origin")
        self.origin.path.mkdir()
        write = self.origin.write
        write("edison.yaml", "version: 1\nproject: team\ncache: {url_env: ANSWERS_URL}\n")
        write("models.yaml", MODELS.format(url=model.openai_url))
        write("prompts/hello.md", PROMPT.format(text=GOOD))
        write("rubrics/tone.yaml", RUBRIC)
        gate = "gates:\n  - {metric: composite, at_least: 30%}\n"
        write("experiments/hello.yaml", EXPERIMENT.partition("gates:")[0] + JUDGED + gate)
        write(
            "datasets/names.jsonl",
            "".join(f'{{"id": "c{n}", "name": "N{n}"}}\n' for n in range(NAMES)),
        )
        write(".edison/trust.yaml", f"results: {{public_keys: [{self.pair.public}]}}\n")
        write(".gitignore", IGNORE)
        self.origin.git("init", "--quiet", "--initial-branch=main")
        self.commit()

    def commit(self) -> None:
        self.origin.git("add", "--all")
        self.origin.git("commit", "--quiet", "--message", "change")

    def checkout(self, name: str) -> Folder:
        self.origin.git("clone", "--quiet", str(self.origin.path), str(self._scratch / name))
        return Folder(self._scratch / name)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the cache more time than it has in a run: this machine may be busy."""
    for limit in ("READ_S", "WRITE_S", "FLUSH_S"):
        monkeypatch.setattr(shared_cache, limit, PATIENCE_S)


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    with LoopbackServer() as model, CacheServer() as cache:
        model.script[:] = [
            rule(model="j", text=json.dumps({"scores": SCORES, "flags": []})),
            rule(text=WELCOME),
        ]
        found = Team(tmp_path, model, cache)
        monkeypatch.setenv("ANSWERS_URL", cache.url)
        monkeypatch.setenv("EDISON_SIGNING_KEY", found.pair.private)
        yield found


def run(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "run", "--json", *args)
    found: dict[str, Any] = json.loads(done.out)["runs"][0]
    return {**found, "told": done.err}


def filled(team: Team, edison: Edison) -> None:
    """Let a first checkout fill the cache, and count calls from there."""
    found = run(edison, team.checkout("first"))
    assert (found["calls"]["made"], found["verdict"]) == (CALLS, "pass"), found["told"]
    assert team.model.chats == len(team.cache.objects) == CALLS
    team.model.chats = 0
    team.cache.seen.clear()


def test_a_second_checkout_makes_no_call(team: Team, edison: Edison) -> None:
    filled(team, edison)
    second = team.checkout("second")
    found = run(edison, second)
    assert (team.model.chats, found["verdict"]) == (0, "pass"), found["told"]
    calls = {"made": 0, "reused": CALLS, "shared": CALLS}
    assert found["calls"] == calls | {"retried": 0, "unknown": 0, "estimated": 0}
    assert (found["cost_microusd"], team.cache.count("PUT")) == (0, 0)
    with opened(second.path / ".edison/results.db") as results:
        texts = results.execute("select count(distinct request_hash) from answer").fetchone()
        assert texts == (CALLS,), "repeats stay distinct"
        costs = results.execute("select min(cost_microusd), sum(cost_microusd) from answer")
        assert costs.fetchone() == (21, team.model.ledger_total()), "as they were bought"
    assert edison(second, "admin", "db", "check").code == 0
    shown = edison(team.checkout("third"), "run").out
    assert f"{CALLS} answers from the shared cache\n  0 calls made, {CALLS} reused" in shown
    team.cache.seen.clear()
    assert run(edison, second)["calls"]["shared"] == 0, "they are stored here by now"
    assert team.cache.seen == []


def test_the_server_of_python_serves_what_was_written(
    team: Team, edison: Edison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no PUT, and knows nothing of the type of the files."""
    filled(team, edison)
    folder = tmp_path / "files"
    folder.mkdir()
    for name, data in team.cache.objects.items():
        (folder / name).write_bytes(data)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("ANSWERS_URL", f"http://127.0.0.1:{server.server_port}")
        found = run(edison, team.checkout("second"))
        assert (team.model.chats, found["calls"]["shared"]) == (0, CALLS)
        (team.origin.path / "prompts/hello.md").write_text(PROMPT.format(text="Say hello."))
        team.commit()
        found = run(edison, team.checkout("third"))
        server.shutdown()
    assert (team.model.chats, found["verdict"]) == (ANSWERS, "pass"), "judges read the same"
    assert "is no longer written to" in found["told"]


def unsigned(data: bytes) -> bytes:
    body = data.partition(b"\n")[2]
    return f"edison-answer 1 unsigned {hashlib.sha256(body).hexdigest()}\n".encode() + body


def poisoned(data: bytes) -> bytes:
    return data.replace(WELCOME.encode(), b"Welcome, you fool. ")


def test_objects_that_were_tampered_with_are_refused(team: Team, edison: Edison) -> None:
    filled(team, edison)
    names = sorted(team.cache.objects)
    good = dict(team.cache.objects)
    team.cache.objects = {
        name: [
            poisoned(data) if WELCOME.encode() in data else data + b" ",
            data[: len(data) // 2],
            data[:10],
            data[: data.index(b"\n") + 1],
            good[names[names.index(name) - 1]],
            data.replace(b'"created_at":"20', b'"created_at":"30'),
        ][place % 6]
        for place, (name, data) in enumerate(sorted(good.items()))
    }
    found = run(edison, team.checkout("second"))
    assert (team.model.chats, found["verdict"], found["calls"]["shared"]) == (CALLS, "pass", 0)
    assert f"{CALLS} objects of the shared cache refused: one " in found["told"]
    assert {*team.cache.objects} == {*good}, "and better ones were written"
    assert run(edison, team.checkout("third"))["calls"]["shared"] == CALLS


@pytest.mark.parametrize("whose", ["another key", "no key"])
def test_answers_of_others_decide_nothing(
    team: Team, edison: Edison, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    other, mine = signing_keys("theirs"), team.pair
    filled(team, edison)
    if whose == "no key":
        team.cache.objects = {n: unsigned(poisoned(d)) for n, d in team.cache.objects.items()}
    else:
        trust(team, other)
        team.cache.objects.clear()
        monkeypatch.setenv("EDISON_SIGNING_KEY", other.private)
        run(edison, team.checkout("theirs"))
        assert len(team.cache.objects) == CALLS
        trust(team, mine)
        monkeypatch.setenv("EDISON_SIGNING_KEY", mine.private)
    team.model.chats = 0
    second = team.checkout("second")
    found = run(edison, second)
    judged = NAMES if whose == "no key" else 0  # the judge reads the poison for the first time
    assert (team.model.chats, found["verdict"]) == (judged, "inconclusive"), found["told"]
    said = "Answers come from the shared cache without a signature that is trusted here."
    assert said in edison(second, "run").out, "each time, as they are never stored for reuse"
    regraded = json.loads(edison(second, "regrade", "latest", "--json").out)
    assert regraded["runs"][0]["verdict"] == "inconclusive", "however often it is graded"

    team.origin.edit("edison.yaml", "ANSWERS_URL", "ANSWERS_URL, unsigned: ignore")
    team.commit()
    found = run(edison, team.checkout("third"))
    assert (found["calls"]["made"], found["verdict"], found["calls"]["shared"]) == (
        CALLS,
        "pass",
        0,
    )


def trust(team: Team, pair: KeyPair) -> None:
    team.origin.write(".edison/trust.yaml", f"results: {{public_keys: [{pair.public}]}}\n")
    team.commit()


def aged(team: Team, name: str, days: int) -> None:
    """Make an object older, with a signature that fits."""
    body = team.cache.objects[name].partition(b"\n")[2]
    day = re.search(rb'"created_at":"(\d{4})', body)
    assert day is not None
    body = body.replace(day[0], b'"created_at":"%d' % (int(day[1]) - days // 365))
    digest = hashlib.sha256(body).digest()
    signed = Signer(team.pair.private).sign(b"edison-ci answer 1\n", digest)
    head = f"edison-answer 1 ed25519 {signed.public} {signed.signature}\n"
    team.cache.objects[name] = head.encode() + body


def test_an_old_answer_counts_as_old(team: Team, edison: Edison) -> None:
    filled(team, edison)
    for name in team.cache.objects:
        aged(team, name, 365)
    found = run(edison, team.checkout("second"), "--no-cache")
    assert (team.cache.count("GET"), found["calls"]["made"]) == (0, CALLS), "it is not read at all"
    for name in team.cache.objects:
        aged(team, name, 365)
    found = run(edison, team.checkout("third"))
    assert (found["calls"]["shared"], found["calls"]["made"]) == (0, CALLS)
    assert "refused" not in found["told"]


def test_an_old_answer_of_the_cache_is_not_compared_with_a_new_one(
    team: Team, edison: Edison
) -> None:
    """The base is in the cache since a year, and the head has to be bought: so has the base."""
    team.origin.edit("edison.yaml", "version: 1\n", "version: 1\nsettings: {reuse_days: 3650}\n")
    team.commit()
    filled(team, edison)
    old = {name for name, data in team.cache.objects.items() if WELCOME.encode() in data}
    for name in old:
        aged(team, name, 365)
    second = team.checkout("second")
    same = run(edison, second, "--against", "HEAD")
    assert (team.model.chats, same["calls"]["shared"]) == (0, CALLS), "both sides are old"
    third = team.checkout("third")
    third.edit("prompts/hello.md", GOOD, "Answer in one very kind sentence.")
    found = run(edison, third, "--against", "HEAD")
    assert team.model.chats == 2 * ANSWERS, "answers of both sides"
    assert found["calls"]["made"] == team.model.chats


def slow(request: Handler) -> bool:
    request.cache.stopping.wait(PATIENCE_S)
    return True


def dead(request: Handler) -> bool:
    request.close_connection = True
    return True


def elsewhere(request: Handler) -> bool:
    request.reply(302, Location="http://127.0.0.1:1/answers/")
    return True


def page(request: Handler) -> bool:
    request.reply(200, b"<html>Please sign in</html>", Content_Type="text/html")
    return True


def huge(request: Handler) -> bool:
    request.reply(200, b"edison-answer 1 unsigned " + b"0" * 5_000_000)
    return True


def full(request: Handler) -> bool:
    request.reply(507 if request.command == "PUT" else 404)
    return True


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (slow, "the shared cache is no longer used: no reply within 0.3 s"),
        (dead, "the shared cache is no longer used: the connection to "),
        (elsewhere, "redirects are not followed"),
        (page, "the shared cache is no longer used: it returns something else than answers"),
        (huge, "the reply is larger than 4 MB"),
        (full, "the shared cache is no longer written to: "),
    ],
)
def test_a_cache_that_does_not_work_is_left_alone(
    team: Team,
    edison: Edison,
    monkeypatch: pytest.MonkeyPatch,
    behaviour: Callable[[Handler], bool],
    said: str,
) -> None:
    team.cache.behaviour = behaviour
    if behaviour is slow:
        monkeypatch.setattr(shared_cache, "READ_S", 0.3)
        monkeypatch.setattr(shared_cache, "WRITE_S", 0.3)
    found = run(edison, team.checkout("first"))
    assert (found["calls"]["made"], found["verdict"]) == (CALLS, "pass")
    assert found["told"].count(said) == 1, found["told"]
    assert found["told"].count("shared cache") == 1, "it is said once"


def test_what_cannot_be_used_is_said_and_stops_nothing(
    team: Team, edison: Edison, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = team.checkout("first")
    for url, said in (
        ("http://192.0.2.1/answers", "ANSWERS_URL is not encrypted"),
        ("ftp://127.0.0.1/", "ANSWERS_URL does not hold a URL"),
        ("http://127.0.0.1:1/answers", "cannot connect to http://127.0.0.1:1"),
    ):
        monkeypatch.setenv("ANSWERS_URL", url)
        found = run(edison, first, "--no-cache" if "192" in url else "--yes")
        assert found["verdict"] == "pass"
        assert "http://127.0.0.1:1" in url or said in found["told"], url
    monkeypatch.delenv("ANSWERS_URL")
    assert "cache" not in run(edison, team.checkout("second"))["told"], "no address, no cache"


def test_a_token_goes_only_where_the_trust_file_allows(
    team: Team, edison: Edison, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.origin.edit("edison.yaml", "ANSWERS_URL", "ANSWERS_URL, token_env: ANSWERS_TOKEN")
    team.commit()
    monkeypatch.setenv("ANSWERS_TOKEN", "canary-of-the-cache-0123")
    found = run(edison, team.checkout("first"))
    assert "ANSWERS_TOKEN would be sent to http://127.0.0.1:" in found["told"]
    assert team.cache.seen == []

    host = team.cache.url.removesuffix("/answers/")
    kept = team.origin.read(".edison/trust.yaml")
    listed = f"keys: [{{env: ANSWERS_TOKEN, hosts: ['{host}']}}]\n"
    team.origin.write(".edison/trust.yaml", kept + listed)
    team.commit()
    for name, (value, header) in enumerate(
        [
            ("canary-of-the-cache-0123", ("authorization", "Bearer canary-of-the-cache-0123")),
            (
                "PRIVATE-TOKEN: canary-of-the-cache-4567",
                ("private-token", "canary-of-the-cache-4567"),
            ),
        ]
    ):
        monkeypatch.setenv("ANSWERS_TOKEN", value)
        team.cache.headers.clear()
        folder = team.checkout(f"more{name}")
        found = run(edison, folder)
        assert found["verdict"] == "pass"
        assert {seen.get(header[0]) for seen in team.cache.headers} == {header[1]}
        assert "canary" not in found["told"]
        files = [path for path in folder.path.rglob("*") if path.is_file()]
        assert not [path for path in files if b"canary-of-the-cache" in path.read_bytes()]
    team.cache.seen.clear()
    for value in ("Host: evil.example", "x-forwarded-for: 10.0.0.1", "Cookie: a=b"):
        monkeypatch.setenv("ANSWERS_TOKEN", value)
        run(edison, team.checkout(f"header{value[:1]}"))
    assert team.cache.seen == []


def test_a_query_of_the_address_is_kept(
    team: Team, edison: Edison, monkeypatch: pytest.MonkeyPatch
) -> None:
    signature = "sig=canary-of-a-presigned-address"
    paths: list[str] = []

    def note(request: Handler) -> bool:
        paths.append(request.path)
        return False

    team.cache.behaviour = note
    monkeypatch.setenv("ANSWERS_URL", f"{team.cache.url}?{signature}")
    filled(team, edison)
    assert all(path.endswith(f"?{signature}") for path in paths)
    assert run(edison, team.checkout("second"))["calls"]["shared"] == CALLS


def test_answers_of_batches_are_shared_too(team: Team, edison: Edison) -> None:
    price = "price: {in: 1, out: 2"
    team.origin.edit("models.yaml", price, f"{price}, batch: {{in: 0.5, out: 1}}")
    team.commit()
    team.model.batches.says = lambda _: WELCOME
    first = team.checkout("first")
    assert edison(first, "run", "--batch").code == 0
    team.model.batches.ends = True
    found = json.loads(edison(first, "resume", "--json").out)["runs"][0]
    assert (found["verdict"], len(team.cache.objects)) == ("pass", CALLS)
    team.model.chats = 0
    found = run(edison, team.checkout("second"), "--batch")
    assert (found["verdict"], found["calls"]["shared"]) == ("pass", CALLS), found["told"]
    assert (team.model.chats, len(team.model.batches.made)) == (0, 1), "no second batch"


def test_doctor_tries_the_cache(
    team: Team, edison: Edison, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finding(*args: str) -> str:
        found = json.loads(edison(team.origin, "doctor", "--json", *args).out)["findings"]
        return next(f"{f['verdict']} {f['detail']}" for f in found if f["what"] == "cache")

    assert finding() == "ok answers are read and written"
    assert finding("--offline") == "ok answers are read and written", "it is on this machine"
    team.cache.behaviour = full
    assert finding().startswith("warn not used: ")
    monkeypatch.setenv("EDISON_SIGNING_KEY", signing_keys("theirs").private)
    read = "ok answers are read; without a trusted key in EDISON_SIGNING_KEY none is written"
    assert finding() == read
    team.origin.write(".edison/trust.yaml", "version: 1\n")
    assert finding().endswith("its answers decide nothing")
    monkeypatch.setenv("ANSWERS_URL", "")
    assert finding() == "warn not used: ANSWERS_URL is not set"


def test_private_answers_stay_here(team: Team, edison: Edison) -> None:
    team.origin.edit("edison.yaml", "version: 1\n", "version: 1\nsettings: {private: true}\n")
    done = edison(team.origin, "run")
    assert done.code == 2
    assert "edison.yaml:4:8: error: settings.private keeps texts on this machine" in done.all, (
        done.all
    )


def test_a_pull_request_reads_the_cache_of_the_base_and_writes_nothing(
    job: Job, edison: Edison, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, bench = signing_keys("team"), job.bench
    monkeypatch.setenv("EDISON_SIGNING_KEY", pair.private)
    with CacheServer() as cache, CacheServer() as other:
        monkeypatch.setenv("ANSWERS_URL", cache.url)
        monkeypatch.setenv("OTHER_URL", other.url)
        entry = "version: 1\nproject: greetings\ncache: {url_env: ANSWERS_URL}\n"
        hosts = "".join(f"  - {url.removesuffix('/answers/')}\n" for url in (cache.url, other.url))
        bench.repository.write("edison.yaml", entry)
        bench.repository.write(
            ".edison/trust.yaml",
            TRUST.format(host=bench.model.url)
            + f"hosts:\n{hosts}results: {{public_keys: [{pair.public}]}}\n",
        )
        bench.base = bench.commit("share answers")
        with monkeypatch.context() as outside:
            outside.delenv("GITHUB_ACTIONS", raising=False)
            assert edison(bench.repository, "run", "-q").code == 0
        assert len(cache.objects) == CASES
        for path in (bench.repository.path / ".edison").glob("results.db*"):
            path.unlink()
        bench.propose(
            **{
                "prompts/hello.md": PROMPT.format(text="Answer in one warm sentence."),
                "edison.yaml": entry.replace("ANSWERS", "OTHER"),
            }
        )
        bench.model.chats, cache.seen[:] = 0, []
        done = job.pull_request()
        assert (done.code, job.outputs["verdict"]) == (0, "inconclusive"), done.all
        assert "edison.yaml: cache: the value of the base was used." in job.summary
        assert bench.model.chats == CASES, "the answers of the base are in the cache"
        assert (cache.count("PUT"), other.seen) == (0, [])
