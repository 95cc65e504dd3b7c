"""What the scheduler follows of pods is bounded, and only what can still be told."""

from __future__ import annotations

import msgspec
import pytest

from kube.telemetry.tracing import Span, Tracer
from scheduler.core.model.plan import Bind, Placement, Plan
from scheduler.core.model.verdict import Code
from scheduler.telemetry import events
from scheduler.telemetry.events import (
    MOST_OVER,
    MOST_PODS,
    MOST_REASONS,
    MOST_UNTOLD,
    UNTOLD_NS,
    Attempted,
    Decided,
    Judged,
    PodTraces,
    RequestMade,
)
from wire import names, traceparent
from wire.core import Condition, ObjectMeta, Pod, PodSpec, PodStatus

NOW_NS = 1_767_225_600_000_000_000


class Clock:
    ns = NOW_NS

    def now_ns(self) -> int:
        return self.ns


class Spans:
    def __init__(self) -> None:
        self.taken: list[Span] = []
        self.lost = 0

    def take(self, span: Span) -> None:
        self.taken.append(span)

    def lose(self) -> None:
        self.lost += 1


class Told:
    def __init__(self) -> None:
        self.clock, self.spans = Clock(), Spans()
        self.traces = PodTraces(Tracer(self.spans, clock=self.clock), scheduler_name=names.SCHEDULER_NAME)
        self.traces.leads(True)

    def names(self) -> list[str]:
        return [span.name for span in self.spans.taken]


@pytest.fixture
def told() -> Told:
    return Told()


def a_pod(uid: str, *, node: str = "", phase: str = "Pending", scheduler: str = names.SCHEDULER_NAME) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=uid, namespace="team", uid=uid, creation_timestamp="2025-12-31T23:59:59Z"),
        spec=PodSpec(scheduler_name=scheduler, node_name=node),
        status=PodStatus(phase=phase),
    )


def test_no_more_pods_are_followed_than_there_is_room_for_and_the_others_are_counted(told: Told) -> None:
    for number in range(MOST_PODS + 3):
        told.traces.seen(a_pod(f"pod-{number}"))
    assert told.spans.lost == 3
    assert told.traces.of(f"pod-{MOST_PODS - 1}")
    assert not told.traces.of(f"pod-{MOST_PODS}")
    told.traces.gone("pod-0")
    told.traces.seen(a_pod("pod-new"))
    assert told.traces.of("pod-new")


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("runs", node="n", phase="Running"),
        a_pod("has-ended", node="n", phase="Succeeded"),
        a_pod("another-schedulers", scheduler="default-scheduler"),
    ],
    ids=lambda pod: str(pod.metadata.name),
)
def test_what_runs_already_and_what_is_others_is_not_followed(told: Told, pod: Pod) -> None:
    told.traces.seen(pod)
    told.traces.gone(pod.metadata.uid)
    assert told.spans.taken == []


def test_no_wait_begins_before_its_pod(told: Told) -> None:
    """The pod is seen late, and its creationTimestamp has whole seconds, unlike the time at which admission began."""
    began_ns = NOW_NS - 200_000_000
    context = traceparent.begun(traceparent.new_id(began_ns, 1), ratio_nano=traceparent.ALL)
    pod = a_pod("one")
    annotations = {names.TRACEPARENT: traceparent.render(context)}
    told.clock.ns += 4_000_000_000
    told.traces.seen(
        msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))
    )
    told.traces.gone("one")
    assert [(span.name, span.start_ns) for span in told.spans.taken] == [("wait", began_ns), ("pod", began_ns)]


def test_a_wait_tells_its_first_reasons(told: Told) -> None:
    told.traces.seen(a_pod("one"))
    for number in range(2 * MOST_REASONS):
        told.traces.take(Judged("one", Code.NO_NODE_FITS if number % 2 else Code.BACKING_OFF))
    told.traces.gone("one")
    (wait, whole) = told.spans.taken
    assert (wait.name, whole.name, whole.error) == ("wait", "pod", "deleted")
    assert len(wait.events) == MOST_REASONS
    assert wait.events[0].name == "BackingOff"


def test_a_pod_that_its_machine_refuses_is_told_as_failed(told: Told) -> None:
    told.traces.seen(a_pod("one"))
    told.traces.seen(a_pod("one", node="n"))
    told.traces.seen(a_pod("one", node="n", phase="Failed"))
    assert [(span.name, span.error) for span in told.spans.taken] == [("start", "failed"), ("pod", "failed")]


def test_what_is_told_twice_by_watches_is_one_span(told: Told) -> None:
    told.traces.seen(a_pod("one"))
    for _ in range(2):
        told.traces.seen(a_pod("one", node="n"))
    for _ in range(2):
        told.traces.seen(a_pod("one", node="n", phase="Running"))
    assert told.names() == ["start", "pod"]


def test_a_pod_that_was_bound_before_it_was_seen_starts_when_its_condition_says(told: Told) -> None:
    scheduled = Condition(type="PodScheduled", status="True", last_transition_time="2025-12-31T23:59:30Z")
    found = a_pod("one", node="n")
    told.traces.seen(msgspec.structs.replace(found, status=PodStatus(phase="Pending", conditions=[scheduled])))
    told.traces.seen(a_pod("one", node="n", phase="Running"))
    assert told.spans.taken[0].start_ns == NOW_NS - 30_000_000_000


def test_a_fence_ends_an_attempt_and_a_new_wait_names_its_cause_only(told: Told) -> None:
    told.traces.seen(a_pod("one"))
    told.clock.ns += 5_000_000_000
    fenced = {names.FENCED: "attempt-1", names.FENCED_BECAUSE: "DeviceTaken: words of a server"}
    pod = a_pod("one")
    told.traces.seen(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=fenced)))
    told.traces.gone("one")
    wait = told.spans.taken[0]
    assert wait.start_ns == NOW_NS + 5_000_000_000
    assert [event.name for event in wait.events] == ["DeviceTaken"]


def test_who_follows_tells_nothing_until_it_leads_and_then_what_nobody_can_have_told(told: Told) -> None:
    told.traces.leads(False)
    for uid in ("early", "late"):
        told.traces.seen(a_pod(uid, node="n"))
        told.traces.seen(a_pod(uid, node="n", phase="Running"))
        told.clock.ns += UNTOLD_NS // 2 + 1
    assert told.spans.taken == []
    told.traces.leads(True)
    assert [span.attributes.get("pod_uid") for span in told.spans.taken] == [None, "late"]
    told.traces.leads(True)
    assert len(told.spans.taken) == 2


def test_who_follows_for_years_keeps_no_more_than_the_last(told: Told) -> None:
    told.traces.leads(False)
    for number in range(MOST_UNTOLD + 10):
        told.traces.seen(a_pod(f"pod-{number}", node="n"))
        told.traces.gone(f"pod-{number}")
    told.traces.leads(True)
    assert len(told.spans.taken) == 2 * MOST_UNTOLD


@pytest.mark.parametrize("because", ["Refused: https://user:secret@server said no", "", "DeviceTaken"])
def test_a_cause_is_a_word(because: str) -> None:
    assert events.cause_of(because) in {"Refused", "Overtaken", "DeviceTaken"}


async def test_a_pod_that_runs_before_its_binding_is_answered_is_told_whole(told: Told) -> None:
    told.traces.seen(a_pod("one"))
    told.traces.seen(a_pod("one", node="n", phase="Running"))
    placement = Placement(pod_uid="one", namespace="team", name="p", rv="1", node="n")
    told.traces.take(Attempted(placement, 0.0, 0.0, None))
    assert told.names() == ["start", "pod", "attempt"]
    assert told.traces.of("one")


def test_pods_that_are_over_are_forgotten_in_turn(told: Told) -> None:
    for number in range(MOST_OVER + 2):
        told.traces.seen(a_pod(f"pod-{number}"))
        told.traces.gone(f"pod-{number}")
    assert not told.traces.of("pod-1")
    assert told.traces.of("pod-2")


async def test_of_a_pod_that_is_not_followed_nothing_is_told(told: Told) -> None:
    placement = Placement(pod_uid="unknown", namespace="team", name="p", rv="1", node="n")
    told.traces.take(Decided(Plan(entries=(Bind(placement),)), 0.0, 0.0, 0.0))
    told.traces.take(RequestMade(placement, 0.0))
    told.traces.take(Attempted(placement, 0.0, 0.0, None))
    told.traces.take(Judged("unknown", Code.NO_NODE_FITS))
    assert told.spans.taken == []
