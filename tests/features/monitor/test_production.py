"""Answers of production: which are new, which are sampled, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.sections import Production
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import UsageError
from edison_ci.features.monitor.production_calls import sample_of

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.features.monitor.production_calls import ProductionSample

NOBODY: frozenset[str] = frozenset()


def row(n: int, day: int = 1, **more: Any) -> dict[str, Any]:
    time = f"2026-11-{day:02d}T10:{n:02d}:00Z"
    return {
        "input": {"message": f"question {n} of {day}"},
        "text": f"answer {n}",
        "time": time,
    } | more


def write(folder: Path, *rows: dict[str, Any], name: str = "a.jsonl") -> None:
    (folder / "logs").mkdir(exist_ok=True)
    with (folder / "logs" / name).open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(each)}\n" for each in rows)


def sample(
    folder: Path, size: int = 50, after: str = "", known: frozenset[str] = NOBODY
) -> ProductionSample:
    chosen = Production(files="logs/*.jsonl", sample=size)
    return sample_of(WorkingTree(folder), chosen, after=after, graded=known)


def test_only_answers_after_the_last_sample_are_new(tmp_path: Path) -> None:
    write(tmp_path, *(row(n) for n in range(5)))
    first = sample(tmp_path)
    assert (first.new, len(first.calls), first.until) == (5, 5, "2026-11-01T10:04:00.000Z")
    assert sample(tmp_path, after=first.until).calls == ()
    write(tmp_path, *(row(n, day=2) for n in range(3)), name="b.jsonl")
    second = sample(tmp_path, after=first.until)
    assert (second.new, second.files) == (3, 2)
    assert {call.inputs["message"] for call in second.calls} == {
        f"question {n} of 2" for n in range(3)
    }


def test_an_answer_without_a_time_is_new_if_its_question_is(tmp_path: Path) -> None:
    write(tmp_path, *({**row(n), "time": None} for n in range(4)))
    first = sample(tmp_path)
    assert (len(first.calls), first.until) == (4, "")
    known = frozenset(call.id for call in first.calls[:3])
    assert [call.id for call in sample(tmp_path, known=known).calls] == [first.calls[3].id]


def test_the_same_question_asked_again_later_is_graded_again(tmp_path: Path) -> None:
    write(tmp_path, row(1))
    first = sample(tmp_path)
    write(tmp_path, {**row(1), "time": "2026-11-09T00:00:00Z", "text": "another answer"})
    again = sample(tmp_path, after=first.until)
    assert [(call.id, call.text) for call in again.calls] == [(first.calls[0].id, "another answer")]


def test_the_sample_is_the_same_for_the_same_answers_and_not_the_first_ones(tmp_path: Path) -> None:
    write(tmp_path, *(row(n) for n in range(60)))
    chosen = sample(tmp_path, size=20)
    assert (chosen.new, len(chosen.calls)) == (60, 20)
    assert chosen.calls == sample(tmp_path, size=20).calls
    numbers = sorted(int(str(call.text).split()[1]) for call in chosen.calls)
    assert numbers != list(range(20)) and max(numbers) > 30


def test_traces_are_read_with_their_latency(tmp_path: Path) -> None:
    attributes = [
        {"key": "gen_ai.request.model", "value": {"stringValue": "gpt"}},
        {"key": "gen_ai.prompt", "value": {"stringValue": "Where is it? ada@example.org"}},
        {"key": "gen_ai.completion", "value": {"stringValue": "On Friday."}},
    ]
    span = {
        "traceId": "ab", "spanId": "cd", "startTimeUnixNano": "1793000000000000000",
        "endTimeUnixNano": "1793000000250000000", "attributes": attributes,
    }  # fmt: skip
    silent = {**span, "spanId": "ef", "attributes": attributes[:2]}
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [span, silent]}]}]}
    write(tmp_path, document)
    (call,) = sample(tmp_path).calls
    assert (call.inputs, call.text, call.model) == (
        {"message": "Where is it? [E-MAIL]"}, "On Friday.", "gpt",
    )  # fmt: skip
    assert call.latency_ms == pytest.approx(250)
    assert call.time.startswith("2026-10-2")


def test_personal_data_secrets_and_control_characters_do_not_come_in(tmp_path: Path) -> None:
    key = "sk-" + "a1B2" * 12
    nested = {"message": "call +49 30 901820 \x1b[31m", "history": [{"content": "ada@example.org"}]}
    write(tmp_path, row(1, input=nested, text=f"the key is {key}"))
    (call,) = sample(tmp_path).calls
    told = json.dumps(call.inputs) + call.text
    assert "ada@" not in told and "901820" not in told and key not in told and "\\u001b" not in told


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"text": "no input"}, "not an answer with input and text"),
        ({"input": {"message": "x"}, "text": 5}, "not an answer with input and text"),
        ([1, 2], "not an answer with input and text"),
        (row(1, time="yesterday"), "time is 'yesterday'"),
        (row(1, time="2026-11-01T10:00:00"), "time is "),
        (row(1, latency_ms=-1), "latency_ms is '-1'"),
        (row(1, cost_usd=True), "cost_usd is 'True'"),
        (row(1, answer="x"), "unknown key 'answer'"),
    ],
)
def test_a_row_that_is_wrong_is_named_with_its_line(tmp_path: Path, bad: Any, said: str) -> None:
    write(tmp_path, row(0), bad)
    with pytest.raises(UsageError) as caught:
        sample(tmp_path)
    assert said in caught.value.message
    assert caught.value.where is not None
    assert (caught.value.where.file, caught.value.where.line) == ("logs/a.jsonl", 2)


def test_empty_and_missing_files_have_nothing_new(tmp_path: Path) -> None:
    assert sample(tmp_path).files == 0
    write(tmp_path)
    found = sample(tmp_path)
    assert (found.files, found.new, found.calls) == (1, 0, ())


def test_wildcards_are_for_names_only() -> None:
    for files in ("logs*/a.jsonl", "../a.jsonl", "logs/a.csv", "/var/log/a.jsonl"):
        with pytest.raises(ValueError, match=r".+"):
            Production(files=files)
