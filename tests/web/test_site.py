"""Pages of the whole project: home, search, models, an experiment, and pages without results."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from contextlib import closing
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from tests import showcase
from tests.conftest import MINIMAL, Folder
from tests.web.conftest import LINES, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.web.conftest import Server, Stored

EDISON = "/-/edison"
EXPERIMENT = f"{EDISON}/experiment/{showcase.EXPERIMENT}"


def text_of(server: Server, path: str, **args: str) -> str:
    """Return a page as its readers see it, without markup."""
    response = server.get(f"{EDISON}{path}", params=args)
    assert response.status_code == 200, response.text
    _, _, content = response.text.partition("<main")
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", content.partition("</main>")[0])).split())


# --- before the first run -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a project that was never run."""
    folder = Folder(tmp_path_factory.mktemp("fresh"))
    for name, text in MINIMAL.items():
        folder.write(name, text)
    assert not (folder.path / ".edison" / "results.db").exists()
    yield from started(folder.path, LINES[0], "--offline")


def test_serving_before_the_first_run_says_how_to_start_it(fresh: Server) -> None:
    shown = text_of(fresh, "")
    assert "No runs yet Start one with edison run hello" in shown
    assert "hello not run yet: edison run hello" in shown
    assert "What it will run" in text_of(fresh, "/experiment/hello")


@pytest.mark.parametrize(
    "path",
    ["leaderboard", "prompts", "suggestions", "loops", "costs", "audit", "search"],
)
def test_a_page_without_results_says_what_to_do(fresh: Server, path: str) -> None:
    response = fresh.get(f"{EDISON}/{path}")
    assert response.status_code == 200
    assert 'class="empty"' in response.text


def test_datasets_are_listed_before_they_are_run(fresh: Server) -> None:
    page = text_of(fresh, "/datasets")
    assert "hello datasets/names.jsonl golden" in page
    assert "not run" in page


def test_an_unknown_experiment_is_not_found(fresh: Server) -> None:
    assert fresh.get(f"{EDISON}/experiment/nothing").status_code == 404


# --- home -----------------------------------------------------------------------------------------


def test_experiments_are_found_by_name_and_status(server: Server) -> None:
    assert "unreliable" in text_of(server, "", q="unrel")
    listed = text_of(server, "", q="unrel").partition("Name or objective")[2]
    assert "support-reply" not in listed
    paused = text_of(server, "", status="paused")
    assert "support-reply" in paused
    assert "unreliable" not in paused
    assert "No experiment matches" in text_of(server, "", q="nothing like it")


# --- search ---------------------------------------------------------------------------------------


def test_a_search_finds_experiments_prompts_cases_runs_and_models(
    server: Server, stored: Stored
) -> None:
    assert "Experiments support-reply" in text_of(server, "/search", q="support")
    assert "Prompts support-reply" in text_of(server, "/search", q="support")
    assert "return-how of support-reply" in text_of(server, "/search", q="turn-how")
    assert f"Runs {stored.against}" in text_of(server, "/search", q=stored.against)
    assert "Models faulty" in text_of(server, "/search", q="faul")
    assert "Nothing found for" in text_of(server, "/search", q="no such thing")


def test_signs_of_a_search_have_no_meaning(server: Server) -> None:
    assert "Nothing found for" in text_of(server, "/search", q="%_%")
    hostile = server.get(f"{EDISON}/search?{urlencode({'q': '<script>alert(1)</script>'})}")
    assert "<script>alert" not in hostile.text
    assert "&lt;script&gt;alert(1)" in hostile.text


# --- models ---------------------------------------------------------------------------------------


def test_the_models_page_shows_prices_limits_and_uses_and_no_keys(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path_factory.mktemp("models"))
    for name, text in MINIMAL.items():
        folder.write(name, text)
    folder.write(
        "models.yaml",
        folder.read("models.yaml")
        + "far: {provider: openai_compatible, model: m-1, base_url: 'http://127.0.0.1:9/v1',\n"
        "  key_env: FAR_KEY, price: {in: 1.5, out: 6}, limits: {rpm: 500, attempts: 1}}\n"
        "near: {provider: openai_compatible, model: m-2, base_url: 'http://127.0.0.1:9/v1',\n"
        "  key_env: NEAR_KEY, price: free, limits: {attempts: 1}}\n",
    )
    hosts = "hosts: ['http://127.0.0.1:9']"
    keys = f"version: 1\nkeys: [{{env: FAR_KEY, {hosts}}}, {{env: NEAR_KEY, {hosts}}}]\n"
    folder.write(".edison/trust.yaml", keys)
    monkeypatch.setenv("FAR_KEY", "sk-this-is-the-secret-0123456789")
    monkeypatch.delenv("NEAR_KEY", raising=False)
    tested = folder.edison("models", "test", "far")
    assert "NETWORK" in tested.all, tested.all
    for server in started(folder.path, LINES[0], "--offline"):
        page = text_of(server, "/models")
        assert "m-1 http://127.0.0.1:9/v1 $1.5 in, $6 out models.yaml" in page
        assert "500 requests per minute" in page
        assert "FAR_KEY set" in page
        assert "NEAR_KEY not set" in page
        assert "hello generates" in page
        assert "NETWORK: the host was not reached" in page
        assert "sk-this" not in server.get(f"{EDISON}/models").text


# --- an experiment --------------------------------------------------------------------------------


def test_the_charts_of_an_experiment_have_a_line_for_each_model(server: Server) -> None:
    page = server.get(EXPERIMENT).text
    for title in ("Score of each complete run", "Cost per answer", "Median latency"):
        (chart,) = re.findall(rf"<figure[^>]*><figcaption>{title}.*?</figure>", page, re.S)
        assert {"large", "small"} <= set(re.findall(r"<bdi>(\w+)</bdi>", chart))
    assert "all models" in page


def test_the_range_of_the_charts_can_be_switched(server: Server) -> None:
    assert 'aria-current="true">30 days<' in server.get(EXPERIMENT).text
    assert 'aria-current="true">7 days<' in server.get(EXPERIMENT, params={"days": "7"}).text
    every = server.get(EXPERIMENT, params={"days": "all", "page": "1"}).text
    assert 'aria-current="true">all<' in every


def test_runs_before_the_range_are_left_out(server: Server, stored: Stored) -> None:
    with closing(sqlite3.connect(stored.project / ".edison" / "results.db")) as connection:
        before = connection.execute("select id, created_at from run").fetchall()
        connection.execute(
            "update run set created_at = '2020-01-0' || (rowid % 9 + 1) || substr(created_at, 11)"
        )
        connection.commit()
        try:
            assert "No complete run in the last 7 days" in text_of(
                server, f"/experiment/{showcase.EXPERIMENT}", days="7"
            )
            page = server.get(EXPERIMENT, params={"days": "all"}).text
            assert "<figcaption>Score of each complete run" in page
        finally:
            connection.executemany("update run set created_at = ?2 where id = ?1", before)
            connection.commit()


def test_the_win_rate_of_the_pairwise_judge_is_a_card(server: Server) -> None:
    page = text_of(server, f"/experiment/{showcase.EXPERIMENT}")
    assert re.search(r"Win rate of head over base \d+% \d+ to \d+ \d+ wins?, \d+ lost", page)


# --- everything failed ----------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_run_without_answers_says_what_went_wrong_and_what_to_check(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = Folder(tmp_path_factory.mktemp("broken"))
    for name, text in MINIMAL.items():
        folder.write(name, text)
    folder.write(
        "models.yaml",
        "version: 1\nsmall: {provider: openai_compatible, model: m,\n"
        "  base_url: 'http://127.0.0.1:9/v1', price: free, limits: {attempts: 1}}\n"
        "judge: {provider: sim, model: judge}\n",
    )
    folder.edison("run", "--yes")
    for server in started(folder.path, LINES[0], "--offline"):
        for path in ("/run/latest", "/experiment/hello"):
            page = text_of(server, path)
            assert "No answer came back" in page
            assert "network in" in page
            assert "the host was not reached: check that it runs" in page
            assert "edison models test" in page


def test_a_run_with_some_answers_has_no_such_panel(server: Server, stored: Stored) -> None:
    unreliable = stored.one("select id from run where experiment = 'unreliable'")
    assert "No answer came back" not in text_of(server, f"/run/{unreliable}")


# --- downloads ------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_run_is_downloaded_as_csv_json_lines_and_html(server: Server, stored: Stored) -> None:
    address = f"{EDISON}/run/{stored.against}/export"
    cells = stored.one("select count(*) from cell where run_id = ?", stored.against)
    page = server.get(f"{EDISON}/run/{stored.against}").text
    for kind in ("html", "csv", "jsonl"):
        assert f'href="{address}?format={kind}"' in page
    spreadsheet = server.get(address, params={"format": "csv"})
    assert spreadsheet.headers["content-type"].startswith("text/csv")
    name = f'attachment; filename="support-reply-{stored.against}.csv"'
    assert spreadsheet.headers["content-disposition"] == name
    rows = list(csv.DictReader(io.StringIO(spreadsheet.text)))
    assert len(rows) == cells
    assert {row["run_id"] for row in rows} == {stored.against}
    lines = server.get(address, params={"format": "jsonl"}).text.splitlines()
    assert len(lines) == cells
    assert json.loads(lines[0])["experiment"] == showcase.EXPERIMENT
    report = server.get(address, params={"format": "html"})
    assert "attachment" in report.headers["content-disposition"]
    assert "<!doctype html>" in report.text
    assert "<script" not in report.text


def test_the_history_of_an_experiment_is_downloaded(server: Server, stored: Stored) -> None:
    address = f"{EXPERIMENT}/export"
    text = server.get(address, params={"format": "csv"}).text
    rows = list(csv.DictReader(io.StringIO(text)))
    whole = stored.rows(
        "select m.model, m.composite from rollup_model m join run r on r.id = m.run_id "
        "where r.experiment = ? and r.complete and not r.partial and r.trigger <> 'refine' "
        "and m.side = 'head' order by r.created_at, m.model",
        showcase.EXPERIMENT,
    )
    found = sorted((row["run_started"], row["model"], float(row["score"])) for row in rows)
    assert [(model, pytest.approx(score)) for _, model, score in found] == whole
    lines = server.get(address, params={"format": "jsonl"}).text.splitlines()
    assert [json.loads(line)["run_id"] for line in lines] == [row["run_id"] for row in rows]
    page = server.get(address, params={"format": "html"}).text
    assert "<figcaption>Median latency" in page


def test_what_cannot_be_downloaded_is_not_found(server: Server) -> None:
    for path in ("run/latest/export?format=exe", "run/latest/export", "run/none/export?format=csv"):
        assert server.get(f"{EDISON}/{path}").status_code == 404
    assert server.get(f"{EDISON}/experiment/none/export?format=csv").status_code == 404


def test_a_private_project_is_downloaded_without_texts(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = Folder(tmp_path_factory.mktemp("private"))
    for name, text in MINIMAL.items():
        folder.write(name, text)
    folder.write("edison.yaml", MINIMAL["edison.yaml"] + "settings: {private: true}\n")
    folder.edison("run", "--yes", "-q")
    for server in started(folder.path, LINES[0], "--offline"):
        text = server.get(f"{EDISON}/run/latest/export", params={"format": "csv"}).text
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [(row["case_id"], row["text"]) for row in rows] == [("ada", ""), ("bo", "")]


# --- leaderboard, costs, datasets -----------------------------------------------------------------


def test_the_leaderboard_of_all_experiments_has_models_by_experiments(server: Server) -> None:
    page = text_of(server, "/leaderboard", experiment="*")
    assert "Leaderboard of all experiments" in page
    assert re.search(r"Model Mean score Mean pass rate support-reply 95% CI unreliable", page)
    for model in ("faulty", "large", "small"):
        assert f" {model} " in page
    picked = server.get(f"{EDISON}/leaderboard?experiment=support-reply&experiment=unreliable")
    assert "Models by experiments" in picked.text
    single = server.get(f"{EDISON}/leaderboard?experiment=unreliable")
    assert "Models by experiments" not in single.text


def test_costs_show_the_tokens_in_and_out(server: Server, stored: Stored) -> None:
    page = server.get(f"{EDISON}/costs").text
    assert re.search(r"<figcaption>Tokens (per day|by model)", page)
    total = stored.one("select sum(tokens_in) + sum(tokens_out) from rollup_spending")
    assert f"Tokens {total:,}" in text_of(server, "/costs")


def test_datasets_are_found_by_tag_and_cases_by_name(server: Server) -> None:
    assert "returns" in text_of(server, "/datasets", q="returns")
    assert "No dataset matches" in text_of(server, "/datasets", q="nothing like it")
    assert "return-how" in text_of(server, f"/dataset/{showcase.EXPERIMENT}", q="turn-how")
    assert "No case matches" in text_of(server, f"/dataset/{showcase.EXPERIMENT}", q="zzz")


def test_a_dataset_shows_its_description(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = Folder(tmp_path_factory.mktemp("described"))
    for name, text in MINIMAL.items():
        folder.write(name, text)
    folder.write(
        "datasets/names.about.yaml",
        "description: Names of <b>guests</b>.\ntags: [hotel]\nowner: front-desk\n",
    )
    for server in started(folder.path, LINES[0], "--offline"):
        page = server.get(f"{EDISON}/datasets?q=guests").text
        assert "Names of &lt;b&gt;guests&lt;/b&gt;." in page
        assert "owner: front-desk" in page
        for word in ("guests", "hotel", "front-desk", "names.jsonl"):
            found = server.get(f"{EDISON}/search?q={word}").text
            assert "Names of &lt;b&gt;guests&lt;/b&gt;." in found, word
        assert "Nothing found" in server.get(f"{EDISON}/search?q=back-desk").text


# --- log and audit --------------------------------------------------------------------------------


def test_the_log_of_a_run_is_told_in_sentences(server: Server, stored: Stored) -> None:
    page = text_of(server, f"/run/{stored.against}/log")
    page += text_of(server, f"/run/{stored.against}/log", page="2")
    assert "The run is complete." in page
    assert "Answers are being generated." in page
    assert re.search(r"Done with 192 cells \(192 ok\), for \$", page)


def test_the_audit_is_told_in_sentences(server: Server) -> None:
    # Earlier tests of the same server downloaded tables, which has rows of its own.
    page = "".join(text_of(server, "/audit", page=f"{number}") for number in range(1, 6))
    assert re.search(r"ada@example.com graded cell \w{12}: thumb up\.", page)
    assert "put support-reply/return-how in quarantine until" in page
