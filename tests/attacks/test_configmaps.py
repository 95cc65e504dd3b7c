"""Hand-over by ConfigMaps, KAI's exact way (kai-contract 1.3, 1.5, 1.16): a control plane and a Moorage of its own."""

from __future__ import annotations

import copy
import json
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, Pod, eventually, pod, scene, share
from tests.e2e.crowd import Crowd
from tests.e2e.tenant import Identity, identity, refused, tenant
from tests.e2e.test_forms import FORMS
from tools.cluster.deployment import Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

ENV = (names.ENV_VISIBLE_DEVICES, names.ENV_NUM_OF_GPUS, names.ENV_GPU_PORTION)
PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?-[a-z0-9]{7}-shared-gpu")
#: Container -> its place in the names of its ConfigMaps.
PLACES = {"main": "0", "worker": "1", "load": "i0"}


@pytest.fixture(scope="module")
def own_plane() -> Iterator[ControlPlane]:
    """One cluster has one Moorage, and the others' hands over by annotations."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="module")
def own_moorage(own_plane: ControlPlane) -> Iterator[Deployment]:
    """Moorage as it works beside KAI's tools."""
    options = Options(hand_over="configMaps", arguments={"binder": ["--idle-s", "1"]})
    with Deployment(own_plane, options) as deployment:
        yield deployment
        deployment.check()


@pytest.fixture(scope="module")
async def own_crowd(own_plane: ControlPlane, own_moorage: Deployment) -> AsyncIterator[Crowd]:
    """Two machines and a tenant."""
    async with scene(own_plane, "config-maps", ["2x4x80GiB"]) as made, tenant(own_plane, "config-maps") as whoever:
        yield Crowd(made, whoever, own_moorage)


@pytest.fixture
async def crowd(own_crowd: Crowd) -> AsyncIterator[Crowd]:
    """A test beside a healthy neighbour."""
    async with own_crowd.with_a_neighbour():
        yield own_crowd


@pytest.fixture
async def binder(own_plane: ControlPlane, own_crowd: Crowd) -> AsyncIterator[Identity]:
    """The binder's own identity, used by hand."""
    token = own_plane.service_account_token(names.SYSTEM_NAMESPACE, "moorage-binder")
    async with identity(own_plane, token, own_crowd.scene.namespace) as made:
        yield made


async def _config_map(crowd: Crowd, name: str) -> dict[str, Any]:
    answer = await crowd.scene.core.read_namespaced_config_map(name, crowd.scene.namespace, _preload_content=False)
    found: dict[str, Any] = json.loads(await answer.read())
    return found


async def _told(crowd: Crowd, name: str) -> Pod:
    """The pod, once it was told that it is bound."""

    async def is_told() -> Pod | None:
        found = await crowd.scene.pod(name)
        return found if "PodBound" in {c["type"] for c in found["status"]["conditions"]} else None

    found: Pod = await eventually(is_told, "PodBound", within_s=PATIENCE_S)
    return found


@pytest.mark.parametrize(("wanted", "container", "devices", "portion"), FORMS)
async def test_a_form_of_asking_runs_and_looks_to_the_letter_as_with_kai(
    crowd: Crowd, wanted: Pod, container: str, devices: int, portion: str
) -> None:
    created = await crowd.tenant.create(copy.deepcopy(wanted))
    found = await crowd.runs(created)
    seen = crowd.scene.seen(found)
    assert len(seen[container]) == devices
    assert {other: uuids for other, uuids in seen.items() if other != container and uuids} == {}
    name = _refers_to_its_config_maps(found, container)
    granted = json.loads(found["metadata"]["annotations"][names.GRANT])["devices"]
    capabilities, direct = await _config_map(crowd, name), await _config_map(crowd, f"{name}-evar")
    assert capabilities["data"] == {
        names.ENV_VISIBLE_DEVICES: ",".join(device["uuid"] for device in granted),
        names.ENV_NUM_OF_GPUS: portion,
        names.ENV_GPU_PORTION: portion,
    }
    assert set(capabilities["data"][names.ENV_VISIBLE_DEVICES].split(",")) == set(seen[container])
    assert direct.get("data", {}) == {}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": found["metadata"]["name"], "uid": found["metadata"]["uid"]}
    for config_map in (capabilities, direct):
        assert config_map["metadata"]["ownerReferences"] == [owner]
        assert config_map["immutable"] is True
    told = await _told(crowd, found["metadata"]["name"])
    (condition,) = [c for c in told["status"]["conditions"] if c["type"] == "PodBound"]
    assert (condition["status"], condition["reason"]) == ("True", "Bound")
    assert condition["message"] == f"Pod bound successfully to node {told['spec']['nodeName']}"
    assert {c["type"] for c in told["status"]["conditions"]} >= {"PodScheduled", "Initialized", "Ready"}


def _refers_to_its_config_maps(found: Pod, container: str) -> str:
    """Check what admission injected, and return the name of the capabilities ConfigMap."""
    prefix = found["metadata"]["annotations"][names.SHARED_GPU_CONFIGMAP]
    assert PREFIX.fullmatch(prefix)
    name = f"{prefix}-{PLACES[container]}"
    assert found["spec"]["runtimeClassName"] == "nvidia"
    assert found["metadata"]["annotations"][names.RECEIVED_RESOURCE_TYPE] == "Fraction"
    (spec,) = [
        one
        for one in (*found["spec"]["containers"], *found["spec"].get("initContainers", []))
        if one["name"] == container
    ]
    assert spec["env"][:3] == [
        {"name": key, "valueFrom": {"configMapKeyRef": {"name": name, "key": key}}} for key in ENV
    ]
    assert spec["envFrom"] == [{"configMapRef": {"name": f"{name}-evar", "optional": False}}]
    volumes = {volume["name"]: volume.get("configMap", {}).get("name") for volume in found["spec"]["volumes"]}
    assert volumes[f"{name}-vol".replace(".", "-")] == name
    return name


async def test_config_maps_go_with_their_pod(crowd: Crowd) -> None:
    found = await crowd.runs(await crowd.tenant.create(share("short", "0.5")))
    name = _refers_to_its_config_maps(found, "main")
    await crowd.scene.delete("short")

    async def are_gone() -> bool | None:
        listed = await crowd.scene.core.list_namespaced_config_map(crowd.scene.namespace)
        return not any(one.metadata.name.startswith(name) for one in listed.items) or None

    await eventually(are_gone, "the ConfigMaps to be collected", within_s=PATIENCE_S)


async def test_nobody_moves_a_container_to_another_device_by_its_config_map(crowd: Crowd) -> None:
    found = await crowd.runs(await crowd.tenant.create(share("fixed", "0.5")))
    name = _refers_to_its_config_maps(found, "main")
    core, namespace = crowd.tenant.core, crowd.tenant.namespace
    for suffix in ("", "-evar"):
        patch = {"data": {names.ENV_VISIBLE_DEVICES: "all"}}
        edited = await refused(core.patch_namespaced_config_map(name + suffix, namespace, patch))
        assert edited.status == 422
        assert "immutable" in edited.message
    await core.delete_namespaced_config_map(name, namespace)
    forged = {"metadata": {"name": name}, "data": dict.fromkeys(ENV, "all")}
    made_anew = await refused(core.create_namespaced_config_map(namespace, forged))
    assert made_anew.is_ours, made_anew


async def test_a_users_own_config_maps_are_nobodys_business(crowd: Crowd) -> None:
    core, namespace = crowd.tenant.core, crowd.tenant.namespace
    for name in ("settings", "my-shared-gpu", "shared-gpu-0", "team-shared-gpu-0"):
        await core.create_namespaced_config_map(namespace, {"metadata": {"name": name}, "data": {"a": "b"}})
        await core.delete_namespaced_config_map(name, namespace)


async def test_a_foreign_config_map_is_never_overwritten_and_the_pod_says_why(crowd: Crowd, binder: Identity) -> None:
    gated = share("blocked", "0.5")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    created = await crowd.tenant.create(gated)
    name = f"{created['metadata']['annotations'][names.SHARED_GPU_CONFIGMAP]}-0"
    foreign = {"metadata": {"name": name}, "data": {"mine": "1"}}
    await binder.core.create_namespaced_config_map(binder.namespace, foreign)
    await crowd.tenant.patch("blocked", {"spec": {"schedulingGates": []}})
    await crowd.scene.says("blocked", f"ConfigMap {name} belongs to somebody else")
    found = await crowd.scene.pod("blocked")
    (condition,) = [c for c in found["status"]["conditions"] if c["type"] == "PodBound"]
    assert (condition["status"], condition["reason"]) == ("False", "BindingError")
    assert (await _config_map(crowd, name))["data"] == {"mine": "1"}
    await crowd.scene.core.delete_namespaced_config_map(name, crowd.scene.namespace)
    await crowd.runs(created)


async def test_what_an_attempt_left_that_can_not_bind_any_more_is_replaced(crowd: Crowd, binder: Identity) -> None:
    gated = share("again", "0.5")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    created = await crowd.tenant.create(gated)
    name = f"{created['metadata']['annotations'][names.SHARED_GPU_CONFIGMAP]}-0"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "again", "uid": created["metadata"]["uid"]}
    earlier = {"name": name, "ownerReferences": [owner], "annotations": {names.POD_VERSION: "1"}}
    left = {"metadata": earlier, "data": dict.fromkeys(ENV, "GPU-of-before"), "immutable": True}
    await binder.core.create_namespaced_config_map(binder.namespace, left)
    await crowd.tenant.patch("again", {"spec": {"schedulingGates": []}})
    found = await crowd.runs(created)
    replaced = await _config_map(crowd, name)
    assert (replaced["data"][names.ENV_VISIBLE_DEVICES],) == crowd.scene.seen(found)["main"]


def _owned(name: str, owner: str) -> Pod:
    owners = [{"apiVersion": "example.com/v1", "kind": "Trainer", "name": owner, "uid": str(uuid.uuid4())}]
    return share(name, "0.5", ownerReferences=owners)


def _generated(prefix: str) -> Pod:
    wanted = share("", "0.5", generateName=prefix)
    del wanted["metadata"]["name"]
    return wanted


NAMED = [
    pytest.param(share("n" * 253, "0.5"), "n" * 20, id="253-characters"),
    pytest.param(share("a.b.c-1.d", "0.5"), "a.b.c-1.d", id="dotted"),
    pytest.param(share(".".join("a" * 126), "0.5"), "a.a.a", id="many-dots"),
    pytest.param(share("x" * 28 + "." + "y" * 40, "0.5"), "x" * 20, id="a-dot-where-it-is-cut"),
    pytest.param(_generated("trainer-"), "trainer", id="generated"),
    pytest.param(_generated("g" * 253), "g" * 20, id="generated-long"),
    pytest.param(_owned("by-dash", "run-"), "run", id="owner-ends-in-dash"),
    pytest.param(_owned("by-dot", "run."), "run", id="owner-ends-in-dot"),
    pytest.param(_owned("by-dots", ".-."), "pod", id="owner-of-dots"),
    pytest.param(_owned("by-letters", "Größe/ÜBER\n"), "gr", id="owner-of-foreign-letters"),
    pytest.param(_owned("by-much", "o" * 10_000), "o" * 20, id="owner-of-10000-characters"),
]


@pytest.mark.parametrize(("wanted", "base"), NAMED)
async def test_every_name_gives_names_of_config_maps_that_the_server_takes(
    crowd: Crowd, wanted: Pod, base: str
) -> None:
    found = await crowd.runs(await crowd.tenant.create(copy.deepcopy(wanted)))
    name = _refers_to_its_config_maps(found, "main")
    assert name.startswith(base)
    assert len(crowd.scene.seen(found)["main"]) == 1


async def test_a_pod_that_brings_a_prefix_along_gets_its_own(crowd: Crowd) -> None:
    original = await crowd.runs(await crowd.tenant.create(share("original", "0.7")))
    prefix = original["metadata"]["annotations"][names.SHARED_GPU_CONFIGMAP]
    spec = {key: value for key, value in original["spec"].items() if key != "nodeName"}
    kept = {key: original["metadata"][key] for key in ("labels", "annotations")}
    copied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "copy", **kept}, "spec": spec}
    found = await crowd.runs(await crowd.tenant.create(copied))
    assert found["metadata"]["annotations"][names.SHARED_GPU_CONFIGMAP] != prefix
    _refers_to_its_config_maps(found, "main")
    assert crowd.scene.seen(found)["main"] != crowd.scene.seen(original)["main"]
    forged = await refused(_with_prefix(crowd, "copy", prefix))
    assert forged.is_ours


async def _with_prefix(crowd: Crowd, name: str, prefix: str) -> Pod:
    return await crowd.tenant.patch(name, {"metadata": {"annotations": {names.SHARED_GPU_CONFIGMAP: prefix}}})


async def test_a_whole_gpu_needs_no_config_map(crowd: Crowd) -> None:
    found = await crowd.runs(await crowd.tenant.create(pod("whole", gpus=1)))
    assert names.SHARED_GPU_CONFIGMAP not in found["metadata"].get("annotations", {})
    assert len(crowd.scene.seen(found)["main"]) == 1
    with pytest.raises(client.ApiException):
        await crowd.scene.core.read_namespaced_config_map("whole-0", crowd.scene.namespace)
