"""Runs are exported as spans, metrics and events, and never wait for who collects them."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.records import Completion, Message, Request
from edison_ci.telemetry import export as names
from edison_ci.telemetry.export import exporting
from edison_ci.telemetry.spans import (
    CellSpan,
    call_span,
    cell_span,
    is_configured,
    is_recording,
    run_span,
)
from tests import forked
from tests.ports import held_port
from tests.telemetry.collector import Collector, attributes, collecting
from tests.timing import poll

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Folder

CELL = CellSpan("c0ffee", "ada", "hello", "small", "head", 0)
REQUEST = Request(
    provider="mistral",
    endpoint="",
    model="small-1",
    messages=(Message("user", "Hello sk-abcdefghijklmnopqrstuvwxyz123456"),),
    params={"temperature": 0, "max_tokens": 7, "seed": True, "stop": ["x"]},
    response_format={"type": "object"},
)
ANSWER = Completion("fine", tokens_in=5, tokens_out=2, cached_in=3, served_model="small-1-0711")


def rows(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(folder.path / ".edison/results.db")
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


def test_a_run_with_judges_is_one_trace_with_its_cells_and_calls(mini: Folder) -> None:
    with collecting() as collector:
        done = mini.edison("run", env=collector.environ)
        assert (done.code, done.err.count("exported")) == (0, 0), done.err
    spans = collector.spans()
    by_id = {span.span_id: span for span in spans}
    assert len({span.trace_id for span in spans}) == 1
    (run,) = (span for span in spans if not span.parent_span_id)
    ((run_id,),) = rows(mini, "select id from run")
    found = attributes(run)
    assert run.name == "run hello"
    assert found[names.RUN_ID] == run_id
    assert (found[names.TRIGGER], found[names.STATUS]) == ("cli", "COMPLETED")
    cells = [span for span in spans if span.name.startswith("cell ")]
    stored = dict(rows(mini, "select id, composite from cell"))
    assert {attributes(cell)[names.CELL_ID]: attributes(cell)[names.SCORE] for cell in cells} == (
        pytest.approx(stored)
    )
    assert {cell.parent_span_id for cell in cells} == {run.span_id}
    calls = [span for span in spans if span.name.startswith("chat ")]
    attempts = rows(mini, "select model, phase from attempt order by 1, 2")
    assert sorted((attributes(c)[names.MODEL], attributes(c)[names.PHASE]) for c in calls) == (
        attempts
    )
    for call in calls:
        told, cell = attributes(call), attributes(by_id[call.parent_span_id])
        assert call.name == f"chat {told[names.REQUEST_MODEL]}"
        assert told[names.RUN_ID] == run_id
        assert told[names.CELL_ID] == cell[names.CELL_ID]
        assert told[names.OPERATION] == "chat"
        assert told[names.PROVIDER] == "sim"
        assert told[names.INPUT_TOKENS] > 0 and told[names.OUTPUT_TOKENS] > 0
        assert call.kind == call.SPAN_KIND_CLIENT
        assert call.start_time_unix_nano < call.end_time_unix_nano
    assert collector.resources()[0]["service.name"] == "edison"


def test_each_part_of_a_grade_is_an_event_of_the_call_it_is_about(mini: Folder) -> None:
    with collecting() as collector:
        mini.edison("run", env=collector.environ)
    calls = {span.span_id: attributes(span) for span in collector.spans()}
    events = collector.events()
    assert {event.event_name for event in events} == {names.EVALUATION}
    for event in events:
        assert calls[event.span_id][names.PHASE] == "generate"
    found = sorted(
        (calls[e.span_id][names.CELL_ID], t[names.EVALUATION_NAME], t.get(names.EVALUATION_SCORE))
        for e in events
        for t in [attributes(e)]
    )
    stored = rows(mini, "select cell_id, name, score from component order by 1, 2")
    assert [each[:2] for each in found] == [each[:2] for each in stored]
    assert [each[2] for each in found] == pytest.approx([each[2] for each in stored])
    labels = {attributes(event).get(names.EVALUATION_LABEL) for event in events}
    assert labels <= {"pass", "fail", None} and labels & {"pass", "fail"}


def test_metrics_are_those_of_the_conventions(mini: Folder) -> None:
    with collecting() as collector:
        mini.edison("run", env=collector.environ)
    metrics = collector.metrics()
    duration, tokens = metrics[names.DURATION], metrics[names.TOKENS]
    assert (duration.unit, tokens.unit) == ("s", "{token}")
    ((calls, tokens_in),) = rows(mini, "select count(*), sum(tokens_in) from answer")
    assert sum(point.count for point in duration.histogram.data_points) == calls
    for point in duration.histogram.data_points:
        assert tuple(point.explicit_bounds) == names.DURATION_BUCKETS_S
    read = [p for p in tokens.histogram.data_points if attributes(p)[names.TOKEN_TYPE] == "input"]
    assert sum(point.sum for point in read) == tokens_in
    assert attributes(read[0]).keys() >= {names.OPERATION, names.PROVIDER, names.REQUEST_MODEL}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that is configured for this process."""
    with collecting() as found:
        for name, value in found.environ.items():
            monkeypatch.setenv(name, value)
        yield found


def test_a_call_has_what_the_conventions_name(collector: Collector) -> None:
    with (
        exporting(),
        run_span("R", "hello", "cli"),
        cell_span(CELL),
        call_span(REQUEST, "small", "generate") as span,
    ):
        span.answered(ANSWER)
    assert not is_recording()
    call = next(span for span in collector.spans() if span.name == "chat small-1")
    assert attributes(call) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "mistral_ai",
        "gen_ai.request.model": "small-1",
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.max_tokens": 7,
        "gen_ai.output.type": "json",
        "gen_ai.response.model": "small-1-0711",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "edison.run.id": "R",
        "edison.experiment": "hello",
        "edison.cell.id": "c0ffee",
        "edison.model": "small",
        "edison.phase": "generate",
    }


def test_a_call_that_fails_says_how_and_quotes_nothing(collector: Collector) -> None:
    with (
        exporting(),
        pytest.raises(CallError),
        run_span("R", "hello", "cli"),
        call_span(REQUEST, "small", "generate"),
    ):
        raise CallError(ErrorKind.RATE_LIMIT, "slow down, secret prompt")
    call, run = sorted(collector.spans(), key=lambda span: span.name)
    assert attributes(call)["error.type"] == "RATE_LIMIT"
    assert (call.status.code, run.status.code) == (call.status.STATUS_CODE_ERROR,) * 2
    assert b"secret prompt" not in call.SerializeToString()
    (point,) = collector.metrics()[names.DURATION].histogram.data_points
    assert attributes(point)["error.type"] == "RATE_LIMIT"


@pytest.mark.parametrize(
    ("said", "private", "sent"),
    [("", False, False), ("true", False, True), ("span_only", False, True), ("true", True, False)],
)
def test_texts_are_sent_only_if_wanted_and_allowed(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, said: str, private: bool, sent: bool
) -> None:
    monkeypatch.setenv(names.CAPTURE, said)
    with exporting(private=private), call_span(REQUEST, "small", "generate") as span:
        span.answered(ANSWER)
    (call,) = collector.spans()
    assert (b"fine" in call.SerializeToString()) is sent
    if sent:
        (asked,) = json.loads(attributes(call)[names.INPUT_MESSAGES])
        assert asked == {
            "role": "user",
            "parts": [{"type": "text", "content": "Hello sk-a..."}],
        }, "without secrets"


# --- configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_standard_variables_decide(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], on: bool
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert is_configured() is on


def test_headers_and_the_name_of_the_service_are_those_of_the_environment(mini: Folder) -> None:
    with collecting() as collector:
        more = {"OTEL_EXPORTER_OTLP_HEADERS": "x-team=tests", "OTEL_SERVICE_NAME": "nightly"}
        mini.edison("run", env={**collector.environ, **more})
    assert {headers.get("x-team") for headers in collector.headers} == {"tests"}
    assert collector.resources()[0]["service.name"] == "nightly"


def test_offline_nothing_is_sent(mini: Folder) -> None:
    with collecting() as collector:
        assert mini.edison("run", "--offline", env=collector.environ).code == 0
    assert collector.headers == []


def test_without_a_collector_the_library_is_not_imported(mini: Folder) -> None:
    code = (
        "import sys; from edison_ci.cli.app import run\n"
        "try: run(['run', '-q'])\n"
        "finally: assert not [m for m in sys.modules if m.startswith('opentelemetry')]"
    )
    done = forked.run([sys.executable, "-P", "-c", code], cwd=mini.path, check=False)
    assert done.returncode == 0


def test_a_missing_library_is_named_and_the_run_goes_on(
    mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; from edison_ci import extras\n"
        "from edison_ci.telemetry import export\n"
        "export.faults_of = lambda extra: ['opentelemetry.sdk.trace is not installed']\n"
        "from edison_ci.cli.app import run; run(['run'])"
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    done = forked.run(
        [sys.executable, "-P", "-c", code],
        cwd=mini.path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "is set, but spans cannot be exported (reason=opentelemetry.sdk.trace" in done.stderr
    assert "pip install 'opentelemetry-exporter-otlp-proto-http>=1.40,<2'" in done.stderr


# --- collectors that fail -------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("fault", ["hangs", "500", "400", "closed"])
def test_a_collector_that_fails_costs_a_run_nothing_but_a_warning(mini: Folder, fault: str) -> None:
    settings: dict[str, Any] = {"hangs": fault == "hangs"}
    if fault.isdigit():
        settings["status"] = int(fault)
    with collecting(**settings) as collector, held_port() as closed:
        address = f"http://127.0.0.1:{closed}" if fault == "closed" else collector.address
        done = mini.edison("run", env={"OTEL_EXPORTER_OTLP_ENDPOINT": address})
    assert done.code == 0
    assert done.err.count("not all spans and metrics could be exported") == 1, done.err
    assert "Traceback" not in done.err
    assert rows(mini, "select status from run") == [("COMPLETED",)]


def test_the_wait_at_the_end_is_bounded(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edison_ci.telemetry.export._FLUSH_S", 0.05)
    before = set(threading.enumerate())
    collector.hangs = True
    with exporting(), run_span("R", "hello", "cli"):
        pass
    assert not is_recording(), "it came back while the collector was still hanging"
    assert not collector.released.is_set()
    collector.hangs = False
    collector.released.set()
    poll("its threads end", lambda: not set(threading.enumerate()) - before)
