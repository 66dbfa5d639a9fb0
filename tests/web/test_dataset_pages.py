"""The page of a dataset: sentences to which its questions were held."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

import pytest

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


def test_a_sentence_is_a_row_and_a_column_and_never_markup(server: Server) -> None:
    page = page_of(server)
    assert "<b>about</b>" not in page
    text = text_of(page)
    assert f"overall {SENTENCE}. " in text, "a column of the questions, after the criteria"
    assert re.search(re.escape(f"{SENTENCE}. not true of ") + r"\d of 2 questions", text)
