"""The life of a release: installed, changed, taken back, removed under running tenants, installed again."""

from __future__ import annotations

import contextlib
import copy
import functools
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, Scene, eventually, scene, share
from tests.e2e.release import COMPONENTS, Release
from tools.chart import CHART, ROOT
from tools.cluster.plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.helm, pytest.mark.timeout(300)]

VALUES = {"global": {"gpuSharing": True}, "binder": {"args": {"idle-s": 1}}}
#: What stays at an uninstallation (docs/install.md, Removing it).
KEPT = {
    ("Namespace", "kai-resource-reservation"),
    ("ServiceAccount", "kai-resource-reservation"),
    ("Role", "kai-resource-reservation"),
    ("RoleBinding", "kai-resource-reservation"),
    ("PodDisruptionBudget", "moorage-reservations"),
    *(("PriorityClass", name) for name in ("train", "build-preemptible", "build", "inference")),
    ("Queue", "default-parent-queue"),
    ("Queue", "default-queue"),
}


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """A control plane on which nothing was installed by other means, for each test."""
    with ControlPlane() as started:
        yield started


@pytest.fixture
def release(plane: ControlPlane, tmp_path: Path) -> Iterator[Release]:
    made = Release(plane, tmp_path)
    yield made
    made.stop()


def prepare(plane: ControlPlane) -> None:
    """What a cluster has before: NVIDIA's runtime class, and here simulated nodes' rights."""
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
    }
    plane.apply(yaml.safe_dump(runtime))
    plane.apply((ROOT / "simulator" / "rbac.yaml").read_text())


async def let_in(it: Scene, name: str, fraction: str) -> None:
    """Create a pod once the webhooks answer: the API server learns of certificates a moment later."""

    async def created() -> bool | None:
        is_in = True
        try:
            await it.create(share(name, fraction))
        except* client.ApiException as refused:
            if "failed calling webhook" not in str(refused.exceptions[0]):
                raise
            is_in = False
        return is_in or None

    await eventually(created, f"{name} to be let in", within_s=PATIENCE_S)


async def test_a_release_lives_and_its_tenants_outlive_it(plane: ControlPlane, release: Release) -> None:
    notes = release.install(VALUES)
    assert "Shares of GPUs: annotate a pod with gpu-fraction" in notes
    prepare(plane)
    release.run()
    async with scene(plane, "team", ["1x2x80GiB"]) as it:
        await let_in(it, "first", "0.5")
        first = (await it.running(1))["first"]

        async def are_ready() -> bool | None:
            return all(release.is_ready(each) for each in COMPONENTS if each != "admission") or None

        await eventually(are_ready, "all components to be ready", within_s=PATIENCE_S)

        release.upgrade({**VALUES, "scheduler": {"placementStrategy": "spread"}})
        assert "--gpu-strategy=spread" in _arguments(release, "scheduler")
        release.run()
        await let_in(it, "second", "0.5")
        assert len(it.sharers(await it.running(2))) == 2

        release.roll_back()
        assert "--gpu-strategy=priced" in _arguments(release, "scheduler")
        release.run()
        await let_in(it, "third", "0.5")
        shared = it.sharers(await it.running(3))
        assert sorted(map(len, shared.values())) == [1, 2]

        release.uninstall()

        async def is_removed() -> bool | None:
            return release.everything() == KEPT or None

        # What Deployments and Services have made is collected by Kubernetes, later.
        await eventually(is_removed, "all but what is kept to go", within_s=PATIENCE_S)
        pods = await it.pods()
        assert {pods[name]["status"]["phase"] for name in ("first", "second", "third")} == {"Running"}
        assert pods["first"]["metadata"]["uid"] == first["metadata"]["uid"]
        assert len(await it.reservations()) == 2

        release.install(VALUES)
        release.run()
        await let_in(it, "fourth", "0.5")
        assert sorted(map(len, it.sharers(await it.running(4)).values())) == [2, 2]
        assert it.refusals() == []
    release.check()


#: What a KAI that is stopped leaves, made by its operator or its own release (kai-contract 1.16).
LEFT_BY_KAI = """
apiVersion: v1
kind: Namespace
metadata: {name: kai-resource-reservation, labels: {of: kai}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: kai-resource-reservation, namespace: kai-resource-reservation, labels: {of: kai}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: kai-resource-reservation, namespace: kai-resource-reservation, labels: {of: kai}}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list, patch, update, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: kai-resource-reservation
  namespace: kai-resource-reservation
  labels: {of: kai}
  annotations: {meta.helm.sh/release-name: kai-scheduler, meta.helm.sh/release-namespace: kai-scheduler}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: kai-resource-reservation}
subjects: [{kind: ServiceAccount, name: kai-resource-reservation, namespace: kai-resource-reservation}]
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: train, labels: {of: kai}}
value: 50
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: theirs, labels: {of: kai}}
spec: {resources: {cpu: {limit: -1}, memory: {limit: -1}, gpu: {limit: -1}}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: default-queue, labels: {of: kai}}
spec:
  parentQueue: theirs
  resources: {cpu: {limit: -1}, memory: {limit: -1}, gpu: {quota: 7, limit: 8, overQuotaWeight: 2}}
"""


def test_an_upgrade_brings_older_crds_along_and_leaves_newer_ones(plane: ControlPlane, release: Release) -> None:
    """Of four, one is older, one newer; then one is of another kind, which has to be decided on."""
    crds = {path.stem.partition("_")[2]: yaml.safe_load(path.read_text()) for path in (CHART / "crds").glob("*.yaml")}
    older, newer, another = (copy.deepcopy(crds[name]) for name in ("queues", "podgroups", "bindrequests"))
    del _fields(older)["displayName"]
    _fields(newer)["ofTomorrow"] = {"type": "string"}
    _fields(another)["ofTomorrow"] = {"type": "string"}
    del _fields(another)["backoffLimit"]
    release.install(VALUES)
    assert release.told_of_crds.count(": is as this version wants it\n") == len(crds)
    for crd in (older, newer):
        _replace(plane, crd)
    release.upgrade(VALUES)
    assert "displayName" in _fields(_crd(plane, "queues"))
    assert "ofTomorrow" in _fields(_crd(plane, "podgroups"))
    assert "queues.scheduling.run.ai: brought to this version\n" in release.told_of_crds
    assert "podgroups.scheduling.run.ai: left as it is, since it is newer: this version does not know: " in (
        release.told_of_crds
    )
    # Nothing of it stays but the CRDs.
    listed = plane.kubectl("get", "jobs,serviceaccounts,clusterroles,clusterrolebindings", "-A", "-o", "name")
    assert "moorage-crds" not in listed

    _replace(plane, another)
    with pytest.raises(AssertionError, match="moorage-crds"):
        release.upgrade({**VALUES, "scheduler": {"placementStrategy": "spread"}})
    assert "bindrequests.scheduling.run.ai: left as it is, since it is another's" in release.told_of_crds
    assert "--gpu-strategy=priced" in _arguments(release, "scheduler"), "nothing was changed"
    release.upgrade({**VALUES, "scheduler": {"placementStrategy": "spread"}, "crds": {"upgrade": False}})
    assert "--gpu-strategy=spread" in _arguments(release, "scheduler")
    assert "backoffLimit" not in _fields(_crd(plane, "bindrequests"))


async def test_renewals_of_leases_are_not_queued_behind_the_components_own_requests(
    plane: ControlPlane, release: Release
) -> None:
    """What the API server says of each request: by which flow schema it was queued."""
    release.install(VALUES)
    schemas = json.loads(plane.kubectl("get", "flowschemas", "-o", "json"))["items"]
    named = {schema["metadata"]["uid"]: schema["metadata"]["name"] for schema in schemas}
    leases = "/apis/coordination.k8s.io/v1/namespaces/kai-scheduler/leases"
    for component in ("scheduler", "binder", "podgrouper"):
        token = plane.service_account_token("kai-scheduler", f"moorage-{component}")
        asked = {f"{leases}/moorage-{component}": "moorage-leader-election", "/api/v1/pods?limit=1": "moorage"}
        is_so = functools.partial(_are_queued, plane, token, asked, named)
        # The API server takes a moment to queue by schemas that are new.
        await eventually(is_so, f"requests of {component} to be queued as {asked}", within_s=PATIENCE_S)


async def _are_queued(
    plane: ControlPlane, token: str, asked: Mapping[str, str], named: Mapping[str, str]
) -> bool | None:
    """Whether each path is queued by the schema of this name."""
    return {path: named[_queued_by(plane, path, token)] for path in asked} == asked or None


def _queued_by(plane: ControlPlane, path: str, token: str) -> str:
    """UID of the flow schema."""
    server = urlsplit(plane.url)
    trust = ssl.create_default_context(cadata=plane.ca_pem)
    connection = http.client.HTTPSConnection(server.hostname or "", server.port, timeout=60, context=trust)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        headers = connection.getresponse().headers
    uid: str = headers["X-Kubernetes-PF-FlowSchema-UID"]
    return uid


def _replace(plane: ControlPlane, crd: dict[str, Any]) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
    there = plane.rest().call("GET", path)
    plane.rest().call("PUT", path, {**there, "spec": crd["spec"]})


def _crd(plane: ControlPlane, plural: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plane.kubectl("get", "crd", f"{plural}.scheduling.run.ai", "-o", "json"))
    return found


def _fields(crd: dict[str, Any]) -> dict[str, Any]:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields: dict[str, Any] = schema["properties"]["spec"]["properties"]
    return fields


async def test_what_kai_left_is_neither_taken_over_nor_changed_nor_removed(
    plane: ControlPlane, release: Release
) -> None:
    for path in sorted((CHART / "crds").glob("*.yaml")):
        plane.apply(path.read_text())
    newer = _crd(plane, "queues")
    _fields(newer)["ofKai"] = {"type": "string"}
    _replace(plane, newer)
    plane.apply(LEFT_BY_KAI)
    before = _of_kai(plane)
    release.install(VALUES, "--skip-crds")
    assert _of_kai(plane) == before
    assert "ofKai" in _fields(_crd(plane, "queues"))
    assert "does not know: v2 spec.ofKai (string)\n" in release.told_of_crds
    prepare(plane)
    release.run()
    async with scene(plane, "team", ["1x1x80GiB"]) as it:
        await let_in(it, "first", "0.5")
        await it.running(1)
        await it.empty()
        release.uninstall()
        assert _of_kai(plane) == before


def _of_kai(plane: ControlPlane) -> list[tuple[str, str, str]]:
    """Kind, name and version of KAI's objects: the version changes with each write.

    Of Queues the generation, which their status does not change: that is the scheduler's to write, as it was KAI's.
    """
    kinds = "namespaces,serviceaccounts,roles,rolebindings,priorityclasses,queues.scheduling.run.ai"
    listed = json.loads(plane.kubectl("get", kinds, "-A", "-l", "of=kai", "-o", "json"))["items"]
    version = {"Queue": "generation"}
    return [
        (made["kind"], made["metadata"]["name"], str(made["metadata"][version.get(made["kind"], "resourceVersion")]))
        for made in listed
    ]


def _arguments(release: Release, component: str) -> list[str]:
    assert component in COMPONENTS
    (container,) = release.deployment(component)["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments
