"""edison plan: the screen, a change, shards, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

OTHER = (
    "experiment: other\n"
    "objective: Say goodbye to people by their name, kindly.\n"
    "prompts: [prompts/bye.md]\n"
    "models: [small]\n"
    "dataset: datasets/names.jsonl\n"
    "checks: [{icontains: bye}]\n"
)


@pytest.fixture
def two(mini: Folder) -> Folder:
    """A project with two experiments, in a repository."""
    mini.write("experiments/other.yaml", OTHER)
    mini.write("prompts/bye.md", "Say goodbye to {{ name }} in one kind sentence, nothing else.\n")
    mini.git("init", "--quiet", "--initial-branch=main")
    mini.git("add", "--all")
    mini.git("commit", "--quiet", "--message", "start")
    return mini


def test_the_screen(edison: Edison, support: Folder) -> None:
    done = edison(support, "plan")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "support-reply  (simulated models)"
    assert lines[1] == "  94 cases (34 held out), 94 cells: 188 calls to make, 0 reused"
    assert lines[2] == "    no results are stored yet, so every call would be made"
    assert lines[3].split() == ["phase", "model", "calls", "tokens", "cost", "time"]
    assert lines[4].split()[:3] == ["generate", "small", "94"]
    assert lines[5].split()[:3] == ["judge", "judge", "94"]
    assert lines[6].split()[:2] == ["total", "188"]
    assert {line.rstrip().endswith("free  <1 s") for line in lines[4:7]} == {True}
    assert (
        lines[7]
        == "  With 68 clusters (94 cases) you can detect changes of about 8.6 points or more"
    )
    assert lines[9] == "  The 10-point margin needs about 63 clusters: enough."
    assert lines[10].startswith("  plan ")
    assert len(lines[10].split()[1]) == 8
    assert max(map(len, lines)) <= 80


def test_a_loop_says_how_many_iterations(edison: Edison, support: Folder) -> None:
    said = edison(support, "plan", "--loop").out
    assert "    loop of 3 to 5 iterations; the calls are those of 5\n" in said
    assert "\n  refine    refiner      5 " in said


def test_whoever_refines_is_told_what_is_held_out_without_a_split(
    edison: Edison, support: Folder
) -> None:
    support.edit("experiments/support-reply.yaml", "split: {holdout: 0.4, seed: 0}\n", "")
    assert "  94 cases, 94 cells: " in edison(support, "plan").out, "a run holds nothing out"
    assert "  94 cases (34 held out), 94 cells: " in edison(support, "plan", "--loop").out
    support.edit("models.yaml", "model: small", "model: small, price: {in: 1, out: 1}")
    said = "60 training cases and 34 held out"
    for command in ("refine", "loop"):
        assert said in edison(support, command, "support-reply", "--budget", "0").err


def test_few_cases_are_said_to_show_nothing(edison: Edison, mini: Folder) -> None:
    said = edison(mini, "plan").out
    assert "  2 cases cannot show any change: add cases.\n" in said
    assert "margin needs about 63 cases: not yet enough.\n" in said


@pytest.mark.parametrize(
    ("small", "judge", "mark"),
    [
        ("sim, model: small", "sim, model: judge", "  (simulated models)"),
        ("ollama, model: x, price: free", "sim, model: judge", "  (simulated: judge)"),
        ("ollama, model: x, price: free", "ollama, model: x, price: free", ""),
    ],
)
def test_simulated_models_are_marked(
    edison: Edison, mini: Folder, small: str, judge: str, mark: str
) -> None:
    mini.write("models.yaml", f"small: {{provider: {small}}}\njudge: {{provider: {judge}}}\n")
    assert edison(mini, "plan").out.splitlines()[0] == f"hello{mark}"


def test_what_stands_in_the_way_of_a_run_is_said(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini.write(
        "models.yaml",
        "small: {provider: openai, model: unheard-of}\njudge: {provider: sim, model: judge}\n",
    )
    done = edison(mini, "plan")
    assert "before a run: the price of small is unknown: add price to models.yaml" in done.out
    assert "before a run: OPENAI_API_KEY is not set (small needs it)" in done.out
    assert " unknown " in done.out
    assert "models.yaml:1:1: warning: the price of model 'small' is unknown" in done.err
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    assert "OPENAI_API_KEY" not in edison(mini, "plan").out


def test_skipped_cases_are_counted_and_listed(edison: Edison, mini: Folder) -> None:
    with (mini.path / "datasets/names.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"id": "nobody", "x": 1}\n')
    done = edison(mini, "plan")
    assert "3 cases, 2 cells (1 skipped): 4 calls" in done.out
    assert "1 of 3 cases lack name and will be skipped: nobody" in done.err


def test_every_experiment_is_planned_and_archived_ones_only_by_name(
    edison: Edison, two: Folder
) -> None:
    names = [e["experiment"] for e in json.loads(edison(two, "plan", "--json").out)["experiments"]]
    assert names == ["hello", "other"]
    two.edit("experiments/other.yaml", "models:", "archived: true\nmodels:")
    shown = edison(two, "plan").out
    assert "hello" in shown
    assert "other" not in shown
    assert "before a run: the experiment is archived" in edison(two, "plan", "other").out


def test_experiments_are_planned_once_in_the_order_given(edison: Edison, two: Folder) -> None:
    told = json.loads(edison(two, "plan", "other", "hello", "other", "--json").out)
    assert [e["experiment"] for e in told["experiments"]] == ["other", "hello"]


def test_an_unknown_experiment_gets_a_hint(edison: Edison, two: Folder) -> None:
    done = edison(two, "plan", "helo")
    assert done.code == 2
    assert done.err == "error: there is no experiment 'helo'\n  did you mean 'hello'?\n"


def test_an_invalid_project_is_not_planned(edison: Edison, two: Folder) -> None:
    two.edit("prompts/bye.md", "{{ name }}", "{{ name | sort }}")
    for words in ((), ("bye",)):
        done = edison(two, "plan", *words)
        assert (done.code, done.out) == (2, "")
        assert "prompts/bye.md:1:" in done.err
        assert done.err.endswith("nothing was done\n")
    done = edison(two, "plan", "hello")
    assert done.code == 0, "it does not use that file"
    assert "warning: " in done.err and "prompts/bye.md:1:" in done.err


def test_invalid_data_is_not_planned(edison: Edison, two: Folder) -> None:
    two.write("datasets/names.jsonl", '{"id": "a", "name": "x"}\n{"id": "a", "name": "y"}\n')
    done = edison(two, "plan", "hello")
    assert (done.code, done.out) == (2, "")
    assert "id 'a' is used twice" in done.err


# --- a change -------------------------------------------------------------------------------------


def test_nothing_affected_is_skipped_and_no_failure(edison: Edison, two: Folder) -> None:
    done = edison(two, "plan", "--changed-since", "main")
    commit = two.git("rev-parse", "--short=8", "HEAD")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        f"Compared with main at {commit}:\n"
        "  hello is not affected\n"
        "  other is not affected\n"
        "skipped: nothing affected\n"
    )


def test_only_what_a_change_touches_is_planned(edison: Edison, two: Folder) -> None:
    two.edit("prompts/bye.md", "kind", "warm")
    done = edison(two, "plan", "--changed-since", "main")
    assert "  other is affected: prompts/bye.md\n  hello is not affected\n\nother  (sim" in done.out
    assert "skipped" not in done.out


def test_a_named_experiment_that_is_not_affected_is_skipped(edison: Edison, two: Folder) -> None:
    two.edit("prompts/bye.md", "kind", "warm")
    done = edison(two, "plan", "hello", "--changed-since", "main")
    assert done.out.splitlines()[1:] == ["  hello is not affected", "skipped: nothing affected"]


def test_an_archived_experiment_does_not_count_as_affected(edison: Edison, two: Folder) -> None:
    two.edit("experiments/other.yaml", "models:", "archived: true\nmodels:")
    two.edit("prompts/bye.md", "kind", "warm")
    done = edison(two, "plan", "--changed-since", "main")
    assert done.out.endswith("  hello is not affected\nskipped: nothing affected\n")


def test_nothing_affected_makes_an_empty_matrix(edison: Edison, two: Folder) -> None:
    done = edison(two, "plan", "hello", "--changed-since", "main", "--shards", "2")
    assert json.loads(done.out) == {"include": []}
    assert done.err == "skipped: nothing affected\n"


@pytest.mark.parametrize(
    ("ref", "said"),
    [("mian", "did you mean 'main'?"), ("--upload-pack=x", "unknown commit")],
)
def test_a_ref_that_is_none_is_refused(edison: Edison, two: Folder, ref: str, said: str) -> None:
    done = edison(two, "plan", f"--changed-since={ref}")
    assert done.code == 2
    assert said in done.err


def test_without_a_repository_it_says_how_to_make_one(edison: Edison, mini: Folder) -> None:
    done = edison(mini, "plan", "--changed-since", "main")
    assert (done.code, done.out) == (2, "")
    assert "is not in a Git repository\n  run git init, then commit\n" in done.err


# --- shards ---------------------------------------------------------------------------------------


def test_shards_are_a_matrix_for_a_workflow(edison: Edison, support: Folder) -> None:
    done = edison(support, "plan", "--shards", "3")
    assert done.out.count("\n") == 1, "one line, to be put into an output of a step"
    rows = json.loads(done.out)["include"]
    assert [row["shard"] for row in rows] == ["1/3", "2/3", "3/3"]
    assert {row["experiment"] for row in rows} == {"support-reply"}
    assert sum(row["cases"] for row in rows) == 94


def test_shards_split_one_experiment(edison: Edison, two: Folder) -> None:
    done = edison(two, "plan", "--shards", "2")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: --shards needs one experiment\n  name one: hello, other\n"


def test_a_plan_knows_what_is_stored_and_why(edison: Edison, mini: Folder) -> None:
    def calls() -> tuple[dict[str, int], list[str]]:
        (plan,) = json.loads(edison(mini, "plan", "--json").out)["experiments"]
        return plan["calls"], plan["reasons"]

    assert calls()[0] == {"to_make": 4, "reused": 0}
    edison(mini, "run", "-q")
    found, reasons = calls()
    assert found == {"to_make": 0, "reused": 4}
    assert reasons == ["4 calls are answered by stored answers of the last 30 days"]
    assert "0 calls to make, 4 reused" in edison(mini, "plan").out

    mini.edit("rubrics/tone.yaml", "Sounds friendly", "Is friendly")
    assert calls()[0] == {"to_make": 2, "reused": 2}, "only the judge reads the rubric"
    mini.edit("prompts/hello.md", "friendly", "warm")
    found, reasons = calls()
    assert found == {"to_make": 4, "reused": 0}
    assert reasons[-1].startswith("no stored answer of the last 30 days fits")


@pytest.mark.nightly
def test_after_a_run_nothing_is_left_to_do_and_nothing_untrue_is_said(
    edison: Edison, support: Folder
) -> None:
    edison(support, "run", "-q")
    done = edison(support, "plan").out
    assert "0 calls to make, 188 reused" in done
    assert "0-0" not in done
    assert "nothing is measured" not in done


def test_tokens_are_estimated_from_earlier_answers(edison: Edison, mini: Folder) -> None:
    rows = [{"id": f"c{n}", "input": {"name": f"N{n}"}, "expected": f"N{n}"} for n in range(30)]
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.edit("models.yaml", "model: small", "model: small, price: {in: 1, out: 5}")
    edison(mini, "run", "-q", "--yes", "--limit", "9")
    (few,) = json.loads(edison(mini, "plan", "--json").out)["experiments"]
    assert "tokens are estimated from those of earlier answers" not in few["reasons"]
    edison(mini, "run", "-q", "--yes", "--limit", "10")
    (plan,) = json.loads(edison(mini, "plan", "--json").out)["experiments"]
    assert "tokens are estimated from those of earlier answers" in plan["reasons"]
    (run,) = json.loads(edison(mini, "run", "--yes", "--json").out)["runs"]
    cost = plan["cost_microusd"]
    assert cost["low"] <= run["cost_microusd"] <= cost["high"] < few["cost_microusd"]["low"]
