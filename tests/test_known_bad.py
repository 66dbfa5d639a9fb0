"""Releases that nobody should have: the list, what is locked, what is installed, how it is made."""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from edison_ci.extras import Advisory, known_bad, normal
from tests.conftest import ROOT
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_no_lock_pins_a_release_that_is_known_to_be_bad(lock: Path) -> None:
    pins = re.findall(r"(?m)^([\w.-]+)==([^\s;\\]+)", lock.read_text(encoding="utf-8"))
    assert pins
    bad = [(name, version, known_bad().about(name, version)) for name, version in pins]
    assert [each for each in bad if each[2]] == []


def test_the_list_has_a_day_and_is_about_packages_that_are_locked() -> None:
    known = known_bad()
    assert dt.date.fromisoformat(known.date) <= dt.datetime.now(dt.UTC).date()
    text = "\n".join(path.read_text(encoding="utf-8") for path in LOCKS)
    locked = {normal(name) for name in re.findall(r"(?m)^([\w.-]+)==", text)}
    assert {advisory.package for advisory in known.advisories} <= locked


VERSIONS = [
    ("1.0", False), ("1.1", True), ("1.1.0", True), ("1.9.9", True), ("2.0", False),
    ("2.0.0", False), ("2.0.1", False), ("3.0", True), ("3", True), ("4.7", True),
    ("0.5.post1", True), ("0.5", False), ("", False), ("odd", False),
]  # fmt: skip


def test_ranges_and_single_versions_are_told_apart(subtests: pytest.Subtests) -> None:
    for version, bad in VERSIONS:
        with subtests.test(version=version):
            advisory = Advisory("x", "id", "why", (("1.1", "2.0"), ("3", None)), ("0.5.post1",))
            assert advisory.covers(version) is bad


@pytest.mark.nightly
def test_doctor_names_what_is_installed_and_bad(edison: Edison, mini: Folder) -> None:
    done = mini.edison("doctor", "--json")
    (row,) = [row for row in json.loads(done.out)["findings"] if row["what"] == "releases"]
    said = f"no known bad release installed (list of {known_bad().date})"
    assert (row["verdict"], row["detail"]) == ("ok", said)
    mini.write("site/jinja2-3.1.5.dist-info/METADATA", "Name: jinja2\nVersion: 3.1.5\n")
    done = mini.edison("doctor", "--json", env={"PYTHONPATH": str(mini.path / "site")})
    (row,) = [row for row in json.loads(done.out)["findings"] if row["what"] == "releases"]
    assert (done.code, row["verdict"]) == (2, "fail")
    assert row["detail"].startswith("jinja2 3.1.5: the sandbox could be left")


# --- making it anew -------------------------------------------------------------------------------

JINJA = {
    "id": "GHSA-xxxx",
    "aliases": ["CVE-2025-27516"],
    "summary": "The  sandbox\ncould be left",
    "affected": [
        {
            "package": {"name": "Jinja2", "ecosystem": "PyPI"},
            "ranges": [
                {"type": "GIT", "events": [{"introduced": "0"}]},
                {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.1.6"}]},
            ],
            "versions": ["3.1.5"],
        },
        {"package": {"name": "other", "ecosystem": "PyPI"}, "versions": ["9"]},
    ],
}
STOLEN = {
    "id": "MAL-2026-1",
    "details": "steals",
    "affected": [{"package": {"name": "jinja2"}, "versions": ["9.9.9"]}],
}
WITHDRAWN = {**JINJA, "id": "GHSA-yyyy", "aliases": [], "withdrawn": "2026-01-01T00:00:00Z"}


class Database(BaseHTTPRequestHandler):
    """Answers as the public database does."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = body["package"]["name"]
        self.asked.append(name)
        found: dict[str, Any] = {"vulns": [JINJA, STOLEN, WITHDRAWN]} if name == "jinja2" else {}
        reply = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def database() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Database) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_the_list_is_made_from_the_public_database(database: str, tmp_path: Path) -> None:
    target = tmp_path / "known_bad.json"
    script = [sys.executable, "-P", str(ROOT / "requirements/known_bad.py")]
    done = subprocess.run(
        [*script, "--database", database, "--output", str(target)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {"jinja2", "litellm", "aiohttp"} <= {*Database.asked}
    made = json.loads(target.read_text(encoding="utf-8"))
    assert made["date"] == dt.datetime.now(dt.UTC).date().isoformat()
    rows = {(row["package"], row["id"]): row for row in made["advisories"]}
    why = "The sandbox could be left"
    assert rows.pop(("jinja2", "CVE-2025-27516")) == {
        "package": "jinja2", "id": "CVE-2025-27516", "why": why, "ranges": [["0", "3.1.6"]],
    }  # fmt: skip
    assert rows.pop(("jinja2", "MAL-2026-1"))["versions"] == ["9.9.9"]
    assert [*rows] == [("litellm", "stolen-releases")], "what nobody publishes there is kept"
