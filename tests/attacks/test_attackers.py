"""Attacks on a Moorage that runs, by tenants with the ClusterRole ``edit`` and more (tests/e2e/tenant.py).

tests/attacks/table.py has the table of threats, with these tests and those of the files beside. Each beside a healthy
neighbour (tests/e2e/crowd.py).
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, Pod, eventually, pod, scheduled_message, share
from tests.e2e.crowd import Crowd
from tests.e2e.tenant import Identity, identity, refused, tenant
from tools.cluster.deployment import ADMISSION, BINDER, SCHEDULER
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

VISIBLE = names.ENV_VISIBLE_DEVICES
QUEUES = "team-a, team-b"
ONE_GPU = {"limits": {names.GPU_RESOURCE: "1"}}


@pytest.fixture(scope="module")
async def stranger(control_plane: ControlPlane, standing_crowd: Crowd) -> AsyncIterator[Identity]:
    """The tenant of another namespace."""
    async with _tenant_of_a_new_namespace(control_plane, standing_crowd, {}) as made:
        yield made


@pytest.fixture(scope="module")
async def narrowed(control_plane: ControlPlane, standing_crowd: Crowd) -> AsyncIterator[Identity]:
    """The tenant of a namespace with the strictest guard, and bound to two queues."""
    metadata = {"labels": {names.VISIBLE_DEVICES_GUARD: "reject"}, "annotations": {names.QUEUES: QUEUES}}
    async with _tenant_of_a_new_namespace(control_plane, standing_crowd, metadata) as made:
        yield made


def _tenant_of_a_new_namespace(plane: ControlPlane, crowd: Crowd, metadata: dict[str, Any]) -> Any:
    name = f"beside-{uuid.uuid4().hex[:8]}"
    plane.rest().call("POST", "/api/v1/namespaces", {"metadata": {"name": name, **metadata}})
    return tenant(plane, name)


# --- 1: devices chosen by the environment ------------------------------------------------------------------------

Way = dict[str, Any]

#: How a container's environment may be made to say "all".
LITERAL: Way = {"env": [{"name": VISIBLE, "value": "all"}]}
BY_INDEX: Way = {"env": [{"name": VISIBLE, "value": "0,1,2,3"}]}
TWICE: Way = {"env": [{"name": VISIBLE, "value": "void"}, {"name": VISIBLE, "value": "all"}]}
BY_KEY: Way = {"env": [{"name": VISIBLE, "valueFrom": {"configMapKeyRef": {"name": "devices", "key": VISIBLE}}}]}
IN_BULK: Way = {"envFrom": [{"configMapRef": {"name": "devices"}}]}
IN_PARTS: Way = {"envFrom": [{"prefix": "NVIDIA_", "configMapRef": {"name": "devices"}}]}
DEVICES = {"metadata": {"name": "devices"}, "data": {VISIBLE: "all", "VISIBLE_DEVICES": "all"}}

BY_ENV = [LITERAL, BY_INDEX, TWICE, BY_KEY]
BY_OBJECT = [IN_BULK, IN_PARTS]


def _with(wanted: Pod, way: Way) -> Pod:
    """A pod of which all containers, an init container among them, try to see more than they were given."""
    wanted["spec"]["initContainers"] = [{"name": "early", "image": "cuda-app", **way}]
    wanted["spec"]["containers"].append({"name": "beside", "image": "cuda-app", **way})
    wanted["spec"]["containers"][0] |= way
    return wanted


async def test_no_environment_shows_more_than_was_given(crowd: Crowd) -> None:
    await crowd.tenant.core.create_namespaced_config_map(crowd.tenant.namespace, DEVICES)
    given: list[tuple[Pod, int]] = []
    for number, way in enumerate([*BY_ENV, *BY_OBJECT]):
        given.append((await crowd.tenant.create(_with(pod(f"cpu-{number}"), way)), 0))
        given.append((await crowd.tenant.create(_with(share(f"share-{number}", "0.1"), way)), 1))
    for number, way in enumerate([LITERAL, BY_KEY]):
        given.append((await crowd.tenant.create(_with(pod(f"whole-{number}", gpus=1), way)), 1))
    shown: list[str] = []
    for created, devices in given:
        found = await crowd.runs(created)
        seen = crowd.scene.seen(found)
        assert (len(seen["main"]), seen["early"], seen["beside"]) == (devices, (), ()), found["metadata"]["name"]
        shown += seen["main"] if "whole" in found["metadata"]["name"] else ()
    assert len(set(shown)) == 2
    await crowd.tenant.core.delete_namespaced_config_map("devices", crowd.tenant.namespace)


@pytest.mark.parametrize("way", BY_ENV)
@pytest.mark.parametrize("gpus", [0, 1])
async def test_where_a_namespace_says_reject_choosing_devices_is_refused(
    crowd: Crowd, narrowed: Identity, way: Way, gpus: int
) -> None:
    wanted = pod("chooser", gpus=gpus, labels={names.QUEUE_LABEL: "team-a"})
    wanted["spec"]["containers"][0] |= way
    refusal = await refused(narrowed.create(wanted))
    assert refusal.is_ours
    assert f"container main has an environment variable {VISIBLE} defined with " in refusal.message


@pytest.mark.parametrize("way", BY_OBJECT)
async def test_where_a_namespace_says_reject_a_whole_gpu_takes_no_environment_from_what_nobody_sees(
    crowd: Crowd, narrowed: Identity, way: Way
) -> None:
    wanted = pod("unseen", gpus=1, labels={names.QUEUE_LABEL: "team-a"})
    wanted["spec"]["containers"][0] |= way
    refusal = await refused(narrowed.create(wanted))
    assert refusal.is_ours
    prefix = way["envFrom"][0].get("prefix", "")
    assert f"could set {VISIBLE} (envFrom[0].prefix is '{prefix}'; allowed: a prefix with which no" in refusal.message


def _of_another_scheduler(name: str, *, runtime_class: str | None = "nvidia", **container: Any) -> Pod:
    wanted = pod(name)
    wanted["spec"] |= {"schedulerName": "mine"}
    if runtime_class:
        wanted["spec"]["runtimeClassName"] = runtime_class
    wanted["spec"]["containers"][0] |= container
    return wanted


@pytest.mark.parametrize(
    "container",
    [
        LITERAL,
        TWICE,
        BY_KEY,
        IN_BULK,
        {},
        {**LITERAL, "resources": ONE_GPU},
        {**IN_PARTS, "resources": ONE_GPU},
        {"resources": {"limits": {"nvidia.com/mig-9g.bogus": "1"}}},
    ],
    ids=["literal", "twice", "by-key", "in-bulk", "image", "gpu-literal", "gpu-in-parts", "no-such-slice"],
)
async def test_where_a_namespace_says_reject_another_scheduler_is_no_way_around(
    crowd: Crowd, narrowed: Identity, container: dict[str, Any]
) -> None:
    refusal = await refused(narrowed.create(_of_another_scheduler("around", **container)))
    assert refusal.is_ours
    assert "containers main choose their devices themselves" in refusal.message
    assert f"env {VISIBLE}; allowed in namespace {narrowed.namespace}: void or none" in refusal.message


async def test_where_a_namespace_says_reject_a_gpu_on_a_node_brought_along_is_no_way_around(
    crowd: Crowd, narrowed: Identity
) -> None:
    wanted = _of_another_scheduler("around", resources=ONE_GPU)
    wanted["spec"]["nodeName"] = next(iter(crowd.scene.nodes.kubelets))
    refusal = await refused(narrowed.create(wanted))
    assert refusal.is_ours
    assert "containers main choose their devices themselves" in refusal.message


@pytest.mark.parametrize(
    "resources",
    [{"limits": {"example.com/gpu-x": "1"}}, {"limits": {"nvidia.com/mig-9g.bogus": "1"}}],
    ids=["plugin-of-nobody", "no-such-slice"],
)
async def test_a_node_brought_along_shows_nothing_to_who_asks_for_what_it_lacks(
    crowd: Crowd, resources: dict[str, Any]
) -> None:
    wanted = pod("dropped")
    wanted["spec"] |= {"nodeName": next(iter(crowd.scene.nodes.kubelets)), "runtimeClassName": "nvidia"}
    wanted["spec"]["containers"][0]["resources"] = resources
    created = await crowd.tenant.create(wanted)
    assert created["spec"]["containers"][0]["env"] == [{"name": VISIBLE, "value": "void"}]
    await crowd.tenant.core.delete_namespaced_pod("dropped", crowd.tenant.namespace, grace_period_seconds=0)


async def test_who_asks_for_gpus_brings_no_node_along(crowd: Crowd) -> None:
    wanted = pod("past", gpus=1)
    node = next(iter(crowd.scene.nodes.kubelets))
    wanted["spec"]["nodeName"] = node
    refusal = await refused(crowd.tenant.create(wanted))
    assert refusal.is_ours
    assert (
        f"asks for GPUs on a node that no scheduler chose (spec.nodeName is '{node}'; allowed: none" in refusal.message
    )


@pytest.mark.parametrize(
    ("runtime_class", "container"),
    [
        (None, {}),
        ("nvidia", {"env": [{"name": VISIBLE, "value": "void"}], **IN_BULK}),
        ("nvidia", {"resources": ONE_GPU}),
        ("nvidia", {"resources": ONE_GPU, "envFrom": [{"prefix": "A_", "configMapRef": {"name": "m"}}]}),
    ],
    ids=["other-runtime", "own-void", "gpu", "gpu-with-prefix"],
)
async def test_where_a_namespace_says_reject_honest_pods_of_other_schedulers_come_in(
    crowd: Crowd, narrowed: Identity, runtime_class: str | None, container: dict[str, Any]
) -> None:
    await narrowed.create(_of_another_scheduler("honest", runtime_class=runtime_class, **container))
    debug = {"name": "debug", "image": "sh", **LITERAL}
    patch = {"spec": {"ephemeralContainers": [debug]}}
    refusal = await refused(narrowed.patch("honest", patch, subresource="ephemeralcontainers"))
    assert refusal.is_ours
    assert "containers debug choose" in refusal.message
    await narrowed.core.delete_namespaced_pod("honest", narrowed.namespace, grace_period_seconds=0)


# --- 4: look-alikes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [names.RESERVATION_APP, "scaling-pod"])
async def test_what_looks_like_one_of_kais_own_pods_is_counted_like_any_other(crowd: Crowd, label: str) -> None:
    """KAI does not count the GPUs of such pods, so they would be given away twice."""
    clashes = len(crowd.scene.refusals())
    reservation = {names.APP_LABEL: label}
    wanted = [pod(f"{names.RESERVATION_NAME_PREFIX}-{i}", gpus=1, labels=reservation) for i in range(7)]
    found = [await crowd.runs(one) for one in [await crowd.tenant.create(one) for one in wanted]]
    assert len({device for one in found for device in crowd.scene.seen(one)["main"]}) == 7
    await crowd.tenant.create(pod("eighth", gpus=1, labels=reservation))
    await crowd.tenant.create(share("big", "0.9", labels=reservation))
    for name in ("eighth", "big"):
        waits = await crowd.waits(crowd.tenant.namespace, name)
        assert not waits["spec"].get("nodeName"), scheduled_message(waits)
    assert len(crowd.scene.refusals()) == clashes


async def test_a_false_reservation_that_names_a_device_takes_nothing_from_it(crowd: Crowd) -> None:
    await crowd.scene.running(1)
    victim = await crowd.runs(await crowd.tenant.create(share("victim", "0.8")))
    await crowd.runs(await crowd.tenant.create(share("fills-the-neighbours", "0.7")))
    (device,) = crowd.scene.seen(victim)["main"]
    false = pod(f"{names.RESERVATION_NAME_PREFIX}-0123456789abcdef")
    false["metadata"] |= {
        "labels": {names.APP_LABEL: names.RESERVATION_APP},
        "annotations": {names.RESERVE_FOR_GPU_INDEX: device, names.DEVICE_INDEX: "0", names.DEVICE_MEMORY: "81920"},
    }
    false["spec"] |= {"schedulerName": "mine", "nodeName": victim["spec"]["nodeName"]}
    false = await crowd.tenant.create(false)
    await crowd.runs(false)
    for key in (names.GPU_GROUP_LABEL, names.MULTI_GPU_GROUP_LABEL_PREFIX + "g"):
        group = victim["metadata"]["labels"][names.GPU_GROUP_LABEL]
        refusal = await refused(crowd.tenant.patch(false["metadata"]["name"], {"metadata": {"labels": {key: group}}}))
        assert refusal.is_ours
        assert f"only the scheduler and the binder may write {key}" in refusal.message
    beside = await crowd.runs(await crowd.tenant.create(share("beside", "0.2")))
    crowd.is_given_what_it_sees(beside)
    assert crowd.scene.seen(beside)["main"] == (device,)


# --- 6, 7: groups and queues of others ---------------------------------------------------------------------------


async def test_nobody_joins_a_pod_group_of_another_namespace(crowd: Crowd, stranger: Identity) -> None:
    kind = {"apiVersion": f"{names.SCHEDULING_GROUP}/v2alpha2", "kind": "PodGroup"}
    group = {**kind, "metadata": {"name": "theirs"}, "spec": {"minMember": 2, "queue": "theirs"}}
    await crowd.tenant.create_custom("podgroups", "v2alpha2", group)
    asks = {names.GPU_FRACTION: "0.1", names.POD_GROUP_NAME: "theirs"}
    await crowd.tenant.create(pod("member", annotations=asks))
    await stranger.create(pod("intruder", annotations=asks), scene=crowd.scene.namespace)
    waits = await crowd.waits(stranger.namespace, "intruder")
    assert "PodGroup theirs was not found (annotation pod-group-name)" in scheduled_message(waits)
    await crowd.scene.says("member", "Job is not ready for scheduling")
    await stranger.core.delete_namespaced_pod("intruder", stranger.namespace)


def _queued(queue: str | None, **annotations: str) -> Pod:
    gated = share("queued", "0.5", labels={names.QUEUE_LABEL: queue} if queue is not None else {})
    gated["metadata"]["annotations"] |= annotations
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    return gated


@pytest.mark.parametrize("queue", [None, "", "team-c", "team", "Team-a"])
async def test_a_namespace_that_is_bound_to_queues_names_no_other(
    crowd: Crowd, narrowed: Identity, queue: str | None
) -> None:
    allowed = f"allowed in namespace {narrowed.namespace}: team-a, team-b"
    refusal = await refused(narrowed.create(_queued(queue)))
    assert refusal.is_ours
    assert f'label {names.QUEUE_LABEL} is "{queue or ""}"; {allowed}' in refusal.message
    kind = {"apiVersion": f"{names.SCHEDULING_GROUP}/v2alpha2", "kind": "PodGroup"}
    group = {**kind, "metadata": {"name": "queued"}, "spec": {"minMember": 1} | ({"queue": queue} if queue else {})}
    refusal = await refused(narrowed.create_custom("podgroups", "v2alpha2", group))
    assert refusal.is_ours
    assert f'spec.queue is "{queue or ""}"; {allowed}' in refusal.message


async def test_a_namespace_that_is_bound_to_queues_names_those(crowd: Crowd, narrowed: Identity) -> None:
    await narrowed.create(_queued("team-b"))
    for queue in ("team-c", None):
        for subresource in ("", "status"):
            change = {"metadata": {"labels": {names.QUEUE_LABEL: queue}}}
            refusal = await refused(narrowed.patch("queued", change, subresource=subresource))
            assert refusal.is_ours
            assert names.QUEUE_LABEL in refusal.message
    (node, *_) = crowd.scene.nodes.kubelets
    refusal = await refused(narrowed.bind("queued", node, labels={names.QUEUE_LABEL: "team-c"}))
    assert refusal.is_ours
    await narrowed.patch("queued", {"metadata": {"labels": {names.QUEUE_LABEL: "team-a"}, "finalizers": ["a.b/c"]}})
    await narrowed.patch("queued", {"metadata": {"finalizers": None}})
    await narrowed.core.delete_namespaced_pod("queued", narrowed.namespace)
    await narrowed.create(_queued(None, **{names.POD_GROUP_NAME: "some"}))
    await narrowed.core.delete_namespaced_pod("queued", narrowed.namespace)


async def test_a_pod_from_before_its_namespace_was_bound_can_still_be_ungated(crowd: Crowd, stranger: Identity) -> None:
    await stranger.create(_queued("team-c"))
    bound = {"metadata": {"annotations": {names.QUEUES: "team-a"}}}
    await crowd.scene.core.patch_namespace(stranger.namespace, bound)

    async def is_bound() -> bool | None:
        try:
            await stranger.core.create_namespaced_pod(stranger.namespace, _queued("team-d"), dry_run="All")
        except client.ApiException as error:
            return "team-d" in str(error.body) or None
        return None

    await eventually(is_bound, "the queues to be bound", within_s=PATIENCE_S)
    await stranger.patch("queued", {"spec": {"schedulingGates": []}})
    await stranger.core.delete_namespaced_pod("queued", stranger.namespace)
    await crowd.scene.core.patch_namespace(stranger.namespace, {"metadata": {"annotations": {names.QUEUES: None}}})


@pytest.mark.parametrize("scheduler", [names.SCHEDULER_NAME, "mine"])
async def test_no_tenant_takes_the_priority_of_reservation_pods(crowd: Crowd, scheduler: str) -> None:
    wanted = share("first-of-all", "0.5")
    wanted["spec"] |= {"priorityClassName": names.RESERVATION_PRIORITY_CLASS, "schedulerName": scheduler}
    refusal = await refused(crowd.tenant.create(wanted))
    assert refusal.is_ours
    said = f"spec.priorityClassName is {names.RESERVATION_PRIORITY_CLASS}; allowed: in namespace "
    assert said + names.RESERVATION_NAMESPACE in refusal.message


# --- 9: a reservation pod that somebody broke into ---------------------------------------------------------------


async def _inside(plane: ControlPlane, reservation: Pod) -> str:
    """The token that kubelet gives the process in a pod."""
    metadata = reservation["metadata"]
    bound_to = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
    path = f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/serviceaccounts/{names.RESERVATION_SERVICE_ACCOUNT}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound_to}}
    return str(plane.rest().call("POST", path, request)["status"]["token"])


async def _reservation_of(crowd: Crowd, found: Pod) -> Pod:
    group = found["metadata"]["labels"][names.GPU_GROUP_LABEL]
    found_there = await crowd.scene.reservations()
    return next(one for one in found_there if one["metadata"]["labels"].get(names.GPU_GROUP_LABEL) == group)


REWRITES: list[dict[str, Any]] = [
    {"annotations": {names.TENANTS: "{}"}},
    {"annotations": {names.TENANTS: None}},
    {"annotations": {names.RESERVE_FOR_GPU_INDEX: "GPU-x", names.TENANTS: "{}"}},
    {"annotations": {"example.com/note": "x"}},
    {"labels": {names.GPU_GROUP_LABEL: "other"}},
    {"labels": {names.APP_LABEL: None}},
    {"finalizers": None},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]},
]


async def test_who_broke_into_a_reservation_pod_rewrites_no_book_and_no_other_pod(
    crowd: Crowd, control_plane: ControlPlane
) -> None:
    own_tenant = await crowd.runs(await crowd.tenant.create(share("own", "0.7")))
    other_tenant = await crowd.runs(await crowd.tenant.create(share("other", "0.7")))
    own, other = await _reservation_of(crowd, own_tenant), await _reservation_of(crowd, other_tenant)
    async with identity(control_plane, await _inside(control_plane, own), names.RESERVATION_NAMESPACE) as process:
        for metadata in REWRITES:
            refusal = await refused(process.patch(own["metadata"]["name"], {"metadata": metadata}))
            assert refusal.is_ours, metadata
        for metadata in (*REWRITES, {"annotations": {names.RESERVE_FOR_GPU_INDEX: "GPU-x"}}):
            refusal = await refused(process.patch(other["metadata"]["name"], {"metadata": metadata}))
            assert refusal.is_ours, metadata
        for reservation in (own, other):
            await _may_do_nothing_else(process, reservation, crowd.tenant.namespace)
    for before in (own, other):
        (after,) = [
            one for one in await crowd.scene.reservations() if one["metadata"]["uid"] == before["metadata"]["uid"]
        ]
        for field in ("annotations", "labels", "finalizers"):
            assert after["metadata"][field] == before["metadata"][field]


async def _may_do_nothing_else(process: Identity, reservation: Pod, namespace: str) -> None:
    name, core = reservation["metadata"]["name"], process.core
    attempts: list[Callable[[], Awaitable[Any]]] = [
        lambda: process.patch(name, {"metadata": {"annotations": {names.DEVICE_INDEX: "1"}}}, subresource="status"),
        lambda: core.delete_namespaced_pod(name, process.namespace),
        lambda: core.create_namespaced_pod(process.namespace, pod("mine")),
        lambda: core.list_namespaced_pod(process.namespace),
        lambda: core.list_namespaced_secret(process.namespace),
        lambda: core.list_namespaced_pod(namespace),
        core.list_node,
    ]
    for attempt in attempts:
        assert (await refused(attempt())).status == 403


async def test_a_reservation_pod_that_lies_about_its_device_shares_no_other_one(
    crowd: Crowd, control_plane: ControlPlane
) -> None:
    """It may speak of its own pod, so the lie is written. What was full stays full."""
    full = await crowd.runs(await crowd.tenant.create(share("full", "0.95")))
    roomy = await crowd.runs(await crowd.tenant.create(share("roomy", "0.6")))
    (of_full,), (of_roomy,) = (crowd.scene.seen(one)["main"] for one in (full, roomy))
    reservation = await _reservation_of(crowd, roomy)
    async with identity(control_plane, await _inside(control_plane, reservation), names.RESERVATION_NAMESPACE) as liar:
        name = reservation["metadata"]["name"]
        await liar.patch(name, {"metadata": {"annotations": {names.RESERVE_FOR_GPU_INDEX: of_full}}})
        late = await crowd.runs(await crowd.tenant.create(share("late", "0.35")))
        crowd.is_given_what_it_sees(late)
        assert crowd.scene.seen(late)["main"] != (of_full,)
        await liar.patch(name, {"metadata": {"annotations": {names.RESERVE_FOR_GPU_INDEX: of_roomy}}})


# --- what RBAC alone holds, and what listens ---------------------------------------------------------------------


async def test_a_tenant_has_no_way_to_our_identities_namespaces_and_policies(
    crowd: Crowd, control_plane: ControlPlane
) -> None:
    first = await crowd.runs(await crowd.tenant.create(share("first", "0.5")))
    name = (await _reservation_of(crowd, first))["metadata"]["name"]
    rest = control_plane.rest(control_plane.service_account_token(crowd.tenant.namespace, "tenant"))
    spaces = "/api/v1/namespaces"
    reservations = f"{spaces}/{names.RESERVATION_NAMESPACE}/pods"
    registration = "/apis/admissionregistration.k8s.io/v1"
    token = b'{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}'
    attempts = [
        ("POST", f"{spaces}/{names.SYSTEM_NAMESPACE}/serviceaccounts/moorage-binder/token", token),
        ("GET", f"{spaces}/{names.SYSTEM_NAMESPACE}/secrets", None),
        ("POST", reservations, b'{"metadata":{"name":"x"},"spec":{"containers":[{"name":"x","image":"x"}]}}'),
        ("DELETE", f"{reservations}/{name}", None),
        ("POST", f"{reservations}/{name}/eviction", b'{"apiVersion":"policy/v1","kind":"Eviction"}'),
        ("POST", f"{reservations}/{name}/ephemeralcontainers", b"{}"),
        ("GET", f"{reservations}/{name}/exec?command=sh", None),
        ("DELETE", f"{registration}/validatingadmissionpolicybindings/moorage-protected-keys", None),
        ("DELETE", f"{registration}/mutatingwebhookconfigurations/moorage-pods", None),
        ("DELETE", f"{spaces}/{crowd.tenant.namespace}", None),
    ]
    for method, path, body in attempts:
        assert rest.send(method, path, body)[0] == 403, path
    impersonated = {"Impersonate-User": f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:moorage-binder"}
    crowd.tenant.core.api_client.set_default_header(*next(iter(impersonated.items())))
    refusal = await refused(crowd.tenant.core.list_namespaced_pod(crowd.tenant.namespace))
    del crowd.tenant.core.api_client.default_headers["Impersonate-User"]
    assert refusal.status == 403
    assert "impersonate" in refusal.message


def _listening(pid: int) -> set[str]:
    """Inodes of the listening TCP sockets of a process."""
    states = [
        line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()
    ]
    inodes = {fields[9] for fields in states if fields[3] == "0A"}
    mine = {link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    return {inode for inode in inodes if f"socket:[{inode}]" in mine}


async def test_nothing_of_ours_listens_but_the_webhooks_and_the_metrics_that_were_asked_for(crowd: Crowd) -> None:
    listening = {name: len(_listening(crowd.moorage.pid(name))) for name in (ADMISSION, BINDER, SCHEDULER)}
    assert listening == {ADMISSION: 2, BINDER: 1, SCHEDULER: 1}
