"""L1: what waits though it fits."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks import claim_facts, facts
from simulator.checks.checker import NODES, POD_GROUPS
from simulator.checks.claims import backed_fitting
from simulator.checks.facts import pod as read
from simulator.checks.fit import Apart, Room, terms_of
from simulator.checks.gangs import Minimums
from simulator.checks.ledgers import NodeFacts
from simulator.checks.messages import Scene
from simulator.nodes.device_manager import Device
from tests.simulator.checks.claim_stories import DRIVER, ClaimStory
from tests.simulator.made_up import Story, granted, granted_memory, node, pod, pod_group, reservation, waiting, whole
from tests.steps import counted
from wire import names

ADMITTED = {"name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {}}}]}
BY_MAP = {"name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "m"}}}]}
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

    assert cost(100) <= 9 * cost(1)


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


def many(count: int, value: str = "") -> dict[str, str]:
    return {f"k{number:04d}": value for number in range(count)}


@pytest.mark.parametrize(
    ("labels", "broken"),
    [
        (many(256), {"L1"}),
        (many(257), set()),
        (many(240, "v" * 63), {"L1"}),  # 68 bytes each
        (many(241, "v" * 63), set()),
    ],
)
def test_a_pod_with_more_labels_than_are_scheduled_waits_rightly(labels: dict[str, str], broken: set[str]) -> None:
    assert half_full(2).sees(asks_whole("q", 1, labels=labels)).rests().broken() - {"L3"} == broken


# Pods that keep apart: which nodes they are kept off, and what is judged of those that wait (L1, L3).

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NO_NODE = "no nodes with enough resources were found: "
BY_OWN, BY_OTHERS = "didn't match pod anti-affinity rules", "didn't satisfy existing pods anti-affinity rules"


def term(key: str = names.HOSTNAME_LABEL, **labels: str) -> dict[str, Any]:
    """A term about pods with these labels."""
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key}


def rule(*terms: dict[str, Any]) -> dict[str, Any]:
    """The affinity of a pod that keeps apart."""
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


A, B, RULE_A = {"app": "a"}, {"app": "b"}, rule(term(app="a"))


def there(name: str, labels: dict[str, str], affinity: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    made = pod(name, labels=labels, **more)
    made["spec"]["affinity"] = affinity or {}
    return made


def asker(labels: dict[str, str], affinity: dict[str, Any] | None = None, message: str = "something") -> dict[str, Any]:
    made = waiting("q", message, labels=labels)
    made["spec"]["affinity"] = affinity or {}
    return made


@pytest.mark.parametrize(
    ("others", "labels", "affinity", "kept"),
    [
        ([there("p", A)], A, RULE_A, {"node-0"}),
        ([there("p", A)], B, RULE_A, {"node-0"}),
        ([there("p", B)], A, RULE_A, set()),
        ([there("p", A, RULE_A)], A, None, {"node-0"}),
        ([there("p", B, RULE_A)], A, None, {"node-0"}),
        ([there("p", A, RULE_A)], B, None, set()),
        ([there("p", A), there("o", A, node="node-1")], A, RULE_A, {"node-0", "node-1"}),
        ([there("p", A, phase="Succeeded")], A, RULE_A, set()),
        ([there("p", A, metadata={"namespace": "elsewhere"})], A, RULE_A, set()),
        ([there("p", A, node="")], A, RULE_A, set()),
    ],
)
def test_a_pod_is_kept_off_by_its_own_rules_and_by_those_of_others(
    others: list[dict[str, Any]], labels: dict[str, str], affinity: dict[str, Any] | None, kept: set[str]
) -> None:
    assert Apart.of(map(facts.pod, others)).kept_from(facts.pod(asker(labels, affinity))) == kept


@pytest.mark.parametrize(
    "affinity",
    [
        {"nodeAffinity": {}},
        {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        rule(term("topology.kubernetes.io/zone", app="a")),
        rule({**term(app="a"), "namespaces": ["elsewhere"]}),
        rule({"labelSelector": {"matchExpressions": []}, "topologyKey": names.HOSTNAME_LABEL}),
        rule(term()),
    ],
)
def test_rules_of_other_forms_are_not_read(affinity: dict[str, Any]) -> None:
    assert terms_of({"affinity": affinity}) is None


@pytest.mark.parametrize(("nodes", "broken"), [(1, set()), (2, {"L1"})])
@pytest.mark.parametrize(("first", "second"), [((A, RULE_A), (A, None)), ((A, None), (A, RULE_A))])
def test_a_pod_that_keeps_apart_waits_only_while_each_node_has_another_one(
    nodes: int, broken: set[str], first: Any, second: Any
) -> None:
    story = Story()
    for number in range(nodes):
        story.sees(node(f"node-{number}"), kind=NODES)
    assert story.sees(there("p", *first)).sees(asker(*second)).rests().broken() == broken


@pytest.mark.parametrize(
    ("told", "broken"),
    [
        (f"1 node(s) {BY_OWN}.", set()),
        (f"1 node(s) {BY_OTHERS}.", set()),
        (f"2 node(s) {BY_OWN}.", {"L3"}),
        ("", {"L3"}),
    ],
)
def test_the_nodes_that_other_pods_keep_a_pod_off_are_counted(told: str, broken: set[str]) -> None:
    story = Story().sees(node(), kind=NODES).sees(there("p", A))
    assert story.sees(asker(A, RULE_A, NO_NODE + told)).rests().broken() == broken


# L1 of pods that wait though a claim could be made for them: devices of a class, or a part of a shared GPU.

_ACCELERATOR = "example.com/accelerator"
_FITS = ["it fits with a claim made for it on node-0"]


def _class(name: str, resource: str, no: str, **more: Any) -> dict[str, Any]:
    selector = {"cel": {"expression": f'{no}device.attributes["{DRIVER}"].big'}}
    spec = {"extendedResourceName": resource, "selectors": [selector], **more}
    return {"metadata": {"name": name}, "spec": spec}


def _story(*, gib: int = 16, devices: int = 1) -> ClaimStory:
    """A node with shared GPUs, and accelerators of a class of their own."""
    made = ClaimStory().stores("deviceclasses", _class("gpus", names.GPU_RESOURCE, "!"))
    made.stores("deviceclasses", _class("accelerators", _ACCELERATOR, ""))
    big = [{"name": f"a{number}", "attributes": {"big": {"bool": True}}} for number in range(devices)]
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": f"{gib}Gi"}}}
    pool = {"name": "node-0", "generation": 1, "resourceSliceCount": 1}
    listed = [*big, {"name": "d0", "attributes": {"big": {"bool": False}}, **shared}]
    spec = {"driver": DRIVER, "nodeName": "node-0", "pool": pool, "devices": listed}
    return made.stores("resourceslices", {"metadata": {"name": "s"}, "spec": spec})


def _share(fraction: str = "0.5", **more: Any) -> dict[str, Any]:
    limits = {"limits": {names.GPU_SHARE_RESOURCE: more.pop("by_claim", "1"), **more.pop("limits", {})}}
    env = [{"name": names.ENV_VISIBLE_DEVICES, "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]
    asked = {names.GPU_MEMORY: fraction} if fraction.isdigit() else {names.GPU_FRACTION: fraction}
    containers = [{"name": "main", "resources": limits, "env": env}]
    return pod("p", node="", annotations=asked, containers=containers, **more)


def _whole(count: int = 1, resource: str = _ACCELERATOR, **more: Any) -> dict[str, Any]:
    return pod("p", node="", containers=[{"name": "main", "resources": {"limits": {resource: str(count)}}}], **more)


def _told(
    made: ClaimStory, raw: dict[str, Any], *, gpus: int = 0, used: int = 0, apart: tuple[str, ...] = (), **gangs: Any
) -> Any:
    node = NodeFacts("node-0", 8000, 8000, 8, {names.GPU_RESOURCE: gpus}, True, False, False)
    room = Room(name="node-0", gpus=gpus - used, cpu_milli=8000, mem_mib=8000, pods=8, smallest_mib=0)
    scene = Scene(nodes={"node-0": node}, rooms=[room], **{"members": {}, "minimums": {}, **gangs})
    found = backed_fitting([read(raw)], scene, made.claims.records, kept_from=lambda _: apart)
    return [text for _, text in found]


@pytest.mark.parametrize(
    ("story", "raw", "fits"),
    [
        (_story, _share(), True),
        (_story, _share("1024"), True),
        (lambda: _story(gib=2), _share("4096"), False),
        (lambda: _story().claim("c", "d0", part_gib=8), _share("0.5"), True),
        (lambda: _story().claim("c", "d0", part_gib=9), _share("0.5"), False),
        (lambda: _story().claim("c", "d0"), _share("0.5"), False),
        (_story, _share(by_claim="2"), False),
        (_story, _share(limits={_ACCELERATOR: "1"}), False),
        (lambda: _story(devices=2), _whole(2), True),
        (lambda: _story(devices=2).claim("c", "a0"), _whole(2), False),
        (_story, _whole(resource=names.GPU_RESOURCE), False),
        (lambda: _story().stores("deviceclasses", _class("more", _ACCELERATOR, "")), _whole(), False),
        (lambda: _story().stores("deviceclasses", _class("accelerators", _ACCELERATOR, "x")), _whole(), False),
        (_story, _whole(resource="example.com/other"), False),
    ],
    ids=[
        *("a fraction", "memory", "too little memory", "the other half", "more than is left", "all is taken"),
        *("no claimable container", "a share and a device", "both devices", "one is taken", "shared only"),
        *("two classes", "another selector", "no class"),
    ],
)
def test_a_pod_fits_where_a_claim_would_find_what_it_asks(story: Any, raw: dict[str, Any], fits: bool) -> None:
    assert _told(story(), raw) == _FITS * fits


@pytest.mark.parametrize(("gpus", "used", "fits"), [(0, 0, True), (2, 0, False), (2, 2, False), (0, 1, False)])
def test_gpus_come_by_claims_only_where_no_device_plugin_has_any(gpus: int, used: int, fits: bool) -> None:
    assert _told(_story(), _share(), gpus=gpus, used=used) == _FITS * fits
    assert _told(_story(), _whole(), gpus=gpus, used=used) == _FITS


@pytest.mark.parametrize(("minimum", "fits"), [(None, False), (1, True), (2, False)])
def test_of_a_gang_those_beyond_its_minimum_are_judged(minimum: int | None, fits: bool) -> None:
    waits, runs = _share(), pod("q", annotations={names.POD_GROUP_NAME: "g"})
    waits["metadata"]["annotations"][names.POD_GROUP_NAME] = "g"
    needs = {} if minimum is None else {("team", "g"): Minimums({"minMember": minimum})}
    members = {("team", "g"): [read(waits), read(runs)]}
    assert _told(_story(), waits, members=members, minimums=needs) == _FITS * fits


def test_devices_that_are_kept_and_nodes_that_others_keep_are_not_judged() -> None:
    raw = _share()
    told = "1 node(s) have devices free only when programs of Pods that were deleted by force must have ended"
    raw["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "x", "message": told}]
    assert _told(_story(), raw) == []
    assert _told(_story(), _share(), apart=("node-0",)) == []


@pytest.mark.parametrize(
    ("expression", "side"),
    [
        ('device.attributes["x"].big', True),
        ('!device.attributes["x"].big', False),
        ('device.attributes["x"].big || true', None),
        ("true", None),
    ],
)
def test_a_class_has_a_side_if_it_asks_for_the_attribute_alone(expression: str, side: bool | None) -> None:
    selector = {"cel": {"expression": expression}}
    assert claim_facts.side_of({"selectors": [selector]}) is side
    assert claim_facts.side_of({"selectors": [selector, selector]}) is None
    assert claim_facts.side_of({}) is None
