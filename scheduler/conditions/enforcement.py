"""What bound pods are told: what their node can't enforce, how their words were read, claims that share a device.

What is not enforced, and whether memory caps are in place, is one condition; none where all is enforced. Nothing
depends on it, so it comes after everything else.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import anyio
import msgspec

from gpu.limits import DRIVER_CAP, MEMORY_CAP
from gpu.messages import note_text, taken_text, unenforced_text
from gpu.node_use import BY_REPORT, NOT_IN_PLACE, NodeUse, State, Told, caps_condition
from gpu.reservation import Reservation
from gpu.share import mib_of_fraction
from gpu.translate.asked import asked_on
from gpu.translation import LOSSES, Note, NoteCode
from kube import binding
from kube.binding import Identity
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.errors import ApiError, NotFound
from kube.client.resources import PODS
from kube.events import EventRecorder
from scheduler.core.filters.enforcement import unenforced
from scheduler.core.model.devices import ResourceClaimRecord
from scheduler.core.model.records import PodRecord
from scheduler.watch.cache import Cache, says_unenforced
from scheduler.watch.secondary import NodeUses
from wire import names
from wire.api_groups import NORMAL, WARNING
from wire.core import Condition, ObjectReference, Pod
from wire.rfc3339 import parse_ns, rfc3339
from wire.units import SECOND_NS


class Remarking:
    """Records an event on pods that were bound: what was weakened of the dialect that they are written in, or replaced.

    See rule X6 of docs/reference/dialects.md.
    """

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._is_leading = False

    async def run(self) -> None:
        """Tell pods until cancelled."""
        self._is_leading = True
        try:
            await anyio.sleep_forever()
        finally:
            self._is_leading = False

    def bound(self, pod: PodRecord, alternative: int) -> None:
        """Record what is to be said of a pod that was bound, in the form of this number that it asks."""
        if not self._is_leading:
            return
        requests = [*pod.cls.requests()]
        first = _first_there(pod, alternative)
        is_other = first < alternative < len(requests)
        # That less may be given is no news to a pod that was given all.
        notes = [note for note in _notes(pod) if is_other or note.code is not NoteCode.WEAKENED]
        texts = [taken_text(requests, alternative, first)] if is_other else []
        texts += [note_text(note) for note in notes]
        if not texts:
            return
        self._events.record(
            ObjectReference(api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid),
            reason=names.REASON_UNDERSTOOD,
            action="Binding",
            note="; ".join(texts),
            type=WARNING if any(note.code in LOSSES for note in notes) else NORMAL,
            is_final=True,
        )


def _first_there(pod: PodRecord, alternative: int) -> int:
    """What the pod asks first on nodes such as the one that it was bound to."""
    places = pod.cls.places
    return places.index(places[alternative]) if alternative < len(places) else 0


def _notes(pod: PodRecord) -> tuple[Note, ...]:
    return pod.recorded.notes if pod.recorded is not None else ()


class ClashingClaims:
    """Records an event on claims that share a device, after each decision, and so after each change of a claim.

    A ResourceClaim that this scheduler allocated later, for a pod that still waits, it gives back
    (docs/design/claims.md). All other clashes are for people: another scheduler allocates from the same pools.
    """

    def __init__(self, cache: Cache, events: EventRecorder) -> None:
        self._cache = cache
        self._events = events
        self._told: dict[str, frozenset[str]] = {}

    def tell(self) -> None:
        """Record an event on each claim that has come to clash with another."""
        claims = self._cache.cluster.claims
        now = claims.clashing
        for uid, others in now.items():
            claim = claims.by_uid(uid)
            new = sorted(others - self._told.get(uid, frozenset()))
            if claim is not None and new:
                self._record(claim, [other for each in new if (other := claims.by_uid(each)) is not None])
        self._told = dict(now)

    def _record(self, claim: ResourceClaimRecord, others: list[ResourceClaimRecord]) -> None:
        # People of a namespace may not see the claims of others.
        own = [f"{each.namespace}/{each.name}" for each in others if each.namespace == claim.namespace]
        more = len(others) - len(own)
        named = ", ".join([*own, *([f"{more} claim{'s' * (more > 1)} of other namespaces"] if more else [])])
        self._events.record(
            ObjectReference(
                api_version="resource.k8s.io/v1",
                kind="ResourceClaim",
                name=claim.name,
                namespace=claim.namespace,
                uid=claim.uid,
            ),
            reason=names.REASON_ALLOCATED_TWICE,
            action="Allocating",
            note=f"Devices of this claim were also given to {named}: let one scheduler allocate from these pools",
            type=WARNING,
        )


_log: Final = logging.getLogger(__name__)


class Enforcing:
    """Writes the condition GPULimitsEnforced=False. ``retry_s``: after a write that failed or met another one.

    A few writes go side by side, each at the version that was read for it, repeated until it is written or the pod is
    gone.
    """

    def __init__(self, api: Api, cache: Cache, *, clock: Clock, retry_s: float, in_flight: int) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        self._retry_s = retry_s
        self._in_flight = in_flight
        #: Pods (UIDs) that are being told.
        self._telling: set[str] = set()

    async def run(self) -> None:
        """Tell pods until cancelled."""
        limiter = anyio.CapacityLimiter(self._in_flight)
        async with anyio.create_task_group() as tasks:
            self._telling.clear()
            while True:
                for uid in [uid for uid in self._cache.unenforced if uid not in self._telling]:
                    self._telling.add(uid)
                    tasks.start_soon(self._tell, uid, limiter)
                await self._cache.on_unenforced.wait()

    async def _tell(self, uid: str, limiter: anyio.CapacityLimiter) -> None:
        """Write until it is written, or there is nothing to say any more."""
        while uid in self._cache.unenforced:
            try:
                async with limiter:
                    await self._write(uid)
            except NotFound:
                self._cache.unenforced.pop(uid, None)
            except ApiError as error:
                _log.debug("pod %s was not told what its node can't enforce: %s", uid, error)
                await anyio.sleep(self._retry_s)
        self._telling.discard(uid)

    async def _write(self, uid: str) -> None:
        """Take the pod from those to be told, once it says so. Raises ApiError."""
        record = self._cache.cluster.pod(uid)
        if record is not None:
            pod = await binding.read(self._api, Identity(record.namespace, record.name, uid))
            message = self._message(record, pod)
            if pod is not None and message:
                self._cache.note_pod(await self._patch(pod, message))
        self._cache.unenforced.pop(uid, None)

    def _message(self, record: PodRecord, pod: Pod | None) -> str:
        """What is to be said of a pod that was just read, "" if nothing, or if it is said."""
        node = self._cache.cluster.node(record.node)
        if pod is None or node is None or pod.spec.node_name != record.node or says_unenforced(pod):
            return ""
        words = unenforced(record.cls, node)
        if not words or record.deleting:
            return ""
        request = asked_on(pod, node.labels) or record.cls.request
        limits = unenforced_text(request, record.cls.wishes, words)
        return f"Node {node.name} does not enforce {limits}: kept as bookkeeping only"

    async def _patch(self, pod: Pod, message: str) -> Pod:
        condition: dict[str, Any] = {
            "type": names.CONDITION_LIMITS_ENFORCED,
            "status": "False",
            "reason": names.REASON_NOT_ENFORCED,
            "message": message,
            "lastTransitionTime": rfc3339(self._clock.now_ns()),
        }
        meta = pod.metadata
        return await self._api.patch(
            PODS,
            meta.name,
            {"status": {"conditions": [*msgspec.to_builtins(pod.status.conditions or []), condition]}},
            namespace=meta.namespace,
            subresource="status",
            uid=meta.uid,
            resource_version=meta.resource_version,
        )


#: Between two looks.
_EVERY_S: Final = 5.0
#: After this time without its cap in place a pod says so.
GRACE_S: Final = 30.0
#: An agent that does not work for this time is not just being replaced.
SILENT_S: Final = 300
#: Between two pods: 20 a second.
_PAUSE_S: Final = 0.05
#: Between two writes of a pod: at first, and at most, where a report changes again and again. After an hour of calm it
#: is the first one again. So no node's report takes the turns of other nodes' pods.
_FIRST_PAUSE_S: Final = 15.0
_MOST_PAUSE_S: Final = 1_800.0
_CALM_S: Final = 3_600.0


class CapsInPlace:
    """Writes the condition GPULimitsEnforced by reports of agents. It ends when cancelled.

    Only changes are written, after everything else, 20 pods a second at most. A report counts while the agent of the
    node works; after five minutes without, nothing is known.
    """

    def __init__(self, api: Api, cache: Cache, uses: NodeUses, *, clock: Clock, events: EventRecorder) -> None:
        self._api = api
        self._cache = cache
        self._uses = uses
        self._clock = clock
        self._events = events
        #: Pod UID -> what it says, or what there was nothing to take back of.
        self._said: dict[str, Told] = {}
        #: Pod UID -> since when its cap has not been in place (event loop's time).
        self._missing: dict[str, float] = {}
        #: Pod UID -> since when the agent of its node has not worked, as seen here (event loop's time).
        self._silent: dict[str, float] = {}
        #: Pod UID -> its pause after the last write, and until when that lasts (event loop's time).
        self._pauses: dict[str, tuple[float, float]] = {}

    async def run(self) -> None:
        """Tell pods until cancelled."""
        self._said.clear()
        while True:
            if not self._uses.reports:
                await self._uses.changed.wait()  # most clusters have no agents: nothing is done there
            await self._look()
            await anyio.sleep(_EVERY_S)

    async def _look(self) -> None:
        capped = self._capped()
        for known in (self._said, self._missing, self._silent, self._pauses):
            for gone in known.keys() - capped.keys():
                del known[gone]
        for uid, (node, caps) in capped.items():
            # Judged when its turn comes: many pods take a while.
            told = self._due(uid, node, caps)
            if told is not None and self._said.get(uid) != told:
                await self._tell(uid, told)
                await anyio.sleep(_PAUSE_S)

    def _due(self, uid: str, node: str, caps: Mapping[str, int]) -> Told | None:
        """What is to be said of a bound pod with caps on a node with a report; None: nothing yet."""
        record, use = self._cache.cluster.pod(uid), self._uses.use_on(node)
        if record is None or record.node != node or record.is_elsewhere or record.deleting or use is None:
            return None
        told = caps_condition(
            node, uid, caps, use, lacks=self._lacks(record), needs_agent=not self._is_capped_by_runtime(record)
        )
        return self._ripe(uid, told, use)

    def _ripe(self, uid: str, told: Told | None, use: NodeUse) -> Told | None:
        """The same once it has been so for long enough, and the pod was not just told something else."""
        if told is None or told.reason != NOT_IN_PLACE:
            self._missing.pop(uid, None)
        elif anyio.current_time() - self._missing.setdefault(uid, anyio.current_time()) < GRACE_S:
            return None
        if use.state is not State.STALE:
            self._silent.pop(uid, None)
            return told if self._may_write(uid) else None
        # An agent's pod that was just deleted or made does not say since when: what was seen here counts.
        seen_s = anyio.current_time() - self._silent.setdefault(uid, anyio.current_time())
        since_ns = parse_ns(use.since)
        if told is None or (told.may_be_first and seen_s < GRACE_S):
            return None  # what the node does not enforce is said before that (enforcement.py)
        is_silent = seen_s >= SILENT_S or (
            since_ns is not None and self._clock.now_ns() - since_ns >= SILENT_S * SECOND_NS
        )
        return told if is_silent and self._may_write(uid) else None

    def _capped(self) -> dict[str, tuple[str, dict[str, int]]]:
        """Pod UID -> its node, and its caps in MiB by device, as books have them."""
        found: dict[str, tuple[str, dict[str, int]]] = {}
        for held in self._cache.reservations.values():
            if held.book is None or not held.uuid or held.node not in self._uses.reports:
                continue
            for uid, entry in held.book.entries.items():
                if entry.cap_mib or entry.cap_nano:
                    found.setdefault(uid, (held.node, {}))[1][held.uuid] = entry.cap_mib or _mib(held, entry.cap_nano)
        return found

    def _lacks(self, record: PodRecord) -> str:
        """What the pod wishes beside a memory cap and its node can't do, as its administrator says."""
        node = self._cache.cluster.node(record.node)
        if node is None:
            return ""
        words = unenforced(record.cls, node)
        others = [word for word in words if word not in {MEMORY_CAP, DRIVER_CAP}]
        return unenforced_text(record.cls.request, record.cls.wishes, others) if others else ""

    def _is_capped_by_runtime(self, record: PodRecord) -> bool:
        """Whether the node's runtime hook caps the pod, as its administrator says."""
        node = self._cache.cluster.node(record.node)
        return node is not None and record.cls.driver_caps and DRIVER_CAP in node.enforces

    async def _tell(self, uid: str, told: Told) -> None:
        record = self._cache.cluster.pod(uid)
        if record is None:
            return
        try:
            pod = await binding.read(self._api, Identity(record.namespace, record.name, uid))
            if pod is not None and pod.spec.node_name == record.node and _differs(pod, told):
                self._cache.note_pod(await self._patch(pod, told))
                self._pause(uid)
                self._note(pod, told)
        except NotFound:
            pass
        except ApiError as error:
            _log.debug("pod %s was not told whether its caps are in place: %s", uid, error)
            return
        self._said[uid] = told

    def _may_write(self, uid: str) -> bool:
        return uid not in self._pauses or anyio.current_time() >= self._pauses[uid][1]

    def _pause(self, uid: str) -> None:
        """Begin the pause after a write, twice as long as the one before."""
        now_s = anyio.current_time()
        last_s, until_s = self._pauses.get(uid, (0.0, 0.0))
        is_first = not last_s or now_s >= until_s + _CALM_S
        pause_s = _FIRST_PAUSE_S if is_first else min(2 * last_s, _MOST_PAUSE_S)
        self._pauses[uid] = pause_s, now_s + pause_s

    def _note(self, pod: Pod, told: Told) -> None:
        if told.reason != NOT_IN_PLACE:
            return
        about = ObjectReference(
            api_version="v1", kind="Pod", namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid
        )
        self._events.record(
            about, reason=names.REASON_LIMITS_NOT_IN_PLACE, action="Enforcing", note=told.message, type=WARNING
        )

    async def _patch(self, pod: Pod, told: Told) -> Pod:
        others = [each for each in pod.status.conditions or [] if each.type != names.CONDITION_LIMITS_ENFORCED]
        before = _condition(pod)
        is_same_status = before is not None and before.status == told.status
        since = before.last_transition_time if before is not None and is_same_status else None
        condition: dict[str, Any] = {
            "type": names.CONDITION_LIMITS_ENFORCED,
            "status": told.status,
            "reason": told.reason,
            "message": told.message,
            "lastTransitionTime": since or rfc3339(self._clock.now_ns()),
        }
        meta = pod.metadata
        return await self._api.patch(
            PODS,
            meta.name,
            {"status": {"conditions": [*msgspec.to_builtins(others), condition]}},
            namespace=meta.namespace,
            subresource="status",
            uid=meta.uid,
            resource_version=meta.resource_version,
        )


def _mib(held: Reservation, cap_nano: int) -> int:
    return mib_of_fraction(cap_nano, held.mem_mib) if held.mem_mib else 0


def _condition(pod: Pod) -> Condition | None:
    return next((c for c in pod.status.conditions or () if c.type == names.CONDITION_LIMITS_ENFORCED), None)


def _differs(pod: Pod, told: Told) -> bool:
    """Whether the pod is to be written. A correction is of what a report said, and of nothing else."""
    before = _condition(pod)
    if told.is_correction and before is None:
        return told.may_be_first
    if told.is_correction and before is not None and before.reason not in BY_REPORT:
        return False
    return before is None or (before.status, before.reason, before.message) != (told.status, told.reason, told.message)
