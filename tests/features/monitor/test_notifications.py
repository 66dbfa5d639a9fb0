"""What people are told arrives at least once, late rather than never, and never in a storm."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import hashlib
import hmac
import json
import os
import random
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access.site import Site, open_site
from edison_ci.api.notices import Notice
from edison_ci.features.monitor import webhooks
from edison_ci.features.monitor.notifications import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    MOST_ASKED_S,
    PER_HOUR,
    Delivery,
    deliver,
    message_of,
    notify,
)
from edison_ci.features.monitor.outbox import count_notifications
from edison_ci.store.audit import read_audit
from edison_ci.store.database import open_database, open_for_change
from tests import forked
from tests.features.monitor.receiver import Receiver, receiving
from tests.opened import opened
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler

    from tests.conftest import Folder

pytestmark = pytest.mark.daily

RECIPIENTS = """
notifications:
  - name: ops
    on: [alert, run_failed, run_completed]
    webhook_env: OPS_URL
    secret_env: OPS_SECRET
  - {name: late, on: [budget, run_completed], webhook_env: LATE_URL, texts: true}
"""
START = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)


class FakeClock:
    """A clock that only goes on when it is told to."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> dt.datetime:
        return self.time

    def go(self, **step: float) -> None:
        self.time += dt.timedelta(**step)


class Town:
    """A project with recipients, their server and a clock."""

    def __init__(self, folder: Folder, server: Receiver) -> None:
        self.clock, self.server = FakeClock(), server
        found = open_site(folder.path)
        self.site = Site(found.root, found.file, self.clock)
        self.environ = {"OPS_URL": server.url, "OPS_SECRET": "shh-shh-shh", "LATE_URL": server.url}
        self.rng = random.Random(1)
        open_database(self.site.results).close()

    def tell(self, title: str = "the score fell", **facts: Any) -> int:
        notice = Notice(facts.pop("occasion", "alert"), title, **facts)
        with open_for_change(self.site.results) as connection:
            return notify(connection, self.site, notice, self.environ)

    def deliver(self, **options: Any) -> Delivery:
        return deliver(self.site, environ=self.environ, rng=self.rng, **options)

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        with opened(self.site.results) as connection:
            return connection.execute(
                f"select {columns} from notification order by created_at, rowid"
            ).fetchall()


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def town(mini: Folder, server: Receiver) -> Town:
    mini.write("edison.yaml", mini.read("edison.yaml") + RECIPIENTS)
    return Town(mini, server)


# --- writing and sending --------------------------------------------------------------------------


def test_a_notice_goes_to_those_who_want_it_and_is_signed(town: Town) -> None:
    assert town.tell(experiment="hello", condition="drop", level="alert") == 1
    assert town.server.requests == []
    assert town.deliver() == Delivery(sent=1)
    [(headers, body)] = town.server.requests
    message = json.loads(body)
    assert (message["title"], message["experiment"]) == ("the score fell", "hello")
    assert headers["webhook-id"] == message["id"]
    signed = f"{message['id']}.{int(START.timestamp())}.".encode() + body
    mac = base64.b64encode(hmac.digest(b"shh-shh-shh", signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{mac}"
    assert town.deliver() == Delivery()


def test_a_recipient_gets_a_notice_once_though_it_wants_it_twice(town: Town) -> None:
    assert town.tell(occasion="run_failed", also=("run_completed",)) == 2
    town.deliver()
    assert sorted(m["occasion"] for m in town.server.messages) == ["run_completed", "run_failed"]


def test_what_was_not_committed_is_not_told(town: Town) -> None:
    with contextlib.suppress(ZeroDivisionError), open_for_change(town.site.results) as connection:
        notify(connection, town.site, Notice("alert", "never"), town.environ)
        raise ZeroDivisionError
    assert town.deliver() == Delivery()


def test_texts_are_told_only_where_they_are_asked_for(town: Town) -> None:
    town.tell(occasion="run_completed", texts=("the answer of a customer",))
    town.deliver()
    assert sorted(m["texts"] for m in town.server.messages) == [[], ["the answer of a customer"]]


def test_secrets_and_control_characters_are_not_sent(town: Town) -> None:
    town.tell(f"key AKIA{'A' * 16} \x1b[31m", sentences=("\u202eabc",))
    town.deliver()
    [message] = town.server.messages
    assert message["title"] == "key AKIA... \\u{1b}[31m"
    assert message["sentences"] == ["\\u{202e}abc"]


def test_the_url_and_the_secret_are_nowhere(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    town.server.status, town.server.body = 500, b"no route to /hook/very-secret-path"
    town.tell()
    with caplog.at_level("DEBUG"):
        found = town.deliver()
    assert found.problems == (("ops", "the server answered 500: no route to [key]"),)
    stored = b"".join(path.read_bytes() for path in town.site.results.parent.glob("results.db*"))
    for secret in ("very-secret-path", "shh-shh-shh"):
        assert secret.encode() not in stored
        assert secret not in caplog.text + repr(caplog.records[0].__dict__)


# --- servers that behave badly --------------------------------------------------------------------


@pytest.mark.nightly
def test_a_day_of_failures_is_survived(town: Town) -> None:
    town.server.status = 500
    town.tell()
    for _ in range(24 * 6):
        town.deliver()
        town.clock.go(minutes=10)
    tried = len(town.server.requests)
    assert 20 < tried < 60, "ever longer waits, an hour at most"
    assert set(town.server.ids) == {town.server.ids[0]}
    town.server.status = 200
    town.clock.go(hours=1)
    assert town.deliver() == Delivery(sent=1)
    [(state, attempts, error)] = town.rows("state, attempts, error")
    assert (state, attempts, error) == ("sent", tried, "")


@pytest.mark.nightly
def test_after_three_days_it_is_given_up_and_audited(town: Town) -> None:
    town.server.status = 503
    town.tell()
    for _ in range(24 * 4):
        town.deliver()
        town.clock.go(hours=1)
    with opened(town.site.results) as connection:
        [count] = count_notifications(connection)
        [row] = read_audit(connection)
    assert (count.failed, count.waiting) == (1, 0)
    assert count.last_error == "the server answered 503: ok"
    assert (row.entry.action, row.entry.entity) == ("notification given up", "ops")
    tried = len(town.server.requests)
    town.clock.go(days=1)
    assert town.deliver() == Delivery()
    assert len(town.server.requests) == tried


def test_a_clock_that_jumps_ahead_gives_up_nothing(town: Town) -> None:
    town.server.status = 500
    town.tell()
    town.deliver()
    town.clock.go(days=365)
    assert town.deliver().given_up == 0
    town.server.status = 200
    town.clock.go(days=-365)
    assert town.deliver() == Delivery(sent=1), "a time to come is not waited for"


def test_waits_grow_and_differ(town: Town) -> None:
    town.server.status = 500
    town.tell()
    waits = []
    for _ in range(12):
        town.deliver()
        [(due,)] = town.rows("due_at")
        then = dt.datetime.fromisoformat(due)
        waits.append((then - town.clock.time).total_seconds())
        town.clock.time = then
    for number, wait in enumerate(waits):
        longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**number)
        assert longest / 2 - 0.01 <= wait <= longest
    assert len({round(wait) for wait in waits[-4:]}) > 1


@pytest.mark.parametrize(("asked", "wait"), [("7200", 7_200), ("999999", MOST_ASKED_S)])
def test_a_server_may_ask_for_time(town: Town, asked: str, wait: float) -> None:
    town.server.status, town.server.headers = 429, {"Retry-After": asked}
    town.tell()
    town.deliver()
    [(due,)] = town.rows("due_at")
    assert (dt.datetime.fromisoformat(due) - START).total_seconds() == wait


def test_redirects_are_not_followed(town: Town) -> None:
    with receiving() as other:
        town.server.status, town.server.headers = 302, {"Location": other.url}
        town.tell()
        found = town.deliver()
        assert other.requests == []
    assert found.problems == (("ops", "the server answered 302: ok"),)


def test_a_server_that_hangs_delays_nobody_else(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 1.0)

    def hang(_: BaseHTTPRequestHandler) -> bool:
        return town.server.released.wait(PATIENCE_S)

    with receiving() as good:
        town.server.behave = hang
        town.environ["LATE_URL"] = good.url
        town.tell(occasion="run_completed")
        found = town.deliver()
        assert len(good.requests) == 1
    assert (found.sent, found.problems) == (1, (("ops", "no answer within 1 seconds"),))


def test_a_run_waits_no_longer_than_it_wants(town: Town) -> None:
    town.server.behave = lambda _: town.server.released.wait(PATIENCE_S)
    town.tell()
    begun = time.monotonic()
    assert town.deliver(seconds=0.2) == Delivery()
    assert time.monotonic() - begun < webhooks.TIMEOUT_S
    town.server.behave = None
    assert town.deliver() == Delivery(sent=1), "it was no failure of the server"


def test_a_flood_is_cut_off(town: Town) -> None:
    written = []

    def flood(handler: BaseHTTPRequestHandler) -> bool:
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(OSError):
            while not town.server.released.is_set():
                written.append(handler.wfile.write(b"x" * 65_536))
        return True

    town.server.behave = flood
    town.tell()
    assert town.deliver() == Delivery(sent=1)
    assert sum(written) < 50_000_000


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200", b"HTTP/1.1 abc\r\n\r\n", b"\0" * 100])
def test_a_connection_that_is_cut_is_tried_again(town: Town, sent: bytes) -> None:
    def cut(handler: BaseHTTPRequestHandler) -> bool:
        handler.wfile.write(sent)
        handler.close_connection = True
        return True

    town.server.behave = cut
    town.tell()
    [(name, why)] = town.deliver().problems
    assert (name, why.partition(":")[0]) == ("ops", "the connection was interrupted")
    town.server.behave = None
    town.clock.go(minutes=1)
    assert town.deliver() == Delivery(sent=1)
    assert len(set(town.server.ids)) == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("AKIAAAAAAAAAAAAAAAAAAAAA", "OPS_URL does not hold a URL"),
        ("http://hooks.example/x", "the URL in OPS_URL is not encrypted"),
        ("https://[bad/x", "OPS_URL does not hold a URL"),
        ("ftp://hooks.example/x", "OPS_URL does not hold a URL"),
        ("http://127.0.0.1:1/x", "cannot connect: All connection attempts failed"),
    ],
)
def test_a_url_that_cannot_be_used_is_said_without_showing_it(
    town: Town, url: str, said: str
) -> None:
    town.environ["OPS_URL"] = url
    town.tell()
    assert town.deliver().problems == (("ops", said),)


@pytest.mark.nightly
def test_a_variable_that_another_process_has_is_waited_for_by_nobody(town: Town) -> None:
    here, town.environ = town.environ, {}
    town.tell()
    assert town.deliver() == Delivery(unset=(("ops", "OPS_URL is not set"),))
    assert town.rows("attempts, error") == [(1, "OPS_URL is not set")]
    town.environ = here
    assert town.deliver() == Delivery(sent=1), "at once"


def test_a_message_that_is_refused_does_not_hold_up_the_next(town: Town) -> None:
    def refuse_the_first(handler: BaseHTTPRequestHandler) -> bool:
        if "first" not in town.server.titles[-1]:
            return False
        handler.send_response(400)
        handler.end_headers()
        return True

    town.server.behave = refuse_the_first
    town.tell("the first")
    town.tell("the second")
    assert town.deliver().sent == 1
    assert town.rows("state") == [("waiting",), ("sent",)]


@pytest.mark.nightly
def test_a_server_that_is_down_is_asked_once_for_all_that_waits(town: Town) -> None:
    town.server.status = 500
    for number in range(5):
        town.tell(f"number {number}")
    town.deliver()
    assert len(town.server.requests) == 1
    town.server.status = 200
    town.clock.go(minutes=1)
    assert town.deliver() == Delivery(sent=5)
    assert town.server.titles[1:] == [f"number {number}" for number in range(5)], "in order"


# --- many at once ---------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_storm_ends_in_a_digest(town: Town) -> None:
    for number in range(100):
        town.tell(f"number {number}", level="warn")
        town.clock.go(seconds=1)
    assert town.deliver() == Delivery(sent=PER_HOUR)
    assert town.server.titles[: PER_HOUR - 1] == [f"number {n}" for n in range(PER_HOUR - 1)]
    digest = town.server.messages[-1]
    assert digest["occasion"] == "digest"
    assert digest["title"].startswith("91 notifications between 2027-03-01T12:00:09")
    assert [part["title"] for part in digest["notices"]] == [f"number {n}" for n in range(50, 100)]
    assert digest["sentences"][1] == "The last 50 are listed, 41 more are not."
    town.tell("one more")
    assert town.deliver() == Delivery(), "the hour is not over"
    town.clock.go(hours=1)
    assert town.deliver() == Delivery(sent=1)
    assert town.server.titles[-1] == "one more"


@pytest.mark.nightly
def test_a_digest_that_fails_is_sent_again_as_it_was(town: Town) -> None:
    for number in range(30):
        town.tell(f"number {number}")

    def refuse_digests(handler: BaseHTTPRequestHandler) -> bool:
        refused = bool(town.server.messages[-1]["occasion"] == "digest")
        if refused:
            handler.send_error(500)
        return refused

    town.server.behave = refuse_digests
    assert town.deliver().sent == PER_HOUR - 1
    town.server.behave = None
    town.clock.go(hours=1)
    assert town.deliver() == Delivery(sent=1)
    assert town.server.ids[-1] == town.server.ids[-2]
    assert town.server.messages[-1] == town.server.messages[-2]


@pytest.mark.nightly
def test_what_was_sent_is_forgotten_after_a_month(town: Town) -> None:
    for number in range(30):
        town.tell(f"number {number}")
    town.deliver()
    assert len(town.rows("id")) == 31
    town.clock.go(days=29)
    town.deliver()
    assert len(town.rows("id")) == 31
    town.clock.go(days=2)
    town.deliver()
    assert town.rows("id") == []


# --- processes ------------------------------------------------------------------------------------

CHILD = """
import os, sys
from pathlib import Path
from edison_ci.features.monitor import notifications
from edison_ci.access.site import open_site
from edison_ci.features.monitor import outbox
if sys.argv[2] == "killed":
    outbox.note_sent = lambda *_: os.kill(os.getpid(), 9)
if sys.argv[2] == "full":
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # every write fails, as on a full disk
print(notifications.deliver(open_site(Path(sys.argv[1]))).sent)
"""


def _child(town: Town, how: str) -> subprocess.CompletedProcess[str]:
    return forked.run(
        [sys.executable, "-c", CHILD, str(town.site.root), how],
        env={**os.environ, **town.environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.nightly
def test_a_process_killed_after_sending_doubles_a_message_with_the_same_id(town: Town) -> None:
    town.clock.time = dt.datetime.now(dt.UTC)
    town.tell()
    assert _child(town, "killed").returncode == -9
    assert town.rows("state") == [("waiting",)]
    assert _child(town, "whole").stdout == "1\n"
    assert len(town.server.ids) == 2
    assert len(set(town.server.ids)) == 1
    assert _child(town, "whole").stdout == "0\n"


@pytest.mark.nightly
def test_a_full_disk_loses_nothing_and_doubles_with_the_same_id(town: Town) -> None:
    town.clock.time = dt.datetime.now(dt.UTC)
    town.tell()
    failed = _child(town, "full")
    assert failed.returncode == 1
    assert "StoreError" in failed.stderr
    assert town.rows("state") == [("waiting",)]
    assert _child(town, "whole").stdout == "1\n"
    assert len(set(town.server.ids)) == 1
    assert town.rows("state") == [("sent",)]


def test_one_process_delivers_at_a_time(town: Town) -> None:
    town.tell()
    seen = []

    def also(_: BaseHTTPRequestHandler) -> bool:
        seen.append(town.deliver())
        return False

    town.server.behave = also
    assert town.deliver() == Delivery(sent=1)
    assert seen == [Delivery(busy=True)]


def test_a_project_without_results_has_nothing_to_send(mini: Folder) -> None:
    assert deliver(open_site(mini.path)) == Delivery()


def test_a_recipient_that_was_removed_is_no_reason_to_lose_a_message(
    town: Town, mini: Folder
) -> None:
    town.tell()
    town.site = Site(
        town.site.root,
        town.site.file.model_copy(update={"notifications": town.site.file.notifications[1:]}),
        town.clock,
    )
    assert town.deliver().problems == (("ops", "ops is not in edison.yaml (any more)"),)
    assert town.rows("state") == [("waiting",)]


def test_a_message_has_every_key(town: Town) -> None:
    message = message_of(town.site, Notice("alert", "a"))
    assert message["at"] == "2027-03-01T12:00:00.000Z"
    assert [key for key, value in message.items() if value is None] == [
        "experiment",
        "run_id",
        "condition",
    ]


# --- chats ----------------------------------------------------------------------------------------

HOSTILE = "<!channel> <https://evil.example|click> *bold* [click](https://evil.example) @here & co"


def chat_message(town: Town, **facts: Any) -> dict[str, Any]:
    return message_of(town.site, Notice("alert", **{"title": "fell", **facts}), texts=True)


def test_a_message_for_slack_is_blocks_of_plain_text(town: Town) -> None:
    sentences = (HOSTILE, "")
    body = webhooks.body_of("slack", chat_message(town, title=HOSTILE, sentences=sentences))
    assert body["text"].startswith("&lt;!channel&gt; &lt;https://evil.example|click&gt;")
    header, section, context = body["blocks"]
    assert header == {"type": "header", "text": plain_text(HOSTILE)}
    assert section == {"type": "section", "text": plain_text(HOSTILE)}
    assert context["type"] == "context"
    assert {element["type"] for element in context["elements"]} == {"plain_text"}


def plain_text(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def test_a_message_for_teams_is_a_card_without_markdown(town: Town) -> None:
    body = webhooks.body_of("teams", chat_message(town, title=HOSTILE, sentences=(HOSTILE,)))
    [attachment] = body["attachments"]
    assert body["type"] == "message"
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    # Of all texts in a card, only those of a TextRun are not Markdown.
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    runs = [run for block in card["body"] for run in block["inlines"]]
    assert {run["type"] for run in runs} == {"TextRun"}
    assert [run["text"] for run in runs[:2]] == [HOSTILE, HOSTILE]


@pytest.mark.parametrize("letter", ["x", "é", "😀", '"'])
def test_a_long_message_fits_into_a_chat(town: Town, letter: str) -> None:
    long = chat_message(
        town, title=letter * 500, sentences=(letter * 9_000,) * 60, texts=(letter * 9_000,) * 60
    )
    slack, teams = (webhooks.body_of(kind, long) for kind in ("slack", "teams"))
    assert len(slack["blocks"]) <= 50
    assert len(slack["blocks"][0]["text"]["text"]) <= 150
    sections = [block["text"]["text"] for block in slack["blocks"][1:-1]]
    assert sections
    assert max(map(len, sections)) <= 3_000
    assert sum(map(len, sections)) <= 12_000
    assert len(json.dumps(teams, ensure_ascii=False).encode()) < 28_000
