"""Events of the scheduler, for metrics (runtime/metrics/scheduler.py), and the traces of pods that are made of them.

State that is read when metrics are collected is in ``scheduler/report/state.py``. A trace says how long a pod waited
and why, what was decided, when it ran; it is made of what was seen, when it is over. The leader tells what it did, and
tells of a pod's start and of its whole way, ``pod``, when it sees it run. Replicas that follow see the same pods and
keep the same few facts.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from kube.telemetry.logevents import EventSink
from kube.telemetry.tracing import SpanEvent, Tracer, Value, trace_field
from scheduler.core.model.plan import Attempt, Bind, Gang, Hold, Join, Placement, Plan, Prepare
from scheduler.core.model.verdict import Code
from wire import names, traceparent
from wire.core import Pod
from wire.traceparent import PodTrace


class Stage(enum.Enum):
    """Where the time of a placement goes. The value is its stable name for machines."""

    #: One decision about all that waits.
    DECIDE = "decide"
    #: Charging what was decided, and starting its writes.
    CHARGE = "charge"
    #: Binding what needs no books, to the answer.
    BIND = "bind"
    #: Entering books and binding, to the answer.
    JOIN = "join"
    #: Writing a BindRequest.
    HAND_OVER = "hand-over"
    #: Starting a gang: its plan, its books, its bindings or BindRequests.
    GANG = "gang"
    #: Having the claims of pods bound, to the last of them.
    PREPARE = "prepare"


class Ended(enum.Enum):
    """How a direct commit ended. The value is its stable name for machines."""

    BOUND = "bound"
    #: A device had no room any more.
    DEVICE_TAKEN = "DeviceTaken"
    #: A device was not the one that was verified any more.
    RESERVATION_LOST = "ReservationLost"
    #: The API server refused the Binding.
    REFUSED = "Refused"
    #: The pod changed, went, or was bound by somebody else: it is decided on again, if it is there.
    OVERTAKEN = "Overtaken"


def ended_by(because: str) -> Ended:
    """How a commit ended that is given back for this reason ("" : nobody failed)."""
    name = because.partition(":")[0]
    return next((ended for ended in Ended if ended.value == name), Ended.OVERTAKEN)


class Evicts(enum.Enum):
    """Why a pod is evicted; the values are KAI's names of its actions."""

    #: From a queue with more than its share, for a pod of another queue.
    RECLAIM = "reclaim"
    #: For a pod of higher priority in the same queue.
    PREEMPT = "preempt"
    #: Onto another node, so that what is free comes together.
    MOVE = "consolidation"
    #: What is left of a gang below its minimum.
    STALE_GANG = "stalegangeviction"


class Answer(enum.Enum):
    """What became of asking for an eviction. The value is its stable name for machines."""

    EVICTED = "evicted"
    #: It is gone, or is going already.
    GONE = "gone"
    #: A pod of another UID has its name.
    OTHER_POD = "other-pod"
    #: A PodDisruptionBudget forbids it now: it is asked again.
    REFUSED = "refused"
    #: No clear answer, or not allowed: it is asked again.
    FAILED = "failed"
    #: Nobody needs it to go any more, so it was not asked.
    SPARED = "spared"


class Decided(msgspec.Struct, frozen=True, gc=False):
    """A plan that is not the one before. Times are the event loop's, in seconds: ``charged_s`` is after its charges."""

    plan: Plan
    began_s: float
    decided_s: float
    charged_s: float


class StageTook(msgspec.Struct, frozen=True, gc=False):
    """How long one run of a stage took, other than deciding and charging (``Decided``)."""

    stage: Stage
    seconds: float


class Judged(msgspec.Struct, frozen=True, gc=False):
    """A pod waits for another reason than before, or for its first one."""

    pod_uid: str
    code: Code


class RequestMade(msgspec.Struct, frozen=True, gc=False):
    """The BindRequest of a placement was created, begun at ``began_s`` (event loop's time)."""

    placement: Placement
    began_s: float


class Attempted(msgspec.Struct, frozen=True, gc=False):
    """A direct commit of one pod ended. Times are the event loop's, in seconds.

    ``joined_s``: when the pod was entered in its books, 0 if it was not. ``because`` None: it is bound.
    """

    placement: Placement
    began_s: float
    joined_s: float
    because: str | None

    @property
    def how(self) -> Ended:
        """How it ended."""
        return Ended.BOUND if self.because is None else ended_by(self.because)


class SeenBound(msgspec.Struct, frozen=True, gc=False):
    """A pod of ours is seen bound, this long after it was seen first."""

    waited_s: float


class LedgerDiffers(msgspec.Struct, frozen=True, gc=False):
    """A node's row of the ledger was not what a recount gives."""


class EvictionAnswered(msgspec.Struct, frozen=True, gc=False):
    """The eviction of a pod was requested, or was not necessary any more."""

    why: Evicts
    answer: Answer


class EvictedInVain(msgspec.Struct, frozen=True, gc=False):
    """A nomination was given up after this number of pods had been evicted for it."""

    pods: int


SchedulerEvent: TypeAlias = (
    Decided
    | StageTook
    | Judged
    | RequestMade
    | Attempted
    | SeenBound
    | LedgerDiffers
    | EvictionAnswered
    | EvictedInVain
)
Emit: TypeAlias = EventSink[SchedulerEvent]


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


class PodTraces:
    """Makes spans of what becomes of pods. Times are the event loop's, in seconds."""

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

    def take(self, event: SchedulerEvent) -> None:
        """Take an event of the scheduler; most are not about one pod."""
        match event:
            case Decided():
                self._decided(event)
            case Judged(pod_uid=uid, code=code):
                if (known := self._pods.get(uid)) is not None:
                    self._note_reason(known, code.value)
            case RequestMade(placement=placement, began_s=began_s):
                self._handed_over(placement, began_s)
            case Attempted():
                self._attempted(event)
            case _:
                pass

    def leads(self, is_leading: bool) -> None:
        """A new leader tells of pods that began to run since the lease can have been lost; some are told twice."""
        self._is_leading = is_leading
        since_ns = self._tracer.now_ns() - UNTOLD_NS
        while is_leading and self._untold:
            ended_ns, known, outcome = self._untold.popleft()
            if ended_ns >= since_ns:
                self._tell_end(known, ended_ns, outcome)

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

    def _decided(self, event: Decided) -> None:
        for entry in event.plan.entries:
            match entry:
                case Bind(placement=placement) | Join(placement=placement):
                    placements: Sequence[Placement] = (placement,)
                case Attempt(placement=placement) | Hold(placement=placement):
                    placements = (placement,)
                case Gang() | Prepare():
                    placements = entry.placements
                case _:
                    continue
            for placement in placements:
                self._placed(placement, type(entry).__name__.lower(), event)

    def _placed(self, placement: Placement, kind: str, event: Decided) -> None:
        """Report the wait that is over, and the decision."""
        known = self._pods.get(placement.pod_uid)
        if known is None:
            return
        began_ns, ended_ns = self._tracer.at_ns(event.began_s), self._tracer.at_ns(event.decided_s)
        self._tell_wait(known, began_ns)
        times_ns = max(began_ns, known.waits_ns), ended_ns
        self._tracer.tell(known.trace, "decide", times_ns, attributes={"kind": kind, **described(placement)})
        known.waits_ns, known.reasons = ended_ns, []

    def _handed_over(self, placement: Placement, began_s: float) -> None:
        if (known := self._pods.get(placement.pod_uid)) is not None:
            times_ns = self._tracer.at_ns(began_s), self._tracer.now_ns()
            self._tracer.tell(known.trace, "hand-over", times_ns, attributes={"node": placement.node})

    def _attempted(self, event: Attempted) -> None:
        """Report the attempt and its parts; after one that failed the pod waits again."""
        placement, because = event.placement, event.because
        known = self._pods.get(placement.pod_uid) or self._over.get(placement.pod_uid)
        if known is None:
            return
        tracer, now_ns, error = self._tracer, self._tracer.now_ns(), "" if because is None else cause_of(because)
        began_ns, joined_ns = tracer.at_ns(event.began_s), tracer.at_ns(event.joined_s) if event.joined_s else 0
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
