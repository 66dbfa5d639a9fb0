"""Every page, over HTTP, on both lines of Datasette."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from html import unescape
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urljoin, urlsplit

import pytest

from edison_ci.numeric import dollars
from edison_ci.records import Move
from edison_ci.results.run_result import RunResult
from edison_ci.results.triage import changed_lists
from edison_ci.stats.sentences import two_sided
from edison_ci.store.answers import text_hash
from edison_ci.store.runs import find_run
from edison_ci.web import formats
from tests import showcase
from tests.conftest import ROOT
from tests.web.conftest import LINES, Stored, started

if TYPE_CHECKING:
    from pathlib import Path

    from tests.web.conftest import Server

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
VOID = {"br", "col", "hr", "img", "input", "link", "meta", "wbr"}


class Read(HTMLParser):
    """Reads a page as a browser does, as far as it must to find what is wrong with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.title = ""
        self.text = ""
        self.feed(text)
        self.close()
        self.wrong += [f"{tag} is not closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        given = dict(attrs)
        if tag == "script" and not re.search(r"/static/edi\w+\.js", str(given.get("src"))):
            self.wrong.append("a script that is not ours")
        self.wrong += [
            f"{tag} has {name}" for name in given if name.startswith("on") or name == "style"
        ]
        self.ids += [str(given["id"])] if "id" in given else []
        if tag == "a":
            self.links.append(str(given.get("href")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.wrong.append(f"</{tag}> closes {self.open[-1:]}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open[-2:] == ["head", "title"]:
            self.title += data
        self.text += data


def grid(body: str) -> str:
    """Return the cases of the page of a run, without the ones that changed."""
    return body[body.index('id="cases"') :]


def one_line(body: str) -> str:
    """Return the text of a page as it is read, without line breaks."""
    return " ".join(Read(body).text.split())


def test_every_page_is_whole_titled_and_guarded(server: Server, stored: Stored) -> None:
    titles = []
    for path in [*stored.pages(), *stored.forms()]:
        answer = server.get(path)
        page = Read(answer.text)
        assert (answer.status_code, page.wrong) == (200, []), path
        assert len(page.ids) == len(set(page.ids)), path
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert page.title.endswith(" · edison")
        titles.append((page.title, urlsplit(path).path))
    assert len({title for title, _ in titles}) == len(set(titles)), "two pages have one title"


@pytest.mark.nightly
def test_every_link_leads_somewhere(server: Server, stored: Stored) -> None:
    links = {
        urljoin(path, link).partition("#")[0]
        for path in [*stored.pages(), *stored.forms()]
        for link in Read(server.get(path).text).links
    }
    assert all(link.startswith(("/-/edison", "/results")) for link in links), links
    kinds: dict[str, list[str]] = {}
    for link in sorted(link for link in links if link.startswith("/-/edison")):
        kinds.setdefault(re.sub(r"=[^&]*|\d{8}T\d{6}-\w{6}|/cell/.*", "", link), []).append(link)
    few = [link for alike in kinds.values() for link in alike[:5]]
    assert len(few) > 50
    wrong = [link for link in few if server.get(link).status_code != 200]
    assert not wrong


def test_what_models_and_people_wrote_is_text(server: Server, stored: Stored) -> None:
    hostile = showcase.HOSTILE[0]["id"]
    body = server.get(f"/-/edison/cell/{stored.cell(hostile)}").text
    assert "<script>document.title" not in body
    assert "&lt;script&gt;document.title" in body
    assert "49" not in Read(body).title
    turned = showcase.HOSTILE[1]["id"]
    assert "\u202e" not in server.get(f"/-/edison/cell/{stored.cell(turned)}").text


def test_the_grid_filters_sorts_and_pages_by_its_address(server: Server, stored: Stored) -> None:
    run = f"/-/edison/run/{stored.against}"

    def cases(**args: str) -> list[str]:
        body = grid(server.get(f"{run}?{urlencode(args)}").text)
        return re.findall(r'<a class="name" href="[^"]+/case\?case=([^"&]+)', body)

    everything = stored.one("select count(distinct case_id) from cell where run_id = ?",
                            stored.against)  # fmt: skip
    assert len(cases()) == 20
    assert len(cases(page="2")) == everything - 20
    assert cases(page="999") == cases(page="2")
    assert set(cases(tag="hostile")) == set(cases(q="script") + cases(q="javascript"))
    worst = stored.rows(
        "select case_id from rollup_case where run_id = ? and side = 'head' "
        "order by lowest, composite, case_id limit 3", stored.against)  # fmt: skip
    assert cases(sort="worst")[:3] == [quote(case, safe="") for (case,) in worst]
    failed = stored.one("select count(*) from rollup_case where run_id = ? and side = 'head' "
                        "and failed > 0", stored.against)  # fmt: skip
    assert f" of {failed}<" in server.get(f"{run}?failed=1").text
    assert "No case matches these filters" in server.get(f"{run}?q=nobody-wrote-this").text
    assert cases(q="HUGE-message") == ["huge-message"]


def test_the_grid_shows_beginnings_of_answers_worst_first(server: Server, stored: Stored) -> None:
    body = grid(server.get(f"/-/edison/run/{stored.against}").text)
    found = re.search(
        r'<a class="excerpt" dir="auto" href="/-/edison/cell/(\w+)\?page=1">(.*?)</a>', body, re.S
    )
    assert found is not None
    ((case, text, tokens_in),) = stored.rows(
        "select c.case_id, x.text, a.tokens_in from cell c join answer a on "
        "a.request_hash = c.request_hash and a.answer_no = c.answer_no join answer_text x on "
        "x.request_hash = c.request_hash and x.answer_no = c.answer_no where c.id >= ? "
        "order by c.id limit 1", found[1])  # fmt: skip
    worst = stored.one("select case_id from rollup_case where run_id = ? and side = 'head' "
                       "order by lowest, composite limit 1", stored.against)  # fmt: skip
    assert case == worst
    more = ' <span class="more">more</span>'
    whole, shown = " ".join(text.split()), unescape(found[2].removesuffix(more))
    assert shown == whole if len(whole) <= 200 else whole.startswith(shown[:190])
    texts = re.findall(r'<a class="excerpt"[^>]*>(.*?)</a>', body, re.S)
    cut = [each.removesuffix(more) for each in texts if each.endswith(more)]
    assert {len(unescape(each)) for each in cut} == {200}
    assert all(each.endswith("\N{HORIZONTAL ELLIPSIS}") for each in cut)
    assert f"{tokens_in} in, " in body
    assert "Why it fails: " in Read(body).text


def test_a_run_begins_with_its_headline_and_what_changed(server: Server, stored: Stored) -> None:
    body = server.get(f"/-/edison/run/{stored.against}").text
    text = one_line(body)
    with closing(sqlite3.connect(stored.project / ".edison" / "results.db")) as connection:
        result = RunResult(connection, find_run(connection, stored.against))
        assert f"{result.headline.verdict}: {result.headline.sentence}" in text
        against = result.against
        assert against is not None
        assert f"Change against main{formats.signed(against.estimate)}" in text
        assert formats.signed_span(against.low, against.high) in text
        assert "Change of prompts/support-reply.md" in text and 'class="added"' in body
        triage, lists = result.triage(most=0), changed_lists(result, most=200)
        assert triage is not None and triage.flips is not None
        assert triage.flips.counts in text
        assert against.p is not None and two_sided(against.p) in text
        assert not re.search(r"\bp [<=>] ", result.headline.sentence), "a headline has no p-value"
        assert len(re.findall(r"(?<!One-sided )\bp [<=>] ", text)) == 1, "one for the difference"
        counts = {each.move: each.total for each in lists}
        assert counts[Move.NEWLY_FAILING] == triage.flips.newly_failing
        assert counts[Move.FIXED] == triage.flips.fixed
        for each in lists:
            assert f"{each.move.words.capitalize()} {each.total} " in text
            for one in each.cases[:5]:
                for cell in (one.before.cell, one.after.cell):
                    assert f'href="/-/edison/cell/{cell[:12]}"' in body
        newly = next(each.cases for each in lists if each.move is Move.NEWLY_FAILING)
    assert text.index("Newly failing") < text.index("Fixed")
    first = re.search(r'id="changed".*?<tbody>\n(.*?)</tr>', body, re.S)
    assert first is not None
    cells = re.findall(r"/-/edison/cell/(\w+)", first[1])
    assert cells == [newly[0].before.cell[:12], newly[0].after.cell[:12]], "base, then candidate"


def test_next_and_previous_follow_the_list(server: Server, stored: Stored) -> None:
    run = f"/-/edison/run/{stored.against}"
    listed = f"{run}?sort=cost&failed=1&metric=tokens"
    cases: list[str] = []
    while True:  # through the pages of the list
        body = grid(server.get(listed).text)
        cases += re.findall(r'<a class="name" href="[^"]+/case\?case=([^"&]+)', body)
        more = re.search(r'rel="next"[^>]* href="([^"]+)"|href="([^"]+)" rel="next"', body)
        if more is None:
            break
        listed = unescape(more[1] or more[2])
    first = grid(server.get(f"{run}?sort=cost&failed=1&metric=tokens").text)
    found = re.search(r'class="excerpt" dir="auto" href="([^"]+)"', first)
    assert found is not None
    address, seen = unescape(found[1]), []
    for number, _ in enumerate(cases, 1):  # through the answers, by "Next case"
        body = server.get(address).text
        assert f"{number} of {len(cases)}<" in body
        side = re.search(r'/case\?case=([^"&]+)', body)
        assert side is not None
        seen.append(side[1])
        assert "sort=cost" in body and "failed=1" in body
        following = re.search(r'rel="next" href="([^"]+)"', body)
        address = unescape(following[1]) if following else ""
    assert seen == cases
    assert address == ""
    back = re.search(r'href="([^"]+)">run [^<]+</a></li></ol>', body)
    assert back is not None
    assert cases[-1] in server.get(unescape(back[1])).text, "the way back leads to its page"


def test_raw_text_stands_beside_what_is_graded(tmp_path: Path, project: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(project, folder)
    copied = Stored(folder)
    text = "<thinking>Hm.</thinking>\n\nJust the reply."
    with closing(sqlite3.connect(folder / ".edison" / "results.db")) as connection, connection:
        connection.execute(
            "update answer_text set text = ?, sha256 = ? where "
            "(request_hash, answer_no) = (select request_hash, answer_no from cell where id >= ? "
            "order by id limit 1)", (text, text_hash(text, None), copied.cell()))  # fmt: skip
    for server in started(folder, LINES[0]):
        text = one_line(server.get(f"/-/edison/cell/{copied.cell()}").text)
        assert "answer, as it is graded Just the reply." in text
        assert "raw, as the model wrote it <thinking>Hm.</thinking> Just the reply." in text
        assert "The raw text is the same." not in text


def test_criteria_show_an_answer_for_each_score(server: Server, stored: Stored) -> None:
    body = server.get(f"/-/edison/run/{stored.against}/criteria?component=criterion:Accuracy").text
    rows = re.findall(r'<tr><th scope="row">(\d)[^/]*</th>\s*<td>(.*?)</td>', body, re.S)
    assert [level for level, _ in rows] == ["5", "4", "3", "2", "1", "0"]
    for level, example in rows:
        score = re.search(r"<strong>([\d.]+)</strong>", example)
        assert score is None or abs(float(score[1]) - 20 * int(level)) <= 10
        assert ("no answer has this score" in example) is (score is None)
        assert score is None or 'class="excerpt"' in example
    assert any("<strong>" in example for _, example in rows)


@pytest.mark.parametrize("metric", ["grade", "tokens", "cost", "latency"])
def test_the_grid_shows_another_number(server: Server, stored: Stored, metric: str) -> None:
    body = server.get(f"/-/edison/run/{stored.against}?metric={metric}").text
    sign = {"grade": "passed", "tokens": " mean", "cost": "$", "latency": " ms median"}[metric]
    assert sign in body[body.index("<tfoot>") :]


def test_a_cell_says_what_was_asked_answered_and_why(server: Server, stored: Stored) -> None:
    text = one_line(server.get(f"/-/edison/cell/{stored.cell()}").text)
    assert "how do i send this back" in text  # from the dataset, which has not changed
    sent = text[text.index("Prompt as sent") : text.index("Answer")]
    assert re.search(
        r"system You answer e-mails .*user Write .* Message: how do i send this back ", sent
    )
    assert "Reasons" in text
    assert re.search(r"Helpfulness criterion.*strict [\d.]+ ", text)
    assert "The raw text is the same." in text
    assert "Pairwise comparisons" in text
    assert re.search(r"Score: \(0\.5 x", text)


def test_what_is_not_there_is_said(server: Server) -> None:
    for path, said in (
        ("/-/edison/run/nope", "there is no run 'nope'"),
        ("/-/edison/cell/0123456789ab", "there is no cell"),
        ("/-/edison/cell/%3Cscript%3E", "there is no cell"),
        ("/-/edison/experiment/suport-reply", "did you mean 'support-reply'?"),
        ("/-/edison/nowhere", "this page does not exist"),
    ):
        answer = server.get(path)
        assert answer.status_code == 404
        assert said in Read(answer.text).text


def test_a_name_that_is_not_ours_is_refused(server: Server) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example"):
        assert server.get("/-/edison", headers={"host": host}).status_code == 421


def test_raw_tables_are_there_and_guarded(server: Server) -> None:
    answer = server.get("/results/run?_nocount=1&_nofacet=1")
    assert answer.status_code == 200
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert server.get("/").headers["location"] == "/-/edison"
    assert server.get("/results.db").status_code in (403, 404)


def test_files_are_kept_by_browsers_until_they_change(server: Server) -> None:
    body = server.get("/-/edison").text
    address = re.search(r'href="(/-/edison/static/edison.css\?v=\w+)"', body)
    assert address is not None
    answer = server.get(address[1], headers={"cookie": "of=somebody"})
    assert answer.content == (ROOT / "edison_ci/report/static/edison.css").read_bytes()
    assert answer.headers.get_list("cache-control") == ["public, max-age=31536000, immutable"]
    assert "x-edison-keep" not in answer.headers
    assert server.get("/-/edison/static/base.html").status_code == 404


def test_decisions_have_sentences_numbers_and_pictures(server: Server, stored: Stored) -> None:
    text = Read(server.get(f"/-/edison/run/{stored.against}/decisions").text).text
    for sentence, *_ in stored.rows("select sentence from decision where run_id = ?",
                                    stored.against):  # fmt: skip
        assert sentence.replace("`", "") in text
    assert "no worse than base by 10 points" in text
    assert "Change from base" in text


def test_criteria_lead_to_the_answers_that_are_weak_in_them(server: Server, stored: Stored) -> None:
    body = server.get(f"/-/edison/run/{stored.against}/criteria?component=criterion:Empathy").text
    (worst,) = stored.rows(
        "select c.id, c.case_id from cell c join component p on p.cell_id = c.id and p.name = "
        "'Empathy' "
        "where c.run_id = ? and c.side = 'head' order by p.score, c.case_id, c.model limit 1",
        stored.against,
    )
    assert f"/-/edison/cell/{worst[0][:12]}" in body
    assert "Empathy: distribution of scores" in body


def test_slice_table_say_how_many_comparisons_were_made(server: Server, stored: Stored) -> None:
    text = Read(server.get(f"/-/edison/run/{stored.against}/slices").text).text
    family = stored.one("select max(family) from rollup_slice where run_id = ?", stored.against)
    assert f"{family} slice comparisons; after correction" in text
    assert "difficulty easy" in text


def test_judges_are_held_against_each_other(server: Server, stored: Stored) -> None:
    text = Read(server.get(f"/-/edison/run/{stored.against}/judges").text).text
    assert "Krippendorff's alpha" in text
    assert "head preferred in" in text


def test_the_leaderboard_says_which_differences_are_shown(server: Server) -> None:
    text = Read(server.get("/-/edison/leaderboard?experiment=support-reply").text).text
    assert "comparisons were made" in text
    assert "By preference" in text
    assert "Score and cost per answer" in text


def test_costs_add_up_to_what_is_booked(server: Server, stored: Stored) -> None:
    total = stored.one("select sum(microusd) from booked where scope = 'project'")
    for by in ("model", "phase", "experiment", "day"):
        text = Read(server.get(f"/-/edison/costs?by={by}&days=365").text).text
        assert dollars(total) in text
    rows = stored.rows("select model, sum(cost_microusd) from rollup_spending group by 1")
    text = Read(server.get("/-/edison/costs?by=model&days=365").text).text
    for model, cost in rows:
        assert model in text
        assert dollars(cost) in text


def test_a_prompt_has_its_versions_and_what_changed(server: Server) -> None:
    body = server.get("/-/edison/prompt/support-reply").text
    text = Read(body).text
    assert "Ask for warmth and a next step" in text
    assert "Ada Example" in text
    assert '<tr class="added">' in body
    assert "Name the customer's problem in your first sentence" in text
    older = server.get("/-/edison/prompt/support-reply?version=da045f29").text
    assert "the first version" in older


def test_a_suggestion_has_its_diff_evidence_and_comments(server: Server, stored: Stored) -> None:
    rejected = stored.one("select id from suggestion where status = 'rejected'")
    text = Read(server.get(f"/-/edison/suggestion/{rejected}").text).text
    assert f"Mention {showcase.PROBE}" in text
    assert "8.0 points better on the training cases." in text
    assert "optimize: best of 11 versions on the training cases, 3 generations" in text
    assert "ada@example.com" in text
    found, evidence = stored.rows("select id, evidence from suggestion where status = 'proposed'")[
        0
    ]
    text = Read(server.get(f"/-/edison/suggestion/{found}").text).text
    assert json.loads(evidence)["sentence"] in text
    assert "waiting loop" in text
    assert "Puts the change of prompts/support-reply.md on a separate branch" in text
    listed = Read(server.get("/-/edison/suggestions").text).text
    assert found in listed
    assert "1 open" in Read(server.get("/-/edison").text).text


def test_a_loop_has_its_iterations_gain_cost_and_end(server: Server, stored: Stored) -> None:
    listed = Read(server.get("/-/edison/loops").text).text
    assert "no suggestion is shown to help" in listed
    assert "waiting" in listed
    done, waits = stored.rows(
        "select l.id, max(i.pending) from loop l join loop_iteration i on i.loop = l.id "
        "group by 1 order by l.started_at"
    )
    page = server.get(f"/-/edison/loop/{done[0]}").text
    text = Read(page).text
    for words in ("+8.0", "+2.0 to +14.0", "not verified: too few cases", "at most 5", "Cost by"):
        assert words in text
    for (run,) in stored.rows("select run_id from loop_iteration where loop = ?", done[0]):
        assert f'/-/edison/run/{run}"' in page
    waiting = server.get(f"/-/edison/loop/{waits[0]}").text
    assert (
        f'Waiting for a decision about <a class="mono" href="/-/edison/suggestion/{waits[1]}"'
        in (waiting)
    )
    assert server.get("/-/edison/loop/nope").status_code == 404
    assert (
        'href="/-/edison/loops?experiment=support-reply"'
        in server.get("/-/edison/experiment/support-reply").text
    )


def test_a_dataset_has_kinds_health_and_questions(server: Server) -> None:
    text = Read(server.get("/-/edison/dataset/support-reply").text).text
    assert "Contradictions" in text
    assert "Question, the weakest first" in text
    empty = Read(server.get("/-/edison/dataset/unreliable").text).text
    assert "edison dataset judge unreliable" in empty


def test_the_audit_is_shown_newest_first(server: Server, stored: Stored) -> None:
    text = Read(server.get("/-/edison/audit").text).text
    last = stored.one("select action from audit order by seq desc")
    first = stored.one("select action from audit order by seq")
    assert text.index(last) < text.rindex(first)


def test_machines_can_ask_for_health_and_numbers(server: Server, stored: Stored) -> None:
    answer = server.get("/-/edison/health")
    assert (answer.status_code, answer.json()["ok"]) == (200, True)
    assert set(answer.json()["checks"]) >= {
        "database", "schema", "disk", "keys", "runs", "duties",
    }  # fmt: skip
    assert server.get("/-/edison/ready").json() == {"ok": True}
    lines = server.get("/-/edison/metrics").text.splitlines()
    runs = stored.one("select count(*) from run where experiment = 'unreliable'")
    assert f'edison_runs{{experiment="unreliable",status="completed"}} {runs}' in lines
    assert all(re.fullmatch(r"# .*|[a-z_]+(\{.*\})? [0-9.e+-]+", line) for line in lines)
    asked = 'edison_http_requests_total{page="metrics",method="GET",status="200"} '
    counts = [
        int(line.removeprefix(asked))
        for _ in range(2)
        for line in server.get("/-/edison/metrics").text.splitlines()
        if line.startswith(asked)
    ]
    assert counts[1] == counts[0] + 1


def test_a_run_is_followed_as_a_stream_of_events(server: Server, stored: Stored) -> None:
    answer = server.get(f"/-/edison/run/{stored.against}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = json.loads(re.findall(r"data: (.*)", answer.text)[-1])
    assert (told["status"], told["moving"], told["done"]) == ("COMPLETED", False, told["total"])
