"""A pod's trace as it passes admission: where it begins, and the span ``admit``.

The API server tells no UID of a new pod, so the trace is written on it, in the patch that it gets anyway. A pod that
brings a readable one along keeps it: it goes on from there. So a second call for the same pod changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from admission.raw_pod import Raw
from gpu import bound_pod
from kube.telemetry.tracing import Tracer
from wire import names, traceparent
from wire.traceparent import PodTrace, TraceContext

#: A pod with more annotations than this (bytes) is not written on: there has to be room for its Binding
#: (gpu/bound_pod.py).
_ROOMY: Final = bound_pod.LARGEST // 2


class Review(msgspec.Struct, frozen=True):
    """A review that is answered. ``pod`` as it came; ``place`` is its NAMESPACE/NAME, as far as it has one."""

    webhook: str
    began_ns: int
    pod: Raw
    place: str


class PodTraces:
    """Begins traces of new pods, and reports what admission did. ``rng`` gives their ids."""

    def __init__(self, tracer: Tracer, *, rng: random.Random) -> None:
        self._tracer = tracer
        self._rng = rng

    def now_ns(self) -> int:
        """Wall time."""
        return self._tracer.now_ns()

    def marked(self, review: Review, pod: Raw) -> Raw:
        """Return the pod with its trace: what it brought along, if that is one."""
        annotations = pod["metadata"].get("annotations") or {}
        if _brought(annotations) is not None or bound_pod.bytes_used(annotations) > _ROOMY:
            return pod
        text = traceparent.render(self._begun(review))
        return {**pod, "metadata": {**pod["metadata"], "annotations": {**annotations, names.TRACEPARENT: text}}}

    def admitted(self, review: Review, pod: Raw) -> Mapping[str, str]:
        """Report ``admit``, and return what a line of the log says of the trace.

        The span is below ``pod``, which the scheduler reports, or beside it where the trace is a user's.
        """
        context = _brought(pod["metadata"].get("annotations") or {})
        if context is None or not self._is_kept(context):
            return {}
        self._tell(review, context, error="")
        return _field(context)

    def refused(self, review: Review) -> Mapping[str, str]:
        """Report ``admit`` of a refused pod, and return what a line of the log says of the trace.

        ``pod`` is reported too unless the trace is a user's: no other component sees this pod.
        """
        context = _brought(review.pod["metadata"].get("annotations") or {}) or self._begun(review)
        if not self._is_kept(context):
            return {}
        if context.is_own:
            self._tracer.tell_pod(
                PodTrace(context.trace_id, context.span_id),
                (review.began_ns, self._tracer.now_ns()),
                error="Refused",
                attributes={"pod": review.place, "outcome": "refused"},
            )
        self._tell(review, context, error="Refused")
        return _field(context)

    def _tell(self, review: Review, context: TraceContext, *, error: str) -> None:
        self._tracer.tell(
            PodTrace(context.trace_id, context.span_id),
            "admit",
            (review.began_ns, self._tracer.now_ns()),
            # Pods of one template are reviewed in one trace of their user's, maybe in the same moment.
            span_id=self._rng.getrandbits(64) or 1,
            error=error,
            attributes={"pod": review.place, "webhook": review.webhook},
        )

    def _begun(self, review: Review) -> TraceContext:
        trace_id = traceparent.new_id(review.began_ns, self._rng.getrandbits(traceparent.RANDOM_BITS))
        return traceparent.begun(trace_id, ratio_nano=self._tracer.ratio_nano)

    def _is_kept(self, context: TraceContext) -> bool:
        return context.is_sampled and traceparent.is_kept(context.trace_id, self._tracer.ratio_nano)


def _brought(annotations: Mapping[str, Any]) -> TraceContext | None:
    text = annotations.get(names.TRACEPARENT)
    return traceparent.parse(text) if isinstance(text, str) else None


def _field(context: TraceContext) -> Mapping[str, str]:
    return {"trace_id": f"{context.trace_id:032x}"}
