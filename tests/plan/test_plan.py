"""Plans of small projects, every number worked out by hand."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

import edison_ci
from edison_ci import Plan, load_project, plan_run
from edison_ci.errors import ConfigError
from edison_ci.plan.estimate import CostRange
from edison_ci.plan.plan import as_json, matrix
from edison_ci.plan.selection import shard_of
from edison_ci.stats.power import cases_for_margin, smallest_effect

if TYPE_CHECKING:
    from tests.conftest import Folder

MODELS = """\
gen:
  provider: openai_compatible
  model: g
  base_url: http://localhost:9
  price: {in: 2, out: 8}
  limits: {concurrency: 2}
other: {use: gen, model: o, price: {in: 1, out: 1}}
judge: {use: gen, model: j, price: {in: 3, out: 5}}
mod: {use: gen, model: m, price: free}
"""
PROMPT = "Write one short friendly sentence that greets {{ name }}."
"""Rendered for a name of four letters: 51 bytes, so 13 tokens, and 4 around the message."""
EXPERIMENT = """\
experiment: greet
objective: Greet people by their name in a friendly way.
prompts: [prompts/greet.md]
models: [gen]
dataset: datasets/names.jsonl
checks: [{icontains: hello}]
"""
IN = 17
"""Tokens that one question is."""
RUBRIC = """\
rubric: tone
criteria:
  - {name: Warmth, description: Sounds friendly and warm., weight: 0.5}
  - {name: Brevity, description: One short sentence only., weight: 0.5}
"""
JUDGED = 400 + 8 + 8
"""Tokens a judge reads beside question and answer: instructions and 31 bytes a criterion."""


@pytest.fixture
def greet(folder: Folder) -> Folder:
    """A project with ten cases of equal length and written prices."""
    rows = [{"id": f"case-{n}", "input": {"name": f"Ann{n}"}} for n in range(10)]
    folder.write("edison.yaml", "version: 1\nproject: greet\n")
    folder.write("models.yaml", MODELS)
    folder.write("prompts/greet.md", PROMPT + "\n")
    folder.write("rubrics/tone.yaml", RUBRIC)
    folder.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    folder.write("experiments/greet.yaml", EXPERIMENT)
    return folder


def add(folder: Folder, text: str) -> None:
    folder.write("experiments/greet.yaml", EXPERIMENT + text)


def planned(folder: Folder, **options: Any) -> Plan:
    project = load_project(folder.path)
    return plan_run(project, project.experiment("greet"), **options)


def by_phase(plan: Plan) -> dict[str, list[tuple[str, int, CostRange, CostRange]]]:
    """Return (model, calls, tokens in, tokens out) of the loads of each phase."""
    found: dict[str, list[tuple[str, int, CostRange, CostRange]]] = {}
    for load in plan.loads:
        entry = (load.name, load.calls, load.tokens_in, load.tokens_out)
        found.setdefault(load.phase, []).append(entry)
    return found


def flat(value: float) -> CostRange:
    return CostRange(value, value)


def test_the_public_name_is_a_function_whatever_is_imported(greet: Folder) -> None:
    project = load_project(greet.path)
    assert edison_ci.plan_run(project, project.experiment("greet")).cells == 10
    assert isinstance(planned(greet), edison_ci.Plan)


# --- generating -----------------------------------------------------------------------------------


def test_one_prompt_one_model(greet: Folder) -> None:
    found = planned(greet)
    assert (found.cases, found.cells, found.skipped, found.holdout) == (10, 10, 0, 0)
    assert by_phase(found) == {"generate": [("gen", 10, flat(10 * IN), CostRange(4_000, 6_000))]}
    assert found.calls == 10
    assert found.tokens == CostRange(170 + 4_000, 170 + 6_000)
    assert found.cost_microusd == CostRange(170 * 2 + 4_000 * 8, 170 * 2 + 6_000 * 8)
    assert found.seconds.low == pytest.approx(5 * (0.3 + 400 / 120))
    assert found.seconds.high == pytest.approx(5 * (1.5 + 600 / 25))
    assert found.simulated is False
    assert found.blockers == []


def test_the_document_has_whole_numbers_rounded_outwards(greet: Folder) -> None:
    told = as_json(planned(greet))
    assert told["calls"] == {"to_make": 10, "reused": 0}
    assert told["tokens"] == {"low": 4_170, "high": 6_170}
    assert told["cost_microusd"] == {"low": 32_340, "high": 48_340}
    assert told["seconds"] == {"low": 18, "high": 128}
    assert told["iterations"] == {"low": 1, "high": 1}
    assert told["by_phase"] == {
        "generate": {
            "calls": 10,
            "tokens": {"low": 4_170, "high": 6_170},
            "cost_microusd": {"low": 32_340, "high": 48_340},
            "seconds": {"low": 18, "high": 128},
        }
    }
    assert told["by_model"] == [
        {
            "phase": "generate",
            "model": "gen",
            "provider": "openai_compatible",
            "simulated": False,
            "tokens_exact": False,
            "price": {"in": 2.0, "out": 8.0},
            **told["by_phase"]["generate"],
        }
    ]


def test_repeats_multiply_the_answers(greet: Folder) -> None:
    add(greet, "repeats: 3\n")
    found = planned(greet)
    assert (found.cases, found.cells) == (10, 30)
    assert by_phase(found)["generate"] == [("gen", 30, flat(30 * IN), CostRange(12_000, 18_000))]


def test_several_prompts_are_added_up_for_each_model(greet: Folder) -> None:
    greet.write("prompts/long.md", f"# system\n{'x' * 40}\n\n# user\n{PROMPT}\n")
    greet.edit("experiments/greet.yaml", "greet.md]", "greet.md, prompts/long.md]")
    found = planned(greet)
    assert found.cells == 20
    both = 10 * IN + 10 * (IN + 10 + 4)
    assert by_phase(found)["generate"] == [("gen", 20, flat(both), CostRange(8_000, 12_000))]


def test_a_grid_is_one_load_for_each_of_its_points(greet: Folder) -> None:
    greet.edit(
        "experiments/greet.yaml",
        "[gen]",
        "[{use: gen, params: {temperature: [0, 1], max_tokens: [100, 450]}}, other]",
    )
    found = planned(greet)
    assert found.cells == 50
    assert by_phase(found)["generate"] == [
        ("gen[temperature=0,max_tokens=100]", 10, flat(170), CostRange(1_000, 1_000)),
        ("gen[temperature=0,max_tokens=450]", 10, flat(170), CostRange(4_000, 4_500)),
        ("gen[temperature=1,max_tokens=100]", 10, flat(170), CostRange(1_000, 1_000)),
        ("gen[temperature=1,max_tokens=450]", 10, flat(170), CostRange(4_000, 4_500)),
        ("other", 10, flat(170), CostRange(4_000, 6_000)),
    ]
    # The four points share one model and so one client; the other model runs beside them.
    clients = [load.seconds.high for load in found.loads]
    assert found.seconds.high == pytest.approx(max(sum(clients[:4]), clients[4]))


@pytest.mark.parametrize(
    ("limit", "low", "high"),
    [(1, 1, 1), (399, 399, 399), (400, 400, 400), (500, 400, 500), (601, 400, 600)],
)
def test_the_longest_answer_allowed_caps_the_estimate(
    greet: Folder, limit: int, low: int, high: int
) -> None:
    greet.edit("models.yaml", "model: g\n", f"model: g\n  params: {{max_tokens: {limit}}}\n")
    assert by_phase(planned(greet))["generate"][0][3] == CostRange(10 * low, 10 * high)


def test_tools_and_an_output_schema_are_read_with_every_call(greet: Folder) -> None:
    schema = {"type": "object"}
    header = f"---\nexpect: json\noutput: {json.dumps(schema)}\n---\n"
    greet.write("prompts/greet.md", header + PROMPT + "\n")
    assert json.dumps(schema) == '{"type": "object"}'  # 18 bytes, 5 tokens
    assert by_phase(planned(greet))["generate"][0][2] == flat(10 * (IN + 5))


def test_cases_that_lack_a_variable_are_skipped(greet: Folder) -> None:
    with (greet.path / "datasets/names.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"id": "a", "x": 1}\n{"id": "b", "x": 2}\n')
    add(greet, "repeats: 3\n")
    found = planned(greet)
    assert (found.cases, found.cells, found.skipped, found.gating) == (12, 30, 6, 10)
    assert by_phase(found)["generate"][0][1] == 30
    assert [warning.code for warning in found.warnings] == ["skipped"]


def test_a_prompt_without_variables_has_one_case(greet: Folder) -> None:
    greet.write(
        "prompts/greet.md", "Write one short friendly sentence that greets the whole world.\n"
    )
    greet.edit("experiments/greet.yaml", "dataset: datasets/names.jsonl\n", "")
    found = planned(greet)
    assert (found.cases, found.cells) == (1, 1)
    assert found.smallest_effect is None


def test_data_that_is_invalid_is_not_planned(greet: Folder) -> None:
    greet.write("datasets/names.jsonl", '{"id": "a", "name": "x"}\n{"id": "a", "name": "y"}\n')
    with pytest.raises(ConfigError, match="used twice"):
        planned(greet)


# --- grading --------------------------------------------------------------------------------------


def test_each_judge_reads_question_answer_and_rubric(greet: Folder) -> None:
    add(greet, "rubric: rubrics/tone.yaml\njudges: {pointwise: [judge, other]}\n")
    found = planned(greet)
    read = CostRange(10 * (IN + 400 + JUDGED), 10 * (IN + 600 + JUDGED))
    wrote = CostRange(10 * 2 * 30, 10 * 2 * 60)
    assert by_phase(found)["judge"] == [("judge", 10, read, wrote), ("other", 10, read, wrote)]
    cost = found.loads[1].cost_microusd
    assert cost == CostRange(3 * read.low + 5 * wrote.low, 3 * read.high + 5 * wrote.high)


def test_a_short_answer_is_short_to_judge(greet: Folder) -> None:
    greet.edit("models.yaml", "model: g\n", "model: g\n  params: {max_tokens: 50}\n")
    add(greet, "rubric: rubrics/tone.yaml\njudges: {pointwise: [judge]}\n")
    assert by_phase(planned(greet))["judge"][0][2] == flat(10 * (IN + 50 + JUDGED))


def test_the_default_judge_judges(greet: Folder) -> None:
    greet.write("edison.yaml", "version: 1\nproject: greet\ndefaults: {judge: judge}\n")
    add(greet, "rubric: rubrics/tone.yaml\n")
    assert [entry[0] for entry in by_phase(planned(greet))["judge"]] == ["judge"]


def test_a_grader_reads_its_own_text_too(greet: Folder) -> None:
    text = "Is {{ output }} a kind way to greet somebody? Answer yes or no."  # 63 bytes
    greet.write("prompts/kind.md", f"---\nid: kind\ntype: grader\n---\n{text}\n")
    add(greet, "judges: {graders: [{prompt: prompts/kind.md, by: judge}]}\n")
    own = math.ceil(len(text) / 4)
    expected = (
        "judge",
        10,
        CostRange(10 * (IN + 400 + own), 10 * (IN + 600 + own)),
        CostRange(50, 600),
    )
    assert by_phase(planned(greet))["grade"] == [expected]


@pytest.mark.parametrize(
    ("models", "all_pairs", "pairs"), [(1, False, 0), (2, False, 1), (3, False, 2), (3, True, 3)]
)
def test_a_pairwise_judge_sees_each_pair_in_both_orders(
    greet: Folder, models: int, all_pairs: bool, pairs: int
) -> None:
    names = ["gen", "other", "mod"][:models]
    greet.edit("experiments/greet.yaml", "[gen]", f"[{', '.join(names)}]")
    text = greet.read("experiments/greet.yaml")
    every = str(all_pairs).lower()
    judges = f"judges: {{pairwise: {{by: judge, all_pairs: {every}}}}}\n"
    greet.write("experiments/greet.yaml", text + judges)
    found = by_phase(planned(greet))
    calls = 10 * 2 * pairs
    if not pairs:
        assert "pairwise" not in found
        return
    ((name, asked, read, wrote),) = found["pairwise"]
    assert (name, asked) == ("judge", calls)
    assert read.low == pytest.approx(calls * (400 + IN + 2 * 400))
    assert read.high == pytest.approx(calls * (400 + IN + 2 * 600))
    assert wrote == CostRange(20 * calls, 80 * calls)


def test_a_screen_by_a_model_reads_every_answer(greet: Folder) -> None:
    add(
        greet,
        "safety: {pii: block, moderation: {by: mod}, toxicity: {by: judge, action: block}}\n",
    )
    read = CostRange(10 * (IN + 400), 10 * (IN + 600))
    assert by_phase(planned(greet))["safety"] == [
        ("mod", 10, read, CostRange(50, 600)),
        ("judge", 10, read, CostRange(50, 600)),
    ]


def test_a_screen_that_is_off_calls_nobody(greet: Folder) -> None:
    add(greet, "safety: {moderation: {by: mod, action: off}}\n".replace("off", '"off"'))
    assert "safety" not in by_phase(planned(greet))


def test_work_of_one_model_in_several_phases_is_done_in_a_row(greet: Folder) -> None:
    add(
        greet,
        "rubric: rubrics/tone.yaml\n"
        "judges: {pointwise: [judge]}\n"
        "safety: {moderation: {by: judge}}\n",
    )
    found = planned(greet)
    generate, judge, screen = (load.seconds.high for load in found.loads)
    assert found.seconds.high == pytest.approx(max(generate, judge + screen))


# --- money ----------------------------------------------------------------------------------------


def test_an_unknown_price_is_null_and_stands_in_the_way(greet: Folder) -> None:
    greet.edit("models.yaml", "  price: {in: 2, out: 8}\n", "")
    found = planned(greet)
    assert found.cost_microusd is None
    told = as_json(found)
    assert told["cost_microusd"] is None
    assert told["by_phase"]["generate"]["cost_microusd"] is None
    assert told["by_model"][0]["price"] is None
    assert found.blockers == ["the price of gen is unknown: add price to models.yaml"]


def test_an_unknown_price_is_named_once_for_a_grid(greet: Folder) -> None:
    greet.edit("models.yaml", "  price: {in: 2, out: 8}\n", "")
    greet.edit("experiments/greet.yaml", "[gen]", "[{use: gen, params: {temperature: [0, 1]}}]")
    assert len(planned(greet).blockers) == 1


def test_free_models_cost_nothing(greet: Folder) -> None:
    greet.edit("experiments/greet.yaml", "[gen]", "[mod]")
    assert planned(greet).cost_microusd == CostRange(0, 0)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("model: g\n", "model: g\n  key_env: MY_KEY\n", "MY_KEY is not set (gen needs it)"),
        (
            "base_url: http://localhost:9",
            "base_url_env: MY_PLACE",
            "MY_PLACE is not set (the address of gen)",
        ),
    ],
)
def test_what_is_not_set_stands_in_the_way(
    greet: Folder, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    greet.write(
        ".edison/trust.yaml",
        'version: 1\nkeys: [{env: MY_KEY, hosts: ["http://localhost:9"]}]\n',
    )
    greet.edit("models.yaml", old, new)
    assert planned(greet).blockers == [said]
    monkeypatch.setenv(said.split()[0], "x")
    assert planned(greet).blockers == []


def test_code_that_is_not_allowed_stands_in_the_way(greet: Folder) -> None:
    greet.write("checks/tone.py", "def check(output, expected, case):\n    return True\n")
    greet.edit(
        "experiments/greet.yaml", "{icontains: hello}", "{not: {python: checks/tone.py:check}}"
    )
    said = "a check runs code of the repository: pass --allow-code or set settings.allow_code"
    assert planned(greet).blockers == [said]
    greet.write("edison.yaml", "version: 1\nproject: greet\nsettings: {allow_code: true}\n")
    assert planned(greet).blockers == []


# --- the loop -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "low"), [(1, 1), (2, 2), (3, 2), (5, 3), (10, 6), (100, 60)])
def test_a_loop_takes_60_to_100_percent_of_its_iterations(
    greet: Folder, most: int, low: int
) -> None:
    add(greet, f"stop: {{max_iterations: {most}}}\n")
    once, loop = planned(greet), planned(greet, loop=True)
    assert loop.iterations == CostRange(low, most)
    assert loop.cells == once.cells, "cells are those of one iteration"
    assert loop.calls == most * once.calls
    assert loop.tokens == CostRange(low * once.tokens.low, most * once.tokens.high)
    assert once.cost_microusd is not None
    assert loop.cost_microusd == once.cost_microusd.times(low, most)
    assert loop.seconds == once.seconds.times(low, most)


def test_a_loop_takes_the_projects_iterations_when_it_has_none(greet: Folder) -> None:
    assert planned(greet, loop=True).iterations == CostRange(6, 10)
    greet.write("edison.yaml", "version: 1\nproject: greet\ndefaults: {max_iterations: 4}\n")
    assert planned(greet, loop=True).iterations == CostRange(3, 4)


def test_a_loop_refines_in_every_iteration(greet: Folder) -> None:
    add(greet, "stop: {max_iterations: 5}\nrefine: {by: judge, examples: 4, candidates: 2}\n")
    ((name, calls, read, wrote),) = by_phase(planned(greet, loop=True))["refine"]
    assert (name, calls) == ("judge", 5 * 2)
    assert read.low == pytest.approx(3 * 2 * (400 + 4 * (IN + 400)))
    assert read.high == pytest.approx(5 * 2 * (400 + 4 * (IN + 600)))
    assert wrote == CostRange(3 * 2 * 300, 5 * 2 * 900)
    assert "refine" not in by_phase(planned(greet))


# --- what the cases can show ----------------------------------------------------------------------


def write_cases(folder: Folder, count: int) -> None:
    rows = [{"id": f"case-{n}", "input": {"name": f"Ann{n}"}} for n in range(count)]
    folder.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(("cases", "points"), [(50, 10.1), (100, 7.1), (200, 5.0)])
def test_the_smallest_effect_is_that_of_a_two_sided_paired_test(
    greet: Folder, cases: int, points: float
) -> None:
    # sd 0.25: (1.96 + 0.84) * 25 / sqrt(n) points, a little more for the t distribution.
    write_cases(greet, cases)
    found = planned(greet)
    assert found.smallest_effect == pytest.approx(points / 100, abs=0.0006)
    assert found.smallest_effect == smallest_effect(cases, sd=0.25).value
    assert (found.margin, found.cases_for_margin) == (None, None)


@pytest.mark.parametrize(
    ("gate", "margin", "needed"),
    [
        ("margin: 5pp", 0.05, 200),  # STATS 7: s=.25, delta .05
        ("margin: 10pp", 0.10, 63),
        ("confidence: 95%", 0.05, 200),
    ],
)
def test_the_margin_of_the_gate_decides_how_many_cases_are_needed(
    greet: Folder, gate: str, margin: float, needed: int
) -> None:
    add(greet, f"gates: [{{metric: composite, no_worse_than: base, {gate}}}]\n")
    found = planned(greet)
    assert found.margin == pytest.approx(margin)
    assert found.cases_for_margin == needed


def test_the_gates_own_confidence_and_worst_case_count(greet: Folder) -> None:
    write_cases(greet, 100)
    add(
        greet,
        "gates: [{metric: pass_rate, no_worse_than: base, margin: 8pp, confidence: 90%, "
        "worst_case_drop: 0.5}]\n",
    )
    found = planned(greet)
    wanted = cases_for_margin(0.25, margin=0.08, alpha=0.1, worst_case_drop=0.5).value
    assert found.cases_for_margin == wanted
    assert found.smallest_effect == smallest_effect(100, sd=0.25, alpha=0.1).value


def test_the_strictest_gate_on_a_score_counts(greet: Folder) -> None:
    add(
        greet,
        "gates:\n"
        "  - {metric: composite, no_worse_than: base, margin: 10pp}\n"
        "  - {metric: check.icontains, no_worse_than: base, margin: 4pp}\n"
        "  - {metric: errors, no_worse_than: base, margin: 1pp}\n"
        "  - {metric: cost_usd.mean, no_worse_than: base, margin: 1%}\n"
        "  - {metric: pass_rate, at_least: 80%}\n",
    )
    assert planned(greet).margin == pytest.approx(0.04)


def test_a_relative_margin_says_what_it_is_taken_of(greet: Folder) -> None:
    add(greet, "gates: [{metric: composite, no_worse_than: base, margin: 10%}]\n")
    found = planned(greet)
    assert found.cases_for_margin == 63
    assert any("relative" in reason for reason in found.reasons)


def test_a_margin_of_nothing_can_never_be_shown(greet: Folder) -> None:
    add(greet, "gates: [{metric: composite, no_worse_than: base, margin: 0pp}]\n")
    found = planned(greet)
    assert (found.margin, found.cases_for_margin) == (0, None)


def test_quarantined_cases_do_not_count_as_evidence(greet: Folder) -> None:
    greet.write(
        "quarantine.yaml",
        "version: 1\ncases: [{experiment: greet, case: case-1, reason: flaky, since: 2026-01-01, "
        "until: 2999-01-01, owner: me}]\n",
    )
    found = planned(greet)
    assert (found.cases, found.cells, found.gating) == (10, 10, 9)
    assert found.smallest_effect == smallest_effect(9, sd=0.25).value


def test_the_holdout_is_counted(greet: Folder) -> None:
    write_cases(greet, 100)
    add(greet, "split: {holdout: 0.4, seed: 0}\n")
    assert 30 <= planned(greet).holdout <= 50
    assert as_json(planned(greet))["holdout"] == planned(greet).holdout


# --- shards and size ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7, 256])
def test_shards_have_every_case_exactly_once(greet: Folder, count: int) -> None:
    found = planned(greet, shards=count)
    expected = [0] * count
    for number in range(10):
        expected[shard_of(f"case-{number}", count) - 1] += 1
    assert found.shards == expected
    assert sum(found.shards) == found.cases
    assert [row["shard"] for row in matrix(found)["include"]] == [
        f"{index}/{count}" for index, cases in enumerate(expected, 1) if cases
    ]


def test_many_cases_are_counted_by_sampling(greet: Folder) -> None:
    rows = "".join(
        json.dumps({"id": f"{n}", "input": {"name": "Anna"}}) + "\n" for n in range(6_000)
    )
    greet.write("datasets/names.jsonl", rows)
    greet.edit(
        "experiments/greet.yaml",
        "dataset: datasets/names.jsonl",
        "datasets: [{path: datasets/names.jsonl, limits: {max_rows: 10000}}]",
    )
    found = planned(greet)
    assert found.cells == 6_000
    assert by_phase(found)["generate"][0][2] == flat(6_000 * IN)
    assert found.reasons[-1] == "tokens are counted on 5,000 cases and every 100th after them"


def test_stored_results_are_noticed(greet: Folder) -> None:
    assert planned(greet).reasons == ["no results are stored yet, so every call would be made"]
    greet.write(".edison/results.db", "")
    assert planned(greet).reasons == []
