"""Pods with claims, on the real control plane: its PV controller binds, Moorage goes where the volumes are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import Pod, Scene, share
from tests.e2e.conftest import SetScene
from wire import names

pytestmark = pytest.mark.cluster

_ZONES = ("zone-a", "zone-b")


@pytest.fixture
async def zones(set_scene: SetScene) -> AsyncIterator[Scene]:
    """Two nodes, each in a zone of its own; volumes and classes are taken away afterwards."""
    async with set_scene(["2x2x80GiB"]) as made:
        for name, zone in zip(_nodes(made), _ZONES, strict=True):
            await made.core.patch_node(name, {"metadata": {"labels": {names.ZONE_LABEL: zone}}})
        yield made
        await made.core.delete_collection_namespaced_persistent_volume_claim(made.namespace)
        await made.core.delete_collection_persistent_volume(label_selector=f"scene={made.namespace}")


def _nodes(made: Scene) -> list[str]:
    return [f"{made.namespace}-{number}" for number in range(2)]


async def _volume(made: Scene, name: str, *, of: str, labels: dict[str, str] | None = None, node: str = "") -> None:
    hostname = {"key": names.HOSTNAME_LABEL, "operator": "In", "values": [node]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}}}
    source: dict[str, Any] = {"local": {"path": "/data"}, **affinity} if node else {"hostPath": {"path": "/data"}}
    await made.core.create_persistent_volume(
        {
            "metadata": {"name": f"{made.namespace}-{name}", "labels": {"scene": made.namespace, **(labels or {})}},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "",
                "claimRef": {"namespace": made.namespace, "name": of},
                **source,
            },
        }
    )


async def _claim(made: Scene, name: str, *, storage_class: str = "") -> None:
    await made.core.create_namespaced_persistent_volume_claim(
        made.namespace,
        {
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": storage_class,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )


def _mounting(name: str, claim: str) -> Pod:
    made = share(name, "0.5")
    made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return made


async def test_pods_run_where_the_volumes_of_their_claims_are(zones: Scene) -> None:
    first, second = _nodes(zones)
    await _volume(zones, "local", of="local", node=second)
    await _volume(zones, "zoned", of="zoned", labels={names.ZONE_LABEL: "zone-b"})
    await _volume(zones, "other", of="other", labels={names.ZONE_LABEL: "zone-a"})
    for name in ("local", "zoned", "other"):
        await _claim(zones, name)
    await zones.create(*(_mounting(name, name) for name in ("local", "zoned", "other")))
    running = await zones.running(3)
    assert {name: pod["spec"]["nodeName"] for name, pod in running.items()} == {
        "local": second,
        "zoned": second,
        "other": first,
    }


async def test_a_pod_waits_until_its_claim_is_there_and_bound(zones: Scene) -> None:
    await zones.create(_mounting("early", "late"))
    await zones.says("early", 'persistentvolumeclaim "late" not found')
    await _claim(zones, "late")
    await zones.says("early", 'pod has unbound immediate PersistentVolumeClaims: "late"')
    await _volume(zones, "late", of="late", node=_nodes(zones)[1])
    assert (await zones.running(1))["early"]["spec"]["nodeName"] == _nodes(zones)[1]


_PROVISIONER = "disk.provisioner.example"
_MADE_BY = "volume.kubernetes.io/storage-provisioner"


@asynccontextmanager
async def _waiting_class(made: Scene, provisioner: str) -> AsyncIterator[str]:
    """A class whose claims wait for their first consumer."""
    storage = client.StorageV1Api(made.core.api_client)
    name = f"{made.namespace}-late"
    await storage.create_storage_class(
        {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    )
    try:
        yield name
    finally:
        await storage.delete_storage_class(name)


async def _free_volume(made: Scene, name: str, *, of: str, node: str, claim: Any = None) -> None:
    """A volume of a class on a node, for any claim, or as a provisioner makes it for one."""
    hostname = {"key": names.HOSTNAME_LABEL, "operator": "In", "values": [node]}
    ref = {} if claim is None else {"claimRef": {"namespace": made.namespace, "name": name, "uid": claim.metadata.uid}}
    await made.core.create_persistent_volume(
        {
            "metadata": {"name": f"{made.namespace}-{name}", "labels": {"scene": made.namespace}},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": of,
                "local": {"path": "/data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}},
                **ref,
            },
        }
    )


async def _provision(made: Scene, *, of: str, fails_on: str = "") -> None:
    """Make volumes as a provisioner does, until cancelled; on one node it fails, and takes the selection back."""
    while True:
        await anyio.sleep(0.2)
        for claim in (await made.core.list_namespaced_persistent_volume_claim(made.namespace)).items:
            annotations, name = claim.metadata.annotations or {}, claim.metadata.name
            node = annotations.get(names.SELECTED_NODE)
            if claim.spec.volume_name or not node or annotations.get(_MADE_BY) != _PROVISIONER:
                continue
            if node == fails_on:
                await made.core.patch_namespaced_persistent_volume_claim(
                    name, made.namespace, {"metadata": {"annotations": {names.SELECTED_NODE: None}}}
                )
                continue
            with suppress(client.ApiException):  # it is made already
                await _free_volume(made, name, of=of, node=node, claim=claim)


async def test_a_claim_that_waits_for_its_first_consumer_gets_a_volume_of_its_pods_node(zones: Scene) -> None:
    async with _waiting_class(zones, "kubernetes.io/no-provisioner") as name:
        await _claim(zones, "data", storage_class=name)
        await zones.create(_mounting("p", "data"))
        await zones.says("p", "2 node(s) didn't find available persistent volumes to bind")
        _, second = _nodes(zones)
        await _free_volume(zones, "local", of=name, node=second)
        assert (await zones.running(1))["p"]["spec"]["nodeName"] == second
        volume = await zones.core.read_persistent_volume(f"{zones.namespace}-local")
        assert (volume.status.phase, volume.spec.claim_ref.name) == ("Bound", "data")


async def test_a_volume_is_provisioned_for_the_node_of_its_pod_or_for_another_where_that_fails(zones: Scene) -> None:
    first, second = _nodes(zones)
    async with _waiting_class(zones, _PROVISIONER) as name, anyio.create_task_group() as tasks:
        await _claim(zones, "data", storage_class=name)
        tasks.start_soon(partial(_provision, zones, of=name, fails_on=first))
        await zones.create(_mounting("p", "data"))
        assert (await zones.running(1))["p"]["spec"]["nodeName"] == second
        claim = await zones.core.read_namespaced_persistent_volume_claim("data", zones.namespace)
        assert claim.metadata.annotations[names.SELECTED_NODE] == second
        tasks.cancel_scope.cancel()


async def test_a_node_takes_no_more_volumes_than_its_csi_driver_says(zones: Scene) -> None:
    storage = client.StorageV1Api(zones.core.api_client)
    first, _ = _nodes(zones)
    driver = "disk.csi.example"
    node = await zones.core.read_node(first)
    owner = {"apiVersion": "v1", "kind": "Node", "name": first, "uid": node.metadata.uid}
    made = {"name": driver, "nodeID": first, "topologyKeys": [], "allocatable": {"count": 1}}
    await storage.create_csi_node(
        {"metadata": {"name": first, "ownerReferences": [owner]}, "spec": {"drivers": [made]}}
    )
    try:
        for name in ("one", "two"):
            await zones.core.create_persistent_volume(
                {
                    "metadata": {"name": f"{zones.namespace}-{name}", "labels": {"scene": zones.namespace}},
                    "spec": {
                        "capacity": {"storage": "1Gi"},
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "",
                        "claimRef": {"namespace": zones.namespace, "name": name},
                        "csi": {"driver": driver, "volumeHandle": name},
                    },
                }
            )
            await _claim(zones, name)
        for name in ("one", "two"):
            pod = _mounting(name, name)
            await zones.create(pod)
            if name == "one":
                await zones.running(1)
        await zones.running(2)
        # Shares are packed on one node; the second volume has no room there.
        assert len({pod["spec"]["nodeName"] for pod in (await zones.pods()).values()}) == 2
    finally:
        await storage.delete_csi_node(first)


async def test_a_pod_waits_until_its_config_map_is_there(zones: Scene) -> None:
    """Only metadata is read: what it holds matters to nobody."""
    made = share("reader", "0.5")
    made["spec"]["volumes"] = [{"name": "settings", "configMap": {"name": "settings"}}]
    await zones.create(made)
    await zones.says("reader", "Missing required configmaps: [settings]")
    assert not (await zones.pod("reader"))["spec"].get("nodeName")
    body = {"metadata": {"name": "settings"}, "data": {"a": "1"}}
    await zones.core.create_namespaced_config_map(zones.namespace, body)
    assert (await zones.running(1))["reader"]["spec"]["nodeName"] in _nodes(zones)
