"""The page of a run that goes on, in a real browser, with a server that stops and comes back."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests import forked
from tests.conftest import ROOT
from tests.timing import PATIENCE_S, poll
from tests.web.conftest import LINES, Stored, environment, in_browser, started
from tests.web.test_browser import axe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.async_api import Browser

MODELS = """\
version: 1
small: {provider: sim, model: small}
slow: {provider: sim, model: small, options: {latency_ms: 300}, price: {in: 0.4, out: 1.6},
  limits: {concurrency: 1}}
slower: {provider: sim, model: large, options: {latency_ms: 600}, price: {in: 2.5, out: 10},
  limits: {concurrency: 1}}
judge: {provider: sim, model: judge, price: {in: 0.1, out: 0.4}}
refiner: {provider: sim, model: refiner}
"""
serving = contextmanager(started)


@pytest.fixture
def slow_project(tmp_path: Path) -> Path:
    """A project whose run takes minutes."""
    path = tmp_path / "slow"
    shutil.copytree(ROOT / "examples" / "customer-support", path)
    (path / "models.yaml").write_text(MODELS, encoding="utf-8")
    experiment = path / "experiments" / "support-reply.yaml"
    text = experiment.read_text(encoding="utf-8")
    for old, new in (
        ("models: [small] ", "models: [slow, slower] "),
        ("repeats: 1 ", "repeats: 20 "),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    experiment.write_text(text, encoding="utf-8")
    return path


@contextmanager
def running(project: Path) -> Iterator[str]:
    """Yield the id of a run that goes on, and interrupt it in the end."""
    command = [sys.executable, "-P", "-m", "edison_ci", "run", "--yes", "--budget", "5"]
    process = forked.Popen(
        command, cwd=project, env=environment(LINES[0]), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    database, found = project / ".edison" / "results.db", None
    end = time.monotonic() + PATIENCE_S
    while found is None and time.monotonic() < end:
        assert process.poll() is None, "the run has started"
        time.sleep(0.05)
        if database.exists():
            with closing(sqlite3.connect(database)) as connection:
                known = connection.execute(
                    "select name from sqlite_master where name = 'run'"
                ).fetchone()
                found = (
                    known
                    and connection.execute(
                        "select id from run where status = 'EXECUTING'"
                    ).fetchone()
                )
    assert found is not None
    try:
        yield str(found[0])
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGINT)
        process.wait(timeout=PATIENCE_S)


def pause(project: Path, run: str) -> None:
    command = [sys.executable, "-P", "-m", "edison_ci", "runs", "pause", run]
    forked.run(
        command, cwd=project, env=environment(LINES[0]), check=True, capture_output=True,
        timeout=PATIENCE_S,
    )  # fmt: skip


@pytest.mark.nightly
@in_browser
async def test_a_run_is_followed_also_after_the_connection_was_lost(
    slow_project: Path, browser: Browser, port: int
) -> None:
    stored = Stored(slow_project)
    async with await browser.new_context(viewport={"width": 390, "height": 900}) as context:
        context.set_default_timeout(1000 * PATIENCE_S)
        page = await context.new_page()
        with running(slow_project) as run:
            with serving(slow_project, LINES[0], "--port", str(port)) as server:
                await page.goto(f"{server.address}/-/edison/run/{run}")
                # Numbers change without a reload.
                await page.evaluate("window.same = true")
                await expect(page.locator("[data-live-newest] a")).to_have_count(5)
                bars = page.locator("[data-live-bars] li")
                names = await bars.locator(".name").all_inner_texts()
                assert names[:2] == ["slow", "slower"]
                assert "judge (judge)" in names
                assert names[-1] == "cost"
                assert "of the limit of $5.00" in await bars.last.inner_text()
                assert " of $5.00" in await page.locator("dd[data-live=cost]").inner_text()
                assert " in, " in await page.locator("dd[data-live=tokens]").inner_text()
                phase = page.locator("[data-live-phases] [aria-current]")
                assert (await phase.inner_text()).startswith("executing")
                left = page.locator("[data-live=left]").first
                await expect(left).to_have_text(re.compile("^about .* left$"))
                assert await page.locator("[data-connection]").is_hidden()
                assert [rule for rule, impact, _ in await axe(page) if impact != "minor"] == []
                wide = "document.documentElement.scrollWidth > window.innerWidth"
                assert not await page.evaluate(wide)
            # The server is gone.
            connection = page.locator("[data-connection]")
            await expect(connection).to_have_text("reconnecting")
            await expect(connection).to_be_visible()
            before = stored.one("select max(seq) from event where run_id = ?", run)
            done = await page.locator("[data-live=done]").first.inner_text()
            with serving(slow_project, LINES[0], "--port", str(port)):
                await expect(connection).to_be_hidden()
                await expect(page.locator("[data-live=done]").first).not_to_have_text(done)
                assert await page.evaluate("window.same"), "the page was not loaded again"
                newest = partial(stored.one, "select max(seq) from event where run_id = ?", run)
                await asyncio.to_thread(poll, "an event", lambda: newest() > before)
                await asyncio.to_thread(pause, slow_project, run)
                # When it rests, the page is shown anew.
                await expect(page.locator("main")).to_contain_text("Continue with edison resume")
                await expect(page.locator("[data-follow]")).to_have_count(0)
