"""Autoscaling on the real control plane: a share that fits nowhere asks for a node, and runs when it has come."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.e2e.cluster import PATIENCE_S, Pod, Scene, eventually, share
from tests.e2e.conftest import SetScene
from tests.e2e.shown import total
from tools.cluster.deployment import SCHEDULER, Deployment
from wire import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

GPUS = "moorage_pool_nano_gpus"
NANO = 10**9


@pytest.fixture
async def autoscaling(moorage: Deployment) -> AsyncIterator[Deployment]:
    """A scheduler that asks autoscalers for nodes; afterwards the usual one again."""
    for arguments in (["--cluster-autoscaling", "--scaling-pod-image", "none/there"], []):
        moorage.stop(SCHEDULER)
        moorage.start(SCHEDULER, *arguments)
        if arguments:
            yield moorage


async def scaling_pods(scene: Scene) -> dict[str, Pod]:
    """Scaling pods for the scene's pods, by name."""
    selector = f"app=scaling-pod,shared-gpu-pod-namespace={scene.namespace}"
    listed = await scene.core.list_namespaced_pod(
        names.SCALE_ADJUST_NAMESPACE, label_selector=selector, _preload_content=False
    )
    return {item["metadata"]["name"]: item for item in json.loads(await listed.read())["items"]}


async def until_there_are(scene: Scene, *wanted: str) -> dict[str, Pod]:
    """Wait until the scene's scaling pods are for exactly these pods, and are told to autoscalers."""
    expected = {f"{scene.namespace}-{name}" for name in wanted}

    async def there() -> dict[str, Pod] | None:
        found = await scaling_pods(scene)
        told = {name for name, made in found.items() if made["status"].get("conditions")}
        return found if found.keys() == told == expected else None

    return await eventually(there, f"scaling pods for {wanted}", within_s=PATIENCE_S)


async def test_a_share_that_fits_nowhere_asks_for_a_node_and_runs_there_when_it_has_come(
    set_scene: SetScene, autoscaling: Deployment
) -> None:
    async with set_scene(["2x1x80GiB"]) as scene:
        here, coming = sorted(scene.nodes.kubelets)
        await scene.core.delete_node(coming)

        async def is_alone() -> bool | None:
            return await total(autoscaling, SCHEDULER, GPUS) == NANO or None

        # Nodes and pods are watched apart: a pod must not be placed on a node whose end is still to be heard of.
        await eventually(is_alone, "the scheduler to know of one node", within_s=PATIENCE_S)
        await scene.create(share("first", "0.7"))
        await scene.running(1)
        await scene.create(share("waits", "0.7"), share("gives-up", "0.9"))

        found = await until_there_are(scene, "waits", "gives-up")
        made = found[f"{scene.namespace}-waits"]
        assert made["metadata"]["labels"]["shared-gpu-pod-name"] == "waits"
        assert made["spec"]["nodeSelector"] == {"scene": scene.namespace}
        assert made["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
        [condition] = made["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            *("PodScheduled", "False"),
            "Unschedulable",
        )
        assert made["status"]["phase"] == "Pending"

        await scene.create(share("fits", "0.2"))
        assert (await scene.running(2))["fits"]["spec"]["nodeName"] == here
        await scene.delete("gives-up")
        await until_there_are(scene, "waits")

        await scene.nodes.register(coming)
        assert (await scene.running(3))["waits"]["spec"]["nodeName"] == coming
        await until_there_are(scene)
        assert scene.refusals() == []
        autoscaling.check()
