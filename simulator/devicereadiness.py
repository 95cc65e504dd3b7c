"""A DRA driver that gets devices ready after they were allocated, and reports that by conditions (KEP-5007).

Until a given time some devices fail, and of some it never reports anything.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import RESOURCE_CLAIMS
from wire.resource import DeviceRequestAllocationResult, ResourceClaim

#: As whom the API server knows it.
USER: Final = "dra-driver"
_LOOK_S: Final = 1.0


@dataclass(slots=True)
class DeviceReadiness:
    """``takes_s``: until a device is ready, at most. ``until_s`` (event loop's time): afterwards all get ready.

    ``fails_per_mille``, ``silent_per_mille``: of allocations before that time.
    """

    api: Api
    rng: random.Random
    takes_s: float
    fails_per_mille: int = 0
    silent_per_mille: int = 0
    until_s: float = 0.0
    #: Claim (UID) and device -> when it reports, and whether the device has failed then.
    _due: dict[tuple[str, ...], tuple[float, bool]] = field(default_factory=dict)

    async def run(self) -> None:
        """Report until cancelled. A write that fails is made again."""
        while True:
            await anyio.sleep(_LOOK_S)
            try:
                for claim in (await self.api.list(RESOURCE_CLAIMS)).items:
                    await self._look_at(claim)
            except errors.ApiError:
                continue

    async def _look_at(self, claim: ResourceClaim) -> None:
        waiting = list(_waiting(claim))
        known = {key for key in self._due if key[0] == claim.metadata.uid}
        for key in known - {_key(claim, each) for each in waiting}:
            del self._due[key]
        now_s = anyio.current_time()
        told = [each for each in waiting if self._report(_key(claim, each))[0] <= now_s]
        said = {(each.driver, each.pool, each.device): msgspec.to_builtins(each) for each in claim.status.devices or ()}
        before = dict(said)
        for each in told:
            has_failed = self._due[_key(claim, each)][1]
            types = each.binding_failure_conditions if has_failed else each.binding_conditions
            said[each.driver, each.pool, each.device] = _status(each, types or [])
        if said != before:
            meta = claim.metadata
            at: dict[str, Any] = {"uid": meta.uid, "resource_version": meta.resource_version}
            status = {"status": {"devices": list(said.values())}}
            await self.api.patch(
                RESOURCE_CLAIMS, meta.name, status, namespace=meta.namespace, subresource="status", **at
            )

    def _report(self, key: tuple[str, ...]) -> tuple[float, bool]:
        """When a device is reported, and whether it has failed."""
        if key not in self._due:
            now_s, lot = anyio.current_time(), self.rng.randrange(1000)
            is_late = now_s < self.until_s
            is_silent = is_late and lot < self.silent_per_mille
            has_failed = is_late and not is_silent and lot < self.silent_per_mille + self.fails_per_mille
            at_s = self.until_s if is_silent else now_s + self.rng.uniform(0.0, self.takes_s)
            self._due[key] = at_s, has_failed
        return self._due[key]


def _waiting(claim: ResourceClaim) -> Iterator[DeviceRequestAllocationResult]:
    """Devices of a claim that have to get ready and were not reported yet."""
    allocation = claim.status.allocation
    said = {(each.driver, each.pool, each.device) for each in claim.status.devices or ()}
    for each in (allocation.devices.results if allocation is not None else None) or ():
        if each.binding_conditions and (each.driver, each.pool, each.device) not in said:
            yield each


def _key(claim: ResourceClaim, device: DeviceRequestAllocationResult) -> tuple[str, ...]:
    return claim.metadata.uid, device.driver, device.pool, device.device


def _status(device: DeviceRequestAllocationResult, types: list[str]) -> dict[str, Any]:
    at = {"reason": "Reported", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [{"type": each, "status": "True", **at} for each in types]
    share = {"shareID": device.share_id} if device.share_id else {}
    return {"driver": device.driver, "pool": device.pool, "device": device.device, **share, "conditions": conditions}
