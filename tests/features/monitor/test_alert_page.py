"""The page of alerts, the banner of other pages, and the forms that people use on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edison_ci.access.site import open_site
from edison_ci.features.monitor.alert_rows import Condition, Finding, Level
from edison_ci.features.monitor.alerts import close_alert, raise_alert
from edison_ci.store.database import open_for_change
from tests.features.monitor.test_alert_attacks import TEXTS
from tests.report.page import HIDDEN
from tests.web.review_site import ADA, PROBE, ReviewSite, place
from tests.web.test_pages import Read

if TYPE_CHECKING:
    from collections.abc import Iterator

SAID = "A run was missed at 02:00 UTC."


class Alerted:
    """A site with one open alert."""

    def __init__(self, desk: ReviewSite) -> None:
        self.desk, self.site = desk, open_site(desk.folder.path)

    def open(self, level: Level = Level.ALERT, said: str = SAID) -> int:
        with open_for_change(self.site.results) as connection:
            finding = Finding(Condition.SCHEDULE_MISSED, level, said, "hello")
            raise_alert(connection, self.site, finding)
        self.desk.begin()
        return int(self.desk.ask("select max(id) from alert")[0][0])

    def close(self) -> None:
        with open_for_change(self.site.results) as connection:
            close_alert(connection, self.site, Condition.SCHEDULE_MISSED, "hello", why="it ran")
            connection.execute("update alert_mute set until = '2000-01-01T00:00:00.000Z'")


@pytest.fixture
def alerted(desk: ReviewSite) -> Iterator[Alerted]:
    found = Alerted(desk)
    yield found
    desk.begin()
    found.close()


@pytest.mark.nightly
def test_an_open_alert_is_on_its_page_at_home_and_on_its_experiment(alerted: Alerted) -> None:
    desk = alerted.desk
    assert SAID not in Read(desk.get("/experiment/hello").text).text
    alerted.open()
    for path in ("/alerts", "", "/experiment/hello"):
        shown = Read(desk.get(path).text).text
        assert SAID in shown, path
        assert "ALERT: schedule missed" in shown, path
    alerted.close()
    for path in ("", "/experiment/hello"):
        assert SAID not in Read(desk.get(path).text).text
    past = Read(desk.get("/alerts").text).text
    assert "No open alert" in past
    assert SAID in past and "it ran" in past


def test_who_reviews_takes_care_of_an_alert(alerted: Alerted) -> None:
    number, desk = alerted.open(), alerted.desk
    done = desk.send("/alerts", f"/alert/{number}/ack", note=PROBE)
    assert place(done) == "/-/edison/alerts"
    assert f"Alert {number} is yours." in Read(desk.client.get(done.headers["location"]).text).text
    page = desk.get("/alerts").text
    assert f"{ADA} takes care of it: {PROBE}" in Read(page).text
    assert "<script>document" not in page
    assert desk.ask("select acknowledged_by from alert where id = ?", number) == [(ADA,)]
    ((who, _, action, entity, _),) = desk.audit()
    assert (who, action, entity) == (ADA, "alerts ack", "schedule_missed of hello")


def test_a_muted_alert_has_no_banner_until_the_mute_ends(alerted: Alerted) -> None:
    number, desk = alerted.open(), alerted.desk
    assert place(desk.send("/alerts", f"/alert/{number}/mute", hours="1")) == "/-/edison/alerts"
    assert SAID not in Read(desk.get("").text).text
    assert "Muted until" in Read(desk.get("/alerts").text).text
    assert place(desk.send("/alerts", f"/alert/{number}/mute", hours="0")) == "/-/edison/alerts"
    assert SAID in Read(desk.get("").text).text
    assert [row[2] for row in desk.audit()] == ["alerts mute", "alerts unmute"]


def test_other_times_are_refused(alerted: Alerted) -> None:
    number, desk = alerted.open(), alerted.desk
    answer = desk.send("/alerts", f"/alert/{number}/mute", hours="99999999999999")
    assert (answer.status_code, desk.audit()) == (400, [])


def test_who_only_reads_sees_no_forms_and_may_not_send_them(alerted: Alerted) -> None:
    number, desk = alerted.open(), alerted.desk
    fields = desk.form("/alerts", f"/alert/{number}/ack").fields
    desk.role("viewer")
    assert "/ack" not in desk.get("/alerts").text
    answer = desk.client.post(f"/-/edison/alert/{number}/ack", data=fields)
    assert answer.status_code == 403
    assert desk.ask("select acknowledged_by from alert where id = ?", number) == [(None,)]
    assert [row[2] for row in desk.audit()] == ["refused: alerts ack"]


def test_a_closed_alert_cannot_be_taken_care_of(alerted: Alerted) -> None:
    number, desk = alerted.open(), alerted.desk
    fields = desk.form("/alerts", f"/alert/{number}/ack").fields
    alerted.close()
    answer = desk.client.post(f"/-/edison/alert/{number}/ack", data=fields)
    assert answer.status_code == 400
    assert f"alert {number} is closed" in Read(answer.text).text


@pytest.mark.nightly
def test_the_text_of_an_alert_is_text_on_every_page(alerted: Alerted) -> None:
    desk = alerted.desk
    for attack, text in TEXTS.items():
        alerted.open(said=text[:1_000])
        for path in ("/alerts", "", "/experiment/hello"):
            shown = desk.get(path).text
            assert not [sign for sign in ("<script>fetch", "<img src=//", "<!--") if sign in shown]
            assert "thief.example" not in "".join(Read(shown).links), attack
            assert not HIDDEN.search(shown), (attack, path)
            assert "a1B2a1B2" not in shown, attack
