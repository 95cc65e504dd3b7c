"""Events of the binder, for metrics (runtime/processes/binder.py), and the traces of pods that are made of them.

Each attempt and its parts are spans below the pod's own. The id of an attempt's span is made of the BindRequest's UID:
the spans of a binder that failed are below the attempt's span that the next one reports. State that is read when
metrics are collected is in ``binder/report/status.py``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from kube.telemetry.logevents import EventSink
from kube.telemetry.tracing import Tracer, trace_field
from sharing import state
from sharing.attempt import Attempt
from sharing.failure import Failure
from sharing.outcome import BindingNotAccepted, Failed, Outcome
from sharing.state import Action, DropRequest, Fence, Join, Leave
from wire import names, traceparent
from wire.core import Pod
from wire.crds.bindrequest import BindRequest
from wire.traceparent import PodTrace


class Stage(enum.Enum):
    """Where the time of an attempt goes. The value is its stable name for machines."""

    #: Entering a book; making the reservation pod where there is none.
    JOIN = "join"
    #: From the first join until all devices were told: the reservation pod starts and looks.
    LEARN = "learn"
    #: Looking for other claims on a device.
    VERIFY = "verify"
    READ_POD = "read-pod"
    CONFIG_MAPS = "config-maps"
    BIND = "bind"
    TELL_BOUND = "tell-bound"
    RENEW = "renew"
    DROP = "drop-request"
    FENCE = "fence"
    LEAVE = "leave"


_STAGES: Final[Mapping[type[Action], Stage]] = {
    state.Join: Stage.JOIN,
    state.Verify: Stage.VERIFY,
    state.ReadPod: Stage.READ_POD,
    state.WriteConfigMaps: Stage.CONFIG_MAPS,
    state.PostBinding: Stage.BIND,
    state.TellBound: Stage.TELL_BOUND,
    state.Renew: Stage.RENEW,
    state.DropRequest: Stage.DROP,
    state.Fence: Stage.FENCE,
    state.Leave: Stage.LEAVE,
}


def stage_of(action: Action) -> Stage:
    """The stage that an action is."""
    return _STAGES[type(action)]


class ActionCarried(msgspec.Struct, frozen=True, gc=False):
    """An action was carried out. Times are the event loop's, in seconds."""

    attempt: Attempt
    action: Action
    outcome: Outcome
    began_s: float
    ended_s: float


class DevicesLearned(msgspec.Struct, frozen=True, gc=False):
    """All devices of an attempt are known, this long after its first join."""

    seconds: float


class AttemptEnded(msgspec.Struct, frozen=True, gc=False):
    """An attempt ended, this long after its BindRequest was seen. ``failure`` None: its pod is bound by it."""

    attempt: Attempt
    failure: Failure | None
    took_s: float


BinderEvent: TypeAlias = ActionCarried | DevicesLearned | AttemptEnded
Emit: TypeAlias = EventSink[BinderEvent]


#: The most pods that are followed at once; further ones have no spans from here, and are counted.
MOST_PODS: Final = 16_384


class _Attempted:
    """An attempt at work: ``began_ns`` is when its BindRequest was made, as far as is known."""

    __slots__ = ("began_ns", "is_at_work", "joins_ns", "trace")

    def __init__(self, began_ns: int) -> None:
        self.began_ns = began_ns
        #: When its first book was asked for, until its devices are known.
        self.joins_ns = 0
        self.trace: PodTrace | None = None
        #: Whether it is carried out here: then its end is reported here, after its BindRequest is gone.
        self.is_at_work = False


class AttemptTraces:
    """Makes spans of what becomes of attempts."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        #: Of pods that have not begun to run.
        self._pods: dict[str, PodTrace] = {}
        #: By the BindRequest's UID.
        self._attempts: dict[str, _Attempted] = {}

    def seen(self, pod: Pod) -> None:
        """Follow a pod until it runs."""
        uid = pod.metadata.uid
        if pod.status.phase not in {"", names.PENDING}:
            self._pods.pop(uid, None)
        elif uid not in self._pods and pod.spec.scheduler_name == names.SCHEDULER_NAME:
            trace = self._tracer.trace_of(pod.metadata.annotations, uid)
            if trace is None:
                return
            if len(self._pods) >= MOST_PODS:
                self._tracer.sink.lose()
                return
            self._pods[uid] = trace

    def gone(self, uid: str) -> None:
        """Forget it."""
        self._pods.pop(uid, None)

    def requested(self, request: BindRequest) -> None:
        """Note when its pod was handed over; a replica that follows does, too."""
        meta = request.metadata
        if meta.uid not in self._attempts and len(self._attempts) < MOST_PODS:
            self._attempts[meta.uid] = _Attempted(self._tracer.since_ns(meta.creation_timestamp))
            self._find(self._attempts[meta.uid], next((owner.uid for owner in meta.owner_references or ()), ""))

    def _find(self, known: _Attempted, pod_uid: str) -> PodTrace | None:
        """Its pod's trace, kept from when that was seen first: the pod may run before its attempt has ended."""
        known.trace = known.trace or self._pods.get(pod_uid)
        return known.trace

    def dropped(self, request: str) -> None:
        """Forget an attempt that is not carried out here."""
        known = self._attempts.get(request)
        if known is not None and not known.is_at_work:
            del self._attempts[request]

    def listed(self, present: set[str]) -> None:
        """Forget the others."""
        for request in self._attempts.keys() - present:
            self.dropped(request)

    def take(self, event: BinderEvent) -> None:
        """Take an event of the binder."""
        match event:
            case ActionCarried():
                self._carried(event)
            case AttemptEnded():
                self._ended(event.attempt, event.failure)
            case DevicesLearned():
                pass  # the next action ends the span ``reserve``

    def _carried(self, event: ActionCarried) -> None:
        """Report a part of an attempt. ``reserve`` is from the first join until the devices are known."""
        attempt, action = event.attempt, event.action
        known = self._attempts.get(attempt.id)
        if known is None or self._find(known, attempt.pod_uid) is None:
            return
        known.is_at_work = True
        began_ns, ended_ns = self._tracer.at_ns(event.began_s), self._tracer.at_ns(event.ended_s)
        if isinstance(action, Join):
            known.joins_ns = known.joins_ns or began_ns
            return
        if known.joins_ns:
            is_over = isinstance(action, DropRequest | Fence | Leave)
            self._tell(known, attempt, "reserve", (known.joins_ns, began_ns), error="NotReserved" if is_over else "")
            known.joins_ns = 0
        is_refused = isinstance(event.outcome, Failed | BindingNotAccepted)
        error = "Refused" if is_refused else ""
        self._tell(known, attempt, stage_of(action).value, (began_ns, ended_ns), error=error)

    def _tell(self, known: _Attempted, attempt: Attempt, name: str, times: tuple[int, int], *, error: str) -> None:
        if (trace := known.trace) is not None:
            self._tracer.tell(trace, name, times, below=_span_id(trace, attempt), error=error)

    def _ended(self, attempt: Attempt, failure: Failure | None) -> None:
        known = self._attempts.pop(attempt.id, None)
        trace = self._find(known, attempt.pod_uid) if known is not None else None
        if known is None or trace is None:
            return
        groups = [device.group for device in attempt.devices]
        self._tracer.tell(
            trace,
            "attempt",
            (known.began_ns, self._tracer.now_ns()),
            span_id=_span_id(trace, attempt),
            error=failure.cause.value if failure is not None else "",
            attributes={"node": attempt.node, "groups": groups, "gpus_nano": sum(d.nano for d in attempt.devices)},
        )

    def of(self, attempt: Attempt) -> Mapping[str, str]:
        """Return its pod's trace's id, if that is traced."""
        known = self._attempts.get(attempt.id)
        return trace_field(self._find(known, attempt.pod_uid) if known is not None else None)


def _span_id(trace: PodTrace, attempt: Attempt) -> int:
    return traceparent.span_id(trace.trace_id, attempt.id, "attempt")
