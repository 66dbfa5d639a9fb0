"""edison schedule: schedules are listed in words, and edited with comments kept."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from edison_ci.access.site import open_site
from edison_ci.features.monitor.schedules import scheduler_status
from tests import forked
from tests.opened import opened
from tests.timing import PATIENCE_S, poll

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

FILE = "experiments/hello.yaml"
MINE = """\

# asked for by the support team
schedule:
  - name: weekdays   # not at weekends
    cron: "0 9 * * 1-5"   # 09:00 UTC
  # a spare one
  - {name: often, cron: "*/5 * * * *", enabled: false}

# the end
"""


@pytest.fixture
def project(mini: Folder) -> Folder:
    mini.write(FILE, mini.read(FILE) + MINE)
    return mini


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_schedules_are_listed_in_words_with_their_next_time(
    edison: Edison, project: Folder
) -> None:
    done = edison(project, "schedule", "list")
    assert done.code == 0, done.all
    lines = done.out.splitlines()
    assert lines[:2] == ["hello", "  weekdays: on weekdays at 09:00 UTC"]
    assert lines[2].startswith("    next  20")
    assert lines[2].endswith(" 09:00 UTC")
    assert lines[3:] == ["  often: every 5 minutes, disabled"]
    found = json.loads(edison(project, "schedule", "list", "--json").out)["schedules"]
    assert [(each["name"], each["enabled"], each["words"]) for each in found] == [
        ("weekdays", True, "on weekdays at 09:00 UTC"),
        ("often", False, "every 5 minutes"),
    ]
    assert found[0]["next"].endswith("T09:00:00.000Z")
    assert found[1]["next"] is None


@pytest.mark.usefixtures("in_berlin")
def test_local_time_is_said_beside_utc_and_that_it_shifts(edison: Edison, project: Folder) -> None:
    added = edison(project, "schedule", "add", "--every", "monday", "--at", "23:30")
    assert "on Mondays at 23:30 UTC" in added.out
    local = added.err.split("23:30 UTC (", 1)[1]
    assert " local time)" in local.splitlines()[0]
    assert "shift by an hour with daylight saving time" in added.err


def test_a_schedule_is_added_and_removed_without_a_trace(edison: Edison, project: Folder) -> None:
    before = project.read(FILE)
    done = edison(
        project, "schedule", "add", "hello", "--every", "weekday", "--at", "6:05",
        "--budget", "2", "--name", "early",
    )  # fmt: skip
    assert done.code == 0, done.all
    assert done.out == f"hello/early added to {FILE}: on weekdays at 06:05 UTC\n"
    added = '  - name: early\n    cron: "5 6 * * 1-5"\n    budget_usd: 2\n'
    assert project.read(FILE) == before.replace("enabled: false}\n", f"enabled: false}}\n{added}")
    assert edison(project, "validate").code == 0
    assert edison(project, "schedule", "remove", "early").code == 0
    assert project.read(FILE) == before


@pytest.mark.parametrize(
    ("args", "cron"),
    [
        (["--every", "5m"], "*/5 * * * *"),
        (["--every", "hour"], "0 * * * *"),
        (["--every", "hour", "--at", "00:17"], "17 * * * *"),
        (["--every", "6h"], "0 */6 * * *"),
        (["--every", "day"], "0 9 * * *"),
        (["--every", "monday"], "0 9 * * 1"),
        (["--every", "month", "--at", "03:00"], "0 3 1 * *"),
        (["--cron", " 0  9 * * MON "], "0 9 * * MON"),
    ],
)
def test_every_preset_is_a_cron(edison: Edison, mini: Folder, args: list[str], cron: str) -> None:
    done = edison(mini, "schedule", "add", *args, "--json")
    assert json.loads(done.out)["added"]["cron"] == cron
    assert edison(mini, "validate").code == 0


def test_a_schedule_that_github_cannot_keep_is_pointed_out(edison: Edison, mini: Folder) -> None:
    often = edison(mini, "schedule", "add", "--cron", "*/2 * * * *")
    assert often.code == 0
    assert "more often than every 5 minutes, which GitHub does not offer" in often.err
    assert "GitHub" not in edison(mini, "schedule", "add", "--every", "5m").err


def test_a_schedule_is_disabled_and_enabled_with_every_comment_kept(
    edison: Edison, project: Folder
) -> None:
    before = project.read(FILE)
    off = edison(project, "schedule", "disable", "hello", "weekdays")
    assert off.out == "hello/weekdays is disabled\n"
    inserted = '1-5"   # 09:00 UTC\n    enabled: false\n'
    assert project.read(FILE) == before.replace('1-5"   # 09:00 UTC\n', inserted)
    assert edison(project, "schedule", "disable", "weekdays").out.endswith("disabled already\n")
    assert edison(project, "schedule", "enable", "often").code == 0
    assert "enabled: true}\n" in project.read(FILE)
    assert edison(project, "schedule", "enable", "hello/weekdays").code == 0
    text = project.read(FILE)
    kept = [line for line in before.splitlines() if "#" in line]
    assert [line for line in text.splitlines() if "#" in line] == kept
    assert edison(project, "validate").code == 0


def test_edits_need_an_editor_and_leave_audit_rows(edison: Edison, project: Folder) -> None:
    edison(project, "schedule", "add", "--every", "day")
    edison(project, "schedule", "disable", "daily")
    edison(project, "schedule", "enable", "daily")
    edison(project, "schedule", "remove", "daily")
    before = project.read(FILE)
    project.git("config", "--global", "user.email", "test@example.com")
    members = "members: [{email: test@example.com, role: reviewer}]\n"
    project.write("edison.yaml", project.read("edison.yaml") + members)
    for words in (["add", "--every", "day"], ["remove", "often"], ["enable", "often"]):
        refused = edison(project, "schedule", *words)
        assert refused.code == 2, refused.all
        assert "needs an editor; test@example.com is a reviewer" in refused.err
    assert project.read(FILE) == before
    with opened(project.path / ".edison/results.db") as connection:
        rows = connection.execute("select action, entity from audit order by seq").fetchall()
    assert rows == [
        ("schedule add", "hello/daily"),
        ("schedule disable", "hello/daily"),
        ("schedule enable", "hello/daily"),
        ("schedule remove", "hello/daily"),
        ("refused: schedule add", "hello/daily"),
        ("refused: schedule remove", "hello/often"),
        ("refused: schedule enable", "hello/often"),
    ]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["add"], "give either --every or --cron"),
        (["add", "--every", "day", "--cron", "0 9 * * *"], "give either --every or --cron"),
        (["add", "--every", "day", "--at", "24:00"], "'24:00' is not a time of day"),
        (["add", "--every", "5m", "--at", "09:00"], "--every 5m has no time of day"),
        (["add", "--cron", "0 9 * *"], "'0 9 * *' is not five fields"),
        (["add", "--cron", "0 9 * * *", "--at", "9:00"], "--at has no effect with --cron"),
        (["add", "--every", "day", "--name", "often"], "hello has a schedule 'often' already"),
        (["add", "--every", "day", "--name", "two words!"], "'two words!' is not a name"),
        (["add", "other", "--every", "day"], "there is no experiment 'other'"),
        (["remove", "weekday"], "there is no schedule 'weekday'"),
        (["disable", "other", "often"], "there is no experiment 'other'"),
    ],
)
def test_what_cannot_be_is_refused_with_a_hint(
    edison: Edison, project: Folder, args: list[str], said: str
) -> None:
    before = project.read(FILE)
    done = edison(project, "schedule", *args)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) > 1, "there is no hint"
    assert project.read(FILE) == before


def test_a_broken_file_hides_no_other_schedule(edison: Edison, project: Folder) -> None:
    project.write("experiments/broken.yaml", "experiment: broken\nschedule: [{name: x}]\n")
    done = edison(project, "schedule", "list")
    assert done.code == 0
    assert "weekdays: on weekdays" in done.out
    assert "not read: experiments/broken.yaml" in done.err
    assert edison(project, "schedule", "disable", "weekdays").code == 0
    refused = edison(project, "schedule", "add", "broken", "--every", "day")
    assert refused.code == 2
    assert "experiments/broken.yaml" in refused.err


@pytest.mark.parametrize(
    "odd",
    [
        'schedule: &all [{name: a, cron: "0 9 * * *"}]\n',
        'schedule:\n  - &a {name: a, cron: "0 9 * * *"}\n  - {name: b, cron: "1 1 * * *"}\n',
    ],
)
def test_an_odd_file_is_edited_rightly_or_not_at_all(
    edison: Edison, mini: Folder, odd: str
) -> None:
    mini.write(FILE, mini.read(FILE) + odd)
    for words in (["add", "--every", "hour"], ["disable", "a"], ["remove", "a"]):
        before = mini.read(FILE)
        done = edison(mini, "schedule", *words)
        assert edison(mini, "validate").code == 0
        if done.code:
            assert "cannot be edited safely" in done.err
            assert mini.read(FILE) == before


@pytest.mark.nightly
def test_a_schedule_is_started_now_and_its_exit_code_is_that_of_the_run(
    edison: Edison, project: Folder
) -> None:
    done = started(project, "often", "--now", "--json")
    assert done.returncode == 0, done.stderr
    fire = json.loads(done.stdout)["fire"]
    assert (fire["schedule"], fire["state"], fire["exit_code"]) == ("often", "done", 0)
    assert "hello/often: started" in done.stderr
    shown = started(project, "hello", "weekdays", "--now")
    assert shown.returncode == 0, shown.stderr
    assert "hello  COMPLETED" in shown.stdout
    last = edison(project, "schedule", "list").out
    assert last.count(": done, skipped") == 2
    with opened(project.path / ".edison/results.db") as connection:
        triggers = connection.execute("select distinct trigger from run").fetchall()
        actions = connection.execute("select action, entity from audit").fetchall()
    assert triggers == [("schedule",)]
    assert ("schedule run", "hello/often") in actions


def test_a_run_that_cannot_start_now_says_why(edison: Edison, project: Folder) -> None:
    project.write("prompts/hello.md", "---\nid: other\n---\n# user\nHello {{ name }}\n")
    done = started(project, "often", "--now")
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "failed: " in edison(project, "schedule", "list").out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["often"], "NAME needs --now"),
        (["--now"], "--now takes the name of a schedule"),
        (["never", "--now"], "there is no schedule 'never'"),
    ],
)
def test_a_name_and_now_belong_together(project: Folder, args: list[str], said: str) -> None:
    done = started(project, *args)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_scheduler_needs_an_editor(project: Folder) -> None:
    members = "members: [{email: boss@example.com, role: owner}]\n"
    project.write("edison.yaml", project.read("edison.yaml") + members)
    done = started(project)
    assert done.returncode == 2
    assert "schedule run needs an editor" in done.stderr


def test_a_scheduler_runs_until_it_is_told_to_stop(edison: Edison, project: Folder) -> None:
    site = open_site(project.path)
    words = [sys.executable, "-P", "-m", "edison_ci", "schedule", "run"]
    with forked.Popen(words, cwd=project.path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "1 schedule; stop with Ctrl-C or SIGTERM\n"
        poll("a sign of life", lambda: scheduler_status(site).running)
        process.terminate()
        assert process.stderr.read().endswith("UTC  stopped\n")
    assert process.returncode == 0
    assert "scheduler: stopped, last seen " in edison(project, "schedule", "list").err


def started(project: Folder, *args: str) -> subprocess.CompletedProcess[str]:
    """Run `edison schedule run` as a process, as it takes the signals of its own."""
    return forked.run(
        [sys.executable, "-P", "-m", "edison_ci", "schedule", "run", *args],
        cwd=project.path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
