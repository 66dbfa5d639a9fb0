"""A private project: no text of a case or an answer is in anything that leaves the machine."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from edison_ci.config.load import load_project
from edison_ci.report.pdf import VARIABLE
from edison_ci.report.reporters import REPORTERS
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run
from edison_ci.telemetry import export
from edison_ci.web.exports import FORMATS, run_export
from tests.telemetry.collector import collecting
from tests.web.conftest import LINES, started

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

MARKER = "Quillfeather"
"""Part of a name in an input, an expected output and an answer."""
PRIVATE = "version: 1\nproject: mini\nsettings: {private: true}\n"
BROWSER = f"""#!{sys.executable}
import sys, urllib.parse
(target,) = (word.split("=", 1)[1] for word in sys.argv if word.startswith("--print-to-pdf="))
with open(urllib.parse.urlsplit(sys.argv[-1]).path) as page, open(target, "w") as made:
    made.write("%PDF-" + page.read())
"""
"""A browser that prints the page as it is."""
SHOWS = (
    ("explain", "ada"),
    ("try", "hello"),
    ("rerun", "latest", "--cell", "ada"),
    ("dataset", "show", "hello"),
    ("bisect", "hello", "--case", "ada"),
    ("grade", "latest", "--list", "--json"),
)
"""Commands that exist to show texts."""


@pytest.fixture
def project(repo: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A project whose answers repeat their inputs, and fail a check that quotes them."""
    repo.edit("models.yaml", "model: small}", "model: echo}")
    path = "datasets/names.jsonl"
    repo.edit(path, '"Ada"}, "expected": "Ada"', f'"{MARKER}"}}, "expected": "Miss {MARKER}"')
    checks = '  - equals: "{{ expected }}"\n  - levenshtein: "{{ expected }}"\n'
    repo.edit("experiments/hello.yaml", "checks:\n", f"checks:\n{checks}")
    repo.write("browser", BROWSER).chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(repo.path / "browser"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")  # so that the log leaves the machine
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(repo.path / "summary.md"))
    return repo


def outputs(edison: Edison, folder: Folder) -> dict[str, str]:
    """Run an experiment, and return everything that may be sent away, by name."""
    files = {"--junit": "j.xml", "--markdown": "r.md", "--sarif": "s.sarif", "--log-file": "l.log"}
    done = edison(folder, "run", "-vv", *(word for pair in files.items() for word in pair))
    assert done.code in (0, 1, 5), done.err
    found = {"run": done.all} | {name: folder.read(name) for name in files.values()}
    kinds = [kind for kind in REPORTERS.built_in if kind not in ("pdf", "bundle")]
    assert {"html", "csv", "jsonl", "junit", "md", "json", "sarif"} <= set(kinds)
    commands: list[tuple[str, ...]] = [("report", "--format", kind) for kind in kinds]
    commands += [
        *(("status",), ("status", "latest"), ("status", "latest", "--json"), ("leaderboard",)),
        *(("trends",), ("costs",), ("github", "comment", "--dry-run"), ("github", "summary")),
        *(("github", "annotations"), ("admin", "audit", "--jsonl"), ("admin", "metrics")),
        *(("compare", "latest", "latest"), ("report", "--format", "pdf", "--out", "r.pdf")),
    ]
    for command in commands:
        told = edison(folder, *command)
        assert told.code in (0, 1, 5), (command, told.err)
        found[" ".join(command)] = told.all
    found["summary"], found["pdf"] = folder.read("summary.md"), folder.read("r.pdf")
    loaded = load_project(folder.path)
    with closing(open_reader(folder.path / ".edison/results.db")) as connection:
        run = find_run(connection, "latest")
        for kind in FORMATS:
            export = run_export(run.id, run.experiment, kind, loaded)
            found[f"download of {kind}"] = "".join(export.texts(connection))
        rows = connection.execute("select message from notification").fetchall()
        found["notifications"] = str(rows)
        found["events"] = str(connection.execute("select data from event").fetchall())
    return found


def exported(folder: Folder) -> str:
    """Return what a collector of OpenTelemetry gets that has asked for texts."""
    with collecting() as collector:
        environ = {**collector.environ, export.CAPTURE: "true"}
        assert folder.edison("run", "--no-cache", env=environ).code in (0, 1, 5)
    assert collector.spans()
    return str(collector.received)


def test_nothing_that_leaves_a_private_project_has_a_text(edison: Edison, project: Folder) -> None:
    project.write("edison.yaml", PRIVATE)
    found = outputs(edison, project) | {"OpenTelemetry": exported(project)}
    assert [name for name, text in found.items() if MARKER in text] == []
    for command in (
        ("report", "--format", "bundle", "--out", "run.zip"),
        ("report", "--format", "html", "--out", "pages/"),
        ("admin", "cache", "export", "all.jsonl"),
        ("admin", "bundle", "create", "project.zip"),
    ):
        refused = edison(project, *command)
        assert (refused.code, "private" in refused.err) == (2, True), command
        assert not (project.path / command[-1]).exists()


@pytest.mark.nightly
def test_the_same_outputs_of_another_project_have_texts(edison: Edison, project: Folder) -> None:
    found = outputs(edison, project) | {"OpenTelemetry": exported(project)}
    told = {name for name, text in found.items() if MARKER in text}
    assert told >= {"report --format html", "report --format csv", "report --format jsonl",
                    "report --format junit", "download of csv", "download of html",
                    "run", "pdf", "OpenTelemetry"}  # fmt: skip


def test_texts_are_shown_on_a_terminal_here_and_not_in_the_log_of_a_job(
    edison: Edison, project: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("edison.yaml", PRIVATE)
    project.git("commit", "--quiet", "--all", "--message", "private")
    assert MARKER not in edison(project, "run").all
    for command in SHOWS:
        refused = edison(project, *command)
        assert (refused.code, MARKER in refused.all) == (2, False), command
        assert "this project is private, and the log of a job is read elsewhere" in refused.err
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert MARKER in edison(project, "status", "latest").all
    for command in SHOWS:
        assert MARKER in edison(project, *command).all, command


@pytest.mark.nightly
def test_pages_on_this_machine_show_texts_and_send_no_tables(
    edison: Edison, project: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("edison.yaml", f"{PRIVATE}members: [{{email: me@example.org, role: owner}}]\n")
    monkeypatch.delenv("GITHUB_ACTIONS")
    project.git("config", "user.email", "me@example.org")
    assert edison(project, "run").code in (0, 1, 5)
    made = json.loads(edison(project, "roles", "token", "me@example.org", "--json").out)
    bearer = {"authorization": f"Bearer {made['token']}"}
    with closing(open_reader(project.path / ".edison/results.db")) as connection:
        run = find_run(connection, "latest").id
        ((cell,),) = connection.execute("select id from cell where case_id = 'ada'")
    tables = ("/results/answer_text", "/results/cell", "/results/grade", "/results/event")
    for server in started(project.path, LINES[0], "--offline"):
        assert MARKER in server.get(f"/-/edison/cell/{cell}").text
        assert MARKER in server.get("/results/answer_text").text
        for path in (*(f"{table}.json" for table in tables), "/results/answer_text.csv?_stream=on",
                     "/results/-/query.json?sql=select+*+from+answer_text",
                     "/results.json?sql=select+*+from+answer_text",
                     "/results/answer_text?_format=json"):  # fmt: skip
            sent = server.get(path)
            assert (sent.status_code, MARKER in sent.text) == (403, False), path
        for path in (f"run/{run}/export?format=csv", f"run/{run}/export?format=jsonl",
                     f"run/{run}/export?format=html", "metrics", "audit"):  # fmt: skip
            sent = server.get(f"/-/edison/{path}")
            assert (sent.status_code, MARKER in sent.text) == (200, False), path
        for path in (f"runs/{run}", "experiments/hello/plan", "openapi.json"):
            sent = server.get(f"/-/edison/api/v1/{path}", headers=bearer)
            assert (sent.status_code, MARKER in sent.text) == (200, False), path
    assert "refused: export" in edison(project, "admin", "audit", "--json").out
