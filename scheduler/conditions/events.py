"""Events that the leader tells once: how a bound pod's words were understood, and ResourceClaims that share a device.

Words: what the origin of a form would have weakened, and what was given in the place of what was asked (rule X6 of the
translation table, docs/reference/dialects.md). Claims: the scheduler gives back what it allocated later itself, if the
pod still waits (docs/design/claims.md). All else is for people: another scheduler allocates from the same pools.
"""

from __future__ import annotations

import anyio

from gpu.messages import note_text, taken_text
from gpu.translation import LOSSES, Note, NoteCode
from kube.events import EventRecorder
from scheduler.core.model.devices import ResourceClaimRecord
from scheduler.core.model.records import PodRecord
from scheduler.watch.cache import Cache
from wire import names
from wire.core import ObjectReference
from wire.events import NORMAL, WARNING


class Remarking:
    """Records an event on pods that were bound, while it runs."""

    def __init__(self, cache: Cache, events: EventRecorder) -> None:
        self._events = events
        self._is_leading = False
        cache.on_bound = self._bound

    async def run(self) -> None:
        """Tell pods until cancelled."""
        self._is_leading = True
        try:
            await anyio.sleep_forever()
        finally:
            self._is_leading = False

    def _bound(self, pod: PodRecord, alternative: int) -> None:
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
    """Looked at after each decision, which comes after each change of a claim."""

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
