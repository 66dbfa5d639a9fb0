"""Forms change things for those who may, and for nobody else."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from datasette import Forbidden, Request
from datasette.app import Datasette

from edison_ci.access.site import Role
from edison_ci.store.database import open_database
from edison_ci.web.identity import current_actor, require
from tests.conftest import ROOT
from tests.web.conftest import IN_TURN, LINES, asked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.web.conftest import Server

BOARD = ROOT / "tests" / "web" / "note_board.py"
EDISON = "version: 1\nproject: notes\n"
MEMBERS = "members: [{{email: ada@example.com, role: {role}}}, {{email: b@x.org, role: owner}}]\n"


class Board:
    """A server with a form, and the audit behind it."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.server, self.client = folder, server, server.client
        self.before = 0

    def role(self, role: str) -> None:
        (self.folder / "edison.yaml").write_text(EDISON + MEMBERS.format(role=role))

    def token(self) -> str:
        return self.client.get("/-/form").text

    def send(self, text: str = "hello", **headers: str) -> Any:
        form = {"csrftoken": self.token(), "text": text}
        return self.client.post("/-/note/cell-1", data=form, headers=headers)

    def audit(self) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / ".edison" / "results.db")) as connection:
            return connection.execute(
                "select actor, known_by, action, entity, after from audit where seq > ?",
                (self.before,),
            ).fetchall()


@pytest.fixture(scope="module", params=IN_TURN)
def one_board(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Board]:
    """A server of each line, started by Ada."""
    tmp_path = tmp_path_factory.mktemp("board")
    (tmp_path / ".edison").mkdir()
    (tmp_path / "edison.yaml").write_text(EDISON)
    open_database(tmp_path / ".edison" / "results.db").close()
    for words in (["init", "-q"], ["config", "user.email", "ada@example.com"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    for server in asked(tmp_path, request.param, "-P", str(BOARD), str(tmp_path)):
        yield Board(tmp_path, server)


@pytest.fixture
def board(one_board: Board) -> Board:
    """The server as it was at first: Ada owns the project, and has no cookies."""
    (one_board.folder / "edison.yaml").write_text(EDISON)
    one_board.client.cookies.clear()
    one_board.before += len(one_board.audit())
    return one_board


def test_a_form_is_done_as_the_person_who_serves(board: Board) -> None:
    answer = board.send("hello")
    assert (answer.status_code, answer.headers["location"]) == (303, "/-/edison/audit")
    assert board.audit() == [("ada@example.com", "git", "note", "cell-1", '"hello"')]
    nothing = board.send("  ")
    assert nothing.status_code == 400
    assert "a note says nothing" in nothing.text
    assert "write something" in nothing.text
    assert len(board.audit()) == 1


def test_the_role_of_now_counts_and_a_refusal_is_audited(board: Board) -> None:
    board.role("viewer")
    answer = board.send()
    assert answer.status_code == 403
    assert "note needs a reviewer; ada@example.com is a viewer" in answer.text
    assert "ask b@x.org" in answer.text
    ((actor, known_by, action, entity, after),) = board.audit()
    assert (actor, known_by, action, entity) == (
        "ada@example.com", "git", "refused: note", "cell-1")  # fmt: skip
    assert "is a viewer" in json.loads(after)
    (board.folder / "edison.yaml").write_text("members: [")  # somebody is just editing it
    assert board.send().status_code == 403
    board.role("reviewer")
    assert board.send().status_code == 303


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 303),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
    ],
)
def test_forms_of_other_sites_are_refused(
    board: Board, headers: dict[str, str], status: int
) -> None:
    assert board.send(**headers).status_code == status
    assert len(board.audit()) == (status == 303)


def test_what_cannot_be_a_form_is_refused(board: Board) -> None:
    asked = board.client.get("/-/note/cell-1")
    assert (asked.status_code, asked.headers["allow"]) == (405, "POST")
    assert board.send("x" * 1_000_001).status_code == 413
    endless = board.client.post("/-/note/cell-1", content=iter([b"text=x"]))
    assert endless.status_code == 411
    odd = board.client.post("/-/note/cell-1", content=b"text=%ff" + b"&a=" * 500)
    assert odd.status_code in (400, 403)
    assert board.audit() == []


def test_cookies_alone_send_no_form(board: Board) -> None:
    board.token()
    board.client.cookies.set("other", "1")
    answer = board.client.post("/-/note/cell-1", data={"text": "hello"})
    if board.server.line == LINES[0]:  # the next line goes by where a browser comes from
        assert answer.status_code == 403
        assert board.audit() == []


async def test_datasette_alone_knows_nobody_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    open_database(path).close()
    datasette = Datasette([str(path)])
    request = Request.fake("/-/edison", "POST")
    assert await current_actor(datasette, request) is None
    with pytest.raises(Forbidden, match="read-only"):
        await require(datasette, request, Role.VIEWER, "interim")
