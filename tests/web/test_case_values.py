"""Inputs and expected answers as columns: of the grid of a run, and of the table of a dataset."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

import pytest

from tests.conftest import MINIMAL, Folder
from tests.showcase import EXPERIMENT, HOSTILE, Showcase
from tests.web.conftest import LINES, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.web.conftest import Server, Stored

pytestmark = pytest.mark.daily


def table_of(page: str, label: str) -> str:
    return page.partition(f'aria-label="{label}"')[2].partition("</table>")[0]


def columns_of(table: str) -> list[str]:
    head = table.partition("</thead>")[0]
    return [text_of(cell) for cell in re.findall(r"<th[^>]*>.*?</th>", head, re.S)]


def text_of(markup: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", markup)).split())


def cases_of(table: str) -> list[str]:
    return [unescape(name) for name in re.findall(r'<a class="name"[^>]*>(.*?)</a>', table, re.S)]


@pytest.mark.parametrize("server", LINES[:1], indirect=True)
def test_the_grid_has_what_tells_cases_apart_and_what_is_expected(
    server: Server, stored: Stored
) -> None:
    run = f"/-/edison/run/{stored.against}"
    page = server.get(run, params={"q": "return-how"}).text
    table = table_of(page, "Cases by models")
    assert columns_of(table)[:3] == ["Case", "message", "expected"]
    assert "how do i send this back" in text_of(table)
    assert "kettlecrag.example/returns" in text_of(table)
    assert "João" not in text_of(table.partition("<td>")[0])


@pytest.mark.parametrize("server", LINES[:1], indirect=True)
def test_the_columns_of_a_case_are_chosen_and_kept(server: Server, stored: Stored) -> None:
    run = f"/-/edison/run/{stored.against}"
    chosen = [("show", "-"), ("show", "customer_name"), ("show", "policy")]
    page = server.get(run, params=[*chosen, ("q", "return-how")]).text
    assert columns_of(table_of(page, "Cases by models"))[:3] == ["Case", "customer_name", "policy"]
    assert re.search(r'name="show" value="policy" checked', page)
    assert "show=-%2Ccustomer_name%2Cpolicy" in page, "links along the list keep the columns"
    none = server.get(run, params={"show": "-"}).text
    assert columns_of(table_of(none, "Cases by models"))[1].startswith("large")
    again = server.get(run, params={"show": "-,policy,nothing"}).text
    assert columns_of(table_of(again, "Cases by models"))[1] == "policy"


@pytest.mark.parametrize("server", LINES[:1], indirect=True)
def test_hostile_values_are_text(server: Server, stored: Stored) -> None:
    for address in (f"/-/edison/run/{stored.against}", f"/-/edison/dataset/{EXPERIMENT}"):
        shown = [("show", name) for name in ("customer_name", "message", "expected")]
        page = server.get(address, params=[("tag", "hostile"), *shown]).text
        assert "<img src=x" not in page
        assert "</pre></td></table><h1>" not in page
        assert "\u202e" not in page
        assert HOSTILE[0]["input"]["customer_name"][:30] in unescape(page)


@pytest.mark.parametrize("server", LINES[:1], indirect=True)
def test_the_table_of_a_dataset_is_searched_and_sliced(server: Server, stored: Stored) -> None:
    address = f"/-/edison/dataset/{EXPERIMENT}"
    page = server.get(address).text
    table = table_of(page, "Cases")
    assert columns_of(table) == ["Case", "message", "expected", "Kind", "Last answers"]
    assert len(cases_of(table)) == 20
    assert "1 to 20 of 24" in text_of(page)
    second = cases_of(table_of(server.get(address, params={"at": "2"}).text, "Cases"))
    assert len(second) == 4
    assert not {*second} & {*cases_of(table)}
    assert cases_of(table_of(server.get(address, params={"at": "99"}).text, "Cases")) == second
    found = table_of(server.get(address, params={"q": "SEND this Back"}).text, "Cases")
    assert cases_of(found) == ["return-how"], "the text of an input is searched"
    assert re.search(r'href="/-/edison/run/[^"]*/case\?case=return-how"', found)
    assert re.search(r"\d of 4 pass", text_of(found))
    hard = server.get(address, params={"kind": "adversarial", "difficulty": "hard"}).text
    assert cases_of(table_of(hard, "Cases")) == [
        "inject-refundbot", "inject-system-notice", "inject-second-policy",
    ]  # fmt: skip
    assert '<option value="adversarial" selected>' in hard
    nothing = server.get(address, params={"q": "nobody wrote this"}).text
    assert "No case matches" in text_of(nothing)
    assert re.search(rf'href="{address}\?kind=adversarial#list"', page), "slices lead to the table"


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A project that shows no personal data."""
    folder = Folder(tmp_path_factory.mktemp("hidden"))
    for name, text in MINIMAL.items():
        folder.write(name, text)
    folder.edit("edison.yaml", "version: 1\n",
                "version: 1\nsettings: {redact_pii_before_storage: true}\n")  # fmt: skip
    folder.edit("datasets/names.jsonl", '"name": "Ada"', '"name": "Ada, ada@example.org"')
    Showcase(folder.path).edison("run", "--yes")
    folder.edit("datasets/names.jsonl", '"name": "Bo"', '"name": "Boris"')
    yield from started(folder.path, LINES[0], "--offline")


def test_redacted_values_are_neither_shown_nor_found(hidden: Server) -> None:
    for address in ("/-/edison/run/latest", "/-/edison/dataset/hello"):
        page = hidden.get(address).text
        assert "Ada, [E-MAIL]" in page
        assert "ada@example.org" not in page
    found = hidden.get("/-/edison/dataset/hello", params={"q": "ada@"}).text
    assert "No case matches" in text_of(found)
    assert 'placeholder="name or tag"' in found


def test_a_case_that_changed_is_named_so_in_the_grid(hidden: Server) -> None:
    grid = text_of(table_of(hidden.get("/-/edison/run/latest").text, "Cases by models"))
    assert "(the case has changed since)" in grid
    assert "Boris" not in grid
    assert "Boris" in hidden.get("/-/edison/dataset/hello").text, "the dataset is as it is now"
