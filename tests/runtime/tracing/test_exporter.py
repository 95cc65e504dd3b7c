"""Spans on their way to a collector that takes them, refuses them, says nothing, or is not there."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kube.client.clock import SystemClock
from kube.telemetry.tracing import Span, SpanEvent, Tracer
from runtime.metrics.registry import Registry
from runtime.settings.common import Component
from runtime.text import BadInput
from runtime.tracing import exporter
from runtime.tracing import tracer as opened
from runtime.tracing.exporter import Exporting
from tests.runtime.metrics.exposed import values
from tests.tracing.collector import Collector, collecting
from wire.traceparent import PodTrace

SPAN = Span(
    name="bind",
    trace_id=0x0AF7651916CD43DD8448EB211C80319C,
    span_id=0xB7AD6B7169203331,
    parent_id=0x1,
    start_ns=1_767_225_600_000_000_001,
    end_ns=1_767_225_600_000_000_009,
    attributes={"node": "n1", "gpus_nano": 500_000_000, "groups": ["a", "b"]},
    events=(SpanEvent(1_767_225_600_000_000_002, "NoNodeFits"),),
    error="Refused",
)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


def exporting_to(url: str) -> Exporting:
    return Exporting(opened.endpoint(url), resource={"service.name": "moorage-test"}, headers={"x-token": "hidden"})


def test_a_collector_is_sent_all_that_a_span_says(collector: Collector) -> None:
    sink = exporting_to(collector.url)
    sink.take(SPAN)
    sink.close(60.0)
    (sent,) = collector.spans
    assert (sent.service, sent.name, sent.error) == ("moorage-test", "bind", "Refused")
    assert (sent.trace, sent.span, sent.parent) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", f"{1:016x}")
    assert (sent.start_ns, sent.end_ns) == (SPAN.start_ns, SPAN.end_ns)
    assert sent.attributes == {"node": "n1", "gpus_nano": 500_000_000, "groups": ["a", "b"]}
    assert sent.events == ("NoNodeFits",)
    assert collector.headers[0]["x-token"] == "hidden"
    assert sink.counts() == {"exported": 1, "failed": 0, "dropped": 0}


def test_a_text_is_cut_since_what_waits_is_counted_by_spans(collector: Collector) -> None:
    """A name is seen at admission before the API server has said that it is too long: 2 MB each were kept."""
    long = "n" * 5_000
    sink = exporting_to(collector.url)
    events = (SpanEvent(1, long, {"said": long}),)
    sink.take(msgspec.structs.replace(SPAN, attributes={"pod": long}, events=events, error=long))
    sink.close(60.0)
    (sent,) = collector.spans
    assert sent.attributes == {"pod": long[: exporter.LONGEST]}
    assert sent.events == (long[: exporter.LONGEST],)
    assert sent.error == long[: exporter.LONGEST]


@pytest.mark.thorough
def test_spans_are_sent_without_being_asked_for_within_seconds(collector: Collector) -> None:
    sink = exporting_to(collector.url)
    for _ in range(3):
        sink.take(SPAN)
    assert len(collector.wait(3)) == 3
    sink.close(60.0)


def test_what_a_collector_refuses_is_lost_and_counted(collector: Collector) -> None:
    collector.answer = lambda: 400
    sink = exporting_to(collector.url)
    sink.take(SPAN)
    sink.close(60.0)
    assert sink.counts() == {"exported": 0, "failed": 1, "dropped": 0}


def test_what_waits_for_a_collector_that_says_nothing_is_bounded_and_holds_up_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sink = exporting_to(f"http://127.0.0.1:{silent.getsockname()[1]}")
        # The collector would hold up each of these spans for seconds, and the test for hours.
        for _ in range(2 * exporter.MOST_WAITING):
            sink.take(SPAN)
        # A batch or two had left the queue for the wire.
        assert 0 < sink.counts()["dropped"] <= exporter.MOST_WAITING
        began = time.monotonic()
        sink.close(0.5)
        assert time.monotonic() - began < 30.0
        assert sink.counts()["exported"] == 0


def test_without_a_collector_an_ending_process_does_not_wait_for_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    sink = exporting_to(f"http://127.0.0.1:{port}")
    sink.take(SPAN)
    began = time.monotonic()
    sink.close(0.5)
    assert time.monotonic() - began < 30.0
    assert sink.counts()["exported"] == 0
    sink.take(SPAN)
    assert sink.counts()["dropped"] == 1


def test_all_threads_of_it_end_with_the_process() -> None:
    before = set(threading.enumerate())
    sink = exporting_to("http://127.0.0.1:9")
    assert [thread.daemon for thread in set(threading.enumerate()) - before] == [True]
    sink.close(0.1)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://otel:4318", "http://otel:4318/v1/traces"),
        ("http://otel:4318/", "http://otel:4318/v1/traces"),
        ("https://otel.example.com/otlp/v1/traces", "https://otel.example.com/otlp/v1/traces"),
    ],
)
def test_a_collector_without_a_path_has_otlps(given: str, url: str) -> None:
    assert opened.endpoint(given) == url


def test_headers_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer abc:def\n\nx-scope: one\n")
    assert opened.headers(str(file)) == {"Authorization": "Bearer abc:def", "x-scope": "one"}
    assert opened.headers("") == {}


@pytest.mark.parametrize("text", ["secret", ": secret", "a b: secret", "x: a\x00secret"])
def test_headers_that_can_not_be_are_refused_without_being_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "headers"
    file.write_text(text)
    with pytest.raises(BadInput, match="line 1 is not NAME: VALUE") as refused:
        opened.headers(str(file))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "named"),
    [({"traces_headers_file": "/nowhere"}, "--traces-headers-file"), ({"traces_ca_file": "/nowhere"}, "--traces-ca")],
)
async def test_a_file_that_is_not_there_stops_the_start(given: dict[str, str], named: str) -> None:
    options = Component(traces_endpoint="http://127.0.0.1:9", **given)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=named):
        async with opened.tracer(options, "binder", registry=Registry(), clock=SystemClock()):
            raise AssertionError


async def test_a_process_that_is_asked_to_traces_counts_and_sends_the_rest_when_it_ends(collector: Collector) -> None:
    options, registry = Component(traces_endpoint=collector.url, traces_ratio=500_000_000), Registry()
    async with opened.tracer(options, "binder", registry=registry, clock=SystemClock()) as tracer:
        assert isinstance(tracer, Tracer)
        assert tracer.ratio_nano == 500_000_000
        tracer.tell(PodTrace(1, 2), "bind", (3, 4))
    assert [(span.service, span.name) for span in collector.spans] == [("moorage-binder", "bind")]
    assert spans_of(registry) == {"exported": 1, "failed": 0, "dropped": 0}


async def test_a_process_that_is_not_asked_to_has_no_tracer_and_shows_zeros() -> None:
    registry = Registry()
    async with opened.tracer(Component(), "binder", registry=registry, clock=SystemClock()) as tracer:
        assert tracer is None
    assert spans_of(registry) == {"exported": 0, "failed": 0, "dropped": 0}


def spans_of(registry: Registry) -> dict[str, float]:
    return {outcome: number for (outcome,), number in values(registry, "moorage_trace_spans_total").items()}
