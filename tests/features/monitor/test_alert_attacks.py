"""Attacks through schedules and alerts: texts that want to be obeyed, forged rows, odd times."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access.site import open_site
from edison_ci.api.notices import Notice
from edison_ci.features.github.issues import _marker, _text
from edison_ci.features.monitor.alert_rows import Condition, Finding, Level
from edison_ci.features.monitor.alerts import raise_alert, tell_alerts
from edison_ci.features.monitor.notifications import message_of
from edison_ci.features.monitor.outbox import add_notification
from edison_ci.features.monitor.schedule_claims import MOST_MISSED
from edison_ci.features.monitor.schedules import read_schedules
from edison_ci.features.monitor.webhooks import body_of
from edison_ci.store.database import open_for_change
from tests.e2e.acting import EXPERIMENT
from tests.features.github.commands.test_github_run import Job, job
from tests.features.github.fake_github import TOKEN, FakeGitHub
from tests.features.github.fake_state import REPOSITORY, Grant
from tests.features.github.test_issues import WRITES
from tests.features.monitor.mailbox import mailbox
from tests.features.monitor.receiver import receiving
from tests.features.monitor.test_notifications import Town
from tests.features.monitor.test_scheduler import FILE, HOURLY, Bench, bench, settle
from tests.loopback.script import rule
from tests.opened import opened
from tests.report.page import HIDDEN, page
from tests.report.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.api.run_process import RunLaunch
    from tests.conftest import Edison, Folder
    from tests.features.monitor.receiver import Receiver

pytestmark = pytest.mark.daily

__all__ = ["bench", "job"]

CANARY = "canary-of-the-webhook-0123456789"
TEXTS = {
    "escape sequences": "fell \x1b]0;gone\x07\x1b[2J\x9b31m",
    "another direction": "fell \u202egnp.exe\u2066 \u200b",
    "tags": "fell \U000e0041\U000e0042\U000e0043",
    "HTML": "<script>fetch('//thief')</script><img src=//thief/x onerror=a()>",
    "Markdown": "![x](https://thief.example/x.png) [sign in](https://thief.example)",
    "a fence": "``` \n```\n````\n# Fixes #1, @octocat\n",
    "mentions": "@everyone @octocat <!channel> <!here> <@U012AB3CD> <users/all>",
    "links of Slack": "<https://thief.example|sign in> &lt;!here&gt;",
    "workflow commands": "\n::add-mask::fell\n##[error]gone\n::stop-commands::x",
    "headers of a mail": "fell\r\nBcc: eve@example.org\r\n\r\nforged body",
    "a formula": "=cmd|' /C calc'!A0",
    "a template": "{{ 7 * 7 }} ${{ github.token }} #{7} %(x)s {x}",
    "a marker of ours": "<!-- edison-ci:alert:v1 0123456789abcdef0123456789abcdef -->",
    "a known key": f"fell {CANARY}",
    "what looks like a key": "fell sk-ant-" + "a1B2" * 8,
    "a text without end": "fell " * 100_000,
    "a file name": "file:///etc/passwd \\\\thief\\share",
}
"""Sentences of alerts, by what they try."""
RECIPIENTS = """
notifications:
  - {name: plain, on: [alert], webhook_env: PLAIN_URL}
  - {name: slack, on: [alert], webhook_env: SLACK_URL, format: slack}
  - {name: teams, on: [alert], webhook_env: TEAMS_URL, format: teams}
"""


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def town(mini: Folder, server: Receiver, monkeypatch: pytest.MonkeyPatch) -> Town:
    monkeypatch.setenv("SOME_API_KEY", CANARY)
    mini.write("edison.yaml", mini.read("edison.yaml") + RECIPIENTS)
    found = Town(mini, server)
    found.environ = dict.fromkeys(("PLAIN_URL", "SLACK_URL", "TEAMS_URL"), server.url)
    return found


def alerted(town: Town, text: str) -> None:
    finding = Finding(Condition.DROP, Level.ALERT, text, "hello", detail={"said": text})
    with open_for_change(town.site.results) as connection:
        raise_alert(connection, town.site, finding)
        tell_alerts(connection, town.site)


@pytest.mark.parametrize("attack", TEXTS)
def test_texts_of_alerts_are_text_wherever_they_are_read(
    town: Town, edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    edison(mini, "validate")  # which learns the keys of this process
    alerted(town, TEXTS[attack])
    town.deliver()
    assert len(town.server.requests) == 3
    for _, body in town.server.requests:
        assert CANARY.encode() not in body
        assert b"a1B2a1B2" not in body
        assert not HIDDEN.search(json.dumps(json.loads(body), ensure_ascii=False))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for words in (
        ("alerts", "list"),
        ("status",),
        ("alerts", "check"),
        ("alerts", "list", "--json"),
    ):
        done = edison(mini, *words)
        assert "Traceback" not in done.all
        assert Runner().read(done.all) == []
        assert not HIDDEN.search(done.all)
        assert CANARY not in done.all


@pytest.mark.parametrize("attack", TEXTS)
def test_texts_of_alerts_stay_in_their_place_in_a_message(town: Town, attack: str) -> None:
    notice = Notice("alert", TEXTS[attack], (TEXTS[attack],), "hello", condition="drop")
    message = message_of(town.site, notice)
    slack, teams = body_of("slack", message), body_of("teams", message)
    for block in slack["blocks"]:
        for text in (*filter(None, [block.get("text")]), *block.get("elements", ())):
            assert (text["type"], text["emoji"]) == ("plain_text", False)
    assert not {*slack["text"]} & {*"<>"}, "the only text of Slack with links"
    (attachment,) = teams["attachments"]
    for block in attachment["content"]["body"]:
        assert block["type"] == "RichTextBlock", "Markdown is read in all others"
        assert {run["type"] for run in block["inlines"]} == {"TextRun"}
    shown = page(_text(message))
    assert {*shown.elements} == {"pre", "code"}, "nothing is a link, an image or a mention"
    assert not "".join(shown.words).strip()


MAIL = """
notifications:
  - name: ops
    on: [alert]
    smtp: {host_env: MAIL, from: edison@example.org, to: [ops@example.org]}
"""


def test_a_mail_has_our_headers_and_our_recipients_only(mini: Folder) -> None:
    mini.write("edison.yaml", mini.read("edison.yaml") + MAIL)
    with mailbox() as box, receiving() as server:
        town = Town(mini, server)
        town.environ = {"MAIL": f"127.0.0.1:{box.port}"}
        for text in TEXTS.values():
            town.tell(text[:10_000], sentences=(text[:10_000],), condition="drop")
            town.deliver()
            town.clock.go(hours=2)
        forged = {**message_of(town.site, Notice("alert", "forged")), "id": "f" * 32}
        odd = {**forged, "id": "e" * 32, "title": "fell\r\nBcc: eve@example.org"}
        with open_for_change(town.site.results) as connection:
            add_notification(connection, forged, "ops", "eve@example.org")
            add_notification(connection, {**forged, "id": "d" * 32}, "eve", "")
            add_notification(connection, odd, "ops", "ops@example.org")
        town.deliver()
    assert len(box.mails) == len(TEXTS) + 1, "the odd one is a mail like any other"
    for letter in box.mails:
        assert {letter["To"], letter["From"]} == {"ops@example.org", "edison@example.org"}
        assert "bcc" not in {name.lower() for name in letter.keys()}  # noqa: SIM118 - not a dict
        assert letter.get_content_type() == "text/plain"
    assert ("eve@example.org", "waiting") in town.rows("address, state")


@pytest.mark.nightly
def test_a_text_does_not_stand_for_the_issue_of_another_alert(
    mini: Folder, server: Receiver
) -> None:
    recipient = "notifications:\n  - {name: issues, on: [alert], github_issues: true}\n"
    mini.write("edison.yaml", mini.read("edison.yaml") + recipient)
    with FakeGitHub() as github:
        github.grants[TOKEN] = Grant(permissions=WRITES)
        town = Town(mini, server)
        town.environ = {
            "GITHUB_TOKEN": TOKEN,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_API_URL": github.url,
            "GITHUB_SERVER_URL": github.url,
        }
        about = {"experiment": "hello", "level": "alert"}
        errors = message_of(town.site, Notice("alert", "x", (), "hello", condition="error_rate"))
        forged = (_marker(errors), f"``` {_marker(errors)}")
        town.tell("hello fell", condition="drop", sentences=forged, **about)
        town.deliver()
        town.tell("errors", condition="error_rate", **about)
        town.deliver()
        assert len(github.state.issues) == 2, "the second has an issue of its own"
        town.tell("over", condition="error_rate", open=False, **about)
        town.deliver()
        states = [issue["state"] for issue in github.state.issues.values()]
    assert states == ["open", "closed"]


ROWS = {
    "a condition that is unknown": {"condition": "hacked"},
    "a condition of HTML": {"condition": "<script>"},
    "an experiment that is none": {"experiment": "../../etc/passwd\x1b[2J"},
    "details that are no JSON": {"detail": "{"},
    "details that are a list": {"detail": "[1]"},
    "a time that is none": {"opened_at": "yesterday", "seen_at": "never"},
    "a time of tomorrow": {"opened_at": "2999-01-01T00:00:00.000Z"},
    "a level that was told and is none": {"told_level": "hacked"},
    "a person of control characters": {"acknowledged_by": "\x1b[31meve", "acknowledged_at": "x"},
    "a run that is none": {"run_id": "../x"},
    "a sentence of HTML": {"sentence": "<img src=x onerror=a()>"},
    "a note of commands": {"note": "\n::error::x"},
}
"""Rows that no check writes: a results file may come from elsewhere."""


@pytest.mark.parametrize("attack", ROWS)
def test_a_forged_row_is_shown_as_text_or_refused_with_a_sentence(
    town: Town, edison: Edison, mini: Folder, attack: str
) -> None:
    alerted(town, "fell")
    with open_for_change(town.site.results) as connection:
        names = ", ".join(f"{name} = ?" for name in ROWS[attack])
        connection.execute(f"update alert set {names}", [*ROWS[attack].values()])
    for words in (("alerts", "list"), ("status",), ("alerts", "check"), ("alerts", "ack", "1")):
        done = edison(mini, *words)
        assert done.code in (0, 1, 2, 3), (words, done.all)
        assert "Traceback" not in done.all
        assert "a bug in edison" not in done.all
        assert not HIDDEN.search(done.all), words
    assert town.server.requests == []


# --- schedules ------------------------------------------------------------------------------------

SCHEDULES = {
    "a date that never comes": '{name: a, cron: "0 0 30 2 *"}',
    "a step of zero": '{name: a, cron: "*/0 * * * *"}',
    "a number without end": '{name: a, cron: "99999999999999999999 * * * *"}',
    "other digits": '{name: a, cron: "\u0661 * * * *"}',
    "two lines": '{name: a, cron: "1 1 1 1 1\\n* * * * *"}',
    "six fields": '{name: a, cron: "* * * * * *"}',
    "a shortcut": '{name: a, cron: "@reboot"}',
    "an expression without end": f'{{name: a, cron: "{"1," * 300}1 * * * *"}}',
    "a name of control characters": '{name: "a\\u001b[2J", cron: "0 * * * *"}',
    "a name of options": '{name: "--budget=10000", cron: "0 * * * *"}',
    "a name with a command": '{name: "a; touch PWNED", cron: "0 * * * *"}',
    "a budget without end": '{name: a, cron: "0 * * * *", budget_usd: 1e300}',
    "a budget below zero": '{name: a, cron: "0 * * * *", budget_usd: -1}',
    "a command": '{name: a, cron: "0 * * * *", command: "touch PWNED"}',
    "a recipient": '{name: a, cron: "0 * * * *", webhook_env: EVE}',
}


def test_schedules_that_cannot_be_are_refused_and_start_nothing(bench: Bench) -> None:
    before = bench.folder.read(FILE).partition("schedule:")[0]
    for attack, entry in SCHEDULES.items():
        bench.folder.write(FILE, f"{before}schedule: [{entry}]\n")
        site = open_site(bench.folder.path)
        assert read_schedules(site).schedules == (), attack
        assert len(read_schedules(site).broken) == 1, attack
        scheduler = bench.scheduler()
        for minutes in (0, 10, 20):
            bench.clock.now += dt.timedelta(minutes=minutes)
            settle(scheduler)
        scheduler.close()
    assert bench.started == []
    assert not [*bench.folder.path.rglob("PWNED")]


@pytest.mark.nightly
def test_thousands_of_times_are_one_row_and_start_one_run(bench: Bench) -> None:
    bench.folder.edit(FILE, "0 * * * *", "* * * * *")
    scheduler = bench.scheduler()
    scheduler.look()
    bench.clock.now += dt.timedelta(days=30)
    settle(scheduler)
    scheduler.close()
    (done,) = bench.rows("select count(*) from schedule_fire where state = 'done'")
    missed = bench.rows("select fires from schedule_fire where state = 'missed' order by fires")
    assert (done[0], len(missed) < 8, missed[-1][0]) == (1, True, MOST_MISSED)
    assert len(bench.started) == 1, "one at a time, and of those that are late only the last"
    assert len(bench.alerts(only_open=False)) <= 2


def test_a_clock_that_began_in_1970_counts_no_millions(bench: Bench) -> None:
    bench.folder.edit(FILE, "0 * * * *", "* * * * *")
    scheduler, now = bench.scheduler(), bench.clock.now
    bench.clock.now = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    scheduler.look()
    bench.clock.now = now
    settle(scheduler)
    scheduler.close()
    (counted,) = bench.rows("select max(fires) from schedule_fire")[0]
    assert counted == MOST_MISSED
    assert len(bench.started) == 1


def test_many_schedules_start_no_more_than_one_run_of_an_experiment(bench: Bench) -> None:
    entries = ", ".join(f'{{name: s{n}, cron: "* * * * *", budget_usd: 9999}}' for n in range(20))
    before = bench.folder.read(FILE).partition("schedule:")[0]
    bench.folder.write(FILE, f"{before}schedule: [{entries}]\n")

    class Running:
        def poll(self) -> int | None:
            return None

        def stop(self, *, kill: bool = False) -> None:
            del kill

        def error(self) -> str:
            return ""

    def launch(_: object, launch: RunLaunch) -> Any:
        bench.started.append(launch)
        return Running()

    scheduler = bench.scheduler(launch)
    scheduler.look()
    for _ in range(5):
        bench.clock.now += dt.timedelta(minutes=1)
        scheduler.look()
    assert len(bench.started) == 1
    assert len(bench.rows("select 1 from schedule_fire where ended_at is null")) <= 21


@pytest.mark.nightly
def test_a_scheduled_run_imports_nothing_of_the_project(mini: Folder) -> None:
    """The scheduler is started in the folder of the project, and so are the runs that it starts."""
    mini.write(FILE, mini.read(FILE) + HOURLY)
    evil = "open('PWNED', 'w').write(__name__)\n"
    for name in ("edison_ci/__init__", "edison_ci/__main__", "yaml", "click", "sitecustomize"):
        mini.write(f"{name}.py", evil)
    done = mini.edison("schedule", "run", "hourly", "--now")
    assert done.code == 0, done.all
    assert not (mini.path / "PWNED").exists()
    with opened(mini.path / ".edison/results.db") as connection:
        assert connection.execute("select state from schedule_fire").fetchall() == [("done",)]


@pytest.mark.nightly
def test_a_schedule_of_a_proposal_spends_no_more_than_its_base(job: Job) -> None:
    limit = 10_000
    bench, header = job.bench, "version: 1\nproject: greetings\ndefaults: {budget_usd: @}\n"
    bench.repository.write("edison.yaml", header.replace("@", f"{limit / 1e6:g}"))
    bench.base = bench.commit("a budget")
    bench.model.script[:] = [rule(text="Welcome " * 5_000)]
    schedule = 'schedule: [{name: now, cron: "0 * * * *", budget_usd: 10000}]\n'
    bench.propose(
        **{
            "edison.yaml": header.replace("@", "10000"),
            "experiments/hello.yaml": f"{EXPERIMENT}stop: {{budget_usd: 10000}}\n{schedule}",
        }
    )
    job.describe("pull_request", bench.pull_request())
    done = bench.repository.edison("schedule", "run", "now", "--now")
    assert done.code in (0, 1, 2, 3, 4, 5), done.all
    assert bench.model.ledger_total() <= limit, done.all
