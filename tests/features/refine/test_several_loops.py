"""Several prompts of one experiment evolve together, and weak ones are dropped."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.load import load_project
from edison_ci.execute.grading import CellGrader
from edison_ci.execute.run_options import RunContext
from edison_ci.features.refine.library import refine_request
from edison_ci.features.refine.loop_rows import course_of
from edison_ci.features.refine.loop_runner import LoopRunner
from edison_ci.features.refine.loop_start import LoopContext, LoopRequest, begin
from edison_ci.features.refine.refiner import refiner_of
from edison_ci.features.simulator.assignment import parse_blocks
from edison_ci.proposals.candidate import target_of
from edison_ci.proposals.context import ReviewContext
from edison_ci.providers.adapters import provider_for
from edison_ci.stats.convergence import shared_level
from tests.conftest import Folder
from tests.features.refine.workbench import (
    PROMPT,
    SHOUT,
    Scripted,
    mannered,
    mended,
    reply,
    well_mannered,
)

if TYPE_CHECKING:
    from edison_ci.config.models import Model
    from edison_ci.features.refine.loop_report import LoopReport
    from edison_ci.records import Request
    from edison_ci.store.ledger import SpendingCap

pytestmark = pytest.mark.daily

CASES = 60
BRANCH = "edison/loop/hello"


@pytest.fixture
def museum(folder: Folder) -> Folder:
    return two_prompts(folder)


def two_prompts(folder: Folder) -> Folder:
    """Write two prompts that lack the same manners, and one of them shouts."""
    mannered(folder, cases=CASES)
    loud = PROMPT.replace("id: hello", "id: loud") + f"{SHOUT}\n"
    folder.write("prompts/loud.md", loud)
    both = "prompts: [prompts/hello.md, prompts/loud.md]"
    folder.edit("experiments/hello.yaml", "prompts: [prompts/hello.md]", both)
    folder.edit(
        "edison.yaml", "version: 1", "version: 1\nsettings: {require_review_approval: false}"
    )
    folder.write(".gitignore", ".edison/*\n")
    folder.git("init", "-q", "--initial-branch=main")
    folder.git("config", "user.name", "Ada")
    folder.git("config", "user.email", "ada@example.org")
    folder.git("add", "-A")
    folder.git("commit", "-qm", "start")
    return folder


@dataclass(frozen=True)
class Past:
    """A loop that has ended, for tests that change nothing."""

    folder: Folder
    doors: list[Door] = field(default_factory=list)
    runners: list[LoopRunner] = field(default_factory=list)


@dataclass
class Door:
    """A loop at the door of the museum, with scripted models."""

    folder: Folder
    auto: bool = True
    steps: list[str] = field(default_factory=list)
    greeter: Scripted = field(default_factory=lambda: Scripted(well_mannered))
    refiner: Scripted = field(default_factory=lambda: Scripted(mended))

    def provider_for(self, model: Model) -> Any:
        known = {"refiner": self.refiner, "small": self.greeter}
        return known.get(model.name) or provider_for(model)

    def looper(self, *names: str, iterations: int = 4) -> LoopRunner:
        request = refine_request(load_project(self.folder.path), "loop", "hello", "hello")
        project = request.project
        experiment = project.experiment("hello")

        def opened(
            loop: SpendingCap | None = None,
        ) -> contextlib.AbstractContextManager[RunContext]:
            return contextlib.nullcontext(RunContext(self.provider_for, CellGrader.of, loop=loop))

        context = LoopContext(
            review=ReviewContext.of(project),
            targets=tuple(target_of(project, experiment, name) for name in names),
            refiner=refiner_of(project.models["refiner"]),
            open_context=opened,
            actor=request.actor,
            audit=lambda of, made: replace(request, target=of).audit_entry(made),
            on_step=self.steps.append,
        )
        return LoopRunner(context, begin(context, LoopRequest(iterations, auto=self.auto), {}))

    def run(self, *names: str, iterations: int = 4) -> LoopRunner:
        runner = self.looper(*names, iterations=iterations)
        assert runner.run()
        return runner


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return Past(Folder(tmp_path_factory.mktemp("past")))


@pytest.fixture
def evolved(past: Past) -> Past:
    """The loop of both prompts, which is run for the first test that looks at it."""
    if not past.runners:
        two_prompts(past.folder)
        past.doors.append(Door(past.folder))
        past.runners.append(past.doors[0].run("hello", "loud"))
    return past


def report_of(runner: LoopRunner) -> LoopReport:
    assert runner.final is not None
    return runner.final


@pytest.mark.nightly
def test_prompts_evolve_together_and_one_shown_worse_is_dropped(evolved: Past) -> None:
    (door,), (runner,) = evolved.doors, evolved.runners
    rows = runner.iterations()
    hello, loud = (course_of(rows, name) for name in ("hello", "loud"))
    assert [one.number for one in hello] == [1, 2, 3, 4]
    assert [one.number for one in loud] == [1, 2], "dropped after the second iteration"
    assert hello[0].run_id == loud[0].run_id, "one run measures all prompts in play"
    scores = [one.score or 0.0 for one in hello]
    assert scores == sorted(scores) and scores[-1] > scores[0]
    assert (loud[1].score or 0.0) > (loud[0].score or 0.0), "it was refined as well"
    assert loud[0].dropped is None
    reason = loud[1].dropped or ""
    assert reason.startswith("loud is dropped: ") and " points below hello on 3" in reason
    assert reason in door.steps
    commits = evolved.folder.git("log", "--format=%s", f"main..{BRANCH}").splitlines()
    assert [line.split(":")[0] for line in commits] == [
        "Refine hello",
        "Refine hello",
        "Refine loud",
        "Refine hello",
    ]


@pytest.mark.nightly
def test_a_dropped_prompt_costs_nothing_any_more(museum: Folder, evolved: Past) -> None:
    kept, (pruned,) = Door(museum), evolved.doors
    asked = sum(SHOUT in request.messages[-1].content for request in pruned.greeter.asked)
    stop = "stop: {prune_weak_prompts: false}\nrefine: {"
    museum.edit("experiments/hello.yaml", "refine: {", stop)
    museum.git("commit", "-qam", "keep all")
    runner = kept.run("hello", "loud", iterations=3)
    assert len(course_of(runner.iterations(), "loud")) == 3
    longer = sum(SHOUT in request.messages[-1].content for request in kept.greeter.asked)
    assert longer >= asked + CASES, "one more version on all cases"


def test_the_report_has_the_course_of_each_prompt(evolved: Past) -> None:
    final = report_of(evolved.runners[0])
    assert final.best.prompt == "hello"
    assert "held-out cases the new hello is +" in final.sentence
    told = final.as_json()
    hello, loud = told["prompts"]
    assert (hello["prompt"], loud["prompt"]) == ("hello", "loud")
    assert hello["holdout"]["decision"] == "better"
    assert (hello["dropped"], loud["holdout"]) == (None, None)
    assert loud["dropped"].startswith("loud is dropped: ")
    files = {file.kind: file.path for file in final.files}
    text = files["report_md"].read_text()
    for words in ("## Prompts", "| `loud` | 2 |", "loud is dropped: ", "## The change of `hello`"):
        assert words in text, words
    assert "## The change of `loud`" not in text
    assert files["prompt-hello_md"].read_text() == files["prompt_md"].read_text()
    assert "id: loud" in files["prompt-loud_md"].read_text()


@pytest.mark.nightly
def test_equal_prompts_are_both_kept_and_confirmed(museum: Folder) -> None:
    museum.write("prompts/loud.md", PROMPT.replace("id: hello", "id: loud") + "Be there.\n")
    museum.git("commit", "-qam", "as good")
    runner = Door(museum).run("hello", "loud", iterations=2)
    assert not any(one.dropped for one in runner.iterations())
    assert list(runner.loop.evidence["others"]) == ["loud"]
    assert runner.loop.evidence["others"]["loud"]["holdout"]["difference"]["p"] < 0.05
    assert {one.first.prompt: one.better for one in report_of(runner).courses} == {
        "hello": True,
        "loud": True,
    }


@pytest.mark.nightly
def test_a_prompt_that_nothing_helps_is_not_asked_about_again(museum: Folder) -> None:
    """The refiner has nothing for one prompt, and improves the other again and again."""
    museum.write("prompts/loud.md", PROMPT.replace("id: hello", "id: loud") + "Be there.\n")
    museum.git("commit", "-qam", "as good")
    door = Door(museum)

    def answer(request: Request) -> str:
        said = mended(request)
        path = "prompts/loud.md"
        if path not in said:
            return said
        blocks = parse_blocks(request.messages[-1].content) or ()
        (text,) = (block.text for block in blocks if block.tag == "prompt")
        return reply("Nod a little.", text=f"{text.rstrip()}\n", path=path)

    door.refiner.answer = answer
    runner = door.run("hello", "loud", iterations=3)
    loud = course_of(runner.iterations(), "loud")
    outcomes = [one.outcome for one in loud]
    assert outcomes[0] == "nothing" and set(outcomes[1:]) <= {"nothing", None}
    asked = [one for one in door.refiner.asked if "id: loud" in one.messages[-1].content]
    assert len(asked) == 1
    assert len({one.version for one in course_of(runner.iterations(), "hello")}) > 2


@pytest.mark.nightly
def test_one_of_several_prompts_can_be_refined_alone(museum: Folder) -> None:
    runner = Door(museum).run("loud", iterations=2)
    assert {one.prompt for one in runner.iterations()} == {"loud"}
    assert runner.loop.prompts == ("loud",)


def test_the_looks_of_a_loop_share_the_error() -> None:
    levels = [shared_level(look) for look in range(1, 60)]
    assert levels[:3] == [0.025, 0.0125, 0.00625]
    assert sum(levels) <= 0.05
    with pytest.raises(ValueError, match="count from 1"):
        shared_level(0)


def test_trials_of_a_loop_are_sampled(museum: Folder) -> None:
    museum.edit("experiments/hello.yaml", "refine: {", "stop: {adaptive_sampling: true}\nrefine: {")
    museum.git("commit", "-qam", "sample")
    door = Door(museum)
    door.refiner.answer = lambda _: reply(SHOUT)
    runner = door.run("hello")
    assert runner.loop.stopped_by == "no_refinement"
    asked = sum(SHOUT in request.messages[-1].content for request in door.greeter.asked)
    assert asked == runner.iterations()[0].cases, "no held-out case was needed"
    assert asked < CASES
