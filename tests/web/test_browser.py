"""Every page in a real browser: nothing runs that is not ours, and everybody can use it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests import showcase
from tests.conftest import ROOT
from tests.timing import PATIENCE_S
from tests.web.conftest import LINES, in_browser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page

    from tests.web.conftest import Server, Stored

pytestmark = in_browser
one_line = pytest.mark.parametrize("server", LINES[:1], indirect=True)
"""What a browser does with the same markup and scripts, on screens that the test chooses."""
expect.set_options(timeout=1000 * PATIENCE_S)  # for all tests with a browser
AXE = ROOT / ".tools" / "node" / "node_modules" / "axe-core" / "axe.min.js"
AXE_RUN = """axe.run({
  runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'],
  resultTypes: ['violations'],
}).then((found) => found.violations.map((rule) => [
  rule.id, rule.impact, rule.nodes[0].html.slice(0, 200),
]))"""
HOSTILE = re.compile("hostile|script", re.IGNORECASE)
DESK = {"light": 1440, "dark": 390}
THEMES = {"0.65": "light", "1.0": "dark"}
"""Each page is looked at twice: as on a desk, and as on a phone at night."""
WIDTHS = (390, 768, 1024, 1440)
"""Of a phone, a tablet, a small and a large screen."""
SIDEWAYS = """async () => {
  // The page hears of its new size with the next frame.
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return [...document.querySelectorAll("html, body *")].filter((each) => {
    const style = getComputedStyle(each).overflowX;
    const scrolls = each.matches("html") || style === "auto" || style === "scroll";
    return scrolls && each.clientWidth > 0 && each.scrollWidth > each.clientWidth + 1;
  }).map((each) => each.getAttribute("aria-label") || each.className || each.localName);
}"""
"""What has to be scrolled sideways to be read: the page, or a box of it."""


class Watched:
    """A page of the browser, and everything that went wrong on it."""

    def __init__(self, server: Server, page: Page) -> None:
        self.wrong: list[str] = []
        self.server, self.page = server, page
        page.on("console", lambda said: self._note(said.type, said.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))
        page.on("dialog", lambda dialog: self._note("dialog", dialog.message))
        page.on("request", self._asked)

    def _note(self, kind: str, text: str) -> None:
        self.wrong.append(f"{kind}: {text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.server.address, "data:")):
            self.wrong.append(f"asked for {request.url}")


@pytest_asyncio.fixture(loop_scope="session")
async def watched(server: Server, browser: Browser) -> AsyncIterator[Watched]:
    """A browser on the pages of a server, as on a desk or on a phone at night."""
    theme = THEMES[server.line]
    async with await browser.new_context(
        base_url=server.address,
        color_scheme=theme,  # type: ignore[arg-type]  # light or dark
        viewport={"width": DESK[theme], "height": 900},
    ) as context:
        context.set_default_timeout(1000 * PATIENCE_S)
        yield Watched(server, await context.new_page())


@one_line
async def test_one_page_of_each_kind_is_quiet_inert_and_accessible(
    watched: Watched, stored: Stored
) -> None:
    pages = one_of_each_kind_first([*stored.forms(), *stored.pages()])
    assert await faults_of(watched, [(path, is_new) for path, is_new in pages if is_new]) == []


@pytest.mark.nightly
async def test_every_page_is_quiet_inert_and_accessible(watched: Watched, stored: Stored) -> None:
    pages = one_of_each_kind_first([*stored.forms(), *stored.pages()])
    assert await faults_of(watched, pages) == []


async def faults_of(watched: Watched, pages: list[tuple[str, bool]]) -> list[tuple[Any, ...]]:
    """Look at pages, of which some are the first of their kind; return what is wrong with them."""
    page = watched.page
    found: list[tuple[Any, ...]] = []
    first_line = watched.server.line == LINES[0]  # the other line's markup is the same
    for path, is_new in pages:
        query = path.partition("?")[2]
        if not (first_line or is_new) and query and not HOSTILE.search(query):
            continue
        await page.goto(path)
        assert "PWNED" not in await page.title(), path
        foreign = page.locator("main img, main iframe, main object, main script")
        assert await foreign.count() == 0, path
        assert watched.wrong == [], path
        if first_line:
            # Pages of a kind are built alike: each is looked at on a phone, where least fits.
            widths = WIDTHS if is_new else WIDTHS[:1]
            found += [(path, *each) for each in await sideways_of(page, widths)]
            if is_new:
                found += [(path, *each) for each in await barriers_of(page)]
    return found


def one_of_each_kind_first(paths: list[str]) -> list[tuple[str, bool]]:
    """Return the paths, and whether each is the first of its kind."""
    kinds: dict[str, str] = {}
    for path in paths:
        kinds.setdefault(re.sub(r"[^/]*\d[^/]*", "*", path.partition("?")[0]), path)
    firsts = [*kinds.values()]
    return [(path, True) for path in firsts] + [
        (each, False) for each in paths if each not in firsts
    ]


async def sideways_of(page: Page, widths: tuple[int, ...]) -> list[tuple[int, str]]:
    """Return what somebody has to scroll sideways to read, on any of these screens."""
    found = []
    size = page.viewport_size  # each change of it is costly: begin with the one that is there
    for width in widths[::-1] if size is not None and size["width"] == widths[-1] else widths:
        await page.set_viewport_size({"width": width, "height": 900})
        found += [(width, each) for each in await page.evaluate(SIDEWAYS)]
    return found


async def barriers_of(page: Page) -> list[tuple[str, str]]:
    """Return what keeps somebody from using a page, on a screen of its size."""
    return [
        (rule, html) for rule, impact, html in await axe(page) if impact in ("serious", "critical")
    ]


async def axe(page: Page) -> list[tuple[str, str, str]]:
    """Let axe look at the page; return the rule, the impact and the place of what it finds."""
    if await page.evaluate("typeof axe === 'undefined'"):
        await page.evaluate(AXE.read_text(encoding="utf-8"))
    found = await page.evaluate(AXE_RUN)
    return [(rule, impact, html) for rule, impact, html in found]


@one_line
async def test_a_table_that_does_not_fit_names_the_cells_of_each_row(
    watched: Watched, stored: Stored
) -> None:
    page = watched.page
    await page.goto("/-/edison")
    table = page.locator("table.data").first
    await page.set_viewport_size({"width": 1440, "height": 900})
    assert "stacked" not in (await table.get_attribute("class") or "")
    await page.set_viewport_size({"width": 390, "height": 900})
    await page.wait_for_selector("table.stacked")
    cell = table.locator("tbody tr").first.locator("td.num").first
    assert await cell.get_attribute("data-label") == "Score"
    assert await cell.get_attribute("role") == "cell"
    assert await cell.evaluate("(each) => getComputedStyle(each, '::before').content") == '"Score"'
    assert await table.get_by_role("columnheader", name="Score").count() == 1


@pytest.mark.nightly
@one_line
async def test_a_chart_fills_its_panel_and_its_texts_keep_their_size(
    watched: Watched, stored: Stored
) -> None:
    page = watched.page
    await page.goto(f"/-/edison/experiment/{showcase.EXPERIMENT}")
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 900})
        for chart in await page.locator("figure.chart").all():
            shown = [each for each in await chart.locator("svg").all() if await each.is_visible()]
            assert len(shown) == 1
            (drawn, room, scale) = await shown[0].evaluate(
                "(each) => [each.getBoundingClientRect().width, each.closest('figure').clientWidth,"
                " each.getScreenCTM().a]"
            )
            assert abs(drawn - room) < 2
            assert 0.7 < scale < 1.5


@pytest.mark.nightly
async def test_a_run_can_be_read_by_keyboard(watched: Watched, stored: Stored) -> None:
    page = watched.page
    await page.goto("/-/edison")
    await page.keyboard.press("j")
    assert await page.evaluate("document.activeElement.textContent") == showcase.EXPERIMENT
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/experiment/*")
    await page.goto(f"/-/edison/run/{stored.against}")
    await page.keyboard.press("m")
    await page.wait_for_url("**metric=tokens*")
    assert await page.locator("[aria-label=Metric] [aria-current]").inner_text() == "tokens"
    await page.keyboard.press("n")
    await page.wait_for_url("**page=2*")
    await page.keyboard.press("p")
    await page.wait_for_url("**page=1*")
    await page.keyboard.press("/")
    await page.keyboard.type("huge")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**q=huge*")
    await page.keyboard.press("u")
    await page.wait_for_url("**/experiment/*")
    await page.keyboard.press("g")
    await page.keyboard.press("h")
    await page.wait_for_url("**/-/edison")
    await page.keyboard.press("?")
    await page.wait_for_url("**/help")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to content"
    assert watched.wrong == []


@pytest.mark.nightly
async def test_ctrl_k_searches_everything_from_every_page(watched: Watched, stored: Stored) -> None:
    page = watched.page
    await page.goto("/-/edison/costs")
    await page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog", name="Search")
    await dialog.wait_for()
    await page.keyboard.type("return-how")
    found = dialog.get_by_role("link", name="return-how")
    await found.first.wait_for()
    assert await barriers_of(page) == []
    await page.keyboard.press("ArrowDown")
    assert await page.evaluate("document.activeElement.textContent") == "return-how"
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/case?case=return-how")
    await page.get_by_role("link", name="Search").click()
    await dialog.wait_for()
    await page.keyboard.press("Escape")
    await dialog.wait_for(state="hidden")
    assert watched.wrong == []


@one_line
async def test_the_search_is_a_page_where_scripts_are_off(server: Server, browser: Browser) -> None:
    async with await browser.new_context(
        base_url=server.address, java_script_enabled=False
    ) as context:
        context.set_default_timeout(1000 * PATIENCE_S)
        page = await context.new_page()
        await page.goto("/-/edison")
        await page.get_by_role("link", name="Search").click()
        await page.fill("input[type=search]", "return-how")
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="return-how").first.click()
        assert page.url.endswith("/case?case=return-how")


@one_line
async def test_filters_apply_at_once_and_addresses_stay_short(
    watched: Watched, stored: Stored
) -> None:
    page = watched.page
    await page.goto(f"/-/edison/run/{stored.against}")
    await page.select_option("#tag", "hostile")
    await page.wait_for_url("**tag=hostile*")
    assert page.url.endswith(f"/run/{stored.against}?tag=hostile")
    await page.check("#failed")
    await page.wait_for_url("**failed=1*")
    assert "show=" not in page.url
    await page.check("input[name=show][value=policy]")
    await page.wait_for_url("**show=policy*")
    assert "message" in await page.inner_text("table.answers >> nth=-1 >> thead")
    await page.uncheck("input[name=show][value=policy]")
    await page.wait_for_url(lambda address: "show=" not in address)
    assert watched.wrong == []
