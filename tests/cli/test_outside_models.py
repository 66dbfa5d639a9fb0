"""edison run --model with a model that the experiment does not list: shown, and never gated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

SAID = "other is not a model of hello: it is shown, and gates do not count it"
ROW = "Does not count: other is not a model of the experiment."


@pytest.fixture
def strict(mini: Folder) -> Folder:
    """A project whose gate no model passes, with a model that no experiment lists."""
    models = (mini.path / "models.yaml").read_text(encoding="utf-8")
    mini.write("models.yaml", f"{models}\nother: {{provider: sim, model: large}}\n")
    path = mini.path / "experiments/hello.yaml"
    kept = [line for line in path.read_text(encoding="utf-8").splitlines() if "gates" not in line]
    kept = [line for line in kept if not line.startswith(("checks", "  - "))]
    mini.write(
        "experiments/hello.yaml",
        "\n".join([*kept, "checks: [{contains: zzz}]", ""])
        + "gates:\n  - {metric: pass_rate, at_least: 90%}\n",
    )
    return mini


def run_of(edison: Edison, folder: Folder, *words: str) -> tuple[int, dict[str, Any]]:
    done = edison(folder, "run", "--json", *words)
    (run,) = json.loads(done.out)["runs"]
    return done.code, run


def test_the_gate_fails_a_model_of_the_experiment(edison: Edison, strict: Folder) -> None:
    code, run = run_of(edison, strict)
    assert (code, run["verdict"]) == (1, "fail")


def test_a_model_outside_the_experiment_is_measured_and_not_gated(
    edison: Edison, strict: Folder
) -> None:
    code, run = run_of(edison, strict, "--model", "other")
    assert (code, run["verdict"]) == (0, "skipped")
    assert [(row["verdict"], row["sentence"]) for row in run["gates"]] == [("skipped", ROW)]
    assert {row["model"] for row in run["models"]} == {"other"}
    assert SAID in edison(strict, "run", "--model", "other").err


def test_the_other_models_of_the_run_are_gated_all_the_same(edison: Edison, strict: Folder) -> None:
    code, run = run_of(edison, strict, "--model", "other", "--model", "small")
    assert (code, run["verdict"]) == (1, "fail")
    assert {(row["model"], row["verdict"]) for row in run["gates"]} == {
        ("small", "fail"),
        ("other", "skipped"),
    }
    again = json.loads(edison(strict, "compare", "--gates", "--json").out)
    assert {(row["model"], row["verdict"]) for row in again["gates"]} == {
        ("small", "fail"),
        ("other", "skipped"),
    }


def test_a_gate_on_all_models_leaves_it_out(edison: Edison, strict: Folder) -> None:
    path = strict.path / "experiments/hello.yaml"
    text = path.read_text(encoding="utf-8").replace("at_least: 90%", "at_least: 90%, per: overall")
    strict.write("experiments/hello.yaml", text)
    _, run = run_of(edison, strict, "--model", "other", "--model", "small")
    failed, skipped = run["gates"]
    assert (failed["model"], failed["n"], failed["verdict"]) == (None, 2, "fail")
    assert (skipped["model"], skipped["sentence"]) == ("other", ROW)


def test_both_sides_of_a_comparison_ask_it(edison: Edison, strict: Folder) -> None:
    strict.git("init", "--quiet", "--initial-branch", "main")
    strict.git("add", "--all")
    strict.git("commit", "--quiet", "--message", "one")
    code, run = run_of(edison, strict, "--model", "other", "--against", "main")
    assert code == 0
    assert run["cells"]["total"] == 4
    assert {row["sentence"] for row in run["gates"]} == {ROW}


def test_its_answers_are_graded_again_and_requested_again(edison: Edison, strict: Folder) -> None:
    run_of(edison, strict, "--model", "other")
    done = edison(strict, "regrade", "--json")
    (run,) = json.loads(done.out)["runs"]
    assert (done.code, run["cells"]["total"]) == (0, 2)
    assert [row["sentence"] for row in run["gates"]] == [ROW]
    assert edison(strict, "rerun", "--cell", "ada@other").code == 0


@pytest.mark.nightly
def test_a_run_with_it_is_resumed(edison: Edison, strict: Folder) -> None:
    models = (strict.path / "models.yaml").read_text(encoding="utf-8")
    dead = "{provider: openai_compatible, model: x, base_url: 'http://127.0.0.1:9/v1', price: free}"
    strict.write("models.yaml", f"{models}dead: {dead}\n")
    assert run_of(edison, strict, "--model", "dead")[0] == 3
    done = edison(strict, "resume")
    assert done.code == 3, done.err


def test_the_plan_shows_it(edison: Edison, strict: Folder) -> None:
    assert SAID in edison(strict, "plan", "--model", "other").out
    (plan,) = json.loads(edison(strict, "plan", "--model", "other", "--json").out)["experiments"]
    assert SAID in plan["reasons"]
    assert SAID not in edison(strict, "plan", "--model", "small").out


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_model_of_no_file_is_refused(edison: Edison, strict: Folder, command: str) -> None:
    done = edison(strict, command, "--model", "othr")
    assert (done.code, done.err) == (
        2,
        "error: there is no model 'othr'\n  did you mean 'other'?\n",
    )


def test_one_case_is_tried_with_it(edison: Edison, strict: Folder) -> None:
    assert json.loads(edison(strict, "try", "--model", "other", "--json").out)["model"] == "other"
    assert "other: sim/large" in edison(strict, "try", "--dry-run", "--model", "other").err
