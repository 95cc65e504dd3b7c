"""What another version has written onto our objects stays there: each write is a patch of our own keys."""

from __future__ import annotations

import pytest

from gpu import bind_request
from gpu.bind_request import Handover, PlannedDevice
from kube.client.resources import BIND_REQUESTS, PODS
from tests.binder.cluster import BINDER, HALF, RESERVATIONS, TEAM, cluster
from tests.conftest import AnyioBackend

LATER = "moorage.dev/of-a-later-version"


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def test_keys_of_a_later_version_stay_where_they_are_and_nothing_is_written_back_whole() -> None:
    async with cluster() as it:
        await it.bound("p")
        name = (await it.reservation()).metadata.name
        said = {"metadata": {"annotations": {LATER: "said"}}}
        for written, namespace in ((name, RESERVATIONS), ("p", TEAM)):
            await it.api.patch(PODS, written, said, namespace=namespace)
        await it.pod("q")
        waiting = await it.api.patch(PODS, "q", said, namespace=TEAM)
        await it.hand_over(waiting, "g")
        await it.until(it.is_bound, "q")
        assert await it.tenants() == {"p", "q"}
        for pod in (await it.reservation(), await it.get("p"), await it.get("q")):
            assert (pod.metadata.annotations or {})[LATER] == "said"
        assert not any(write.startswith("update") for write in it.writes(BINDER))


async def test_an_order_of_a_later_version_waits_for_a_binder_that_understands_it() -> None:
    async with cluster() as it:
        pod = await it.pod("p")
        handed = Handover(pod.metadata.resource_version, (PlannedDevice("g", HALF),))
        text = bind_request.render(handed)
        later = text.replace('"nano":', '"ofALaterVersion":1,"nano":')
        assert later != text
        body = {
            "metadata": {
                "name": "p",
                "annotations": {"moorage.dev/handover": later},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod.metadata.uid}],
            },
            "spec": {"podName": "p", "selectedNode": "node-1", "selectedGPUGroups": ["g"]},
        }
        await it.api.create(BIND_REQUESTS, body, namespace=TEAM)
        await it.bound("q")
        assert not await it.is_bound("p")
        assert await it.requests() == ["p"]
        assert await it.tenants() == {"q"}
