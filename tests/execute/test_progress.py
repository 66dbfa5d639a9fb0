"""What is planned for each model, and how far each is, while a run goes on and in the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edison_ci.api.sessions import run_context
from edison_ci.config.load import load_project
from edison_ci.execute.existing_answers import regrade_options
from edison_ci.execute.run_options import RunOptions, options_of
from edison_ci.execute.session import Session
from edison_ci.execute.targets import run_targets
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from edison_ci.execute.progress import Progress
    from edison_ci.execute.run_options import RunOutcome
    from tests.conftest import Folder

CASES = 10
MODELS = (
    "small: {provider: sim, model: small, price: {in: 1, out: 2}, limits: {concurrency: 2}}\n"
    "large: {provider: sim, model: large, price: {in: 1, out: 2}, limits: {concurrency: 2}}\n"
    "judge: {provider: sim, model: judge}\n"
)
TWICE = "[small, {use: large, params: {temperature: [0.2, 1.0]}}]"


@pytest.fixture
def project(mini: Folder) -> Folder:
    """Ten cases for two models, one of them with two temperatures, and a judge."""
    rows = (
        f'{{"id": "c{i}", "input": {{"name": "P{i}"}}, "expected": ""}}\n' for i in range(CASES)
    )
    mini.write("datasets/names.jsonl", "".join(rows))
    mini.write("models.yaml", MODELS)
    mini.edit("experiments/hello.yaml", "[small]", TWICE)
    return mini


def run(
    folder: Folder,
    how: str = "run",
    *,
    ref: str | None = None,
    budget: int | None = None,
) -> tuple[Progress, RunOutcome]:
    """Run; return the progress as it was at the start, and how it ended."""
    project = load_project(folder.path)
    (experiment,) = project.experiments.values()
    (match,) = run_targets(project, experiment, ref)
    begun: list[Progress] = []

    def keep(progress: Progress) -> None:
        calls = {key: replace(value) for key, value in progress.calls.items()}
        planned, done = Counter(progress.planned_by_client), Counter(progress.done_by_client)
        begun.append(replace(progress, planned_by_client=planned, done_by_client=done, calls=calls))

    tools = replace(run_context(project), on_start=keep)
    session = Session(match.project, match.experiment, tools, against=match.against)
    options = RunOptions(budget_microusd=budget)
    if how == "run":
        ended = session.run(options)
    else:
        reader = open_reader(folder.path / project.file.results)
        stored = find_run(reader, "latest")
        again = regrade_options(reader, stored, match.experiment)
        reader.close()
        resumed = replace(options_of(stored), budget_microusd=budget)
        ended = session.run(again) if how == "regrade" else session.resume(stored, resumed)
    (first,) = begun
    return first, ended


def test_each_model_knows_its_cells_and_each_judge_its_calls_before_the_first_call(
    project: Folder,
) -> None:
    begun, ended = run(project)
    assert begun.planned_by_client == {"small": CASES, "large": 2 * CASES}
    assert begun.done_by_client == {}
    assert {key: calls.per_cell for key, calls in begun.calls.items()} == {("judge", "judge"): 1.0}
    assert ended.progress.done_by_client == begun.planned_by_client
    assert ended.progress.calls["judge", "judge"].answered == 3 * CASES


def test_a_resumed_run_knows_what_each_model_did_before(project: Folder) -> None:
    _, paused = run(project, budget=9_000)
    assert paused.status == "PAUSED"
    before = paused.progress.done_by_client
    assert 0 < before.total() < 3 * CASES
    begun, ended = run(project, "resume", budget=1_000_000)
    assert begun.done_by_client == before
    assert ended.status == "COMPLETED"
    assert ended.progress.done_by_client == begun.planned_by_client


def test_regrading_plans_the_cells_that_are_left(project: Folder) -> None:
    run(project)
    text = project.read("models.yaml").replace("model: small,", "model: echo,", 1)
    project.write("models.yaml", text)  # so that its answers are no longer those of the files
    begun, ended = run(project, "regrade")
    assert begun.planned_by_client == {"large": 2 * CASES}
    assert ended.progress.done_by_client == begun.planned_by_client


def test_a_model_that_changed_since_the_base_is_planned_twice(project: Folder) -> None:
    project.git("init", "--quiet", "--initial-branch=main")
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "start")
    text = project.read("models.yaml").replace("model: small,", "model: echo,", 1)
    project.write("models.yaml", text)
    begun, ended = run(project, ref="main")
    assert begun.planned_by_client["small"] == begun.planned_by_client["small at the base"] == CASES
    assert ended.progress.done_by_client == begun.planned_by_client


@pytest.mark.nightly
def test_more_repeats_are_planned_when_they_are_asked_for(support: Folder) -> None:
    experiment = "experiments/support-reply.yaml"
    support.edit(experiment, "margin: 10pp}", "margin: 6pp, if_unclear: more_repeats}")
    support.edit(experiment, "kind: golden}", "kind: golden, take: 30}")
    support.edit(experiment, "  - {path: datasets/adversarial.jsonl, kind: adversarial}\n", "")
    support.git("init", "--quiet", "--initial-branch=main")
    support.git("add", "--all")
    support.git("commit", "--quiet", "--message", "start")
    support.edit("prompts/support-reply.md", "Write a reply", "Compose a reply")
    begun, ended = run(support, ref="main")
    assert begun.planned_by_client == {}, "it plans one round after the other"
    (planned,) = ended.progress.planned_by_client.values()
    assert planned == ended.progress.total == ended.progress.done_by_client.total()
    assert (planned % (2 * 30), planned > 2 * 30) == (0, True), "whole rounds of both sides"


def test_errors_are_those_of_the_model_that_made_them(project: Folder) -> None:
    script = "options: {file: script.jsonl}, "
    project.edit("models.yaml", "sim, model: large, ", f"sim, model: script, {script}")
    project.write(
        "script.jsonl",
        '{"match": "P3", "error": "CONTENT_FILTER"}\n{"match": "", "text": "Hello."}\n',
    )
    _, ended = run(project)
    assert ended.progress.errors_by_client == {"large": 2}, "one for each temperature"


def test_tokens_are_counted_against_their_limit(project: Folder) -> None:
    project.edit("experiments/hello.yaml", "gates:", "stop: {max_total_tokens: 1000000}\ngates:")
    begun, ended = run(project)
    assert begun.budget_tokens == 1_000_000
    assert 0 < ended.progress.booked_tokens < 1_000_000
