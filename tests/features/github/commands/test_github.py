"""edison github: what GitHub Actions shows of a pull request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.test_against import CASES, PLAIN, shop, worsen
from tests.report.page import assert_harmless
from tests.report.runner import Runner, read_outputs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Edison, Kept
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

__all__ = ["shop"]


@pytest.fixture
def worse(edison: Edison, shop: Folder, kept: Kept) -> Folder:
    def make() -> None:
        worsen(shop)
        assert edison(shop, "run", "--against", "main", "-q").code == 1

    return kept.begin("worse", shop, make)


def test_the_summary_goes_where_the_runner_wants_it(
    edison: Edison, worse: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    summary, values = tmp_path / "summary", tmp_path / "outputs"
    summary.write_text("# Before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_OUTPUT", str(values))
    done = edison(worse, "github", "summary")
    assert (done.code, done.out) == (0, ""), "the step that ran decides, not this one"
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("# Before\n## ❌ edison: fail\n")
    assert_harmless(text.removeprefix("# Before\n"))
    found = read_outputs(values.read_text(encoding="utf-8"))
    assert found["verdict"] == "fail"
    assert float(found["delta"]) < 0 < float(found["composite"]) < 1
    assert (found["cost-usd"], found["cells"]) == ("0.000000", str(2 * CASES))
    assert int(found["regressions"]) > 0


def test_without_a_runner_the_summary_is_printed(edison: Edison, worse: Folder) -> None:
    done = edison(worse, "github", "summary")
    assert done.out.startswith("## ❌ edison: fail\n")
    told = json.loads(edison(worse, "github", "summary", "--json").out)
    assert (told["verdict"], told["summary"]) == ("fail", None)
    assert told["outputs"]["verdict"] == "fail"


def test_a_runner_without_a_summary_obeys_nothing_in_it(
    edison: Edison, worse: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    first, second = (edison(worse, "github", "summary").out for _ in range(2))
    assert first.startswith("::stop-commands::")
    assert Runner().read(first) == []
    assert first.split("\n")[0] != second.split("\n")[0], "the token is drawn anew"


def test_a_summary_that_cannot_be_written_is_said(
    edison: Edison, worse: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    done = edison(worse, "github", "summary")
    assert done.code == 2
    assert "GITHUB_STEP_SUMMARY" in done.err


def test_annotations_stand_at_the_lines_of_the_change(
    edison: Edison, worse: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(worse.path.parent))
    done = edison(worse, "github", "annotations")
    assert done.code == 0
    obeyed = Runner().read(done.out)
    assert len(obeyed) == len(done.out.splitlines())
    line = worse.read("prompts/support-reply.md").splitlines().index(PLAIN) + 1
    first = obeyed[0]
    assert first.name == "error"
    assert first.properties["file"] == f"{worse.path.name}/prompts/support-reply.md"
    assert first.properties["line"] == first.properties["endLine"] == str(line)
    assert "composite fail" in first.properties["title"]
    assert "simulated" in first.properties["title"]
    assert first.data.startswith("Quality dropped by ")
    assert [c.name for c in obeyed] == sorted(
        (c.name for c in obeyed), key=["error", "warning", "notice"].index
    )


def test_annotations_as_json_are_all_of_them(edison: Edison, worse: Folder) -> None:
    told = json.loads(edison(worse, "github", "annotations", "--json").out)
    assert told["verdict"] == "fail"
    levels = [one["level"] for one in told["annotations"]]
    assert {"error", "warning", "notice"} == set(levels)
    assert told["annotations"][0]["file"] == "prompts/support-reply.md"


def test_ten_annotations_at_most(edison: Edison, worse: Folder) -> None:
    gates = "".join(f"  - {{metric: pass_rate, at_least: 9{n}%}}\n" for n in range(10))
    errors = "  - {metric: errors"
    worse.edit("experiments/support-reply.yaml", errors, f"{gates}{errors}")
    assert edison(worse, "run", "-q").code == 1
    told = json.loads(edison(worse, "github", "annotations", "--json").out)["annotations"]
    said = edison(worse, "github", "annotations").out.splitlines()
    assert len(said) == 10 < len(told)
    assert said[-1] == f"::error title=edison::{len(told) - 9} more in the job summary"


def test_runs_can_be_named(edison: Edison, worse: Folder) -> None:
    before = json.loads(edison(worse, "status", "latest", "--json").out)["runs"][0]["run_id"]
    worse.git("checkout", "--quiet", ".")
    edison(worse, "run", "-q")
    newest = json.loads(edison(worse, "github", "summary", "--json").out)
    older = json.loads(edison(worse, "github", "summary", before, "--json").out)
    assert (newest["verdict"], older["verdict"]) == ("pass", "fail")


def test_a_job_that_ran_nothing_says_so(
    edison: Edison, shop: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert edison(shop, "run", "--changed-since", "HEAD").code == 0
    done = edison(shop, "github", "summary")
    assert (done.code, "No experiment is affected" in done.out) == (0, True)
    assert edison(shop, "github", "annotations").out == ""


def test_results_of_another_commit_are_not_taken_for_those_of_this_job(
    edison: Edison, shop: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert edison(shop, "run", "-q").code == 0
    shop.write("notes.txt", "nothing that a run depends on")
    shop.git("add", "--all")
    shop.git("commit", "--quiet", "--message", "notes")
    told = json.loads(edison(shop, "github", "summary", "--json").out)
    assert told["verdict"] == "pass", "whoever asks at a desk means the newest run"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    told = json.loads(edison(shop, "github", "summary", "--json").out)
    assert told["verdict"] == "skipped"
