"""L1: what waits though it fits."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks.checker import NODES, POD_GROUPS
from simulator.nodes.device_manager import Device
from tests.simulator.made_up import Story, granted, granted_memory, node, pod_group, reservation, waiting, whole
from tests.steps import counted

ADMITTED = {"name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {}}}]}
BY_MAP = {"name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "m"}}}]}
OF_ANOTHER_MAKER = {"name": "main", "resources": {"limits": {"npu.example/cards": "1"}}}
NO_ROOM = "something"


def asks(name: str, annotations: dict[str, str], **more: Any) -> dict[str, Any]:
    return waiting(name, NO_ROOM, annotations=annotations, containers=[ADMITTED], **more)


def asks_whole(name: str, count: int, **more: Any) -> dict[str, Any]:
    return waiting(name, NO_ROOM, containers=whole(name, count)["spec"]["containers"], **more)


def half_full(gpus: int = 1, *, device: str = "GPU-a") -> Story:
    """A node with one device that is half taken, and as many more as ``gpus`` says."""
    held = reservation("r", "g", {"uid-p": 500_000_000})
    held["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] = device
    held["status"]["phase"] = "Running"
    return Story().sees(node(gpus=gpus), kind=NODES).sees(held).sees(granted("p", "g"))


@pytest.mark.parametrize(
    ("asker", "gpus", "broken"),
    [
        (asks("q", {"gpu-fraction": "0.5"}), 1, {"L1"}),
        (asks("q", {"gpu-fraction": "0.500000001"}), 1, set()),
        (asks("q", {"gpu-fraction": "0.6"}), 2, {"L1"}),
        (asks("q", {"gpu-memory": "500"}), 1, {"L1"}),
        (asks("q", {"gpu-memory": "501"}), 1, set()),
        (asks("q", {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}), 1, set()),
        (asks("q", {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}), 2, {"L1"}),
        (asks_whole("q", 1), 1, set()),
        (asks_whole("q", 1), 2, {"L1"}),
        (asks_whole("q", 2), 2, set()),
        (waiting("q", NO_ROOM), 1, {"L1"}),
        (asks("q", {"gpu-fraction": "0.5", "moorage.dev/require-enforcement": "true"}), 1, set()),
        (asks("q", {"gpu-fraction": "0.5", "moorage.dev/require-enforcement": "hard"}), 1, set()),
        (asks("q", {"gpu-fraction": "0.5", "moorage.dev/require-enforcement": "false"}), 1, {"L1"}),
        (
            waiting("q", NO_ROOM, containers=[{"name": "c", "resources": {"limits": {"npu.example/cards": "1"}}}]),
            1,
            set(),
        ),
        (asks("q", {"gpu-fraction": "2"}), 2, set()),
        (waiting("q", NO_ROOM, annotations={"gpu-fraction": "0.5"}), 2, set()),
        (waiting("q", NO_ROOM, containers=[BY_MAP]), 2, set()),
        (waiting("q", NO_ROOM, containers=[BY_MAP], annotations={"gpu-fraction": "0.5"}), 2, {"L1"}),
    ],
    ids=[
        "the other half",
        "a nano more than that",
        "a device that is free",
        "half of its memory",
        "a MiB more than that",
        "two devices where one has room",
        "two devices",
        "whole, where none is free",
        "whole",
        "two, where one is free",
        "no GPU at all",
        "one that insists on what its node may not enforce",
        "one that insists on hard caps",
        "one that does not insist",
        "a device of another maker",
        "an ask that means nothing",
        "a pod that admission has not seen",
        "a pod that took its ask back",
        "a pod that reads a ConfigMap and asks",
    ],
)
def test_a_pod_that_waits_though_it_fits_breaks_l1(asker: dict[str, Any], gpus: int, broken: set[str]) -> None:
    assert half_full(gpus).sees(asker).rests().broken() - {"L3", "S11"} == broken


def test_pods_that_need_the_same_are_tried_once_on_each_node() -> None:
    said = "no nodes with enough resources were found: 100 node(s) didn't have enough resources: GPUs."

    def cost(pods: int) -> int:
        story = Story()
        for number in range(100):
            story.sees(node(f"node-{number}", gpus=0), kind=NODES)
        for number in range(pods):
            story.sees(waiting(f"p{number}", said, annotations={"gpu-fraction": "0.5"}, containers=[ADMITTED]))
        with counted() as steps:
            assert story.rests().broken() == set()
        return steps.taken

    assert cost(100) <= 8 * cost(1)


@pytest.mark.parametrize(
    ("mem_mib", "nano", "broken"),
    [(8192, 333_333_333, {"L1"}), (8193, 333_333_333, set()), (8192, 333_333_334, set()), (8191, 333_333_334, {"L1"})],
    ids=["what adds up to the card", "a MiB more", "beside what an older version charged", "a MiB less than that"],
)
def test_memory_fits_beside_memory_as_far_as_what_is_charged_leaves_room(
    mem_mib: int, nano: int, broken: set[str]
) -> None:
    held = reservation("r", "g", {"uid-p": nano, "uid-q": nano})
    held["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] = "GPU-a"
    held["status"]["phase"] = "Running"
    story = Story(cards=(Device(0, "GPU-a", 24576),)).sees(node(gpus=1), kind=NODES).sees(held)
    story.sees(granted_memory("p", "g", 8192, nano)).sees(granted_memory("q", "g", 8192, nano))
    asker = asks("late", {"gpu-memory": str(mem_mib)})
    assert story.sees(asker).rests().broken() - {"L3", "S11"} == broken


def test_nobody_new_comes_to_a_device_that_two_groups_claim() -> None:
    stranger = reservation("s", "h")
    stranger["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] = "GPU-a"
    story = half_full().sees(stranger).sees(asks("q", {"gpu-fraction": "0.5"}))
    assert "L1" not in story.rests().broken()


def test_nothing_fits_on_a_device_that_is_not_the_one_that_its_tenants_were_given() -> None:
    lacks = "no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPUs."
    asker = waiting("q", lacks, annotations={"gpu-fraction": "0.5"}, containers=[ADMITTED])
    assert not {"L1", "L3"} & half_full(device="GPU-b").sees(asker).rests().broken()
    assert half_full().sees(asker).rests().broken() == {"L1", "L3"}


@pytest.mark.parametrize("closed", [node(cordoned=True), node(ready=False)], ids=["cordoned", "not ready"])
def test_a_node_that_takes_nobody_has_no_room(closed: dict[str, Any]) -> None:
    story = Story().sees(closed, kind=NODES).sees(asks_whole("q", 1)).rests()
    assert "L1" not in story.broken()


@pytest.mark.parametrize(("minimum", "broken"), [(3, {"L1"}), (4, set())])
def test_a_gang_that_fits_whole_breaks_l1(minimum: int, broken: set[str]) -> None:
    story = Story().sees(node(gpus=3), kind=NODES).sees(pod_group("gang", minimum), kind=POD_GROUPS)
    for i in range(4):
        story.sees(asks_whole(f"m{i}", 1, annotations={"pod-group-name": "gang"}))
    assert story.rests().broken() - {"L3"} == broken


_A3, _B9 = {"name": "a", "minMember": 3}, {"name": "b", "minMember": 9}


@pytest.mark.parametrize(
    ("more", "broken"),
    [
        ({}, {"L1"}),
        ({"subGroups": [_A3]}, {"L1"}),
        ({"subGroups": [_A3, _B9]}, set()),
        ({"minMember": None, "minSubGroup": 1, "subGroups": [_B9, _A3]}, {"L1"}),
        ({"minMember": None, "minSubGroup": 2, "subGroups": [_B9, _A3]}, set()),
        ({"minMember": None, "subGroups": [{"name": "x"}, {**_A3, "parent": "x"}]}, {"L1"}),
        ({"minMember": None, "subGroups": [{"name": "x", "minSubGroup": 2}, {**_A3, "parent": "x"}]}, set()),
        ({"minSubGroup": 1, "subGroups": [_A3]}, set()),
        ({"topologyConstraint": {"preferredTopologyLevel": "rack"}}, set()),
        ({"topologyConstraint": {"requiredTopologyLevel": "rack"}}, set()),
    ],
)
def test_a_gang_is_judged_by_all_its_minimums_and_not_if_it_asks_for_a_domain_or_contradicts_itself(
    more: dict[str, Any], broken: set[str]
) -> None:
    group = pod_group("gang", 3)
    story = Story().sees(node(gpus=3), kind=NODES)
    story.sees({**group, "spec": {**group["spec"], **more}}, kind=POD_GROUPS)
    part = {"kai.scheduler/subgroup-name": "a"}
    for i in range(3):
        story.sees(asks_whole(f"m{i}", 1, annotations={"pod-group-name": "gang"}, labels=part))
    assert story.rests().broken() - {"L3"} == broken


def test_a_gang_of_different_members_is_judged_where_all_of_them_fit() -> None:
    group = {"minMember": None, "minSubGroup": 1, "subGroups": [_A3, {"name": "b", "minMember": 1}]}
    for gpus, broken in ((5, {"L1"}), (4, set())):
        story = Story().sees(node(gpus=gpus), kind=NODES)
        story.sees({**pod_group("gang", 1), "spec": group}, kind=POD_GROUPS)
        for i, (part, asked) in enumerate([("a", 1), ("a", 1), ("a", 1), ("b", 2)]):
            labels = {"kai.scheduler/subgroup-name": part}
            story.sees(asks_whole(f"m{i}", asked, annotations={"pod-group-name": "gang"}, labels=labels))
        assert story.rests().broken() - {"L3"} == broken


def test_a_gang_that_lacks_members_or_its_pod_group_waits_rightly() -> None:
    story = Story().sees(node(), kind=NODES).sees(pod_group("gang", 2), kind=POD_GROUPS)
    story.sees(asks_whole("p", 1, annotations={"pod-group-name": "gang"}))
    story.sees(asks_whole("q", 1, annotations={"pod-group-name": "nobody"}))
    assert story.rests().broken() - {"L3"} == set()


def half(name: str, fraction: str = "0.5", **more: str) -> dict[str, Any]:
    return asks(name, {"gpu-fraction": fraction, "pod-group-name": "gang", **more})


def whole_member(name: str) -> dict[str, Any]:
    return asks_whole(name, 1, annotations={"pod-group-name": "gang"})


def picky(member: dict[str, Any]) -> dict[str, Any]:
    """A member with a wish that the checker does not count."""
    return {**member, "spec": {**member["spec"], "nodeSelector": {"zone": "a"}}}


PAIRS = {"gpu-fraction-num-devices": "2"}


@pytest.mark.parametrize(
    ("members", "gpus", "broken"),
    [
        ([half("q"), whole_member("t")], 3, {"L1"}),
        ([half("q"), whole_member("t")], 2, set()),
        ([half("q", "0.6"), whole_member("t")], 2, set()),
        ([half("q", "0.6"), whole_member("t")], 3, {"L1"}),
        ([half("q"), half("t", "0.6"), whole_member("u")], 3, {"L1"}),
        ([half("q", "0.3"), half("t", "0.2")], 1, {"L1"}),
        ([half("q", **PAIRS), half("t", **PAIRS)], 3, set()),
        ([half("q", **PAIRS), half("t", **PAIRS)], 4, {"L1"}),
        ([half("q", "2"), whole_member("t")], 4, set()),
        ([half("q"), whole_member("t"), picky(whole_member("u"))], 3, set()),
    ],
    ids=[
        "a device for each",
        "the share may take the only whole device, though it need not",
        "one device too few",
        "what does not fit beside the tenant",
        "any two of three",
        "two that fit beside the tenant",
        "one device too few for two pairs",
        "devices for two pairs",
        "a member whose ask means nothing",
        "a member that is not judged, and may take the room",
    ],
)
def test_a_mixed_gang_breaks_l1_if_it_fits_in_every_order(
    members: list[dict[str, Any]], gpus: int, broken: set[str]
) -> None:
    """On a node with one device that is half taken, and as many more as ``gpus`` says; two members are required."""
    story = half_full(gpus).sees(pod_group("gang", 2), kind=POD_GROUPS)
    for member in members:
        story.sees(member)
    assert story.rests().broken() - {"L3", "S11"} == broken


JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}
REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}
JOB_SET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "u"}


@pytest.mark.parametrize(
    ("meta", "broken"),
    [
        ({"ownerReferences": [REPLICA_SET]}, {"L1"}),
        ({"ownerReferences": [JOB]}, set()),
        ({"ownerReferences": [JOB_SET]}, set()),
        ({"labels": {"app": "x", "kai.scheduler/queue": "q"}}, {"L1"}),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, set()),
        ({"labels": {"gang.scheduling.koordinator.sh/name": "g"}}, set()),
        ({"annotations": {"scheduling.volcano.sh/group-min-member": "2"}}, set()),
        ({"annotations": {"kai.scheduler/batch-min-member": "2"}}, set()),
    ],
)
def test_a_pod_that_may_have_to_start_with_others_is_not_judged(meta: dict[str, Any], broken: set[str]) -> None:
    asker = asks_whole("q", 1)
    asker["metadata"].update(meta)
    assert half_full(2).sees(asker).rests().broken() - {"L3", "S11"} == broken


def test_a_pod_with_a_port_of_the_host_is_not_judged() -> None:
    asker = asks_whole("q", 1)
    asker["spec"]["containers"][0]["ports"] = [{"hostPort": 80}]
    assert half_full(2).sees(asker).rests().broken() - {"L3", "S11"} == set()
    del asker["spec"]["containers"][0]["ports"]
    assert half_full(2).sees(asker).rests().broken() - {"L3", "S11"} == {"L1"}
