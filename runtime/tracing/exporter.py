"""Spans on their way to a collector, by OpenTelemetry's SDK. It is imported here only, where traces are asked for.

The event loop puts a span into a queue; a thread of the SDK's encodes batches and sends them by OTLP over HTTP. What it
can't send is lost, and counted; the SDK's own lines say why, and are held back as others are (runtime/logs.py).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags
from typing_extensions import override

from kube.telemetry.tracing import Sink, Span, Value

#: Spans that wait to be sent: some 4 MiB. Further ones are dropped.
MOST_WAITING: Final = 4_096
#: Characters of a text. Admission sees names before the API server has said that they are too long.
LONGEST: Final = 1_024
_BATCH: Final = 512
#: A span waits so long for others at most.
_GATHER_MS: Final = 2_000.0
#: A batch that is not taken within this time is lost, tries included.
_SEND_S: Final = 5.0

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_WELL: Final = Status(StatusCode.UNSET)
_SCOPE: Final = InstrumentationScope("moorage")


class _Counted(SpanExporter):
    """Sends batches by another exporter, and counts. Runs in the SDK's thread."""

    def __init__(self, sender: SpanExporter) -> None:
        self._sender = sender
        #: Spans that left the queue, and of those: that were taken, and that were not.
        self.left = 0
        self.exported = 0
        self.failed = 0

    @override
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.left += len(spans)
        result = self._sender.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
        else:
            self.failed += len(spans)
        return result

    @override
    def shutdown(self) -> None:
        self._sender.shutdown()

    @override
    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._sender.force_flush(timeout_millis)


class Exporting(Sink):
    """Sends spans to ``endpoint``, a URL with its path. ``resource``: what is said of the process."""

    def __init__(
        self, endpoint: str, *, resource: Mapping[str, str], headers: Mapping[str, str], ca_file: str = ""
    ) -> None:
        sender = OTLPSpanExporter(
            endpoint=endpoint,
            certificate_file=ca_file or None,
            headers=headers,
            timeout=_SEND_S,
            compression=Compression.NoCompression,
        )
        self._counted = _Counted(sender)
        self._resource = Resource(dict(resource))
        self._processor = BatchSpanProcessor(
            self._counted,
            max_queue_size=MOST_WAITING,
            schedule_delay_millis=_GATHER_MS,
            max_export_batch_size=_BATCH,
        )
        self._given = 0
        self._dropped = 0
        self._is_closed = False

    @override
    def take(self, span: Span) -> None:
        """Queue a span; where too many wait, drop it."""
        if self._is_closed or self._given - self._counted.left >= MOST_WAITING:
            self._dropped += 1
            return
        self._given += 1
        self._processor.on_end(readable(span, self._resource))

    @override
    def lose(self) -> None:
        """Count it."""
        self._dropped += 1

    @property
    def waiting(self) -> int:
        """How many spans wait to be sent, or are being sent."""
        return self._given - self._counted.exported - self._counted.failed

    def counts(self) -> Mapping[str, int]:
        """How many spans were ``exported``, ``failed`` to be taken, or were ``dropped`` before anybody tried."""
        return {"exported": self._counted.exported, "failed": self._counted.failed, "dropped": self._dropped}

    def close(self, within_s: float) -> None:
        """Send what waits, for so long at most. Blocks; what is not sent by then is lost."""
        self._is_closed = True
        # The SDK's own time limit is 30 s, and a collector that is away takes all of it.
        closing = threading.Thread(target=self._processor.shutdown, name="traces-closing", daemon=True)
        closing.start()
        closing.join(within_s)
        if closing.is_alive():
            self._counted.shutdown()


def readable(span: Span, resource: Resource) -> ReadableSpan:
    """Return a span as the SDK's exporters read it.

    Its tracers would open spans, draw ids and keep contexts; ours are over, and have their ids.
    """
    parent = (
        SpanContext(span.trace_id, span.parent_id, is_remote=True, trace_flags=_SAMPLED) if span.parent_id else None
    )
    return ReadableSpan(
        span.name,
        context=SpanContext(span.trace_id, span.span_id, is_remote=False, trace_flags=_SAMPLED),
        parent=parent,
        resource=resource,
        attributes=_bounded(span.attributes),
        events=[Event(each.name[:LONGEST], _bounded(each.attributes), each.at_ns) for each in span.events],
        status=Status(StatusCode.ERROR, span.error[:LONGEST]) if span.error else _WELL,
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=_SCOPE,
    )


def _bounded(attributes: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value[:LONGEST] if isinstance(value, str) else value for name, value in attributes.items()}
