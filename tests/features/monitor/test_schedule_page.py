"""The page of schedules: when they are due, what became of them, and switching them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.access.site import open_site
from edison_ci.features.monitor.schedule_rows import add_fire
from edison_ci.features.monitor.scheduler import Scheduler
from edison_ci.features.monitor.schedules import read_schedules
from edison_ci.store.database import open_for_change
from tests.features.monitor.test_alert_attacks import TEXTS
from tests.report.page import HIDDEN
from tests.web.review_site import ADA, PROBE, ReviewSite, place
from tests.web.test_pages import Read

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = "experiments/hello.yaml"
SCHEDULE = 'schedule: [{name: weekdays, cron: "30 6 * * 1-5", budget_usd: 2}]\n'


@pytest.fixture
def scheduled(desk: ReviewSite) -> Iterator[ReviewSite]:
    before = desk.folder.read(FILE)
    desk.folder.write(FILE, before + SCHEDULE)
    desk.begin()
    yield desk
    desk.folder.write(FILE, before)
    desk.begin()


def test_a_schedule_is_shown_in_words_with_what_became_of_it(scheduled: ReviewSite) -> None:
    empty = Read(scheduled.get("/schedules").text).text
    assert "on weekdays at 06:30 UTC" in empty
    assert "at most $2 each" in empty
    assert "none runs here; start one with: edison schedule run" in empty
    site = open_site(scheduled.folder.path)
    scheduler = Scheduler(site.root)
    (each,) = read_schedules(site).schedules
    with open_for_change(site.results) as connection:
        fire = scheduler.claims.new_fire(each, site.clock())
        add_fire(connection, fire)
        connection.execute(
            "update schedule_fire set state = 'skipped', reason = ?, ended_at = due_at", (PROBE,)
        )
    scheduler.close()
    scheduled.begin()
    page = scheduled.get("/schedules").text
    assert f"skipped: {PROBE}" in Read(page).text
    assert "<script>document" not in page
    with open_for_change(site.results) as connection:
        connection.execute("delete from schedule_fire")


@pytest.mark.nightly
def test_reasons_and_problems_are_text_on_the_page(scheduled: ReviewSite) -> None:
    site = open_site(scheduled.folder.path)
    scheduler = Scheduler(site.root)
    (each,) = read_schedules(site).schedules
    with open_for_change(site.results) as connection:
        add_fire(connection, scheduler.claims.new_fire(each, site.clock()))
    scheduler.close()
    other = scheduled.folder.path / "experiments/other.yaml"
    for attack, text in TEXTS.items():
        with open_for_change(site.results) as connection:
            connection.execute(
                "update schedule_fire set state = 'failed', reason = ?, ended_at = due_at",
                (text[:1_000],),
            )
        other.write_text(json.dumps({"experiment": text[:1_000]}), encoding="utf-8")
        scheduled.begin()
        shown = scheduled.get("/schedules").text
        assert not [sign for sign in ("<script>fetch", "<img src=//", "<!--") if sign in shown]
        assert not HIDDEN.search(shown), attack
        assert "a1B2a1B2" not in shown, attack
    other.unlink()
    with open_for_change(site.results) as connection:
        connection.execute("delete from schedule_fire")


def test_who_edits_switches_a_schedule_in_its_file(scheduled: ReviewSite) -> None:
    at = "/schedule/hello/weekdays"
    done = scheduled.send("/schedules", f"{at}/disable")
    assert place(done) == "/-/edison/schedules"
    assert "enabled: false}" in scheduled.folder.read(FILE)
    assert "Disabled." in Read(scheduled.get("/schedules").text).text
    assert place(scheduled.send("/schedules", f"{at}/enable")) == "/-/edison/schedules"
    assert "enabled: true}" in scheduled.folder.read(FILE)
    told = [(row[0], row[2], row[3]) for row in scheduled.audit()]
    assert told == [
        (ADA, "schedule disable", "hello/weekdays"),
        (ADA, "schedule enable", "hello/weekdays"),
    ]


def test_who_may_not_edit_sees_no_buttons_and_may_not_send_them(scheduled: ReviewSite) -> None:
    fields = scheduled.form("/schedules", "/schedule/hello/weekdays/disable").fields
    scheduled.role("reviewer")
    assert "/disable" not in scheduled.get("/schedules").text
    answer = scheduled.client.post("/-/edison/schedule/hello/weekdays/disable", data=fields)
    assert answer.status_code == 403
    assert scheduled.folder.read(FILE).endswith(SCHEDULE)


def test_a_schedule_that_is_gone_is_said_so(scheduled: ReviewSite) -> None:
    fields = scheduled.form("/schedules", "/schedule/hello/weekdays/disable").fields
    answer = scheduled.client.post("/-/edison/schedule/hello/never/disable", data=fields)
    assert answer.status_code == 400
    assert "there is no schedule 'never' of hello" in Read(answer.text).text
