"""What the binder keeps for traces goes with the pods and BindRequests that it is about."""

from __future__ import annotations

import pytest

from binder.telemetry.tracing import MOST_PODS, ActionCarried, AttemptEnded, AttemptTraces
from kube.telemetry.tracing import Span, Tracer
from sharing.attempt import Attempt
from sharing.outcome import BindingAccepted, JoinedAs
from sharing.state import Join
from wire import names
from wire.core import ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus
from wire.crds.bindrequest import BindRequest


class Clock:
    def now_ns(self) -> int:
        return 1_767_225_600_000_000_000


class Spans:
    def __init__(self) -> None:
        self.taken: list[Span] = []
        self.lost = 0

    def take(self, span: Span) -> None:
        self.taken.append(span)

    def lose(self) -> None:
        self.lost += 1


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def traces(spans: Spans) -> AttemptTraces:
    return AttemptTraces(Tracer(spans, clock=Clock()))


def a_pod(uid: str, *, phase: str = "Pending", scheduler: str = names.SCHEDULER_NAME) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=uid, namespace="team", uid=uid),
        spec=PodSpec(scheduler_name=scheduler),
        status=PodStatus(phase=phase),
    )


def a_request(uid: str, pod: str) -> BindRequest:
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod, uid=pod)
    return BindRequest(metadata=ObjectMeta(name=pod, namespace="team", uid=uid, owner_references=[owner]))


def an_attempt(uid: str, pod: str) -> Attempt:
    return Attempt(id=uid, namespace="team", name=pod, pod_uid=pod, pod_name=pod, node="n", rv="1")


def test_an_attempt_is_told_though_its_pod_runs_before_it_has_ended(traces: AttemptTraces, spans: Spans) -> None:
    traces.seen(a_pod("one"))
    traces.requested(a_request("r1", "one"))
    traces.seen(a_pod("one", phase="Running"))
    traces.dropped("unknown")
    assert traces.of(an_attempt("r1", "one")), "its lines name the trace as well"
    traces.take(AttemptEnded(an_attempt("r1", "one"), None, 0.0))
    assert [span.name for span in spans.taken] == ["attempt"]
    traces.take(AttemptEnded(an_attempt("r1", "one"), None, 0.0))
    assert len(spans.taken) == 1


async def test_a_request_that_is_gone_is_kept_while_its_attempt_is_at_work_and_else_forgotten(
    traces: AttemptTraces, spans: Spans
) -> None:
    for uid in ("at-work", "followed", "missed"):
        traces.seen(a_pod(f"pod-{uid}"))
        traces.requested(a_request(uid, f"pod-{uid}"))
    joined = JoinedAs("group", "reservation", "1")
    traces.take(ActionCarried(an_attempt("at-work", "pod-at-work"), Join("group"), joined, 0.0, 0.0))
    traces.dropped("at-work")
    traces.dropped("followed")
    traces.listed({"at-work"})
    for uid in ("at-work", "followed", "missed"):
        traces.take(AttemptEnded(an_attempt(uid, f"pod-{uid}"), None, 0.0))
    assert len(spans.taken) == 1


async def test_of_an_attempt_whose_pod_is_not_traced_nothing_is_told(traces: AttemptTraces, spans: Spans) -> None:
    traces.seen(a_pod("theirs", scheduler="default-scheduler"))
    traces.requested(a_request("r1", "theirs"))
    traces.take(ActionCarried(an_attempt("r1", "theirs"), Join("group"), BindingAccepted(), 0.0, 0.0))
    traces.take(AttemptEnded(an_attempt("r1", "theirs"), None, 0.0))
    assert spans.taken == []
    assert traces.of(an_attempt("r1", "theirs")) == {}


def test_no_more_pods_are_followed_than_there_is_room_for(traces: AttemptTraces, spans: Spans) -> None:
    for number in range(MOST_PODS + 2):
        traces.seen(a_pod(f"pod-{number}"))
    assert spans.lost == 2
    traces.gone("pod-0")
    for uid in ("pod-new", f"pod-{MOST_PODS + 1}"):
        traces.seen(a_pod(uid))
        traces.requested(a_request(f"r-{uid}", uid))
    assert traces.of(an_attempt("r-pod-new", "pod-new"))
    assert not traces.of(an_attempt(f"r-pod-{MOST_PODS + 1}", f"pod-{MOST_PODS + 1}"))
