"""Hand-over by KAI's ConfigMaps (kai-contract 1.5)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from gpu.container_devices import Cdi
from kube.client.errors import NotFound
from kube.client.resources import CONFIG_MAPS, PODS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault
from tests.binder.cluster import BINDER, TEAM, Cluster, cluster
from wire import names
from wire.core import ConfigMap, OwnerReference, Pod


async def asking(it: Cluster, name: str = "p", prefix: str = "p-x7k2p9q-shared-gpu", devices: int = 1) -> Pod:
    annotations: dict[str, Any] = {names.SHARED_GPU_CONFIGMAP: prefix}
    return await it.pod(name, devices=devices, **annotations)


async def config_map(it: Cluster, name: str) -> ConfigMap:
    return await it.api.get(CONFIG_MAPS, name, namespace=TEAM)


async def test_both_config_maps_are_there_before_the_binding_with_kais_content() -> None:
    async with cluster() as it:
        pod = await asking(it)
        await it.hand_over(pod, "g")
        await it.until(it.is_bound)
        capabilities = await config_map(it, "p-x7k2p9q-shared-gpu-0")
        assert capabilities.data == {
            "NVIDIA_VISIBLE_DEVICES": "GPU-0",
            "RUNAI_NUM_OF_GPUS": "0.50",
            "GPU_PORTION": "0.50",
        }
        assert capabilities.immutable
        (owner,) = capabilities.metadata.owner_references or [OwnerReference()]
        assert (owner.api_version, owner.kind, owner.name, owner.uid) == ("v1", "Pod", "p", pod.metadata.uid)
        assert owner.controller is None
        direct = await config_map(it, "p-x7k2p9q-shared-gpu-0-evar")
        assert not direct.data
        assert direct.immutable
        written = it.writes(BINDER)
        assert written.index("create pods/binding") > max(i for i, w in enumerate(written) if w == "create configmaps")
        assert written.count("create configmaps") == 2


async def test_with_cdi_the_config_map_names_the_device_as_kais_does() -> None:
    async with cluster(cdi=Cdi.ON) as it:
        pod = await asking(it)
        await it.hand_over(pod, "g")
        await it.until(it.is_bound)
        data = (await config_map(it, "p-x7k2p9q-shared-gpu-0")).data or {}
        assert data["NVIDIA_VISIBLE_DEVICES"] == "k8s.device-plugin.nvidia.com/gpu=GPU-0"
        assert data["GPU_PORTION"] == "0.50"


async def test_two_devices_are_joined_by_a_comma_and_the_portion_is_not_multiplied() -> None:
    async with cluster() as it:
        await it.hand_over(await asking(it, devices=2), "g", "h")
        await it.until(it.is_bound)
        data = (await config_map(it, "p-x7k2p9q-shared-gpu-0")).data or {}
        given = [it.kubelet.given[(await it.reservation(group)).metadata.uid] for group in ("g", "h")]
        assert data["NVIDIA_VISIBLE_DEVICES"] == ",".join(given)
        assert data["GPU_PORTION"] == "0.50"


async def test_an_init_containers_config_maps_are_named_after_it() -> None:
    async with cluster() as it:
        meta = {
            "name": "p",
            "annotations": {
                "gpu-fraction": "0.5",
                "gpu-fraction-container-name": "second",
                names.SHARED_GPU_CONFIGMAP: "prefix",
            },
        }
        inits = [{"name": "first", "image": "i"}, {"name": "second", "image": "i"}]
        spec = {
            "schedulerName": names.SCHEDULER_NAME,
            "initContainers": inits,
            "containers": [{"name": "main", "image": "work"}],
        }
        await it.hand_over(await it.api.create(PODS, {"metadata": meta, "spec": spec}, namespace=TEAM), "g")
        await it.until(it.is_bound)
        assert (await config_map(it, "prefix-i1")).data
        assert (await config_map(it, "prefix-i1-evar")).immutable


async def test_a_dotted_prefix_names_config_maps_all_the_same() -> None:
    async with cluster() as it:
        await it.hand_over(await asking(it, "a.b.c", "a.b.c-x7k2p9q-shared-gpu"), "g")
        await it.until(it.is_bound, "a.b.c")
        assert (await config_map(it, "a.b.c-x7k2p9q-shared-gpu-0")).data


async def test_a_foreign_config_map_is_never_overwritten() -> None:
    async with cluster() as it:
        foreign = {"metadata": {"name": "p-x7k2p9q-shared-gpu-0"}, "data": {"NVIDIA_VISIBLE_DEVICES": "all"}}
        await it.api.create(CONFIG_MAPS, foreign, namespace=TEAM)
        await it.hand_over(await asking(it), "g")
        await it.until(it.is_fenced)
        because = ((await it.get()).metadata.annotations or {})[names.FENCED_BECAUSE]
        assert because == "Refused: ConfigMap p-x7k2p9q-shared-gpu-0 belongs to somebody else"
        assert (await config_map(it, "p-x7k2p9q-shared-gpu-0")).data == {"NVIDIA_VISIBLE_DEVICES": "all"}
        assert not await it.is_bound()


async def test_what_an_earlier_attempt_wrote_is_replaced() -> None:
    async with cluster() as it:
        pod = await asking(it)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod.metadata.uid}
        meta = {"name": "p-x7k2p9q-shared-gpu-0", "ownerReferences": [owner]}
        earlier = {"metadata": meta, "data": {"NVIDIA_VISIBLE_DEVICES": "GPU-earlier"}, "immutable": True}
        await it.api.create(CONFIG_MAPS, earlier, namespace=TEAM)
        await it.hand_over(pod, "g")
        await it.until(it.is_bound)
        assert ((await config_map(it, "p-x7k2p9q-shared-gpu-0")).data or {})["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"


async def test_what_another_attempt_wrote_for_the_same_version_is_left_alone_until_that_can_not_bind() -> None:
    async with cluster() as it:
        pod = await asking(it)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod.metadata.uid}
        name, version = "p-x7k2p9q-shared-gpu-0", {names.POD_VERSION: pod.metadata.resource_version}
        meta = {"name": name, "annotations": version, "ownerReferences": [owner]}
        rival = {"metadata": meta, "data": {"NVIDIA_VISIBLE_DEVICES": "GPU-rival"}, "immutable": True}
        await it.api.create(CONFIG_MAPS, rival, namespace=TEAM)
        await it.hand_over(pod, "g")
        await it.until(it.is_fenced)
        because = ((await it.get()).metadata.annotations or {})[names.FENCED_BECAUSE]
        assert because == f"DeviceTaken: ConfigMap {name} was written by another attempt of this pod"
        assert (await config_map(it, name)).data == rival["data"]
        await it.until(_no_requests, it)
        await it.hand_over(await it.get(), "g")
        await it.until(it.is_bound)
        given = it.kubelet.given[(await it.reservation()).metadata.uid]
        assert ((await config_map(it, name)).data or {})["NVIDIA_VISIBLE_DEVICES"] == given


async def test_a_pod_that_changes_after_its_config_maps_gets_them_anew() -> None:
    async with cluster() as it:
        it.server.faults.on_request.append(_binding_never_arrives)
        await it.hand_over(await asking(it), "g")
        await it.until(_exists, it, "p-x7k2p9q-shared-gpu-0-evar")
        await it.api.patch(PODS, "p", {"metadata": {"labels": {"changed": "yes"}}}, namespace=TEAM)
        changed = (await it.get()).metadata.resource_version
        it.server.faults.on_request.clear()
        await it.until(it.is_bound)
        for name in ("p-x7k2p9q-shared-gpu-0", "p-x7k2p9q-shared-gpu-0-evar"):
            written = await config_map(it, name)
            assert (written.metadata.annotations or {})[names.POD_VERSION] == changed


@pytest.mark.parametrize("prefix", ["Not a name", "x" * 260])
async def test_a_prefix_that_names_no_config_map_fails_with_the_servers_words(prefix: str) -> None:
    async with cluster() as it:
        await it.hand_over(await asking(it, prefix=prefix), "g")
        await it.until(it.is_fenced)
        because = ((await it.get()).metadata.annotations or {})[names.FENCED_BECAUSE]
        # No name that is longer than any name may be is kept whole (sharing/pods.py).
        assert because.startswith(f"Refused: ConfigMap {prefix[:254]}-0: ")


async def test_config_maps_written_before_a_crash_are_found_again() -> None:
    async with cluster() as it:
        it.server.faults.on_request.append(_binding_never_arrives)
        await it.hand_over(await asking(it), "g")
        await it.until(_exists, it, "p-x7k2p9q-shared-gpu-0-evar")
        it.kill()
        it.server.faults.on_request.clear()
        await it.start()
        await it.until(it.is_bound)
        await anyio.sleep(1)
        assert it.writes(BINDER).count("create configmaps") == 2


def _binding_never_arrives(call: Call) -> Fault:
    return Fault(lost="request") if call.subresource == "binding" else NOTHING


async def _exists(it: Cluster, name: str) -> bool:
    try:
        await config_map(it, name)
    except NotFound:
        return False
    return True


async def told(it: Cluster, name: str = "p") -> dict[str, tuple[str, str, str]]:
    conditions = (await it.get(name)).status.conditions or ()
    return {c.type: (c.status, c.reason, c.message) for c in conditions}


BOUND = ("True", "Bound", "Pod bound successfully to node node-1")


async def is_told(it: Cluster, name: str = "p") -> bool:
    return (await told(it, name)).get("PodBound") == BOUND


async def test_a_pod_of_kais_way_is_told_that_it_is_bound_and_keeps_other_conditions() -> None:
    async with cluster() as it:
        pod = await asking(it)
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
        await it.api.patch(PODS, "p", {"status": {"conditions": [condition]}}, namespace=TEAM, subresource="status")
        await it.hand_over(await it.get(pod.metadata.name), "g")
        await it.until(is_told, it)
        assert set(await told(it)) == {"PodScheduled", "PodBound"}
        await it.until(_no_requests, it)
        assert [w for w in it.writes(BINDER) if w == "patch pods/status"] == ["patch pods/status"]


async def _no_requests(it: Cluster) -> bool:
    return not await it.requests()


async def test_a_pod_of_our_way_costs_no_such_write() -> None:
    async with cluster() as it:
        await it.bound("p", "g")
        await anyio.sleep(5)
        assert "patch pods/status" not in it.writes(BINDER)


async def test_a_pod_that_was_told_of_a_failure_is_told_when_it_is_bound_after_all() -> None:
    async with cluster() as it:
        it.kubelet.rejects = 1
        await it.hand_over(await it.pod(), "g")
        await it.until(it.is_fenced)
        assert (await told(it))["PodBound"][:2] == ("False", "BindingError")
        await it.hand_over(await it.get("p"), "h")
        await it.until(is_told, it)


async def test_a_condition_that_cannot_be_written_does_not_hold_up_the_end() -> None:
    async with cluster() as it:
        it.server.faults.on_request.append(
            lambda call: Fault(lost="request") if call.subresource == "status" and call.user == BINDER else NOTHING
        )
        await it.hand_over(await asking(it), "g")
        await it.until(_no_requests, it)
        assert await it.is_bound()
        assert "PodBound" not in await told(it)


async def test_a_namespace_that_is_gone_ends_the_attempt() -> None:
    async with cluster() as it:
        pod = await asking(it)

        def rule(call: Call) -> Fault:
            return Fault(refuse_with=404) if (call.user, call.kind.plural) == (BINDER, "configmaps") else NOTHING

        it.server.faults.on_request.append(rule)
        await it.hand_over(pod, "g")
        await it.until(it.is_fenced)
        assert await it.requests() == []


def _tries(it: Cluster) -> list[str]:
    return [entry.verb for entry in it.server.audit if (entry.user, entry.resource) == (BINDER, "configmaps")]


async def test_a_config_map_that_exists_and_can_not_be_found_fails_the_attempt_after_a_few_tries() -> None:
    name = "p-x7k2p9q-shared-gpu-0"

    def rule(call: Call) -> Fault:
        is_it = (call.user, call.verb, call.kind.plural) == (BINDER, "get", "configmaps")
        return Fault(refuse_with=404) if is_it else NOTHING

    async with cluster() as it:
        await it.api.create(CONFIG_MAPS, {"metadata": {"name": name}}, namespace=TEAM)
        it.server.faults.on_request.append(rule)
        await it.hand_over(await asking(it), "g")
        await it.until(_has_tried, it)
        started_s = anyio.current_time()
        await it.until(it.is_fenced)
        assert anyio.current_time() - started_s > 2
        because = ((await it.get()).metadata.annotations or {})[names.FENCED_BECAUSE]
        assert because == f"Refused: ConfigMap {name} can't be created as one exists, and there is none when it is read"
        assert 3 <= _tries(it).count("create") <= 6
        await it.until(_no_requests, it)


async def _has_tried(it: Cluster) -> bool:
    return bool(_tries(it))


async def test_an_older_config_map_that_does_not_go_fails_the_attempt_after_a_few_tries() -> None:
    name = "p-x7k2p9q-shared-gpu-0"
    async with cluster() as it:
        pod = await asking(it)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod.metadata.uid}
        held = {"name": name, "ownerReferences": [owner], "finalizers": ["example.com/keep"]}
        await it.api.create(CONFIG_MAPS, {"metadata": held}, namespace=TEAM)
        await it.hand_over(pod, "g")
        await it.until(it.is_fenced)
        because = ((await it.get()).metadata.annotations or {})[names.FENCED_BECAUSE]
        assert because.startswith(f"Refused: ConfigMap {name} was written by an older attempt")
        assert because.endswith("and does not go away")
        assert len(_tries(it)) <= 20
