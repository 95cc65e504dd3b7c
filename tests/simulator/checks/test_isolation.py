"""S8: what a user writes frees nothing on paper, and what was asked is what is charged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator.checks.checker import BIND_REQUESTS, POD_GROUPS
from simulator.checks.evictions import Bounds
from simulator.nodes.device_manager import Device
from simulator.nodes.ground_truth import Freed, Held, Record, Started, Stopped
from tests.simulator.made_up import Story, granted, granted_memory, pod, pod_group, reservation, version
from tests.steps import counted

HALF = 500_000_000


def bound(**more: Any) -> Story:
    """A reservation with a pod in its book, which is bound."""
    story = Story().sees(reservation("r", "g", {"uid-p": HALF}))
    return story.sees(version(granted("p", "g", **more), 5))


def test_a_pod_bound_without_being_in_the_book_breaks_s8() -> None:
    assert Story().sees(reservation("r", "g", {})).sees(granted("p", "g")).broken() == {"S8"}


def test_a_pod_charged_less_than_it_asked_breaks_s8() -> None:
    story = Story().sees(reservation("r", "g", {"uid-p": HALF - 1}))
    assert story.sees(granted("p", "g", nano=HALF - 1)).broken() == {"S8"}


@pytest.mark.parametrize(
    ("mem_mib", "nano", "broken"),
    [
        (8192, 333_333_333, set()),
        (8192, 333_333_334, set()),
        (8192, 333_333_332, {"S8"}),
        (12288, 500_000_000, set()),
        (12288, 499_999_999, {"S8"}),
    ],
    ids=[
        "less than a nano short",
        "rounded up, by an older version",
        "more than that",
        "what divides",
        "short of that",
    ],
)
def test_memory_may_be_charged_short_of_what_it_is_by_less_than_a_nano(
    mem_mib: int, nano: int, broken: set[str]
) -> None:
    story = Story(cards=(Device(0, "GPU-a", 24576),)).sees(reservation("r", "g", {"uid-p": nano}))
    assert story.sees(granted_memory("p", "g", mem_mib, nano)).broken() == broken


@pytest.mark.parametrize(("nano", "broken"), [(500_000_954, set()), (500_000_953, {"S8"})])
def test_on_a_card_of_more_than_512_gib_memory_is_charged_in_full(nano: int, broken: set[str]) -> None:
    story = Story(cards=(Device(0, "GPU-a", 512 * 1024 + 1),)).sees(reservation("r", "g", {"uid-p": nano}))
    assert story.sees(granted_memory("p", "g", 262145, nano)).broken() == broken


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [
        ({"compute_percent": 50}, {}, {"S8"}),
        ({"ofALaterVersion": [1]}, {}, {"S8"}),
        ({}, {"mode": "mps"}, {"S8"}),
        ({"mode": "mps"}, {"mode": "mps", "rv": "2", "since": 7}, set()),
        ({"mode": "mps"}, {"attempt": "b"}, set()),
    ],
    ids=["a field is lost", "one that nobody here knows", "one comes", "it is renewed", "it is of another attempt"],
)
def test_an_entry_keeps_what_it_says_while_it_is_in_the_book(
    before: dict[str, Any], after: dict[str, Any], broken: set[str]
) -> None:
    story = Story().sees(reservation("r", "g", {"uid-p": HALF}, **before))
    assert story.sees(version(reservation("r", "g", {"uid-p": HALF}, **after), 5)).broken() == broken


def test_a_book_holds_who_is_to_go_though_its_containers_are_told_to_have_ended() -> None:
    """Kubelet says so of containers that it is just starting anew."""
    told = granted("p", "g", phase="Running", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    told["status"]["containerStatuses"] = [{"name": "main", "state": {"terminated": {"exitCode": 255}}}]
    assert bound().sees(told).sees(reservation("r", "g", {})).broken() == {"S8"}


def test_a_reservation_made_anew_without_its_tenants_breaks_s8() -> None:
    story = bound().sees(reservation("r", "g", {"uid-p": HALF}), event="DELETED")
    assert story.sees(reservation("again", "g", {})).broken() == {"S8"}


def test_an_ask_changed_after_binding_breaks_s8() -> None:
    assert bound().sees(version(granted("p", "g", "0.1", nano=HALF), 6)).broken() == {"S8"}


@pytest.mark.parametrize(("user", "broken"), [("somebody", {"S8"}), ("binder", set())])
def test_protected_keys_of_bound_pods_are_written_by_us_only(user: str, broken: set[str]) -> None:
    story = bound().writes("patch", "pods", "p", user=user, version=6)
    assert story.sees(version(granted("p", "g", annotations={"moorage.dev/gpu-portion": "0.9"}), 6)).broken() == broken


@pytest.mark.parametrize("moves", [False, True])
def test_a_reservation_that_comes_late_is_judged_by_the_pods_of_its_node(*, moves: bool) -> None:
    """The tenant has its grant before the reservation's first version is seen, with an empty book."""
    tenant = granted("p", "g")
    story = Story().sees({**tenant, "spec": {**tenant["spec"], "nodeName": "elsewhere"}} if moves else tenant)
    if moves:
        story.sees(tenant)  # S5, too
    assert story.sees(reservation("r", "g", {})).broken() == ({"S5", "S8"} if moves else {"S8"})


def test_pods_of_other_nodes_are_not_looked_at_for_a_new_reservation() -> None:
    def cost(elsewhere: int) -> int:
        story = Story()
        for number in range(elsewhere):
            story.sees(pod(f"p{number}", node="elsewhere"))
        with counted() as steps:
            story.sees(reservation("r", "g", {}))
        return steps.taken

    assert cost(300) <= 1.2 * cost(1)


SLICE, NODE = "MIG-a", "node-0"
HELD = Held(at_s=0, node=NODE, pod_uid="uid-p", devices=(SLICE,))
FREED = Freed(at_s=1, node=NODE, pod_uid="uid-p")
STARTED = Started(
    at_s=1,
    node=NODE,
    pod_uid="uid-p",
    pod="team/p",
    container="main",
    is_init=False,
    restarts=0,
    devices=(SLICE,),
    assigned=(),
)
STOPPED = Stopped(at_s=2, node=NODE, pod_uid="uid-p", container="main")


@pytest.mark.parametrize(
    ("records", "shows_processes", "is_broken"),
    [
        pytest.param((), True, False, id="nobody has it"),
        pytest.param((HELD,), False, True, id="kubelet gave it to a pod"),
        pytest.param((HELD, FREED), True, False, id="kubelet took it back"),
        pytest.param((STARTED,), True, True, id="a process uses it past kubelet"),
        pytest.param((STARTED,), False, False, id="the driver can't know of the process"),
        pytest.param((STARTED, STOPPED), True, False, id="the process has ended"),
        pytest.param((Held(at_s=0, node=NODE, pod_uid="uid-q", devices=("MIG-b",)),), True, False, id="another slice"),
    ],
)
def test_a_slice_goes_only_while_no_pod_has_it(
    records: tuple[Record, ...], shows_processes: bool, is_broken: bool
) -> None:
    checker = Story().checker
    for record in records:
        checker.recorded(record)
    checker.destroyed(NODE, SLICE, 3.0, shows_processes=shows_processes)
    assert checker.findings.broken("S18") == is_broken


def test_a_pod_bound_twice_breaks_s5() -> None:
    assert Story().sees(pod("p", node="node-0")).sees(pod("p", node="node-1")).broken() == {"S5"}


def test_a_pod_that_runs_elsewhere_breaks_s5() -> None:
    assert Story().sees(pod("p")).starts("p", node="node-1").broken() == {"S5"}


def test_a_pod_that_runs_without_being_bound_breaks_s5() -> None:
    assert Story().sees(pod("p", node="")).starts("p").broken() == {"S5"}


def test_a_pod_bound_elsewhere_than_its_attempt_chose_breaks_s5() -> None:
    request = {"metadata": {"uid": "attempt-1", "name": "p"}, "spec": {"selectedNode": "node-1"}}
    grant = {"moorage.dev/grant": json.dumps({"attempt": "attempt-1", "devices": []})}
    story = Story().sees(request, kind=BIND_REQUESTS).sees(pod("p", node=""))
    assert story.sees(pod("p", node="node-0", annotations=grant)).broken() == {"S5"}


# S7: who is evicted. L2: what one pod may cost.

GANG = {"pod-group-name": "gang"}


def broken_gang(minimum: int = 2) -> Story:
    """A gang was whole, and one of its two members is gone."""
    story = Story(release_s=60.0).sees(pod_group("gang", minimum), kind=POD_GROUPS)
    story.sees(pod("p", annotations=GANG)).sees(pod("q", annotations=GANG))
    return story.after(10).sees(pod("q", annotations=GANG), event="DELETED")


def test_the_rest_of_a_broken_gang_may_be_evicted_after_its_grace_time() -> None:
    story = broken_gang().after(60).writes("create", "pods", "p", subresource="eviction", code=201)
    assert story.broken() == set()


def test_an_eviction_before_the_grace_time_breaks_s7() -> None:
    story = broken_gang().after(59).writes("create", "pods", "p", subresource="eviction", code=201)
    assert story.broken() == {"S7"}


@pytest.mark.parametrize(("name", "broken"), [("p", set[str]()), ("other", {"S7"})])
def test_a_restored_member_brings_the_grace_time_of_its_gang_back(name: str, broken: set[str]) -> None:
    """After a restore of etcd the PodGroup says again since when its gang has been broken."""
    story = broken_gang().after(50).sees(pod("p", annotations=GANG), event="DELETED")
    story.after(5).sees(pod(name, annotations=GANG))
    story.after(5).writes("create", "pods", name, subresource="eviction", code=201)
    assert story.sees(pod(name, annotations=GANG), event="DELETED").broken() == broken


def test_an_eviction_from_a_gang_that_is_large_enough_breaks_s7() -> None:
    story = broken_gang(minimum=1).after(60).writes("create", "pods", "p", subresource="eviction", code=201)
    assert story.broken() == {"S7"}


def test_an_eviction_of_a_pod_alone_breaks_s7() -> None:
    story = Story().sees(pod("p")).after(100).writes("create", "pods", "p", subresource="eviction", code=201)
    assert story.broken() == {"S7"}


def test_a_users_pod_that_we_delete_breaks_s7() -> None:
    assert Story().sees(pod("p")).writes("delete", "pods", "p").broken() == {"S7"}


@pytest.mark.parametrize(("seconds", "broken"), [(0.5, {"L2"}), (5.0, set())])
def test_attempts_without_a_pause_break_l2(seconds: float, broken: set[str]) -> None:
    story = Story()
    for _ in range(Bounds().attempts + 5):
        story.after(seconds).writes("create", "pods", "p", subresource="binding", code=409)
    assert story.broken() == broken


def test_conditions_without_a_pause_break_l2() -> None:
    story = Story()
    for _ in range(Bounds().writes + 1):
        story.after(0.1).writes("patch", "pods", "p", subresource="status")
    assert story.broken() == {"L2"}


def test_each_pod_has_its_own_measure() -> None:
    story = Story()
    for number in range(Bounds().attempts + 5):
        story.writes("create", "bindrequests", f"p-{number % 2}")
    assert story.broken() == set()
