"""Recordings: their exact form, written all or nothing, read with care, answered from alone."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.contracts import CallError
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import StoreError, UsageError
from edison_ci.providers.adapters import provider_for
from edison_ci.providers.replay import (
    MissingRecording,
    RecordedAnswer,
    ReplayProvider,
    open_replay,
    read_recording,
    run_answers,
    write_recording,
)
from edison_ci.records import Completion, FinishReason, Message, Request, canonical_json
from edison_ci.store.answers import Settlement
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import Booking, Reservation, reserve, settle
from edison_ci.store.writer import Writer
from tests.providers.kitchen import ask, model

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path


def record(reader: sqlite3.Connection, path: Path) -> int:
    return write_recording(path, (answer.line for answer in run_answers(reader, "r")))


NOW = "2026-11-15T12:00:00Z"


def line(request_hash: str = "a", answer_no: int = 0, **changes: object) -> str:
    values = {
        "request_hash": request_hash,
        "answer_no": answer_no,
        "text": "Hi",
        "tool_calls": None,
        "finish_reason": "stop",
        "tokens_in": 3,
        "tokens_out": 1,
        "latency_ms": 5,
        "served_model": "m",
        "cost_microusd": 7,
    }
    return canonical_json({**values, **changes})


def recording(*lines: str) -> io.BytesIO:
    return io.BytesIO("\n".join(['{"edison_recording": 1}', *lines, ""]).encode())


def buy(connection: Writer, request: Request, completion: Completion, run: str = "r") -> None:
    booking = Booking(request.request_hash, run, "m", "generate", 9, 9, "me", NOW, ("run:r",))
    outcome = connection.submit(reserve(booking)).result()
    assert isinstance(outcome, Reservation)
    settlement = Settlement(completion, 7, "billed", NOW)
    connection.submit(settle(booking, outcome.attempt, settlement)).result()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[Writer, sqlite3.Connection]]:
    with Writer(tmp_path / "results.db") as writer:
        reader = open_reader(tmp_path / "results.db")
        yield writer, reader
        reader.close()


# --- writing --------------------------------------------------------------------------------------


def test_a_recording_has_exactly_this_form(
    store: tuple[Writer, sqlite3.Connection], tmp_path: Path
) -> None:
    writer, reader = store
    calls = [{"tool": "interim", "arguments": {"at": "Größe"}}]
    plain = Completion("Hi\nthere ☃", tokens_in=3, tokens_out=None, latency_ms=5, served_model="m")
    called = Completion("", FinishReason.TOOL_CALLS, 3, 1, tool_calls=calls)  # type: ignore[arg-type]
    requests = sorted([ask("one"), ask("two")], key=lambda request: request.request_hash)
    buy(writer, requests[1], called)
    buy(writer, requests[0], plain)
    target = tmp_path / "rec.jsonl"
    assert record(reader, target) == 2
    first, second = requests[0].request_hash, requests[1].request_hash
    assert target.read_text("utf-8") == (
        '{"edison_recording": 1}\n'
        '{"answer_no":0,"cost_microusd":7,"finish_reason":"stop","latency_ms":5,'
        f'"request_hash":"{first}","served_model":"m","text":"Hi\\nthere ☃","tokens_in":3,'
        '"tokens_out":null,"tool_calls":null}\n'
        '{"answer_no":0,"cost_microusd":7,"finish_reason":"tool_calls","latency_ms":0,'
        f'"request_hash":"{second}","served_model":"","text":"","tokens_in":3,"tokens_out":1,'
        '"tool_calls":[{"arguments":{"at":"Größe"},"tool":"interim"}]}\n'
    )


def test_answers_that_were_reused_are_recorded_and_those_of_other_runs_are_not(
    store: tuple[Writer, sqlite3.Connection], tmp_path: Path
) -> None:
    writer, reader = store
    buy(writer, ask("reused"), Completion("old"), run="before")
    buy(writer, ask("foreign"), Completion("foreign"), run="before")
    buy(writer, ask("own"), Completion("own"), run="r")
    writer.submit(
        lambda c: c.execute(
            "insert into run (id, experiment, trigger, status, plan_hash, snapshot, cells_planned,"
            " created_at) values ('r', 'e', 'cli', 'COMPLETED', 'h', '{}', 1, 't')"
        )
    ).result()
    writer.submit(
        lambda c: c.execute(
            "insert into cell (id, run_id, side, prompt, version, model, case_id, repeat, "
            "request_hash,"
            " answer_no, status) values ('c', 'r', 'head', 'p', 'v', 'm', 'k', 0, ?, 0, 'ok')",
            (ask("reused").request_hash,),
        )
    ).result()
    record(reader, tmp_path / "rec.jsonl")
    with (tmp_path / "rec.jsonl").open("rb") as stream:
        texts = {answer.text for answer in read_recording(stream, "rec")}
    assert texts == {"old", "own"}


def test_two_recordings_of_one_run_are_the_same_bytes(
    store: tuple[Writer, sqlite3.Connection], tmp_path: Path
) -> None:
    writer, reader = store
    for number in range(20):
        buy(writer, ask(str(number)), Completion(f"answer {number}"))
    for name in ("a", "b"):
        record(reader, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    request_hashes = [
        json.loads(row)["request_hash"] for row in (tmp_path / "a").read_text().split("\n")[1:-1]
    ]
    assert request_hashes == sorted(request_hashes)


def test_a_recording_that_fails_leaves_the_old_one(
    store: tuple[Writer, sqlite3.Connection], tmp_path: Path
) -> None:
    writer, reader = store
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "rec.jsonl").write_text("the old one")
    buy(writer, ask("tampered"), Completion("before"))
    writer.submit(lambda c: c.execute("update answer_text set text = 'after'")).result()
    with pytest.raises(StoreError, match="is damaged"):
        record(reader, folder / "rec.jsonl")
    assert [entry.name for entry in folder.iterdir()] == ["rec.jsonl"]
    assert (folder / "rec.jsonl").read_text() == "the old one"


def test_a_recording_is_synced_before_it_takes_its_place(
    store: tuple[Writer, sqlite3.Connection], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = store
    buy(writer, ask(), Completion("Hi"))
    did: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        did.append("sync")
        fsync(descriptor)

    def replaced(source: str, target: str) -> None:
        did.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    record(reader, tmp_path / "rec.jsonl")
    assert did == ["sync", "replace", "sync"]


# --- reading --------------------------------------------------------------------------------------


WRONG_RECORDINGS = [
    (b"", "rec", "is empty"),
    (b"\n", "rec:1", ""),
    (b'{"edison_recording": 2}\n', "rec:1", "must start with"),
    (b'{"request_hash": "a"}\n', "rec:1", "must start with"),
    (recording("{").getvalue(), "rec:2", ""),
    (recording("[]").getvalue(), "rec:2", "is not a JSON object"),
    (recording(line(), '{"request_hash": "a"}').getvalue(), "rec:3", "lacks 'answer_no'"),
    (recording(line(prompt="x")).getvalue(), "rec:2", "unknown 'prompt'"),
    (recording(line(text=7)).getvalue(), "rec:2", "'text'"),
    (recording(line(answer_no=-1)).getvalue(), "rec:2", "'answer_no'"),
    (recording(line(tokens_in="3")).getvalue(), "rec:2", "'tokens_in'"),
    (recording(line(cost_microusd=1.5)).getvalue(), "rec:2", "'cost_microusd'"),
    (recording(line(finish_reason="odd")).getvalue(), "rec:2", "'finish_reason'"),
    (recording(line(tool_calls="x")).getvalue(), "rec:2", "'tool_calls'"),
    (recording(line().replace('"Hi"', '"\\ud800"')).getvalue(), "rec:2", ""),
    (recording(line().replace("7", "NaN")).getvalue(), "rec:2", ""),
    (recording('{"answer_no":0,' + line()[1:]).getvalue(), "rec:2", "twice"),
    (b'{"edison_recording": 1}\n\xff\xfe\n', "rec:2", ""),
    (recording("[" * 5_000).getvalue(), "rec:2", ""),
]


def test_what_is_wrong_is_said_with_its_line(subtests: pytest.Subtests) -> None:
    for text, where, said in WRONG_RECORDINGS:
        with subtests.test(text=text):
            with pytest.raises(UsageError) as caught:
                list(read_recording(io.BytesIO(text), "rec"))
            assert said in caught.value.message
            assert str(caught.value.where) == where
            assert caught.value.hint


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edison_ci.providers.replay.MAX_LINE_BYTES", 10_000)
    with pytest.raises(UsageError, match="longer than"):
        list(read_recording(recording(line(text="x" * 20_000)), "rec"))


texts = st.text(st.characters(codec="utf-8"))


@given(texts, texts, st.integers(0, 10**9), st.none() | st.integers(0, 10**9))
def test_what_was_written_is_read(text: str, name: str, cost: int, tokens: int | None) -> None:
    answer = RecordedAnswer("a", 0, text, [{"tool": name}], "length", tokens, 1, 2, name, cost)
    assert list(read_recording(recording(answer.line), "rec")) == [answer]


# --- replaying ------------------------------------------------------------------------------------


def recorded(request: Request, text: str, answer_no: int = 0) -> RecordedAnswer:
    return RecordedAnswer(request.request_hash, answer_no, text, None, "stop", 3, 1, 5, "m", 7)


async def test_a_replay_gives_the_newest_take() -> None:
    answers = [recorded(ask(), "new", 2), recorded(ask(), "old", 0), recorded(ask("?"), "other")]
    replay = ReplayProvider(answers)
    answer = await replay.complete(ask())
    assert answer == Completion("new", FinishReason.STOP, 3, 1, 0, 5, "m")
    assert len(replay) == 2
    found = replay.find(ask())
    assert found is not None
    assert found.cost_microusd == 7


async def test_a_call_that_was_not_recorded_is_told_apart() -> None:
    with pytest.raises(MissingRecording) as caught:
        await ReplayProvider([]).complete(ask())
    error = caught.value
    assert isinstance(error, CallError)
    assert (error.charged, error.retried) == (False, False)
    assert error.request_hash == ask().request_hash
    assert ask().request_hash[:12] in error.message


def test_a_repeat_that_was_not_recorded_has_no_answer() -> None:
    assert ReplayProvider([recorded(ask(), "one")]).find(ask(repeat=1)) is None


@pytest.mark.parametrize(
    "entry",
    [
        "{provider: openai, model: gpt-4o}",
        "{provider: anthropic, model: gpt-4o}",
        "{provider: ollama, model: gpt-4o}",
        "{provider: litellm, model: openai/gpt-4o}",
    ],
)
async def test_a_replay_model_answers_for_a_vendor_at_its_own_address(
    entry: str, tmp_path: Path
) -> None:
    original = model(entry)
    message = (Message("user", "Hi"),)
    asked = Request(original.provider, original.endpoint, "gpt-4o", message, {"max_tokens": 9})
    (tmp_path / "rec.jsonl").write_text(
        f'{{"edison_recording": 1}}\n{recorded(asked, "yes").line}\n'
    )
    played = model("{provider: replay, model: gpt-4o, store: rec.jsonl}")
    provider = provider_for(played, environ={}, tree=WorkingTree(tmp_path))
    request = Request("replay", played.endpoint, played.model, message, {"max_tokens": 9})
    assert (await provider.complete(request)).text == "yes"


def test_a_recording_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.jsonl").write_text("no\n")
    with pytest.raises(UsageError) as caught:
        open_replay("broken.jsonl", WorkingTree(tmp_path))
    assert str(caught.value.where) == "broken.jsonl:1"
    with pytest.raises(UsageError, match="does not exist"):
        open_replay("missing.jsonl", WorkingTree(tmp_path))
    with pytest.raises(UsageError, match="leaves the project"):
        open_replay("../../etc/passwd", WorkingTree(tmp_path))
