"""An alert is one issue, opened once, closed with a comment, and found again by its marker."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access.site import open_site
from edison_ci.features.monitor.alert_rows import Condition, Finding, Level
from edison_ci.features.monitor.alerts import close_alert, raise_alert, tell_alerts
from edison_ci.features.monitor.notifications import Delivery, send_test
from edison_ci.store.database import open_for_change
from tests.features.github.fake_github import TOKEN, FakeGitHub, Fault
from tests.features.github.fake_state import REPOSITORY, Grant
from tests.features.monitor.receiver import receiving
from tests.features.monitor.test_notifications import Town

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from tests.conftest import Folder

pytestmark = pytest.mark.daily

RECIPIENT = """
notifications:
  - {name: issues, on: [alert, budget, schedule_missed], github_issues: true}
"""
WRITES = {"contents": "write", "pull_requests": "write", "issues": "write"}


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with FakeGitHub() as server:
        server.grants[TOKEN] = Grant(permissions=WRITES)
        yield server


@pytest.fixture
def town(mini: Folder, github: FakeGitHub) -> Iterator[Town]:
    mini.write("edison.yaml", mini.read("edison.yaml") + RECIPIENT)
    with receiving() as server:
        found = Town(mini, server)
        found.environ = {
            "GITHUB_TOKEN": TOKEN,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_API_URL": github.url,
            "GITHUB_SERVER_URL": github.url,
        }
        yield found


def fall(town: Town, **facts: Any) -> Delivery:
    told = {"experiment": "hello", "condition": "drop", "level": "alert", **facts}
    assert town.tell("hello fell by 12 points", **told) == 1
    return town.deliver()


def issues(github: FakeGitHub) -> list[dict[str, Any]]:
    return [*github.state.issues.values()]


def test_an_issue_is_opened_and_closed_with_its_condition(town: Town, github: FakeGitHub) -> None:
    assert fall(town, sentences=("@ada see #1 <b>",)) == Delivery(sent=1)
    [issue] = issues(github)
    assert issue["title"] == "hello fell by 12 points"
    assert issue["body"].startswith("```text\nhello fell by 12 points\n\n@ada see #1 <b>\n")
    assert fall(town, experiment="other") == Delivery(sent=1)
    assert len(issues(github)) == 2, "one for each experiment"
    assert fall(town, open=False, sentences=("The score is back.",)) == Delivery(sent=1)
    assert [issue["state"] for issue in issues(github)] == ["closed", "open"]
    [comment] = github.state.comments.values()
    assert "The score is back." in comment["body"]
    assert fall(town) == Delivery(sent=1)
    assert [issue["state"] for issue in issues(github)] == ["closed", "open", "open"]


def test_an_alert_that_rises_is_a_comment_on_its_issue(town: Town, github: FakeGitHub) -> None:
    fall(town, level="warn")
    fall(town, level="alert", sentences=("It is worse now.",))
    assert len(issues(github)) == 1
    [comment] = github.state.comments.values()
    assert "It is worse now." in comment["body"]


def test_a_lost_reply_opens_no_second_issue(town: Town, github: FakeGitHub) -> None:
    github.faults.append(Fault(500, "POST", "/issues", after=True))
    assert fall(town).sent == 0
    assert len(issues(github)) == 1
    town.clock.go(minutes=1)
    assert town.deliver() == Delivery(sent=1)
    assert len(issues(github)) == 1
    assert github.state.comments == {}


@pytest.mark.nightly
def test_a_lost_reply_makes_no_second_comment(town: Town, github: FakeGitHub) -> None:
    fall(town)
    github.faults.append(Fault(500, "PATCH", "/issues", after=False, times=9))
    assert fall(town, open=False).sent == 0
    github.faults.clear()
    town.clock.go(minutes=1)
    assert town.deliver() == Delivery(sent=1)
    assert len(github.state.comments) == 1
    assert [issue["state"] for issue in issues(github)] == ["closed"]


def test_the_issue_of_a_stranger_is_left_alone(town: Town, github: FakeGitHub) -> None:
    fall(town)
    [ours] = issues(github)
    stranger = Grant("mallory", is_bot=False, association="NONE")
    forged = github.state.open_issue("mine", ours["body"], stranger)
    fall(town, open=False)
    assert (ours["state"], forged["state"]) == ("closed", "open")


def test_a_condition_that_ends_without_an_issue_is_no_error(town: Town, github: FakeGitHub) -> None:
    assert fall(town, open=False) == Delivery(sent=1)
    assert issues(github) == []


def test_a_token_that_may_not_write_issues_is_said(town: Town, github: FakeGitHub) -> None:
    github.grants[TOKEN] = Grant(permissions={"contents": "write", "issues": "read"})
    [(name, why)] = fall(town).problems
    assert name == "issues"
    assert "403" in why
    town.environ.pop("GITHUB_TOKEN")
    town.clock.go(minutes=1)
    [(_, why)] = town.deliver().unset
    assert why == "there is no token for GitHub: neither GITHUB_TOKEN nor GH_TOKEN is set"


def test_a_test_opens_an_issue_and_closes_it(town: Town, github: FakeGitHub) -> None:
    [recipient] = town.site.file.notifications
    said = send_test(town.site, recipient, town.environ)
    [issue] = issues(github)
    assert said == f"opened {issue['html_url']}; closed {issue['html_url']}"
    assert issue["state"] == "closed"


def test_what_has_no_condition_opens_no_issue(town: Town) -> None:
    assert town.tell("80% is used", occasion="budget") == 0


def test_who_wants_issues_for_budgets_gets_one(
    mini: Folder, town: Town, github: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini.edit("edison.yaml", "on: [alert, budget, schedule_missed]", "on: [budget]")
    town.site = site = replace(open_site(mini.path), clock=town.clock)
    for name, value in town.environ.items():
        monkeypatch.setenv(name, value)
    for condition in (Condition.DROP, Condition.BUDGET):
        with open_for_change(site.results) as connection:
            raise_alert(connection, site, Finding(condition, Level.ALERT, f"{condition}.", "hello"))
            tell_alerts(connection, site)
    assert town.deliver() == Delivery(sent=1)
    assert [issue["title"] for issue in issues(github)] == ["ALERT hello: budget"]


def test_an_alert_is_an_issue_from_its_first_sign_to_its_end(
    town: Town, github: FakeGitHub
) -> None:
    finding = Finding(Condition.DROP, Level.WARN, "hello fell by 4 points.", "hello")

    def check(act: Callable[[sqlite3.Connection], None]) -> None:
        with open_for_change(town.site.results) as connection:
            act(connection)
            tell_alerts(connection, town.site)
        assert town.deliver().problems == ()

    with pytest.MonkeyPatch.context() as patched:
        for name, value in town.environ.items():
            patched.setenv(name, value)
        check(lambda connection: raise_alert(connection, town.site, finding))
        [issue] = issues(github)
        assert "hello fell by 4 points." in issue["body"]
        worse = replace(finding, level=Level.ALERT, sentence="hello fell by 12 points.")
        check(lambda connection: raise_alert(connection, town.site, worse))
        check(
            lambda connection: close_alert(
                connection, town.site, Condition.DROP, "hello", why="the next run has no fall"
            )
        )
    assert issue["state"] == "closed"
    risen, ended = (comment["body"] for comment in github.state.comments.values())
    assert "hello fell by 12 points." in risen
    assert "the next run has no fall" in ended
