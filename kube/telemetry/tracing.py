"""Spans as values for an exporter: the tracing library is used by runtime/tracing, not here.

A span is made when it is over, with both of its times, from what was seen. None is ever open, so none is lost in a task
that is cancelled, and nobody carries a context about.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Final, Protocol

import anyio
import msgspec

from kube.client.clock import Clock
from wire import traceparent
from wire.traceparent import PodTrace
from wire.units import SECOND_NS

#: What an attribute may be. Names have their unit: ``gpus_nano``.
Value = str | bool | int | float | list[str]

#: ``creationTimestamp`` has whole seconds: what is younger was made just now, as far as it tells.
_JUST_NOW_NS: Final = 2_000_000_000
#: It is written when all webhooks have answered, which may take 30 s each; what is cut off of it is a second at most.
_LONGEST_REVIEWS_NS: Final = 60_000_000_000
_STAMP_NS: Final = 1_000_000_000
_NOTHING: Final[Mapping[str, Value]] = {}


class SpanEvent(msgspec.Struct, frozen=True, gc=False):
    """Something that happened within a span."""

    at_ns: int
    name: str
    attributes: Mapping[str, Value] = {}


class Span(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What happened from ``start_ns`` to ``end_ns`` (since the epoch, UTC).

    ``parent_id`` 0: it is the first of its trace. ``error``: why it failed, in a word; "" if it did not.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value] = {}
    events: tuple[SpanEvent, ...] = ()
    error: str = ""


class Sink(Protocol):
    """Takes spans. It must not raise or block, and what it does takes microseconds."""

    def take(self, span: Span) -> None:
        """A span is over."""
        ...

    def lose(self) -> None:
        """Something was not followed, because too much is already."""
        ...


class Tracer:
    """Makes the spans of sampled pods. ``ratio_nano``: which part of all traces is kept, in billionths."""

    def __init__(self, sink: Sink, *, clock: Clock, ratio_nano: int = traceparent.ALL) -> None:
        self._clock = clock
        self.sink = sink
        self.ratio_nano = ratio_nano

    def trace_of(self, annotations: Mapping[str, str] | None, uid: str) -> PodTrace | None:
        """Return a pod's trace, None if it is not kept."""
        return traceparent.of_pod(annotations, uid, ratio_nano=self.ratio_nano)

    def now_ns(self) -> int:
        """Wall time."""
        return self._clock.now_ns()

    def at_ns(self, loop_s: float) -> int:
        """Wall time of a moment of the event loop's clock, by what both say now."""
        return self._clock.now_ns() - round((anyio.current_time() - loop_s) * 1e9)

    def since_ns(self, created: str | None) -> int:
        """When something that is seen for the first time began: now, or long ago as its creationTimestamp tells."""
        now_ns, created_ns = self._clock.now_ns(), epoch_ns(created)
        return created_ns if 0 < created_ns < now_ns - _JUST_NOW_NS else now_ns

    def created_ns(self, trace: PodTrace, created: str | None) -> int:
        """When a pod was made: as its trace tells that admission began, else by its creationTimestamp, or now."""
        created_ns, began_ns = epoch_ns(created), traceparent.began_ns(trace.trace_id)
        is_told = created_ns > 0 and created_ns - _LONGEST_REVIEWS_NS <= began_ns <= created_ns + _STAMP_NS
        return began_ns if is_told else created_ns or self.now_ns()

    def tell_pod(
        self, trace: PodTrace, times_ns: tuple[int, int], *, attributes: Mapping[str, Value], error: str = ""
    ) -> None:
        """Tell the span on which all others of the pod hang."""
        self.sink.take(
            Span(
                name="pod",
                trace_id=trace.trace_id,
                span_id=trace.pod_span_id,
                parent_id=trace.parent_id,
                start_ns=times_ns[0],
                end_ns=max(times_ns),
                attributes=attributes,
                error=error,
            )
        )

    def tell(
        self,
        trace: PodTrace,
        name: str,
        times_ns: tuple[int, int],
        *,
        span_id: int = 0,
        below: int = 0,
        events: tuple[SpanEvent, ...] = (),
        error: str = "",
        attributes: Mapping[str, Value] = _NOTHING,
    ) -> None:
        """Tell a span below the pod's, or ``below`` another. Without ``span_id`` it is known by its name and times."""
        self.sink.take(
            Span(
                name=name,
                trace_id=trace.trace_id,
                span_id=span_id or _span_id(trace, below, name, times_ns),
                parent_id=below or trace.pod_span_id,
                start_ns=times_ns[0],
                end_ns=max(times_ns),
                attributes=attributes,
                events=events,
                error=error,
            )
        )


def _span_id(trace: PodTrace, below: int, name: str, times_ns: tuple[int, int]) -> int:
    return traceparent.span_id(trace.trace_id, f"{below or trace.pod_span_id:x}", name, *map(str, times_ns))


def epoch_ns(stamp: str | None) -> int:
    """Read a time as metav1.Time is written; 0 for none, and for what is none."""
    try:
        return int(datetime.datetime.fromisoformat(stamp).timestamp()) * SECOND_NS if stamp else 0
    except ValueError:
        return 0


def trace_field(trace: PodTrace | None) -> dict[str, str]:
    """What a line of the log says about a pod that is traced; nothing about others."""
    return {} if trace is None else {"trace_id": f"{trace.trace_id:032x}"}
