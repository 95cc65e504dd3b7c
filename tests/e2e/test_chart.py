"""The life of a release: installed, changed, taken back, removed under running tenants, installed again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes_asyncio import client

from tests.e2e.cluster import Scene, eventually, scene, share
from tests.e2e.release import COMPONENTS, Release
from tools.chart import CHART, ROOT
from tools.cluster import ControlPlane

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

    await eventually(created, f"{name} to be let in", within_s=60)


async def test_a_release_lives_and_its_tenants_outlive_it(plane: ControlPlane, release: Release) -> None:
    notes = release.install(VALUES)
    assert "Shares of GPUs: annotate a pod with gpu-fraction" in notes
    prepare(plane)
    release.run()
    async with scene(plane, "team", ["1x2x80GiB"]) as it:
        await let_in(it, "first", "0.5")
        first = (await it.running(1))["first"]
        assert release.is_ready("scheduler")
        assert release.is_ready("binder")

        release.upgrade({**VALUES, "scheduler": {"placementStrategy": "spread"}})
        assert "--gpu-strategy=spread" in _arguments(release, "scheduler")
        release.run()
        await let_in(it, "second", "0.5")
        assert len(it.sharers(await it.running(2))) == 2

        release.roll_back()
        assert "--gpu-strategy=binpack" in _arguments(release, "scheduler")
        release.run()
        await let_in(it, "third", "0.5")
        shared = it.sharers(await it.running(3))
        assert sorted(map(len, shared.values())) == [1, 2]

        release.uninstall()
        assert release.everything() == KEPT
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


#: What a KAI that is stopped leaves, made by its operator or its own release (kai-contract 1.16, 6.1).
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
metadata: {name: default-queue, labels: {of: kai}}
spec: {parentQueue: theirs, resources: {gpu: {quota: 7, limit: 8, overQuotaWeight: 2}}}
"""


async def test_what_kai_left_is_neither_taken_over_nor_changed_nor_removed(
    plane: ControlPlane, release: Release
) -> None:
    for path in sorted((CHART / "crds").glob("*.yaml")):
        plane.apply(path.read_text())
    plane.apply(LEFT_BY_KAI)
    before = _of_kai(plane)
    release.install(VALUES)
    assert _of_kai(plane) == before
    prepare(plane)
    release.run()
    async with scene(plane, "team", ["1x1x80GiB"]) as it:
        await let_in(it, "first", "0.5")
        await it.running(1)
        await it.empty()
        release.uninstall()
        assert _of_kai(plane) == before


def _of_kai(plane: ControlPlane) -> list[tuple[str, str, str]]:
    """Kind, name and version of KAI's objects: the version changes with each write."""
    kinds = "namespaces,serviceaccounts,roles,rolebindings,priorityclasses,queues.scheduling.run.ai"
    listed = json.loads(plane.kubectl("get", kinds, "-A", "-l", "of=kai", "-o", "json"))["items"]
    return [(made["kind"], made["metadata"]["name"], made["metadata"]["resourceVersion"]) for made in listed]


def _arguments(release: Release, component: str) -> list[str]:
    assert component in COMPONENTS
    (container,) = release.deployment(component)["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments
