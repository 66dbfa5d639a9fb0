"""The cases of the four templates are varied, consistent, and as hard as they say."""

from __future__ import annotations

import functools
import itertools
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from edison_ci.config.holdout import holdout_of
from edison_ci.config.load import Experiment, Project, load_project
from tests.conftest import EXAMPLES
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from edison_ci.records import Case

TEMPLATES = ("code-generation", "creative-writing", "customer-support", "data-extraction")
each_template = pytest.mark.parametrize("template", TEMPLATES)


@functools.cache
def load(template: str) -> tuple[Project, Experiment, list[Case]]:
    project = load_project(EXAMPLES / template)
    (experiment,) = project.experiments.values()
    feed = project.cases(experiment)
    cases = list(feed)
    assert feed.problems == []
    return project, experiment, cases


def cases_of(template: str) -> list[Case]:
    return load(template)[2]


def told(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def inputs_of(case: Case) -> str:
    return " ".join(told(value) for value in case.inputs.values())


@each_template
def test_there_are_at_least_sixty_cases_of_two_kinds(template: str) -> None:
    kinds = Counter(case.kind for case in cases_of(template))
    assert kinds.total() >= 60
    assert kinds.keys() == {"golden", "adversarial"}
    assert kinds["adversarial"] >= 15 and kinds["golden"] >= 40


@each_template
def test_ids_are_given_readable_and_unique_across_files(template: str) -> None:
    files = sorted((EXAMPLES / template / "datasets").iterdir())
    rows = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    ids = [row["id"] for row in rows]
    assert len(set(ids)) == len(ids) == len(cases_of(template))
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", case_id) for case_id in ids)


@each_template
def test_no_two_cases_are_nearly_the_same(template: str) -> None:
    words = {
        case.id: set(re.findall(r"\w+", inputs_of(case).casefold())) for case in cases_of(template)
    }
    for (one, these), (other, those) in itertools.combinations(words.items(), 2):
        alike = len(these & those) / len(these | those)
        assert alike < 0.6, f"{one} and {other} share {alike:.0%} of their words"


@each_template
def test_no_two_cases_contradict_each_other(template: str) -> None:
    expected = defaultdict(set)
    for case in cases_of(template):
        same = " ".join(inputs_of(case).casefold().split())
        expected[same].add(json.dumps(case.expected, sort_keys=True))
    assert all(len(answers) == 1 for answers in expected.values())


@each_template
def test_every_case_is_tagged_and_rated(template: str) -> None:
    cases = cases_of(template)
    assert all(case.tags and len(set(case.tags)) == len(case.tags) for case in cases)
    difficulties = Counter(case.difficulty for case in cases)
    assert difficulties.keys() == {1, 2, 3, 4, 5}
    assert max(difficulties.values()) < 0.6 * len(cases)
    tags = Counter(tag for case in cases for tag in case.tags)
    assert len([tag for tag, count in tags.items() if count >= 3]) >= 4


@each_template
def test_adversarial_cases_are_harder_than_golden_ones(template: str) -> None:
    levels = defaultdict(list)
    for case in cases_of(template):
        levels[case.kind].append(case.difficulty or 0)
    mean = {kind: sum(found) / len(found) for kind, found in levels.items()}
    assert mean["adversarial"] > mean["golden"]


@each_template
def test_every_case_has_the_variables_its_prompt_needs(template: str) -> None:
    _, experiment, cases = load(template)
    (prompt,) = experiment.prompts
    for case in cases:
        assert case.inputs.keys() >= prompt.required
        assert prompt.render(case.inputs)[-1].role == "user"


@each_template
def test_the_split_holds_out_at_least_sixteen_cases_of_both_kinds(template: str) -> None:
    project, experiment, cases = load(template)
    assert experiment.file.split is not None
    holdout = holdout_of(project, experiment)
    held = [*filter(holdout.has, cases)]
    assert 16 <= len(held) <= len(cases) - 16
    assert {case.kind for case in held} == {"golden", "adversarial"}
    sides: dict[str, set[bool]] = defaultdict(set)
    for case in cases:
        if case.cluster is not None:
            sides[case.cluster].add(holdout.has(case))
    assert all(len(found) == 1 for found in sides.values())


@each_template
def test_a_cluster_has_more_than_one_case(template: str) -> None:
    clusters = Counter(case.cluster for case in cases_of(template) if case.cluster is not None)
    assert all(count > 1 for count in clusters.values()), clusters


# --- what each template promises ------------------------------------------------------------------


def test_the_fact_a_customer_needs_is_in_the_policy_and_not_in_the_message() -> None:
    for case in cases_of("customer-support"):
        fact = case.expected
        assert isinstance(fact, str) and fact.strip() == fact and fact
        assert fact in told(case.inputs["policy"]), case.id
        assert fact.casefold() not in told(case.inputs["message"]).casefold(), case.id


def test_extracted_fields_fit_their_schema_and_are_in_the_document() -> None:
    project, experiment, cases = load("data-extraction")
    (prompt,) = experiment.prompts
    path = EXAMPLES / "data-extraction" / "prompts" / "invoice-fields.schema.json"
    schema = json.loads(path.read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    for case in cases:
        assert [error.message for error in validator.iter_errors(case.expected)] == [], case.id
        assert isinstance(case.expected, dict)
        number = case.expected["invoice_number"]
        document = re.sub(r"\s", "", told(case.inputs["document"]))
        assert number is None or re.sub(r"\s", "", str(number)) in document, case.id
    assert prompt.id == "invoice-fields" and project.file.project


def test_writing_briefs_name_the_words_a_story_must_include() -> None:
    for case in cases_of("creative-writing"):
        words = case.inputs["must_include"]
        assert isinstance(words, list) and words
        assert all(isinstance(word, str) and word.strip() for word in words)


RUN_REFERENCES = """
import importlib.util, json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
spec = importlib.util.spec_from_file_location("run_examples", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
verdicts = {}
for case in json.load(sys.stdin):
    answer = "Here it is:\\n```python\\n" + case["expected"] + "```\\n"
    verdicts[case["id"]] = module.check(answer, case["expected"], case)
print(json.dumps(verdicts))
"""


def verdicts_on(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Run the check of the template on the references, in a process of its own."""
    check = EXAMPLES / "code-generation" / "checks" / "run_examples.py"
    done = subprocess.run(
        [sys.executable, "-IB", "-c", RUN_REFERENCES, str(check)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    verdicts: dict[str, Any] = json.loads(done.stdout)
    return verdicts


def test_reference_functions_pass_all_their_examples() -> None:
    cases = [
        {"id": case.id, "input": dict(case.inputs), "expected": case.expected}
        for case in cases_of("code-generation")
    ]
    verdicts = verdicts_on(cases)
    assert len(verdicts) == len(cases)
    assert {case_id: v["reason"] for case_id, v in verdicts.items() if not v["pass"]} == {}


def test_a_wrong_function_does_not_pass() -> None:
    """The check itself must be able to fail."""
    case = cases_of("code-generation")[0]
    wrong = f"def {case.inputs['function']}(*args):\n    return 'no'\n"
    verdicts = verdicts_on([{"id": "w", "input": dict(case.inputs), "expected": wrong}])
    assert verdicts["w"]["pass"] is False


def test_every_coding_task_shows_examples_that_call_its_function() -> None:
    for case in cases_of("code-generation"):
        function, examples = case.inputs["function"], case.inputs["examples"]
        assert isinstance(examples, list) and len(examples) >= 2, case.id
        for example in examples:
            assert isinstance(example, dict) and example.keys() == {"call", "result"}
            assert f"{function}(" in told(example["call"]), case.id
        assert f"def {function}(" in told(case.inputs["signature"])
        assert f"def {function}(" in told(case.expected)
