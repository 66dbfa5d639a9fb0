"""A hostile project, run as a pull request would: nothing in its names and answers is obeyed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from lxml import etree

from tests.report.page import HIDDEN, assert_harmless
from tests.report.runner import Runner, read_outputs
from tests.report.test_hostile import NASTY
from tests.report.test_junit import XSD
from tests.report.test_sarif import SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

ANSWER = "MARKED-ANSWER ::error::fake @octocat ![x](https://evil.example/x.png)"
FAULT = "no \x1b[31mreply ::add-mask::x ##[error]y <img src=x> sk-ant-" + "a1B2" * 8


def accepted(text: str) -> bool:
    """Whether a dataset takes this as the id of a case."""
    return text == text.strip() and 0 < len(text) <= 200 and text.isprintable()


@pytest.fixture
def hostile(edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A project whose cases have nasty names and whose model gives nasty answers and errors."""
    ids = sorted({text for text in NASTY if accepted(text)})
    assert len(ids) > 20
    rows = [
        {"id": text, "input": {"name": f"P{n}"}, "expected": "Hello" if n % 2 else "Ada"}
        for n, text in enumerate(ids)
    ]
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    script = [{"match": "P3 ", "error": "BAD_RESPONSE", "text": FAULT}, {"text": f"Ada {ANSWER}"}]
    mini.write("script.jsonl", "".join(json.dumps(row) + "\n" for row in script))
    mini.edit("models.yaml", "model: small}", "model: script, options: {file: script.jsonl}}")
    mini.edit("experiments/hello.yaml", "rubric: rubrics/tone.yaml\n", "")
    mini.edit("experiments/hello.yaml", "judges: {pointwise: [judge]}\n", "")
    mini.edit(
        "experiments/hello.yaml", "gates:\n", "gates:\n  - {metric: pass_rate, at_least: 99%}\n"
    )
    mini.git("init", "--quiet", "--initial-branch=main")
    mini.git("add", "--all")
    mini.git("commit", "--quiet", "--message", "start")
    mini.edit("prompts/hello.md", "friendly sentence", "short sentence")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    return mini


def test_no_report_of_a_hostile_project_is_obeyed(
    edison: Edison, hostile: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flags = ("--junit", "junit.xml", "--markdown", "report.md", "--sarif", "edison.sarif")
    done = edison(hostile, "run", "--against", "main", *flags)
    assert done.code == 1
    summary, values = tmp_path / "summary", tmp_path / "values"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_OUTPUT", str(values))
    assert edison(hostile, "github", "summary").code == 0
    annotations = edison(hostile, "github", "annotations")
    texts = {name: hostile.read(name) for name in flags[1::2]}
    texts["summary"] = summary.read_text(encoding="utf-8")
    for name in ("report.md", "summary"):
        assert_harmless(texts[name])
    XSD.assertValid(etree.fromstring(texts["junit.xml"].encode()))
    SCHEMA.validate(json.loads(texts["edison.sarif"]))
    assert read_outputs(values.read_text(encoding="utf-8"))["verdict"] == "fail"
    assert 'message="not measured: BAD_RESPONSE: no \\u{1b}' in texts["junit.xml"]
    obeyed = Runner().read(annotations.out)
    assert len(obeyed) == len(annotations.out.splitlines())
    assert {command.name for command in obeyed} <= {"error", "warning", "notice"}
    assert Runner().read(done.all + annotations.err) == []
    for text in (*texts.values(), done.all, annotations.all):
        assert "Traceback" not in text
        assert "MARKED-ANSWER" not in text, "no answer leaves the results"
        assert "a1B2a1B2" not in text, "nor does what looks like a key"
        assert not HIDDEN.search(text)
