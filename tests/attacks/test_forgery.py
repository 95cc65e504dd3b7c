"""What a tenant forges: keys brought along by new pods and copies, and changes afterwards. None of it counts.

Each beside a healthy neighbour (tests/e2e/crowd.py).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.cluster import Pod, pod, share
from tests.e2e.crowd import Crowd
from tests.e2e.tenant import refused
from wire import names

pytestmark = pytest.mark.cluster

FORGED: dict[str, Any] = {
    "labels": {
        names.GPU_GROUP_LABEL: "stolen",
        names.MULTI_GPU_GROUP_LABEL_PREFIX + "other": "other",
        names.APP_LABEL: names.RESERVATION_APP,
    },
    "annotations": {
        names.GRANT: '{"attempt":"a","devices":[{"group":"stolen","reservation":"r","uuid":"GPU-1","nano":1}]}',
        names.VISIBLE_DEVICES_PREFIX + "c0": "all",
        names.VISIBLE_DEVICES_PREFIX + "c7": "all",
        names.RECEIVED_RESOURCE_TYPE: names.RECEIVED_FRACTION,
        names.GPU_PORTION_ANNOTATION: "9.99",
        names.CHARGED: '{"queue":"victim","preemptible":false,"pool":""}',
        names.FENCED: "forged",
        names.FENCED_BECAUSE: "Forged: by a tenant",
        names.TENANTS: "{}",
        names.RESERVE_FOR_GPU_INDEX: "GPU-1",
        names.DEVICE_INDEX: "0",
        names.DEVICE_MEMORY: "1",
        names.SHARED_GPU_CONFIGMAP: "somebody-elses",
        "nvidia.com/container.main.gpus.devices": "all",
        "nvidia.cdi.k8s.io/container.main": "management.nvidia.com/gpu=all",
    },
}


async def test_forged_keys_of_a_new_pod_are_stripped_and_made_anew(crowd: Crowd) -> None:
    asked = {names.GPU_FRACTION: "0.5"}
    wanted = pod("bad", annotations=asked | FORGED["annotations"], labels=FORGED["labels"])
    created = await crowd.tenant.create(wanted)
    assert created["metadata"]["labels"] == {names.APP_LABEL: names.RESERVATION_APP}
    assert created["metadata"]["annotations"] == {names.GPU_FRACTION: "0.5"}
    found = await crowd.runs(created)
    crowd.is_given_what_it_sees(found)
    assert found["metadata"]["annotations"][names.GPU_PORTION_ANNOTATION] == "0.50"
    assert names.VISIBLE_DEVICES_PREFIX + "c7" not in found["metadata"]["annotations"]


async def test_forged_keys_of_a_pod_without_a_share_give_it_nothing(crowd: Crowd) -> None:
    wanted = pod("bad", annotations=FORGED["annotations"], labels=FORGED["labels"])
    entry = {"fieldRef": {"fieldPath": f"metadata.annotations['{names.VISIBLE_DEVICES_PREFIX}c0']"}}
    wanted["spec"]["containers"][0]["env"] = [{"name": names.ENV_VISIBLE_DEVICES, "valueFrom": entry}]
    found = await crowd.runs(await crowd.tenant.create(wanted))
    assert crowd.scene.seen(found) == {"main": ()}
    annotations = found["metadata"]["annotations"]
    assert annotations.keys() == {names.RECEIVED_RESOURCE_TYPE, names.CHARGED}
    assert annotations[names.RECEIVED_RESOURCE_TYPE] == names.RECEIVED_REGULAR
    assert json.loads(annotations[names.CHARGED])["queue"] == names.DEFAULT_QUEUE


def _copy(found: Pod, name: str, *, with_node: bool) -> Pod:
    """A pod as a backup writes it back: all of metadata that a user may bring, and the whole spec."""
    kept = {key: found["metadata"][key] for key in ("labels", "annotations")}
    spec = {key: value for key, value in found["spec"].items() if with_node or key != "nodeName"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **kept}, "spec": spec}


async def test_a_copy_of_a_bound_pod_is_placed_as_if_it_were_new(crowd: Crowd) -> None:
    original = await crowd.runs(await crowd.tenant.create(share("original", "0.7")))
    created = await crowd.tenant.create(_copy(original, "copy", with_node=False))
    assert created["metadata"]["annotations"] == {names.GPU_FRACTION: "0.7"}
    assert "labels" not in created["metadata"]
    copied = await crowd.runs(created)
    crowd.is_given_what_it_sees(copied)
    assert crowd.scene.seen(copied) != crowd.scene.seen(original)


async def test_a_copy_that_brings_its_node_along_gets_no_device_and_takes_none(crowd: Crowd) -> None:
    original = await crowd.runs(await crowd.tenant.create(share("original", "0.7")))
    copied = await crowd.runs(await crowd.tenant.create(_copy(original, "copy", with_node=True)))
    assert crowd.scene.seen(copied) == {"main": ()}
    assert names.GRANT not in copied["metadata"]["annotations"]
    beside = await crowd.runs(await crowd.tenant.create(share("beside", "0.05")))
    assert crowd.scene.seen(beside) == crowd.scene.seen(original)


CHANGES = [
    pytest.param({"annotations": {names.GPU_FRACTION: "0.1"}}, id="smaller-ask"),
    pytest.param({"annotations": {names.GPU_FRACTION: None}}, id="no-ask"),
    pytest.param({"annotations": {names.GPU_FRACTION: None, names.GPU_MEMORY: "1"}}, id="other-ask"),
    pytest.param({"annotations": {names.GPU_FRACTION_NUM_DEVICES: "1"}}, id="count"),
    pytest.param({"annotations": {names.GPU_FRACTION_CONTAINER_NAME: "main"}}, id="container"),
    pytest.param({"annotations": {names.GRANT: None}}, id="no-grant"),
    pytest.param({"annotations": {names.GRANT: FORGED["annotations"][names.GRANT]}}, id="other-grant"),
    pytest.param({"annotations": {names.VISIBLE_DEVICES_PREFIX + "c0": "all"}}, id="all-devices"),
    pytest.param({"annotations": {names.VISIBLE_DEVICES_PREFIX + "i0": "all"}}, id="further-devices"),
    pytest.param({"annotations": {names.RECEIVED_RESOURCE_TYPE: "Regular"}}, id="received-type"),
    pytest.param({"annotations": {names.GPU_PORTION_ANNOTATION: "0.01"}}, id="portion"),
    pytest.param({"annotations": {names.CHARGED: FORGED["annotations"][names.CHARGED]}}, id="other-charge"),
    pytest.param({"annotations": {names.CHARGED: None}}, id="no-charge"),
    pytest.param({"annotations": {names.FENCED: "x"}}, id="fence"),
    pytest.param({"annotations": {names.SHARED_GPU_CONFIGMAP: "mine"}}, id="config-map-prefix"),
    pytest.param({"labels": {names.GPU_GROUP_LABEL: None}}, id="no-group"),
    pytest.param({"labels": {names.GPU_GROUP_LABEL: "other"}}, id="other-group"),
    pytest.param({"labels": {names.MULTI_GPU_GROUP_LABEL_PREFIX + "g": "g"}}, id="second-group"),
]


async def test_after_placement_a_tenant_changes_nothing_that_counts(crowd: Crowd) -> None:
    found = await crowd.runs(await crowd.tenant.create(share("placed", "0.5")))
    for change in CHANGES:
        (metadata,) = change.values
        for subresource in ("", "status"):
            patch = {"metadata": metadata}
            refusal = await refused(crowd.tenant.patch("placed", patch, subresource=subresource))
            assert refusal.is_ours, (change.id, subresource, refusal)
    harmless = {"labels": {"team": "a"}, "annotations": {"example.com/note": "ü"}}
    changed = await crowd.tenant.patch("placed", {"metadata": harmless})
    crowd.is_given_what_it_sees(changed)
    assert crowd.scene.seen(changed) == crowd.scene.seen(found)


async def test_a_debug_container_beside_a_share_sees_no_device(crowd: Crowd) -> None:
    await crowd.runs(await crowd.tenant.create(share("placed", "0.5")))
    debug = {"name": "debug", "image": "sh", "env": [{"name": names.ENV_VISIBLE_DEVICES, "value": "all"}]}
    patch = {"spec": {"ephemeralContainers": [debug]}}
    changed = await crowd.tenant.patch("placed", patch, subresource="ephemeralcontainers")
    (container,) = changed["spec"]["ephemeralContainers"]
    assert container["env"] == [{"name": names.ENV_VISIBLE_DEVICES, "value": names.VISIBLE_DEVICES_NONE}]


async def test_a_tenants_own_binding_brings_no_device_along(crowd: Crowd) -> None:
    gated = share("gated", "0.5")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    await crowd.tenant.create(gated)
    (node, *_) = crowd.scene.nodes.kubelets
    for metadata in (FORGED["annotations"], {names.GRANT: "{}"}):
        refusal = await refused(crowd.tenant.bind("gated", node, annotations=metadata))
        assert refusal.is_ours, refusal
    refusal = await refused(crowd.tenant.bind("gated", node, labels={names.GPU_GROUP_LABEL: "g"}))
    assert refusal.is_ours, refusal
