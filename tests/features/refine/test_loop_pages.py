"""The page of a loop of several prompts: the course of each, and why one was dropped."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

import pytest

from tests.conftest import Folder
from tests.features.refine.test_several_loops import Door, two_prompts
from tests.web.conftest import LINES, Stored, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.web.conftest import Server


@pytest.fixture(scope="module")
def museum(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = two_prompts(Folder(tmp_path_factory.mktemp("museum")))
    Door(folder).run("hello", "loud", iterations=3)
    folder.git("branch", "-D", "edison/loop/hello")
    waiting = Door(folder, auto=False)
    assert not waiting.looper("hello", "loud", iterations=3).run()
    return folder


@pytest.fixture(scope="module")
def server(museum: Folder) -> Iterator[Server]:
    yield from started(museum.path, LINES[0], "--offline")


def text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


@pytest.mark.nightly
def test_each_prompt_has_its_course(museum: Folder, server: Server) -> None:
    stored = Stored(museum.path)
    done = stored.one("select id from loop where point = 'done'")
    page = server.get(f"/-/edison/loop/{done}")
    assert page.status_code == 200
    text = text_of(page.text)
    assert "hello, loud loop" in text
    rows = re.findall(r"<tr><th scope=\"row\">(\d)(.*?)</th><td class=\"name\">(\w+)", page.text)
    assert [(number, name) for number, _, name in rows] == [
        ("1", "hello"), ("1", "loud"), ("2", "hello"), ("2", "loud"), ("3", "hello"),
    ]  # fmt: skip
    assert [name for _, marks, name in rows if "dropped" in marks] == ["loud"]
    (reason,) = stored.rows("select dropped from loop_iteration where dropped is not null")[0]
    assert f"{reason}." in text
    assert "First and best prompt: hello" in text
    assert "prompts/hello.md" in text and "prompts/loud.md" in text
    assert "hello, iteration 3, from " in text
    listed = text_of(server.get("/-/edison/loops").text)
    assert "3 of 3" in listed, "iterations, not rows"


def test_a_waiting_loop_names_every_open_suggestion(museum: Folder, server: Server) -> None:
    stored = Stored(museum.path)
    waits = stored.one("select id from loop where point = 'reviewing'")
    page = server.get(f"/-/edison/loop/{waits}").text
    pending = [
        one for (one,) in stored.rows("select pending from loop_iteration where loop = ?", waits)
    ]
    assert len(pending) == 2
    for one in pending:
        assert f'href="/-/edison/suggestion/{one}"' in page
        assert waits in server.get(f"/-/edison/suggestion/{one}").text
