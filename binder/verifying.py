"""Whether a device that a reservation pod just named is really nobody else's (docs/design/protocol.md, step 2).

Two quorum LISTs in this order: reservation pods, then pods. A device belongs to one node, so both are asked for that
node only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import anyio

from binder.core import claims
from binder.core.outcome import Disputed, Failed, Verified
from binder.core.pods import view as read_pod
from binder.core.reservation_pod import ReservationTemplate
from gpu import reservation as reservations
from gpu.reservation import Reservation
from kube.api import Api
from kube.patience import until_answered
from kube.resources import PODS


@dataclass(slots=True, eq=False)
class _Running:
    """A verification under way, and its answer for all who want the same."""

    ended: anyio.Event = field(default_factory=anyio.Event)
    answer: Verified | Disputed | Failed | None = None


class Verifier:
    """Verifies devices, each once for all tenants that come meanwhile, and so many side by side."""

    def __init__(self, api: Api, template: ReservationTemplate, *, at_once: int) -> None:
        self._api = api
        self._template = template
        self._limiter = anyio.CapacityLimiter(at_once)
        self._running: dict[tuple[str, str], _Running] = {}

    async def verify(self, held: Reservation) -> Verified | Disputed | Failed:
        """Look for other claims on the device of ``held``, or wait for who is looking already.

        A look that began before this tenant joined serves it too: claims are by group and device, and its own entry
        is in the book that it joined.
        """
        key = (held.uid, held.uuid)
        while (running := self._running.get(key)) is not None:
            await running.ended.wait()
            if running.answer is not None:
                return running.answer
        running = self._running[key] = _Running()
        try:
            async with self._limiter:
                running.answer = await until_answered(partial(verify, self._api, held, self._template))
            return running.answer
        finally:
            del self._running[key]
            running.ended.set()


async def verify(api: Api, held: Reservation, template: ReservationTemplate) -> Verified | Disputed | Failed:
    """Look for other claims on the device of ``held``."""
    on_node = f"spec.nodeName={held.node}"
    listed = await api.list(PODS, namespace=held.namespace, field_selector=on_node)
    there = [
        reservations.read(pod)
        for pod in listed.items
        if reservations.is_reservation(pod, held.namespace, app=template.app)
    ]
    now = claims.held_alone(held, there)
    if not isinstance(now, Reservation):
        return now
    pods = await api.list(PODS, field_selector=on_node)
    tenants = [read_pod(pod) for pod in pods.items if pod.metadata.namespace != held.namespace]
    return claims.used_by_tenants(now, tenants)
