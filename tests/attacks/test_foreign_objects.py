"""PodGroups, BindRequests and books that make no sense: what they are about waits, and nothing else is disturbed.

Each beside a healthy neighbour (tests/e2e/crowd.py).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, Pod, eventually, pod, share
from tests.e2e.crowd import Crowd
from tests.e2e.tenant import Identity, identity, refused
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

#: Who writes BindRequests, and who writes books.
WRITERS = {"scheduler": "moorage-scheduler", "binder": "moorage-binder"}


@pytest.fixture
async def scheduler(control_plane: ControlPlane, crowd: Crowd) -> AsyncIterator[Identity]:
    """The scheduler's own identity, used by hand."""
    token = control_plane.service_account_token(names.SYSTEM_NAMESPACE, WRITERS["scheduler"])
    async with identity(control_plane, token, crowd.scene.namespace) as made:
        yield made


@pytest.fixture
async def binder(control_plane: ControlPlane, crowd: Crowd) -> AsyncIterator[Identity]:
    """The binder's own identity, used by hand in the namespace of the reservation pods."""
    token = control_plane.service_account_token(names.SYSTEM_NAMESPACE, WRITERS["binder"])
    async with identity(control_plane, token, names.RESERVATION_NAMESPACE) as made:
        yield made


# --- PodGroups ---------------------------------------------------------------------------------------------------


async def _group(crowd: Crowd, name: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> None:
    metadata = {"name": name, "annotations": annotations or {}}
    kind = {"apiVersion": f"{names.SCHEDULING_GROUP}/v2alpha2", "kind": "PodGroup"}
    await crowd.tenant.create_custom("podgroups", "v2alpha2", {**kind, "metadata": metadata, "spec": spec})


def _member(name: str, group: str, **labels: str) -> Pod:
    return pod(name, annotations={names.GPU_FRACTION: "0.25", names.POD_GROUP_NAME: group}, labels=labels)


async def test_a_pod_of_a_group_that_is_not_there_waits_until_it_comes(crowd: Crowd) -> None:
    created = await crowd.tenant.create(_member("early", "later"))
    await crowd.scene.says("early", "PodGroup later was not found (annotation pod-group-name)")
    await _group(crowd, "later", minMember=1)
    await crowd.runs(created)


@pytest.mark.parametrize("group", ["ü" * 1000, "a/b", "../../x", "x" * 100_000, " "])
async def test_a_group_whose_name_is_none_is_not_found(crowd: Crowd, group: str) -> None:
    await crowd.tenant.create(_member("lost", group))
    message = await crowd.scene.says("lost", "PodGroup ")
    assert "was not found" in message or len(message) == 1000


async def test_a_group_name_that_is_empty_is_no_group(crowd: Crowd) -> None:
    await crowd.runs(await crowd.tenant.create(_member("alone", "")))


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"minMember": 0}, id="zero"),
        pytest.param({}, id="absent"),
        pytest.param({"queue": "nowhere", "priorityClassName": "nothing"}, id="unknown-names"),
        pytest.param({"minMember": 1, "subGroups": []}, id="no-subgroups"),
        pytest.param({"minMember": 1, "topologyConstraint": {"preferredTopologyLevel": "rack"}}, id="preferred"),
    ],
)
async def test_members_of_a_group_without_a_minimum_run_one_by_one(crowd: Crowd, spec: dict[str, Any]) -> None:
    group = f"loose-{uuid.uuid4().hex[:8]}"
    await _group(crowd, group, **spec)
    for name in ("one", "two"):
        await crowd.runs(await crowd.tenant.create(_member(name, group)))


@pytest.mark.parametrize(
    "spec",
    [
        {"minMember": -1},
        {"minMember": 2**31},
        {"minMember": "two"},
        {"subGroups": [{"name": "A_b"}]},
        {"subGroups": [{"minMember": 1}]},
        {"preemptibility": "perhaps"},
    ],
)
async def test_a_malformed_group_is_refused_by_its_schema(crowd: Crowd, spec: dict[str, Any]) -> None:
    refusal = await refused(_group(crowd, "malformed", **spec))
    assert refusal.status in {400, 422}
    assert "minMember" in refusal.message or "spec" in refusal.message, refusal


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"subGroups": [{"name": "a"}]}, "subgroup a: minMember is required"),
        ({"minMember": 1, "minSubGroup": 1}, "minMember and minSubGroup are mutually exclusive"),
    ],
)
async def test_a_group_that_contradicts_itself_is_refused_by_admission(
    crowd: Crowd, spec: dict[str, Any], said: str
) -> None:
    refusal = await refused(_group(crowd, "contradiction", **spec))
    assert refusal.status == 403
    assert said in refusal.message


async def test_every_subgroup_has_to_reach_its_minimum(crowd: Crowd) -> None:
    subgroups = [{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 2}]
    await _group(crowd, "tree", minMember=3, subGroups=subgroups)
    workers = [_member(f"worker-{i}", "tree", **{names.SUBGROUP_LABEL: "worker"}) for i in range(3)]
    stray = _member("stray", "tree", **{names.SUBGROUP_LABEL: "unknown"})
    created = [await crowd.tenant.create(wanted) for wanted in (*workers, stray)]
    await crowd.scene.says("worker-0", "Job is not ready for scheduling")
    assert not any(found["spec"].get("nodeName") for found in await _named(crowd, "worker-", "stray"))
    created.append(await crowd.tenant.create(_member("leader", "tree", **{names.SUBGROUP_LABEL: "leader"})))
    for one in created:
        await crowd.runs(one)


async def test_of_a_tree_enough_subgroups_start_each_of_them_whole(crowd: Crowd) -> None:
    """As LeaderWorkerSets and JobSets have them: a leader, and one of two segments."""
    subgroups = [
        {"name": "head", "minMember": 1},
        {"name": "rest", "minSubGroup": 1},
        {"name": "rest-0", "parent": "rest", "minMember": 2},
        {"name": "rest-1", "parent": "rest", "minMember": 2},
    ]
    await _group(crowd, "nested", subGroups=subgroups)
    created = [
        await crowd.tenant.create(_member(f"nested-{part}", "nested", **{names.SUBGROUP_LABEL: part}))
        for part in ("head", "rest-0")
    ]
    await crowd.scene.says("nested-head", "Waiting for 1 complete subgroups of SubGroup rest, currently 0 are complete")
    assert not any(found["spec"].get("nodeName") for found in await _named(crowd, "nested-"))
    created += [
        await crowd.tenant.create(_member(f"nested-rest-1-{number}", "nested", **{names.SUBGROUP_LABEL: "rest-1"}))
        for number in range(2)
    ]
    for one in created:
        await crowd.runs(one)


async def _named(crowd: Crowd, *prefixes: str) -> list[Pod]:
    return [found for name, found in (await crowd.scene.pods()).items() if name.startswith(prefixes)]


@pytest.mark.parametrize(
    "constraint",
    [
        {"topology": "t", "requiredTopologyLevel": "rack"},
        {"topology": "t", "preferredTopologyLevel": "rack"},
        {"requiredTopologyLevel": "rack"},
    ],
)
async def test_a_group_that_names_a_topology_that_is_not_there_waits_with_its_name(
    crowd: Crowd, constraint: dict[str, str]
) -> None:
    group = f"unserved-{uuid.uuid4().hex[:8]}"
    await _group(crowd, group, minMember=1, topologyConstraint=constraint)
    await crowd.tenant.create(_member("unserved", group))
    named = constraint.get("topology", '""')
    await crowd.scene.says("unserved", f"topology {named} doesn't exist")


async def test_a_gang_whose_group_has_no_room_for_its_plan_waits_and_says_why(crowd: Crowd) -> None:
    await _group(crowd, "full", annotations={"k": "x" * (262_144 - 1)}, minMember=2)
    for name in ("first", "second"):
        await crowd.tenant.create(_member(name, "full"))
    await crowd.scene.says("first", "the plan can't be written on PodGroup full")


async def test_a_tenant_writes_no_plan(crowd: Crowd) -> None:
    for plan in ("{}", "junk", '{"id":"x","members":{}}'):
        refusal = await refused(_group(crowd, "planned", annotations={names.PLAN: plan}, minMember=2))
        assert refusal.is_ours


# --- BindRequests ------------------------------------------------------------------------------------------------


def _request(pod_name: str, uid: str, **changes: Any) -> dict[str, Any]:
    """A BindRequest that may be carried out, but for ``changes`` of its metadata, spec or hand-over."""
    group = "11111111-2222-5333-8444-555555555555"
    handover = {"rv": "1", "devices": [{"group": group, "nano": 500_000_000}], **changes.get("handover", {})}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": uid}
    metadata = {"name": pod_name, "annotations": {names.HANDOVER: json.dumps(handover)}, "ownerReferences": [owner]}
    spec = {
        "podName": pod_name,
        "selectedNode": "no-such-node",
        "receivedResourceType": "Fraction",
        "receivedGPU": {"count": 1, "portion": "0.50"},
        "selectedGPUGroups": [group],
    }
    return {
        "apiVersion": f"{names.SCHEDULING_GROUP}/v1alpha2",
        "kind": "BindRequest",
        "metadata": metadata | changes.get("metadata", {}),
        "spec": spec | changes.get("spec", {}),
    }


async def _hand(who: Identity, request: dict[str, Any]) -> Any:
    return await who.create_custom("bindrequests", "v1alpha2", request)


FOREIGN: list[dict[str, Any]] = [
    {"metadata": {"annotations": {}}},
    {"metadata": {"annotations": {names.HANDOVER: "{"}}},
    {"metadata": {"annotations": {names.HANDOVER: "ü" * 100_000}}},
    {"metadata": {"ownerReferences": []}},
    {"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "x"}]}},
    {"handover": {"rv": ""}},
    {"handover": {"rv": "latest"}},
    {"handover": {"members": 0}},
    {"handover": {"plan": "p", "members": 2}},
    {"handover": {"devices": []}},
    {"handover": {"devices": [{"group": "not a label value", "nano": 1}]}, "spec": {"selectedGPUGroups": ["x y"]}},
    {"handover": {"devices": [{"group": "g", "nano": 10**30}]}, "spec": {"selectedGPUGroups": ["g"]}},
    {"handover": {"devices": [{"group": "g", "nano": -1}]}, "spec": {"selectedGPUGroups": ["g"]}},
    {"spec": {"selectedGPUGroups": ["another"]}},
    {"spec": {"selectedNode": ""}},
    {"spec": {"podName": "somebody-else"}},
    {},
]


async def test_nobody_but_us_gives_orders_to_the_binder(crowd: Crowd, control_plane: ControlPlane) -> None:
    async with identity(control_plane, control_plane.token, crowd.scene.namespace) as administrator:
        for who in (crowd.tenant, administrator):
            refusal = await refused(_hand(who, _request("nobody", "00000000-0000-4000-8000-000000000000")))
            assert refusal.is_ours


@pytest.mark.parametrize(("number", "changes"), list(enumerate(FOREIGN)), ids=[str(i) for i in range(len(FOREIGN))])
async def test_a_foreign_bind_request_binds_nothing_and_keeps_no_pod_waiting(
    crowd: Crowd, scheduler: Identity, number: int, changes: dict[str, Any]
) -> None:
    """It stands there under the pod's name before the pod may be placed on a new device, which takes a BindRequest."""
    name = f"claimed-{number}"
    gated = share(name, "0.9")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    created = await crowd.tenant.create(gated)
    await _hand(scheduler, _request(name, created["metadata"]["uid"], **changes))
    beside = await crowd.runs(await crowd.tenant.create(share("beside", "0.5")))
    crowd.is_given_what_it_sees(beside)
    await eventually(lambda: _only_one(crowd), "idle reservations to go", within_s=PATIENCE_S)
    await crowd.tenant.patch(name, {"spec": {"schedulingGates": []}})
    crowd.is_given_what_it_sees(await crowd.runs(created))
    await eventually(lambda: _is_gone(scheduler, name), "the BindRequest to go", within_s=PATIENCE_S)


async def test_nobody_but_us_keeps_a_bind_request(
    crowd: Crowd, scheduler: Identity, control_plane: ControlPlane
) -> None:
    gated = share("kept", "0.1")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    created = await crowd.tenant.create(gated)
    ours = {"annotations": {}, "finalizers": ["example.com/ours"]}
    await _hand(scheduler, _request("kept", created["metadata"]["uid"], metadata=ours))
    async with identity(control_plane, control_plane.token, crowd.scene.namespace) as administrator:
        refusal = await refused(_finalize(administrator, "kept", ["example.com/ours", "example.com/kept"]))
        assert refusal.is_ours
        await _finalize(administrator, "kept", [])
    await crowd.tenant.core.delete_namespaced_pod("kept", crowd.tenant.namespace)
    await eventually(lambda: _is_gone(scheduler, "kept"), "the BindRequest to go", within_s=PATIENCE_S)


async def test_a_bind_request_that_a_foreground_deletion_keeps_holds_nothing(crowd: Crowd, scheduler: Identity) -> None:
    """A dependent that stays keeps it, so no right to write finalizers is needed."""
    # It would join an idle device, for which no BindRequest is made.
    await crowd.runs(await crowd.tenant.create(share("beside", "0.5")))
    await eventually(lambda: _only_one(crowd), "idle reservations to go", within_s=PATIENCE_S)
    gated = share("fore", "0.9")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    created = await crowd.tenant.create(gated)
    made = await _hand(scheduler, _request("fore", created["metadata"]["uid"], metadata={"annotations": {}}))
    owner = {key: made[key] for key in ("apiVersion", "kind")}
    owner |= {"name": "fore", "uid": made["metadata"]["uid"], "blockOwnerDeletion": True}
    stays = {"metadata": {"name": "stays", "finalizers": ["example.com/kept"], "ownerReferences": [owner]}}
    core, namespace = crowd.tenant.core, crowd.tenant.namespace
    await core.create_namespaced_config_map(namespace, stays)
    # Garbage collection has heard of the dependent once it has deleted one that came later, whose owner is not there.
    orphan = {"metadata": {"name": "orphan", "ownerReferences": [{**owner, "uid": "of-nobody"}]}}
    await core.create_namespaced_config_map(namespace, orphan)

    async def has_heard() -> bool | None:
        listed = await core.list_namespaced_config_map(namespace)
        return "orphan" not in {each.metadata.name for each in listed.items} or None

    await eventually(has_heard, "the orphan to go", within_s=PATIENCE_S)
    place = (names.SCHEDULING_GROUP, "v1alpha2", namespace, "bindrequests", "fore")
    await crowd.tenant.custom.delete_namespaced_custom_object(*place, propagation_policy="Foreground")
    await crowd.tenant.patch("fore", {"spec": {"schedulingGates": []}})
    await crowd.scene.says("fore", "BindRequest fore is being deleted, and its finalizers keep it: foregroundDeletion")
    others = [await crowd.tenant.create(share(f"beside-{number}", "0.9")) for number in range(7)]
    for each in others:
        crowd.is_given_what_it_sees(await crowd.runs(each))
    await core.patch_namespaced_config_map("stays", namespace, {"metadata": {"finalizers": None}})
    await eventually(lambda: _is_gone(scheduler, "fore"), "the BindRequest to go", within_s=PATIENCE_S)


async def _finalize(who: Identity, name: str, finalizers: list[str]) -> Any:
    return await who.custom.patch_namespaced_custom_object(
        names.SCHEDULING_GROUP,
        "v1alpha2",
        who.namespace,
        "bindrequests",
        name,
        {"metadata": {"finalizers": finalizers}},
        _content_type="application/merge-patch+json",
    )


async def _only_one(crowd: Crowd) -> bool | None:
    return len(await crowd.scene.reservations()) == 1 or None


async def _is_gone(who: Identity, name: str) -> bool | None:
    try:
        await who.custom.get_namespaced_custom_object(
            names.SCHEDULING_GROUP, "v1alpha2", who.namespace, "bindrequests", name
        )
    except client.ApiException:
        return True
    return None


# --- books -------------------------------------------------------------------------------------------------------

BOOKS = [
    pytest.param("{", id="no-json"),
    pytest.param("[]", id="a-list"),
    pytest.param('{"u":{"nano":0,"attempt":"a","rv":"1","since":0,"pod":"a/b"}}', id="nothing-charged"),
    pytest.param('{"u":{"nano":1000000001,"attempt":"a","rv":"1","since":0,"pod":"a/b"}}', id="more-than-a-device"),
    pytest.param('{"u":{"nano":1e9,"attempt":"a","rv":"1","since":0,"pod":"a/b"}}', id="a-float"),
    pytest.param('{"u":{"nano":1}}', id="half-an-entry"),
    pytest.param("ü" * 100_000, id="huge"),
]


@pytest.mark.parametrize("text", BOOKS)
async def test_nobody_joins_a_reservation_whose_book_cannot_be_read(crowd: Crowd, binder: Identity, text: str) -> None:
    first = await crowd.runs(await crowd.tenant.create(pod("first", annotations={names.GPU_FRACTION: "0.9"})))
    (device,) = crowd.scene.seen(first)["main"]
    reservation = await _reservation_of(crowd, device)
    name, sound = reservation["metadata"]["name"], reservation["metadata"]["annotations"][names.TENANTS]
    patch = {"metadata": {"annotations": {names.TENANTS: text}}}
    refusal = await refused(_as_administrator(crowd, name, patch))
    assert refusal.is_ours
    await binder.patch(name, patch)
    second = await crowd.runs(await crowd.tenant.create(share("second", "0.1")))
    crowd.is_given_what_it_sees(second)
    assert crowd.scene.seen(second)["main"] != (device,)
    found = await crowd.scene.pod("first")
    assert found["status"]["phase"] == "Running"
    assert crowd.scene.seen(found)["main"] == (device,)
    await binder.patch(name, {"metadata": {"annotations": {names.TENANTS: sound}}})
    third = await crowd.runs(await crowd.tenant.create(share("third", "0.1")))
    crowd.is_given_what_it_sees(third)


async def _as_administrator(crowd: Crowd, name: str, patch: dict[str, Any]) -> Any:
    return await crowd.scene.core.patch_namespaced_pod(
        name, names.RESERVATION_NAMESPACE, patch, _content_type="application/merge-patch+json"
    )


async def _reservation_of(crowd: Crowd, device: str) -> Pod:
    async def held() -> Pod | None:
        found = await crowd.scene.reservations()
        told = (names.RESERVE_FOR_GPU_INDEX, device)
        return next((one for one in found if told in one["metadata"]["annotations"].items()), None)

    answer: Pod = await eventually(held, "the reservation", within_s=PATIENCE_S)
    return answer
