"""A collector on loopback that reads what is exported with the protobufs of OpenTelemetry."""

from __future__ import annotations

import gzip
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REQUESTS: dict[str, Any] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


@dataclass
class Collector:
    """What was received so far."""

    address: str = ""
    status: int = 200
    hangs: bool = False
    reply: Callable[[BaseHTTPRequestHandler], None] | None = None
    """Answers in its place."""
    released: threading.Event = field(default_factory=threading.Event)
    received: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in REQUESTS})
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def environ(self) -> dict[str, str]:
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.address}

    def spans(self) -> list[Any]:
        return [
            span
            for request in self.received["/v1/traces"]
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def events(self) -> list[Any]:
        return [
            record
            for request in self.received["/v1/logs"]
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    def metrics(self) -> dict[str, Any]:
        """Return the metrics by name, as last received."""
        return {
            metric.name: metric
            for request in self.received["/v1/metrics"]
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def resources(self) -> list[dict[str, Any]]:
        return [
            attributes(resource.resource)
            for request in self.received["/v1/traces"]
            for resource in request.resource_spans
        ]


def attributes(of: Any) -> dict[str, Any]:
    """Return the attributes of a span, an event or a data point."""
    return {pair.key: value(pair.value) for pair in of.attributes}


def value(of: Any) -> Any:
    kind = of.WhichOneof("value")
    found = getattr(of, kind)
    return [value(each) for each in found.values] if kind == "array_value" else found


@contextmanager
def collecting(**settings: Any) -> Iterator[Collector]:
    """Yield a collector that listens."""
    collector = Collector(**settings)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.headers.append(dict(self.headers.items()))
            if collector.hangs:
                collector.released.wait()
                return
            if collector.reply is not None:
                collector.reply(self)
                return
            if collector.status == 200:
                collector.received[self.path].append(REQUESTS[self.path].FromString(body))
            self.send_response(collector.status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield collector
    finally:
        collector.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
