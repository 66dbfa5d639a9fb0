"""One door: the judging of an experiment, with real files and the simulated judge."""

from __future__ import annotations

import asyncio
import statistics
from typing import TYPE_CHECKING

import pytest

from edison_ci.checks.output import parse_output
from edison_ci.config.load import load_project
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.judges.judging import Judged, Judging, comparing, moderating
from edison_ci.records import Case, CaseId, Completion, Request
from edison_ci.simulator.generator import generate
from edison_ci.simulator.judge import hear
from tests.conftest import EXAMPLES, Folder
from tests.judges.bench import Scripted, scores
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.config.load import Experiment, Project

CASE = Case(CaseId("ada"), {"name": "Ada"}, expected="Ada", line=1)
WARM = scores(Warmth=5, Brevity=4)
GRADER = "---\nid: tone\ntype: grader\n---\nIs this friendly, yes or no? {{ output }}\n"


async def simulated(name: str, request: Request) -> Completion:
    return hear(request)


def opened(folder: Folder) -> tuple[Project, Experiment]:
    project = load_project(folder.path)
    (experiment,) = project.experiments.values()
    return project, experiment


def judging_of(folder: Folder, ask: Scripted) -> Judging:
    judging = Judging.of(*opened(folder), ask)
    assert judging is not None
    return judging


def with_grader(folder: Folder, entry: str = "prompts/tone.md") -> None:
    folder.write("prompts/tone.md", GRADER)
    folder.edit(
        "experiments/hello.yaml",
        "judges: {pointwise: [judge]}",
        f"judges: {{pointwise: [judge], graders: [{entry}]}}",
    )
    folder.edit("edison.yaml", "project: mini\n", "project: mini\ndefaults: {judge: judge}\n")


async def test_a_rubric_becomes_one_part_and_its_criteria_are_shown(mini: Folder) -> None:
    judging = judging_of(mini, Scripted(WARM))
    judged = await judging.judge(CASE, "Hello Ada!")
    (part,) = judged.parts
    assert (part.name, part.kind, part.status, part.weight) == ("tone", "rubric", "ok", 1)
    assert part.score == pytest.approx(0.9)
    assert part.passed is True
    assert [(c.name, c.kind, c.score, c.weight) for c in judged.criteria] == [
        ("Warmth", "criterion", 1.0, 0.5),
        ("Brevity", "criterion", 0.8, 0.5),
    ]
    assert [opinion.judge for opinion in judged.opinions] == ["judge"]
    assert judging.models == ("judge",)
    assert set(judging.hashes) == {"tone"}


async def test_graders_are_parts_of_their_own(mini: Folder) -> None:
    with_grader(mini, "{prompt: prompts/tone.md, by: judge, weight: 2, threshold: 1, name: kind}")
    judging = judging_of(mini, Scripted(WARM, "no"))
    judged = await judging.judge(CASE, "Hello Ada!")
    rubric, grader = judged.parts
    assert rubric.kind == "rubric"
    assert (grader.name, grader.kind, grader.score, grader.passed) == ("kind", "grader", 0.0, False)
    assert (grader.weight, grader.status) == (2, "ok")
    assert set(judging.hashes) == {"tone", "kind"}


async def test_a_bare_path_runs_on_the_default_judge(mini: Folder) -> None:
    with_grader(mini)
    ask = Scripted(WARM, "yes")
    judged = await judging_of(mini, ask).judge(CASE, "Hello Ada!")
    assert [name for name, _ in ask.asked] == ["judge", "judge"]
    assert judged.parts[1].passed is True


async def test_junk_is_a_part_in_error_and_never_a_pass(mini: Folder) -> None:
    judged = await judging_of(mini, Scripted("junk", "more junk")).judge(CASE, "Hello")
    (part,) = judged.parts
    assert (part.status, part.score, part.passed) == ("error", None, None)
    assert "no JSON object" in part.reason
    assert [c.status for c in judged.criteria] == ["error", "error"]


async def test_a_judge_that_is_down_is_a_part_in_error(mini: Folder) -> None:
    ask = Scripted(CallError(ErrorKind.PROVIDER_ERROR, "down"))
    (part,) = (await judging_of(mini, ask).judge(CASE, "Hello")).parts
    assert part.status == "error"
    assert "down" in part.reason


async def test_with_two_judges_one_may_be_down_and_both_run_at_once(mini: Folder) -> None:
    mini.write(
        "models.yaml",
        "small: {provider: sim, model: small}\njudge: {provider: sim, model: judge}\n"
        "strict: {use: judge}\n",
    )
    mini.edit("experiments/hello.yaml", "[judge]", "[judge, strict]")
    together = asyncio.Barrier(2)

    async def ask(name: str, request: Request) -> Completion:
        async with asyncio.timeout(PATIENCE_S):
            await together.wait()
        if name == "strict":
            raise CallError(ErrorKind.TIMEOUT, "slow")
        return Completion(WARM)

    judging = Judging.of(*opened(mini), ask)
    assert judging is not None
    judged = await judging.judge(CASE, "Hello")
    assert judged.parts[0].score == pytest.approx(0.9)
    assert judging.models == ("judge", "strict")
    assert judged.disputed is False


async def test_what_is_no_call_error_passes_through_as_it_is(mini: Folder) -> None:
    with_grader(mini)

    class Exhausted(Exception):
        pass

    with pytest.raises(Exhausted):
        await judging_of(mini, Scripted(Exhausted())).judge(CASE, "Hello")


def test_an_experiment_without_rubric_and_graders_needs_no_judging(mini: Folder) -> None:
    mini.edit("experiments/hello.yaml", "rubric: rubrics/tone.yaml\n", "")
    mini.edit("experiments/hello.yaml", "judges: {pointwise: [judge]}\n", "")
    assert Judging.of(*opened(mini), simulated) is None
    assert comparing(*opened(mini)) is None
    assert moderating(*opened(mini)) == ()


async def test_pairwise_and_moderation_are_made_from_the_files(mini: Folder) -> None:
    mini.edit(
        "experiments/hello.yaml",
        "judges: {pointwise: [judge]}",
        "judges: {pointwise: [judge], pairwise: {by: judge}}\n"
        "safety: {toxicity: {by: judge, action: block, threshold: 0.5},"
        " moderation: {by: judge, action: off}}",
    )
    pairwise = comparing(*opened(mini))
    (screen,) = moderating(*opened(mini))
    assert pairwise is not None
    found = await pairwise.compare(CASE, "Hello Ada, lovely to see you.", "No.", simulated)
    assert found.value is not None
    assert (await screen.screen("You stupid idiot.", simulated)).action == "block"
    assert (await screen.screen("Good morning, Ada.", simulated)).action == "off"


# --- with the simulated judge, over the examples -------------------------------------------------


def outputs(project: Project, experiment: Experiment) -> Iterator[tuple[Case, str]]:
    prompt = experiment.prompts[0]
    configuration = experiment.configurations(prompt)[0]
    model = configuration.model
    for case in project.cases(experiment):
        messages = prompt.render(case.inputs)
        request = Request(
            model.provider, model.endpoint, model.model, messages, configuration.params
        )
        output = parse_output(generate(request).text, prompt.expect)
        if not output.malformed:
            yield case, output.text


async def graded(name: str) -> list[Judged]:
    project = load_project(EXAMPLES / name)
    (experiment,) = project.experiments.values()
    judging = Judging.of(project, experiment, simulated)
    assert judging is not None
    return [await judging.judge(case, text) for case, text in outputs(project, experiment)]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("customer-support", 0.48, 0.68),
        ("creative-writing", 0.48, 0.70),
        ("data-extraction", 0.75, 0.95),
        ("code-generation", 0.45, 0.68),
    ],
)
async def test_the_examples_get_plausible_grades_offline(
    name: str, low: float, high: float
) -> None:
    found = await graded(name)
    composites = [judged.parts[0].score for judged in found]
    assert all(judged.parts[0].status == "ok" for judged in found)
    known = [score for score in composites if score is not None]
    assert low < statistics.fmean(known) < high
    assert statistics.stdev(known) > 0.05
    assert all(c.reason for judged in found for c in judged.criteria)
    again = await graded(name)
    assert [judged.parts for judged in again] == [judged.parts for judged in found]


async def test_a_judge_that_often_breaks_its_reply_costs_scores_but_no_crash() -> None:
    # Half of the replies come back with prose around them, or cut; a cut one is asked for again.
    project = load_project(EXAMPLES / "customer-support")
    (experiment,) = project.experiments.values()
    calls = 0

    async def ask(_: str, request: Request) -> Completion:
        nonlocal calls
        calls += 1
        text = hear(request).text
        broken = int(request.address, 16) % 2
        return Completion(text[: len(text) // 2] if broken else f"Here you are:\n{text}\nBye")

    judging = Judging.of(project, experiment, ask)
    assert judging is not None
    found = [await judging.judge(case, text) for case, text in outputs(project, experiment)]
    status = [judged.parts[0].status for judged in found]
    assert set(status) == {"ok", "error"}
    assert 0.1 < status.count("error") / len(status) < 0.4
    assert calls > 1.3 * len(found)
    assert all(j.parts[0].score is None for j in found if j.parts[0].status == "error")
