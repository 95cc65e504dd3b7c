"""A PV controller and a provisioner, as far as claims that wait for their first consumer need them, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from kube.client.api import Api
from kube.client.errors import Conflict
from kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from simulator.world import World
from tests.scheduler import stage
from tests.scheduler.stage import TEAM
from wire import names
from wire.storage import PersistentVolume, PersistentVolumeClaim

WAITS = "WaitForFirstConsumer"
FAST, SLOW = "fast", "slow"
_PERIOD_S = 0.5


class Controllers:
    """``fails``: whether the provisioner fails for a claim (name) on a node; ``takes_s``: to make a volume."""

    def __init__(self, world: World) -> None:
        self.api: Api = stage.api_of(world, "storage-controllers")
        self.fails: Callable[[str, str], bool] = lambda _, __: False
        self.takes_s = 1.0
        self.is_off = False
        self._since: dict[str, float] = {}

    async def run(self) -> None:
        """Bind what can be bound, until cancelled."""
        while True:
            await anyio.sleep(_PERIOD_S)
            if not self.is_off:
                await self._look()

    async def _look(self) -> None:
        volumes = {each.metadata.name: each for each in (await self.api.list(PERSISTENT_VOLUMES)).items}
        for claim in (await self.api.list(PERSISTENT_VOLUME_CLAIMS, namespace=TEAM)).items:
            if claim.spec.volume_name:
                continue
            own = next((v for v in volumes.values() if _is_for(v, claim)), None)
            try:
                if own is not None:
                    await self._bind(claim, own)
                elif node := (claim.metadata.annotations or {}).get(names.SELECTED_NODE):
                    await self._provision(claim, node)
            except Conflict:
                continue

    async def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        name = claim.metadata.name
        await self.api.patch(
            PERSISTENT_VOLUMES, volume.metadata.name, {"status": {"phase": "Bound"}}, subresource="status"
        )
        spec = {"spec": {"volumeName": volume.metadata.name}}
        annotations = {"metadata": {"annotations": {names.BIND_COMPLETED: "yes"}}}
        await self.api.patch(PERSISTENT_VOLUME_CLAIMS, name, {**spec, **annotations}, namespace=TEAM)

    async def _provision(self, claim: PersistentVolumeClaim, node: str) -> None:
        name = claim.metadata.name
        since = self._since.setdefault(f"{name}/{node}", anyio.current_time())
        if anyio.current_time() < since + self.takes_s:
            return
        if self.fails(name, node):
            taken_back = {"metadata": {"annotations": {names.SELECTED_NODE: None}}}
            rv = claim.metadata.resource_version
            await self.api.patch(PERSISTENT_VOLUME_CLAIMS, name, taken_back, namespace=TEAM, resource_version=rv)
            return
        ref = {"namespace": TEAM, "name": name, "uid": claim.metadata.uid}
        await self.api.create(PERSISTENT_VOLUMES, volume(f"made-{name}", of=FAST, node=node, claimRef=ref))


def _is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    ref = volume.spec.claim_ref
    return ref is not None and ref.name == claim.metadata.name and ref.uid == claim.metadata.uid


@asynccontextmanager
async def storage(world: World) -> AsyncIterator[Controllers]:
    """Classes that wait for the first consumer: ``fast`` provisions, ``slow`` does not. And who binds claims."""
    made = Controllers(world)
    for name, provisioner in ((FAST, "disk.csi.example"), (SLOW, names.NO_PROVISIONER)):
        await made.api.create(
            STORAGE_CLASSES,
            {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": WAITS},
        )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.run)
        yield made
        tasks.cancel_scope.cancel()


def volume(name: str, *, of: str = SLOW, node: str = "", size: str = "1Gi", **more: Any) -> dict[str, Any]:
    """A volume that a node alone reaches, or all."""
    term = {"matchExpressions": [{"key": names.HOSTNAME_LABEL, "operator": "In", "values": [node]}]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}} if node else {}
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": of,
            **affinity,
            **more,
        },
    }


async def create_volume(made: Controllers, name: str, **more: Any) -> None:
    """Create a volume that any claim may have."""
    await made.api.create(PERSISTENT_VOLUMES, volume(name, **more))
    await made.api.patch(PERSISTENT_VOLUMES, name, {"status": {"phase": "Available"}}, subresource="status")


async def create_claim(made: Controllers, name: str, *, of: str = FAST, size: str = "1Gi") -> None:
    """Create a claim that waits for its first consumer."""
    await made.api.create(
        PERSISTENT_VOLUME_CLAIMS,
        {
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": of,
                "resources": {"requests": {"storage": size}},
            },
        },
        namespace=TEAM,
    )


async def claim_of(made: Controllers, name: str) -> PersistentVolumeClaim:
    """A claim as the API server has it."""
    return await made.api.get(PERSISTENT_VOLUME_CLAIMS, name, namespace=TEAM)


def mounting(wanted: dict[str, Any], *claims: str) -> dict[str, Any]:
    """The same pod, with these claims mounted."""
    wanted["spec"]["volumes"] = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}} for number, claim in enumerate(claims)
    ]
    return wanted
