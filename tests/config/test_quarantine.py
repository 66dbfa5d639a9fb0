"""Cases set aside: dates, and each case once."""

from __future__ import annotations

import pytest

from edison_ci.config.quarantine import QuarantinedCase, QuarantineFile
from tests.config.said import said


def entry(since: str = "2026-01-01", until: str = "2026-02-01", case: str = "ada") -> str:
    return (
        f"{{experiment: hello, case: {case}, reason: flaky, "
        f"since: {since}, until: {until}, owner: ada}}"
    )


def test_the_first_day_may_be_the_last() -> None:
    assert said(QuarantinedCase, entry("2026-01-01", "2026-01-01")) == []


def test_the_last_day_is_not_before_the_first() -> None:
    (message,) = said(QuarantinedCase, entry("2026-02-02", "2026-02-01"))
    assert message.endswith("until 2026-02-01 is before since 2026-02-02 (until is the last day)")


@pytest.mark.parametrize(
    "date",
    [
        "2026-13-01",
        "2026-02-30",
        "2026-1-1",
        "20260101",
        "2026-W01-1",
        "2026-001",
        "tomorrow",
        "01.01.2026",
        "2026-01-01T00:00",
    ],
)
def test_a_date_is_a_day_of_the_calendar_in_one_form(date: str) -> None:
    (message,) = said(QuarantinedCase, entry("2020-01-01", f'"{date}"'))
    assert message.endswith(f"'{date}' is not a date (write YYYY-MM-DD)")


def test_a_date_need_not_be_quoted() -> None:
    assert said(QuarantineFile, f"cases:\n  - {entry()}\n") == []


def test_a_case_is_set_aside_once() -> None:
    rows = "".join(f"  - {entry(case=case)}\n" for case in ("ada", "bo", "ada", "bo"))
    assert said(QuarantineFile, f"cases:\n{rows}") == [
        "4:31: 'ada' of hello is listed twice, first in entry 1 (remove one of them)",
        "5:31: 'bo' of hello is listed twice, first in entry 2 (remove one of them)",
    ]
