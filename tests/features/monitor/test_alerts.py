"""Alerts are opened once, rise, are closed when their condition is gone, and people act on them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from docs.sample import build
from edison_ci.access.site import Site, open_site
from edison_ci.errors import RoleError, UsageError
from edison_ci.features.monitor.alert_rows import (
    AlertOverview,
    Condition,
    Finding,
    Level,
    alert_overview,
)
from edison_ci.features.monitor.alerts import (
    MuteTarget,
    acknowledge,
    close_alert,
    mute,
    mute_target,
    raise_alert,
    tell_alerts,
    unmute,
)
from edison_ci.features.monitor.outbox import due_notifications
from edison_ci.results.history_words import audit_sentence
from edison_ci.store.audit import read_audit, verify_audit
from edison_ci.store.database import open_for_change, open_for_reading

if TYPE_CHECKING:
    from typing import Any

    from tests.conftest import Folder

pytestmark = pytest.mark.daily

DROP = Finding(Condition.DROP, Level.WARN, "Quality 72, was 81.", "hello", "r1", {"points": 9})
DAY = dt.timedelta(days=1)


@dataclass
class Clock:
    """A clock that a test moves."""

    now: dt.datetime = field(default=dt.datetime(2027, 6, 1, tzinfo=dt.UTC))

    def __call__(self) -> dt.datetime:
        return self.now

    def move(self, by: dt.timedelta) -> None:
        self.now += by


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def site(mini: Folder, clock: Clock) -> Site:
    (mini.path / ".edison").mkdir()
    build(mini.path / ".edison/results.db")
    mini.git("config", "--global", "user.email", "ada@example.org")
    return replace(open_site(mini.path), clock=clock)


def found(site: Site, *findings: Finding) -> None:
    with open_for_change(site.results) as connection:
        for finding in findings:
            raise_alert(connection, site, finding)


def gone(site: Site, finding: Finding) -> None:
    with open_for_change(site.results) as connection:
        close_alert(connection, site, finding.condition, finding.experiment, why="it is well")


def overview(site: Site, experiment: str | None = None) -> AlertOverview:
    with open_for_reading(site.results) as connection:
        return alert_overview(connection, site.now(), experiment)


def history(site: Site) -> list[str]:
    with open_for_reading(site.results) as connection:
        assert verify_audit(connection).broken is None
        rows = [row.entry for row in reversed(read_audit(connection))]
    return [audit_sentence(row) for row in rows if row.action.startswith("alert")]


def test_a_condition_has_one_open_alert_for_each_experiment(site: Site) -> None:
    other = replace(DROP, experiment="other")
    found(site, DROP, DROP, other, replace(DROP, condition=Condition.LATENCY))
    kinds = sorted((e.alert.condition, e.alert.experiment) for e in overview(site).open)
    assert kinds == [("drop", "hello"), ("drop", "other"), ("latency", "hello")]
    assert [e.alert.experiment for e in overview(site, "other").open] == ["other"]


def test_an_alert_that_is_found_again_has_the_newest_figures(site: Site, clock: Clock) -> None:
    found(site, DROP)
    opened = site.now()
    clock.move(DAY)
    found(site, replace(DROP, sentence="Quality 70, was 81.", run_id="r2", detail={"points": 11}))
    (entry,) = overview(site).open
    alert = entry.alert
    assert (alert.sentence, alert.run_id, alert.detail) == (
        "Quality 70, was 81.",
        "r2",
        {"points": 11},
    )
    assert (alert.opened_at, alert.seen_at) == (opened, site.now())
    assert len(history(site)) == 1


def test_an_alert_that_rises_is_the_same_one_and_needs_a_new_acknowledgement(site: Site) -> None:
    found(site, DROP)
    acknowledge(site, [1], "known")
    found(site, DROP)
    assert overview(site).open[0].state == "acknowledged"
    found(site, replace(DROP, level=Level.ALERT))
    (entry,) = overview(site).open
    assert (entry.alert.id, entry.alert.level, entry.state) == (1, Level.ALERT, "open")
    assert history(site) == [
        "edison opened alert 1, drop of hello: Quality 72, was 81.",
        "ada@example.org acknowledged alert 1, drop of hello: known.",
        "edison raised to ALERT alert 1, drop of hello: Quality 72, was 81.",
    ]


def test_the_level_does_not_fall_while_an_alert_is_open(site: Site) -> None:
    found(site, replace(DROP, level=Level.ALERT), DROP)
    assert overview(site).open[0].alert.level is Level.ALERT


def test_a_closed_alert_is_history_and_opens_anew_under_another_number(
    site: Site, clock: Clock
) -> None:
    found(site, DROP)
    clock.move(DAY)
    gone(site, DROP)
    gone(site, DROP)
    seen = overview(site)
    assert (seen.open, seen.worst, seen.past_total) == ((), None, 1)
    (entry,) = seen.past
    assert (entry.state, entry.alert.closed_why) == ("closed", "it is well")
    assert entry.duration_s(site.now()) == 86_400
    found(site, DROP)
    assert overview(site).open[0].alert.id == 2
    assert history(site)[1] == "edison closed alert 1, drop of hello: it is well."


def test_what_is_closed_or_unknown_cannot_be_acknowledged(site: Site) -> None:
    found(site, DROP)
    gone(site, DROP)
    with pytest.raises(UsageError, match="alert 1 is closed since 2027-06-01"):
        acknowledge(site, [1])
    with pytest.raises(UsageError, match="there is no alert 7"):
        acknowledge(site, [7])


def test_several_are_acknowledged_all_or_none(site: Site) -> None:
    found(site, DROP, replace(DROP, experiment="other"))
    with pytest.raises(UsageError):
        acknowledge(site, [1, 7])
    assert {entry.state for entry in overview(site).open} == {"open"}


def test_a_mute_covers_a_condition_also_after_it_opens_again(site: Site, clock: Clock) -> None:
    latency = replace(DROP, condition=Condition.LATENCY)
    found(site, DROP, latency)
    mute(site, mute_target(site, 1), 2 * DAY, "moving")
    states = {e.alert.condition: e.state for e in overview(site).open}
    assert states == {"drop": "muted", "latency": "open"}
    gone(site, DROP)
    found(site, DROP)
    assert {e.alert.id: e.state for e in overview(site).open} == {2: "open", 3: "muted"}
    clock.move(2 * DAY)
    assert {e.state for e in overview(site).open} == {"open"}
    assert history(site)[2] == (
        "ada@example.org muted drop of hello until 2027-06-03 00:00 UTC: moving."
    )


def test_the_worst_level_leaves_out_what_is_muted(site: Site) -> None:
    found(site, replace(DROP, level=Level.ALERT), replace(DROP, experiment="other"))
    assert overview(site).worst is Level.ALERT
    mute(site, MuteTarget("hello"), DAY)
    seen = overview(site)
    assert (seen.worst, seen.count(Level.ALERT)) == (Level.WARN, 1)


def test_a_mute_is_replaced_and_ended(site: Site) -> None:
    found(site, DROP)
    target = MuteTarget("hello")
    mute(site, target, 30 * DAY)
    mute(site, target, DAY)
    (kept,) = overview(site).mutes
    assert (kept.until, kept.condition) == ("2027-06-02T00:00:00.000Z", None)
    unmute(site, target)
    assert overview(site).mutes == ()
    assert history(site)[-1] == "ada@example.org ended the mute of all alerts of hello."
    with pytest.raises(UsageError, match="all alerts of hello is not muted"):
        unmute(site, target)


def test_reviewers_acknowledge_and_editors_mute(mini: Folder, site: Site) -> None:
    found(site, DROP)
    roles = "members:\n  - {github: eve, role: owner}\n  - {email: ada@example.org, role: ROLE}\n"
    start = mini.read("edison.yaml")
    for role, may_ack, may_mute in (
        ("viewer", False, False),
        ("reviewer", True, False),
        ("editor", True, True),
    ):
        mini.write("edison.yaml", start + roles.replace("ROLE", role))
        now = replace(open_site(mini.path), clock=site.clock)
        for allowed, act in (
            (may_ack, lambda now=now: acknowledge(now, [1])),
            (may_mute, lambda now=now: mute(now, MuteTarget("hello"), DAY)),
        ):
            if allowed:
                act()
            else:
                with pytest.raises(RoleError):
                    act()
    refused = [text for text in history(site) if "refused" in text]
    assert refused == []
    with open_for_reading(site.results) as connection:
        actions = [row.entry.action for row in read_audit(connection)]
    assert actions.count("refused: alerts ack") == 1
    assert actions.count("refused: alerts mute") == 2


# --- telling --------------------------------------------------------------------------------------

RECIPIENTS = """notifications:
  - {name: team, on: [alert], webhook_env: TEAM_HOOK}
  - {name: issues, on: [alert], github_issues: true}
"""
LATENCY = replace(DROP, condition=Condition.LATENCY)


@pytest.fixture
def told(mini: Folder, site: Site) -> Site:
    """A site with somebody who is told, and issues."""
    mini.write("edison.yaml", mini.read("edison.yaml") + RECIPIENTS)
    return replace(open_site(mini.path), clock=site.clock)


def titles(site: Site, recipient: str = "team") -> list[str]:
    """Return what a recipient is told, after the notices of alerts were written."""
    return [message["title"] for message in messages(site, recipient)]


def messages(site: Site, recipient: str = "team") -> list[dict[str, Any]]:
    with open_for_change(site.results) as connection:
        tell_alerts(connection, site)
        waiting = due_notifications(connection, now=site.now(), latest="9999")
    return [one.message for one in waiting if one.recipient == recipient]


def test_an_alert_is_told_once_when_it_rises_and_when_it_is_over(told: Site) -> None:
    found(told, DROP)
    assert titles(told) == titles(told) == ["WARN hello: drop"]
    (message,) = messages(told)
    assert (message["condition"], message["experiment"], message["level"], message["open"]) == (
        "drop", "hello", "warn", True,
    )  # fmt: skip
    assert message["sentences"] == ["Quality 72, was 81.", "Acknowledge it: edison alerts ack 1"]
    found(told, replace(DROP, level=Level.ALERT))
    gone(told, DROP)
    assert titles(told) == ["WARN hello: drop", "Over: hello: drop"]
    found(told, replace(DROP, level=Level.ALERT))
    assert titles(told)[2:] == ["ALERT hello: drop"]


def test_an_alert_that_rises_is_told_again(told: Site) -> None:
    found(told, DROP)
    titles(told)
    acknowledge(told, [1])
    found(told, replace(DROP, level=Level.ALERT))
    assert titles(told) == ["WARN hello: drop", "ALERT hello: drop"]


def test_what_came_and_went_untold_is_not_told(told: Site) -> None:
    found(told, DROP)
    gone(told, DROP)
    assert titles(told) == []


def test_an_open_alert_is_told_again_after_a_week_until_it_is_acknowledged(
    told: Site, clock: Clock
) -> None:
    found(told, DROP, LATENCY)
    titles(told)
    acknowledge(told, [2])
    clock.move(6 * DAY)
    assert len(titles(told)) == 2
    clock.move(2 * DAY)
    assert titles(told)[2:] == ["WARN still open: hello: drop"]


def test_what_is_muted_is_told_when_the_mute_is_over(told: Site, clock: Clock) -> None:
    found(told, DROP)
    mute(told, MuteTarget("hello"), DAY)
    assert titles(told) == []
    clock.move(2 * DAY)
    assert titles(told) == ["WARN hello: drop"]


def test_the_end_of_what_was_told_is_told_even_while_it_is_muted(told: Site) -> None:
    found(told, DROP)
    titles(told)
    mute(told, MuteTarget("hello"), DAY)
    gone(told, DROP)
    assert titles(told)[1:] == ["Over: hello: drop"]


def test_many_at_once_are_one_notice_and_an_issue_each(told: Site) -> None:
    several = [replace(DROP, experiment=name) for name in ("a", "b", "c", "d")]
    found(told, *several)
    (message,) = messages(told)
    assert message["title"] == "4 alerts: 4 open"
    assert message["sentences"][0] == "WARN a: drop. Quality 72, was 81."
    assert message["sentences"][-1] == "See: edison alerts list"
    assert titles(told, "issues") == [f"WARN {name}: drop" for name in ("a", "b", "c", "d")]


def test_a_budget_is_told_by_its_run_and_kept_as_an_issue(told: Site) -> None:
    found(told, replace(DROP, condition=Condition.BUDGET))
    assert titles(told) == []
    assert titles(told, "issues") == ["WARN hello: budget"]
