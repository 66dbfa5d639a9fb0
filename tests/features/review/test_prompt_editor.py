"""The editor of a prompt: counted and tried as one writes, saved as a branch, by those who may."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.review_site import ADA, PROBE, ReviewSite, place
from tests.web.test_pages import Read

if TYPE_CHECKING:
    import httpx

    from tests.web.conftest import Server, Stored

PAGE = "/prompt/hello/edit"
NOTE = "Ask for a warm ending, please."


def text_of(desk: ReviewSite) -> str:
    return desk.folder.read("prompts/hello.md")


def send(desk: ReviewSite, action: str, text: str, **fields: Any) -> httpx.Response:
    """Fill in the editor, and press a button."""
    form = desk.form(PAGE, "/prompt/hello/draft")
    chosen = {"case": ["c0", "c1"], "model": ["small"]}
    data = {**form.fields, "text": text.replace("\n", "\r\n"), **chosen, **fields}
    return desk.client.post(f"/-/edison/prompt/hello/{action}", data=data)


def filled(desk: ReviewSite, page: str) -> list[dict[str, Any]]:
    """Follow the stream of a page until its grid is filled; return what it sent."""
    address = re.search(r'data-try="([^"]+)"', page)
    if address is None:
        return []
    with desk.client.stream("GET", address[1]) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in stream.iter_lines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_the_editor_shows_the_text_and_what_it_asks_for(desk: ReviewSite) -> None:
    page = desk.get(PAGE).text
    shown = Read(page).text
    assert text_of(desk).rstrip("\n") in shown
    assert f"{len(text_of(desk))} characters" in shown
    assert "Answers are expected as: none" in shown
    assert '<code class="variable">name</code>' in page
    assert re.search(r"\d+ answers, (about \$|nothing)", shown), "the cost is told before"
    assert 'href="/-/edison/prompt/hello/edit"' in desk.get("/prompt/hello").text


def test_counts_follow_the_text(desk: ReviewSite) -> None:
    text = text_of(desk) + "Answer in JSON, inside <response></response>, to {{ name }}.\n"
    told = send(desk, "count", text).json()
    assert told["characters"] == len(text)
    assert told["tokens"] > 20
    assert (told["variables"], told["expects"]) == (["name"], "response+json")
    says = "the prompt says 'Answer in JSON, inside <response></response>, to {{ name }}.'"
    right = "write `expect: response+json` if that is right, else"
    assert told["notes"] == [
        f"line 6: answers must be JSON: {says}; {right} `expect: response`",
        f"line 6: answers must be in <response> tags: {says}; {right} `expect: json`",
    ]
    assert told["requests"] == [6, 6]
    assert told["problems"] == []
    assert told["cost"].startswith("2 answers, ")
    wrong = send(desk, "count", text + "{{ other( }}\n").json()
    assert wrong["problems"][0].startswith("line 7: ")
    nothing = send(desk, "count", text, case="nowhere").json()
    assert "has no case 'nowhere'" in nothing["cost"]


def test_a_try_fills_its_grid_and_is_accounted(desk: ReviewSite) -> None:
    text = text_of(desk) + f"Be brief. {PROBE}\n"
    before = desk.ask("select count(*) from answer")[0][0]
    runs = desk.ask("select count(*) from run")
    answer = send(desk, "try", text)
    assert place(answer) == "/-/edison/prompt/hello/edit"
    page = desk.client.get(answer.headers["location"]).text
    events = filled(desk, page)
    done = desk.client.get(answer.headers["location"]).text
    assert "2 of 2 answers" in Read(done).text
    assert done.count('class="tried"') == 2
    assert "<script>document" not in done
    assert PROBE in Read(done).text, "the text that was tried is still in the editor"
    if events:
        assert events[-1]["ended"] is True
        assert {number for each in events for number in each["cells"]} == {"0", "1"}
        assert all('class="tried"' in cell for each in events for cell in each["cells"].values())
    answers = desk.ask("select count(*) from answer")[0][0]
    assert answers > before
    assert desk.ask("select count(*) from run") == runs, "a try is no run"
    ((actor, _, action, entity, after),) = desk.audit()
    assert (actor, action, entity) == (ADA, "try", "prompt hello")
    assert json.loads(after)["cases"] == ["c0", "c1"]
    again = send(desk, "try", text)
    filled(desk, desk.client.get(again.headers["location"]).text)
    shown = Read(desk.client.get(again.headers["location"]).text).text
    assert shown.count("stored answer, no cost") == 2
    assert desk.ask("select count(*) from answer")[0][0] == answers


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"case": []}, "no case is chosen"),
        ({"model": []}, "no model is chosen"),
        ({"case": [f"c{i}" for i in range(21)]}, "21 cases are chosen; a try has at most 20"),
        ({"case": "c9"}, "has no case 'c9'"),
        ({"model": "huge"}, "has no model 'huge'"),
        ({"text": "---\nid: hello\n---\n# user\n{{ nope( }}\n"}, "not a valid prompt: line 5"),
        ({"base": "0" * 64}, "has changed since the page was opened"),
    ],
)
def test_a_try_that_cannot_be_is_refused_and_the_text_is_kept(
    desk: ReviewSite, fields: dict[str, Any], said: str
) -> None:
    text = fields.get("text", text_of(desk) + "My own words.\n")
    fields = {name: value for name, value in fields.items() if name != "text"}
    answers = desk.ask("select count(*) from answer")
    answer = send(desk, "try", text, **fields)
    assert answer.status_code == 422
    shown = Read(answer.text).text
    assert said in shown
    assert text.strip().split("\n")[-1] in shown
    assert desk.ask("select count(*) from answer") == answers
    assert desk.audit() == []


def test_a_budget_is_respected(desk: ReviewSite) -> None:
    path = "experiments/hello.yaml"
    before = desk.folder.read(path)
    desk.folder.write(path, before + "stop: {max_total_tokens: 1}\n")
    try:
        answer = send(desk, "try", text_of(desk) + "Not affordable.\n")
        filled(desk, desk.client.get(answer.headers["location"]).text)
        shown = Read(desk.client.get(answer.headers["location"]).text).text
    finally:
        desk.folder.write(path, before)
    assert shown.count("stop.max_total_tokens has no room for it") == 2


def test_a_text_is_saved_as_a_branch_after_its_changes_are_shown(desk: ReviewSite) -> None:
    before = desk.folder.git("rev-parse", "main")
    text = text_of(desk) + f"Wish them well. {PROBE}\nThe customer sends JSON.\n"
    answer = send(desk, "draft", text)
    assert place(answer) == "/-/edison/prompt/hello/save"
    page = desk.client.get(answer.headers["location"]).text
    assert "Wish them well." in Read(page).text
    assert "<script>document" not in page
    form = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page))
    propose = "/-/edison/prompt/hello/propose"
    short = desk.client.post(propose, data={**form, "text": text, "note": "too short"})
    assert short.status_code == 422
    assert "the note has 9 characters; 10 to 500 are needed" in Read(short.text).text
    assert "too short" in Read(short.text).text
    assert "edison/edit" not in desk.folder.git("branch", "--list")
    saved = desk.client.post(propose, data={**form, "text": text, "note": NOTE})
    assert place(saved) == "/-/edison/prompt/hello"
    told = Read(desk.client.get(saved.headers["location"]).text).text
    branch = re.search(r"edison/edit/hello-\w{8}", told)
    assert branch is not None
    assert "git switch main && git merge" in told, "there is no remote"
    assert "Wish them well." in desk.folder.git("show", f"{branch[0]}:prompts/hello.md")
    written = desk.folder.git("show", f"{branch[0]}:prompts/hello.md")
    assert "\nexpect: none\n---\n" in written, "the form is written out"
    assert NOTE in desk.folder.git("log", "-1", "--format=%B", branch[0])
    assert desk.folder.git("rev-parse", "main") == before
    assert "Wish them well." not in text_of(desk)
    ((actor, _, action, entity, after),) = desk.audit()
    assert (actor, action, entity) == (ADA, "edit prompt", "prompt hello")
    assert json.loads(after)["branch"] == branch[0]
    desk.folder.git("branch", "-D", branch[0])


def test_the_way_back_from_the_changes_keeps_the_text(desk: ReviewSite) -> None:
    answer = send(desk, "resume", text_of(desk) + "Half done.\n")
    assert "Half done." in Read(desk.client.get(answer.headers["location"]).text).text
    same = send(desk, "draft", text_of(desk))
    assert same.status_code == 422
    assert "was not changed" in Read(same.text).text


def test_only_editors_edit_try_and_request_answers(desk: ReviewSite) -> None:
    cell = desk.cell("c0")
    form = desk.form(PAGE, "/prompt/hello/draft")
    desk.role("reviewer")
    assert "/prompt/hello/edit" not in desk.get("/prompt/hello").text
    assert desk.get(PAGE).status_code == 403
    assert "Re-run" not in desk.get(f"/cell/{cell}").text
    answers = desk.ask("select count(*) from answer")
    for path in ("count", "draft", "try", "resume", "propose"):
        refused = desk.client.post(f"/-/edison/prompt/hello/{path}", data=form.fields)
        assert refused.status_code == 403, path
        assert "is a reviewer" in Read(refused.text).text
    refused = desk.client.post(f"/-/edison/cell/{cell}/rerun", data=form.fields)
    assert refused.status_code == 403
    assert desk.ask("select count(*) from answer") == answers
    assert [row[2] for row in desk.audit()] == [
        *["refused: edit prompt"] * 2, "refused: try", *["refused: edit prompt"] * 2,
        "refused: rerun",
    ]  # fmt: skip


def test_another_answer_changes_no_result(desk: ReviewSite) -> None:
    cell = desk.cell("c2")
    whole = "select * from cell where id like ?"
    before = desk.ask(whole, f"{cell}%"), desk.ask("select * from decision")
    (hash_,) = desk.ask("select request_hash from cell where id like ?", f"{cell}%")[0]
    count = "select count(*) from answer where request_hash = ?"
    answers = desk.ask(count, hash_)[0][0]
    answer = desk.send(f"/cell/{cell}", f"/cell/{cell}/rerun")
    assert place(answer) == f"/-/edison/cell/{cell}"
    filled(desk, desk.client.get(answer.headers["location"]).text)
    shown = desk.client.get(answer.headers["location"]).text
    assert "Another answer" in Read(shown).text
    assert shown.count('class="tried"') == 1
    assert desk.ask(count, hash_)[0][0] == answers + 1
    assert (desk.ask(whole, f"{cell}%"), desk.ask("select * from decision")) == before
    assert [(row[0], row[2], row[3]) for row in desk.audit()] == [(ADA, "rerun", f"cell {cell}")]
    assert "no longer shown" in Read(desk.get(f"/cell/{cell}?again={'0' * 32}").text).text


def test_a_grid_of_another_person_is_not_shown(desk: ReviewSite) -> None:
    with desk.client.stream("GET", f"/-/edison/try/{'0' * 32}/events") as stream:
        lines = [line for line in stream.iter_lines() if line.startswith("data: ")]
    assert json.loads(lines[0].removeprefix("data: ")) == {"cells": {}, "head": "", "ended": True}
    assert "no longer here" in Read(desk.get(f"{PAGE}?grid={'0' * 32}").text).text


# --- suggestions and counterexamples --------------------------------------------------------------


def test_a_suggestion_shows_failing_answers_and_leads_to_a_counterexample(
    desk: ReviewSite,
) -> None:
    cell = desk.cell("c3")
    one = desk.suggest("Be kind.", evidence={"examples": [cell], "sentence": "No evidence."})
    page = desk.get(f"/suggestion/{one.id}")
    shown = Read(page.text).text
    assert '<span class="name">c3</span>' in page.text
    assert "P3" in shown, "the input"
    ((text,),) = desk.ask(
        "select t.text from cell c join answer_text t on t.request_hash = c.request_hash "
        "and t.answer_no = c.answer_no where c.id like ?", f"{cell}%")  # fmt: skip
    assert text.strip()[:40] in shown, "the answer"
    assert "Warmth" in shown, "scores and reasons"
    assert "unverified" in shown
    assert "notice-odd" in page.text
    assert f"/cell/{cell}/counterexample?suggestion={one.id}" in page.text
    desk.role("reviewer")
    assert "Add counterexample" not in desk.get(f"/suggestion/{one.id}").text


def test_a_counterexample_is_added_on_a_branch(desk: ReviewSite) -> None:
    cell, before = desk.cell("c4"), desk.folder.git("rev-parse", "main")
    one = desk.suggest("Be brief.", evidence={"examples": [cell]})
    page, action = f"/cell/{cell}/counterexample", f"/cell/{cell}/add-case"
    form = desk.form(f"{page}?suggestion={one.id}", action)
    assert ">\nP4</textarea>" in form.text
    sent = {**form.fields, "input.name": "P4", "expected": "P4", "note": NOTE}
    same = desk.client.post(form.action, data=sent)
    assert same.status_code == 422
    assert "it equals the case 'c4'" in Read(same.text).text
    assert NOTE in Read(same.text).text, "what was written stays"
    done = desk.client.post(form.action, data={**sent, "input.name": PROBE})
    assert place(done) == f"/-/edison/suggestion/{one.id}"
    told = Read(desk.client.get(done.headers["location"]).text).text
    branch = re.search(r"edison/cases/names-\w{8}", told)
    assert branch is not None
    row = desk.folder.git("show", f"{branch[0]}:datasets/names.jsonl").splitlines()[-1]
    assert json.loads(row)["input"] == {"name": PROBE}
    assert desk.folder.git("rev-parse", "main") == before
    assert "counterexample" not in desk.folder.read("datasets/names.jsonl")
    entries = [(row[0], row[2], row[3]) for row in desk.audit()]
    assert entries == [(ADA, "add case", f"cell {cell}")]
    desk.folder.git("branch", "-D", branch[0])
    desk.role("reviewer")
    assert desk.get(page).status_code == 403
    assert desk.client.post(form.action, data=sent).status_code == 403


def test_named_cases_that_a_suggestion_fixed_are_shown_before_and_after(
    server: Server, stored: Stored
) -> None:
    id_, evidence = stored.rows("select id, evidence from suggestion where status = 'proposed'")[0]
    page = server.get(f"/-/edison/suggestion/{id_}").text
    shown = Read(page).text
    found = json.loads(evidence)
    named = [*found["train"]["fixed"], *found["holdout"]["fixed"]]
    assert f"{len(named)} fixed" in shown
    for case in named:
        assert case in shown
    changed = page[page.index('id="changed"') : page.index('id="examples"')]
    assert changed.count("<strong>before</strong>") == changed.count("<strong>after</strong>") > 0
    assert "<script>" not in changed


# --- the grid -------------------------------------------------------------------------------------


def test_a_thumb_in_the_grid_is_a_grade_and_leads_back_to_its_cell(desk: ReviewSite) -> None:
    cell, listed = desk.cell("c1"), f"/run/{desk.run}?sort=name&failed=&q=c1"
    action = f"/cell/{cell}/grade"
    form = desk.form(listed, action)
    assert form.text.count('aria-pressed="true"') == 0
    answer = desk.client.post(form.action, data={**form.fields, "grade": "down"})
    assert place(answer) == f"/-/edison/run/{desk.run}"
    where = answer.headers["location"]
    assert "sort=name" in where
    assert "q=c1" in where
    assert where.endswith(f"#b-{cell}")
    assert desk.grades("c1", "scale, score, passed, actor") == [("thumbs", 0, 0, ADA)]
    assert [(row[2], row[3]) for row in desk.audit()] == [("grade", f"cell {cell}")]
    pressed = desk.form(listed, action).text
    assert re.search(r'value="down"[^>]*aria-pressed="true"', pressed)
    desk.client.post(form.action, data={**form.fields, "grade": "up"})
    assert re.search(r'value="up"[^>]*aria-pressed="true"', desk.form(listed, action).text)
    desk.role("viewer")
    assert "/grade" not in desk.get(listed).text[desk.get(listed).text.index("<tbody>") :]


def test_a_note_survives_a_thumb(desk: ReviewSite) -> None:
    desk.grade("c2", grade="4", note="kind words")
    cell = desk.cell("c2")
    desk.send(f"/run/{desk.run}?q=c2", f"/cell/{cell}/grade", grade="up")
    assert desk.grades("c2", "scale, note") == [("1-5", "kind words"), ("thumbs", "kind words")]


def test_the_whole_reply_of_a_grader_is_a_page_that_unfolds(desk: ReviewSite) -> None:
    cell = desk.cell("c0")
    assert f'href="/-/edison/cell/{cell}/reply" data-unfold' in desk.get(f"/run/{desk.run}").text
    page = desk.get(f"/cell/{cell}/reply").text
    replies = desk.ask(
        "select t.text from judgment j join answer_text t on t.request_hash = j.request_hash "
        "and t.answer_no = j.answer_no where j.cell_id like ?", f"{cell}%")  # fmt: skip
    assert replies
    for (text,) in replies:
        assert " ".join(text.split()) in " ".join(Read(page).text.split())
