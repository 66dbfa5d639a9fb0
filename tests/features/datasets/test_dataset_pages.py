"""The page of a dataset: cases that tell models apart, sentences about questions, writers."""

from __future__ import annotations

import re
import time
from html import unescape
from typing import TYPE_CHECKING

import pytest

from tests import item_bank
from tests.conftest import MINIMAL, Folder
from tests.showcase import Showcase
from tests.web.conftest import LINES, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.web.conftest import Server

SENTENCE = "It is <b>about</b> one person"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = Folder(tmp_path_factory.mktemp("judged"))
    for name, text in MINIMAL.items():
        folder.write(name, text)
    project = Showcase(folder.path)
    project.edison("run", "--yes")
    project.edison("dataset", "judge")
    project.edison("dataset", "judge", "--ask", SENTENCE)
    yield from started(folder.path, LINES[0], "--offline")


def page_of(server: Server, **args: str) -> str:
    response = server.get("/-/edison/dataset/hello", params=args)
    assert response.status_code == 200, response.text
    return response.text


def text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


@pytest.mark.nightly
def test_a_sentence_is_a_row_and_a_column_and_never_markup(server: Server) -> None:
    page = page_of(server)
    assert "<b>about</b>" not in page
    text = text_of(page)
    assert f"overall {SENTENCE}. " in text, "a column of the questions, after the criteria"
    assert re.search(re.escape(f"{SENTENCE}. not true of ") + r"\d of 2 questions", text)


# --- which cases tell models apart ----------------------------------------------------------------


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = Folder(tmp_path_factory.mktemp("bank"))
    item_bank.build(folder)
    project = Showcase(folder.path)
    project.edison("run", "--yes", "--repeats", "2")
    project.edison("dataset", "judge", "--yes")
    yield from started(folder.path, LINES[0], "--offline")


def first_cases(page: str) -> list[str]:
    table = page.partition('aria-label="Cases by how far they tell models apart"')[2]
    return re.findall(r">([a-z]+-\d+)</a>", table.partition("</table>")[0])


@pytest.mark.nightly
def test_cases_are_counted_by_what_they_tell(bank: Server) -> None:
    page = page_of(bank)
    text = text_of(page)
    assert "over 20 answers of 10 prompt versions with models" in text
    assert "Tell models apart 15 of 26 cases" in text
    assert "Reversed 1 models that do well elsewhere" in text
    assert "Dead weight 5 no difference" in text
    assert re.search(r"good-13 0.89 0.63 to 0.97 .*40.0 20 p = 0.00\d+ tells apart", text)
    assert page.count("<svg") >= 20, "each row has its interval as a chart"


def test_cases_are_sorted_and_turned_page_by_page(bank: Server) -> None:
    assert first_cases(page_of(bank))[0].startswith("good-")
    worst = first_cases(page_of(bank, order="worst"))
    assert worst[:6] == [*(f"easy-{i}" for i in range(5)), "wrong-0"]
    assert first_cases(page_of(bank, order="case"))[:2] == ["coin-0", "coin-1"]
    assert first_cases(page_of(bank, order="easy"))[:2] == ["easy-0", "easy-1"]
    page = page_of(bank, order="case")
    assert "order=case" in page.partition("Which cases")[2] and "#apart" in page
    second = first_cases(page_of(bank, order="case", cases="2"))
    assert len(second) == 6 and second[-1] == "wrong-0"


def test_few_models_are_said_to_be_too_few(server: Server) -> None:
    text = text_of(page_of(server))
    assert "Too few answers They cover 1 prompt version with a model" in text


def test_the_writers_of_the_cases_are_compared(bank: Server) -> None:
    text = text_of(page_of(bank)).partition("Writers of cases")[2]
    assert "Quality is what judge said of the questions" in text
    careful = re.search(
        "(\\S+) careful 15 [\\d.]+ [\\d.]+ to [\\d.]+ 100% 80 to 100 0 0 \N{EN DASH} ", text
    )
    assert careful is not None, text[:600]
    assert re.search(r"hasty 11 [\d.]+ [\d.]+ to [\d.]+ 0% 0 to 26 0 0 \N{EN DASH} ", text)
    assert re.search(r"(careful and hasty|hasty and careful) : \+[\d.]+ points", text)
    assert "after correction: a tie" in text


def test_a_dataset_without_generated_cases_has_no_writers(server: Server) -> None:
    assert "Writers of cases" not in page_of(server)


# --- the history of a case ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A case whose text was changed twice, the second time without a commit."""
    folder = Folder(tmp_path_factory.mktemp("changed"))
    for name, text in MINIMAL.items():
        folder.write(name, text)
    folder.git("init", "--quiet", "--initial-branch=main")
    project, first = Showcase(folder.path), MINIMAL["datasets/names.jsonl"]
    for subject, text in (("start", first), ("<b>marry</b>", first.replace("Ada", "Ada L."))):
        folder.write("datasets/names.jsonl", text)
        folder.git("add", "--all")
        author = "--author=Eve & Co <eve@example.org>"
        folder.git("commit", "--quiet", author, "--message", subject)
        project.edison("run", "--yes")
    folder.write("datasets/names.jsonl", first.replace("Ada", "<script>alert(1)</script> L."))
    yield from started(folder.path, LINES[0], "--offline")


def history_of(server: Server, case: str) -> str:
    for _ in range(600):
        response = server.get("/-/edison/dataset/hello/history", params={"case": case})
        if "The history is searched" not in response.text:
            break
        time.sleep(0.1)
    return response.text


@pytest.mark.nightly
def test_a_case_shows_its_texts_commits_and_results(changed: Server) -> None:
    page = history_of(changed, "ada")
    assert "<script>alert" not in page
    assert "<b>marry</b>" not in page
    text = text_of(page)
    assert "3 texts in datasets/names.jsonl , from 2 commits of the file" in text
    newest, second, first = text.split("content hash")[1:]
    assert "Not committed now" in text
    assert "results none" in newest
    assert "<script>alert(1)</script>" in newest
    assert "<b>marry</b> simulated author Eve & Co <eve@example.org> date 20" in newest
    assert re.search(r"score \d+\.\d in 1 answer of small passed [01] of 1 runs", second)
    assert "<ins>L.</ins>" in page, "what changed"
    assert re.search(r"score \d+\.\d in 1 answer of small", first)
    assert text.count("simulated") >= 2


def test_a_case_that_never_was_is_not_found(changed: Server) -> None:
    assert "hello has no case 'nobody'" in text_of(history_of(changed, "nobody"))
    response = changed.get("/-/edison/dataset/hello/history")
    assert response.status_code == 404


def test_the_page_of_a_case_leads_to_its_history(changed: Server) -> None:
    page = history_of(changed, "ada")
    address = re.search(r'href="([^"]*/case\?case=ada)"', page)
    assert address is not None
    case = changed.get(unescape(address[1])).text
    assert "/dataset/hello/history?case=ada" in case
    assert "Add counterexample" in case
    cell = re.search(r'href="(/-/edison/cell/[0-9a-f]{12})/counterexample"', case)
    assert cell is not None
    assert "/dataset/hello/history?case=ada" in changed.get(cell[1]).text
    form = changed.get(f"{cell[1]}/counterexample").text
    assert 'name="input.name"' in form


# --- coverage -------------------------------------------------------------------------------------


def test_coverage_names_what_is_missing_and_draws_a_map(bank: Server) -> None:
    page = page_of(bank)
    section = page.partition('id="coverage"')[2].partition("</section>")[0]
    text = text_of(section)
    assert "A value with at least 3 cases counts as covered." in text
    assert re.search(r"Lengths \d of 4 \d+%", text)
    assert "Ambiguity 1 of 2 50% ambiguous 0" in text
    assert "edison dataset fill" in text
