"""L3: reasons that are true. S11: malformed asks that are named."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.minimum_tree import NEVER, MinimumTree, Part, minimum_tree
from simulator.apiserver.types import CONFIG_MAPS
from simulator.checks import facts, shares
from simulator.checks.checker import NODES, POD_GROUPS
from simulator.checks.gangs import Minimums
from simulator.checks.observer import Overhearing
from simulator.checks.shares import Share
from tests.simulator.made_up import A, B, C, Story, node, pod, pod_group, reservation, waiting, whole

NO_NODE = "no nodes with enough resources were found: "
GANG = {"pod-group-name": "gang"}


def asks_whole(message: str | None, count: int = 4) -> dict[str, Any]:
    return waiting("q", message, containers=whole("q", count)["spec"]["containers"])


@pytest.mark.parametrize(
    ("message", "broken"),
    [
        (NO_NODE + "1 node(s) didn't have enough resources: GPUs. The best node lacks 1 GPU(s).", set()),
        (NO_NODE + "2 node(s) didn't have enough resources: GPUs.", {"L3"}),
        (NO_NODE + "1 node(s) didn't have enough resources: CPU cores.", {"L3"}),
        (NO_NODE + "1 node(s) were unschedulable.", {"L3"}),
        (NO_NODE + "there are no nodes.", {"L3"}),
        ("The last attempt failed, trying again soon: Refused", {"L3"}),
        ("The gang needs 8 pods to start and waits for its turn: large gangs were tried just before", {"L3"}),
        ("Waiting for an idle GPU reservation to be removed: node-0", {"L3"}),
        (None, {"L3"}),
    ],
)
def test_what_a_waiting_pod_says_of_the_nodes_is_compared_with_a_count(message: str | None, broken: set[str]) -> None:
    assert Story().sees(node(gpus=3), kind=NODES).sees(asks_whole(message)).rests().broken() == broken


READS_A_MAP = {"name": "main", "envFrom": [{"configMapRef": {"name": "m"}}]}
MAY_READ_ONE = {"name": "main", "envFrom": [{"configMapRef": {"name": "m", "optional": True}}]}


@pytest.mark.parametrize(
    ("container", "stored", "broken"),
    [
        (READS_A_MAP, [], set()),
        (READS_A_MAP, [False], {"L3"}),
        (READS_A_MAP, [False, True], set()),
        (MAY_READ_ONE, [], {"L1"}),
        ({"name": "main"}, [], {"L1"}),
    ],
    ids=["absent", "there", "deleted again", "optional", "not named by the pod"],
)
def test_a_pod_may_wait_for_a_config_map_that_it_requires_while_that_is_absent(
    container: dict[str, Any], stored: list[bool], broken: set[str]
) -> None:
    story = Story().sees(node(), kind=NODES)
    for is_gone in stored:
        raw = json.dumps({"metadata": {"namespace": "team", "name": "m"}, "data": {}}).encode()
        Overhearing(story.checker).take(CONFIG_MAPS, raw, is_gone)
    message = "Missing required configmaps: [m]. Create the ConfigMap, or mark it as `optional` in the pod."
    assert story.sees(waiting("q", message, containers=[container])).rests().broken() == broken


@pytest.mark.parametrize(("counted", "broken"), [(1, set()), (2, {"L3"})])
def test_a_reason_is_compared_with_a_count_also_where_a_sentence_about_what_helps_follows(
    counted: int, broken: set[str]
) -> None:
    hint = " This change lets it start (tried, and renewed within 10 minutes): request 3 GPUs per pod."
    message = f"{NO_NODE}{counted} node(s) didn't have enough resources: GPUs. The best node lacks 1 GPU(s).{hint}"
    assert Story().sees(node(gpus=3), kind=NODES).sees(asks_whole(message)).rests().broken() == broken
    message = f"Resources were found for 1 pods while {counted + 1} are required for gang scheduling. Anything.{hint}"
    gang = waiting("q", message, annotations=GANG, containers=whole("q", 4)["spec"]["containers"])
    assert Story().sees(node(gpus=3), kind=NODES).sees(gang).rests().broken() == {"L3"}


def _affinity_to(host: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("rules", "taints", "broken"),
    [
        ({"nodeSelector": {"kubernetes.io/hostname": "node-0"}}, [], set()),
        (_affinity_to("node-0"), [], set()),
        ({"tolerations": [{"key": "a", "operator": "Exists"}]}, [{"key": "a", "effect": "NoSchedule"}], set()),
        ({"tolerations": [{"key": "a", "operator": "Exists"}]}, [], {"L3"}),
        ({}, [], {"L3"}),
    ],
    ids=["selector", "affinity", "a taint that may be tolerated", "no taint", "no rule"],
)
def test_nodes_that_lack_gpus_are_not_counted_of_a_pod_whose_rules_choose_among_them(
    rules: dict[str, Any], taints: list[dict[str, str]], broken: set[str]
) -> None:
    story = Story().sees(node(gpus=3), kind=NODES)
    other = node("node-1", gpus=3)
    story.sees({**other, "spec": {**other["spec"], "taints": taints}}, kind=NODES)
    asking = asks_whole(NO_NODE + f"{2 if taints else 1} node(s) didn't have enough resources: GPUs.")
    assert story.sees({**asking, "spec": {**asking["spec"], **rules}}).rests().broken() == broken


@pytest.mark.parametrize(("resource", "broken"), [("nvidia.com/gpu", set()), ("example.com/other", {"L3"})])
def test_nodes_that_lack_gpus_are_not_counted_where_claims_may_give_some(resource: str, broken: set[str]) -> None:
    story = Story().sees(node(gpus=3), kind=NODES)
    device_class = {"metadata": {"name": "gpus"}, "spec": {"extendedResourceName": resource}}
    story.checker.claims.stored("deviceclasses", device_class, 0.0, is_gone=False)
    message = NO_NODE + "2 node(s) didn't have enough resources: GPUs."
    assert story.sees(asks_whole(message)).rests().broken() == broken


def test_nodes_that_take_nobody_are_counted() -> None:
    story = Story().sees(node(), kind=NODES).sees(node("node-1", cordoned=True), kind=NODES)
    story.sees(node("node-2", ready=False), kind=NODES)
    parts = ("1 node(s) didn't have enough resources: GPUs", "1 node(s) were not ready", "1 node(s) were unschedulable")
    assert story.sees(asks_whole(NO_NODE + " \n".join(f"{part}." for part in parts))).rests().broken() == set()


@pytest.mark.parametrize(
    ("required", "present", "gated", "broken"), [(3, 2, 0, set()), (2, 2, 0, {"L3"}), (3, 1, 1, {"L3"})]
)
def test_what_a_gang_says_of_itself_is_counted(required: int, present: int, gated: int, broken: set[str]) -> None:
    message = (
        f"Job is not ready for scheduling. Waiting for {required} pods, currently {present} exist, {gated} are gated"
    )
    story = Story().sees(node(), kind=NODES).sees(pod_group("gang", 3), kind=POD_GROUPS)
    for name in ("p", "q"):
        story.sees(waiting(name, message, annotations=GANG))
    assert story.rests().broken() == broken


def _of_parts(message: str, *parts: str) -> set[str]:
    """What is broken if these members of sub-groups say that."""
    spec = {
        "minSubGroup": 1,
        "subGroups": [
            {"name": "a", "minMember": 3},
            {"name": "x", "minSubGroup": 2},
            *({"name": f"x{i}", "parent": "x", "minMember": 1} for i in range(3)),
        ],
    }
    story = Story().sees({**pod_group("gang", 3), "spec": spec}, kind=POD_GROUPS)
    for i, part in enumerate(parts):
        story.sees(waiting(f"m{i}", message, annotations=GANG, labels={"kai.scheduler/subgroup-name": part}))
    return story.rests().broken()


_WAITS = "Job is not ready for scheduling. Waiting for"


@pytest.mark.parametrize(
    ("message", "broken"),
    [
        (f"{_WAITS} 3 pods for SubGroup a, currently 2 exist, 0 are gated.", set()),
        (f"{_WAITS} 2 pods for SubGroup a, currently 2 exist, 0 are gated.", {"L3"}),
        (f"{_WAITS} 3 pods for SubGroup a, currently 1 exist, 0 are gated.", {"L3"}),
        (f"{_WAITS} 3 pods for SubGroup a, currently 2 exist, 1 are gated.", {"L3"}),
        (f"{_WAITS} 2 complete subgroups of SubGroup x, currently 1 are complete.", set()),
        (f"{_WAITS} 3 complete subgroups of SubGroup x, currently 1 are complete.", {"L3"}),
        (f"{_WAITS} 2 complete subgroups of SubGroup x, currently 2 are complete.", {"L3"}),
        (f"{_WAITS} 1 complete subgroups of the PodGroup, currently 0 are complete.", set()),
        (f"{_WAITS} 1 complete subgroups of the PodGroup, currently 1 are complete.", {"L3"}),
        (f"{_WAITS} 2 pods, currently 3 exist, 0 are gated", set()),
        (f"{_WAITS} 3 pods, currently 3 exist, 0 are gated", {"L3"}),
    ],
)
def test_what_a_gang_says_of_its_sub_groups_is_counted(message: str, broken: set[str]) -> None:
    assert _of_parts(message, "a", "a", "x0") == broken


@pytest.mark.parametrize(("present", "broken"), [(0, {"L3"}), (1, set()), (2, set()), (3, {"L3"})])
def test_a_member_that_has_succeeded_may_count_as_one_that_exists(present: int, broken: set[str]) -> None:
    message = f"Job is not ready for scheduling. Waiting for 4 pods, currently {present} exist, 0 are gated"
    story = Story().sees(pod_group("gang", 4), kind=POD_GROUPS)
    story.sees(pod("done", annotations=GANG, phase="Succeeded")).sees(pod("lost", annotations=GANG, phase="Failed"))
    assert story.sees(waiting("q", message, annotations=GANG)).rests().broken() & {"L3"} == broken


@pytest.mark.parametrize(("required", "room", "broken"), [(3, 2, set()), (2, 1, {"L3"}), (3, 3, {"L3"})])
def test_a_gang_says_which_sub_group_found_no_room(required: int, room: int, broken: set[str]) -> None:
    message = (
        f"Resources were found for 2 pods from all sub-groups while sub-group a requires {required} pods for gang "
        f"scheduling (room for {room}). {NO_NODE}"
    )
    assert _of_parts(message, "a", "a", "a") == broken


def test_a_gang_says_how_many_it_needs() -> None:
    message = f"Resources were found for 1 pods while 5 are required for gang scheduling. {NO_NODE}"
    story = Story().sees(pod_group("gang", 2), kind=POD_GROUPS)
    assert story.sees(waiting("q", message, annotations=GANG)).rests().broken() == {"L3"}


MALFORMED = [
    {"gpu-fraction": "abc"},
    {"gpu-fraction": "1.0"},
    {"gpu-fraction": "0"},
    {"gpu-fraction": "1/2"},
    {"gpu-fraction": ""},
    {"gpu-memory": "10Gi"},
    {"gpu-memory": "0"},
    {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "zero"},
    {"gpu-fraction-num-devices": "2"},
    {"gpu-fraction": "0.5", "gpu-fraction-container-name": "nobody"},
    {"gpu-fraction": "0.5", "gpu-memory": "100"},
]


@pytest.mark.parametrize("annotations", MALFORMED, ids=str)
def test_a_malformed_ask_that_is_bound_breaks_s11(annotations: dict[str, str]) -> None:
    assert Story().sees(pod("p", annotations=annotations)).broken() == {"S11"}


def test_a_number_of_devices_beside_memory_of_a_container_is_a_sound_ask() -> None:
    """F5: NvFractions' words are a share."""
    sound = {"nvidia.com/container.main.gpu-memory.request": "1Gi", "gpu-fraction-num-devices": "2"}
    assert "S11" not in Story().sees(pod("p", annotations=sound)).broken()
    other = {"nvidia.com/container.main.gpu-compute.mode": "time-slicing", "gpu-fraction-num-devices": "2"}
    assert "S11" in Story().sees(pod("p", annotations=other)).broken()


@pytest.mark.parametrize(
    ("message", "broken"),
    [("gpu-fraction is wrong", {"S11"}), ("it is abc", {"S11"}), ('gpu-fraction is "abc"; allowed: more', set())],
)
def test_a_malformed_ask_is_named_with_its_value(message: str, broken: set[str]) -> None:
    raw = waiting("p", message, annotations={"gpu-fraction": "abc"})
    assert Story().sees(raw).rests().broken() == broken
    story = Story()
    story.checker.refused(raw, message, 0.0)
    assert story.broken() == broken


def test_a_sound_pod_that_is_refused_breaks_s11() -> None:
    story = Story()
    story.checker.refused(waiting("p", annotations={"gpu-fraction": "0.5"}), "no", 0.0)
    assert story.broken() == {"S11"}


@pytest.mark.parametrize(
    ("gpus", "message", "broken"),
    [(1, "spec.nodeName is 'n1'; allowed: none", set()), (1, "no", {"S11"}), (0, "spec.nodeName is 'n1'", {"S11"})],
)
def test_a_pod_that_asks_for_gpus_of_a_node_that_it_brings_is_refused_and_told_so(
    gpus: int, message: str, broken: set[str]
) -> None:
    story = Story()
    limits = {"limits": {"nvidia.com/gpu": gpus}}
    story.checker.refused(pod("p", node="n1", containers=[{"name": "main", "resources": limits}]), message, 0.0)
    assert story.broken() == broken


# The checks' own count of what a PodGroup needs to be whole.

A2, B2, C0 = {"name": "a", "minMember": 2}, {"name": "b", "minMember": 2}, {"name": "c", "minMember": 0}
X1 = {"name": "x", "minSubGroup": 1}


def below(part: Mapping[str, Any], parent: str) -> dict[str, Any]:
    return {**part, "parent": parent}


@pytest.mark.parametrize(
    ("spec", "there", "lacks"),
    [
        ({}, {}, 0),
        ({"minMember": 3}, {"": 1, "z": 1}, 1),
        ({"subGroups": [A2, B2]}, {"a": 2}, 2),
        ({"minMember": 6, "subGroups": [A2, B2]}, {"a": 2, "b": 2}, 2),
        ({"minSubGroup": 1, "subGroups": [A2, B2]}, {"b": 1}, 1),
        ({"minSubGroup": 1, "subGroups": [A2, B2]}, {"a": 1, "b": 1}, 1),
        ({"minSubGroup": 2, "subGroups": [A2, B2, C0]}, {"a": 2}, 2),
        ({"minSubGroup": 3, "subGroups": [A2, B2, C0]}, {"a": 2}, 2),
        ({"minSubGroup": 4, "subGroups": [A2, B2, C0]}, {"a": 2, "b": 2}, None),
        ({"minSubGroup": 1}, {}, None),
        ({"subGroups": [X1, below(A2, "x"), below(B2, "x")]}, {}, 2),
        ({"subGroups": [{"name": "x"}, below(A2, "x"), below(B2, "x")]}, {"a": 1}, 3),
    ],
)
def test_a_group_lacks_the_fewest_pods_that_make_it_whole(
    spec: dict[str, Any], there: dict[str, int], lacks: int | None
) -> None:
    needs = Minimums(spec)
    assert needs.is_clear
    assert needs.lacks(there) == lacks
    assert needs.is_whole(there) == (lacks == 0)


@pytest.mark.parametrize(("waiting", "lacks"), [({"a": 2}, 2), ({"a": 1, "b": 3}, 3), ({"a": 1, "b": 2}, None)])
def test_it_lacks_no_more_than_wait(waiting: dict[str, int], lacks: int | None) -> None:
    spec = {"minSubGroup": 1, "subGroups": [A2, {"name": "b", "minMember": 3}]}
    assert Minimums(spec).lacks({}, waiting) == lacks


@pytest.mark.parametrize(
    "spec",
    [
        {"minMember": 1, "minSubGroup": 1, "subGroups": [A2]},
        {"subGroups": [A2, A2]},
        {"subGroups": [below(A2, "b")]},
        {"subGroups": [below(A2, "b"), below(B2, "a")]},
        {"subGroups": [X1]},
        {"subGroups": [{"name": "a", "minMember": 1, "minSubGroup": 1}]},
    ],
)
def test_what_contradicts_itself_is_not_counted(spec: dict[str, Any]) -> None:
    assert not Minimums(spec).is_clear


def test_a_level_says_how_many_of_its_sub_groups_are_complete() -> None:
    needs = Minimums({"minSubGroup": 2, "subGroups": [A2, B2, C0]})
    assert needs.complete("", {"a": 2, "b": 1}) == (2, 1)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Trees with up to 6 leaves."""
    parts: list[dict[str, Any]] = []
    above = [""]
    for number in range(draw(st.integers(0, 3))):
        part: dict[str, Any] = {"name": f"i{number}", "minSubGroup": draw(st.none() | st.integers(0, 3))}
        parts += [part, {"name": f"k{number}", "parent": part["name"], "minMember": draw(st.integers(0, 2))}]
        part["parent"] = draw(st.sampled_from(above)) or None
        above.append(part["name"])
    for number in range(draw(st.integers(1, 3))):
        parent = draw(st.sampled_from(above)) or None
        parts.append({"name": f"l{number}", "parent": parent, "minMember": draw(st.integers(0, 3))})
    return {"minSubGroup": draw(st.none() | st.integers(0, 3)), "subGroups": parts}


@given(specs())
def test_two_counts_that_share_no_code_agree(spec: dict[str, Any]) -> None:
    listed = [
        Part(each["name"], each["parent"] or "", each.get("minMember"), each.get("minSubGroup"))
        for each in spec["subGroups"]
    ]
    tree, needs = minimum_tree(listed, spec["minSubGroup"]), Minimums(spec)
    assert isinstance(tree, MinimumTree)
    names = [each["name"] for each in spec["subGroups"] if each["name"][0] != "i"]
    for counts in itertools.islice(itertools.product((0, 1, 3), repeat=len(names)), 30):
        there = dict(zip(names, counts, strict=True))
        lacks = needs.lacks(there)
        assert tree.costs(tree.lacking(Counter(there)))[0] == (NEVER if lacks is None else lacks)


# Pods of other dialects before the checker: what their records promise, by the checker's own reading of them.

CARDS = {card.uuid: card for card in (A, B, C)}
TWO = [{"name": "main"}, {"name": "side"}]
TOGETHER = [
    {"container": "c0", "name": "main", "memMib": 300, "seat": "a"},
    {"container": "c1", "name": "side", "memMib": 400, "seat": "a"},
]
APART = [{"container": "c0", "name": "main", "memMib": 300}, {"container": "c1", "name": "side", "memMib": 400}]


def recorded_given(
    name: str,
    asks: list[dict[str, Any]],
    shown: dict[str, str],
    nanos: dict[str, int],
    *,
    alternatives: tuple[list[dict[str, Any]], ...] = (),
    **more: Any,
) -> dict[str, Any]:
    """A pod of two containers with this record, whose Binding hands devices of group g to these containers."""
    record = {"version": 1, "dialect": "hami", "asks": asks, "alternatives": alternatives}
    devices = [{"group": f"g{uuid[-1]}", "reservation": "", "uuid": uuid, "nano": nano} for uuid, nano in nanos.items()]
    annotations = {
        "moorage.dev/gpu": json.dumps(record),
        "moorage.dev/grant": json.dumps({"attempt": "a", "devices": devices}),
        **{f"moorage.dev/visible-devices.{key}": uuids for key, uuids in shown.items()},
    }
    labels = {f"runai-gpu-group/{device['group']}": str(device["group"]) for device in devices}
    return pod(name, annotations=annotations, labels=labels, **{"containers": TWO, **more})


def running(*pods: dict[str, Any], seen: dict[str, tuple[str, ...]]) -> Story:
    """Reservations of the groups ga and gb hold GPU-a and GPU-b; the pods' containers see these devices."""
    story = Story()
    for letter in "ab":
        story.sees(reservation(f"r{letter}", f"g{letter}")).holds(f"r{letter}", f"GPU-{letter}")
    for raw in pods:
        story.sees(raw)
        for container, devices in seen.items():
            story.starts(raw["metadata"]["name"], *devices, container=container)
    return story


BOTH_ON_A = {"c0": "GPU-a", "c1": "GPU-a"}


def test_containers_of_one_seat_share_a_device() -> None:
    together = recorded_given("p", TOGETHER, BOTH_ON_A, {"GPU-a": 700_000_000})
    assert running(together, seen={"main": ("GPU-a",), "side": ("GPU-a",)}).broken() == set()


def test_devices_may_be_told_by_cdi_names() -> None:
    names = dict.fromkeys(("c0", "c1"), "k8s.device-plugin.nvidia.com/gpu=GPU-a")
    together = recorded_given("p", TOGETHER, names, {"GPU-a": 700_000_000})
    assert running(together, seen={"main": ("GPU-a",), "side": ("GPU-a",)}).broken() == set()


def test_two_such_pods_are_more_than_a_device() -> None:
    pods = [recorded_given(name, TOGETHER, BOTH_ON_A, {"GPU-a": 700_000_000}) for name in "pq"]
    assert running(*pods, seen={"main": ("GPU-a",), "side": ("GPU-a",)}).broken() == {"S1"}


@pytest.mark.parametrize(
    ("seen", "broken"),
    [
        ({"main": ("GPU-a",), "side": ("GPU-b",)}, set()),
        ({"main": ("GPU-b",), "side": ("GPU-a",)}, {"S3"}),
        ({"main": ("GPU-a",), "side": ("GPU-a",)}, {"S3"}),
        ({"main": ("GPU-a", "GPU-b"), "side": ("GPU-b",)}, {"S3"}),
        ({"main": (), "side": ("GPU-b",)}, {"S3"}),
    ],
)
def test_each_container_sees_what_it_asked_itself(seen: dict[str, tuple[str, ...]], broken: set[str]) -> None:
    raw = recorded_given("p", APART, {"c0": "GPU-a", "c1": "GPU-b"}, {"GPU-a": 300_000_000, "GPU-b": 400_000_000})
    assert running(raw, seen=seen).broken() == broken


def test_devices_that_no_way_of_the_record_asks_break_s3_and_s8() -> None:
    raw = recorded_given("p", TOGETHER, {"c0": "GPU-a", "c1": "GPU-b"}, {"GPU-a": 300_000_000, "GPU-b": 400_000_000})
    assert running(raw, seen={"main": ("GPU-a",), "side": ("GPU-b",)}).broken() == {"S3", "S8"}


def test_the_alternative_that_was_taken_is_found() -> None:
    shown, nanos = {"c0": "GPU-a", "c1": "GPU-b"}, {"GPU-a": 300_000_000, "GPU-b": 400_000_000}
    raw = recorded_given("p", TOGETHER, shown, nanos, alternatives=(APART,))
    assert running(raw, seen={"main": ("GPU-a",), "side": ("GPU-b",)}).broken() == set()


@pytest.mark.parametrize(("nano", "broken"), [(700_000_000, set()), (699_999_999, {"S8"})])
def test_a_device_is_charged_with_all_that_is_used_of_it_at_one_time(nano: int, broken: set[str]) -> None:
    raw = recorded_given("p", TOGETHER, BOTH_ON_A, {"GPU-a": nano})
    assert Story().sees(raw).broken() == broken


def test_unequal_shares_stand_in_the_order_of_the_asks() -> None:
    """M3: one device and a half."""
    asks = [{"container": "c0", "name": "main", "nano": 10**9}, {"container": "c0", "name": "main", "nano": 5 * 10**8}]
    raw = recorded_given("p", asks, {"c0": "GPU-b,GPU-a"}, {"GPU-b": 10**9, "GPU-a": 5 * 10**8})
    placed = shares.placement_of(facts.pod(raw), CARDS)
    assert placed is not None
    assert placed.of("main") == {"GPU-b": Share(Fraction(1)), "GPU-a": Share(Fraction(1, 2))}


def test_equal_devices_of_several_ways_are_told_apart_by_the_charge() -> None:
    """M5: 150 units cut as 100 + 50, or as 99 + 51."""
    first, second = ([{"container": "c0", "nano": n * 10**7} for n in cut] for cut in ((100, 50), (99, 51)))
    raw = recorded_given(
        "p", first, {"c0": "GPU-a,GPU-b"}, {"GPU-a": 99 * 10**7, "GPU-b": 51 * 10**7}, alternatives=(second,)
    )
    placed = shares.placement_of(facts.pod(raw), CARDS)
    assert placed is not None
    assert placed.charge("GPU-b") == Fraction(51, 100)


@pytest.mark.parametrize(("sidecar", "charge"), [(False, Fraction(7, 10)), (True, Fraction(9, 10))])
def test_init_containers_are_counted_when_they_run(sidecar: bool, charge: Fraction) -> None:
    policy = {"restartPolicy": "Always"} if sidecar else {}
    asks = [{"container": "i0", "memMib": 200, "seat": "a"}, *TOGETHER]
    raw = recorded_given("p", asks, {**BOTH_ON_A, "i0": "GPU-a"}, {"GPU-a": 9 * 10**8})
    raw["spec"]["initContainers"] = [{"name": "load", **policy}]
    placed = shares.placement_of(facts.pod(raw), CARDS)
    assert placed is not None
    assert placed.charge("GPU-a") == charge


@pytest.mark.parametrize(
    "record",
    ["", "{", "[]", '{"asks": [{}]}', '{"asks": [{"container": "c9", "nano": 5}]}', '{"asks": [{"container": "c0"}]}'],
)
def test_what_asks_for_no_part_that_can_be_read_has_no_ways(record: str) -> None:
    assert shares.ways(facts.pod(pod("p", annotations={"moorage.dev/gpu": record}))) == ()
