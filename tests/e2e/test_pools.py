"""Two schedulers of two node pools on the real control plane, each with its own lease: one is killed, a node moves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, Pod, Scene, eventually, pod, scene, share
from tests.e2e.judge import judged
from tools import manifests
from tools.cluster.deployment import ADMISSION, BINDER, SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SAFE = ("S1", "S2", "S3", "S4", "S5")
LABEL = {names.NODE_POOL_LABEL: "a"}
#: The process that is the scheduler of pool ``a``.
OTHER = "scheduler-2"
#: A node that joins takes nobody for 15 s.
_SETTLES_WITHIN_S = PATIENCE_S


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of their own: one cluster has one Moorage."""
    with ControlPlane() as started:
        yield started


@pytest.fixture(scope="module")
def divided(plane: ControlPlane) -> Iterator[Deployment]:
    """A scheduler for objects without the label, and one for those of pool ``a``."""
    options = Options(arguments={BINDER: ["--idle-s", "1"]}, components=(ADMISSION, BINDER, SCHEDULER))
    with Deployment(plane, options) as deployment:
        for each in (_role(), _binding(), manifests.lease("scheduler-a")):
            plane.apply(json.dumps(each))
        deployment.start(OTHER, "--partition-label-value=a")
        yield deployment
        deployment.check()


def _role() -> dict[str, Any]:
    """As the chart's moorage-scheduler-pools."""
    verbs = ["get", "patch"]
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["moorage-scheduler-a"]}
    metadata = {"name": "moorage-scheduler-pools", "namespace": names.SYSTEM_NAMESPACE}
    rbac = "rbac.authorization.k8s.io/v1"
    names_of = ["moorage-queue-use-a", "moorage-nominations-a", *(f"moorage-evictions-{piece}-a" for piece in range(8))]
    records = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": names_of}
    rules = [{**each, "verbs": verbs} for each in (lease, records)]
    return {"apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": rules}


def _binding() -> dict[str, Any]:
    metadata, group = _role()["metadata"], "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": "moorage-scheduler", "namespace": names.SYSTEM_NAMESPACE}
    role = {"apiGroup": group, "kind": "Role", "name": metadata["name"]}
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": role,
        "subjects": [account],
    }


_QUEUES = ("scheduling.run.ai", "v2", "queues")


async def _queue(plane: ControlPlane, name: str, labels: dict[str, str]) -> None:
    free = {kind: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for kind in ("cpu", "memory", "gpu")}
    queue = {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name, "labels": labels},
        "spec": {"resources": free},
    }
    await anyio.to_thread.run_sync(plane.apply, json.dumps(queue))


@pytest.fixture
async def stage(plane: ControlPlane, divided: Deployment) -> AsyncIterator[Scene]:
    """Two machines, the second of pool ``a``; nothing may be over-committed."""
    async with scene(plane, "pools", ["2x6x80GiB"]) as made, judged(plane, made, *SAFE):
        await _move(made, 1, "a")
        yield made
        await _move(made, 1, None)
        await made.empty()


async def _move(made: Scene, number: int, pool: str | None) -> None:
    labels = {"metadata": {"labels": {names.NODE_POOL_LABEL: pool}}}
    await made.core.patch_node(f"{made.namespace}-{number}", labels)


def _of_a(wanted: Pod) -> Pod:
    wanted["metadata"]["labels"] = {**wanted["metadata"].get("labels", {}), **LABEL}
    return wanted


async def _bound(made: Scene, *pods: Pod) -> dict[str, str]:
    """Create pods and wait until they are bound; their nodes."""
    await made.create(*pods)
    wanted = {each["metadata"]["name"] for each in pods}

    async def all_bound() -> dict[str, str] | None:
        found = {name: each["spec"].get("nodeName", "") for name, each in (await made.pods()).items()}
        there = {name: found.get(name, "") for name in wanted}
        return there if all(there.values()) else None

    return await eventually(all_bound, f"{sorted(wanted)} to be bound", within_s=_SETTLES_WITHIN_S)


async def test_two_schedulers_share_a_cluster_and_a_node_moves_between_them(
    plane: ControlPlane, divided: Deployment, stage: Scene
) -> None:
    first, second = f"{stage.namespace}-0", f"{stage.namespace}-1"
    # Each binds its own, whole GPUs and shares.
    nodes = await _bound(
        stage, pod("p", gpus=1), share("s", "0.5"), _of_a(pod("pa", gpus=1)), _of_a(share("sa", "0.5"))
    )
    assert nodes == {"p": first, "s": first, "pa": second, "sa": second}
    leases = await client.CoordinationV1Api(stage.core.api_client).list_namespaced_lease(names.SYSTEM_NAMESPACE)
    holders = {each.metadata.name: each.spec.holder_identity for each in leases.items}
    assert holders["moorage-scheduler"] != holders["moorage-scheduler-a"]
    assert holders["moorage-scheduler-a"]
    listed = await client.EventsV1Api(stage.core.api_client).list_namespaced_event(stage.namespace)
    notes = {event.regarding.name: event.note for event in listed.items if event.reason == "Scheduled"}
    assert notes["pa"].endswith("at node-pool a")
    assert notes["p"].endswith("at node-pool default")

    # One says why its pod waits, and the other nothing.
    await stage.create(_of_a(pod("large", gpus=6)))
    await stage.says("large", "1 node(s) were in another node pool")
    await stage.delete("large")
    await stage.gone(["large"])

    # A queue of pool ``a`` is known to the other scheduler by name.
    await _queue(plane, "of-a", LABEL)
    await _queue(plane, "default-queue", {})
    wrong = pod("wrong", gpus=1)
    wrong["metadata"]["labels"] = {names.QUEUE_LABEL: "of-a"}
    await stage.create(wrong)
    await stage.says("wrong", "Queue of-a belongs to node pool a; the pod is in default")
    await stage.delete("wrong")
    await stage.gone(["wrong"])
    for queue in ("of-a", "default-queue"):
        await client.CustomObjectsApi(stage.core.api_client).delete_cluster_custom_object(*_QUEUES, queue)

    # The other one is killed: pool ``a`` does not notice.
    await anyio.to_thread.run_sync(divided.kill, SCHEDULER)
    assert {*(await _bound(stage, _of_a(pod("qa", gpus=1)), _of_a(share("ta", "0.5")))).values()} == {second}
    await stage.create(pod("q", gpus=1))
    divided.start(SCHEDULER)
    assert await _bound(stage, pod("r", gpus=1)) == {"r": first}

    # A node with pods of both kinds moves, while pods of both pools come.
    await stage.running(8)
    await stage.create(pod("u", gpus=1), *(_of_a(share(f"v{number}", "0.5")) for number in range(3)))
    await _move(stage, 0, "a")
    late = await _bound(stage, *(_of_a(share(f"w{number}", "0.25")) for number in range(4)))
    assert {*late.values()} <= {first, second}
    running = await stage.running(15, within_s=PATIENCE_S)
    # What ran there runs on, and nobody was refused by a machine.
    assert {running[name]["spec"]["nodeName"] for name in ("p", "s", "r")} == {first}
    assert stage.refusals() == []
    divided.check()
