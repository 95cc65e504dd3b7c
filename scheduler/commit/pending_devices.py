"""The condition of a pod whose devices are allocated and have to get ready: why it is not bound yet.

The scheduler writes it after it has reserved the claims, at the version that they are reserved for. A pod is bound only
at that version (docs/design/claims.md, rule 5), so the write's own version takes its place. It is written once for a
wait, and says only what holds until the end of it. An event names the conditions that are not true.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import anyio
import msgspec

from kube import binding
from kube.binding import Identity
from kube.client.api import Api
from kube.client.errors import Conflict
from kube.client.resources import PODS
from scheduler.commit.until_written import NotWritten, until_written
from scheduler.core.model.devices import ClaimChoice
from scheduler.core.model.plan import Placement
from scheduler.core.nodes.resource_claims import READY_WITHIN_S
from scheduler.watch.cache import Cache, Waiting
from wire import names
from wire.core import Condition, Pod
from wire.rfc3339 import rfc3339

#: Devices have this long to be ready for their pod once they are allocated, as with kube-scheduler.
BINDING_S: Final = float(READY_WITHIN_S)
#: The most claims that the message names, and conditions that an event does.
_NAMED: Final = 3
_log: Final = logging.getLogger(__name__)

#: Claims that are reserved, each for a pod.
Reserved: TypeAlias = Sequence[tuple[Placement, ClaimChoice]]
#: A pod that has changed since, one of its claims, and why that ends the attempt.
Changed: TypeAlias = tuple[Placement, ClaimChoice, str]


class PendingDevices:
    """Has pods say that their devices are not ready. ``tell`` records an event. ``limiter``: of requests at a time."""

    def __init__(
        self, api: Api, cache: Cache, *, limiter: anyio.CapacityLimiter, tell: Callable[[Placement, str], None]
    ) -> None:
        self._api = api
        self._cache = cache
        self._limiter = limiter
        self._tell = tell

    async def say(
        self, reserved: Reserved, versions: dict[str, str], *, is_wanted: Callable[[Placement], bool]
    ) -> Changed | None:
        """Write the condition of each pod that waits; return the first pod that has changed since the decision.

        ``versions``: of pods (UIDs) whose status was written since the decision; takes those of these writes.
        """
        changed: list[Changed] = []

        async def write(placement: Placement, choices: Sequence[ClaimChoice]) -> None:
            try:
                await self._write(placement, sorted(choice.claim for choice in choices), versions, is_wanted)
            except NotWritten as error:
                if error.is_overtaken:
                    changed.append((placement, choices[0], str(error)))
                else:
                    _log.warning("the condition of pod %s/%s: %s", placement.namespace, placement.name, error)

        async with anyio.create_task_group() as tasks:
            for placement, choices in self._waiting(reserved):
                tasks.start_soon(write, placement, choices)
        return changed[0] if changed else None

    def _waiting(self, reserved: Reserved) -> list[tuple[Placement, list[ClaimChoice]]]:
        """Pods with those of their claims of which devices are not ready. An event names what these lack."""
        found: dict[str, tuple[Placement, list[ClaimChoice]]] = {}
        for placement, choice in reserved:
            claim = self._cache.cluster.claims.claims.get((placement.namespace, choice.claim))
            if claim is not None and claim.pending:
                named = ", ".join(claim.pending[:_NAMED])
                self._tell(placement, f"waiting on node {placement.node} for {named} (ResourceClaim {choice.claim})")
                found.setdefault(placement.pod_uid, (placement, []))[1].append(choice)
        return [*found.values()]

    async def _write(
        self,
        placement: Placement,
        claims: Sequence[str],
        versions: dict[str, str],
        is_wanted: Callable[[Placement], bool],
    ) -> None:
        uid = placement.pod_uid
        seen = self._cache.waiting.get(uid)
        if seen is None or seen.rv != versions.get(uid, placement.rv):
            return  # it has changed, so it will not be bound by these reservations, and the attempt ends
        pod = await _written(
            self._api, placement, seen, message(placement, claims), limiter=self._limiter, is_wanted=is_wanted
        )
        if pod is not None:
            versions[uid] = pod.metadata.resource_version
            self._cache.note_pod(pod)


def message(placement: Placement, claims: Sequence[str]) -> str:
    """Say what a pod waits for. ``claims``: its ResourceClaims with devices that are not ready."""
    more = f" and {len(claims) - _NAMED} more" if len(claims) > _NAMED else ""
    of = "ResourceClaim" if len(claims) == 1 else "ResourceClaims"
    return (
        f"Waiting for devices of {of} {', '.join(claims[:_NAMED])}{more} to get ready on node {placement.node}; "
        f"if they don't within {BINDING_S / 60:.0f} minutes, the pod is tried again"
    )


async def _written(
    api: Api,
    placement: Placement,
    waiting: Waiting,
    text: str,
    *,
    limiter: anyio.CapacityLimiter,
    is_wanted: Callable[[Placement], bool],
) -> Pod | None:
    """Write the condition at the version of ``waiting``; return the pod. None: nobody wants it, or it says so already.

    Raises NotWritten, also if the pod is not at that version any more.
    """
    if any(each.type == names.CONDITION_POD_SCHEDULED and _says(each, text) for each in waiting.conditions):
        return None
    others = [each for each in waiting.conditions if each.type != names.CONDITION_POD_SCHEDULED]
    condition = {
        "type": names.CONDITION_POD_SCHEDULED,
        "status": "False",
        "reason": names.REASON_DEVICES_PENDING,
        "message": text,
        "lastTransitionTime": rfc3339(api.clock.now_ns()),
    }
    status = {"conditions": [*msgspec.to_builtins(others), condition]}

    async def patch() -> Pod:
        try:
            return await api.patch(
                PODS,
                placement.name,
                {"status": status},
                namespace=placement.namespace,
                subresource="status",
                uid=placement.pod_uid,
                resource_version=waiting.rv,
            )
        except Conflict:
            current = await binding.read(api, Identity(placement.namespace, placement.name, placement.pod_uid))
            if current is not None and current.metadata.resource_version == waiting.rv:
                raise
            because = "PodChanged: it has changed since its ResourceClaims were reserved"
            raise NotWritten(because, is_overtaken=True) from None

    return await until_written(
        patch,
        named=f"status of pod {placement.name}",
        changed="PodChanged",
        limiter=limiter,
        is_wanted=partial(is_wanted, placement),
    )


def _says(condition: Condition, text: str) -> bool:
    said = condition.status, condition.reason, condition.message
    return said == ("False", names.REASON_DEVICES_PENDING, text)
