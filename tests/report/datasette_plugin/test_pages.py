"""Every page, over HTTP, on both lines of Datasette."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urljoin, urlsplit

import pytest

from tests import showcase
from tests.conftest import ROOT

if TYPE_CHECKING:
    from tests.report.datasette_plugin.conftest import Server, Stored

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
        if tag == "script" and "/static/edison.js" not in str(given.get("src")):
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


def test_every_page_is_whole_titled_and_guarded(server: Server, stored: Stored) -> None:
    titles = []
    for path in stored.pages():
        answer = server.get(path)
        page = Read(answer.text)
        assert (answer.status_code, page.wrong) == (200, []), path
        assert len(page.ids) == len(set(page.ids)), path
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert page.title.endswith(" · edison")
        titles.append((page.title, urlsplit(path).path))
    assert len({title for title, _ in titles}) == len({path for _, path in titles})


def test_every_link_leads_somewhere(server: Server, stored: Stored) -> None:
    links = {
        urljoin(path, link).partition("#")[0]
        for path in stored.pages()
        for link in Read(server.get(path).text).links
    }
    assert all(link.startswith(("/-/edison", "/results")) for link in links), links
    ours = sorted(link for link in links if link.startswith("/-/edison"))
    assert {server.get(link).status_code for link in ours} == {200}


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
        body = server.get(f"{run}?{urlencode(args)}").text
        return re.findall(r'run/[^/"]+/case\?case=([^"&]+)', body)

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
    assert "No case fits these filters" in server.get(f"{run}?q=nobody-wrote-this").text
    assert cases(q="HUGE-message") == ["huge-message"]


@pytest.mark.parametrize("metric", ["grade", "tokens", "cost", "latency"])
def test_the_grid_shows_another_number(server: Server, stored: Stored, metric: str) -> None:
    body = server.get(f"/-/edison/run/{stored.against}?metric={metric}").text
    sign = {"grade": "passed", "tokens": " mean", "cost": "$", "latency": " ms median"}[metric]
    assert sign in body[body.index("<tfoot>") :]


def test_a_cell_says_what_was_asked_answered_and_why(server: Server, stored: Stored) -> None:
    text = Read(server.get(f"/-/edison/cell/{stored.cell()}").text).text
    assert "how do i send this back" in text  # from the dataset, which has not changed
    assert "What judges said" in text
    assert "Compared with other answers" in text
    assert re.search(r"Score: \(0\.5 x", text)


def test_what_is_not_there_is_said(server: Server) -> None:
    for path, said in (
        ("/-/edison/run/nope", "there is no run 'nope'"),
        ("/-/edison/cell/0123456789ab", "there is no cell"),
        ("/-/edison/cell/%3Cscript%3E", "there is no cell"),
        ("/-/edison/experiment/suport-reply", "did you mean 'support-reply'?"),
        ("/-/edison/nowhere", "there is no such page"),
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
    answer = server.get(address[1])
    assert answer.content == (ROOT / "edison_ci/report/static/edison.css").read_bytes()
    assert "immutable" in answer.headers["cache-control"]
    assert server.get("/-/edison/static/base.html").status_code == 404
