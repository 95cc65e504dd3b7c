"""The traces of pods as the scheduler sees them: how long each waited and why, what was decided, when it ran.

A trace is made of what was seen, when it is over. The leader tells what it did, and tells of a pod's start and of its
whole way, ``pod``, when it sees it run. Replicas that follow see the same pods and keep the same few facts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from typing_extensions import override

from kube.telemetry.tracing import SpanEvent, Tracer, Value, trace_field
from scheduler.core.model.plan import Placement
from scheduler.core.model.verdict import Code
from wire import names, traceparent
from wire.core import Pod
from wire.traceparent import PodTrace


class Traces(Protocol):
    """Is called with what becomes of pods. Times are the event loop's, in seconds."""

    def leads(self, is_leading: bool) -> None:
        """Whether this replica leads from now on, and so tells."""
        ...

    def seen(self, pod: Pod) -> None:
        """A pod as a watch, a list or an answer shows it."""
        ...

    def gone(self, uid: str) -> None:
        """A pod is gone."""
        ...

    def waits(self, uid: str, code: Code) -> None:
        """A pod waits for another reason than before."""
        ...

    def decided(self, placement: Placement, kind: str, began_s: float, ended_s: float) -> None:
        """A place was found by a decision that took from ``began_s`` to ``ended_s``."""
        ...

    def handed_over(self, placement: Placement, began_s: float) -> None:
        """Its BindRequest was made."""
        ...

    def attempted(self, placement: Placement, began_s: float, joined_s: float, because: str | None) -> None:
        """Its binding here has ended. ``joined_s``: when it stood in its books; ``because`` None: it is bound."""
        ...

    def of(self, uid: str) -> Mapping[str, str]:
        """Return what a line of the log says of this pod's trace."""
        ...


class Untraced(Traces):
    """Nobody follows pods."""

    @override
    def leads(self, is_leading: bool) -> None:
        """Nothing."""

    @override
    def seen(self, pod: Pod) -> None:
        """Nothing."""

    @override
    def gone(self, uid: str) -> None:
        """Nothing."""

    @override
    def waits(self, uid: str, code: Code) -> None:
        """Nothing."""

    @override
    def decided(self, placement: Placement, kind: str, began_s: float, ended_s: float) -> None:
        """Nothing."""

    @override
    def handed_over(self, placement: Placement, began_s: float) -> None:
        """Nothing."""

    @override
    def attempted(self, placement: Placement, began_s: float, joined_s: float, because: str | None) -> None:
        """Nothing."""

    @override
    def of(self, uid: str) -> Mapping[str, str]:
        """Nothing."""
        return {}


#: The most pods that are followed at once; further ones have no trace from here on, and are counted.
MOST_PODS: Final = 16_384
#: The most reasons of one wait that are recorded: the first ones.
MOST_REASONS: Final = 32
#: A lease that nobody renews is another's after 15 s; within so long before a replica leads nobody may have led.
UNTOLD_NS: Final = 20_000_000_000
MOST_UNTOLD: Final = 4_096
MOST_OVER: Final = 1_024


@dataclass(slots=True)
class _Followed:
    """A pod on its way. ``waits_ns``: since when it waits for a place; ``bound_ns``: when it was seen bound, or 0."""

    trace: PodTrace
    uid: str
    place: str
    created_ns: int
    waits_ns: int
    reasons: list[SpanEvent] = field(default_factory=list)
    bound_ns: int = 0
    node: str = ""
    #: The attempt that was withdrawn last.
    fenced: str = ""


class Traced(Traces):
    """Makes spans of it."""

    def __init__(self, tracer: Tracer, *, scheduler_name: str) -> None:
        self._tracer = tracer
        self._scheduler_name = scheduler_name
        self._pods: dict[str, _Followed] = {}
        #: The last of those that are over: a watch may show a pod run before its Binding is answered here.
        self._over: dict[str, _Followed] = {}
        self._is_leading = False
        #: Pods that ended their way while this replica followed: when, and how. The former leader has reported most of
        #: them.
        self._untold: deque[tuple[int, _Followed, str]] = deque(maxlen=MOST_UNTOLD)

    @override
    def leads(self, is_leading: bool) -> None:
        """A new leader tells of pods that began to run since the lease can have been lost; some are told twice."""
        self._is_leading = is_leading
        since_ns = self._tracer.now_ns() - UNTOLD_NS
        while is_leading and self._untold:
            ended_ns, known, outcome = self._untold.popleft()
            if ended_ns >= since_ns:
                self._tell_end(known, ended_ns, outcome)

    @override
    def seen(self, pod: Pod) -> None:
        """Begin to follow a pod that has not started yet; see how far one is that is followed."""
        known = self._pods.get(pod.metadata.uid) or self._begin(pod)
        if known is None:
            return
        if pod.spec.node_name and not known.bound_ns:
            known.bound_ns, known.node = self._bound_ns(pod), pod.spec.node_name
        if not known.bound_ns:
            self._note_fence(known, pod.metadata.annotations or {})
        if pod.status.phase not in {"", names.PENDING}:
            outcome = "failed" if pod.status.phase == names.FAILED else "running"
            self._end(pod.metadata.uid, outcome)

    def _begin(self, pod: Pod) -> _Followed | None:
        """Only what has not begun to run: a list of all pods is gone through quickly."""
        meta = pod.metadata
        if pod.status.phase not in {"", names.PENDING} or pod.spec.scheduler_name != self._scheduler_name:
            return None
        trace = self._tracer.trace_of(meta.annotations, meta.uid)
        if trace is None:
            return None
        if len(self._pods) >= MOST_PODS:
            self._tracer.sink.lose()
            return None
        created_ns = self._tracer.created_ns(trace, meta.creation_timestamp)
        # A creationTimestamp has whole seconds, so it may lie before the admission that its trace tells of.
        since_ns = max(created_ns, self._tracer.since_ns(meta.creation_timestamp))
        known = _Followed(trace, meta.uid, f"{meta.namespace}/{meta.name}", created_ns, since_ns)
        known.fenced = (meta.annotations or {}).get(names.FENCED, "")
        self._pods[meta.uid] = known
        return known

    def _bound_ns(self, pod: Pod) -> int:
        """When it was bound: just now, or a while ago as its condition tells."""
        conditions = pod.status.conditions or ()
        scheduled = (c for c in conditions if c.type == names.CONDITION_POD_SCHEDULED and c.status == "True")
        return self._tracer.since_ns(next((c.last_transition_time for c in scheduled), None))

    def _note_fence(self, known: _Followed, annotations: Mapping[str, str]) -> None:
        """An attempt of the binder's failed: the pod waits again."""
        fenced = annotations.get(names.FENCED, "")
        if fenced != known.fenced:
            known.fenced = fenced
            self._waits_again(known, annotations.get(names.FENCED_BECAUSE, ""))

    def _waits_again(self, known: _Followed, because: str) -> None:
        known.waits_ns = self._tracer.now_ns()
        known.reasons = []
        self._note_reason(known, cause_of(because))

    def _note_reason(self, known: _Followed, reason: str) -> None:
        if reason and len(known.reasons) < MOST_REASONS:
            known.reasons.append(SpanEvent(self._tracer.now_ns(), reason))

    @override
    def gone(self, uid: str) -> None:
        """It never started."""
        self._end(uid, "deleted")

    def _end(self, uid: str, outcome: str) -> None:
        """Forget a pod whose way is over, and tell of it if that is ours to do."""
        known = self._pods.pop(uid, None)
        if known is None:
            return
        self._over[uid] = known
        if len(self._over) > MOST_OVER:
            del self._over[next(iter(self._over))]
        if self._is_leading:
            self._tell_end(known, self._tracer.now_ns(), outcome)
        else:
            self._untold.append((self._tracer.now_ns(), known, outcome))

    def _tell_end(self, known: _Followed, now_ns: int, outcome: str) -> None:
        error = "" if outcome == "running" else outcome
        if known.bound_ns:
            self._tracer.tell(
                known.trace,
                "start",
                (known.bound_ns, now_ns),
                # Like the pod's own: told by two leaders, it is the same span.
                span_id=traceparent.span_id(known.trace.trace_id, known.uid, "start"),
                error=error,
                attributes={"node": known.node},
            )
        else:
            self._tell_wait(known, now_ns, error=error)
        self._tracer.tell_pod(
            known.trace,
            (known.created_ns, now_ns),
            error=error,
            attributes={"pod": known.place, "pod_uid": known.uid, "node": known.node, "outcome": outcome},
        )

    def _tell_wait(self, known: _Followed, until_ns: int, *, error: str = "") -> None:
        events = tuple(known.reasons)
        self._tracer.tell(known.trace, "wait", (known.waits_ns, until_ns), events=events, error=error)

    @override
    def waits(self, uid: str, code: Code) -> None:
        """Note why."""
        if (known := self._pods.get(uid)) is not None:
            self._note_reason(known, code.value)

    @override
    def decided(self, placement: Placement, kind: str, began_s: float, ended_s: float) -> None:
        """Tell the wait that is over, and the decision."""
        known = self._pods.get(placement.pod_uid)
        if known is None:
            return
        began_ns, ended_ns = self._tracer.at_ns(began_s), self._tracer.at_ns(ended_s)
        self._tell_wait(known, began_ns)
        times_ns = max(began_ns, known.waits_ns), ended_ns
        self._tracer.tell(known.trace, "decide", times_ns, attributes={"kind": kind, **described(placement)})
        known.waits_ns, known.reasons = ended_ns, []

    @override
    def handed_over(self, placement: Placement, began_s: float) -> None:
        """Tell it."""
        if (known := self._pods.get(placement.pod_uid)) is not None:
            times_ns = self._tracer.at_ns(began_s), self._tracer.now_ns()
            self._tracer.tell(known.trace, "hand-over", times_ns, attributes={"node": placement.node})

    @override
    def attempted(self, placement: Placement, began_s: float, joined_s: float, because: str | None) -> None:
        """Tell the attempt and its parts; after one that failed the pod waits again."""
        known = self._pods.get(placement.pod_uid) or self._over.get(placement.pod_uid)
        if known is None:
            return
        tracer, now_ns, error = self._tracer, self._tracer.now_ns(), "" if because is None else cause_of(because)
        began_ns, joined_ns = tracer.at_ns(began_s), tracer.at_ns(joined_s) if joined_s else 0
        own = traceparent.span_id(known.trace.trace_id, placement.pod_uid, "attempt", str(began_ns))
        tracer.tell(
            known.trace, "attempt", (began_ns, now_ns), span_id=own, error=error, attributes=described(placement)
        )
        if placement.devices:
            times_ns = began_ns, joined_ns or now_ns
            tracer.tell(known.trace, "reserve", times_ns, below=own, error="" if joined_ns else error)
        if joined_ns:
            tracer.tell(known.trace, "bind", (joined_ns, now_ns), below=own, error=error)
        if because is not None:
            self._waits_again(known, because)

    @override
    def of(self, uid: str) -> Mapping[str, str]:
        """Return its trace's id, if it is followed."""
        known = self._pods.get(uid) or self._over.get(uid)
        return trace_field(known.trace if known is not None else None)


def described(placement: Placement) -> dict[str, Value]:
    """What a span says of a placement: where, and which shares of devices."""
    groups = [device.group for device in placement.devices]
    nano = sum(device.nano for device in placement.devices)
    shares: dict[str, Value] = {"groups": groups, "gpus_nano": nano} if groups else {}
    return {"node": placement.node, **shares}


def cause_of(because: str) -> str:
    """The word that a reason begins with. What follows are words of others, which don't belong into a trace."""
    return because.partition(":")[0] or "Overtaken"
