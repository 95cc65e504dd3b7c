"""Tells ResourceClaims that have a device which another one has, too: one event for each pair, by the leader.

The scheduler gives back what it allocated later itself, if the pod still waits (docs/design/claims.md). All else is for
people: another scheduler allocates from the same pools.
"""

from __future__ import annotations

from kube.events import EventRecorder
from scheduler.core.model.devices import ResourceClaimRecord
from scheduler.watch.cache import Cache
from wire import names
from wire.core import ObjectReference
from wire.events import WARNING


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
