"""L3: reasons that are true. S11: malformed asks that are named."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks.checker import NODES, POD_GROUPS
from tests.simulator.made_up import Story, granted, node, pod, pod_group, reservation, waiting, whole

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


def test_a_pod_group_that_is_there_was_found() -> None:
    message = "PodGroup gang was not found (annotation pod-group-name)"
    missing = Story().sees(waiting("q", message, annotations=GANG))
    assert missing.rests().broken() == set()
    there = Story().sees(pod_group("gang", 2), kind=POD_GROUPS).sees(waiting("q", message, annotations=GANG))
    assert there.rests().broken() == {"L3"}


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


@pytest.mark.parametrize("fraction", ["0.5", ".5", "5e-1", "+0.5", "0.999999999999"])
def test_a_sound_ask_that_is_bound_holds(fraction: str) -> None:
    story = Story().sees(reservation("r", "g", {"uid-p": 10**9}))
    assert story.sees(granted("p", "g", fraction, nano=10**9)).broken() == set()


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
