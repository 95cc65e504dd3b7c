"""Every form of asking for a share runs, sees exactly its devices, and looks on the wire as kai-contract 1.16 says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.cluster import Pod, memory, pod, share
from tests.e2e.conftest import SetScene
from wire import names

pytestmark = pytest.mark.cluster


def _named_container() -> Pod:
    wanted = pod("named", annotations={names.GPU_FRACTION: "0.5", names.GPU_FRACTION_CONTAINER_NAME: "worker"})
    wanted["spec"]["containers"].append({"name": "worker", "image": "cuda-app"})
    return wanted


def _init_container() -> Pod:
    wanted = pod("init", annotations={names.GPU_FRACTION: "0.5", names.GPU_FRACTION_CONTAINER_TYPE: "InitContainer"})
    wanted["spec"]["initContainers"] = [{"name": "load", "image": "cuda-app"}]
    return wanted


def _two_devices() -> Pod:
    return pod("two", annotations={names.GPU_FRACTION: "0.5", names.GPU_FRACTION_NUM_DEVICES: "2"})


FORMS = [
    pytest.param(share("fraction", "0.5"), "main", 1, "0.50", id="fraction"),
    pytest.param(memory("memory", 2000), "main", 1, "0.03", id="memory"),
    pytest.param(_named_container(), "worker", 1, "0.50", id="named-container"),
    pytest.param(_init_container(), "load", 1, "0.50", id="init-container"),
    pytest.param(_two_devices(), "main", 2, "0.50", id="two-devices"),
]


@pytest.mark.parametrize(("wanted", "container", "devices", "portion"), FORMS)
async def test_a_form_of_asking_runs_and_its_container_sees_exactly_its_devices(
    set_scene: SetScene, wanted: Pod, container: str, devices: int, portion: str
) -> None:
    async with set_scene(["1x4x80GiB"]) as scene:
        await scene.create(wanted)
        name = wanted["metadata"]["name"]
        found = (await scene.running(1))[name]
        seen = scene.seen(found)
        assert len(seen[container]) == devices
        assert {other: uuids for other, uuids in seen.items() if other != container and uuids} == {}
        _looks_as_contracted(found, seen[container], portion)
        reservations = await scene.reservations()
        assert {r["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX] for r in reservations} == set(seen[container])


async def test_what_a_node_reserves_of_its_gpus_is_no_tenants(set_scene: SetScene) -> None:
    """Two tenants of half a T4, of which the driver needs 3 %."""
    async with set_scene(["1x1x15GiB"]) as scene:
        change = {"metadata": {"annotations": {names.GPU_MEMORY_RESERVE: "3%"}}}
        await scene.core.patch_node(f"{scene.namespace}-0", change)
        await scene.create(memory("t-a", 7680))
        await scene.running(1)
        (held,) = await scene.reservations()
        assert held["metadata"]["annotations"][names.GPU_MEMORY_RESERVE] == "3%"
        await scene.create(memory("t-b", 7680), memory("t-c", 7219))
        await scene.running(2)
        await scene.says("t-b", "node(s) didn't have enough resources: GPU memory")
        assert (await scene.pod("t-c"))["spec"]["nodeName"]


def _looks_as_contracted(found: Pod, uuids: tuple[str, ...], portion: str) -> None:
    labels: dict[str, Any] = found["metadata"]["labels"]
    annotations = found["metadata"]["annotations"]
    assert annotations[names.RECEIVED_RESOURCE_TYPE] == "Fraction"
    assert annotations[names.GPU_PORTION_ANNOTATION] == portion
    assert found["spec"]["runtimeClassName"] == "nvidia"
    if len(uuids) == 1:
        assert labels[names.GPU_GROUP_LABEL]
    else:
        groups = {key: value for key, value in labels.items() if key.startswith(names.MULTI_GPU_GROUP_LABEL_PREFIX)}
        assert len(groups) == len(uuids)
        assert all(key == names.MULTI_GPU_GROUP_LABEL_PREFIX + value for key, value in groups.items())
        assert names.GPU_GROUP_LABEL not in labels
    scheduled = [c for c in found["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert [c["status"] for c in scheduled] == ["True"]
