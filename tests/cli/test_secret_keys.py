"""edison secrets: keys that are committed, and that one private key opens."""

from __future__ import annotations

import http.server
import io
import json
import os
import pty
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access.job import key_environment
from edison_ci.access.sealed_keys import key_folder
from edison_ci.config.load import load_project
from edison_ci.config.sealed import PRIVATE_KEY
from edison_ci.contracts import WHAT_TO_CHECK, ErrorKind
from edison_ci.documents.secrets import learn
from tests import forked
from tests.features.monitor.receiver import receiving
from tests.loopback.server import LoopbackServer
from tests.opened import opened
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Edison, Folder, Result

pytestmark = pytest.mark.daily

VALUE = "vendor-key-0123456789-wxyz"
SECRETS = ".edison/secrets.yaml"


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    learn({})


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture
def project(mini: Folder, server: LoopbackServer) -> Folder:
    """A project whose model needs VENDOR_KEY, in a repository on GitHub."""
    mini.write(
        "models.yaml",
        f"small: {{provider: openai_compatible, model: m, base_url: '{server.openai_url}', "
        "key_env: VENDOR_KEY, price: {in: 1, out: 2}}\n"
        "judge: {provider: sim, model: judge}\n",
    )
    host = server.url
    mini.write(".edison/trust.yaml", f"keys:\n  - {{env: VENDOR_KEY, hosts: ['{host}']}}\n")
    mini.git("init", "--quiet", "--initial-branch=main")
    mini.git("remote", "add", "origin", "https://github.com/acme/prompts.git")
    return mini


@pytest.fixture
def seal(edison: Edison, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(folder: Folder, name: str = "VENDOR_KEY", value: str = VALUE, *more: str) -> Result:
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{value}\n"))
        return edison(folder, "secrets", "seal", name, *more)

    return run


def value_of(done: Result) -> Any:
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_a_run_uses_a_sealed_key_and_shows_it_nowhere(
    edison: Edison, project: Folder, seal: Any, server: LoopbackServer
) -> None:
    made = edison(project, "secrets", "keygen")
    assert made.code == 0
    (kept,) = key_folder().iterdir()
    assert f"gh secret set {PRIVATE_KEY} < {kept}" in made.err
    assert kept.read_text().strip() not in made.all + project.read(SECRETS)
    done = seal(project)
    assert done.code == 0
    assert "sealed VENDOR_KEY for github.com/acme/prompts" in done.out
    ran = edison(project, "run", "hello", "--yes")
    assert ran.code in (0, 5), ran.err
    told = [seen.headers["authorization"] for seen in server.requests]
    assert told and {*told} == {f"Bearer {VALUE}"}
    written = b"".join(path.read_bytes() for path in project.path.rglob("*") if path.is_file())
    assert VALUE.encode() not in written
    assert VALUE not in done.all + ran.all


def test_a_key_that_is_typed_is_not_shown(project: Folder, edison: Edison) -> None:
    edison(project, "secrets", "keygen")
    child, terminal = pty.fork()
    if not child:
        os.chdir(project.path)
        argv = [sys.executable, "-P", "-m", "edison_ci", "secrets", "seal", "VENDOR_KEY"]
        os.execv(argv[0], argv)
    shown = b""
    while b"(not shown):" not in shown:
        shown += os.read(terminal, 1024)
    os.write(terminal, f"{VALUE}\n".encode())
    try:
        while told := os.read(terminal, 1024):
            shown += told
    except OSError:  # the other end is closed
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, shown
    assert b"sealed" in shown and VALUE.encode() not in shown
    assert value_of(edison(project, "secrets", "list", "--json"))["keys"][0]["ending"] == "wxyz"


def test_the_list_tells_source_age_and_users_and_no_value(
    edison: Edison, project: Folder, seal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (missing,) = value_of(edison(project, "secrets", "list", "--json"))["keys"]
    assert (missing["source"], missing["models"]) == ("missing", ["small"])
    edison(project, "secrets", "keygen")
    seal(project)
    seal(project, "OPENAI_API_KEY", "short-key")
    listed = edison(project, "secrets", "list")
    rows = [line.split("  ") for line in listed.out.splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells[1:] == [
        ["OPENAI_API_KEY", "sealed", "today", "no model", "openai"],
        ["VENDOR_KEY", "...wxyz", "sealed", "today", "small"],
    ]
    assert VALUE not in listed.all and "-key" not in listed.all
    monkeypatch.setenv("VENDOR_KEY", "another-key-of-the-machine")
    above = edison(project, "secrets", "list")
    assert "...hine" in above.out and "environment, over the sealed one" in above.out


def test_a_key_of_tomorrow_is_listed_as_such(edison: Edison, project: Folder, seal: Any) -> None:
    edison(project, "secrets", "keygen")
    seal(project)
    text = project.read(SECRETS)
    day = next(line for line in text.splitlines() if "since" in line)
    project.write(SECRETS, text.replace(day, "    since: 2999-01-01"))
    listed = edison(project, "secrets", "list")
    assert "VENDOR_KEY: sealed on 2999-01-01, in the future" in listed.err
    (key,) = value_of(edison(project, "secrets", "list", "--json"))["keys"]
    assert (key["age_days"], key["fault"]) == (None, None)


def test_a_key_that_cannot_be_opened_is_told_before_a_call(
    edison: Edison, project: Folder, seal: Any, server: LoopbackServer
) -> None:
    edison(project, "secrets", "keygen")
    seal(project)
    (kept,) = key_folder().iterdir()
    kept.unlink()
    listed = edison(project, "secrets", "list")
    assert "cannot be opened" in listed.out and "is not here" in listed.err
    ran = edison(project, "run", "hello", "--yes")
    assert ran.code != 0 and f"set {PRIVATE_KEY}" in ran.err
    assert not server.requests


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("sk-ant-0123456789", VALUE, "this is not the name of a variable"),
        ("GITHUB_TOKEN", VALUE, "GITHUB_TOKEN is not the key of a model"),
        ("VENDOR_KEY", "  ", "the key VENDOR_KEY is empty"),
        ("VENDOR_KEY", "abc\x1b[2Jdefghijk", "the key VENDOR_KEY contains control characters"),
    ],
)
def test_what_is_no_key_is_not_sealed(
    edison: Edison, project: Folder, seal: Any, name: str, value: str, said: str
) -> None:
    edison(project, "secrets", "keygen")
    before = project.read(SECRETS)
    done = seal(project, name, value)
    assert done.code == 2 and said in done.err
    assert "sk-ant-0123" not in done.all
    assert project.read(SECRETS) == before


def test_without_a_private_key_nothing_is_asked_for(project: Folder, seal: Any) -> None:
    done = seal(project)
    assert done.code == 2 and "create it: edison secrets keygen" in done.err


def test_a_second_keygen_is_refused(edison: Edison, project: Folder) -> None:
    edison(project, "secrets", "keygen")
    before = project.read(SECRETS)
    again = edison(project, "secrets", "keygen")
    assert again.code == 2 and "replace it with: edison secrets rotate" in again.err
    assert project.read(SECRETS) == before and len([*key_folder().iterdir()]) == 1


def test_keygen_lets_workflows_pass_the_private_key_on(edison: Edison, project: Folder) -> None:
    edison(project, "init", "--github", "--workflow", "push")
    made = value_of(edison(project, "secrets", "keygen", "--json"))
    assert made["workflows"] == [
        ".github/workflows/edison-push.yml",
        ".github/workflows/edison.yml",
    ]
    line = f"{PRIVATE_KEY}: ${{{{ secrets.{PRIVATE_KEY} }}}}"
    for path in made["workflows"]:
        assert line in project.read(path)


def test_a_key_that_a_model_names_is_not_removed(
    edison: Edison, project: Folder, seal: Any
) -> None:
    edison(project, "secrets", "keygen")
    seal(project)
    seal(project, "OLD_KEY")
    refused = edison(project, "secrets", "remove", "VENDOR_KEY")
    assert refused.code == 2 and "would lose the key VENDOR_KEY: small" in refused.err
    near = edison(project, "secrets", "remove", "OLD_KEYS")
    assert near.code == 2 and "OLD_KEY" in near.err
    assert edison(project, "secrets", "remove", "OLD_KEY").code == 0
    assert "OLD_KEY" not in project.read(SECRETS) and "VENDOR_KEY" in project.read(SECRETS)


@pytest.mark.nightly
def test_the_address_of_a_webhook_is_sealed_too(edison: Edison, project: Folder, seal: Any) -> None:
    with receiving() as receiver:
        project.write("edison.yaml", project.read("edison.yaml") + "notifications:\n"
                      "  - {name: ops, on: [run_completed], webhook_env: OPS_URL, "
                      "secret_env: OPS_SECRET}\n")  # fmt: skip
        edison(project, "secrets", "keygen")
        seal(project)
        seal(project, "OPS_URL", receiver.url)
        seal(project, "OPS_SECRET", "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ=")
        done = edison(project, "run", "hello", "--yes")
        assert done.code in (0, 5), done.err
        (sent,) = receiver.messages
        assert sent["occasion"] == "run_completed"
        assert edison(project, "notifications", "test").code == 0
        keys = value_of(edison(project, "secrets", "list", "--json"))["keys"]
        assert {key["name"]: key["models"] for key in keys}["OPS_URL"] == ["notification ops"]
        refused = edison(project, "secrets", "remove", "OPS_URL")
        assert (refused.code, "would lose OPS_URL: ops" in refused.err) == (2, True)
        (kept,) = key_folder().iterdir()
        kept.unlink()
        shut = edison(project, "notifications", "test")
        assert (shut.code, "is not here" in shut.all) == (3, True)
        assert "very-secret-path" not in done.all + shut.all
        assert len(receiver.messages) == 2


# --- rotation -------------------------------------------------------------------------------------


def test_a_rotation_seals_all_for_a_new_private_key(
    edison: Edison, project: Folder, seal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    edison(project, "secrets", "keygen")
    seal(project)
    seal(project, "OTHER_KEY", "another-vendor-key-abcd")
    (former,) = key_folder().iterdir()
    old = project.read(SECRETS)
    done = value_of(edison(project, "secrets", "rotate", "--json"))
    assert done["sealed"] == ["OTHER_KEY", "VENDOR_KEY"] and done["former_file"] == str(former)
    keys = value_of(edison(project, "secrets", "list", "--json"))["keys"]
    assert [key["ending"] for key in keys] == ["abcd", "wxyz"]
    # CI has the new one, and the base still the old file.
    new = key_folder() / f"{done['fingerprint']}.key"
    monkeypatch.setenv(PRIVATE_KEY, new.read_text())
    project.write(SECRETS, old)
    former.rename(former.with_suffix(".aside"))
    faults = value_of(edison(project, "secrets", "list", "--json"))["keys"]
    assert all("another private key" in key["fault"] for key in faults)
    both = new.read_text() + former.with_suffix(".aside").read_text()
    monkeypatch.setenv(PRIVATE_KEY, both)
    keys = value_of(edison(project, "secrets", "list", "--json"))["keys"]
    assert [key["ending"] for key in keys] == ["abcd", "wxyz"]


def test_a_rotation_that_cannot_open_a_key_changes_nothing(
    edison: Edison, project: Folder, seal: Any
) -> None:
    edison(project, "secrets", "keygen")
    seal(project)
    seal(project, "OTHER_KEY")
    text = project.read(SECRETS)
    renamed = text.replace("name: OTHER_KEY", "name: THIRD_KEY")
    project.write(SECRETS, renamed)
    done = edison(project, "secrets", "rotate")
    assert done.code == 2 and "nothing was rotated: the sealed key THIRD_KEY" in done.err
    assert project.read(SECRETS) == renamed and len([*key_folder().iterdir()]) == 1


def test_a_renamed_repository_needs_its_former_name(
    edison: Edison, project: Folder, seal: Any
) -> None:
    edison(project, "secrets", "keygen")
    seal(project)
    project.git("remote", "set-url", "origin", "git@github.com:acme/renamed.git")
    (key,) = value_of(edison(project, "secrets", "list", "--json"))["keys"]
    assert "sealed for github.com/acme/prompts, and this is github.com/acme/renamed" in key["fault"]
    assert edison(project, "secrets", "rotate").code == 2
    assert edison(project, "secrets", "rotate", "--was", "github.com/Acme/prompts").code == 0
    (key,) = value_of(edison(project, "secrets", "list", "--json"))["keys"]
    assert key["ending"] == "wxyz"


def test_only_admins_change_keys_and_every_change_is_audited(
    edison: Edison, project: Folder, seal: Any
) -> None:
    edison(project, "secrets", "keygen")
    seal(project)
    seal(project, "OLD_KEY")
    edison(project, "secrets", "remove", "OLD_KEY")
    edison(project, "secrets", "rotate")
    rows = value_of(edison(project, "admin", "audit", "--json"))["rows"]
    former, new = rows[-1]["entity"], rows[0]["entity"]
    assert [(row["action"], row["entity"]) for row in rows[1:]] == [
        ("secrets keygen", new),
        ("secrets remove", "OLD_KEY"),
        ("secrets seal", "OLD_KEY"),
        ("secrets seal", "VENDOR_KEY"),
        ("secrets keygen", former),
    ]
    assert (rows[0]["action"], rows[0]["before"]) == ("secrets rotate", former)
    assert {path.stem for path in key_folder().iterdir()} == {former, new}
    assert VALUE not in json.dumps(rows)
    project.write("edison.yaml", "version: 1\nproject: mini\nmembers:\n"
                  "  - {email: ed@example.com, role: editor}\n"
                  "  - {email: ann@example.com, role: owner}\n")  # fmt: skip
    project.git("config", "user.email", "ed@example.com")
    before = project.read(SECRETS)
    for words in (("rotate",), ("remove", "VENDOR_KEY")):
        assert edison(project, "secrets", *words).code == 2
    assert seal(project).code == 2
    assert project.read(SECRETS) == before
    newest = value_of(edison(project, "admin", "audit", "--json"))["rows"][0]
    assert newest["action"] == "refused: secrets seal"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("public_key: ", "public_key"),
        ("keys: [", "secrets.yaml:"),
        ("version: 1\npublic_key: AAAA\n", "is not a public key for sealed keys"),
    ],
)
def test_a_broken_file_is_told_with_its_line(
    edison: Edison, project: Folder, text: str, said: str
) -> None:
    project.write(SECRETS, text)
    done = edison(project, "validate")
    assert done.code == 2 and said in done.all


# --- killed processes and full disks --------------------------------------------------------------

CHANGES = """\
import os, resource, signal, sys
from edison_ci.cli.app import run
sys.dont_write_bytecode = True
at, room = int(sys.argv[1]), int(sys.argv[2])
passed, flush = 0, os.fsync

def reach(event, given=()):
    global passed
    writes = event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
    if writes or event in {"fsync", "os.rename", "os.remove", "os.mkdir", "sqlite3.connect"}:
        passed += 1
        if passed == at:
            os.kill(os.getpid(), signal.SIGKILL)

def synced(descriptor):
    reach("fsync")
    flush(descriptor)

os.fsync = synced
sys.addaudithook(reach)
if room:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
sys.exit(run(sys.argv[3:]))
"""
"""Dies when it is about to change the disk for the n-th time, or cannot write large files."""


def change(folder: Folder, *words: str, at: int = 0, room: int = 0) -> Any:
    return command(folder, "secrets", *words, at=at, room=room)


def command(folder: Folder, *words: str, at: int = 0, room: int = 0) -> Any:
    argv = [sys.executable, "-P", "-c", CHANGES, str(at), str(room), *words]
    typed = f"{NEWER}\n"
    return forked.run(
        argv, input=typed, cwd=folder.path, capture_output=True, text=True, timeout=PATIENCE_S
    )


NEWER = "vendor-key-9876543210-newer"


def endings(folder: Folder) -> list[str]:
    """Return the endings of the keys, all of which can be opened; nothing on disk shows one."""
    opened = key_environment(load_project(folder.path))
    values = [opened[key.name] for key in opened.secrets.keys]
    places = (folder.path, key_folder().parent)
    written = b"".join(p.read_bytes() for place in places for p in place.rglob("*") if p.is_file())
    assert VALUE.encode() not in written and NEWER.encode() not in written
    return [value[-4:] for value in values]


def has_rows(folder: Folder) -> bool:
    """Whether the audit has a row for every private key on this machine."""
    keys = {path.stem for path in key_folder().glob("*")}
    with opened(folder.path / ".edison" / "results.db") as connection:
        sql = "select entity from audit where action = 'secrets keygen'"
        return keys <= {entity for (entity,) in connection.execute(sql)}


@pytest.mark.nightly
def test_a_killed_keygen_leaves_no_private_key_without_its_row(project: Folder) -> None:
    for at in range(1, 200):
        done = change(project, "keygen", at=at)
        assert done.returncode in (-signal.SIGKILL, 0), done.stderr
        assert not key_folder().exists() or has_rows(project)
        if done.returncode == 0:
            break
        (project.path / SECRETS).unlink(missing_ok=True)
    assert 5 < at < 199
    assert len([*key_folder().iterdir()]) > 1, "some were left by those that were killed"


@pytest.mark.nightly
@pytest.mark.parametrize("words", [("rotate",), ("seal", "VENDOR_KEY")])
def test_a_killed_change_leaves_the_old_keys_or_the_new_ones(
    edison: Edison, project: Folder, seal: Any, words: tuple[str, ...]
) -> None:
    edison(project, "secrets", "keygen")
    seal(project)
    seal(project, "OTHER_KEY", "another-vendor-key-abcd")
    old, states = project.read(SECRETS), set()
    for at in range(1, 200):
        done = change(project, *words, at=at)
        assert done.returncode in (-signal.SIGKILL, 0), done.stderr
        found = endings(project)
        assert has_rows(project)
        states.add((project.read(SECRETS) == old, *found))
        if done.returncode == 0:
            break
        project.write(SECRETS, old)
    assert 5 < at < 199
    after = "wxyz" if words == ("rotate",) else "ewer"
    assert states == {(True, "abcd", "wxyz"), (False, "abcd", after)}
    assert edison(project, "admin", "audit", "--verify").code == 0


@pytest.mark.nightly
def test_a_full_disk_changes_no_key(edison: Edison, project: Folder, seal: Any) -> None:
    edison(project, "secrets", "keygen")
    seal(project)
    old, (kept,) = project.read(SECRETS), key_folder().iterdir()
    said = []
    for words in (("rotate",), ("seal", "VENDOR_KEY")):
        for room in (10, 100, 2_000):
            done = change(project, *words, room=room)
            assert done.returncode in (2, 3), done.stderr
            said.append(done.stderr)
            assert endings(project) == ["wxyz"]
            assert project.read(SECRETS) == old
    assert "results.db: disk I/O error" in said[0]
    assert "secrets.yaml cannot be written: File too large" in said[3]
    assert [*key_folder().iterdir()] == [kept]
    assert not [*(project.path / ".edison").glob(".*.part")]
    assert change(project, "rotate").returncode == 0 and endings(project) == ["wxyz"]


def test_a_private_key_that_cannot_be_stored_changes_no_key(
    edison: Edison, project: Folder, seal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    edison(project, "secrets", "keygen")
    seal(project)
    old, (kept,) = project.read(SECRETS), key_folder().iterdir()
    monkeypatch.setenv(PRIVATE_KEY, kept.read_text())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project.path / "edison.yaml"))
    done = edison(project, "secrets", "rotate")
    assert (done.code, "the private key cannot be stored" in done.err) == (2, True)
    assert project.read(SECRETS) == old


# --- test -----------------------------------------------------------------------------------------


class Listing(http.server.BaseHTTPRequestHandler):
    """A list of models for those with a key; at /open it is for everyone."""

    def do_GET(self) -> None:
        given = self.headers["Authorization"]
        codes = {f"Bearer {VALUE}": 200, "Bearer key-without-quota-1": 429}
        code = 200 if self.path.startswith("/open") else codes.get(given, 401)
        body = {200: {"data": []}, 429: {"error": {"code": "insufficient_quota"}}}.get(code, {})
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def listing() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listing) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_a_test_tells_good_wrong_and_exhausted_keys_apart(
    edison: Edison, project: Folder, listing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("GOOD_KEY", "WRONG_KEY", "EMPTY_KEY", "FAR_KEY", "OPEN_KEY", "LOST_KEY")
    rows = [
        f"m{n}: {{provider: openai_compatible, model: m, key_env: {name}, price: free, "
        f"base_url: '{listing}/{'open' if name == 'OPEN_KEY' else 'v1'}'}}\n"
        for n, name in enumerate(names)
    ]
    project.write("models.yaml", project.read("models.yaml") + "".join(rows))
    trusted = [f"  - {{env: {name}, hosts: ['{listing}']}}\n" for name in names]
    project.write(".edison/trust.yaml", project.read(".edison/trust.yaml") + "".join(trusted))
    for name, value in zip(names, (VALUE, "a-wrong-key-12345", "key-without-quota-1", VALUE, VALUE),
                           strict=False):  # fmt: skip
        monkeypatch.setenv(name, value)
    done = edison(project, "secrets", "test", "--json", *names)
    assert done.code == 3
    told = {each["name"]: each["verdict"] for each in json.loads(done.out)["keys"]}
    assert told == {
        "GOOD_KEY": "ok",
        "WRONG_KEY": "refused",
        "EMPTY_KEY": "no quota",
        "FAR_KEY": "ok",
        "OPEN_KEY": "unknown",
        "LOST_KEY": "unknown",
    }
    assert edison(project, "secrets", "test", "GOOD_KEY").out.startswith("ok  GOOD_KEY")
    for name, kind in (("WRONG_KEY", ErrorKind.INVALID_KEY), ("EMPTY_KEY", ErrorKind.QUOTA)):
        advice = edison(project, "secrets", "test", name).err
        assert WHAT_TO_CHECK[kind] in advice, "that of edison models test"
    assert VALUE not in done.all


def test_what_a_list_cannot_tell_a_call_does_after_a_yes(
    edison: Edison, project: Folder, server: LoopbackServer, listing: str, seal: Any
) -> None:
    edison(project, "secrets", "keygen")
    seal(project)
    # The loopback service of models has no list.
    first = edison(project, "secrets", "test")
    assert first.code == 3 and first.out.startswith("unknown  VENDOR_KEY")
    assert all(seen.method == "GET" for seen in server.requests)
    called = edison(project, "secrets", "test", "--yes")
    assert (called.code, called.out) == (0, "ok  VENDOR_KEY: small has answered\n"), called.all
    project.edit("models.yaml", "small: {provider: openai_compatible", "small: {provider: http")
    project.edit("models.yaml", "model: m, ", "")
    body = "{model: m, messages: [{role: user, content: '{{ prompt }}'}]}"
    options = f"options: {{text: choices.0.message.content, body: {body}}}, "
    project.edit("models.yaml", "/v1', ", f"/v1/chat/completions', {options}")
    asked = edison(project, "secrets", "test")
    assert asked.code == 3 and "has no list of models to ask" in asked.out
    done = edison(project, "secrets", "test", "--yes")
    assert (done.code, done.out) == (0, "ok  VENDOR_KEY: small has answered\n"), done.all
