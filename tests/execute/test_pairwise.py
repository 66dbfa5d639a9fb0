"""Which cells are set against each other, and which answer stands in whose place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.config.load import load_project
from edison_ci.execute.pairwise import Opponents, Pair, is_swapped
from edison_ci.execute.tasks import RunWork
from edison_ci.plan.selection import EVERYTHING, Selection
from edison_ci.records import CaseId, Side

if TYPE_CHECKING:
    from edison_ci.execute.tasks import Task
    from tests.conftest import Folder

HELLO = "experiments/hello.yaml"


def work_of(folder: Folder, selection: Selection = EVERYTHING) -> RunWork:
    project = load_project(folder.path)
    return RunWork(project, {Side.HEAD: project.experiments["hello"]}, selection)


def rivals_of(folder: Folder, selection: Selection = EVERYTHING) -> list[tuple[str, str]]:
    """Return the models of every pair that the cells of one case belong to."""
    work = work_of(folder, selection)
    rivals = Opponents.of(work)
    first = [task for task in work.tasks() if task.case.id == "ada"]
    found = [pair for task in first for pair in rivals.pairs(task)]
    return sorted({(pair.a.configuration.name, pair.b.configuration.name) for pair in found})


def test_the_first_model_that_is_chosen_is_what_the_others_are_held_against(mini: Folder) -> None:
    mini.write(
        "models.yaml",
        "small: {provider: sim, model: small}\nbig: {provider: sim, model: large}\n"
        "judge: {provider: sim, model: judge}\n",
    )
    mini.edit(
        HELLO, "models: [small]", "models: [{use: small, params: {temperature: [0, 1]}}, big]"
    )
    mini.edit(HELLO, "pointwise: [judge]", "pointwise: [judge], pairwise: {by: judge}")
    cold, warm = "small[temperature=0]", "small[temperature=1]"
    assert rivals_of(mini) == [("big", cold), (warm, cold)]
    assert rivals_of(mini, Selection(models=("big",))) == []
    mini.edit(HELLO, "{by: judge}", "{by: judge, all_pairs: true}")
    assert rivals_of(mini) == [("big", cold), ("big", warm), (warm, cold)]


def test_places_are_random_by_case_and_stay_as_they_are(mini: Folder) -> None:
    task = next(work_of(mini).tasks())

    def pair(number: int) -> Pair:
        case = replace(task.case, id=CaseId(f"case {number}"))
        one: Task = replace(task, case=case)
        return Pair(one, replace(one, side=Side.BASE))

    swapped = [is_swapped(pair(number)) for number in range(400)]
    assert 160 < sum(swapped) < 240
    assert swapped == [is_swapped(pair(number)) for number in range(400)]
