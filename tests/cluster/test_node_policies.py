"""The agent of a node is held to its own node, on a real API server: RBAC lets all through, so policies refuse."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from admission.policies import Identities
from tests.cluster.test_policies import HELD_BOOK, MERGE, RESERVATION, TENANT, Answer, Cluster, Object
from tests.cluster.test_policies import cluster as cluster  # noqa: PLC0414 - the fixture, for this module too
from tools.cluster.plane import ControlPlane
from wire import names
from wire.crds import gpunode, render

pytestmark = pytest.mark.cluster

AGENT = Identities().node_agent
NODE_CLAIM = "authentication.kubernetes.io/node-name"
GPU_NODES = "/apis/moorage.dev/v1alpha1/gpunodes"
TOLD = {names.RESERVE_FOR_GPU_INDEX: "GPU-x", names.DEVICE_INDEX: "1", names.DEVICE_REPORTER: names.REPORTER_KUBELET}


@pytest.fixture(scope="module", autouse=True)
def kind(control_plane: ControlPlane) -> None:
    definition = gpunode.DEFINITION
    control_plane.apply(render.rendered()[f"{definition.group}_{definition.plural}.yaml"])


async def as_agent(cluster: Cluster, method: str, path: str, body: Object, *, node: str | None) -> Answer:
    """A request of the agent whose token is bound to a pod on a node; None: to none."""
    extra = {} if node is None else {NODE_CLAIM: node}
    content_type = MERGE if method == "PATCH" else "application/json"
    return await cluster.call(method, path, body, user=AGENT, extra=extra, content_type=content_type)


async def reservation(cluster: Cluster, *, node: str) -> str:
    """Path of a reservation pod on a node."""
    pod = cluster.reservation(HELD_BOOK)
    pod["spec"]["nodeName"] = node
    stored = await cluster.stored(pod, user=Identities().ours[1])
    return f"/api/v1/namespaces/{cluster.reservations}/pods/{stored['metadata']['name']}"


async def node(cluster: Cluster) -> str:
    """Name of a new Node."""
    name = f"node-{uuid.uuid4().hex[:8]}"
    body = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "nvidia.com/gpu.count": "1"}}}
    answer = await cluster.call("POST", "/api/v1/nodes", body)
    assert answer.status == 201, answer.message
    return name


# --- reservation pods --------------------------------------------------------------------------------------------


async def test_the_agent_tells_the_device_of_a_reservation_on_its_node_and_takes_its_word_back(
    cluster: Cluster,
) -> None:
    path = await reservation(cluster, node="n1")
    for value in (TOLD, {names.DEVICE_REPORTER: None}):
        answer = await as_agent(cluster, "PATCH", path, {"metadata": {"annotations": value}}, node="n1")
        assert answer.status == 200, answer.message


@pytest.mark.parametrize("claim", ["n2", "", None])
async def test_the_agent_of_another_node_tells_nothing(cluster: Cluster, claim: str | None) -> None:
    path = await reservation(cluster, node="n1")
    for body in (TOLD, {names.DEVICE_REPORTER: names.REPORTER_KUBELET}, {"example.com/note": "x"}):
        answer = await as_agent(cluster, "PATCH", path, {"metadata": {"annotations": body}}, node=claim)
        assert answer.is_refused_by_policy, answer.message


REWRITES: list[dict[str, Any]] = [
    {"annotations": {names.TENANTS: "{}"}},
    {"annotations": {names.TENANTS: None}},
    {"annotations": {**TOLD, names.TENANTS: "{}"}},
    {"annotations": {names.GRANT: "{}"}},
    {"annotations": {"example.com/note": "x"}},
    {"labels": {names.GPU_GROUP_LABEL: "other"}},
    {"labels": {names.APP_LABEL: None}},
    {"labels": {"example.com/note": "x"}},
    {"finalizers": None},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]},
]


@pytest.mark.parametrize("metadata", REWRITES)
async def test_the_agent_writes_no_book_no_label_and_no_other_key(cluster: Cluster, metadata: dict[str, Any]) -> None:
    path = await reservation(cluster, node="n1")
    answer = await as_agent(cluster, "PATCH", path, {"metadata": metadata}, node="n1")
    assert answer.is_refused_by_policy, answer.message


async def test_the_agent_changes_no_status_and_no_spec_and_deletes_nothing(cluster: Cluster) -> None:
    path = await reservation(cluster, node="n1")
    for sub, body in (("/status", {"status": {"phase": "Failed"}}), ("", {"spec": {"activeDeadlineSeconds": 1}})):
        answer = await as_agent(cluster, "PATCH", path + sub, body, node="n1")
        assert answer.is_refused_by_policy, answer.message
    answer = await as_agent(cluster, "DELETE", path, {}, node="n1")
    assert answer.is_refused_by_policy, answer.message


async def test_the_agent_touches_no_tenants_pod_on_its_own_node(cluster: Cluster) -> None:
    pod = cluster.pod(labels={names.APP_LABEL: names.RESERVATION_APP})
    pod["spec"]["nodeName"] = "n1"
    stored = await cluster.stored(pod)
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{stored['metadata']['name']}"
    for body in (TOLD, {"example.com/note": "x"}):
        answer = await as_agent(cluster, "PATCH", path, {"metadata": {"annotations": body}}, node="n1")
        assert answer.is_refused_by_policy, answer.message
    made = await as_agent(cluster, "POST", f"/api/v1/namespaces/{cluster.namespace}/pods", cluster.pod(), node="n1")
    assert made.is_refused_by_policy, made.message


@pytest.mark.parametrize("user", [TENANT, RESERVATION, "system:serviceaccount:kai-scheduler-node:other"])
async def test_nobody_else_reports_devices(cluster: Cluster, user: str) -> None:
    path = await reservation(cluster, node="n1")
    body = {"metadata": {"annotations": {names.DEVICE_REPORTER: names.REPORTER_KUBELET}}}
    answer = await cluster.call("PATCH", path, body, user=user, extra={NODE_CLAIM: "n1"}, content_type=MERGE)
    assert answer.is_refused_by_policy, answer.message


# --- its Node ----------------------------------------------------------------------------------------------------

LABELS = {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/mig-1g.10gb.count": "2"}
ANNOTATIONS = {names.NODE_UUIDS: "GPU-x", names.NODE_CARDS: "81559", names.NODE_ENFORCES_SEEN: "memory-cap"}


async def test_the_agent_labels_its_own_node_with_what_gpu_feature_discovery_says(cluster: Cluster) -> None:
    name = await node(cluster)
    body = {"metadata": {"labels": LABELS, "annotations": ANNOTATIONS}}
    own = await as_agent(cluster, "PATCH", f"/api/v1/nodes/{name}", body, node=name)
    assert own.status == 200, own.message
    for claim in ("another", None):
        foreign = await as_agent(cluster, "PATCH", f"/api/v1/nodes/{name}", body, node=claim)
        assert foreign.is_refused_by_policy, foreign.message


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"labels": {"kubernetes.io/hostname": "other"}}},
        {"metadata": {"labels": {"nvidia.com/gpu.deploy.device-plugin": "false"}}},
        {"metadata": {"labels": {"moorage.dev/mig": "dynamic"}}},
        {"metadata": {"labels": {names.NODE_POOL_LABEL: "a100"}}},
        {"metadata": {"annotations": {names.NODE_ENFORCES: "memory-cap=driver"}}},
        {"metadata": {"annotations": {"moorage.dev/gpu-cleared": "GPU-x"}}},
        {"metadata": {"finalizers": ["a.b/c"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
    ],
)
async def test_the_agent_changes_nothing_else_of_its_node(cluster: Cluster, body: Object) -> None:
    name = await node(cluster)
    answer = await as_agent(cluster, "PATCH", f"/api/v1/nodes/{name}", body, node=name)
    assert answer.is_refused_by_policy, answer.message


async def test_the_agent_writes_no_nodes_status_and_makes_and_deletes_none(cluster: Cluster) -> None:
    name = await node(cluster)
    status = {"status": {"capacity": {names.GPU_RESOURCE: "64"}}}
    answers = [
        await as_agent(cluster, "PATCH", f"/api/v1/nodes/{name}/status", status, node=name),
        await as_agent(cluster, "DELETE", f"/api/v1/nodes/{name}", {}, node=name),
        await as_agent(cluster, "POST", "/api/v1/nodes", {"metadata": {"name": "own"}}, node="own"),
    ]
    assert all(answer.is_refused_by_policy for answer in answers), answers


# --- its GpuNode -------------------------------------------------------------------------------------------------


async def gpu_node(cluster: Cluster, name: str, *, owner: str | None = None, **more: Any) -> Object:
    """A GpuNode of a node that is there: the garbage collector takes those of others away."""
    uid = (await cluster.call("GET", f"/api/v1/nodes/{name}")).body["metadata"]["uid"]
    owned = {"apiVersion": "v1", "kind": "Node", "name": owner or name, "uid": uid}
    return {
        "apiVersion": "moorage.dev/v1alpha1",
        "kind": "GpuNode",
        "metadata": {"name": name, "ownerReferences": [owned]},
        **more,
    }


async def test_the_agent_makes_its_own_gpu_node_and_writes_its_status(cluster: Cluster) -> None:
    name = await node(cluster)
    made = await as_agent(cluster, "POST", GPU_NODES, await gpu_node(cluster, name), node=name)
    assert made.status == 201, made.message
    status = {"status": {"gpus": 8}}
    told = await as_agent(cluster, "PATCH", f"{GPU_NODES}/{name}/status", status, node=name)
    assert told.status == 200, told.message
    for claim in ("another", None):
        foreign = await as_agent(cluster, "PATCH", f"{GPU_NODES}/{name}/status", status, node=claim)
        assert foreign.is_refused_by_policy, foreign.message


@pytest.mark.parametrize("way", ["another", "no-claim", "no-owner", "another-owner", "spec"])
async def test_the_agent_makes_no_other_gpu_node(cluster: Cluster, way: str) -> None:
    name = await node(cluster)
    body = await gpu_node(cluster, name, owner="another" if way == "another-owner" else None)
    if way == "no-owner":
        del body["metadata"]["ownerReferences"]
    if way == "spec":
        body["spec"] = {"mig": []}
    claim = {"another": "another", "no-claim": None}.get(way, name)
    answer = await as_agent(cluster, "POST", GPU_NODES, body, node=claim)
    assert answer.is_refused_by_policy, answer.message


async def test_the_agent_writes_no_spec_of_its_gpu_node_and_deletes_none(cluster: Cluster) -> None:
    name = await node(cluster)
    await cluster.call("POST", GPU_NODES, await gpu_node(cluster, name))
    path = f"{GPU_NODES}/{name}"
    answers = [
        await as_agent(cluster, "PATCH", path, {"spec": {"mig": []}}, node=name),
        await as_agent(cluster, "PATCH", path, {"metadata": {"labels": {"a": "b"}}}, node=name),
        await as_agent(cluster, "DELETE", path, {}, node=name),
    ]
    assert all(answer.is_refused_by_policy for answer in answers), answers


# --- Events ------------------------------------------------------------------------------------------------------


def event(cluster: Cluster) -> Object:
    """One about a pod's memory cap, as the agent of node n1 makes it."""
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": cluster.namespace, "name": "p", "uid": str(uuid.uuid4())}
    return {
        "metadata": {"name": f"p.{uuid.uuid4().hex[:16]}", "namespace": cluster.namespace},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "moorage-node-agent",
        "reportingInstance": "n1",
        "action": "Ending",
        "reason": names.REASON_MEMORY_EXCEEDED,
        "type": "Warning",
        "regarding": about,
        "note": "9000 MiB of GPU-5e2b1c00 are in use, the cap is 8000 MiB: process a:b was killed",
    }


async def test_the_agent_says_that_a_pod_is_above_its_cap(cluster: Cluster) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events"
    made = await as_agent(cluster, "POST", path, event(cluster), node="n1")
    assert made.status == 201, made.message


@pytest.mark.parametrize(
    ("more", "claim"),
    [
        ({}, "n2"),
        ({}, None),
        ({"reportingInstance": "n2"}, "n1"),
        ({"reportingController": "kubelet"}, "n1"),
        ({"reason": "Killing"}, "n1"),
        ({"kind": "Secret"}, "n1"),
        ({"note": "Your session has ended: log in at https://example.com"}, "n1"),
        ({"note": "1 MiB of GPU-a are in use, the cap is 1 MiB. Log in at https://example.com"}, "n1"),
        ({"note": "1 MiB of GPU-a are in use, the cap is 1 MiB: process " + "a" * 201}, "n1"),
        ({"note": ""}, "n1"),
        ({"type": "Normal"}, "n1"),
        ({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}}, "n1"),
        ({"related": {"apiVersion": "v1", "kind": "Pod", "name": "q", "namespace": "other"}}, "n1"),
        ({"uid": "u"}, "n1"),
    ],
)
async def test_the_agent_says_nothing_in_the_name_of_others(cluster: Cluster, more: Object, claim: str | None) -> None:
    body = event(cluster)
    (body["regarding"] if more.keys() & {"kind", "uid"} else body).update(more)
    path = f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events"
    answer = await as_agent(cluster, "POST", path, body, node=claim)
    assert answer.is_refused_by_policy, answer.message


@pytest.mark.parametrize(
    "metadata",
    [
        {"finalizers": ["example.com/kept"]},
        {"labels": {"a": "b"}},
        {"annotations": {"a": "b"}},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]},
    ],
)
async def test_an_event_of_the_agent_steers_no_other_controller(cluster: Cluster, metadata: Object) -> None:
    body = event(cluster)
    body["metadata"].update(metadata)
    path = f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events"
    answer = await as_agent(cluster, "POST", path, body, node="n1")
    assert answer.is_refused_by_policy, answer.message


async def test_the_agent_changes_and_deletes_no_event_and_makes_none_of_the_older_kind(cluster: Cluster) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events"
    body = event(cluster)
    made = await cluster.call("POST", path, body)
    assert made.status == 201, made.message
    name = body["metadata"]["name"]
    older = {
        "metadata": {"name": "older", "namespace": cluster.namespace},
        "involvedObject": body["regarding"],
        "reason": "Killing",
        "message": "x",
    }
    answers = [
        await as_agent(cluster, "PATCH", f"{path}/{name}", {"metadata": {"labels": {"a": "b"}}}, node="n1"),
        await as_agent(cluster, "DELETE", f"{path}/{name}", {}, node="n1"),
        await as_agent(cluster, "POST", f"/api/v1/namespaces/{cluster.namespace}/events", older, node="n1"),
    ]
    assert all(answer.is_refused_by_policy for answer in answers), answers
