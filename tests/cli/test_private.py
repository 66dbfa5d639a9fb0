"""A private project: no text of a case or an answer is in anything that leaves the machine."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from edison_ci.config.load import load_project
from edison_ci.report.reporters import REPORTERS
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run
from edison_ci.web.exports import FORMATS, run_export

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

MARKER = "Quillfeather"
"""Part of a name in an input, an expected output and an answer."""
NEEDS_CHROMIUM = "pdf"
"""It prints the HTML that is looked at here."""


@pytest.fixture
def project(repo: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A project whose answers repeat their inputs, and fail a check that quotes them."""
    repo.edit("models.yaml", "model: small}", "model: echo}")
    path = "datasets/names.jsonl"
    repo.edit(path, '"Ada"}, "expected": "Ada"', f'"{MARKER}"}}, "expected": "Miss {MARKER}"')
    checks = '  - equals: "{{ expected }}"\n  - levenshtein: "{{ expected }}"\n'
    repo.edit("experiments/hello.yaml", "checks:\n", f"checks:\n{checks}")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")  # so that the log leaves the machine
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(repo.path / "summary.md"))
    return repo


def outputs(edison: Edison, folder: Folder) -> dict[str, str]:
    """Run an experiment, and return everything that may be sent away, by name."""
    files = {"--junit": "j.xml", "--markdown": "r.md", "--sarif": "s.sarif", "--log-file": "l.log"}
    done = edison(folder, "run", "-vv", *(word for pair in files.items() for word in pair))
    assert done.code in (0, 1, 5), done.err
    found = {"run": done.all} | {name: folder.read(name) for name in files.values()}
    kinds = [kind for kind in REPORTERS.built_in if kind not in (NEEDS_CHROMIUM, "bundle")]
    assert {"html", "csv", "jsonl", "junit", "md", "json", "sarif"} <= set(kinds)
    commands: list[tuple[str, ...]] = [("report", "--format", kind) for kind in kinds]
    commands += [
        *(("status",), ("status", "latest"), ("status", "latest", "--json"), ("leaderboard",)),
        *(("trends",), ("costs",), ("github", "comment", "--dry-run"), ("github", "summary")),
        *(("github", "annotations"), ("admin", "audit", "--jsonl"), ("admin", "metrics")),
    ]
    for command in commands:
        told = edison(folder, *command)
        assert told.code in (0, 1, 5), (command, told.err)
        found[" ".join(command)] = told.all
    found["summary"] = folder.read("summary.md")
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


def test_nothing_that_leaves_a_private_project_has_a_text(edison: Edison, project: Folder) -> None:
    project.write("edison.yaml", "version: 1\nproject: mini\nsettings: {private: true}\n")
    found = outputs(edison, project)
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


def test_the_same_outputs_of_another_project_have_texts(edison: Edison, project: Folder) -> None:
    found = outputs(edison, project)
    told = {name for name, text in found.items() if MARKER in text}
    assert told >= {"report --format html", "report --format csv", "report --format jsonl",
                    "report --format junit", "download of csv", "download of html"}  # fmt: skip
