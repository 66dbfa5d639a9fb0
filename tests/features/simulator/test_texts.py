from __future__ import annotations

import pytest

from benchmarks.sim import Case
from edison_ci.features.simulator import story_task as story
from edison_ci.features.simulator import support_task as support
from edison_ci.features.simulator.assignment import Task, known_cases, load_texts
from tests.features.simulator.conftest import TASKS, seen, written

pytestmark = pytest.mark.daily


@pytest.mark.parametrize("task", TASKS.values())
def test_an_answer_with_every_quality_is_seen_as_good(task: Task) -> None:
    for case in known_cases(task):
        found = seen(Case(case.id, dict(case.inputs), case.expected), written(case))
        assert all(value.value > 0.7 for value in found.values()), (case.id, found)


def test_there_is_a_reply_for_every_known_customer() -> None:
    replies = load_texts("support_replies")
    for case in known_cases(Task.SUPPORT):
        reply = replies[case.id]
        wanted = str(case.expected).casefold()
        assert wanted in reply["fact"].casefold()
        rest = (reply["care"], reply["step"], reply.get("obeyed", ""))
        assert not any(wanted in text.casefold() for text in rest), case.id


def test_there_is_a_story_for_every_known_brief() -> None:
    stories = load_texts("stories")
    for case in known_cases(Task.STORY):
        plot = stories[case.id]
        required = case.inputs["must_include"]
        assert isinstance(required, list) and set(plot["words"]) == set(required)
        elsewhere = plot["opening"] + plot["image"] + plot["ending"]
        for word, sentence in plot["words"].items():
            assert word in sentence and word not in elsewhere, (case.id, word)


def test_weak_sentences_of_stories_are_seen_as_what_they_are() -> None:
    kinds = {
        "telling": story._TELLING,
        "abstract": story._ABSTRACT,
        "cliche": story._CLICHE,
        "cliche_opening": story._CLICHE,
        "stop": story._STOPPED,
        "loud": story._LOUD,
        "gloom": story._GLOOM,
    }
    for bank in load_texts("story_phrases").values():
        for kind, pattern in kinds.items():
            for sentence in bank.get(kind, ()):
                assert pattern.search(sentence.lower()), sentence


def test_phrases_of_replies_are_seen_as_what_they_are() -> None:
    for bank in load_texts("support_phrases").values():
        for sentence in bank["promise"]:
            assert support._PROMISE.search(sentence.lower()), sentence
        for sentence in bank["filler"]:
            assert support._FILLER.search(sentence.lower()), sentence
        for sentence in (*bank["stock"], *bank["vague"], *bank["courtesy"]):
            assert not support._STEP.search(sentence.lower()), sentence
        for sentence in (*bank["stock"], *bank["vague"]):
            assert not support._UNDERSTANDING.search(sentence.lower()), sentence
