from __future__ import annotations

import ast
from itertools import combinations

import pytest

from edison_ci.features.simulator.assignment import known_cases
from edison_ci.features.simulator.code_task import mutate, stub
from edison_ci.features.simulator.tasks import Task

pytestmark = pytest.mark.daily

FAULTS = ("edge", "correct", "hints", "docstring", "quiet")


def test_a_function_without_faults_is_the_reference_itself() -> None:
    for case in known_cases(Task.CODE):
        source = str(case.expected)
        assert mutate(source, frozenset(), 0) == source


def test_every_careless_version_is_valid_python_and_differs() -> None:
    for case in known_cases(Task.CODE):
        source = str(case.expected)
        for count in (1, 5):
            for faults in combinations(FAULTS, count):
                code = mutate(source, frozenset(faults), count)
                assert ast.dump(ast.parse(code)) != ast.dump(ast.parse(source)), (case.id, faults)


def test_a_slip_is_made_in_ordinary_input_not_in_a_guard() -> None:
    source = (
        'def f(n: int) -> int:\n    if n < 1:\n        raise ValueError("n")\n    return n + 7\n'
    )
    code = mutate(source, frozenset({"correct"}), 0)
    assert "if n < 1" in code and "return n + 7" not in code


def test_a_stub_has_the_signature_and_the_results_of_the_examples() -> None:
    said = (
        "Write Python code for area: Multiply two numbers.\n"
        "Signature: def area(a: int, b: int) -> int\n- area(2, 3) gives 6\n- area(1) gives 1\n"
    )
    namespace: dict[str, object] = {}
    exec(stub(said), namespace)
    area = namespace["area"]
    assert callable(area) and area(2, 3) == 6
    assert area.__doc__ == "Multiply two numbers."


def test_a_stub_can_be_made_of_anything() -> None:
    for said in (
        "",
        "def (",
        "def f(x, -> y",
        "def class(x)",
        "for print",
        "- f(1) gives )(",
        "\0",
    ):
        ast.parse(stub(said))
