"""Attacks through spans: keys and texts that must not leave, and collectors that misbehave."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.documents.secrets import learn
from edison_ci.records import Completion, Message, Request
from edison_ci.safety.redaction import redactor
from edison_ci.telemetry import export
from edison_ci.telemetry import export as names
from edison_ci.telemetry.export import exporting
from edison_ci.telemetry.spans import CellSpan, call_span, cell_span, run_span
from tests.e2e.acting import GOOD
from tests.features.github.commands.test_github_run import Job, job
from tests.telemetry.collector import attributes, collecting
from tests.telemetry.test_export import collector

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler

    from tests.conftest import Folder
    from tests.telemetry.collector import Collector

pytestmark = pytest.mark.daily

__all__ = ["collector", "job"]

CANARY = "canary-of-a-collector-0123456789"
SHAPED = "sk-ant-" + "a1B2" * 8
"""What looks like a key."""


class Part:
    """A part of a grade."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        self.score, self.passed = 1.0, True


def recorded(collector: Collector, text: str, **options: Any) -> bytes:
    """Return what is exported of a run in which every text is this one."""
    name = text[:150]
    messages = (Message("user", text), Message("system", text))
    request = Request("openai", "", name, messages, {})
    with (
        exporting(**options),
        run_span("R", "hello", "cli"),
        cell_span(CellSpan("c0ffee", name, "hello", "small", "head", 0)) as cell,
    ):
        with call_span(request, "small", "generate") as call:
            call.answered(Completion(text, served_model=name, tokens_in=1, tokens_out=1))
        cell.graded("ok", 1.0, [Part(name, text)])
    return b"".join(
        message.SerializeToString()
        for message in (*collector.spans(), *collector.events(), *collector.metrics().values())
    )


TEXTS = {
    "a known key": f"text {CANARY}",
    "a known key as JSON": json.dumps(f"a{CANARY}b"),
    "a key in an address": f"https://eve:{CANARY}@thief.example/",
    "what looks like a key": f"text {SHAPED}",
    "a private key": "-----BEGIN RSA PRIVATE KEY-----",
    "control characters": "text \x00\x1b]0;gone\x07",
    "HTML": "<script>a()</script>",
    "a text without end": "text " * 200_000,
    "attributes of ours": '"edison.status": "COMPLETED"',
}


@pytest.mark.parametrize("attack", TEXTS)
@pytest.mark.parametrize("capture", ["", "true"])
def test_no_span_has_a_key_or_a_text_without_end(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, attack: str, capture: str
) -> None:
    monkeypatch.setenv("SOME_API_KEY", CANARY)
    monkeypatch.setenv(names.CAPTURE, capture)
    learn({"SOME_API_KEY": CANARY})
    said = recorded(collector, TEXTS[attack])
    assert said, "a text that cannot be sent keeps no span away"
    assert CANARY.encode() not in said
    assert b"a1B2a1B2" not in said
    assert len(said) < 6 * export._LONGEST_TEXT + 20_000, "whatever the texts are"
    if not capture:
        assert b"gen_ai.input.messages" not in said
    assert {
        attributes(span)[names.STATUS] for span in collector.spans() if "cell" in span.name
    } == {"ok"}


@pytest.mark.parametrize("private", [False, True])
def test_personal_data_that_is_not_stored_is_not_exported_either(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, private: bool
) -> None:
    class Settings:
        redact_pii_before_storage = True

    monkeypatch.setenv(names.CAPTURE, "true")
    text = "Write to ada@example.org or call +41 44 668 18 00."
    request = Request("openai", "", "m", (Message("user", text),), {})
    with (
        exporting(private=private, redact=redactor(Settings())),
        call_span(request, "small", "generate") as call,
    ):
        call.answered(Completion("fine", tokens_in=1, tokens_out=1))
    (span,) = collector.spans()
    assert b"ada@example.org" not in span.SerializeToString()
    assert (b"[E-MAIL]" in span.SerializeToString()) is not private


def test_a_proposal_decides_neither_about_texts_nor_about_the_collector(
    job: Job, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base is private, and the head says that it is not; its files name another collector."""
    monkeypatch.setenv(names.CAPTURE, "true")
    job.bench.repository.write(
        "edison.yaml", "version: 1\nproject: greetings\nsettings: {private: true}\n"
    )
    job.bench.base = job.bench.commit("private")
    with collecting() as other:
        job.bench.propose(
            **{
                "edison.yaml": "version: 1\nproject: greetings\n",
                ".env": f"OTEL_EXPORTER_OTLP_ENDPOINT={other.address}\n",
                "otel.yaml": f"endpoint: {other.address}\n",
                "sitecustomize.py": (
                    f"import os\nos.environ['OTEL_EXPORTER_OTLP_ENDPOINT'] = '{other.address}'\n"
                ),
                "prompts/hello.md": job.bench.repository.read("prompts/hello.md") + "\nPlease.\n",
            }
        )
        done = job.pull_request()
        assert done.code in (0, 1, 5), done.all
        assert other.headers == []
    said = b"".join(span.SerializeToString() for span in collector.spans())
    assert said
    assert GOOD.encode() not in said
    assert b"gen_ai.input.messages" not in said


# --- collectors -----------------------------------------------------------------------------------


def answering(collector: Collector, status: int, reason: str = "", **headers: str) -> None:
    """Let a collector reply with this to whatever it gets."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status, reason)
        for name, value in {"content-length": "0", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    collector.reply = reply


REDIRECTS = (301, 302, 303, 307, 308)


@pytest.mark.parametrize("status", REDIRECTS)
def test_a_collector_cannot_send_spans_and_keys_elsewhere(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-api-key={CANARY}")
    with collecting() as other:
        answering(collector, status, location=f"{other.address}/v1/traces")
        recorded(collector, "text")
        assert other.headers == []
    assert {headers["x-api-key"] for headers in collector.headers} == {CANARY}


@pytest.mark.parametrize(
    "header", ["x-api-key=@", "authorization=Bearer%20@", "x-honeycomb-team=@", "Api-Key=@"]
)
def test_a_collector_that_sends_a_key_back_has_it_in_no_warning(
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    header: str,
) -> None:
    learn({})
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", header.replace("@", CANARY))
    answering(collector, 400, f"Bad {CANARY} \x1b]0;gone")
    recorded(collector, "text")
    (record,) = (r for r in caplog.records if "could be exported" in r.getMessage())
    assert CANARY not in str(vars(record))
    assert "\x1b" not in str(vars(record))


@pytest.mark.nightly
def test_the_query_of_a_collector_is_in_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    learn({})
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"http://127.0.0.1:1/v1/traces?token={CANARY}"
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:1/v1/metrics")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://127.0.0.1:1/v1/logs")
    with exporting(), run_span("R", "hello", "cli"):
        pass
    (record,) = (r for r in caplog.records if "could be exported" in r.getMessage())
    assert CANARY not in str(vars(record))


@pytest.mark.nightly
@pytest.mark.parametrize("retry_after", ["999999", "-1", "soon", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_collector_does_not_decide_how_long_a_run_takes(
    mini: Folder, collector: Collector, retry_after: str
) -> None:
    answering(collector, 503, retry_after=retry_after)
    done = mini.edison("run", env=collector.environ)
    assert (done.code, "Traceback" in done.err) == (0, False), "and it has ended in time"
