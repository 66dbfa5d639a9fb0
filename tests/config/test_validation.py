"""Data and prompts must fit: what no case has is an error, what some lack is counted and listed."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from edison_ci.config.load import inspect_project
from edison_ci.config.validation import DataCheck
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import sorted_problems
from tests.conftest import Folder

TODAY = dt.date(2026, 11, 15)
EXPERIMENT = "experiments/hello.yaml"
PROMPT = "prompts/hello.md"
LINES = "---\nid: hello\n---\n# user\nSay hello to the person below, in one friendly sentence.\n"


class Data(Folder):
    """The small project, with a prompt and cases of a test's own."""

    def prompt(self, text: str, header: str = "id: hello") -> None:
        self.write(PROMPT, LINES.replace("id: hello", header) + text + "\n")

    def cases(self, *rows: dict[str, Any]) -> None:
        lines = (json.dumps({"id": f"c{number}", **row}) for number, row in enumerate(rows, 1))
        self.write("datasets/names.jsonl", "".join(f"{line}\n" for line in lines))

    def check(self) -> DataCheck:
        project, problems = inspect_project(WorkingTree(self.path), root=self.path, today=TODAY)
        assert project is not None
        assert [str(problem) for problem in problems] == []
        return DataCheck(project, project.experiments["hello"]).run()

    def said(self) -> list[str]:
        return [str(problem) for problem in sorted_problems(self.check().problems)]


@pytest.fixture
def data(mini: Folder) -> Data:
    return Data(mini.path)


def case(**inputs: Any) -> dict[str, Any]:
    return {"input": inputs, "expected": "yes"}


# --- prompts --------------------------------------------------------------------------------------


def test_data_that_fits_has_no_problems(data: Data) -> None:
    check = data.check()
    assert (check.cases, check.kinds, check.problems) == (2, {"golden": 2}, [])
    assert (check.skipped, check.skipped_count) == ({}, {})


def test_a_variable_that_no_case_has_is_an_error_where_it_is_used(data: Data) -> None:
    data.prompt("Dear {{ nmae }}, {{ place }}!")
    assert data.said() == [
        f"{PROMPT}:6:9: no case has a value for 'nmae' (did you mean 'name'?)",
        f"{PROMPT}:6:21: no case has a value for 'place' (cases have: expected, name)",
    ]


def test_a_variable_that_some_cases_lack_is_a_warning_with_their_ids(data: Data) -> None:
    data.prompt("Dear {{ name }} of {{ place }}!")
    data.cases(case(name="a", place="x"), case(name="b"), case(place="y"), case(name="d"))
    check = data.check()
    assert [str(problem) for problem in check.problems] == [
        f"{PROMPT}:6:23: warning: 3 of 4 cases lack name, place and will be skipped: c2, c3, c4 "
        "(complete them, or use the filter default)"
    ]
    assert check.skipped == {"hello": ["c2", "c3", "c4"]}
    assert check.skipped_count == {"hello": 3}


def test_only_the_first_few_are_listed(data: Data) -> None:
    data.prompt("Dear {{ name }} of {{ place }}!")
    data.cases(case(name="a", place="x"), *[case(name=str(n)) for n in range(20)])
    (found,) = data.said()
    assert "20 of 21 cases lack place and will be skipped: c2, c3, c4, c5, c6, ... (" in found


def test_what_cases_lack_inside_a_variable_is_named_as_it_is_written(data: Data) -> None:
    data.prompt("Dear {{ person.name }}, {% for t in tags %}{{ t.label }}{% endfor %}{{ xs[1] }}")
    whole = {"person": {"name": "Ada"}, "tags": [{"label": "x"}], "xs": [1, 2]}
    data.cases(
        case(**whole),
        case(**{**whole, "person": {}}),
        case(**{**whole, "tags": [{}]}),
        case(**{**whole, "xs": [1]}),
        case(**{**whole, "person": {}}),
    )
    (found,) = data.said()
    assert found.startswith(
        f"{PROMPT}:6:9: warning: 4 of 5 cases lack person.name, t.label, xs[1] and will be skipped:"
        " c2, c3, c4, c5"
    )


def test_what_every_case_lacks_inside_a_variable_is_an_error(data: Data) -> None:
    data.prompt("Dear {{ person.nmae }}!")
    data.cases(case(person={"name": "Ada"}), case(person={"name": "Bo"}))
    assert data.said() == [
        f"{PROMPT}:6:9: every case lacks person.nmae (complete them, or use the filter default)"
    ]


def test_a_default_makes_up_for_what_is_missing(data: Data) -> None:
    data.prompt(
        "Dear {{ name|default('you') }} {{ p.title|default('') }} {{ place }}!",
        "inputs: {name: string, p: object, place: {type: string, default: here}}",
    )
    data.cases(case(name="a"), case(), case(p={}))
    assert data.said() == []


def test_each_prompt_has_its_own_warning(data: Data) -> None:
    data.write("prompts/other.md", LINES.replace("id: hello", "id: other") + "{{ place }}\n")
    data.edit(EXPERIMENT, "[prompts/hello.md]", "[prompts/hello.md, prompts/other.md]")
    data.cases(case(name="a", place="x"), case(name="b"), case(place="y"), case(place="z"))
    first, second = data.said()
    assert "2 of 4 cases lack name and will be skipped: c3, c4" in first
    assert "1 of 4 cases lack place and will be skipped: c2" in second
    assert data.check().skipped_count == {"hello": 2, "other": 1}


def test_cases_that_cannot_be_rendered_are_errors_and_not_too_many(data: Data) -> None:
    data.prompt("{% for n in name %}{{ n }}{% endfor %}")
    data.cases(case(name=["fine"]), *[case(name="text") for _ in range(9)])
    found = data.said()
    assert len(found) == 6
    assert found[0] == f"{PROMPT}:5:1: 4 further cases cannot be rendered (fix the first ones)"
    assert found[1].endswith(
        "case 'c2' cannot be rendered: for iterates over a list, not over a text "
        "(fix the template or the case)"
    )


# --- no data --------------------------------------------------------------------------------------


def test_without_dataset_and_variables_there_is_one_case(data: Data) -> None:
    data.prompt("Just say hello.")
    data.edit(EXPERIMENT, "dataset: datasets/names.jsonl\n", "")
    data.edit(EXPERIMENT, 'checks:\n  - contains: "{{ expected }}"\n', "")
    check = data.check()
    assert (check.cases, check.problems) == (1, [])
    project, _ = inspect_project(WorkingTree(data.path), root=data.path, today=TODAY)
    assert project is not None
    assert [c.id for c in DataCheck(project, project.experiments["hello"])] == ["static"]


def test_without_dataset_every_variable_is_an_error(data: Data) -> None:
    data.prompt("{{ name }} {{ place }} {{ extra|default('') }}")
    data.edit(EXPERIMENT, "dataset: datasets/names.jsonl\n", "")
    assert data.said() == [
        f"{PROMPT}:6:4: 'name' has no value: the experiment has no dataset "
        f"(add dataset: to {EXPERIMENT})",
        f"{PROMPT}:6:15: 'place' has no value: the experiment has no dataset "
        f"(add dataset: to {EXPERIMENT})",
    ]


def test_no_case_left_is_an_error_at_the_dataset(data: Data) -> None:
    data.edit(
        EXPERIMENT,
        "dataset: datasets/names.jsonl",
        "datasets: [{path: datasets/names.jsonl, where: {tags: none}}]",
    )
    assert data.said() == [
        f"{EXPERIMENT}:5:11: no case is left (check where, take and the dataset)"
    ]
    data.edit(
        EXPERIMENT,
        "datasets: [{path: datasets/names.jsonl, where: {tags: none}}]",
        "dataset: datasets/names.jsonl",
    )
    data.write("datasets/names.jsonl", "")
    hint = "add one: edison dataset add hello --set name=TEXT"
    assert data.said() == [f"{EXPERIMENT}:5:10: there is no case in datasets/names.jsonl ({hint})"]


def test_bad_rows_are_reported_once_and_not_as_no_data(data: Data) -> None:
    data.write("datasets/names.jsonl", '{"id": 5, "input": {}}\n')
    assert data.said() == ["datasets/names.jsonl:1:8: row 1: id is 5, not a text (quote it)"]


# --- checks and graders ---------------------------------------------------------------------------


def test_what_a_check_uses_must_be_in_some_case(data: Data) -> None:
    data.edit(EXPERIMENT, '"{{ expected }}"', '"{{ expcted }}"')
    assert data.said() == [
        f"{EXPERIMENT}:7:15: no case has a value for 'expcted' (did you mean 'expected'?)"
    ]


def test_a_check_on_the_expected_output_needs_one_case_that_has_it(data: Data) -> None:
    data.cases({"input": {"name": "Ada"}}, {"input": {"name": "Bo"}})
    (found,) = data.said()
    assert found.startswith(f"{EXPERIMENT}:7:15: no case has a value for 'expected'")
    data.cases({"input": {"name": "Ada"}}, case(name="Bo"))
    assert data.said() == []


def test_checks_inside_combinators_count_too(data: Data) -> None:
    data.edit(EXPERIMENT, 'contains: "{{ expected }}"', 'not: {all_of: [{contains: "{{ gone }}"}]}')
    (found,) = data.said()
    assert "no case has a value for 'gone'" in found and found.startswith(f"{EXPERIMENT}:7:")


def test_what_a_grader_uses_must_be_in_some_case(data: Data) -> None:
    data.write(
        "prompts/tone.md",
        "---\ntype: grader\n---\n"
        "How friendly is {{ output }} to {{ nmae }}, given {{ expected }}?\n",
    )
    data.edit(
        EXPERIMENT,
        "judges: {pointwise: [judge]}",
        "judges: {pointwise: [judge], graders: [{prompt: prompts/tone.md, by: judge}]}",
    )
    data.edit(EXPERIMENT, 'checks:\n  - contains: "{{ expected }}"\n', "")
    assert data.said() == [
        "prompts/tone.md:4:36: no case has a value for 'nmae' (did you mean 'name'?)"
    ]
    data.edit("prompts/tone.md", "nmae", "name")
    assert data.said() == []
    data.cases({"input": {"name": "Ada"}})
    (found,) = data.said()
    assert found.startswith("prompts/tone.md:4:54: no case has a value for 'expected'")


def test_cases_that_a_grader_cannot_grade_are_a_warning(data: Data) -> None:
    data.write(
        "prompts/tone.md",
        "---\ntype: grader\n---\nHow friendly is this answer towards {{ who }}: {{ output }}?\n",
    )
    data.edit(
        EXPERIMENT,
        "judges: {pointwise: [judge]}",
        "judges: {pointwise: [judge], graders: [{prompt: prompts/tone.md, by: judge}]}",
    )
    data.cases(case(name="a", who="x"), case(name="b"))
    (found,) = [line for line in data.said() if "tone" in line]
    assert "warning: 1 of 2 cases lack who and will not be graded" in found


# --- quarantine and holdout -----------------------------------------------------------------------

ASIDE = (
    "{experiment: hello, case: %s, reason: It is flaky., since: 2026-11-01, until: 2026-12-01, "
    "owner: ada}"
)


def test_a_case_in_quarantine_must_exist(data: Data) -> None:
    good, bad = ASIDE % "ada", ASIDE % "adda"
    data.write("quarantine.yaml", f"version: 1\ncases:\n  - {good}\n  - {bad}\n")
    assert data.said() == ["quarantine.yaml:4:31: hello has no case 'adda' (remove it)"]


def test_a_case_in_quarantine_may_be_outside_the_part_that_runs(data: Data) -> None:
    data.write("quarantine.yaml", f"version: 1\ncases:\n  - {ASIDE % 'ada'}\n")
    data.edit(
        EXPERIMENT,
        "dataset: datasets/names.jsonl",
        "datasets: [{path: datasets/names.jsonl, where: {id: bo}}]",
    )
    (found,) = data.said()
    assert found.startswith("quarantine.yaml:3:31: warning: hello has no case 'ada'")


def test_another_experiments_quarantine_does_not_matter(data: Data) -> None:
    data.write("experiments/bye.yaml", data.read(EXPERIMENT).replace(": hello", ": bye"))
    other = (ASIDE % "zoe").replace("experiment: hello", "experiment: bye")
    data.write("quarantine.yaml", f"version: 1\ncases:\n  - {other}\n")
    assert data.said() == []


@pytest.mark.parametrize(
    ("cases", "held", "warned"), [(38, 15, True), (39, 16, False), (1, 0, True)]
)
def test_fewer_than_sixteen_held_out_cases_are_a_warning(
    data: Data, cases: int, held: int, warned: bool
) -> None:
    data.edit(EXPERIMENT, "checks:", "split: {holdout: 0.4, seed: 0}\nchecks:")
    data.cases(*({**case(name=f"n{n}"), "id": f"case-{n}"} for n in range(cases)))
    check = data.check()
    assert check.holdout == held
    assert [str(problem) for problem in check.problems] == (
        [
            f"{EXPERIMENT}:6:8: warning: only {held} cases are held out; "
            "with fewer than 16 an improvement cannot be verified (add cases)"
        ]
        if warned
        else []
    )


def test_without_split_or_with_nothing_held_out_there_is_no_warning(data: Data) -> None:
    assert data.said() == []
    data.edit(EXPERIMENT, "checks:", "split: {holdout: 0}\nchecks:")
    assert data.said() == []


# --- size -----------------------------------------------------------------------------------------


def test_what_is_kept_does_not_grow_with_the_data(data: Data) -> None:
    data.prompt("Dear {{ name }}, {{ p.x }}!")
    data.edit(
        EXPERIMENT,
        "dataset: datasets/names.jsonl",
        "datasets: [{path: datasets/names.jsonl, limits: {max_rows: 100000}}]",
    )
    rows = [case(name="a", p={}, **{f"odd{number}": 1}) for number in range(3_000)]
    data.cases(*rows, case(name="a", p={"x": 1}, late="x"))
    check = data.check()
    assert check.skipped_count == {"hello": 3_000}
    assert len(check.skipped["hello"]) == 5
    assert len(check._present) <= 1_010
    assert len(check.problems) == 1
