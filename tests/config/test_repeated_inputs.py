"""Cases with the same input, as the prompts render it, are one case under several ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.prompt import read_prompt
from edison_ci.config.repeated_inputs import RepeatedInputs, repetition_sentence
from edison_ci.config.validation import inspect
from edison_ci.records import Case, CaseId

if TYPE_CHECKING:
    from edison_ci.config.prompt import Prompt
    from tests.conftest import Folder


def prompt(text: str) -> Prompt:
    found, problems = read_prompt(f"# user\n{text}\n".encode(), "prompts/hello.md")
    assert found is not None, [str(problem) for problem in problems]
    return found


HELLO = prompt("Say hello to {{ name }}.")


def case(id_: str, cluster: str | None = None, expected: Any = None, **inputs: Any) -> Case:
    return Case(CaseId(id_), inputs, expected=expected, cluster=cluster)


def found(*cases: Case, prompts: tuple[Prompt, ...] = (HELLO,)) -> RepeatedInputs:
    repeated = RepeatedInputs(prompts)
    for one in cases:
        repeated.add(one)
    return repeated


def test_the_same_input_is_a_cluster_whatever_is_expected() -> None:
    repeated = found(
        case("a", name="Ada", expected="Ada"),
        case("b", name="Bo"),
        case("c", name="Ada", expected="Ms Ada"),
        case("d", name="Ada", note="no prompt uses this"),
    )
    assert repeated.clusters() == dict.fromkeys("acd", "input of a")
    assert (repeated.cases, repeated.inputs) == (4, 2)
    assert repeated.sentences() == ["4 cases, 2 different inputs: n is 2"]


def test_different_inputs_are_no_clusters() -> None:
    repeated = found(case("a", name="Ada"), case("b", name="ada"), case("c", name="Ada "))
    assert (repeated.clusters(), repeated.sentences()) == ({}, [])


def test_what_is_sent_decides_and_not_how_it_is_split_into_variables() -> None:
    whole = prompt("{{ first }}{{ last }}{% if loud == 'yes' %}!{% endif %}")
    repeated = found(
        case("a", first="Ada", last="m", loud="no"),
        case("b", first="Ad", last="am", loud="never"),
        prompts=(whole,),
    )
    assert repeated.clusters() == {"a": "input of a", "b": "input of a"}


def test_cases_are_equal_only_under_every_prompt() -> None:
    constant, other = prompt("Say hello to everybody."), prompt("Greet {{ name }} of {{ town }}.")
    cases = case("a", name="Ada", town="Rome"), case("b", name="Ada", town="Bonn")
    assert found(*cases, prompts=(HELLO, constant)).clusters() != {}
    assert found(*cases, prompts=(HELLO, constant, other)).clusters() == {}


def test_declared_clusters_with_a_common_input_are_one() -> None:
    repeated = found(
        case("a", "north", name="Ada"),
        case("b", "south", name="Bo"),
        case("c", "east", name="Cy"),
        case("d", "north", name="Bo"),
        case("e", name="Ada"),
        case("f", name="Di"),
        case("g", "east", name="Cy"),
    )
    joined = dict.fromkeys("abde", "north + south")
    assert repeated.clusters() == {**joined, "c": "east", "g": "east"}


def test_chains_of_common_inputs_are_one_cluster() -> None:
    names = [f"k{number}" for number in range(6)]
    cases = [case(f"{name} own", name, name=name) for name in names]
    links = zip(names[::2], names[1::2], strict=True)
    cases += [case(f"{a} {b}", a, name=b) for a, b in links]
    assert len(set(found(*cases).clusters().values())) == 3
    cases += [case("more", "k1", name="k2"), case("last", "k4", name="k3")]
    assert set(found(*cases).clusters().values()) == {"k0 + 5 others"}


def test_a_case_that_cannot_be_rendered_is_like_no_other() -> None:
    repeated = found(case("a", town="Rome"), case("b", town="Bonn"), case("c", name="Ada"))
    assert repeated.clusters() == {}


@pytest.mark.parametrize(
    ("clusters", "said"),
    [
        ({}, ""),
        ({"a": "north", "b": "north"}, ""),
        ({"a": "input of a", "b": "input of a"}, "3 cases, 2 different inputs: n is 2."),
        ({"a": "input of a", "z": "input of a"}, ""),
        (
            {"a": "input of a", "b": "input of a", "c": "north"},
            "3 cases in 2 clusters of declared or same inputs: n is 2.",
        ),
    ],
)
def test_only_repeated_inputs_are_told(clusters: dict[str, str], said: str) -> None:
    assert repetition_sentence(["a", "b", "c"], clusters) == said


def test_validation_warns_of_repeated_inputs(mini: Folder) -> None:
    def warned() -> list[str]:
        return [str(problem) for problem in inspect(mini.path).problems]

    assert warned() == []
    rows = mini.read("datasets/names.jsonl")
    mini.write("datasets/names.jsonl", rows + rows.replace('"ada"', '"ada2"').replace("bo", "bo2"))
    (said,) = warned()
    assert "4 cases, 2 different inputs: cases with the same input count as one" in said


def test_validation_warns_of_a_prompt_without_variables(mini: Folder) -> None:
    mini.edit("prompts/hello.md", "{{ name }}", "everybody")
    (said,) = [str(problem) for problem in inspect(mini.path).problems]
    assert "all 2 cases have the same input and count as one" in said
    assert "use a variable of the dataset in the prompt" in said
