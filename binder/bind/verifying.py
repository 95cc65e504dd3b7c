"""Whether a device that a reservation pod just named is really nobody else's (docs/design/protocol.md, step 2).

One quorum LIST of all pods of the node that the device belongs to. It shows reservation pods and tenants at one
resourceVersion, as two LISTs in the protocol's order would if nothing happened between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio

from binder.core.reservation_pod import ReservationTemplate
from gpu import reservation as reservations
from gpu.reservation import Reservation
from kube.client.api import Api, field_is
from kube.client.patience import until_answered
from kube.client.resources import PODS
from sharing import claims
from sharing.outcome import Disputed, Failed, Verified
from sharing.pods import PodView
from sharing.pods import view as read_pod

Answer = Verified | Disputed | Failed
#: Reservation UID and device UUID.
Key = tuple[str, str]


@dataclass(slots=True, eq=False)
class _Look:
    """One look at a node, for all devices that were wanted before it began."""

    wanted: dict[Key, Reservation] = field(default_factory=dict)
    answers: dict[Key, Answer] = field(default_factory=dict)
    ended: anyio.Event = field(default_factory=anyio.Event)


class Verifier:
    """Verifies devices: one look at a node at a time, a limited number of nodes side by side.

    What is wanted while a look is under way is answered by the next: the busier a node, the more devices a look
    answers for.
    """

    def __init__(self, api: Api, template: ReservationTemplate, *, at_once: int) -> None:
        self._api = api
        self._template = template
        self._limiter = anyio.CapacityLimiter(at_once)
        #: By node: the look that is under way, and the one that is next.
        self._running: dict[str, _Look] = {}
        self._next: dict[str, _Look] = {}

    async def verify(self, held: Reservation) -> Answer:
        """Look for other claims on the device of ``held``."""
        key = (held.uid, held.uuid)
        while True:
            look = self._next.get(held.node)
            if look is not None:
                look.wanted[key] = held
                await look.ended.wait()
            else:
                look = self._next[held.node] = _Look({key: held})
                await self._lead(held.node, look)
            if (answer := look.answers.get(key)) is not None:
                return answer

    async def _lead(self, node: str, look: _Look) -> None:
        """Have a look when the one before has ended. A caller that waits for one that was given up begins another."""
        try:
            while (before := self._running.get(node)) is not None:
                await before.ended.wait()
            async with self._limiter:
                self._running[node] = self._next.pop(node)
                look.answers = await until_answered(partial(self._list, node, look.wanted))
        finally:
            for looks in (self._running, self._next):
                if looks.get(node) is look:
                    del looks[node]
            look.ended.set()

    async def _list(self, node: str, wanted: Mapping[Key, Reservation]) -> dict[Key, Answer]:
        namespace = self._template.namespace
        listed = await self._api.list(PODS, field_selector=field_is("spec.nodeName", node))
        there = [
            reservations.read(pod)
            for pod in listed.items
            if reservations.is_reservation(pod, namespace, app=self._template.app)
        ]
        tenants = [read_pod(pod) for pod in listed.items if pod.metadata.namespace != namespace]
        return {key: _judged(held, there, tenants) for key, held in wanted.items()}


def _judged(held: Reservation, there: Sequence[Reservation], tenants: Sequence[PodView]) -> Answer:
    now = claims.held_alone(held, there)
    return claims.used_by_tenants(now, tenants) if isinstance(now, Reservation) else now
