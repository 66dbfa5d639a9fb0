"""What people do on pages: the same as with commands, by those who may, and as text."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.records import RunStatus, SuggestionStatus
from edison_ci.store.database import open_database
from edison_ci.store.liveness import ProcessLock
from edison_ci.store.runs import NewRun, move_run, start_run
from tests.suggested import PATH, stored
from tests.web.conftest import LINES
from tests.web.review_site import ADA, LABELS, PROBE, ReviewSite, place
from tests.web.test_pages import Read

if TYPE_CHECKING:
    from edison_ci.store.suggestions import Suggestion


# --- grades ---------------------------------------------------------------------------------------


def test_grading_goes_through_answers_blind_and_tells_afterwards(desk: ReviewSite) -> None:
    page = desk.get(f"/run/{desk.run}/grade").text
    first = re.search(r'action="/-/edison/cell/(\w{12})/grade"', page)
    assert first is not None
    cell, shown = first[1], Read(page).text
    about = "select case_id, model, composite from cell where id like ?"
    ((case, model, composite),) = desk.ask(about, f"{cell}%")
    done = re.search(r"(\d) of 6 answers graded by you", shown)
    assert done is not None
    for hidden in (model, f"{100 * composite:.1f}", "judge"):
        assert hidden not in shown[shown.index("Input") :]
    answer = desk.send(f"/run/{desk.run}/grade", f"/cell/{cell}/grade", grade="4", note=PROBE)
    assert place(answer) == f"/-/edison/run/{desk.run}/grade"
    after = desk.client.get(answer.headers["location"]).text
    told = Read(after).text
    assert f"{int(done[1]) + 1} of 6 answers graded by you" in told
    assert f"{case}: you gave 75.0; the automatic grade is {100 * composite:.1f}" in told
    assert f'/cell/{cell}/grade"' not in after, "another one is next"
    assert desk.grades(case, "score, scale, note, actor") == [(0.75, "1-5", PROBE, ADA)]
    assert "<script>document" not in desk.get(f"/cell/{cell}").text
    assert PROBE in Read(desk.get(f"/cell/{cell}").text).text


def test_a_grade_is_the_same_row_as_by_the_command(desk: ReviewSite) -> None:
    columns = "scale, score, passed, criteria, note, flagged, seed, actor, experiment"
    said = {"grade": "2", "note": "a bit stiff\r\nand long", "criterion.warmth": "3"}
    assert place(desk.grade("c1", **said)) == f"/-/edison/cell/{desk.cell('c1')}"
    cell = desk.cell("c2")
    done = desk.folder.edison("grade", "latest", "--cell", cell, "--grade", "2", "--criterion",
                              "Warmth=3", "--note", "a bit stiff\nand long")  # fmt: skip
    assert done.code == 0, done.all
    assert desk.grades("c1", columns) == desk.grades("c2", columns)
    rows = desk.audit()
    assert [(row[0], row[2], row[4]) for row in rows[:1]] == [
        (row[0], row[2], row[4]) for row in rows[1:]
    ]
    assert [row[3] for row in rows] == [f"cell {desk.cell('c1')}", f"cell {cell}"]
    lines = [json.loads(line) for line in desk.folder.read(LABELS).splitlines()][-2:]
    of_answer = {"case", "at", "cell", "case_hash", "output"}
    one, other = ({k: v for k, v in line.items() if k not in of_answer} for line in lines)
    assert one == other


def test_who_sends_a_grade_twice_has_graded_once(desk: ReviewSite) -> None:
    for _ in range(2):
        desk.grade("c3", grade="up", note="kind")
    assert desk.grades("c3", "scale, score") == [("thumbs", 1)]
    assert len(desk.audit()) == 1
    desk.grade("c3", grade="down", note="not kind")
    assert desk.grades("c3", "score") == [(1,), (0,)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"grade": "9"}, "'9' is not on the scale 1-5"),
        ({"grade": "nan", "scale": "0-1"}, "is not on the scale 0-1"),
        ({}, "'' is not on the scale 1-5"),
        ({"grade": "3", "criterion.warmth": "99"}, "'99' is not on the scale of Warmth"),
        ({"grade": "3", "criterion.nope": "1"}, "unknown criterion 'nope'"),
        ({"grade": "3", "note": "x" * 10_001}, "the note has 10,001 characters"),
    ],
)
def test_what_is_no_grade_is_said_and_nothing_is_kept(
    desk: ReviewSite, fields: dict[str, str], said: str
) -> None:
    answer = desk.grade("c4", **fields)
    assert answer.status_code == 400
    assert said in Read(answer.text).text
    assert desk.grades("c4", "id") == []
    assert desk.audit() == []


def test_a_flag_is_set_and_taken_back(desk: ReviewSite) -> None:
    cell = desk.cell("c5")
    page, action = f"/cell/{cell}", f"/cell/{cell}/flag"
    assert place(desk.send(page, action, flag="1", note=PROBE)) == f"/-/edison/cell/{cell}"
    shown = desk.get(page).text
    assert "Remove your flag" in shown
    assert "<script>document" not in shown
    queue = desk.get(f"/run/{desk.run}/grade?only=flagged").text
    assert f"/cell/{cell}/grade" in queue
    grid = desk.get(f"/run/{desk.run}?flagged=1").text
    assert "case?case=c5" in grid
    assert "case?case=c2" not in grid
    assert '<span class="visually-hidden"> flag</span>' in grid
    for _ in range(2):
        assert desk.send(page, action, flag="0").status_code == 303
    assert [flagged for (flagged,) in desk.grades("c5", "flagged")] == [1, 0]
    assert [row[2] for row in desk.audit()] == ["grade", "grade"]
    assert f"/cell/{cell}/grade" not in desk.get(f"/run/{desk.run}/grade?only=flagged").text
    assert "case?case=c5" not in desk.get(f"/run/{desk.run}?flagged=1").text


def test_answers_side_by_side_are_graded_where_they_are(desk: ReviewSite) -> None:
    cell = desk.cell("c0")
    page = f"/run/{desk.run}/case?case=c0"
    answer = desk.send(page, f"/cell/{cell}/grade", grade="5")
    assert answer.headers["location"].endswith(f"/case?case=c0#a-{cell}")
    assert "You gave 100.0" in Read(desk.get(page).text).text


def test_whoever_has_graded_everything_sees_how_far_they_agree(desk: ReviewSite) -> None:
    for number in range(6):
        desk.grade(f"c{number}", grade=str(1 + number % 5))
    told = Read(desk.get(f"/run/{desk.run}/grade").text).text
    assert "You have graded every answer of this run" in told
    assert "Agreement (kappa)" in told
    assert "of 6 answers" in told


# --- suggestions ----------------------------------------------------------------------------------


def test_approving_makes_one_branch_however_often_it_is_sent(desk: ReviewSite) -> None:
    one = desk.suggest("Be warm, and use the name once.\n")
    page = Read(desk.get(f"/suggestion/{one.id}").text).text
    assert f"Puts the change of {PATH} on a separate branch" in page
    form = desk.form(f"/suggestion/{one.id}", f"/suggestion/{one.id}/approve")
    before = desk.folder.git("rev-parse", "HEAD").strip()
    with ThreadPoolExecutor(2) as pool:
        answers = [*pool.map(lambda _: desk.client.post(form.action, data=form.fields), range(3))]
    assert {place(answer) for answer in answers} == {f"/-/edison/suggestion/{one.id}"}
    now = stored(desk.folder, one)
    assert now.branch is not None
    assert now.branch.startswith("edison/refine/hello-")
    assert desk.folder.git("rev-list", "--count", f"{before}..{now.branch}").strip() == "1"
    assert "Be warm" in desk.folder.git("show", f"{now.branch}:{PATH}")
    assert desk.folder.git("rev-parse", "HEAD").strip() == before, "the default branch stays"
    assert "Be warm" not in desk.folder.read(PATH)
    assert (now.status, now.decided_by) == (SuggestionStatus.APPROVED, ADA)
    about = f"suggestion {one.id}"
    assert [row[2:4] for row in desk.audit()] == [("propose", about), ("review approve", about)]
    pages = [Read(desk.client.get(answer.headers["location"]).text).text for answer in answers]
    assert all("Approved. It is applied when its branch is merged." in text for text in pages)
    shown = next(text for text in pages if "git switch" in text)
    assert f"git switch main && git merge {now.branch}" in shown
    assert f"It is approved: merge the branch {now.branch}" in shown
    desk.folder.git("merge", "--quiet", now.branch)
    done = desk.folder.edison("review", "sync")
    assert done.code == 0, done.all
    assert stored(desk.folder, one).status is SuggestionStatus.APPLIED


def test_what_somebody_else_decided_meanwhile_is_not_decided_again(desk: ReviewSite) -> None:
    one = desk.suggest("Never shout.\n")
    approve = desk.form(f"/suggestion/{one.id}", f"/suggestion/{one.id}/approve")
    desk.folder.git("config", "user.email", "bo@example.com")
    done = desk.folder.edison("review", "reject", one.id, "--reason", "no")
    desk.folder.git("config", "user.email", ADA)
    assert done.code == 0, done.all
    for answer in (
        desk.client.post(approve.action, data=approve.fields),
        desk.client.post(approve.action.replace("approve", "reject"),
                         data={**approve.fields, "reason": "late"}),
        desk.client.post(approve.action.replace("approve", "edited"),
                         data={**approve.fields, "text": "x"}),
    ):  # fmt: skip
        assert answer.status_code == 409
        assert (
            f"suggestion {one.id} is rejected by now, by bo@example.com" in Read(answer.text).text
        )
    assert (stored(desk.folder, one).reason, len(desk.audit())) == ("no", 1)


def test_rejecting_needs_a_reason_which_stays_text(desk: ReviewSite) -> None:
    one = desk.suggest("Use three exclamation marks.\n")
    nothing = desk.decide(one, "reject", reason="  ")
    assert (nothing.status_code, "the reason is empty" in nothing.text) == (400, True)
    assert f'<a href="/-/edison/suggestion/{one.id}">Back</a>' in nothing.text
    assert desk.get(f"/suggestion/{one.id}/edit").status_code == 200
    answer = desk.decide(one, "reject", reason=PROBE)
    again = desk.client.get(answer.headers["location"]).text
    assert "Rejected. The next refinement takes the reason into account." in again
    assert "<script>document" not in again
    assert PROBE in Read(again).text
    assert stored(desk.folder, one).status is SuggestionStatus.REJECTED
    assert [row[2] for row in desk.audit()] == ["review reject"]


def test_comments_are_kept_once_and_stay_text(desk: ReviewSite) -> None:
    one = desk.suggest("Mention the weather.\n")
    for _ in range(2):
        answer = desk.decide(one, "comment", text=f"{PROBE}\r\nsecond line")
        assert answer.headers["location"].endswith("#comments")
    said = desk.ask("select text from suggestion_comment where suggestion = ?", one.id)
    assert said == [(f"{PROBE}\nsecond line",)]
    assert "<script>document" not in desk.get(f"/suggestion/{one.id}").text
    empty = desk.decide(one, "comment", text=" ")
    assert (empty.status_code, "the comment is empty" in empty.text) == (400, True)


def test_an_edit_that_breaks_a_guardrail_keeps_what_was_written(desk: ReviewSite) -> None:
    one = desk.suggest("Ask how they are.\n")
    page = desk.get(f"/suggestion/{one.id}/edit").text
    assert "Ask how they are.\n</textarea>" in page
    text = desk.folder.read(PATH) + f"{{% if x %}}Ask.{{% endif %}} {PROBE}\r\n"
    refused = desk.decide(one, "edited", text=text)
    assert refused.status_code == 422
    told = Read(refused.text).text
    assert "the edited prompt breaks guardrails" in told
    assert text.replace("\r\n", "\n") in told, "nothing that somebody wrote is lost"
    assert "<script>document" not in refused.text
    assert stored(desk.folder, one).status is SuggestionStatus.PROPOSED
    better = desk.folder.read(PATH) + "Ask how they are, in one word.\n"
    for _ in range(2):
        answer = desk.client.post(
            f"/-/edison/suggestion/{one.id}/edited",
            data={**desk.form(f"/suggestion/{one.id}", f"/suggestion/{one.id}/comment").fields,
                  "text": better.replace("\n", "\r\n")},
        )  # fmt: skip
        new = place(answer).rpartition("/")[2]
        assert new != one.id
    made = desk.ask("select status, edited_from from suggestion where id = ?", new)
    assert made == [("proposed", one.id)]
    assert stored(desk.folder, one).status is SuggestionStatus.SUPERSEDED
    assert [row[2] for row in desk.audit()] == ["review edit"]


def test_nothing_is_decided_while_a_run_is_at_work(desk: ReviewSite) -> None:
    one = desk.suggest("Be quick.\n")
    form = desk.form(f"/suggestion/{one.id}", f"/suggestion/{one.id}/approve")
    owner = ProcessLock(desk.folder.path / ".edison" / "locks")
    moment = "2026-11-15T12:00:00.000Z"
    new = NewRun("r1", "hello", "cli", "41a9", "{}", {}, 2, True, False, owner.id, moment)
    with closing(open_database(desk.folder.path / ".edison/results.db")) as connection:
        start_run(new)(connection)
        move_run("r1", RunStatus.EXECUTING, moment)(connection)
        try:
            answer = desk.client.post(form.action, data=form.fields)
            assert (answer.status_code, "of hello is active" in answer.text) == (409, True)
            shown = desk.get(f"/suggestion/{one.id}").text
            assert "of hello is active" in shown
            assert ">Approve" not in shown.partition("</h3>")[0]
            assert desk.get(f"/suggestion/{one.id}/edit").status_code == 409
        finally:
            owner.close()
            connection.execute("pragma foreign_keys = off")
            connection.execute("delete from run where id = 'r1'")
    assert stored(desk.folder, one).status is SuggestionStatus.PROPOSED


# --- who may --------------------------------------------------------------------------------------


def every_form(desk: ReviewSite, one: Suggestion) -> list[tuple[str, str, dict[str, str]]]:
    """Return every address that takes a form, what the audit calls it, and something to send."""
    cell, page = desk.cell("c0"), f"/suggestion/{one.id}"
    seen = {"status": "proposed"}
    return [
        (f"/cell/{cell}/grade", "grade", {"grade": "3"}),
        (f"/cell/{cell}/flag", "grade", {"flag": "1"}),
        (f"{page}/approve", "review approve", seen),
        (f"{page}/reject", "review reject", {**seen, "reason": "no"}),
        (f"{page}/comment", "review comment", {"text": "hm"}),
        (f"{page}/edited", "review edit", {"text": "x"}),
        ("/alert/1/ack", "alerts ack", {"note": "x"}),
        ("/alert/1/mute", "alerts mute", {"hours": "1"}),
    ]


def test_a_role_that_may_not_is_refused_and_audited(desk: ReviewSite) -> None:
    one = desk.suggest("Smile.\n")
    token = desk.form(f"/suggestion/{one.id}", f"/suggestion/{one.id}/approve").fields["csrftoken"]
    desk.role("viewer")
    for address, action, fields in every_form(desk, one):
        answer = desk.client.post(f"/-/edison{address}", data={"csrftoken": token, **fields})
        assert answer.status_code == 403, address
        assert f"{ADA} is a viewer" in Read(answer.text).text
        (actor, known_by, did, entity, after) = desk.audit()[-1]
        assert (actor, known_by, did) == (ADA, "git", f"refused: {action}")
        assert entity in (f"cell {desk.cell('c0')}", f"suggestion {one.id}", "alert 1")
        assert "needs a" in after
    assert len(desk.audit()) == 8
    page = desk.get(f"/suggestion/{one.id}").text
    assert "is a viewer" in Read(page).text
    assert f"/suggestion/{one.id}/approve" not in re.findall(r"<button.*", page)
    assert desk.get(f"/suggestion/{one.id}/edit").status_code == 403
    assert "<form" not in desk.get(f"/cell/{desk.cell('c0')}").text
    assert "Grading needs the role reviewer" in desk.get(f"/run/{desk.run}/grade").text
    desk.role("reviewer")  # who may decide, but not edit
    assert "/edit" not in desk.get(f"/suggestion/{one.id}").text
    assert desk.get(f"/suggestion/{one.id}/edit").status_code == 403


def test_forms_that_a_page_of_ours_did_not_send_are_refused(desk: ReviewSite) -> None:
    one = desk.suggest("Smile twice.\n")
    token = desk.form(f"/suggestion/{one.id}", f"/suggestion/{one.id}/approve").fields["csrftoken"]
    for address, _, fields in every_form(desk, one):
        there = f"/-/edison{address}"
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            sent: Any = {"data": {"csrftoken": token, **fields}, "headers": headers}
            assert desk.client.post(there, **sent).status_code == 403
        if desk.server.line == LINES[0]:  # the next line has no tokens
            assert desk.client.post(there, data=fields).status_code == 403
            wrong = {"csrftoken": "wrong", **fields}
            assert desk.client.post(there, data=wrong).status_code == 403
        huge = {"csrftoken": token, **fields, "note": "x" * 1_000_001}
        assert desk.client.post(there, data=huge).status_code == 413
        assert desk.client.get(there).status_code == 405
    assert stored(desk.folder, one).status is SuggestionStatus.PROPOSED
    assert desk.audit() == []
