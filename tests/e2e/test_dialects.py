"""Pods in the words of other systems, unchanged, on the real API server: what their apps and tools read is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from kubernetes_asyncio import client

from simulator.nodes import containers
from tests.e2e.cluster import Pod, pod
from tests.e2e.conftest import SetScene
from wire import core, names

pytestmark = pytest.mark.cluster

CARD_MIB = 80 * 1024
#: Values that are times: of the second, or the nanosecond, of the Binding.
TIME = "a time"

Texts = Mapping[str, str]


def asking(name: str, resource: str, amount: int, **metadata: Any) -> Pod:
    wanted = pod(name, **metadata)
    wanted["spec"]["containers"][0]["resources"] = {"limits": {resource: str(amount)}}
    return wanted


def aliyun(index: str, _uuid: str) -> tuple[Texts, Texts]:
    common = {"ALIYUN_COM_GPU_MEM_IDX": index, "ALIYUN_COM_GPU_MEM_DEV": "80", "ALIYUN_COM_GPU_MEM_POD": "5"}
    assumed = {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true", "ALIYUN_COM_GPU_MEM_ASSUME_TIME": TIME}
    return {**common, "ALIYUN_COM_GPU_MEM_CONTAINER": "5"}, {**common, **assumed}


def metagpu(index: str, uuid: str) -> tuple[Texts, Texts]:
    ids = ",".join(f"cnvrg-meta-{index}-{number}-{uuid}" for number in range(20))
    return {"CNVRG_META_GPU_DEVICES": ids, "METAGPU_MAX_MEM": str(CARD_MIB // 100 * 20)}, {}


def clearml(_index: str, _uuid: str) -> tuple[Texts, Texts]:
    return {"CLEARML_AGENT_GPU_FRACTIONS": "0.250"}, {}


def hami(_index: str, uuid: str) -> tuple[Texts, Texts]:
    text = f"{uuid},NVIDIA,3000,0:;"
    lists = {"hami.io/vgpu-devices-to-allocate": text, "hami.io/vgpu-devices-allocated": text}
    return (
        {"CUDA_DEVICE_MEMORY_LIMIT_0": "3000m", "CUDA_DEVICE_SM_LIMIT": "0"},
        {**lists, "hami.io/vgpu-node": "its node", "hami.io/vgpu-time": TIME},
    )


def volcano(_index: str, uuid: str) -> tuple[Texts, Texts]:
    text = f"{uuid},NVIDIA,2000,0:"
    lists = {"volcano.sh/vgpu-ids-new": text, "volcano.sh/devices-to-allocate": text}
    times = {"volcano.sh/vgpu-time": TIME, "volcano.sh/bind-time": TIME}
    return (
        {"CUDA_DEVICE_MEMORY_LIMIT_0": "2000m", "CUDA_DEVICE_SM_LIMIT": "0"},
        {**lists, **times, "volcano.sh/vgpu-node": "its node", "volcano.sh/bind-phase": "success"},
    )


def koordinator(index: str, _uuid: str) -> tuple[Texts, Texts]:
    resources = (
        '{"koordinator.sh/gpu-core":"10","koordinator.sh/gpu-memory":"8Gi","koordinator.sh/gpu-memory-ratio":"10"}'
    )
    text = f'{{"gpu":[{{"minor":{index},"resources":{resources}}}]}}'
    limits = {"CUDA_DEVICE_MEMORY_LIMIT": str(8 * 2**30), "CUDA_DEVICE_SM_LIMIT": "10"}
    return limits, {"scheduling.koordinator.sh/device-allocated": text}


def nvfractions(_index: str, uuid: str) -> tuple[Texts, Texts]:
    return {}, {"nvidia.com/container.main.gpus.devices": uuid}


#: Each with what its container's env and its annotations say beside KAI's and ours.
FORMS: list[tuple[Pod, Callable[[str, str], tuple[Texts, Texts]]]] = [
    (asking("aliyun", "aliyun.com/gpu-mem", 5), aliyun),
    (asking("metagpu", "cnvrg.io/metagpu", 20), metagpu),
    (pod("clearml", labels={"clearml-injector/fraction": "0.25"}), clearml),
    (asking("hami", "nvidia.com/gpumem", 3000), hami),
    (asking("volcano", "volcano.sh/vgpu-memory", 2000), volcano),
    (
        asking("koordinator", "koordinator.sh/gpu", 10, labels={"koordinator.sh/gpu-isolation-provider": "HAMi-core"}),
        koordinator,
    ),
    (pod("nvfractions", annotations={"nvidia.com/container.main.gpu-memory.request": "4Gi"}), nvfractions),
]


async def test_apps_and_tools_of_each_system_read_what_their_own_scheduler_writes(set_scene: SetScene) -> None:
    async with set_scene(["1x4x80GiB"]) as scene:
        await scene.create(*(wanted for wanted, _ in FORMS))
        running = await scene.running(len(FORMS))
        indices = {
            held["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX]: held["metadata"]["annotations"][
                names.DEVICE_INDEX
            ]
            for held in await scene.reservations()
        }
        for wanted, expected in FORMS:
            found = running[wanted["metadata"]["name"]]
            [uuid] = scene.seen(found)["main"]
            env, annotations = expected(indices[uuid], uuid)
            assert _variables(found) == env
            assert _beside_ours(found) == {**wanted["metadata"]["annotations"], **annotations}


def _variables(found: Pod) -> dict[str, str]:
    """What the container's env is beside KAI's three variables, as kubelet makes it."""
    read = msgspec.convert(found, core.Pod)
    made = containers.resolve(read, read.spec.containers[0], sources={}, assigned=(), image={})
    assert isinstance(made, dict)
    kais = {names.ENV_VISIBLE_DEVICES, names.ENV_NUM_OF_GPUS, names.ENV_GPU_PORTION}
    return {name: value for name, value in made.items() if name not in kais}


def _beside_ours(found: Pod) -> dict[str, str]:
    """Annotations that are neither KAI's nor ours, nor hold a variable."""
    node = found["spec"]["nodeName"]
    return {
        key: TIME if key.lower().endswith("time") and value.isdigit() else "its node" if value == node else value
        for key, value in found["metadata"]["annotations"].items()
        if key != names.RECEIVED_RESOURCE_TYPE and not key.startswith((names.MOORAGE_PREFIX, names.ENV_PREFIX))
    }


async def test_nobody_else_writes_what_containers_read(set_scene: SetScene) -> None:
    """A cap that its pod's owner could lift would be none."""
    async with set_scene(["1x1x80GiB"]) as scene:
        await scene.create(asking("capped", "nvidia.com/gpumem", 3000))
        found = (await scene.running(1))["capped"]
        key = "env.moorage.dev/c0.CUDA_DEVICE_MEMORY_LIMIT_0"
        assert found["metadata"]["annotations"][key] == "3000m"
        edit = {"metadata": {"annotations": {key: "80000m"}}}
        with pytest.raises(client.ApiException) as refused:
            await scene.core.patch_namespaced_pod("capped", scene.namespace, edit)
        assert "only the scheduler and the binder may write" in str(refused.value.body)
        assert (await scene.pod("capped"))["metadata"]["annotations"][key] == "3000m"
