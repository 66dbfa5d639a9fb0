"""Ranges that people meet in several places are one, and agree."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click
import pytest

from edison_ci import ranges
from edison_ci.api.run_control import SteerRequest, budget_microusd
from edison_ci.cli.app import all_commands
from edison_ci.errors import UsageError
from edison_ci.resources import resource_folder
from tests.conftest import ROOT

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

OPTIONS = {
    "--budget": {ranges.BUDGET_USD},
    "--repeats": {ranges.REPEATS},
    "--iterations": {ranges.ITERATIONS},
    "--candidates": {ranges.CANDIDATES},
}
"""Options that set what a file, a form or a request can set too."""
LIMIT = re.compile(r'(?:min|max|maxlength|minlength)="([^"]*)"')
SCALE_OF_A_GRADE = {"0", "1"}


def test_options_have_the_ranges_of_files_forms_and_requests() -> None:
    found: dict[str, set[tuple[Any, Any]]] = {}
    for command in all_commands().values():
        for param in command.params:
            for name in {*param.opts} & {*OPTIONS}:
                assert isinstance(param.type, click.FloatRange | click.IntRange), command.name
                if command.name == "add":  # of schedules, which goes into a file
                    assert (param.type.min, param.type.max) == ranges.RUN_USD
                else:
                    found.setdefault(name, set()).add((param.type.min, param.type.max))
    assert found == OPTIONS


def test_the_document_of_the_interface_has_the_same_ranges() -> None:
    text = (resource_folder("schemas") / "openapi.json").read_text("utf-8")
    properties = re.findall(r'"(budget_usd|calls)": (\{[^{}]*"minimum"[^{}]*\})', text)
    found = {
        (name, json.loads(schema)["minimum"], json.loads(schema)["maximum"])
        for name, schema in properties
    }
    assert found == {("budget_usd", *ranges.BUDGET_USD), ("calls", *ranges.CALLS_AT_ONCE)}
    assert len([name for name, _ in properties if name == "budget_usd"]) == 3


def test_no_form_writes_a_limit_of_its_own() -> None:
    own = []
    for template in (ROOT / "edison_ci/web/templates/edison").glob("*.html"):
        for field in re.findall(r"<(?:input|textarea)[^>]*>", template.read_text("utf-8")):
            own += [f"{template.name}: {limit}" for limit in LIMIT.findall(field)
                    if not limit.startswith("{{") and limit not in SCALE_OF_A_GRADE]  # fmt: skip
    assert own == []


@pytest.mark.parametrize("dollars", [-1, 1_000_000.01, float("inf"), float("nan")])
def test_a_budget_out_of_range_is_refused_below_the_faces(dollars: float) -> None:
    with pytest.raises(UsageError, match=r"a budget is \$0 to \$1,000,000"):
        budget_microusd(dollars)
    with pytest.raises(UsageError):
        SteerRequest("run", budget=dollars).changes()


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1000001"])
def test_the_terminal_refuses_the_same_budgets(edison: Edison, mini: Folder, text: str) -> None:
    assert edison(mini, "run", "--budget", text).code == 2
    assert edison(mini, "run", "--budget", "1000000").code == 0
