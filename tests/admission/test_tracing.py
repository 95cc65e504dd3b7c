from __future__ import annotations

import logging
import random
from typing import Any

import pytest

from admission.review import PodAdmission
from admission.settings import Settings
from admission.tracing import PodTraces
from gpu import bound_pod
from kube.telemetry.tracing import Tracer
from tests.admission.pods import Raw, half, patched, pod, review
from tests.tracing.taken import Spans
from wire import names, traceparent

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Clock:
    def __init__(self) -> None:
        self.ns = 1_000_000_000

    def now_ns(self) -> int:
        self.ns += 1_000
        return self.ns


@pytest.fixture
def spans() -> Spans:
    return Spans()


def tracing(spans: Spans, *, ratio_nano: int = traceparent.ALL) -> PodAdmission:
    tracer = Tracer(spans, clock=Clock(), ratio_nano=ratio_nano)
    return PodAdmission(Settings(), rng=random.Random(1), traces=PodTraces(tracer, rng=random.Random(2)))


def admitted(admission: PodAdmission, raw: Raw) -> Raw:
    return patched(raw, admission.mutating(review(raw)))


def traceparent_of(raw: Raw) -> str | None:
    found = (raw["metadata"].get("annotations") or {}).get(names.TRACEPARENT)
    assert found is None or isinstance(found, str)
    return found


@pytest.mark.parametrize("raw", [half(), pod(), pod(annotations={}), half(annotations={names.TRACEPARENT: "nonsense"})])
def test_a_new_pod_is_given_a_trace(spans: Spans, raw: Raw) -> None:
    admission = tracing(spans)
    made = admitted(admission, raw)
    context = traceparent.parse(traceparent_of(made) or "")
    assert context is not None
    assert context.is_own
    (admit,) = spans.taken
    assert (admit.name, admit.trace_id, admit.parent_id) == ("admit", context.trace_id, context.span_id)
    assert admit.start_ns < admit.end_ns
    assert admission.validating(review(made))["response"]["allowed"] is True


def test_a_second_call_for_the_same_pod_changes_nothing(spans: Spans) -> None:
    """Another webhook has changed the pod after us (reinvocationPolicy)."""
    admission = tracing(spans)
    made = admitted(admission, half())
    assert "patch" not in admission.mutating(review(made))["response"]
    assert len({(span.trace_id, span.parent_id) for span in spans.taken}) == 1
    assert len({span.span_id for span in spans.taken}) == 2


def test_a_trace_that_a_user_brings_goes_on(spans: Spans) -> None:
    made = admitted(tracing(spans), half(annotations={names.TRACEPARENT: THEIRS}))
    assert traceparent_of(made) == THEIRS
    (admit,) = spans.taken
    assert f"{admit.trace_id:032x}-{admit.parent_id:016x}" in THEIRS


def test_a_trace_that_its_user_does_not_keep_is_not_told_and_not_changed(spans: Spans) -> None:
    unsampled = THEIRS[:-2] + "00"
    assert traceparent_of(admitted(tracing(spans), half(annotations={names.TRACEPARENT: unsampled}))) == unsampled
    assert spans.taken == []


def test_what_is_not_sampled_says_so_to_all_processes_after_admission(spans: Spans) -> None:
    admission = tracing(spans, ratio_nano=100_000_000)
    texts = [traceparent_of(admitted(admission, half())) or "" for _ in range(200)]
    kept = [text for text in texts if text.endswith("-01")]
    assert 5 <= len(kept) <= 45
    assert len(kept) == len(spans.taken)
    for text in texts:
        found = traceparent.of_pod({names.TRACEPARENT: text}, "uid", ratio_nano=traceparent.ALL)
        assert (found is not None) is text.endswith("-01")


def test_a_pod_with_hardly_any_room_for_annotations_is_not_written_on(spans: Spans) -> None:
    large = half(annotations={"notes": "x" * (bound_pod.LARGEST // 2)})
    assert traceparent_of(admitted(tracing(spans), large)) is None


@pytest.mark.parametrize("judge", ["mutating", "validating"])
def test_a_refused_pod_has_a_whole_trace(spans: Spans, judge: str) -> None:
    answer = getattr(tracing(spans), judge)(review(half(annotations={names.GPU_FRACTION: "1.5"})))
    assert answer["response"]["allowed"] is False
    whole, admit = spans.taken
    assert (whole.name, whole.parent_id, whole.error) == ("pod", 0, "Refused")
    assert (admit.name, admit.parent_id, admit.error) == ("admit", whole.span_id, "Refused")
    assert whole.start_ns <= admit.start_ns


def test_a_users_pod_that_is_refused_is_told_below_the_users_span(spans: Spans) -> None:
    annotations = {names.GPU_FRACTION: "1.5", names.TRACEPARENT: THEIRS}
    tracing(spans).mutating(review(half(annotations=annotations)))
    assert [(span.name, f"{span.parent_id:016x}") for span in spans.taken] == [("admit", "b7ad6b7169203331")]


def test_a_dry_run_and_a_refused_change_of_a_pod_that_is_there_are_no_traces(spans: Spans) -> None:
    admission = tracing(spans)
    for raw in (half(), half(annotations={names.GPU_FRACTION: "1.5"})):
        asked = review(raw)
        asked["request"]["dryRun"] = True
        admission.mutating(asked)
        admission.validating(asked)
    before = half(nodeName="n1")
    changed = half(annotations={names.GPU_FRACTION: "0.25"}, nodeName="n1")
    admission.validating(review(changed, operation="UPDATE", old=before))
    assert spans.taken == []


def test_a_pod_of_another_scheduler_is_left_as_it_is(spans: Spans) -> None:
    raw = pod(scheduler="default-scheduler")
    assert "patch" not in tracing(spans).mutating(review(raw))["response"]
    assert spans.taken == []


def test_the_lines_about_a_pod_name_its_trace(spans: Spans, caplog: pytest.LogCaptureFixture) -> None:
    admission = tracing(spans)
    with caplog.at_level(logging.INFO):
        admission.mutating(review(half()))
        admission.mutating(review(half(annotations={names.GPU_FRACTION: "1.5"})))
    fields: list[Any] = [record.fields for record in caplog.records]  # type: ignore[attr-defined]
    assert [field["trace_id"] for field in fields] == [
        f"{spans.taken[0].trace_id:032x}",
        f"{spans.taken[1].trace_id:032x}",
    ]


def test_without_tracing_no_randomness_is_drawn_and_nothing_is_written() -> None:
    rng = random.Random(1)
    admission = PodAdmission(Settings(), rng=rng)
    assert traceparent_of(admitted(admission, half())) is None
    assert rng.random() == random.Random(1).random()
