"""The exporter of spans, metrics and evaluations, over OTLP with HTTP and protobuf.

The standard variables of OpenTelemetry configure it (`OTEL_EXPORTER_OTLP_ENDPOINT`, ..._HEADERS,
`OTEL_SERVICE_NAME`, ...); without an endpoint nothing is imported. Spans are sent by threads of
their own: a collector that hangs or is gone delays no run and fails none. What does not fit the
queue is dropped, and at the end what is left gets a few seconds.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from edison_ci import __version__
from edison_ci.contracts import CallError
from edison_ci.documents.secrets import names_secret, redacted, remember
from edison_ci.extras import faults_of, install_command
from edison_ci.records import CellStatus
from edison_ci.sanitize import line
from edison_ci.telemetry.spans import SIGNALS, is_configured, is_recording, record_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from edison_ci.records import Completion, Request
    from edison_ci.telemetry.spans import CellSpan, Evaluation

logger = logging.getLogger(__name__)

# Names of the conventions for generative AI, which are still in development:
# https://github.com/open-telemetry/semantic-conventions-genai. Those that begin with `edison.` are
# our own.
CHAT = "chat"
EMBEDDINGS = "embeddings"

PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""Providers of models.yaml that have another name in the conventions."""

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
OUTPUT_TYPE = "gen_ai.output.type"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOKEN_TYPE = "gen_ai.token.type"
ERROR_TYPE = "error.type"

PARAMETERS = {
    "frequency_penalty": ("gen_ai.request.frequency_penalty", float),
    "max_tokens": ("gen_ai.request.max_tokens", int),
    "presence_penalty": ("gen_ai.request.presence_penalty", float),
    "seed": ("gen_ai.request.seed", int),
    "temperature": ("gen_ai.request.temperature", float),
    "top_p": ("gen_ai.request.top_p", float),
}
"""Parameters of a call that have an attribute, and its type."""

EVALUATION = "gen_ai.evaluation.result"
EVALUATION_NAME = "gen_ai.evaluation.name"
EVALUATION_SCORE = "gen_ai.evaluation.score.value"
EVALUATION_LABEL = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION = "gen_ai.evaluation.explanation"

DURATION = "gen_ai.client.operation.duration"
DURATION_BUCKETS_S = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
TOKENS = "gen_ai.client.token.usage"
TOKENS_BUCKETS = tuple(4**power for power in range(14))

RUN_ID = "edison.run.id"
EXPERIMENT = "edison.experiment"
TRIGGER = "edison.trigger"
STATUS = "edison.status"
CELL_ID = "edison.cell.id"
CASE = "edison.case"
PROMPT = "edison.prompt"
MODEL = "edison.model"
SIDE = "edison.side"
REPEAT = "edison.repeat"
PHASE = "edison.phase"
SCORE = "edison.score"
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Environment variable with which texts are sent too; the one that other instrumentations use."""

_FLUSH_S = 5.0
"""Longest wait at the end of a command for what was not sent yet."""
_LONG_VALUE = 20
"""Characters from which on the value of any header counts as a key; names of teams are shorter."""
_CAPTURES = frozenset({"true", "1", "span_only", "span_and_event"})
_LONGEST_TEXT = 20_000
"""Characters of a text that are sent: thousands of spans may wait for a slow collector."""


@contextmanager
def exporting(
    *, offline: bool = False, private: bool = False, redact: Callable[[str], str] = str
) -> Iterator[None]:
    """Export what happens in the block, if the environment names a collector.

    With `private`, texts are never sent, regardless of the environment; others as `redact` leaves
    them.
    """
    if is_recording() or offline or not is_configured():
        yield
        return
    if faults := faults_of("otel"):
        logger.warning(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but spans cannot be exported",
            extra={"reason": faults[0], "hint": f"install it: {install_command('otel')}"},
        )
        yield
        return
    captures = os.environ.get(CAPTURE, "").lower() in _CAPTURES and not private
    _remember_keys()
    recorder = OtlpRecorder(redact if captures else None)
    record_with(recorder)
    try:
        yield
    finally:
        record_with(None)
        recorder.close()


def _remember_keys() -> None:
    """Note keys of the collector as secrets: it may send them back, and errors quote its URL."""
    for signal in SIGNALS:
        for pair in os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}HEADERS", "").split(","):
            name, _, quoted = pair.partition("=")
            value = unquote(quoted.strip())
            if names_secret(name.strip()) or len(value) >= _LONG_VALUE:
                remember([value, value.rpartition(" ")[2]])
        remember([urlsplit(os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT", "")).query])


class _Complaints(logging.Handler):
    """Keeps what the library complains of, which would otherwise be on stderr, many times."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count, self.last = 0, ""

    def emit(self, record: logging.LogRecord) -> None:
        self.count, self.last = self.count + 1, record.getMessage()


class OtlpRecorder:
    """Records spans with the SDK of OpenTelemetry."""

    def __init__(self, redact: Callable[[str], str] | None) -> None:
        """Without `redact`, no texts are recorded."""
        # Takes 0.2 s to import, and belongs to an extra.
        from opentelemetry import context, trace
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self.redact, self._trace, self._context = redact, trace, context
        self._complaints = _Complaints()
        library = logging.getLogger("opentelemetry")
        library.handlers[:], library.propagate = [self._complaints], False
        detected = OTELResourceDetector().detect()  # OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES
        ours = {"service.name": "edison", "service.version": __version__}
        resource = Resource.create(ours).merge(detected)
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._logs = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        self._metrics = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._tracer = self._traces.get_tracer("edison_ci", __version__)
        self._events = self._logs.get_logger("edison_ci", __version__)
        meter = self._metrics.get_meter("edison_ci", __version__)
        self._duration = meter.create_histogram(
            DURATION,
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS_S,
        )
        self._tokens = meter.create_histogram(
            TOKENS,
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=TOKENS_BUCKETS,
        )

    @contextmanager
    def run(self, run_id: str, experiment: str, trigger: str) -> Iterator[_Span]:
        """Open the span of a run."""
        attributes = {
            RUN_ID: run_id, EXPERIMENT: experiment, TRIGGER: trigger,
        }  # fmt: skip
        with self._open(f"run {experiment}", attributes) as span:
            span.inherited = {RUN_ID: run_id, EXPERIMENT: experiment}
            yield span

    @contextmanager
    def cell(self, cell: CellSpan) -> Iterator[_Span]:
        """Open the span of a cell."""
        attributes = {
            CELL_ID: cell.id,
            CASE: cell.case,
            PROMPT: cell.prompt,
            MODEL: cell.model,
            SIDE: cell.side,
            REPEAT: cell.repeat,
        }
        with self._open(f"cell {cell.case}", attributes) as span:
            span.inherited |= {CELL_ID: cell.id}
            yield span

    @contextmanager
    def call(self, request: Request, model: str, phase: str) -> Iterator[_Span]:
        """Open the span of a call, and record its duration and tokens at the end."""
        operation = EMBEDDINGS if request.embedding else CHAT
        common = _without_keys(
            {
                OPERATION: operation,
                PROVIDER: PROVIDERS.get(request.provider, request.provider),
                REQUEST_MODEL: request.model,
            }
        )
        attributes: dict[str, Any] = {**common, MODEL: model, PHASE: phase}
        for parameter, (name, number) in PARAMETERS.items():
            value = request.params.get(parameter)
            if isinstance(value, int | float) and not isinstance(value, bool):
                attributes[name] = number(value)
        if request.response_format is not None:
            attributes[OUTPUT_TYPE] = "json"
        if self.redact is not None:
            attributes[INPUT_MESSAGES] = _messages(
                self.message(m.role, m.content) for m in request.messages
            )
        started = time.perf_counter()
        with self._open(f"{operation} {request.model}", attributes, client=True) as span:
            span.common = common
            try:
                yield span
            except BaseException as error:
                span.fail(error)
                raise
            finally:
                self._duration.record(time.perf_counter() - started, span.common)
                for kind, count in span.tokens.items():
                    self._tokens.record(count, {**span.common, TOKEN_TYPE: kind})

    @contextmanager
    def _open(
        self, name: str, attributes: dict[str, Any], *, client: bool = False
    ) -> Iterator[_Span]:
        trace, outer = self._trace, self._context.get_value(_KEY)
        assert outer is None or isinstance(outer, _Span)
        inherited = {} if outer is None else outer.inherited
        kind = trace.SpanKind.CLIENT if client else trace.SpanKind.INTERNAL
        attributes = _without_keys({**inherited, **attributes})
        span = self._tracer.start_span(redacted(name), kind=kind, attributes=attributes)
        opened = _Span(self, span, outer, dict(inherited))
        token = self._context.attach(self._context.set_value(_KEY, opened, self._set(span)))
        try:
            yield opened
        except CallError as error:  # another exception only puts a cell off
            opened.fail(error)
            raise
        finally:
            self._context.detach(token)
            span.end()

    def text_of(self, text: str) -> str:
        """Return a text as it is sent, without keys."""
        assert self.redact is not None, "texts are recorded"
        return redacted(self.redact(text))[:_LONGEST_TEXT]

    def message(self, role: str, text: str, **more: Any) -> dict[str, Any]:
        """Return a message as the conventions have it."""
        parts = [{"type": "text", "content": self.text_of(text)}]
        return {"role": role, "parts": parts, **more}

    def _set(self, span: Any) -> Any:
        return self._trace.set_span_in_context(span)

    def mark_error(self, span: Any) -> None:
        """Set the status of a span to error."""
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))

    def evaluate(self, span: Any, part: Evaluation) -> None:
        """Record one part of a grade as an event of the call that it is about."""
        attributes: dict[str, Any] = {EVALUATION_NAME: part.name}
        if part.score is not None:
            attributes[EVALUATION_SCORE] = float(part.score)
        if part.passed is not None:
            attributes[EVALUATION_LABEL] = "pass" if part.passed else "fail"
        if self.redact is not None and part.reason:
            attributes[EVALUATION_EXPLANATION] = self.text_of(part.reason)
        self._events.emit(
            timestamp=time.time_ns(),
            context=self._set(span),
            event_name=EVALUATION,
            attributes=_without_keys(attributes),
        )

    def close(self) -> None:
        """Send what is left, within a few seconds, and say once if that failed."""
        providers: list[Callable[[], object]] = [
            self._traces.shutdown, self._logs.shutdown, self._metrics.shutdown,
        ]  # fmt: skip
        threads = [threading.Thread(target=end, daemon=True) for end in providers]
        for thread in threads:
            thread.start()
        end = time.monotonic() + _FLUSH_S
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        late = any(thread.is_alive() for thread in threads)
        if late or self._complaints.count:
            reason = self._complaints.last or f"the collector did not answer within {_FLUSH_S:g} s"
            data = {"reason": line(redacted(reason))}
            logger.warning("not all spans and metrics could be exported", extra=data)


_KEY = "edison-span"


def _without_keys(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {k: redacted(v) if isinstance(v, str) else v for k, v in attributes.items()}


def _messages(messages: Any) -> str:
    return json.dumps(list(messages), ensure_ascii=False)


class _Span:
    """An open span, with what its children inherit."""

    def __init__(
        self, recorder: OtlpRecorder, span: Any, outer: _Span | None, inherited: dict[str, Any]
    ) -> None:
        self._recorder, self._span, self._outer = recorder, span, outer
        self.inherited = inherited
        self.common: dict[str, Any] = {}
        """Attributes of metrics."""
        self.tokens: dict[str, int] = {}
        self._answer: Any = None
        """Span of the call whose answer is graded."""

    def answered(self, completion: Completion) -> None:
        """Note the answer to a call."""
        attributes: dict[str, Any] = {
            FINISH_REASONS: [str(completion.finish_reason)],
            CACHE_READ_TOKENS: completion.cached_in or None,
            CACHE_WRITE_TOKENS: completion.written_in or None,
            INPUT_TOKENS: completion.tokens_in,
            OUTPUT_TOKENS: completion.tokens_out,
            RESPONSE_MODEL: completion.served_model or None,
        }
        if self._recorder.redact is not None:
            answer = self._recorder.message(
                "assistant", completion.text, finish_reason=completion.finish_reason
            )
            attributes[OUTPUT_MESSAGES] = _messages([answer])
        attributes = _without_keys({k: v for k, v in attributes.items() if v is not None})
        self._span.set_attributes(attributes)
        if completion.served_model:
            served = attributes[RESPONSE_MODEL]
            self.common = {**self.common, RESPONSE_MODEL: served}
        counted = {"input": completion.tokens_in, "output": completion.tokens_out}
        self.tokens = {kind: count for kind, count in counted.items() if count is not None}
        if self._outer is not None and self._outer._answer is None:
            self._outer._answer = self._span

    def fail(self, error: BaseException) -> None:
        """Note the error with which a call ended; its text may quote what was sent."""
        kind = str(error.kind) if isinstance(error, CallError) else type(error).__name__
        self.common = {**self.common, ERROR_TYPE: kind}
        self._span.set_attribute(ERROR_TYPE, kind)
        self._recorder.mark_error(self._span)

    def graded(self, status: str, score: float | None, parts: Sequence[Evaluation]) -> None:
        """Note the grade of a cell, and each of its parts as an event."""
        self._span.set_attribute(STATUS, status)
        if status == CellStatus.ERROR:
            self._recorder.mark_error(self._span)
        if score is not None:
            self._span.set_attribute(SCORE, float(score))
        for part in parts:
            self._recorder.evaluate(self._answer or self._span, part)

    def ended(self, status: str) -> None:
        """Note how a run ended."""
        self._span.set_attribute(STATUS, status)
