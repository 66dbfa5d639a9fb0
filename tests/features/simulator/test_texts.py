from __future__ import annotations

import pytest

from benchmarks.sim import Case
from edison_ci.features.simulator.assignment import known_cases
from edison_ci.features.simulator.tasks import Task, load_data, task_data
from tests.features.simulator.conftest import TASKS, seen, written

pytestmark = pytest.mark.daily


@pytest.mark.parametrize("task", TASKS.values())
def test_an_answer_with_every_quality_is_seen_as_good(task: Task) -> None:
    for case in known_cases(task):
        found = seen(Case(case.id, dict(case.inputs), case.expected), written(case))
        assert all(value.value > 0.7 for value in found.values()), (case.id, found)


def test_there_is_a_reply_for_every_known_customer() -> None:
    replies = load_data("support_replies")
    for case in known_cases(Task.SUPPORT):
        reply = replies[case.id]
        wanted = str(case.expected).casefold()
        assert wanted in reply["fact"].casefold()
        rest = (reply["care"], reply["step"], reply.get("obeyed", ""))
        assert not any(wanted in text.casefold() for text in rest), case.id


def test_there_is_a_story_for_every_known_brief() -> None:
    stories = load_data("stories")
    for case in known_cases(Task.STORY):
        plot = stories[case.id]
        required = case.inputs["must_include"]
        assert isinstance(required, list) and set(plot["words"]) == set(required)
        elsewhere = plot["opening"] + plot["image"] + plot["ending"]
        for word, sentence in plot["words"].items():
            assert word in sentence and word not in elsewhere, (case.id, word)


def test_weak_sentences_of_stories_are_seen_as_what_they_are() -> None:
    patterns = task_data(Task.STORY).patterns
    kinds = {
        "telling": patterns["telling"],
        "abstract": patterns["abstract"],
        "cliche": patterns["cliche"],
        "cliche_opening": patterns["cliche"],
        "stop": patterns["stopped"],
        "loud": patterns["loud"],
        "gloom": patterns["gloom"],
    }
    for bank in load_data("story_phrases").values():
        for kind, pattern in kinds.items():
            for sentence in bank.get(kind, ()):
                assert pattern.search(sentence.lower()), sentence


def test_phrases_of_replies_are_seen_as_what_they_are() -> None:
    patterns = task_data(Task.SUPPORT).patterns
    for bank in load_data("support_phrases").values():
        for sentence in bank["promise"]:
            assert patterns["promise"].search(sentence.lower()), sentence
        for sentence in bank["filler"]:
            assert patterns["filler"].search(sentence.lower()), sentence
        for sentence in (*bank["stock"], *bank["vague"], *bank["courtesy"]):
            assert not patterns["step"].search(sentence.lower()), sentence
        for sentence in (*bank["stock"], *bank["vague"]):
            assert not patterns["understanding"].search(sentence.lower()), sentence
