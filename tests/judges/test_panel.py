"""One door: the judging of an experiment, with real files and the simulated judge."""

from __future__ import annotations

import asyncio
import statistics
from typing import TYPE_CHECKING

import pytest

from edison_ci.checks.output import parse_output
from edison_ci.config.load import load_project
from edison_ci.config.prompt import Prompt, read_prompt
from edison_ci.config.rubric import Scale
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.features.simulator.judge import judge_reply
from edison_ci.features.simulator.provider import generate
from edison_ci.judges.panel import (
    Combine,
    DisputeThresholds,
    ExperimentJudges,
    JudgeGrades,
    PromptGrader,
    combine_scores,
    grade_rubric,
    moderators,
    pairwise_judge,
    read_grade,
    score_spread,
)
from edison_ci.judges.pointwise import JudgeScores
from edison_ci.judges.replies import MAX_REPLY, CriterionReply, Failure, Missing, Verdict
from edison_ci.records import Case, CaseId, Completion, Request
from tests.conftest import EXAMPLES, Folder
from tests.judges.bench import CASE, Scripted, criterion, model, rubric, scores
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.rubric import RubricFile

ADA = Case(CaseId("ada"), {"name": "Ada"}, expected="Ada", line=1)
WARM = scores(Warmth=5, Brevity=4)
GRADER = "---\nid: tone\ntype: grader\n---\nIs this friendly, yes or no? {{ output }}\n"


async def simulated(name: str, request: Request) -> Completion:
    return judge_reply(request)


def opened(folder: Folder) -> tuple[Project, Experiment]:
    project = load_project(folder.path)
    (experiment,) = project.experiments.values()
    return project, experiment


def judging_of(folder: Folder, ask: Scripted) -> ExperimentJudges:
    judging = ExperimentJudges.of(*opened(folder), ask)
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
    judged = await judging.judge(ADA, "Hello Ada!")
    (component,) = judged.components
    assert (component.name, component.kind, component.status, component.weight) == (
        "tone",
        "rubric",
        "ok",
        1,
    )
    assert component.score == pytest.approx(0.9)
    assert component.passed is True
    assert [(c.name, c.kind, c.score, c.weight) for c in judged.criteria] == [
        ("Warmth", "criterion", 1.0, 0.5),
        ("Brevity", "criterion", 0.8, 0.5),
    ]
    assert [judge_score.judge for judge_score in judged.judge_scores] == ["judge"]
    assert judging.models == ("judge",)
    assert set(judging.hashes) == {"tone"}


async def test_graders_are_parts_of_their_own(mini: Folder) -> None:
    with_grader(mini, "{prompt: prompts/tone.md, by: judge, weight: 2, threshold: 1, name: kind}")
    judging = judging_of(mini, Scripted(WARM, "no"))
    judged = await judging.judge(ADA, "Hello Ada!")
    rubric, grader = judged.components
    assert rubric.kind == "rubric"
    assert (grader.name, grader.kind, grader.score, grader.passed) == ("kind", "grader", 0.0, False)
    assert (grader.weight, grader.status) == (2, "ok")
    assert set(judging.hashes) == {"tone", "kind"}


async def test_a_bare_path_runs_on_the_default_judge(mini: Folder) -> None:
    with_grader(mini)
    ask = Scripted(WARM, "yes")
    judged = await judging_of(mini, ask).judge(ADA, "Hello Ada!")
    assert [name for name, _ in ask.asked] == ["judge", "judge"]
    assert judged.components[1].passed is True


async def test_junk_is_a_part_in_error_and_never_a_pass(mini: Folder) -> None:
    judged = await judging_of(mini, Scripted("junk", "more junk")).judge(ADA, "Hello")
    (component,) = judged.components
    assert (component.status, component.score, component.passed) == ("error", None, None)
    assert "no JSON object" in component.reason
    assert [c.status for c in judged.criteria] == ["error", "error"]


async def test_a_judge_that_is_down_is_a_part_in_error(mini: Folder) -> None:
    ask = Scripted(CallError(ErrorKind.PROVIDER_ERROR, "down"))
    (component,) = (await judging_of(mini, ask).judge(ADA, "Hello")).components
    assert component.status == "error"
    assert "down" in component.reason


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

    judging = ExperimentJudges.of(*opened(mini), ask)
    assert judging is not None
    judged = await judging.judge(ADA, "Hello")
    assert judged.components[0].score == pytest.approx(0.9)
    assert judging.models == ("judge", "strict")
    assert judged.disputed is False


async def test_what_is_no_call_error_passes_through_as_it_is(mini: Folder) -> None:
    with_grader(mini)

    class Exhausted(Exception):
        pass

    with pytest.raises(Exhausted):
        await judging_of(mini, Scripted(Exhausted())).judge(ADA, "Hello")


def test_an_experiment_without_rubric_and_graders_needs_no_judging(mini: Folder) -> None:
    mini.edit("experiments/hello.yaml", "rubric: rubrics/tone.yaml\n", "")
    mini.edit("experiments/hello.yaml", "judges: {pointwise: [judge]}\n", "")
    assert ExperimentJudges.of(*opened(mini), simulated) is None
    assert pairwise_judge(*opened(mini)) is None
    assert moderators(*opened(mini)) == ()


async def test_pairwise_and_moderation_are_made_from_the_files(mini: Folder) -> None:
    mini.edit(
        "experiments/hello.yaml",
        "judges: {pointwise: [judge]}",
        "judges: {pointwise: [judge], pairwise: {by: judge}}\n"
        "safety: {toxicity: {by: judge, action: block, threshold: 0.5},"
        " moderation: {by: judge, action: off}}",
    )
    pairwise = pairwise_judge(*opened(mini))
    (screen,) = moderators(*opened(mini))
    assert pairwise is not None
    found = await pairwise.compare(ADA, "Hello Ada, lovely to see you.", "No.", simulated)
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


async def graded(name: str) -> list[JudgeGrades]:
    project = load_project(EXAMPLES / name)
    (experiment,) = project.experiments.values()
    judging = ExperimentJudges.of(project, experiment, simulated)
    assert judging is not None
    return [await judging.judge(case, text) for case, text in outputs(project, experiment)]


@pytest.mark.nightly
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
    composites = [judged.components[0].score for judged in found]
    assert all(judged.components[0].status == "ok" for judged in found)
    known = [score for score in composites if score is not None]
    assert low < statistics.fmean(known) < high
    assert statistics.stdev(known) > 0.05
    assert all(c.reason for judged in found for c in judged.criteria)
    again = await graded(name)
    assert [judged.components for judged in again] == [judged.components for judged in found]


async def test_a_judge_that_often_breaks_its_reply_costs_scores_but_no_crash() -> None:
    # Half of the replies come back with prose around them, or cut; a cut one is asked for again.
    project = load_project(EXAMPLES / "customer-support")
    (experiment,) = project.experiments.values()
    calls = 0

    async def ask(_: str, request: Request) -> Completion:
        nonlocal calls
        calls += 1
        text = judge_reply(request).text
        broken = int(request.request_hash, 16) % 2
        return Completion(text[: len(text) // 2] if broken else f"Here you are:\n{text}\nBye")

    judging = ExperimentJudges.of(project, experiment, ask)
    assert judging is not None
    found = [await judging.judge(case, text) for case, text in outputs(project, experiment)]
    status = [judged.components[0].status for judged in found]
    assert set(status) == {"ok", "error"}
    assert 0.1 < status.count("error") / len(status) < 0.4
    assert calls > 1.3 * len(found)
    assert all(j.components[0].score is None for j in found if j.components[0].status == "error")


LOST = Failure(Missing.JUDGE_ERROR, "junk")


def judge_score(judge: str = "a", /, *flags: str, **shares: float | None) -> JudgeScores:
    """What a judge says, in shares; None is a criterion it failed on."""
    scores = {
        name: CriterionReply(s * 5, s, f"{name}?") for name, s in shares.items() if s is not None
    }
    missing = {name: LOST for name, s in shares.items() if s is None}
    verdict = Verdict(scores, missing, flags) if scores else None
    return JudgeScores(judge, "hash", verdict, LOST if missing else None)


# --- several judges ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "how", "expected"),
    [
        ([], "mean", None),
        ([0.4], "median", 0.4),
        ([0.0, 0.5, 1.0, 1.0], "mean", 0.625),
        ([0.0, 0.5, 1.0, 1.0], "median", 0.75),
        ([0.0, 0.5, 1.0, 1.0], "trimmed", 0.625),  # under 5 judges nothing is dropped
        ([0.0, 0.5, 0.6, 0.7, 1.0], "trimmed", 0.6),
        ([1.0, 0.0, 0.7, 0.5, 0.6], "trimmed", 0.6),
        ([0.1, 0.2, 0.3, 0.4, 1.0], "median", 0.3),
    ],
)
def test_judges_are_combined_as_asked(
    scores: list[float], how: Combine, expected: float | None
) -> None:
    found = combine_scores(scores, how)
    assert found == (None if expected is None else pytest.approx(expected))


def test_one_judge_cannot_disagree() -> None:
    assert score_spread([0.2]) is None
    assert not DisputeThresholds().between(None)


@pytest.mark.parametrize(
    ("scores", "disputed"),
    [
        ([0.2, 0.7], True),  # range .5
        ([0.2, 0.6], True),  # range .4, sd .283
        ([0.3, 0.6], False),  # sd .212
        ([0.4, 0.5, 0.6], False),
        ([0.25, 0.5, 0.749], False),  # range .499, sd .2495
        ([0.0, 0.0, 0.0, 0.0, 0.5], True),
    ],
)
def test_disagreement_is_flagged_from_range_or_deviation(
    scores: list[float], disputed: bool
) -> None:
    spread = score_spread(scores)
    assert spread is not None
    assert spread.sd == pytest.approx(statistics.stdev(scores))
    assert DisputeThresholds().between(spread) is disputed


def test_the_case_is_disputed_when_one_criterion_is() -> None:
    two = rubric(criterion("A"), criterion("B"))
    result = grade_rubric(two, [judge_score("a", A=0.9, B=0.2), judge_score("b", A=0.8, B=0.9)])
    assert [c.disputed for c in result.criteria] == [False, True]
    assert result.disputed
    assert result.criteria[1].by_judge == {"a": 0.2, "b": 0.9}
    assert result.composite == pytest.approx((0.85 + 0.55) / 2)


def test_judges_are_combined_before_criteria() -> None:
    two = rubric(criterion("A", 0.8), criterion("B", 0.2))
    said = [
        judge_score("a", A=0.0, B=1.0),
        judge_score("b", A=1.0, B=0.0),
        judge_score("c", A=1.0, B=0.5),
    ]
    # By criterion: medians 1.0 and 0.5. The median of the judges' own composites would be 0.8.
    assert grade_rubric(two, said, "median").composite == pytest.approx(0.8 * 1.0 + 0.2 * 0.5)


def test_a_judge_that_fails_is_left_out() -> None:
    two = rubric(criterion("A"), criterion("B"))
    result = grade_rubric(two, [judge_score("a", A=0.8, B=0.6), JudgeScores("b", "h", None, LOST)])
    assert result.composite == pytest.approx(0.7)
    assert result.criteria[0].spread is None
    assert "b: judge_error: junk" in result.criteria[0].reason


def test_no_judge_at_all_is_missing_and_not_zero() -> None:
    two = rubric(criterion("A"), criterion("B"), pass_at=0.5)
    result = grade_rubric(
        two, [JudgeScores("a", "h", None, LOST), JudgeScores("b", "h", None, LOST)]
    )
    assert result.composite is None
    assert result.passed is None
    assert result.coverage == 0
    assert "junk" in result.reason


# --- composite and coverage ----------------------------------------------------------------------


def test_the_composite_is_the_weighted_mean() -> None:
    # STATS 2: weights 3:1:2:1:3 of five criteria.
    weights = {"A": 0.3, "B": 0.1, "C": 0.2, "D": 0.1, "E": 0.3}
    five = rubric(*(criterion(name, weight) for name, weight in weights.items()))
    result = grade_rubric(five, [judge_score(A=1.0, B=0.0, C=0.5, D=1.0, E=0.8)])
    assert result.composite == pytest.approx(0.3 + 0 + 0.1 + 0.1 + 0.24)
    assert result.coverage == pytest.approx(1)


def test_weights_are_proportions() -> None:
    doubled = rubric(criterion("A", 1.0), criterion("B", 0.5))
    result = grade_rubric(doubled, [judge_score(A=1.0, B=0.4)])
    assert result.composite == pytest.approx(0.8)
    assert [c.weight for c in result.criteria] == pytest.approx([2 / 3, 1 / 3])


@pytest.mark.parametrize(
    ("weight_lost", "composite"),
    [(0.2, 0.9), (0.5, 0.9), (0.51, None), (0.9, None)],
)
def test_a_composite_needs_half_of_the_weights(weight_lost: float, composite: float | None) -> None:
    two = rubric(criterion("A", 1 - weight_lost), criterion("B", weight_lost))
    result = grade_rubric(two, [judge_score(A=0.9, B=None)])
    assert result.coverage == pytest.approx(1 - weight_lost)
    assert result.composite == (None if composite is None else pytest.approx(composite))
    if composite is None:
        assert "of the rubric was scored" in result.reason


def test_a_missing_required_criterion_makes_the_composite_missing() -> None:
    three = rubric(criterion("A", 0.6), criterion("B", 0.3), criterion("C", 0.1, required=True))
    result = grade_rubric(three, [judge_score(A=1.0, B=1.0, C=None)])
    assert result.coverage == pytest.approx(0.9)
    assert result.composite is None
    assert "required criterion C" in result.reason


# --- the pass ------------------------------------------------------------------------------------


def passes(of: RubricFile, **shares: float | None) -> bool | None:
    return grade_rubric(of, [judge_score("a", **shares)]).passed


def test_the_pass_is_decided_by_the_composite() -> None:
    two = rubric(criterion("A"), criterion("B"), pass_at=0.6)
    assert passes(two, A=0.6, B=0.6) is True
    assert passes(two, A=0.6, B=0.59) is False
    assert passes(rubric(criterion("A"), criterion("B")), A=0.0, B=0.0) is True


def test_a_score_below_its_min_fails_whatever_the_composite() -> None:
    two = rubric(criterion("A", 0.9), criterion("B", 0.1, min=0.5), pass_at=0.5)
    assert passes(two, A=1.0, B=0.4) is False
    assert passes(two, A=1.0, B=0.5) is True
    result = grade_rubric(two, [judge_score(A=1.0, B=0.4)])
    assert result.composite == pytest.approx(0.94)
    assert [c.passed for c in result.criteria] == [None, False]


def test_min_is_compared_after_low_is_good_was_turned_round() -> None:
    # The share is what counts: a raw 1 of 5 where low is good is a share of .8.
    two = rubric(criterion("A"), criterion("B", lower_is_better=True, min=0.7))
    assert passes(two, A=0.5, B=0.8) is True
    assert passes(two, A=0.5, B=0.6) is False


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (1.0, True),  # .7 whatever B is
        (0.5, None),  # .35 to .65: B decides, and nobody knows B
        (0.2, False),  # at most .44
    ],
)
def test_a_missing_score_never_turns_into_a_pass(score: float, expected: bool | None) -> None:
    two = rubric(criterion("A", 0.7), criterion("B", 0.3), pass_at=0.6)
    result = grade_rubric(two, [judge_score(A=score, B=None)])
    assert result.composite == pytest.approx(score)
    assert result.passed is expected


def test_a_missing_criterion_with_a_min_leaves_the_pass_open() -> None:
    two = rubric(criterion("A", 0.9), criterion("B", 0.1, min=0.5))
    assert passes(two, A=1.0, B=None) is None


# --- flags ---------------------------------------------------------------------------------------


def test_a_flag_of_any_judge_is_raised_and_changes_nothing_else() -> None:
    two = rubric(criterion("A"), criterion("B"), pass_at=0.5)
    plain = grade_rubric(two, [judge_score("a", A=0.8, B=0.8), judge_score("b", A=0.8, B=0.8)])
    said = [judge_score("a", "toxicity", A=0.8, B=0.8), judge_score("b", "pii", A=0.8, B=0.8)]
    flagged = grade_rubric(two, said)
    assert flagged.flags == ("pii", "toxicity")
    assert (flagged.composite, flagged.passed) == (plain.composite, plain.passed)


def prompt(
    body: str = "How warm is {{ output }} to {{ name }}?", front: str = "scale: 0-5"
) -> Prompt:
    text = f"---\ntype: grader\n{front}\n---\n{body}\n"
    found, problems = read_prompt(text.encode(), "prompts/tone.md")
    assert found is not None, problems
    return found


def grader(of: Prompt | None = None) -> PromptGrader:
    return PromptGrader.of("tone", of or prompt(), model())


FIVE = Scale(min=0, max=5)
GOOD = {
    "4": 0.8,
    " 4.0 \n": 0.8,
    "**4**": 0.8,
    "4.": 0.8,
    "0": 0.0,
    "5": 1.0,
    "yes": 1.0,
    "No.": 0.0,
    "PASS": 1.0,
    "fail": 0.0,
    "True": 1.0,
    "false": 0.0,
    '"yes"': 1.0,
    '{"score": 2.5, "reason": "so so"}': 0.5,
    '```json\n{"score": 2.5, "reason": "so so"}\n```': 0.5,
    'I think {"score": 2.5} is fair.': 0.5,
    '{"score": 2.5, "confidence": 0.9}': 0.5,
    "```\n4\n```": 0.8,
    "<think>it says 1</think>4": 0.8,
}


def test_a_grade_is_a_number_a_word_or_json(subtests: pytest.Subtests) -> None:
    for text, share in GOOD.items():
        with subtests.test(text=text):
            outcome = read_grade(Completion(text), FIVE)
            assert outcome.failure is None
            assert outcome.value is not None
            assert outcome.value.share == pytest.approx(share)


BAD = [
    "",
    "maybe",
    "4 out of 5",
    "4/5",
    "Score: 4",
    "4 5",
    "6",
    "-1",
    "nan",
    "inf",
    "1e0",
    "four",
    "yes and no",
    "yes, because it is warm",
    "0x4",
    "\uff14",
    '{"score": 6}',
    '{"score": "4"}',
    '{"score": true}',
    '{"score": null}',
    '{"score": NaN}',
    '{"score": 4} {"score": 5}',
    '{"grade": 4}',
    "[4]",
    "9" * 5_000,
    "4" + " " * MAX_REPLY,
]


def test_anything_else_is_a_judge_error(subtests: pytest.Subtests) -> None:
    for text in BAD:
        with subtests.test(text=text):
            outcome = read_grade(Completion(text), FIVE)
            assert outcome.value is None
            assert outcome.failure is not None


def test_a_scale_from_1_has_its_worst_score_at_0() -> None:
    scale = Scale(min=1, max=5)
    assert [read_grade(Completion(t), scale).value.share for t in ("1", "3", "no", "yes")] == [  # type: ignore[union-attr]  # each is a grade
        0.0,
        0.5,
        0.0,
        1.0,
    ]
    assert read_grade(Completion("0"), scale).value is None


async def test_a_grader_sees_the_case_the_output_and_what_was_expected() -> None:
    body = "{{ name }} got {{ output }} and should get {{ expected }}."
    ask = Scripted("5")
    found = await grader(prompt(body)).grade(CASE, "{{ name }} <b>", ask)
    name, request = ask.asked[0]
    assert name == "judge"
    assert request.messages[-1].content == "Ada got {{ name }} <b> and should get Hello Ada."
    assert (found.score, found.status) == (1.0, "ok")


async def test_the_default_scale_is_0_to_1() -> None:
    found = await grader(prompt(front="description: x")).grade(CASE, "Hi", Scripted("0.25"))
    assert found.score == 0.25


async def test_a_case_without_what_the_prompt_needs_is_skipped_and_nobody_is_asked() -> None:
    ask = Scripted("5")
    case = Case(CaseId("x"), {"name": "Ada"}, line=1)
    found = await grader(prompt("Is {{ output }} {{ expected }}?")).grade(case, "Hi", ask)
    assert found.status == "skipped"
    assert found.score is None
    assert "expected" in found.reason
    assert ask.asked == []


async def test_a_bad_reply_is_asked_for_once_more() -> None:
    ask = Scripted("I would say four", "4")
    found = await grader().grade(CASE, "Hi", ask)
    assert found.score == pytest.approx(0.8)
    assert "not a number from 0 to 5" in ask.asked[1][1].messages[-1].content


async def test_two_bad_replies_are_an_error_and_no_score() -> None:
    found = await grader().grade(CASE, "Hi", Scripted("no idea", "still none"))
    assert (found.score, found.status) == (None, "error")


async def test_a_call_without_an_answer_is_an_error_and_no_score() -> None:
    ask = Scripted(CallError(ErrorKind.NETWORK, "gone"))
    found = await grader().grade(CASE, "Hi", ask)
    assert (found.score, found.status) == (None, "error")
    assert "NETWORK" in found.reason


def test_front_matter_counts_over_the_registry_over_the_defaults_of_judges() -> None:
    of = prompt(front="scale: 0-5\nparams: {temperature: 0.9}")
    request = PromptGrader.of("tone", of, model(seed=1, temperature=0.5)).request(CASE, "Hi")
    assert request.params == {"temperature": 0.9, "seed": 1, "max_tokens": 4096}
    assert request.response_format is None


def test_the_hash_names_prompt_scale_and_judge() -> None:
    other_scale = grader(prompt(front="scale: 0-10")).hash
    other_text = grader(prompt("How kind is {{ output }}?")).hash
    other_judge = PromptGrader.of("tone", prompt(), model("anthropic")).hash
    assert len({grader().hash, other_scale, other_text, other_judge}) == 4
