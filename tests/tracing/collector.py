"""A collector of traces for tests: takes OTLP over HTTP, as OpenTelemetry's own does, and keeps what it was sent."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Sent
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from typing_extensions import override

PATH = "/v1/traces"


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """A span as it was sent. Ids in hex, ``parent`` "" for none."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    start_ns: int
    end_ns: int
    attributes: dict[str, object]
    events: tuple[str, ...]
    error: str


class Collector:
    """``spans`` in the order in which they came; ``headers`` of each request. ``answers``: the status of each."""

    def __init__(self) -> None:
        self.spans: list[Collected] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[], int] = lambda: 200
        self.url = ""

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        self.headers.append(headers)
        assert path == PATH
        status = self.answer()
        if status == 200:
            plain = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
            self.spans += _read(ExportTraceServiceRequest.FromString(plain))
        return status

    def wait(self, spans: int, within_s: float = 60.0) -> list[Collected]:
        """Wait until so many spans have come."""
        end = time.monotonic() + within_s
        while len(self.spans) < spans and time.monotonic() < end:
            time.sleep(0.05)
        assert len(self.spans) >= spans
        return self.spans

    def traces(self) -> dict[str, list[Collected]]:
        """Spans by trace, in the order of their start."""
        found: dict[str, list[Collected]] = {}
        for span in sorted(self.spans, key=lambda span: (span.start_ns, -span.end_ns)):
            found.setdefault(span.trace, []).append(span)
        return found

    def of(self, pod: str) -> list[Collected]:
        """The trace of a pod (its name), which is one; found by the spans that name it."""
        named = {span.trace for span in self.spans if str(span.attributes.get("pod", "")).endswith(f"/{pod}")}
        assert len(named) == 1, (pod, named)
        return self.traces()[named.pop()]


@contextmanager
def collecting() -> Iterator[Collector]:
    """Collect at a free port."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = collector.take(self.path, {name.lower(): text for name, text in self.headers.items()}, body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        @override
        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _read(request: ExportTraceServiceRequest) -> Iterator[Collected]:
    for of_resource in request.resource_spans:
        service = str(_values(of_resource.resource.attributes)["service.name"])
        for of_scope in of_resource.scope_spans:
            for sent in of_scope.spans:
                yield _collected(service, sent)


def _collected(service: str, sent: Sent) -> Collected:
    return Collected(
        service=service,
        name=sent.name,
        trace=sent.trace_id.hex(),
        span=sent.span_id.hex(),
        parent=sent.parent_span_id.hex(),
        start_ns=sent.start_time_unix_nano,
        end_ns=sent.end_time_unix_nano,
        attributes=_values(sent.attributes),
        events=tuple(event.name for event in sent.events),
        error=sent.status.message if sent.status.code == Status.STATUS_CODE_ERROR else "",
    )


def _values(attributes: Iterable[KeyValue]) -> dict[str, object]:
    return {pair.key: _value(pair.value) for pair in attributes}


def _value(value: AnyValue) -> object:
    match value.WhichOneof("value"):
        case "array_value":
            return [_value(each) for each in value.array_value.values]
        case str() as kind:
            return getattr(value, kind)
        case None:
            return None
