"""Every list of a large project comes page by page: few rows on each, and all rows in all."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from html import unescape
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from edison_ci.web.page_context import PER_PAGE, PREFIX
from edison_ci.web.serving import Serving, application
from tests import large_project
from tests.conftest import MINIMAL, Folder
from tests.large_project import LOOP

if TYPE_CHECKING:
    from pathlib import Path

EXPERIMENTS, OTHERS = 300, 45


class ListPage(NamedTuple):
    """A list on a page: the label of its table, and what names its rows."""

    path: str
    label: str
    """Of the table; `articles` and `sections` are lists of other elements."""
    row: str
    """What a row is named by, in its HTML."""
    turns: str
    """Label of the links to its other pages."""
    rows: int
    """In all."""
    most: int = PER_PAGE
    times: int = 1
    """How often each name comes."""


_FIRST = r"^<t[hd][^>]*>(?:<a[^>]*>)?(?:<span[^>]*>)?([^<]+)"
_RUN = r'href="/-/edison/run/([^"/?]+)"'
LISTS = (
    ListPage("", "Experiments", _FIRST, "experiments", EXPERIMENTS),
    ListPage("/experiment/hello", "Runs", _RUN, "runs", OTHERS + 1),
    ListPage("/experiment/hello", "Models", _FIRST, "models", OTHERS),
    ListPage("/run/wide/criteria", "Components of the grade", r'class="name">(model-\d+)', "rows",
             2 * OTHERS, times=2),
    ListPage("/run/wide/slices", "Slices", r"^(.+?)</th>", "slices", 5 * OTHERS),
    ListPage("/leaderboard?experiment=hello", "Leaderboard", rf"(.+?){_RUN}", "rows", OTHERS),
    ListPage("/costs?by=experiment&days=365", "Costs by experiment", _FIRST, "rows", OTHERS + 1),
    ListPage("/costs", "Budgets", _FIRST, "budgets", OTHERS + 1),
    ListPage("/prompts", "Prompts", _FIRST, "prompts", OTHERS + 1),
    ListPage("/prompt/hello", "Versions", rf'(class="name">.+?{_RUN}|not measured)', "rows",
             2 * OTHERS + 1),
    ListPage("/suggestions", "Suggestions", r"suggestion/(\w+)", "suggestions", OTHERS),
    ListPage("/loops", "Loops", r"/loop/([\w-]+)", "loops", OTHERS),
    ListPage(f"/loop/{LOOP}", "Iterations", _FIRST, "iterations", OTHERS),
    ListPage("/datasets", "Datasets", _FIRST, "datasets", EXPERIMENTS),
    ListPage("/models", "Models", _FIRST, "models", OTHERS + 2),
    ListPage("/alerts", "articles", r'id="(alert-\d+)"', "open alerts", OTHERS),
    ListPage("/alerts", "Closed alerts", r"/experiment/(\w+)", "alerts", OTHERS),
    ListPage("/schedules", "sections", r'id="([\w-]+)"', "schedules", OTHERS, 5),
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The pages of a project with many of everything."""
    folder = Folder(tmp_path_factory.mktemp("large"))
    for name, text in MINIMAL.items():
        folder.write(name, text)
    path = large_project.build(folder, experiments=EXPERIMENTS, others=OTHERS)
    return application(serving_of(path, folder.path))


def serving_of(results: Path, root: Path) -> Serving:
    return Serving(results, root, "Large", "127.0.0.1", 0, synchronous=True)


def rows_of(html: str, of: ListPage) -> list[str]:
    """Return the rows of a list on a page, by their names."""
    if of.label in ("articles", "sections"):
        kind = of.label[:-1]
        found = [row for row in html.split(f"<{kind}")[1:] if re.search(of.row, row)]
    else:
        table = html.partition(f'aria-label="{of.label}"')[2].partition("</tbody>")[0]
        found = table.partition("<tbody>")[2].split("<tr")[1:]
        found = [row.partition(">")[2].strip() for row in found]
    names = [re.search(of.row, row, re.DOTALL) for row in found]
    assert all(names), (of, found)
    return ["".join(map(str, each.groups())) for each in names if each]


def next_page(html: str, of: ListPage) -> str | None:
    """Return the address behind `Next` of a list; None on its last page."""
    links = re.search(rf'<nav[^>]*aria-label="Pages of {of.turns}".*?</nav>', html, re.DOTALL)
    assert links, f"{of.path} has no links to other pages of {of.turns}"
    found = re.search(r'<a href="([^"]+)" rel="next"', links[0])
    return None if found is None else unescape(found[1])


async def walk(site: Any, of: ListPage) -> list[list[str]]:
    """Return the rows of every page of a list, by following its links."""
    await site.invoke_startup()
    pages: list[list[str]] = []
    address: str | None = PREFIX + of.path
    while address is not None:
        response = await site.client.get(address.partition("#")[0])
        assert response.status_code == 200
        pages.append(rows_of(response.text, of))
        address = next_page(response.text, of)
    return pages


@pytest.mark.nightly
@pytest.mark.parametrize("of", LISTS, ids=lambda of: f"{of.path or 'home'} {of.turns}")
def test_a_list_of_many_rows_has_pages(site: Any, of: ListPage) -> None:
    pages = asyncio.run(walk(site, of))
    assert max(map(len, pages)) <= of.most
    names = [name for page in pages for name in page]
    assert len(names) == of.rows
    assert set(Counter(names).values()) == {of.times}
    assert len(pages) == -(-of.rows // of.most)
