"""Two sides of a manifest: planted differences are found, and what is random on each side is none."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gpu import grant as grants
from tools.samecheck.comparing import differences, side
from wire import names

Json = dict[str, Any]
_UID = "{0}{0}{0}{0}{0}{0}{0}{0}-1111-2222-3333-444444444444"


def _pod(name: str, *, node: str = "node-0", phase: str = "Running", **metadata: Any) -> Json:
    limits = {"limits": {names.GPU_RESOURCE: "2"}}
    return {
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [{"name": "main", "resources": limits}],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": phase},
    }


def _waiting(name: str, message: str, **metadata: Any) -> Json:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    found = _pod(name, node="", phase="Pending", **metadata)
    return {**found, "status": {"phase": "Pending", "conditions": [condition]}}


def _made(end: str, made_hash: str, uid: str) -> tuple[list[Json], list[Json]]:
    """A pod of a Deployment and its PodGroup, as one side has them."""
    group = f"pg-w-{_UID.format(uid)}"
    metadata = {
        "generateName": f"w-{made_hash}-",
        "labels": {"pod-template-hash": made_hash},
        "annotations": {names.POD_GROUP_NAME: group},
        "ownerReferences": [{"kind": "ReplicaSet", "name": f"w-{made_hash}", "uid": uid, "controller": True}],
    }
    pods = [_waiting(f"w-{made_hash}-{end}", f"w-{made_hash}-{end} of {group} waits", **metadata)]
    return pods, [{"metadata": {"name": group, "namespace": "default"}, "spec": {"minMember": 1}}]


def _shared(nano: int, uuid: str) -> Json:
    grant = grants.Grant(attempt="1", devices=(grants.DeviceGrant(group="g", reservation="r", uuid=uuid, nano=nano),))
    pod = _pod(f"half-{uuid}-{nano}", annotations={names.GRANT: msgspec.json.encode(grant).decode()})
    pod["spec"]["containers"] = [{"name": "main"}]
    return pod


def test_random_parts_of_names_are_no_difference() -> None:
    one, other = side(*_made("abcde", "5d9c", "a")), side(*_made("xyz12", "77bf", "b"))
    assert list(differences(one, other)) == []
    assert ([*one.pods], [*one.named]) == (["default: ReplicaSet w-#"], ["default: w-#-#"])


def test_a_pod_group_of_a_pod_alone_is_named_after_a_random_name_or_a_number() -> None:
    uids = _UID.format("a"), _UID.format("b")
    waits = (
        _waiting("p", f"topology hall couldn't be satisfied for job <default/pg-w-{end}-{uid}>: full")
        for end, uid in zip(("1", "#"), uids, strict=True)
    )
    simulated, real = (side([each], []) for each in waits)
    assert list(differences(simulated, real)) == []
    other = side([_waiting("p", f"topology hall couldn't be satisfied for job <default/pg-v-2-{uids[0]}>: full")], [])
    assert len(list(differences(simulated, other))) == 2


def test_which_sub_group_of_a_gang_is_the_short_one_is_no_difference() -> None:
    texts = [f"sub-group {part} requires 3 pods for gang scheduling (room for {room})." for part, room in ("a1", "b2")]
    one, other = (side([_waiting("p", text)], []) for text in texts)
    assert list(differences(one, other)) == []


def _ranked(name: str, *, is_placed: bool) -> Json:
    owner = {"kind": "StatefulSet", "name": "s", "uid": "u", "controller": True}
    metadata: Json = {"ownerReferences": [owner], "generateName": "s-"}
    return _pod(name, **metadata) if is_placed else _waiting(name, "no nodes", **metadata)


def test_which_pods_of_one_owner_run_is_no_difference_but_their_ranks_are_compared() -> None:
    first = side([_ranked("s-0", is_placed=True), _ranked("s-1", is_placed=False)], [])
    last = side([_ranked("s-0", is_placed=False), _ranked("s-1", is_placed=True)], [])
    later = side([_ranked("s-1", is_placed=True), _ranked("s-2", is_placed=False)], [])
    assert list(differences(first, last)) == []
    assert list(differences(first, later)) == [
        "default: s-0: the name is only in simulate",
        "default: s-2: the name is only on the cluster",
    ]


CHANGES = {
    "a pod is missing": [_pod("a")],
    "a pod waits": [_pod("a"), _waiting("b", "no nodes")],
    "a pod has other devices": [_pod("a"), _shared(500_000_000, "b")],
    "a pod is another one": [_pod("a"), _pod("c")],
    "a pod is being deleted": [_pod("a"), _pod("b", deletionTimestamp="2026-01-01T00:00:00Z")],
}


@pytest.mark.parametrize("pods", CHANGES.values(), ids=CHANGES)
def test_a_difference_of_pods_is_found_on_both_sides(pods: list[Json]) -> None:
    same = side([_pod("a"), _pod("b")], [])
    assert list(differences(same, side(pods, [])))
    assert list(differences(side(pods, []), same))


def test_a_message_that_differs_is_shown_with_its_side() -> None:
    found = list(differences(side([_waiting("a", "no\nnodes")], []), side([_waiting("a", "no queue")], [])))
    assert found == [
        "default: a: only in simulate: 1 x Pending; Unschedulable; no nodes",
        "default: a: only on the cluster: 1 x Pending; Unschedulable; no queue",
    ]


def test_the_minimum_of_a_pod_group_is_compared_and_whether_it_is_there() -> None:
    pods, groups = _made("abcde", "5d9c", "a")
    larger = [{**groups[0], "spec": {"minMember": 2}}]
    assert "minMember 2" in list(differences(side(pods, groups), side(pods, larger)))[1]
    assert "which is not there" in next(differences(side(pods, []), side(pods, groups)))


def test_a_pod_group_of_a_pod_that_is_left_to_another_scheduler_does_not_count() -> None:
    (pod,), groups = _made("abcde", "5d9c", "a")
    other = {**pod, "spec": {**pod["spec"], "schedulerName": "default-scheduler"}}
    alone = {**other, "metadata": {**other["metadata"], "annotations": {}}}
    assert list(differences(side([other], groups), side([alone], []))) == []


def test_devices_in_use_are_compared_where_all_pods_are_alike() -> None:
    half = _shared(500_000_000, "b")
    packed, spread = side([half, half], []), side([half, _moved(half)], [])
    assert packed.pods == spread.pods
    assert list(differences(packed, spread)) == ["GPUs in use by node: [1] in simulate, [0.5] [0.5] on the cluster"]


def test_where_pods_differ_their_order_decides_which_share_a_device() -> None:
    pods = [_shared(nano, uuid) for nano, uuid in ((500_000_000, "a"), (250_000_000, "b"))]
    moved = [pods[0], _moved(pods[1])]
    assert list(differences(side(pods, []), side(moved, []))) == []


def _moved(pod: Json) -> Json:
    return {**json.loads(json.dumps(pod)), "spec": {**pod["spec"], "nodeName": "node-1"}}


@pytest.mark.parametrize(
    ("real", "expected"),
    [
        (['admission webhook "x" denied the request: too much'], []),
        (['Error creating: admission webhook "x" denied the request: too much'], []),
        (["403: too much"], []),
        (['422: Deployment.apps "d" is invalid: too much'], []),
        (["create Pod s-0 in StatefulSet s failed error: too much"], []),
        (["forbidden"], ["only simulate refuses: too much", "the cluster refuses instead: forbidden"]),
        ([], ["only simulate refuses: too much"]),
    ],
)
def test_a_refusal_has_to_be_the_same(real: list[str], expected: list[str]) -> None:
    refused = side([], [], ['admission webhook "y" denied the request: too much'])
    assert list(differences(refused, side([], [], real))) == expected


def test_what_only_the_cluster_refuses_is_a_difference() -> None:
    assert list(differences(side([], []), side([], [], ["no"]))) == ["only the cluster refuses: no"]
