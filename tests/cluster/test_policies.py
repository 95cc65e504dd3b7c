"""The admission policies on a real API server: who may write what, without any webhook running."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest

from admission.policies import Identities, policy_manifests
from gpu import book
from gpu.book import Book, Entry
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

SCHEDULER, BINDER = Identities().ours
RESERVATION = Identities().reservation
AGENT = Identities().node_agent
TENANT = "alice"
#: In the group of kubelets, but not named like one, so that it is our policy that judges and not NodeRestriction.
NODE = "node-agent"
TELLER = "system:serviceaccount:gpu-operator:status-updater"

MERGE = "application/merge-patch+json"
HELD_BOOK = book.render(Book({"u1": Entry(nano=500_000_000, attempt="a", rv="1", since=0, pod="ns/p")}))
EMPTY_BOOK = book.render(book.EMPTY)


class Answer(msgspec.Struct):
    status: int
    body: Object

    @property
    def is_refused_by_policy(self) -> bool:
        """RBAC and the server's own validation refuse as well, but are not meant here."""
        return self.status == 403 and "ValidatingAdmissionPolicy 'moorage-" in self.message

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


class Cluster:
    """Requests as anybody: RBAC lets all of them through (system:masters), so what refuses is a policy."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, namespace: str, reservations: str, of_team_a: str
    ) -> None:
        self._session = session
        self._url = url
        self.namespace = namespace
        self.reservations = reservations
        #: Its pods may be in queue team-a only, and could never be in another: policies read namespaces late.
        self.of_team_a = of_team_a

    async def call(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        user: str = "",
        extra: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        headers = [("Content-Type", content_type)]
        if user:
            groups = ["system:masters", "system:nodes"] if user == NODE else ["system:masters"]
            headers += [("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups)]
        headers += [("Impersonate-Extra-" + key.replace("/", "%2F"), value) for key, value in (extra or {}).items()]
        data = None if body is None else msgspec.json.encode(body)
        async with self._session.request(method, self._url + path, data=data, headers=headers) as response:
            return Answer(response.status, await response.json())

    async def create_pod(self, pod: Object, *, user: str = TENANT) -> Answer:
        return await self.call("POST", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod, user=user)

    async def change(self, pod: Object, patch: Object, *, user: str, subresource: str = "", **claims: str) -> Answer:
        extra = {f"authentication.kubernetes.io/{key.replace('_', '-')}": value for key, value in claims.items()}
        path = _path(pod) + (f"/{subresource}" if subresource else "")
        return await self.call("PATCH", path, patch, user=user, extra=extra, content_type=MERGE)

    async def delete(self, pod: Object, *, user: str) -> Answer:
        return await self.call("DELETE", _path(pod), {"gracePeriodSeconds": 0}, user=user)

    def pod(self, **metadata: Any) -> Object:
        """A pod of ours in the tenant's namespace."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p-{uuid.uuid4().hex[:8]}", "namespace": self.namespace, **metadata},
            "spec": {
                "schedulerName": names.SCHEDULER_NAME,
                "automountServiceAccountToken": False,
                "containers": [{"name": "main", "image": "cuda"}],
            },
        }

    def reservation(self, tenants: str) -> Object:
        """A reservation pod with that book."""
        pod = self.pod(
            labels={names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: "g1"},
            annotations={names.TENANTS: tenants},
        )
        pod["metadata"]["namespace"] = self.reservations
        pod["metadata"]["finalizers"] = [names.BOOK_FINALIZER]
        pod["spec"]["schedulerName"] = "default-scheduler"
        return pod

    async def stored(self, pod: Object, *, user: str = TENANT) -> Object:
        answer = await self.create_pod(pod, user=user)
        assert answer.status == 201, answer.message
        return answer.body

    async def bound(self, **annotations: str) -> Object:
        """A pod of ours, bound with a grant as the binder does it."""
        pod = await self.stored(self.pod(annotations=annotations))
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": pod["metadata"]["name"],
                "labels": {names.GPU_GROUP_LABEL: "g1"},
                "annotations": {names.GRANT: "{}", names.RECEIVED_RESOURCE_TYPE: names.RECEIVED_FRACTION},
            },
            "target": {"kind": "Node", "name": "n1"},
        }
        answer = await self.call("POST", _path(pod) + "/binding", binding, user=BINDER)
        assert answer.status == 201, answer.message
        return (await self.call("GET", _path(pod))).body


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


_KINDS = {
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}


def _scoped(manifest: Object, mark: str, namespaces: list[str]) -> Object:
    """Rename a policy or binding, and let the binding hold in these namespaces only: other tests share the server."""
    named = {**manifest, "metadata": {"name": f"{manifest['metadata']['name']}-{mark}"}}
    if manifest["kind"] != "ValidatingAdmissionPolicyBinding":
        return named
    only = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}]}
    policy = f"{manifest['spec']['policyName']}-{mark}"
    return {**named, "spec": {**manifest["spec"], "policyName": policy, "matchResources": {"namespaceSelector": only}}}


@pytest.fixture(scope="module")
async def cluster(control_plane: ControlPlane) -> AsyncIterator[Cluster]:
    """A tenant's namespace, one for reservations and one that is bound to a queue, all guarded."""
    mark = uuid.uuid4().hex[:8]
    spaces = [f"tenant-{mark}", f"reservations-{mark}", f"of-team-a-{mark}"]
    tls = ssl.create_default_context(cadata=control_plane.ca_pem)
    manifests = policy_manifests(Identities(device_tellers=(TELLER,)), reservation_namespace=spaces[1])
    ours = [_scoped(manifest, mark, spaces) for manifest in manifests if manifest["kind"] in _KINDS]
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls),
        headers={"Authorization": f"Bearer {control_plane.token}"},
        timeout=aiohttp.ClientTimeout(total=120),
    ) as session:
        world = Cluster(session, control_plane.url, *spaces)
        for space in spaces:
            annotations = {names.QUEUES: "team-a"} if space == world.of_team_a else {}
            made = {"metadata": {"name": space, "annotations": annotations}}
            assert (await world.call("POST", "/api/v1/namespaces", made)).status == 201
            await _service_account(world, space)
        for manifest in ours:
            answer = await world.call("POST", _KINDS[manifest["kind"]], manifest)
            assert answer.status == 201, answer.message
        await _in_force(world)
        yield world
        for manifest in ours:
            await world.call("DELETE", f"{_KINDS[manifest['kind']]}/{manifest['metadata']['name']}")


async def _service_account(world: Cluster, namespace: str) -> None:
    """Pods need one; where no controller makes it, we do."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    answer = await world.call("POST", path, {"metadata": {"name": "default"}})
    assert answer.status in {201, 409}, answer.message


async def _in_force(world: Cluster) -> None:
    """Wait until each policy refuses what it must: the API server takes a moment to see them."""
    forged = world.pod(labels={names.GPU_GROUP_LABEL: "g1"})
    look_alike = world.pod(labels={names.APP_LABEL: names.RESERVATION_APP})
    look_alike["metadata"]["namespace"] = world.reservations
    queued = world.pod(labels={names.QUEUE_LABEL: "team-b"})
    queued["metadata"]["namespace"] = world.of_team_a
    probe = await world.stored(world.pod(annotations={names.SHARED_GPU_CONFIGMAP: "x"}))
    change = {"metadata": {"annotations": {names.SHARED_GPU_CONFIGMAP: "y"}}}
    with anyio.fail_after(120):
        while True:
            dry = [
                await world.call(
                    "POST", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods?dryRun=All", pod, user=TENANT
                )
                for pod in (forged, look_alike, queued)
            ]
            dry.append(await _make_set(world, {names.BATCH_MIN_MEMBER: "2"}, is_dry=True))
            dry.append(await world.call("PATCH", _path(probe) + "?dryRun=All", change, user=TENANT, content_type=MERGE))
            if all(answer.is_refused_by_policy for answer in dry):
                return
            await anyio.sleep(0.1)


PROTECTED_METADATA = [
    ("annotations", names.GRANT),
    ("annotations", names.CHARGED),
    ("annotations", names.FENCED),
    ("annotations", names.FENCED_BECAUSE),
    ("annotations", names.TENANTS),
    ("annotations", names.SCALES_FOR),
    ("annotations", names.RECEIVED_RESOURCE_TYPE),
    ("annotations", names.GPU_PORTION_ANNOTATION),
    ("annotations", names.VISIBLE_DEVICES_PREFIX + "c0"),
    ("annotations", "nvidia.com/container.main.gpus.devices"),
    ("labels", names.GPU_GROUP_LABEL),
    ("labels", names.MULTI_GPU_GROUP_LABEL_PREFIX + "g1"),
]


@pytest.mark.parametrize(("field", "key"), PROTECTED_METADATA)
@pytest.mark.parametrize("subresource", ["", "status"])
async def test_nobody_else_adds_a_protected_key(cluster: Cluster, field: str, key: str, subresource: str) -> None:
    pod = await cluster.stored(cluster.pod())
    answer = await cluster.change(pod, {"metadata": {field: {key: "g1"}}}, user=TENANT, subresource=subresource)
    assert answer.is_refused_by_policy, answer.message
    assert f"only the scheduler and the binder may write {key}" in answer.message


@pytest.mark.parametrize(("field", "key"), PROTECTED_METADATA)
async def test_nobody_creates_a_pod_with_a_protected_key(cluster: Cluster, field: str, key: str) -> None:
    pod = cluster.pod(**{field: {key: "g1"}})
    pod["spec"]["schedulerName"] = "default-scheduler"
    assert (await cluster.create_pod(pod)).is_refused_by_policy


@pytest.mark.parametrize(("field", "key"), PROTECTED_METADATA)
async def test_the_binder_writes_every_protected_key(cluster: Cluster, field: str, key: str) -> None:
    pod = await cluster.stored(cluster.pod())
    answer = await cluster.change(pod, {"metadata": {field: {key: "g1"}}}, user=BINDER)
    assert answer.status == 200, answer.message


async def test_an_administrator_of_queues_rewrites_the_queue_of_a_placed_pod_and_nothing_else(cluster: Cluster) -> None:
    """The same of a tenant is refused: tests/attacks/test_forgery.py."""
    wanted = await cluster.stored(cluster.pod())
    charge = {names.CHARGED: '{"queue":"gone","preemptible":true}'}
    assert (await cluster.change(wanted, {"metadata": {"annotations": charge}}, user=BINDER)).status == 200
    moved = {names.CHARGED: '{"queue":"team-a","preemptible":true}'}
    for refused in ({names.CHARGED: None}, moved | {names.GRANT: "{}"}):
        answer = await cluster.change(wanted, {"metadata": {"annotations": refused}}, user=TENANT)
        assert answer.is_refused_by_policy, answer.message
    answer = await cluster.change(wanted, {"metadata": {"annotations": moved}}, user=TENANT)
    assert answer.status == 200, answer.message
    assert answer.body["metadata"]["annotations"][names.CHARGED] == moved[names.CHARGED]


@pytest.mark.parametrize("value", ["g2", None])
@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize(("field", "key"), [("labels", names.GPU_GROUP_LABEL), ("annotations", names.GRANT)])
async def test_what_a_bound_pod_was_given_is_neither_changed_nor_removed(
    cluster: Cluster, field: str, key: str, subresource: str, value: str | None
) -> None:
    pod = await cluster.bound()
    answer = await cluster.change(pod, {"metadata": {field: {key: value}}}, user=TENANT, subresource=subresource)
    assert answer.is_refused_by_policy, answer.message
    assert key in answer.message


@pytest.mark.parametrize("way", ["pods/{}/binding", "bindings"])
async def test_a_binding_of_somebody_else_carries_no_protected_key(cluster: Cluster, way: str) -> None:
    pod = await cluster.stored(cluster.pod())
    name = pod["metadata"]["name"]
    path = f"/api/v1/namespaces/{cluster.namespace}/{way.format(name)}"
    target = {"kind": "Node", "name": "n1"}
    for field, key in PROTECTED_METADATA:
        forged = {"metadata": {"name": name, field: {key: "g1"}}, "target": target}
        refused = await cluster.call("POST", path, forged, user=TENANT)
        assert refused.is_refused_by_policy, refused.message
        assert f"only the scheduler and the binder may write {key}" in refused.message
    assert "nodeName" not in (await cluster.call("GET", _path(pod))).body["spec"]
    plain = {"metadata": {"name": name}, "target": target}
    assert (await cluster.call("POST", path, plain, user=TENANT)).status == 201


async def test_a_binding_makes_no_reservation_pod(cluster: Cluster) -> None:
    plain = cluster.pod()
    plain["metadata"]["namespace"] = cluster.reservations
    pod = await cluster.stored(plain)
    binding = {
        "metadata": {"name": pod["metadata"]["name"], "labels": {names.APP_LABEL: names.RESERVATION_APP}},
        "target": {"kind": "Node", "name": "n1"},
    }
    for way in (f"pods/{pod['metadata']['name']}/binding", "bindings"):
        path = f"/api/v1/namespaces/{cluster.reservations}/{way}"
        refused = await cluster.call("POST", path, binding, user=TENANT)
        assert "reservation pods are made by the binder only" in refused.message


@pytest.mark.parametrize(("queue", "is_let_in"), [("team-b", False), ("team-a", True), ("", True)])
async def test_a_binding_names_no_queue_that_its_namespace_is_not_bound_to(
    cluster: Cluster, queue: str, is_let_in: bool
) -> None:
    space = f"/api/v1/namespaces/{cluster.of_team_a}"
    for way in ("pods/{}/binding", "bindings"):
        pod = cluster.pod(labels={names.QUEUE_LABEL: "team-a"})
        pod["metadata"]["namespace"] = cluster.of_team_a
        name = (await cluster.stored(pod))["metadata"]["name"]
        labels = {"labels": {names.QUEUE_LABEL: queue}} if queue else {}
        binding = {"metadata": {"name": name, **labels}, "target": {"kind": "Node", "name": "n1"}}
        answer = await cluster.call("POST", f"{space}/{way.format(name)}", binding, user=TENANT)
        assert answer.status == 201 if is_let_in else answer.is_refused_by_policy, answer.message


#: Label or annotation by which a pod counts -> its value when it was placed.
COUNTED = {
    names.QUEUE_LABEL: "a",
    names.PROJECT_LABEL: "a",
    names.PREEMPTIBILITY_LABEL: "preemptible",
    names.NODE_POOL_LABEL: "a100",
    names.POD_GROUP_NAME: "g",
}


@pytest.mark.parametrize("value", ["b", None], ids=["changed", "removed"])
@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize("key", COUNTED)
async def test_nobody_changes_what_a_placed_pod_counts_by(
    cluster: Cluster, key: str, subresource: str, value: str | None
) -> None:
    field = "annotations" if key == names.POD_GROUP_NAME else "labels"
    wanted = cluster.pod(**{field: {key: COUNTED[key]}})
    change = {"metadata": {field: {key: value}}}
    waits = await cluster.stored(wanted)
    assert (await cluster.change(waits, change, user=TENANT, subresource=subresource)).status == 200
    wanted["metadata"]["name"] += "-placed"
    wanted["spec"]["nodeName"] = "n1"
    placed = await cluster.stored(wanted)
    for user in (TENANT, BINDER):
        answer = await cluster.change(placed, change, user=user, subresource=subresource)
        assert answer.is_refused_by_policy, answer.message
        assert f"{key} can not be changed any more: the pod is placed" in answer.message


async def test_a_placed_pod_is_given_no_queue_and_may_be_given_a_podgroup(cluster: Cluster) -> None:
    pod = await cluster.bound()
    for key in COUNTED:
        field = "annotations" if key == names.POD_GROUP_NAME else "labels"
        answer = await cluster.change(pod, {"metadata": {field: {key: "b"}}}, user=TENANT)
        assert answer.status == 200 if field == "annotations" else answer.is_refused_by_policy, answer.message


@pytest.mark.parametrize(
    ("labels", "group", "node", "refused_by"),
    [
        ({names.QUEUE_LABEL: "team-a"}, "", "", ""),
        ({names.PROJECT_LABEL: "team-a"}, "", "", ""),
        ({names.QUEUE_LABEL: "team-a", names.PROJECT_LABEL: "team-b"}, "", "", ""),
        ({}, "g", "", ""),
        ({names.QUEUE_LABEL: "team-a"}, "g", "n1", ""),
        ({}, "", "", names.QUEUE_LABEL),
        ({names.QUEUE_LABEL: "team-b"}, "g", "", names.QUEUE_LABEL),
        ({names.PROJECT_LABEL: "team-b"}, "", "", names.PROJECT_LABEL),
        ({names.PROJECT_LABEL: "chatbot"}, "g", "", ""),
        ({names.PROJECT_LABEL: "team-b"}, "nothing", "n1", names.PROJECT_LABEL),
        ({}, "nothing", "n1", names.QUEUE_LABEL),
    ],
)
async def test_a_pod_of_a_bound_namespace_can_count_in_its_queues_only(
    cluster: Cluster, labels: dict[str, str], group: str, node: str, refused_by: str
) -> None:
    """Also where the PodGroup that it names does not exist: then its own labels count."""
    pod = cluster.pod(labels=labels, annotations={names.POD_GROUP_NAME: group} if group else {})
    pod["metadata"]["namespace"] = cluster.of_team_a
    pod["spec"]["nodeName"] = node
    answer = await cluster.create_pod(pod)
    assert answer.is_refused_by_policy if refused_by else answer.status == 201, answer.message
    assert not refused_by or f"label {refused_by} is" in answer.message


async def test_a_waiting_pod_of_a_bound_namespace_does_not_move_to_another_queue(cluster: Cluster) -> None:
    pod = cluster.pod(labels={names.QUEUE_LABEL: "team-a"})
    pod["metadata"]["namespace"] = cluster.of_team_a
    stored = await cluster.stored(pod)
    gone = {names.QUEUE_LABEL: None, names.PROJECT_LABEL: "victim"}
    refused = await cluster.change(stored, {"metadata": {"labels": gone}}, user=TENANT)
    assert refused.is_refused_by_policy, refused.message
    assert (await cluster.change(stored, {"metadata": {"finalizers": ["a.b/c"]}}, user=TENANT)).status == 200


async def test_the_project_of_a_waiting_pod_counts_again_when_it_leaves_its_podgroup(cluster: Cluster) -> None:
    pod = cluster.pod(labels={names.PROJECT_LABEL: "victim"}, annotations={names.POD_GROUP_NAME: "g"})
    pod["metadata"]["namespace"] = cluster.of_team_a
    stored = await cluster.stored(pod)
    left = {"metadata": {"annotations": {names.POD_GROUP_NAME: None}}}
    assert (await cluster.change(stored, left, user=TENANT)).is_refused_by_policy


@pytest.mark.parametrize("way", ["pods/{}/binding", "bindings"])
async def test_a_binding_names_no_foreign_project_beside_a_podgroup(cluster: Cluster, way: str) -> None:
    pod = cluster.pod(labels={names.QUEUE_LABEL: "team-a"})
    pod["metadata"]["namespace"] = cluster.of_team_a
    name = (await cluster.stored(pod))["metadata"]["name"]
    brought = {"labels": {names.PROJECT_LABEL: "victim"}, "annotations": {names.POD_GROUP_NAME: "nothing"}}
    binding = {"metadata": {"name": name, **brought}, "target": {"kind": "Node", "name": "n1"}}
    path = f"/api/v1/namespaces/{cluster.of_team_a}/{way.format(name)}"
    answer = await cluster.call("POST", path, binding, user=TENANT)
    assert answer.is_refused_by_policy, answer.message


async def test_a_project_that_never_counted_may_be_changed_on_a_placed_pod(cluster: Cluster) -> None:
    """A pod with a queue of its own, and one that counts by its PodGroup as we bound it."""
    queued = cluster.pod(labels={names.QUEUE_LABEL: "team-a", names.PROJECT_LABEL: "chatbot"})
    grouped = cluster.pod(labels={names.PROJECT_LABEL: "chatbot"}, annotations={names.POD_GROUP_NAME: "g"})
    for pod in (queued, grouped):
        pod["metadata"]["namespace"] = cluster.of_team_a
        stored = await cluster.stored(pod)
        binding = {
            "metadata": {
                "name": stored["metadata"]["name"],
                "annotations": {names.CHARGED: '{"queue":"team-a","preemptible":true}'},
            },
            "target": {"kind": "Node", "name": "n1"},
        }
        assert (await cluster.call("POST", _path(stored) + "/binding", binding, user=BINDER)).status == 201
        for value in ("search", None):
            changed = {"metadata": {"labels": {names.PROJECT_LABEL: value}}}
            answer = await cluster.change(stored, changed, user=TENANT)
            assert answer.status == 200, answer.message


async def test_everything_else_of_a_bound_pod_stays_free(cluster: Cluster) -> None:
    pod = await cluster.bound(**{names.GPU_FRACTION: "0.5"})
    changes = {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}, "finalizers": ["a.b/c"]}}
    assert (await cluster.change(pod, changes, user=TENANT)).status == 200
    assert (await cluster.change(pod, {"metadata": {"finalizers": None}}, user=TENANT)).status == 200
    running = {"status": {"phase": "Running"}}
    assert (await cluster.change(pod, running, user=TENANT, subresource="status")).status == 200


@pytest.mark.parametrize(
    "key", [names.GPU_RECORD, names.SHARED_GPU_CONFIGMAP, "nvidia.cdi.k8s.io/container.main", "nvidia.cdi.k8s.io"]
)
@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize("user", [TENANT, BINDER])
@pytest.mark.parametrize(("before", "after"), [("a", "b"), ("a", None), (None, "b")], ids=["changed", "gone", "new"])
async def test_what_admission_wrote_nobody_changes(
    cluster: Cluster, key: str, subresource: str, user: str, before: str | None, after: str | None
) -> None:
    pod = await cluster.stored(cluster.pod(annotations={key: before} if before else {}))
    answer = await cluster.change(pod, {"metadata": {"annotations": {key: after}}}, user=user, subresource=subresource)
    assert answer.is_refused_by_policy, answer.message
    assert f"{key} is fixed when a pod is created" in answer.message


@pytest.mark.parametrize("way", ["pods/{}/binding", "bindings"])
async def test_a_binding_brings_no_record(cluster: Cluster, way: str) -> None:
    pod = await cluster.stored(cluster.pod(annotations={names.GPU_RECORD: "a"}))
    name = pod["metadata"]["name"]
    binding = {
        "metadata": {"name": name, "annotations": {names.GPU_RECORD: "b"}},
        "target": {"kind": "Node", "name": "n1"},
    }
    path = f"/api/v1/namespaces/{cluster.namespace}/{way.format(name)}"
    answer = await cluster.call("POST", path, binding, user=TENANT)
    assert answer.is_refused_by_policy, answer.message
    assert f"{names.GPU_RECORD} is fixed when a pod is created" in answer.message


ASKS = [
    (names.GPU_FRACTION, "0.1"),
    (names.GPU_FRACTION, None),
    (names.GPU_MEMORY, "100"),
    (names.GPU_FRACTION_NUM_DEVICES, "2"),
    (names.GPU_FRACTION_CONTAINER_NAME, "main"),
    (names.GPU_FRACTION_CONTAINER_TYPE, "InitContainer"),
    ("nvidia.com/mig-1g.5gb", "1"),
]


@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize("user", [TENANT, SCHEDULER])
@pytest.mark.parametrize(("key", "value"), ASKS)
async def test_asks_are_fixed_once_a_pod_is_placed(
    cluster: Cluster, key: str, value: str | None, user: str, subresource: str
) -> None:
    pod = await cluster.bound(**{names.GPU_FRACTION: "0.9"})
    answer = await cluster.change(pod, {"metadata": {"annotations": {key: value}}}, user=user, subresource=subresource)
    assert answer.is_refused_by_policy, answer.message
    assert f"{key} can not be changed any more" in answer.message


async def test_asks_may_change_while_a_pod_waits(cluster: Cluster) -> None:
    pod = await cluster.stored(cluster.pod(annotations={names.GPU_FRACTION: "0.9"}))
    answer = await cluster.change(pod, {"metadata": {"annotations": {names.GPU_FRACTION: "0.1"}}}, user=TENANT)
    assert answer.status == 200, answer.message


async def test_the_prefix_of_the_config_maps_is_fixed_at_creation(cluster: Cluster) -> None:
    pod = await cluster.stored(cluster.pod(annotations={names.SHARED_GPU_CONFIGMAP: "p-abc-shared-gpu"}))
    answer = await cluster.change(
        pod, {"metadata": {"annotations": {names.SHARED_GPU_CONFIGMAP: "other"}}}, user=TENANT
    )
    assert answer.is_refused_by_policy, answer.message


async def test_a_gated_pod_can_be_ungated(cluster: Cluster) -> None:
    pod = cluster.pod(annotations={names.GPU_FRACTION: "0.5"})
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    stored = await cluster.stored(pod)
    ungated = {"spec": {"schedulingGates": [], "nodeSelector": {"pool": "a"}}}
    answer = await cluster.change(stored, ungated, user="system:serviceaccount:kueue-system:kueue")
    assert answer.status == 200, answer.message


async def test_an_ephemeral_container_can_be_added_but_no_key_with_it(cluster: Cluster) -> None:
    pod = await cluster.bound()
    debug = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}}
    assert (await cluster.change(pod, debug, user=TENANT, subresource="ephemeralcontainers")).status == 200


async def test_only_we_make_reservation_pods(cluster: Cluster) -> None:
    refused = await cluster.create_pod(cluster.reservation(HELD_BOOK))
    assert refused.is_refused_by_policy, refused.message
    bare = cluster.reservation(EMPTY_BOOK)
    bare["metadata"] |= {"labels": {names.APP_LABEL: names.RESERVATION_APP}, "annotations": {}}
    refused = await cluster.create_pod(bare)
    assert "reservation pods are made by the binder only" in refused.message
    assert (await cluster.create_pod(cluster.reservation(HELD_BOOK), user=BINDER)).status == 201


async def test_a_reservation_pod_stays_one_and_others_do_not_become_one(cluster: Cluster) -> None:
    real = await cluster.stored(cluster.reservation(HELD_BOOK), user=BINDER)
    plain = cluster.pod()
    plain["metadata"]["namespace"] = cluster.reservations
    other = await cluster.stored(plain)
    for pod, label in ((real, None), (real, "x"), (other, names.RESERVATION_APP)):
        answer = await cluster.change(pod, {"metadata": {"labels": {names.APP_LABEL: label}}}, user=TENANT)
        assert answer.is_refused_by_policy, answer.message


@pytest.mark.parametrize("user", [TENANT, NODE, RESERVATION])
async def test_the_book_and_its_finalizer_are_ours(cluster: Cluster, user: str) -> None:
    pod = await cluster.stored(cluster.reservation(HELD_BOOK), user=BINDER)
    claims = {"pod_name": pod["metadata"]["name"], "pod_uid": pod["metadata"]["uid"]}
    for change in ({"annotations": {names.TENANTS: EMPTY_BOOK}}, {"finalizers": None}):
        assert (await cluster.change(pod, {"metadata": change}, user=user, **claims)).is_refused_by_policy


@pytest.mark.parametrize(
    ("user", "tenants", "allowed"),
    [
        (TENANT, HELD_BOOK, False),
        (TENANT, "", False),
        (TENANT, EMPTY_BOOK, True),
        (BINDER, HELD_BOOK, True),
        ("system:serviceaccount:kube-system:pod-garbage-collector", HELD_BOOK, True),
        ("system:serviceaccount:kube-system:namespace-controller", HELD_BOOK, True),
        (NODE, HELD_BOOK, True),
        (RESERVATION, EMPTY_BOOK, False),
    ],
)
async def test_a_reservation_pod_with_tenants_is_deleted_by_us_and_by_the_life_cycle_only(
    cluster: Cluster, user: str, tenants: str, allowed: bool
) -> None:
    pod = await cluster.stored(cluster.reservation(tenants), user=BINDER)
    answer = await cluster.delete(pod, user=user)
    assert answer.status == 200 if allowed else answer.is_refused_by_policy, answer.message


IDENTITY = {names.RESERVE_FOR_GPU_INDEX: "GPU-1", names.DEVICE_INDEX: "0", names.DEVICE_MEMORY: "81920"}


async def test_a_reservation_process_tells_the_device_of_its_own_pod(cluster: Cluster) -> None:
    pod = await cluster.stored(cluster.reservation(HELD_BOOK), user=BINDER)
    own = {"pod_name": pod["metadata"]["name"], "pod_uid": pod["metadata"]["uid"]}
    answer = await cluster.change(pod, {"metadata": {"annotations": IDENTITY}}, user=RESERVATION, **own)
    assert answer.status == 200, answer.message


@pytest.mark.parametrize(
    ("pod_name", "pod_uid"),
    [("other", ""), ("", "11111111-2222-3333-4444-555555555555"), ("-", "")],
    ids=["another pod", "an earlier pod of its name", "a token bound to no pod"],
)
async def test_a_reservation_process_tells_of_no_other_pod(cluster: Cluster, pod_name: str, pod_uid: str) -> None:
    pod = await cluster.stored(cluster.reservation(HELD_BOOK), user=BINDER)
    claims = {"pod_name": pod_name or pod["metadata"]["name"], "pod_uid": pod_uid or pod["metadata"]["uid"]}
    claims = {} if pod_name == "-" else claims
    answer = await cluster.change(pod, {"metadata": {"annotations": IDENTITY}}, user=RESERVATION, **claims)
    assert answer.is_refused_by_policy, answer.message
    assert "only of itself" in answer.message


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"annotations": {"note": "x"}}},
        {"metadata": {"labels": {"x": "y"}}},
        {"metadata": {"finalizers": [names.BOOK_FINALIZER, "a.b/c"]}},
        {"spec": {"activeDeadlineSeconds": 1}},
    ],
)
async def test_a_reservation_process_changes_nothing_else_of_its_pod(cluster: Cluster, patch: Object) -> None:
    pod = await cluster.stored(cluster.reservation(HELD_BOOK), user=BINDER)
    own = {"pod_name": pod["metadata"]["name"], "pod_uid": pod["metadata"]["uid"]}
    assert (await cluster.change(pod, patch, user=RESERVATION, **own)).is_refused_by_policy


@pytest.mark.parametrize(
    ("user", "node", "allowed"),
    [
        (AGENT, "n1", True),
        (AGENT, "n2", False),
        (AGENT, "", False),
        (TENANT, "n1", False),
        (NODE, "n1", False),
        (RESERVATION, "n1", False),
        (BINDER, "", True),
    ],
)
async def test_the_agent_of_its_node_alone_reports_devices(
    cluster: Cluster, user: str, node: str, allowed: bool
) -> None:
    wanted = cluster.reservation(HELD_BOOK)
    wanted["spec"]["nodeName"] = "n1"
    pod = await cluster.stored(wanted, user=BINDER)
    told = {"metadata": {"annotations": {**IDENTITY, names.DEVICE_REPORTER: names.REPORTER_KUBELET}}}
    claims = {"node_name": node} if node else {}
    own = {"pod_name": pod["metadata"]["name"], "pod_uid": pod["metadata"]["uid"]} if user == RESERVATION else {}
    answer = await cluster.change(pod, told, user=user, **claims, **own)
    assert answer.status == 200 if allowed else answer.is_refused_by_policy, answer.message
    withdrawn = {"metadata": {"annotations": {names.DEVICE_REPORTER: None}}}
    if allowed:
        assert (await cluster.change(pod, withdrawn, user=TENANT)).is_refused_by_policy


@pytest.mark.parametrize(("user", "allowed"), [(TENANT, False), (NODE, False), (BINDER, True), (TELLER, True)])
async def test_a_device_is_told_by_nobody_who_was_not_named(cluster: Cluster, user: str, allowed: bool) -> None:
    pod = await cluster.stored(cluster.reservation(HELD_BOOK), user=BINDER)
    answer = await cluster.change(pod, {"metadata": {"annotations": IDENTITY}}, user=user)
    assert answer.status == 200 if allowed else answer.is_refused_by_policy, answer.message


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("trainer-x7k2p9q-shared-gpu-0", True),
        ("trainer-x7k2p9q-shared-gpu-0-evar", True),
        ("a.b-0000000-shared-gpu-i12", True),
        ("trainer-shared-gpu-0", False),
        ("trainer-x7k2p9q-shared-gpu", False),
        ("trainer-x7k2p9q-shared-gpu-0-mine", False),
        ("settings", False),
    ],
)
async def test_only_the_binder_makes_config_maps_that_name_devices(cluster: Cluster, name: str, refused: bool) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace}/configmaps"
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    answer = await cluster.call("POST", path, wanted, user=TENANT)
    assert answer.is_refused_by_policy is refused
    if refused:
        assert (await cluster.call("POST", path, wanted, user=BINDER)).status == 201
    else:
        assert answer.status == 201


async def _make_set(
    world: Cluster, annotations: dict[str, str], *, name: str = "dry", is_dry: bool = False, **spec: Any
) -> Answer:
    scheduler = spec.pop("scheduler", names.SCHEDULER_NAME)
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "cuda"}]},
    }
    made = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template, **spec},
    }
    path = f"/apis/apps/v1/namespaces/{world.namespace}/statefulsets" + ("?dryRun=All" if is_dry else "")
    return await world.call("POST", path, made, user=TENANT)


@pytest.mark.parametrize(
    ("least", "spec", "is_refused"),
    [
        ("4", {}, True),
        ("4", {"podManagementPolicy": "OrderedReady"}, True),
        ("nonsense", {}, True),
        ("4", {"podManagementPolicy": "Parallel"}, False),
        ("1", {}, False),
        ("4", {"scheduler": "default-scheduler"}, False),
    ],
)
async def test_a_stateful_set_asks_for_pods_that_start_together_only_if_it_makes_them_at_once(
    cluster: Cluster, least: str, spec: dict[str, str], is_refused: bool
) -> None:
    answer = await _make_set(cluster, {names.BATCH_MIN_MEMBER: least}, is_dry=True, **spec)
    assert answer.is_refused_by_policy == is_refused, answer.message
    assert is_refused or answer.status == 201
    assert not is_refused or f'is "{least}"; allowed: 1, or spec.podManagementPolicy: Parallel' in answer.message


async def test_a_stateful_set_that_was_let_in_may_be_changed_but_not_come_to_ask_for_a_gang(cluster: Cluster) -> None:
    assert (await _make_set(cluster, {}, name="kept")).status == 201
    path = f"/apis/apps/v1/namespaces/{cluster.namespace}/statefulsets/kept"

    async def annotate(key: str, value: str) -> Answer:
        patch = {"metadata": {"annotations": {key: value}}}
        return await cluster.call("PATCH", path, patch, user=TENANT, content_type=MERGE)

    assert (await annotate("note", "x")).status == 200
    assert (await annotate(names.BATCH_MIN_MEMBER, "3")).is_refused_by_policy
