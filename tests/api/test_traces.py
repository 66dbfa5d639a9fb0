"""Calls of every GenAI convention become the same case; hostile files end in an error or a case."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from edison_ci.api.traces import (
    TracedCases,
    TraceOptions,
    appended,
    read_traces,
    without_known,
)
from edison_ci.errors import UsageError
from edison_ci.records import Case, CaseId
from tests.features.importing.spans import (
    any_value,
    asked,
    attributes,
    document,
    lines,
    message,
    span,
)

MESSAGES = [
    message("user", "Hi"),
    message("assistant", "Hello"),
    message("user", "Where is my parcel?"),
]
SYSTEM = [{"type": "text", "content": "Be kind."}]
ANSWER = [{**message("assistant", "On its way."), "finish_reason": "stop"}]
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": [{"type": "text", "text": "Where is my parcel?"}]},
]


def read(data: bytes, **options: Any) -> TracedCases:
    return read_traces(data, "spans.jsonl", TraceOptions(**options))


def only(found: TracedCases) -> dict[str, Any]:
    (row,) = found.rows.values()
    return row


def events() -> list[tuple[str, dict[str, Any]]]:
    told = [(f"gen_ai.{one['role']}.message", one) for one in CHAT]
    return [*told, ("gen_ai.choice", {"index": 0, "message": {"content": "On its way."}})]


def log_records() -> dict[str, Any]:
    """The events of the older convention, as Python libraries write them: log records."""
    records = [
        {
            "eventName": name,
            "traceId": f"{1:032x}",
            "spanId": f"{1:016x}",
            "body": any_value(content),
        }
        for name, content in events()
    ]
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}


INDEXED: dict[str, Any] = {
    f"gen_ai.prompt.{index}.{key}": value if isinstance(value, str) else json.dumps(value)
    for index, one in enumerate(CHAT)
    for key, value in one.items()
} | {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "On its way."}

CONVENTIONS: dict[str, bytes] = {
    "attributes as JSON": lines(
        document(
            span(
                gen_ai__system_instructions=json.dumps(SYSTEM),
                gen_ai__input__messages=json.dumps(MESSAGES),
                gen_ai__output__messages=json.dumps(ANSWER),
            )
        )
    ),
    "structured attributes": lines(
        document(
            span(
                gen_ai__system_instructions=SYSTEM,
                gen_ai__input__messages=MESSAGES,
                gen_ai__output__messages=ANSWER,
            )
        )
    ),
    "events of the span": lines(document(span(events=events()))),
    "events with JSON in an attribute": lines(
        document(
            span(
                events=[
                    (name, {"gen_ai.event.content": json.dumps(content)})
                    for name, content in events()
                ]
            )
        )
    ),
    "log records": lines(document(span()), log_records()),
    "log records before their span": lines(log_records(), document(span())),
    "prompt and completion": lines(
        document(span(gen_ai__prompt=json.dumps(CHAT), gen_ai__completion="On its way."))
    ),
    "content events": lines(
        document(
            span(
                events=[
                    ("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps(CHAT)}),
                    ("gen_ai.content.completion", {"gen_ai.completion": "On its way."}),
                ]
            )
        )
    ),
    "indexed attributes": lines(document(span(**INDEXED))),
    "the event of the operation": lines(
        document(
            span(
                events=[
                    (
                        "gen_ai.client.inference.operation.details",
                        {
                            "gen_ai.system_instructions": SYSTEM,
                            "gen_ai.input.messages": MESSAGES,
                            "gen_ai.output.messages": ANSWER,
                        },
                    )
                ]
            )
        )
    ),
    "one document on many lines": json.dumps(
        document(span(gen_ai__prompt=json.dumps(CHAT), gen_ai__completion="On its way.")), indent=2
    ).encode(),
}


@pytest.mark.parametrize("name", CONVENTIONS)
def test_every_convention_gives_the_same_case(name: str) -> None:
    row = only(read(CONVENTIONS[name], expected=True))
    assert row["input"] == {
        "message": "Where is my parcel?",
        "system": "Be kind.",
        "history": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
        ],
    }
    assert row["expected"] == "On its way."
    assert row["id"] == only(read(CONVENTIONS["attributes as JSON"]))["id"]


def test_what_is_known_of_a_call_goes_to_the_metadata() -> None:
    one = asked(
        "Hi",
        gen_ai__request__model="gpt-4o",
        gen_ai__usage__input_tokens=12,
        gen_ai__usage__completion_tokens=3,
    )
    assert only(read(lines(document(one))))["metadata"] == {
        "model": "gpt-4o",
        "trace_id": f"{1:032x}",
        "time": "2026-09-21T14:13:20.000Z",
        "tokens_in": 12,
        "tokens_out": 3,
    }


def test_expected_is_left_empty_unless_it_is_wanted() -> None:
    assert "expected" not in only(read(CONVENTIONS["attributes as JSON"]))


def test_the_input_has_the_wanted_name() -> None:
    row = only(read(lines(document(asked("Hi"))), name="question"))
    assert row["input"] == {"question": "Hi"}


def test_an_agent_that_calls_tools_gives_one_case_with_its_last_answer() -> None:
    call = {"type": "tool_call", "id": "1", "name": "find", "arguments": {"id": 4}}
    result = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": 4}]}
    first = [message("user", "Where is it?")]
    second = [*first, {"role": "assistant", "parts": [call]}, result]
    found = read(
        lines(
            document(
                span(
                    1,
                    gen_ai__input__messages=first,
                    gen_ai__output__messages=[{"role": "assistant", "parts": [call]}],
                ),
                span(2, gen_ai__input__messages=second, gen_ai__output__messages=ANSWER),
            )
        ),
        expected=True,
    )
    row = only(found)
    assert (row["input"], row["expected"]) == ({"message": "Where is it?"}, "On its way.")
    assert found.duplicates == 1


def test_parts_without_a_text_are_named() -> None:
    parts = [{"type": "text", "content": "What is this?"}, {"type": "blob", "content": "AAAA"}]
    row = only(
        read(lines(document(span(gen_ai__input__messages=[{"role": "user", "parts": parts}]))))
    )
    assert row["input"]["message"] == "What is this?\n[blob]"


def test_other_operations_are_no_calls() -> None:
    other = asked("Hi")
    other["attributes"][0]["value"] = {"stringValue": "invoke_agent"}
    with pytest.raises(UsageError, match="no call of a model"):
        read(lines(document(other)))


def test_a_trace_without_contents_says_how_to_record_them() -> None:
    with pytest.raises(UsageError, match="no message of a user is recorded") as caught:
        read(lines(document(span(gen_ai__request__model="gpt-4o"))))
    assert "CAPTURE_MESSAGE_CONTENT" in caught.value.hint


# --- private and hostile --------------------------------------------------------------------------


def test_personal_data_and_secrets_are_masked_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = "sk-proj-" + "a1B2c3D4" * 4
    text = f"I am ada@example.org, +1 212 555 0187, key {key}\x1b[31m\x00."
    found = read(lines(document(asked(text))))
    row = only(found)
    assert row["input"]["message"] == "I am [E-MAIL], [PHONE], key sk-p...[31m."
    assert (found.personal, found.secrets) == ({"e-mail": 1, "phone": 1}, 1)
    kept = only(read(lines(document(asked(text))), redact=False))["input"]["message"]
    assert "ada@example.org" in kept
    assert key not in kept


def test_a_row_has_no_invisible_characters_and_reads_as_it_was() -> None:
    found = read(lines(document(asked("a\u202eb\u200bc \u2028 d"))))
    (line,) = found.text().splitlines()
    assert line.isprintable()
    assert json.loads(line)["input"]["message"] == "a\u202eb\u200bc \u2028 d"


def test_masks_of_cases_that_are_known_do_not_count() -> None:
    found = read(
        lines(document(asked("Mail ada@example.org"), asked("Mail bo@example.org now", 2)))
    )
    known = Case(CaseId("other"), {"message": "Mail [E-MAIL]"})
    assert without_known(found, [known]).personal == {"e-mail": 1}
    assert (len(found.rows), found.duplicates) == (1, 1)


def test_a_case_is_known_by_its_id_too() -> None:
    found = read(lines(document(asked("Hi"))))
    edited = Case(CaseId(next(iter(found.rows))), {"message": "Hi!"})
    assert not without_known(found, [edited]).rows


def test_the_same_question_twice_is_one_case() -> None:
    found = read(lines(document(asked("Hi", 1), asked("Hi", 2), asked("Ho", 3))))
    assert (found.calls, len(found.rows), found.duplicates) == (3, 2, 1)


def test_a_dataset_without_a_last_line_end_gets_one() -> None:
    found = read(lines(document(asked("Hi"))))
    assert appended(b'{"id": "a"}', found).startswith(b'{"id": "a"}\n{"id": "trace-')
    assert appended(b"", found).count(b"\n") == 1


def test_a_text_that_is_too_long_is_left_out_and_counted() -> None:
    found = read(lines(document(asked("x" * 200_000), asked("Hi", 2))))
    assert (found.too_large, len(found.rows)) == (1, 1)


@pytest.mark.parametrize(
    ("data", "said", "line"),
    [
        (b"", "not valid JSON", 1),
        (b"[]", "neither resourceSpans nor resourceLogs", 1),
        (b'{"spans": []}', "neither resourceSpans nor resourceLogs", 1),
        (lines(document(asked("Hi"))) + b"{\n", "not valid JSON", 2),
        (lines(document(asked("Hi"))) + b'{"a": NaN}\n', "NaN is not a JSON number", 2),
        (lines(document(asked("Hi"))) + b'{"a": 1, "a": 2}\n', "given twice", 2),
        (b'{"resourceSpans": ' + b"[" * 100 + b"]" * 100 + b"}", "nested deeper than 50", 1),
        (b'{"resourceSpans": "\xff"}', "is not UTF-8", 1),
        (b'{"resourceSpans": []}', "no call of a model", None),
    ],
)
def test_a_bad_file_is_refused_with_its_line(data: bytes, said: str, line: int | None) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        read(data)
    assert caught.value.where is not None
    assert caught.value.where.file == "spans.jsonl"
    assert caught.value.where.line in (line, None)
    assert caught.value.hint


JUNK: list[Any] = [
    None, True, -1, 1e300, "", "x", "[", '{"a"', "\ud7ff", [], {}, [[]], [{}], {"a": 1}, "9" * 500,
    {"stringValue": 5}, {"arrayValue": []}, {"arrayValue": {"values": [1]}}, {"kvlistValue": None},
    [{"role": ["user"], "parts": [{"type": {}, "content": [1]}]}], '[{"role": "user", "parts": 5}]',
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    deeper = inner if isinstance(value, dict | list) else ()
    return [path, *(place for key, item in deeper for place in places(item, (*path, key)))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def test_junk_anywhere_ends_in_cases_or_in_an_error_with_a_hint() -> None:
    draw = random.Random(7)
    whole = document(
        span(1, events(), gen_ai__input__messages=MESSAGES, gen_ai__output__messages=ANSWER),
        span(2, gen_ai__prompt=json.dumps(CHAT), gen_ai__usage__input_tokens=3, **INDEXED),
    )
    every = [place for place in places(whole) if place]
    for _ in range(400):
        broken = changed(whole, draw.choice(every), draw.choice(JUNK))
        try:
            found = read(lines(broken), expected=True)
        except UsageError as error:
            assert error.hint
            continue
        for line in found.text().splitlines():
            assert json.loads(line)["input"]["message"]


def test_attributes_are_read_as_otlp_writes_them() -> None:
    assert attributes({"a": 5})[0]["value"] == {"intValue": "5"}
