"""Every example is laid out, valid, planned and rendered, through the real command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import EXAMPLES, ROOT, Folder

pytestmark = pytest.mark.daily

TEMPLATES = ("code-generation", "creative-writing", "customer-support", "data-extraction")


def test_these_are_all_the_examples() -> None:
    found = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
    assert found == sorted([*TEMPLATES, "one-word-answers", "workflows"])


@pytest.mark.parametrize("template", TEMPLATES)
def test_init_makes_a_project_that_is_valid_and_can_be_planned(
    template: str, folder: Folder
) -> None:
    laid = folder.edison("init", "--template", template, "--json")
    assert laid.code == 0, laid.err
    written = json.loads(laid.out)["written"]
    assert "edison.yaml" in written and ".edison/schemas/experiment.schema.json" in written

    checked = folder.edison("validate", "--json", "--strict")
    assert json.loads(checked.out) == {"schema_version": 1, "ok": True, "problems": []}
    assert checked.code == 0

    planned = json.loads(folder.edison("plan", "--json").out)["experiments"][0]
    assert planned["cases"] >= 60
    assert planned["cells"] == planned["cases"]
    assert planned["holdout"] >= 16
    assert planned["cases_for_margin"] <= planned["cases"]
    assert planned["simulated"] is True
    assert planned["cost_microusd"] == {"low": 0, "high": 0}
    assert planned["blockers"] == []

    prompt = next((folder.path / "prompts").glob("*.md")).stem
    shown = json.loads(folder.edison("try", "--dry-run", prompt, "--json").out)
    assert [m["role"] for m in shown["messages"]] == ["system", "user"]
    assert "{{" not in shown["messages"][1]["content"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_init_never_overwrites(template: str, folder: Folder) -> None:
    folder.write("edison.yaml", "mine\n")
    again = folder.edison("init", "--template", template, "--json")
    assert again.code == 0
    assert json.loads(again.out)["kept"] == ["edison.yaml"]
    assert folder.read("edison.yaml") == "mine\n"


@pytest.mark.parametrize("template", TEMPLATES)
def test_generated_files_name_a_schema_that_is_there(template: str, folder: Folder) -> None:
    folder.edison("init", "--template", template)
    named = 0
    for path in folder.path.rglob("*.yaml"):
        first = path.read_text(encoding="utf-8").split("\n")[0]
        prefix = "# yaml-language-server: $schema="
        assert first.startswith(prefix), path
        assert (path.parent / Path(first.removeprefix(prefix))).resolve().is_file()
        named += 1
    assert named >= 5


def test_the_examples_hold_no_results() -> None:
    tracked = {path.name for path in (ROOT / "examples").rglob("*")}
    assert not {name for name in tracked if name.endswith((".db", ".db-wal"))}
