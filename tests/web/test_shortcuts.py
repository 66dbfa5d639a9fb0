"""Grading and deciding in a real browser, without a mouse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from edison_ci.records import SuggestionStatus
from tests.suggested import PATH, stored
from tests.timing import PATIENCE_S
from tests.web.conftest import LINES, in_browser, review_desk
from tests.web.review_site import PROBE, ReviewSite
from tests.web.test_browser import DESK, THEMES, Watched, axe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from playwright.async_api import Browser

pytestmark = in_browser


@pytest.fixture(scope="module")
def one_desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReviewSite]:
    """One line of Datasette: what a browser does with the pages is the same with each."""
    yield from review_desk(tmp_path_factory, LINES[0])


@pytest_asyncio.fixture(loop_scope="session")
async def watched(desk: ReviewSite, browser: Browser) -> AsyncIterator[Watched]:
    """A browser on the pages, as on a desk or on a narrow screen at night."""
    theme = THEMES[desk.server.line]
    async with await browser.new_context(
        base_url=desk.server.address,
        color_scheme=theme,  # type: ignore[arg-type]  # light or dark
        viewport={"width": DESK[theme], "height": 900},
    ) as context:
        context.set_default_timeout(1000 * PATIENCE_S)
        yield Watched(desk.server, await context.new_page())


async def accessible(watched: Watched) -> None:
    """Let axe look at the page; nothing may be wrong with it, nor wider than the window."""
    page = watched.page
    assert await axe(page) == []
    assert not await page.evaluate("document.documentElement.scrollWidth > window.innerWidth")


@pytest.mark.nightly
async def test_answers_are_graded_by_keys_one_after_the_other(
    watched: Watched, desk: ReviewSite
) -> None:
    page = watched.page
    await page.goto(f"/-/edison/run/{desk.run}/grade")
    await accessible(watched)
    await page.keyboard.press("c")
    await page.keyboard.type(f"{PROBE} 5")  # digits in a field are text
    await page.keyboard.press("Escape")
    await page.keyboard.press("4")
    await page.wait_for_url("**/grade?done=*")
    assert await page.locator("[role=status]").inner_text() != ""
    await page.keyboard.press("f")
    await page.wait_for_function("document.querySelector('[role=status]').textContent"
                                 ".includes('flagged')")  # fmt: skip
    await page.keyboard.press("s")
    await page.wait_for_url("**/grade?after=*")
    await page.keyboard.press("2")
    await page.wait_for_url("**/grade?done=*")
    await page.keyboard.press("b")
    await page.wait_for_url("**/grade?cell=*")
    assert await page.locator('button[aria-pressed="true"]').inner_text() == "2"
    await page.keyboard.press("5")
    await page.wait_for_url("**/grade?done=*")
    said = desk.ask("select score, flagged, note from manual_grade where id > ? order by id",
                    desk.graded)  # fmt: skip
    assert said == [(0.75, 0, f"{PROBE} 5"), (None, 1, ""), (0.25, 0, ""), (1.0, 0, "")]
    await page.goto(f"/-/edison/cell/{desk.cell('c0')}")
    await accessible(watched)
    await page.keyboard.press("3")  # here it leads to the button, and Enter presses it
    await page.keyboard.press("Enter")
    await page.wait_for_url("**#people")
    assert desk.grades("c0", "score")[-1] == (0.5,)
    assert watched.wrong == []


@pytest.mark.nightly
async def test_a_suggestion_is_edited_approved_and_another_rejected_by_keys(
    watched: Watched, desk: ReviewSite
) -> None:
    page, one = watched.page, desk.suggest("Be warm, and use the name once.\n")
    await page.goto(f"/-/edison/suggestion/{one.id}")
    await accessible(watched)
    await page.keyboard.press("e")
    await page.wait_for_url("**/edit")
    await accessible(watched)
    await page.keyboard.press("e")
    await page.keyboard.press("Control+End")
    await page.keyboard.type("{{ nobody }}")
    await page.get_by_role("button", name="Save as new suggestion").press("Enter")
    await page.wait_for_url("**/edited")
    assert "breaks guardrails" in await page.locator("[role=alert]").inner_text()
    await accessible(watched)
    assert "{{ nobody }}" in await page.locator("#text").input_value()
    # Chromium says of itself that the answer was a 422; nothing else is to be said.
    assert [told for told in watched.wrong if "422" not in told] == []
    watched.wrong.clear()
    await page.goto(f"/-/edison/suggestion/{one.id}")
    await page.keyboard.press(".")
    assert "Approve" in await page.evaluate("document.activeElement.textContent")
    assert stored(desk.folder, one).status is SuggestionStatus.PROPOSED
    await page.keyboard.press("Enter")
    await page.wait_for_load_state()
    await page.get_by_text("approved", exact=True).first.wait_for()
    branch = stored(desk.folder, one).branch
    assert "Be warm" in desk.folder.git("show", f"{branch}:{PATH}")
    other = desk.suggest("Shout.\n")
    await page.goto(f"/-/edison/suggestion/{other.id}")
    await page.keyboard.press(",")
    await page.keyboard.type(PROBE)
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await page.get_by_text("rejected", exact=True).first.wait_for()
    assert stored(desk.folder, other).reason == PROBE
    assert "PWNED" not in await page.title()
    await page.keyboard.press("?")
    await page.wait_for_url("**/help")
    await accessible(watched)
    for words in ("Approve", "Reject", "Edit", "Grade, and go to the next answer"):
        assert await page.get_by_text(words).count()
    assert watched.wrong == []
