"""Configurations in the documented shapes become the files, and the report, that are expected."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.config.load import load_project
from edison_ci.documents.yaml_text import YamlLimits, read_yaml
from edison_ci.features.importing.fidelity import Node
from tests.features.importing.golden import (
    EXPECTED,
    PROMPT_YML,
    PROMPTFOO,
    come,
    expected_files,
)

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.features.importing.output import ImportPlan
    from tests.conftest import Edison, Folder

ALL = [*PROMPTFOO, *PROMPT_YML]


def called(path: Path) -> str:
    return path.parent.name if path.name == "promptfooconfig.yaml" else path.name


def test_there_are_enough_of_them() -> None:
    assert len(PROMPTFOO) >= 12
    assert len(PROMPT_YML) >= 4


@pytest.mark.parametrize("path", ALL, ids=called)
def test_it_becomes_these_files(path: Path, tmp_path: Path) -> None:
    came = come(path, tmp_path)
    assert came.files == expected_files(came.name)


@pytest.mark.parametrize("path", ALL, ids=called)
def test_every_key_is_told_and_counted(path: Path, tmp_path: Path) -> None:
    came = come(path, tmp_path)
    assert came.told == (EXPECTED / f"{came.name}.txt").read_text(encoding="utf-8")
    assert sum(came.counts.values()) == len(came.imported.fidelity.entries)


@pytest.mark.parametrize("path", ALL, ids=called)
def test_no_key_of_the_file_is_passed_over(path: Path, tmp_path: Path) -> None:
    """Each key, or what it lies in or what lies in it, has an entry."""
    fidelity = come(path, tmp_path).imported.fidelity
    document = read_yaml(path.read_bytes(), path.name, limits=YamlLimits(merge=True))
    told = {entry.key for entry in fidelity.entries if entry.where.file == path.name}
    root = Node(document, (), document.value)
    for child in root.children():
        below = (f"{child.name}.", f"{child.name}[")
        found = child.name in told or any(key.startswith(below) for key in told)
        assert found or child.name in ("assertionTemplates",), child.name


@pytest.mark.parametrize("path", ALL, ids=called)
def test_the_project_is_valid(path: Path, tmp_path: Path) -> None:
    plan: ImportPlan = come(path, tmp_path).plan
    plan.write()
    project = load_project(tmp_path)
    assert project.experiments


@pytest.mark.nightly
@pytest.mark.parametrize("path", PROMPTFOO, ids=called)
def test_what_is_offline_runs(path: Path, folder: Folder, edison: Edison) -> None:
    came = come(path, folder.path)
    came.plan.write()
    online = {entry["provider"] for entry in came.imported.models.values()} - {"sim"}
    if online:
        assert edison(folder, "validate").code == 0
        return
    done = edison(folder, "run", "--json")
    assert done.code in (0, 1), done.all
    document = json.loads(done.out)
    assert {run["experiment"] for run in document["runs"]} == set(came.imported.experiments)
    for run in document["runs"]:
        assert run["simulated"] is True
        assert run["cells"]["ok"] == run["cells"]["total"] > 0


def test_an_echo_gets_the_score_that_promptfoo_would_give(folder: Folder, edison: Edison) -> None:
    """Two cells of each of six cases; `contains Ana` fails where the prompt writes ANA."""
    (path,) = [path for path in PROMPTFOO if path.parent.name == "echo_basics"]
    come(path, folder.path).plan.write()
    (run,) = json.loads(edison(folder, "run", "--json").out)["runs"]
    # 1 for each of 8 cells; in 4 of the 12 one of two assertions of equal weight fails.
    assert run["composite"]["estimate"] == pytest.approx((8 + 4 * 0.5) / 12)
    assert run["pass_rate"]["estimate"] == pytest.approx(8 / 12)
