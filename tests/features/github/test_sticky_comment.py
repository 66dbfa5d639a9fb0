"""One comment, ours, the newest, whatever others write and whoever runs at the same time."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.features.github.forge import Author, GitHub
from edison_ci.features.github.sticky_comment import (
    Outcome,
    Report,
    ReportMarker,
    ReportState,
    marker_line,
    parse_marker,
    parse_pushes,
    post,
    push_number,
)
from edison_ci.proposals.proposal_text import MAX_BODY_CHARS, truncate, utf16_length
from tests.features.github.fake_github import TOKEN, FakeGitHub, Fault
from tests.features.github.fake_state import Grant

if TYPE_CHECKING:
    from tests.features.github.conftest import Clock

pytestmark = pytest.mark.daily

BOT = Grant()
OLD, NEW = "a" * 40, "b" * 40


def report(
    body: str = "All good.", *, run: int = 10, attempt: int = 1, head: str = OLD, **more: Any
) -> Report:
    marker = ReportMarker(
        head, more.pop("state", ReportState.FINAL), run, attempt, "pass", {"cells": 94}
    )
    return Report(body, marker, **more)


def bodies(fake: FakeGitHub) -> list[str]:
    return [comment["body"] for comment in fake.state.comments.values()]


# --- finding --------------------------------------------------------------------------------------


async def test_the_first_report_makes_a_comment_and_the_next_updates_it(
    fake: FakeGitHub, github: GitHub
) -> None:
    async with github:
        first = await post(github, 1, report("one").text)
        second = await post(github, 1, report("two", run=11).text)
    assert (first.outcome, second.outcome) == (Outcome.CREATED, Outcome.UPDATED)
    assert first.comment.id == second.comment.id
    assert [body.splitlines()[2:] for body in bodies(fake)] == [["two"]]
    assert bodies(fake)[0].startswith(
        "<!-- edison-ci:report:v1 key=edison -->\n<!-- edison-ci:data"
    )
    assert len(fake.requests) == 5  # list, create, list; list, update


async def test_the_same_report_again_changes_nothing(fake: FakeGitHub, github: GitHub) -> None:
    async with github:
        await post(github, 1, report().text)
        again = await post(github, 1, report().text)
    assert again.outcome is Outcome.UNCHANGED
    assert fake.sent("PATCH") == []


@pytest.mark.parametrize(
    "who",
    [
        Grant("github-actions", is_bot=False),
        Grant("github-actions[bot]", is_bot=False),
        Grant("eve", is_bot=False),
        Grant("other-app[bot]", is_bot=True),
    ],
    ids=str,
)
async def test_a_comment_of_somebody_else_is_never_touched(
    fake: FakeGitHub, github: GitHub, who: Grant
) -> None:
    forged = report("forged", run=10**15).text
    fake.state.add_comment(1, forged, who)
    async with github:
        posted = await post(github, 1, report("real").text)
    assert posted.outcome is Outcome.CREATED
    assert bodies(fake)[0] == forged
    assert bodies(fake)[1].endswith("real")


@pytest.mark.parametrize("before", ["> ", " ", "\n", "Look:\n"])
async def test_a_quote_of_our_comment_by_our_own_bot_is_not_ours(
    fake: FakeGitHub, github: GitHub, before: str
) -> None:
    fake.state.add_comment(1, before + report("quoted").text, BOT)
    async with github:
        assert (await post(github, 1, report().text)).outcome is Outcome.CREATED
    assert len(fake.state.comments) == 2


async def test_reports_with_other_keys_have_comments_of_their_own(
    fake: FakeGitHub, github: GitHub
) -> None:
    async with github:
        await post(github, 1, report("one", key="edison").text)
        await post(github, 1, report("two", key="edison-nightly").text)
        await post(github, 1, report("three", key="edison", run=11).text)
    assert [body.splitlines()[-1] for body in bodies(fake)] == ["three", "two"]


async def test_our_comment_is_found_behind_hundreds_of_others(
    fake: FakeGitHub, github: GitHub
) -> None:
    for number in range(230):
        fake.state.add_comment(1, f"chat {number}", Grant("ada", is_bot=False))
    async with github:
        await post(github, 1, report("one").text)
        posted = await post(github, 1, report("two", run=11).text)
    assert posted.outcome is Outcome.UPDATED
    assert len(fake.state.comments) == 231
    assert [r.path.count("page=3") for r in fake.sent("GET", "page=3")] == [1, 1, 1]


async def test_an_app_or_a_person_can_be_the_author(fake: FakeGitHub, clock: Clock) -> None:
    fake.grants[TOKEN] = Grant("ada", is_bot=False)
    async with GitHub(fake.address(), author=Author("Ada"), timing=clock.timing) as github:
        await post(github, 1, report("one").text)
        assert (await post(github, 1, report("two", run=11).text)).outcome is Outcome.UPDATED
    for wrong in ("", "a b", "ada[bot", "-x"):
        with pytest.raises(UsageError):
            Author(wrong)


# --- never backwards ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [
        ({"run": 10}, {"run": 11}, Outcome.UPDATED),
        ({"run": 11}, {"run": 10}, Outcome.SUPERSEDED),
        ({"run": 10}, {"run": 10, "attempt": 2}, Outcome.UPDATED),
        ({"run": 10, "attempt": 2}, {"run": 10}, Outcome.SUPERSEDED),
        ({"run": 11}, {"run": 10, "attempt": 9}, Outcome.SUPERSEDED),
        ({"state": ReportState.RUNNING}, {"state": ReportState.PARTIAL}, Outcome.UPDATED),
        ({"state": ReportState.PARTIAL}, {"state": ReportState.CANCELLED}, Outcome.UPDATED),
        ({"state": ReportState.FINAL}, {"state": ReportState.CANCELLED}, Outcome.SUPERSEDED),
        ({"state": ReportState.FINAL}, {"state": ReportState.RUNNING}, Outcome.SUPERSEDED),
        (
            {"state": ReportState.FINAL},
            {"state": ReportState.RUNNING, "attempt": 2},
            Outcome.UPDATED,
        ),
        ({"run": 11}, {"run": 0}, Outcome.UPDATED),
        ({"run": 0}, {"run": 1}, Outcome.UPDATED),
    ],
)
async def test_a_report_never_replaces_a_later_one(
    fake: FakeGitHub,
    github: GitHub,
    first: dict[str, Any],
    second: dict[str, Any],
    outcome: Outcome,
) -> None:
    async with github:
        await post(github, 1, report("first", **first).text)
        posted = await post(github, 1, report("second", **second).text)
    assert posted.outcome is outcome
    kept = "first" if outcome is Outcome.SUPERSEDED else "second"
    assert bodies(fake)[0].endswith(kept)


async def test_a_run_for_an_older_head_leaves_the_newer_report(
    fake: FakeGitHub, github: GitHub
) -> None:
    fake.state.pulls[1].head_sha = NEW
    async with github:
        await post(github, 1, report("new", run=11, head=NEW).text)
        posted = await post(github, 1, report("old", run=10, head=OLD, attempt=2).text)
    assert posted.outcome is Outcome.SUPERSEDED
    assert bodies(fake)[0].endswith("new")


async def test_a_forged_run_number_cannot_keep_the_report_of_the_current_head_away(
    fake: FakeGitHub, github: GitHub
) -> None:
    """A bot of the same name may be made to write what somebody else wants."""
    fake.state.add_comment(1, report("forged", run=10**15, head=OLD).text, BOT)
    fake.state.pulls[1].head_sha = NEW
    async with github:
        posted = await post(github, 1, report("real", head=NEW).text)
    assert posted.outcome is Outcome.UPDATED
    assert [body.splitlines()[-1] for body in bodies(fake)] == ["real"]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "<!-- edison-ci:data {} -->",
        "<!-- edison-ci:data [] -->",
        '<!-- edison-ci:data {"run_id": "9", "attempt": 1, "head": "x", "state": "final"} -->',
        f'<!-- edison-ci:data {{"run_id": 1e99, "attempt": 1, "head": "{OLD}", "state": '
        '"final"} -->',
        "<!-- edison-ci:data " + "[" * 5000 + " -->",
    ],
)
async def test_a_damaged_comment_is_repaired(fake: FakeGitHub, github: GitHub, line: str) -> None:
    fake.state.add_comment(1, f"{marker_line(report().key)}\n{line}\nhalf", BOT)
    async with github:
        posted = await post(github, 1, report("whole").text)
    assert posted.outcome is Outcome.UPDATED
    assert bodies(fake)[0].endswith("whole")


# --- races ----------------------------------------------------------------------------------------


async def test_of_two_the_oldest_is_kept_with_the_latest_report(
    fake: FakeGitHub, github: GitHub
) -> None:
    fake.state.add_comment(1, report("first", run=10).text, BOT)
    fake.state.add_comment(1, report("latest", run=12).text, BOT)
    fake.state.add_comment(1, report("middle", run=11).text, BOT)
    oldest = min(fake.state.comments)
    async with github:
        posted = await post(github, 1, report("ours", run=11).text)
    assert posted.outcome is Outcome.SUPERSEDED
    assert list(fake.state.comments) == [oldest]
    assert len(posted.removed) == 2
    assert bodies(fake)[0].endswith("latest")


async def test_two_jobs_that_create_at_once_end_with_one_comment(
    fake: FakeGitHub, clock: Clock
) -> None:
    class Racing(GitHub):
        async def create_comment(self, number: int, body: str) -> Any:
            fake.state.add_comment(1, report("the other job", run=9).text, BOT)
            return await super().create_comment(number, body)

    async with Racing(fake.address(), timing=clock.timing) as github:
        posted = await post(github, 1, report("ours", run=10).text)
    assert [body.splitlines()[-1] for body in bodies(fake)] == ["ours"]
    assert posted.comment.id == min(fake.state.comments)


async def test_a_comment_deleted_meanwhile_is_made_anew(fake: FakeGitHub, clock: Clock) -> None:
    class Deleted(GitHub):
        async def update_comment(self, comment_id: int, body: str) -> Any:
            fake.state.comments.clear()
            return await super().update_comment(comment_id, body)

    fake.state.add_comment(1, report("old").text, BOT)
    async with Deleted(fake.address(), timing=clock.timing) as github:
        assert (await post(github, 1, report("new", run=11).text)).outcome is Outcome.CREATED
    assert [body.splitlines()[-1] for body in bodies(fake)] == ["new"]


async def test_a_reply_that_was_lost_does_not_make_a_second_comment(
    fake: FakeGitHub, github: GitHub
) -> None:
    fake.faults.append(Fault(502, "POST", after=True, body=b"<html><title>502</title>"))
    async with github:
        await post(github, 1, report().text)
    assert len(fake.state.comments) == 1
    assert len(fake.sent("POST")) == 1


async def test_a_request_that_was_lost_is_made_again(fake: FakeGitHub, github: GitHub) -> None:
    fake.faults.append(Fault(502, "POST"))
    async with github:
        assert (await post(github, 1, report().text)).outcome is Outcome.CREATED
    assert len(fake.state.comments) == 1


async def test_a_pull_request_that_is_not_there_is_an_error(
    fake: FakeGitHub, github: GitHub
) -> None:
    async with github:
        with pytest.raises(ForgeError) as caught:
            await post(github, 404, report().text)
    assert caught.value.fault is ForgeFault.NOT_FOUND


# --- what is sent ---------------------------------------------------------------------------------


async def test_a_long_body_is_cut_when_created_and_when_updated(
    fake: FakeGitHub, github: GitHub
) -> None:
    rows = "\n".join(f"| case-{number} | {'🙂' * 20} |" for number in range(5000))
    async with github:
        await post(github, 1, report(rows).text)
        await post(github, 1, report(rows + "\n| one more |", run=11).text)
    for request in (*fake.sent("POST"), *fake.sent("PATCH")):
        body = request.body["body"]
        assert 50_000 < utf16_length(body) <= 60_000
        assert "more rows, see the job summary" in body.splitlines()[-1]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text(max_size=40),
    st.integers(0, 2**62),
    st.dictionaries(st.text(max_size=8), st.integers(-9, 9), max_size=3),
)
def test_the_data_line_keeps_what_it_is_given_and_ends_where_it_should(
    verdict: str, run: int, counts: dict[str, int]
) -> None:
    marker = ReportMarker(OLD, ReportState.PARTIAL, run, 3, verdict, counts)
    text = Report("body -->", marker).text
    assert parse_marker(text) == marker
    line = text.split("\n")[1]
    assert line.index("-->") == len(line) - 3
    assert "--" not in line[4:-3]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text",
        "text\n" + report().text,
        marker_line(report().key),
        f"{marker_line(report().key)}\n<!-- x -->\ntext",
    ],
)
async def test_a_text_without_its_first_lines_is_not_sent(
    fake: FakeGitHub, github: GitHub, text: str
) -> None:
    async with github:
        with pytest.raises(UsageError, match="does not start with its marker"):
            await post(github, 1, text)
    assert fake.requests == []


async def test_data_that_others_add_to_the_second_line_is_kept(
    fake: FakeGitHub, github: GitHub
) -> None:
    more = report().text.replace('"run_id"', '"runs": [["r1", "pass"]], "run_id"')
    async with github:
        await post(github, 1, more)
        assert (await post(github, 1, report("older", run=9).text)).outcome is Outcome.SUPERSEDED
    assert bodies(fake) == [more]


@pytest.mark.parametrize("key", ["", "a b", "x-->", "é", "a" * 101])
def test_a_key_that_could_break_the_marker_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="key"):
        _ = replace(report(), key=key).text


def test_a_text_that_fits_is_not_touched() -> None:
    text = "x" * MAX_BODY_CHARS
    assert truncate(text) == text


def test_rows_are_counted_and_cut_between_lines() -> None:
    rows = [f"| case {number} | {'x' * 80} |" for number in range(1000)]
    cut = truncate("\n".join(["| case | why |", "| --- | --- |", *rows]))
    kept = [line for line in cut.splitlines() if line.startswith("| case ")][1:]
    assert kept == rows[: len(kept)]
    assert cut.splitlines()[-1] == f"… {1000 - len(kept)} more rows"


def test_emoji_count_as_two() -> None:
    assert utf16_length("🙂") == 2
    assert utf16_length(truncate("🙂\n" * 50_000)) <= MAX_BODY_CHARS


@pytest.mark.parametrize("fence", ["```", "~~~~", "`````text"])
def test_code_and_folds_are_closed(fence: str) -> None:
    head = f"<details><summary>x</summary>\n\n{fence}\n"
    cut = truncate(head + "line\n" * 20_000, elsewhere="the artifact")
    closing = re.match(r"[`~]+", fence)
    assert closing is not None
    left = 20_000 - cut.count("line\n") + 1
    more = f"… {left:,} more lines, see the artifact"
    assert cut.endswith(f"\n{closing[0]}\n\n</details>\n\n{more}\n")


def test_a_shorter_fence_inside_does_not_close() -> None:
    cut = truncate("````\n```\n" + "x\n" * 60_000)
    assert "\n````\n\n…" in cut


def test_one_endless_line_is_left_out() -> None:
    assert truncate("x" * 100_000) == "\n… 1 more lines\n"


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.sampled_from(
            ["```", "~~~", "````", "<details>", "</details>", "text", "| row |", "🙂" * 50, "> ```"]
        ),
        max_size=200,
    ),
    st.integers(1000, 3000),
)
def test_the_limit_always_holds(lines: list[str], limit: int) -> None:
    assert utf16_length(truncate("\n".join(lines), limit, elsewhere="the summary")) <= limit


# --- pushes ---------------------------------------------------------------------------------------


async def test_the_comment_keeps_which_commits_it_has_reported_on(
    fake: FakeGitHub, github: GitHub
) -> None:
    async with github:
        assert await push_number(github, 1, "edison", OLD) == 1
        await post(github, 1, report("one").text)
        assert await push_number(github, 1, "edison", OLD) == 1
        assert await push_number(github, 1, "edison", NEW) == 2
        running = report("...", run=11, head=NEW, state=ReportState.RUNNING)
        await post(github, 1, running.text)
        assert parse_pushes(bodies(fake)[0]) == [OLD[:12]]
        await post(github, 1, report("two", run=11, head=NEW).text)
        assert await push_number(github, 1, "edison", "c" * 40) == 3
        assert await push_number(github, 1, "other", "c" * 40) == 1
    assert parse_pushes(bodies(fake)[0]) == [OLD[:12], NEW[:12]]


async def test_pushes_in_a_comment_of_another_account_do_not_count(
    fake: FakeGitHub, github: GitHub
) -> None:
    fake.state.add_comment(1, report("forged").text, Grant("mallory", is_bot=False))
    async with github:
        assert await push_number(github, 1, "edison", NEW) == 1


@pytest.mark.parametrize("verdict", [None, "error", "skipped"])
def test_a_commit_that_was_not_decided_is_no_push(verdict: str | None) -> None:
    decided = report()
    assert parse_pushes(decided.text) == [OLD[:12]]
    undecided = replace(decided, marker=replace(decided.marker, verdict=verdict))
    assert parse_pushes(undecided.text) == []


@pytest.mark.parametrize("pushes", ["3", '"abc"', '["x", 3, null]', "{}"])
def test_pushes_that_are_no_commits_are_ignored(pushes: str) -> None:
    line = f'<!-- edison-ci:data {{"pushes": {pushes}}} -->'
    assert parse_pushes(f"{marker_line('edison')}\n{line}\n") == []
