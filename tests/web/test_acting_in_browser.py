"""What people do on pages, in a real browser: at four widths, light and dark, and by axe."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.timing import PATIENCE_S
from tests.web.conftest import LINES, in_browser, review_desk
from tests.web.test_browser import Watched, barriers_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from playwright.async_api import Browser

    from tests.web.review_site import ReviewSite

pytestmark = in_browser
LOOKS = (("light", 1440, 1024), ("dark", 390, 768))
"""A theme, the width at which somebody acts, and one at which nothing may be too wide either."""

WIDE = """async () => {
  // The page hears of its new size with the next frame.
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return document.documentElement.scrollWidth > window.innerWidth;
}"""


@pytest.fixture(scope="module")
def one_desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReviewSite]:
    """One line of Datasette: what a browser does with the pages is the same with each."""
    yield from review_desk(tmp_path_factory, LINES[0])


@pytest_asyncio.fixture(loop_scope="session")
async def looks(desk: ReviewSite, browser: Browser) -> AsyncIterator[list[Watched]]:
    """A page of the browser for each theme."""
    async with AsyncExitStack() as stack:
        found = []
        for theme, width, _ in LOOKS:
            context = await browser.new_context(
                base_url=desk.server.address,
                color_scheme=theme,  # type: ignore[arg-type]  # light or dark
                viewport={"width": width, "height": 900},
            )
            await stack.enter_async_context(context)
            context.set_default_timeout(1000 * PATIENCE_S)
            found.append(Watched(desk.server, await context.new_page()))
        yield found


async def check(look: Watched) -> None:
    """Find nothing that is too wide, serious for axe, or told by the browser."""
    page = look.page
    assert page.viewport_size is not None
    ((width, other),) = (pair for _, *pair in LOOKS if pair[0] == page.viewport_size["width"])
    for each in (other, width):
        await page.set_viewport_size({"width": each, "height": 900})
        wide = await page.evaluate(WIDE)
        assert not wide, f"{page.url} is wider than a window of {each}"
    assert await barriers_of(page) == []
    assert look.wrong == []


@pytest.mark.nightly
async def test_a_prompt_is_edited_tried_and_saved(desk: ReviewSite, looks: list[Watched]) -> None:
    before = desk.folder.git("rev-parse", "main")
    for number, look in enumerate(looks):
        page = look.page
        await page.goto("/-/edison/prompt/hello")
        await page.get_by_role("link", name="Edit and try").click()
        text = page.locator("#text")
        await text.press("Control+End")
        await text.type(f"Answer {number} as json, {{{{ name }}}}.")
        whole = await text.input_value()
        count = page.locator("[data-told=characters]")
        await expect(count).to_have_text(f"{len(whole):,}")
        await expect(page.locator("[data-told=expects]")).to_have_text("json")
        marked = await page.locator(".code-marks mark").all_text_contents()
        assert marked == ["{{ name }}", "json", "{{ name }}"]
        await expect(page.locator("[data-told=cost]")).to_contain_text("3 answers, ")
        await page.get_by_role("button", name="Try").click()
        await page.wait_for_url("**#grid")
        await expect(page.locator(".tried")).to_have_count(3)
        await expect(page.locator("[data-try-head]")).to_contain_text("3 of 3 answers")
        assert await text.input_value() == whole
        await check(look)
        await page.get_by_role("button", name="Save").click()
        await page.wait_for_url("**/save?*")
        assert f"Answer {number} as json" in " ".join(
            await page.locator(".diff .added").all_inner_texts()
        )
        await check(look)
    await page.get_by_label("Note").fill("Try another form of answers.")
    await page.get_by_role("button", name="Open pull request").click()
    told = page.locator(".notice").first
    await expect(told).to_contain_text("edison/edit/hello-")
    assert desk.folder.git("rev-parse", "main") == before
    branch = desk.folder.git("branch", "--list", "--format=%(refname:short)", "edison/edit/*")
    desk.folder.git("branch", "-D", branch)


@pytest.mark.nightly
async def test_text_is_not_lost_and_a_wrong_one_is_told(
    desk: ReviewSite, looks: list[Watched]
) -> None:
    page = looks[0].page
    await page.goto("/-/edison/prompt/hello/edit")
    await page.locator("#text").press("Control+End")
    await page.locator("#text").type("{{ nope( }}")
    problems = page.locator("[data-told=problems] li")
    await expect(problems).to_have_count(1)
    await expect(problems).to_contain_text("line 6")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#problem")).to_contain_text("not a valid prompt")
    assert (await page.locator("#text").input_value()).endswith("{{ nope( }}")


@pytest.mark.nightly
async def test_answers_are_graded_unfolded_and_requested_again(
    desk: ReviewSite, looks: list[Watched]
) -> None:
    cell = desk.cell("c5")
    for number, look in enumerate(looks):
        page, word = look.page, ("up", "down")[number % 2]
        await page.goto(f"/-/edison/run/{desk.run}?q=c5")
        unfold = page.locator("a[data-unfold]")
        await unfold.click()
        await expect(page.locator("td [data-reply]")).to_contain_text("reply of judge")
        await unfold.click()
        await expect(page.locator("td [data-reply]")).to_be_hidden()
        await unfold.click()
        await check(look)
        await page.locator(f".thumb-{word}").click()
        await page.wait_for_url(f"**#b-{cell}")
        await expect(page.locator(f".thumb-{word}")).to_have_attribute("aria-pressed", "true")
        await page.goto(f"/-/edison/cell/{cell}")
        await page.get_by_role("button", name="Re-run").click()
        await page.wait_for_url("**#again")
        await expect(page.locator("#again .tried")).to_have_count(1)
        await check(look)
        await page.goto(f"/-/edison/cell/{cell}/counterexample")
        await check(look)
    assert [score for (score,) in desk.grades("c5", "score")] == [1, 0]
