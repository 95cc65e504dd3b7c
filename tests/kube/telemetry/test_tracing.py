from __future__ import annotations

import pytest

from kube.telemetry.tracing import Tracer, epoch_ns, trace_field
from tests.tracing.taken import Spans
from wire import traceparent
from wire.traceparent import PodTrace

NOW_NS = 1_767_225_600_000_000_000
TRACE = PodTrace(7, 8)


class Clock:
    def now_ns(self) -> int:
        return NOW_NS


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def tracer(spans: Spans) -> Tracer:
    return Tracer(spans, clock=Clock())


@pytest.mark.parametrize(
    ("stamp", "ns"),
    [("2026-01-01T00:00:00Z", NOW_NS), ("2026-01-01T01:00:00+01:00", NOW_NS), (None, 0), ("", 0), ("yesterday", 0)],
)
def test_a_time_is_read_as_kubernetes_writes_it(stamp: str | None, ns: int) -> None:
    assert epoch_ns(stamp) == ns


@pytest.mark.parametrize(
    ("created", "since_ns"),
    [
        # Whole seconds: it may have been made just now.
        ("2026-01-01T00:00:00Z", NOW_NS),
        ("2025-12-31T23:59:59Z", NOW_NS),
        ("2025-12-31T23:00:00Z", NOW_NS - 3_600_000_000_000),
        ("2026-01-01T00:10:00Z", NOW_NS),
        (None, NOW_NS),
    ],
)
def test_what_is_seen_first_began_now_or_as_long_ago_as_it_says(
    tracer: Tracer, created: str | None, since_ns: int
) -> None:
    assert tracer.since_ns(created) == since_ns


@pytest.mark.parametrize(
    ("began_ns", "created_ns"),
    [
        (NOW_NS + 400_000_000, NOW_NS + 400_000_000),
        (NOW_NS - 2_345_678_901, NOW_NS - 2_346_000_000),
        # A copy's annotation is of another time, and so is what is no time.
        (NOW_NS - 3_600_000_000_000, NOW_NS),
        (NOW_NS + 5_000_000_000, NOW_NS),
    ],
)
def test_a_pod_was_made_when_its_trace_says_unless_that_can_not_be(
    tracer: Tracer, began_ns: int, created_ns: int
) -> None:
    trace = PodTrace(traceparent.new_id(began_ns, 7), 1)
    assert tracer.created_ns(trace, "2026-01-01T00:00:00Z") == created_ns


def test_a_pod_whose_trace_tells_no_time_was_made_when_it_says(tracer: Tracer) -> None:
    assert tracer.created_ns(TRACE, "2025-12-31T23:00:00Z") == NOW_NS - 3_600_000_000_000
    assert tracer.created_ns(TRACE, None) == NOW_NS


def test_a_span_whose_clock_was_set_back_ends_no_sooner_than_it_began(tracer: Tracer, spans: Spans) -> None:
    tracer.tell(TRACE, "bind", (NOW_NS, NOW_NS - 5))
    assert (spans.taken[0].start_ns, spans.taken[0].end_ns) == (NOW_NS, NOW_NS)


def test_spans_hang_on_the_pods_or_on_another_and_have_ids_of_their_own(tracer: Tracer, spans: Spans) -> None:
    tracer.tell(TRACE, "attempt", (1, 9), span_id=5)
    tracer.tell(TRACE, "bind", (1, 2), below=5)
    tracer.tell(TRACE, "bind", (3, 4), below=5)
    tracer.tell(TRACE, "wait", (1, 2))
    tracer.tell_pod(PodTrace(7, 8, 6), (1, 9), attributes={"pod": "a/b"})
    assert [(span.trace_id, span.parent_id) for span in spans.taken] == [(7, 8), (7, 5), (7, 5), (7, 8), (7, 6)]
    assert len({span.span_id for span in spans.taken}) == 5


def test_a_line_of_the_log_has_the_trace_in_hex_and_only_of_pods_that_are_traced() -> None:
    assert trace_field(TRACE) == {"trace_id": "0" * 31 + "7"}
    assert trace_field(None) == {}
