"""Claims get the volumes that a scheduler asks for (with the scheduler: tests/scheduler/commit/test_preparing.py)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kube.client.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from simulator.controllers import claims
from simulator.world import World
from tests.conftest import AnyioBackend
from tests.simulator.test_world import world
from wire import names


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def _claim(made: World, node: str) -> None:
    """Create a claim for which a scheduler has selected a node."""
    meta = {"name": "data", "annotations": {names.SELECTED_NODE: node}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "5Gi"}}}
    await made.claims.api.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": meta, "spec": spec}, namespace="team")


async def test_without_claims_it_asks_the_api_server_for_nothing() -> None:
    async with world("1x1x80GiB") as made:
        await anyio.sleep(60)
        assert not [entry for entry in made.server.audit if entry.user == claims.VOLUME_CONTROLLER]


@pytest.mark.parametrize("zone", ["", "a"])
async def test_a_volume_is_made_in_the_zone_of_the_selected_node_or_for_all_nodes(zone: str) -> None:
    async with world("1x1x80GiB") as made:
        if zone:
            await made.claims.api.patch(NODES, "node-0", {"metadata": {"labels": {names.ZONE_LABEL: zone}}})
        await _claim(made, "node-0")
        await anyio.sleep(10)
        claim = await made.claims.api.get(PERSISTENT_VOLUME_CLAIMS, "data", namespace="team")
        volume = await made.claims.api.get(PERSISTENT_VOLUMES, claim.spec.volume_name)
        assert (claim.metadata.annotations or {})[names.BIND_COMPLETED] == "yes"
        assert (volume.status.phase, volume.spec.capacity) == ("Bound", {"storage": "5Gi"})
        affinity = volume.spec.node_affinity
        assert [zone] * bool(zone) == ([] if affinity is None else _zones(affinity.required))


def _zones(required: Any) -> list[str]:
    return [value for term in required.node_selector_terms for each in term.match_expressions for value in each.values]


async def test_a_node_that_is_gone_is_taken_off_the_claim() -> None:
    async with world("1x1x80GiB") as made:
        await _claim(made, "gone")
        await anyio.sleep(10)
        claim = await made.claims.api.get(PERSISTENT_VOLUME_CLAIMS, "data", namespace="team")
        assert names.SELECTED_NODE not in (claim.metadata.annotations or {})
        assert claim.spec.volume_name == ""
