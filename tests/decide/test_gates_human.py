"""Gates that go by people's grades."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.stats.corrected import random_order
from edison_ci.stats.sentences import signed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Edison, Folder

CASES = 40
ORDER = random_order(f"c{i}" for i in range(CASES))


def gated(folder: Folder, *gates: str) -> None:
    text = folder.read("experiments/hello.yaml")
    lines = "".join(f"  - {{{gate}}}\n" for gate in gates)
    folder.write("experiments/hello.yaml", text[: text.index("gates:")] + f"gates:\n{lines}")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Projects that tests have made, to be copied."""
    return tmp_path_factory.mktemp("made")


def copied(made: Path, name: str, folder: Folder, make: Callable[[Folder], None]) -> Folder:
    """Make a project once, and give each test a copy of it."""
    if (kept := made / name).exists():
        shutil.copytree(kept, folder.path, dirs_exist_ok=True, symlinks=True)
    else:
        make(folder)
        shutil.copytree(folder.path, kept, symlinks=True)
    return folder


@pytest.fixture
def ran(edison: Edison, mini: Folder, made: Path) -> Folder:
    """A project of 40 cases after a run, with gates that people decide."""
    return copied(made, "ran", mini, lambda folder: make_run(edison, folder))


def make_run(edison: Edison, mini: Folder) -> None:
    rows = ({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"} for i in range(CASES))
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    gated(mini, "metric: pass_rate, at_least: 60%, use: human")
    mini.git("init", "-q")
    mini.git("config", "user.email", "ann@example.com")
    assert edison(mini, "run", "-q").code == 0


def grade(edison: Edison, folder: Folder, cases: list[str], value: str, *args: str) -> None:
    for case in cases:
        done = edison(folder, "grade", "--cell", f"{case}@small", "--grade", value, *args)
        assert done.code == 0, done.all


def rows(edison: Edison, folder: Folder) -> tuple[int, list[dict[str, Any]]]:
    done = edison(folder, "compare", "--gates", "--json")
    found = json.loads(done.out)["gates"]
    assert isinstance(found, list)
    return done.code, found


def test_nothing_graded_is_inconclusive_and_says_what_to_do(edison: Edison, ran: Folder) -> None:
    code, (row,) = rows(edison, ran)
    assert (code, row["verdict"], row["n"]) == (0, "inconclusive", 0)
    assert row["sentence"] == (
        "No answer of this run was graded by a person: run `edison grade`, "
        "then `edison compare --gates`."
    )


def test_people_s_grades_decide_whatever_the_automatic_ones_say(
    edison: Edison, ran: Folder
) -> None:
    grade(edison, ran, ORDER[:20], "down")
    code, (row,) = rows(edison, ran)
    assert (code, row["verdict"], row["n"], row["estimate"]) == (1, "fail", 20, 0.0)
    assert row["sentence"].endswith("People graded 20 of 40 cases, a random sample.")
    gated(ran, "metric: pass_rate, at_least: 60%")
    assert rows(edison, ran)[0] == 0, "a gate of the judge is not touched by people's grades"
    gated(ran, "metric: pass_rate, at_least: 60%, use: human")
    grade(edison, ran, ORDER[:20], "up")
    assert rows(edison, ran)[1][0]["verdict"] == "pass", "the last grade counts"


@pytest.mark.nightly
def test_cases_that_were_picked_do_not_count(edison: Edison, ran: Folder) -> None:
    grade(edison, ran, ORDER[20:32], "up")
    _, (row,) = rows(edison, ran)
    assert (row["verdict"], row["n"]) == ("inconclusive", 0)
    assert row["sentence"].startswith("People graded 12 cases that were picked, and no random")
    grade(edison, ran, ORDER[:12], "up")
    _, (row,) = rows(edison, ran)
    assert row["n"] == 12
    assert row["sentence"].endswith("a random sample; 12 that were picked do not count.")


@pytest.mark.nightly
def test_when_all_is_graded_there_is_nothing_left_to_sample(edison: Edison, ran: Folder) -> None:
    grade(edison, ran, list(reversed(ORDER)), "up")
    _, (row,) = rows(edison, ran)
    assert (row["verdict"], row["n"]) == ("pass", CASES)
    assert row["sentence"].endswith("People graded all 40 cases.")


def test_scores_and_criteria_of_people_have_gates_too(edison: Edison, ran: Folder) -> None:
    gated(
        ran,
        "metric: composite, at_least: 90%, use: human",
        "metric: criterion.warmth, at_least: 10%, use: human",
    )
    grade(edison, ran, ORDER[:15], "2", "--criterion", "Warmth=5")
    code, (score, warmth) = rows(edison, ran)
    assert (code, score["verdict"], score["estimate"]) == (1, "fail", 0.25)
    assert score["sentence"].startswith("Quality by people")
    assert (warmth["verdict"], warmth["estimate"], warmth["n"]) == ("pass", 1.0, 15)


def test_people_who_are_divided_count_half_each(edison: Edison, ran: Folder) -> None:
    grade(edison, ran, ORDER[:10], "up")
    ran.git("config", "user.email", "bo@example.com")
    grade(edison, ran, ORDER[:10], "down")
    _, (row,) = rows(edison, ran)
    assert (row["estimate"], row["n"]) == (0.5, 10)


def test_people_compare_with_the_base(edison: Edison, changed: Folder) -> None:
    ran = changed
    gated(ran, "metric: composite, no_worse_than: base, margin: 10pp, use: human")
    done = edison(ran, "grade", "--list", "--json", "--reveal", "--limit", "100")
    cells = json.loads(done.out)["cells"]
    assert {cell["side"] for cell in cells} == {"base", "head"}
    assert [cell["case"] for cell in cells] == [case for case in ORDER for _ in range(2)]
    for cell in cells[:40]:
        value = "2" if cell["side"] == "head" else "4"
        assert edison(ran, "grade", "--cell", cell["cell"], "--grade", value, "-q").code == 0
    code, (row,) = rows(edison, ran)
    assert (code, row["verdict"], row["n"], row["estimate"]) == (1, "fail", 20, -0.5)
    human = json.loads(edison(ran, "status", "latest", "--json").out)["runs"][0]["human"]
    kinds = {found["of"]: found for found in human["change"]}
    assert kinds["side"]["sentence"].startswith("hello with small: judge may favour one side: ")
    assert kinds["side"]["estimate"] > 0.3
    assert kinds["change"]["estimate"] == pytest.approx(-0.5, abs=0.1)
    assert "judge may favour one side" in edison(ran, "status", "latest").out


# --- judges against people ------------------------------------------------------------------------


@pytest.fixture
def changed(edison: Edison, mini: Folder, made: Path) -> Folder:
    """A run of both sides that its judge lets pass, not graded yet."""
    return copied(made, "changed", mini, lambda folder: make_change(edison, folder))


def make_change(edison: Edison, ran: Folder) -> None:
    make_run(edison, ran)
    gated(ran, "metric: composite, no_worse_than: base, margin: 30pp")
    ran.write(".gitignore", ".edison/results.db*\n.edison/locks\n")
    ran.git("add", "-A")
    ran.git("commit", "-qm", "base")
    ran.edit("prompts/hello.md", "one friendly sentence", "two friendly sentences")
    assert edison(ran, "run", "--against", "HEAD", "-q").code == 0
    _, (row,) = rows(edison, ran)
    assert (row["verdict"], row["n"]) == ("pass", CASES)
    assert "human_labels" not in row["detail"]


def grade_both(edison: Edison, folder: Folder, cases: int, head: str, base: str) -> None:
    """Grade the next cases that are not graded yet."""
    done = edison(folder, "grade", "--list", "--json", "--reveal", "--limit", "100")
    for cell in json.loads(done.out)["cells"][: 2 * cases]:
        value = head if cell["side"] == "head" else base
        assert edison(folder, "grade", "--cell", cell["cell"], "--grade", value, "-q").code == 0


@pytest.mark.nightly
def test_labels_of_both_sides_correct_a_judge_that_misses_the_drop(
    edison: Edison, changed: Folder
) -> None:
    """Few of them take back a pass, because the judge favors the head; more correct the score."""
    before = rows(edison, changed)[1][0]["estimate"]
    grade_both(edison, changed, 8, head="2", base="4")
    _, (row,) = rows(edison, changed)
    assert (row["verdict"], row["n_more"]) == ("inconclusive", None)
    assert (
        "But on 8 cases that people graded on both sides the judge favors the head by"
        in (row["sentence"])
    )
    labels = row["detail"]["human_labels"]
    assert labels["labels"] == 8
    assert labels["judge_favors_head"] == pytest.approx(0.5, abs=0.1)
    assert labels["p"] == pytest.approx(1 / 256)
    grade_both(edison, changed, 12, head="2", base="4")
    code, (row,) = rows(edison, changed)
    assert (code, row["verdict"], row["n"]) == (1, "fail", CASES)
    assert row["estimate"] == pytest.approx(-0.5, abs=0.05)
    assert row["p"] < 0.001
    labels = row["detail"]["human_labels"]
    assert labels["labels"] == 20
    assert labels["judge_estimate"] == pytest.approx(before)
    assert row["sentence"].endswith(
        "Corrected by human grades of both sides of 20 cases; the judge alone says "
        f"{signed(before)}."
    )


@pytest.mark.nightly
def test_labels_that_agree_let_the_gate_pass(edison: Edison, changed: Folder) -> None:
    """Few of them change nothing, and more are counted."""
    grade_both(edison, changed, 8, head="4", base="4")
    _, (row,) = rows(edison, changed)
    assert row["verdict"] == "pass"
    assert "human_labels" not in row["detail"]
    grade_both(edison, changed, 12, head="4", base="4")
    code, (row,) = rows(edison, changed)
    assert (code, row["verdict"]) == (0, "pass")
    assert row["estimate"] == pytest.approx(0, abs=0.05)
    assert row["detail"]["human_labels"]["labels"] == 20


@pytest.mark.nightly
def test_thumbs_do_not_correct_a_score(edison: Edison, changed: Folder) -> None:
    grade_both(edison, changed, 20, head="down", base="up")
    assert rows(edison, changed)[1][0]["verdict"] == "pass"
