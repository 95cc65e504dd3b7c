"""ResourceClaims and devices for them in a simulated world, whose controller makes and cleans claims."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kube.client.resources import DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, RESOURCE_SLICES
from simulator.controllers.kube_controllers import ClaimController
from simulator.world import World
from tests.scheduler.stage import TEAM
from wire.resource import ResourceClaim

DRIVER = "gpu.example.com"


@asynccontextmanager
async def devices(world: World, *counts: int, resource: str = "") -> AsyncIterator[ClaimController]:
    """A class for all devices, and so many of them on each node in order. ``resource``: that the class stands for."""
    made = world.resource_claims
    spec = {"extendedResourceName": resource} if resource else {}
    await made.api.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": spec})
    for node, count in zip(sorted(world.nodes.kubelets), counts, strict=True):
        if count:
            await offer(made, node, count)
    yield made


async def offer(made: ClaimController, node: str, count: int) -> None:
    """Publish a pool with devices d0, d1, ... of a node."""
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"d{number}"} for number in range(count)],
    }
    await made.api.create(RESOURCE_SLICES, {"metadata": {"name": f"{node}-gpus"}, "spec": spec})


def asks(count: int = 1, cls: str = "gpu") -> dict[str, Any]:
    """The spec of a claim for so many devices of a class."""
    exactly = {"deviceClassName": cls, "allocationMode": "ExactCount", "count": count}
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


async def create_claim(made: ClaimController, name: str, count: int = 1) -> None:
    """Create a claim that pods name."""
    await made.api.create(RESOURCE_CLAIMS, {"metadata": {"name": name}, "spec": asks(count)}, namespace=TEAM)


async def create_template(made: ClaimController, name: str, count: int = 1) -> None:
    """Create a template of claims."""
    body = {"metadata": {"name": name}, "spec": {"spec": asks(count)}}
    await made.api.create(RESOURCE_CLAIM_TEMPLATES, body, namespace=TEAM)


async def claims_of(made: ClaimController) -> dict[str, ResourceClaim]:
    """All claims of the team as the API server has them."""
    return {claim.metadata.name: claim for claim in (await made.api.list(RESOURCE_CLAIMS, namespace=TEAM)).items}


def using(wanted: dict[str, Any], *claims: str, template: str = "") -> dict[str, Any]:
    """The same pod, with these claims, or one that is made from a template."""
    entries = [{"name": f"c{number}", "resourceClaimName": claim} for number, claim in enumerate(claims)]
    if template:
        entries.append({"name": "own", "resourceClaimTemplateName": template})
    wanted["spec"]["resourceClaims"] = entries
    return wanted


def given(claim: ResourceClaim) -> list[tuple[str, str]]:
    """Pool and device of each result of a claim."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else None
    return [(each.pool, each.device) for each in results or ()]


def users(claim: ResourceClaim) -> list[str]:
    """Names of the pods that may use a claim."""
    return [each.name for each in claim.status.reserved_for or ()]
