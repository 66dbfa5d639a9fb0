"""A project in which people grade and decide, and a server on it that Ada started."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.conftest import MINIMAL, Folder
from tests.suggested import keep, suggestion_for

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from edison_ci.store.suggestions import Suggestion
    from tests.web.conftest import Server

ADA = "ada@example.com"
LABELS = "labels/tone.jsonl"
PROBE = "<script>document.title='PWNED'</script><img src=x onerror=\"document.title='PWNED'\">"
MEMBERS = "members: [{{email: {ada}, role: {role}}}, {{email: b@x.org, role: owner}}]\n"


def build(path: Path) -> Folder:
    """Make a small project in a repository, with a run of six cases."""
    folder = Folder(path)
    for name, text in MINIMAL.items():
        folder.write(name, text)
    rows = ({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"} for i in range(6))
    folder.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    calibration = f"calibration: {{labels: {LABELS}, min_n: 10}}\n"
    folder.write("rubrics/tone.yaml", folder.read("rubrics/tone.yaml") + calibration)
    folder.write(".gitignore", ".edison/\n")
    folder.git("init", "--quiet", "--initial-branch=main")
    folder.git("config", "user.email", ADA)
    folder.git("config", "user.name", "Ada")
    folder.git("add", "--all")
    folder.git("commit", "--quiet", "--message", "start")
    done = folder.edison("run", "-q")
    assert done.code == 0, done.all
    return folder


class Form:
    """A form of a page: where it is sent, and what is filled in already."""

    def __init__(self, page: str, action: str) -> None:
        forms = [found[0] for found in re.finditer(r"<form\b.*?</form>", page, re.DOTALL)]
        named = (f'action="{action}"', f'formaction="{action}"')
        text = next((form for form in forms if any(name in form for name in named)), "")
        assert text, f"no form is sent to {action}:\n{page}"
        self.action = action
        self.text = text
        hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', text)
        self.fields = {name: unescape(value) for name, value in hidden}


class ReviewSite:
    """The project behind a server, and the forms of its pages."""

    def __init__(self, folder: Folder, server: Server) -> None:
        self.folder, self.server, self.client = folder, server, server.client
        self.sent = self.graded = 0
        """The last row of the audit, and the last grade, before the test began."""

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder.path / ".edison/results.db")) as connection:
            return connection.execute(sql, values).fetchall()

    def audit(self) -> list[tuple[Any, ...]]:
        """Rows since the test began."""
        return self.ask("select actor, known_by, action, entity, after from audit where seq > ? "
                        "order by seq", self.sent)  # fmt: skip

    def grades(self, case: str, columns: str) -> list[tuple[Any, ...]]:
        """What was said of a case since the test began."""
        return self.ask(f"select {columns} from manual_grade where id > ? and case_id = ? "
                        "order by id", self.graded, case)  # fmt: skip

    def begin(self) -> None:
        """Forget what other tests did: Ada owns the project, and has no cookies."""
        self.role(None)
        self.client.cookies.clear()
        self.sent = self.ask("select coalesce(max(seq), 0) from audit")[0][0]
        self.graded = self.ask("select coalesce(max(id), 0) from manual_grade")[0][0]

    @property
    def run(self) -> str:
        return str(self.ask("select id from run")[0][0])

    def cell(self, case: str) -> str:
        return str(self.ask("select id from cell where case_id = ?", case)[0][0])[:12]

    def suggest(self, added: str, **fields: Any) -> Suggestion:
        """Suggest to add a line to the prompt as it is now."""
        return keep(self.folder, suggestion_for(self.folder, added, **fields))

    def role(self, role: str | None) -> None:
        members = MEMBERS.format(ada=ADA, role=role) if role else ""
        self.folder.write("edison.yaml", MINIMAL["edison.yaml"] + members)

    def get(self, path: str) -> httpx.Response:
        return self.client.get(f"/-/edison{path}")

    def form(self, path: str, action: str) -> Form:
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return Form(answer.text, f"/-/edison{action}")

    def send(self, path: str, action: str, **fields: str) -> httpx.Response:
        """Fill in a form of a page, and send it."""
        form = self.form(path, action)
        return self.client.post(form.action, data={**form.fields, **fields})

    def grade(self, case: str, **fields: str) -> httpx.Response:
        cell = self.cell(case)
        return self.send(f"/cell/{cell}", f"/cell/{cell}/grade", **fields)

    def decide(self, one: Suggestion, what: str, **fields: str) -> httpx.Response:
        page = f"/suggestion/{one.id}"
        return self.send(page + ("/edit" if what == "edited" else ""), f"{page}/{what}", **fields)


def place(answer: httpx.Response) -> str:
    """Return where a form that was taken leads."""
    assert answer.status_code == 303, answer.text
    return urlsplit(answer.headers["location"]).path
