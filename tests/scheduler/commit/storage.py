"""Claims that wait for their first consumer, and volumes for them; the simulator's world binds them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kube.client.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from simulator.controllers.kube_controllers import ClaimBinding
from simulator.world import World
from tests.scheduler.stage import TEAM
from wire import names
from wire.storage import PersistentVolumeClaim

WAITS = "WaitForFirstConsumer"
FAST, SLOW = "fast", "slow"


@asynccontextmanager
async def storage(world: World) -> AsyncIterator[ClaimBinding]:
    """Classes that wait for the first consumer: ``fast`` provisions, ``slow`` does not. And what binds claims.

    Each node is a zone of its own, so a volume that is made for it is used there only.
    """
    made = world.claims
    for node in world.nodes.kubelets:
        await made.api.patch(NODES, node, {"metadata": {"labels": {names.ZONE_LABEL: node}}})
    for name, provisioner in ((FAST, "disk.csi.example"), (SLOW, names.NO_PROVISIONER)):
        await made.api.create(
            STORAGE_CLASSES, {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": WAITS}
        )
    yield made


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


async def create_volume(made: ClaimBinding, name: str, **more: Any) -> None:
    """Create a volume that any claim may have."""
    await made.api.create(PERSISTENT_VOLUMES, volume(name, **more))
    await made.api.patch(PERSISTENT_VOLUMES, name, {"status": {"phase": "Available"}}, subresource="status")


async def create_claim(
    made: ClaimBinding, name: str, *, of: str = FAST, size: str = "1Gi", mode: str = "ReadWriteOnce"
) -> None:
    """Create a claim that waits for its first consumer."""
    await made.api.create(
        PERSISTENT_VOLUME_CLAIMS,
        {
            "metadata": {"name": name},
            "spec": {"accessModes": [mode], "storageClassName": of, "resources": {"requests": {"storage": size}}},
        },
        namespace=TEAM,
    )


async def claim_of(made: ClaimBinding, name: str) -> PersistentVolumeClaim:
    """A claim as the API server has it."""
    return await made.api.get(PERSISTENT_VOLUME_CLAIMS, name, namespace=TEAM)


def mounting(wanted: dict[str, Any], *claims: str) -> dict[str, Any]:
    """The same pod, with these claims mounted."""
    wanted["spec"]["volumes"] = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}} for number, claim in enumerate(claims)
    ]
    return wanted
