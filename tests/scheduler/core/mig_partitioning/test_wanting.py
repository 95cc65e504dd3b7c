"""Pods that wait for slices that no node has free are found, and nobody else."""

from __future__ import annotations

import pytest

from gpu.request import FractionAsk
from scheduler.core.mig_partitioning.node_choice import SliceWant, slice_wants
from tests.scheduler.core.mig_partitioning.cards import ONE, THREE, TWO, card, decided, mig_node, shown
from tests.scheduler.core.model.test_records import HALF, said
from tests.scheduler.core.objects import pod, pod_group, recorded

NODE = shown(mig_node("n1", card("GPU-a", "1g@0")))


def found(*objects: object) -> list[SliceWant]:
    made, explained = decided(NODE, *objects)
    return slice_wants(made, explained, now_ns=0, covered=())


def test_a_pod_that_waits_for_slices_wants_them() -> None:
    (want,) = found(pod("p", extended={TWO: "1", ONE: "2"}))
    assert (want.uids, want.pod_group, want.resources) == (("uid-p",), None, ((ONE, 2), (TWO, 1)))
    assert want.text == f"2 {ONE}, 1 {TWO}"


def test_a_part_of_a_slice_wants_the_slice() -> None:
    (want,) = found(recorded(said((FractionAsk(HALF, profile="3g.40gb"),)), name="p"))
    assert want.resources == ((THREE, 1),)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(pod("p", extended={ONE: "1"}), id="a free slice"),
        pytest.param(pod("p", gpus=1), id="a GPU"),
        pytest.param(pod("p", cpu="1000"), id="CPU alone"),
        pytest.param(pod("p", extended={TWO: "1"}, gated=True), id="gated"),
        pytest.param(pod("p", extended={TWO: "1"}, scheduler="other"), id="another scheduler's"),
        pytest.param(pod("p", extended={TWO: "600"}), id="more than any GPUs have"),
    ],
)
def test_others_want_nothing(other: object) -> None:
    assert found(other) == []


def test_members_of_a_gang_want_slices_together() -> None:
    members = [pod(f"m{number}", group="g", extended={TWO: "1"}) for number in range(2)]
    (want,) = found(pod_group("g", 2), *members)
    assert (want.pod_group, want.resources) == (("ns", "g"), ((TWO, 2),))
    assert sorted(want.uids) == ["uid-m0", "uid-m1"]


def test_the_most_urgent_come_first_and_then_the_oldest() -> None:
    late = pod("a", extended={TWO: "1"}, created="2026-01-01T00:00:02Z")
    early = pod("b", extended={TWO: "2"}, created="2026-01-01T00:00:01Z")
    urgent = pod("c", extended={TWO: "3"}, created="2026-01-01T00:00:03Z", priority=5)
    assert [want.uids for want in found(late, early, urgent)] == [("uid-c",), ("uid-b",), ("uid-a",)]


def test_pods_for_which_slices_are_being_made_are_left_out() -> None:
    made, explained = decided(NODE, pod("p", extended={TWO: "1"}))
    assert slice_wants(made, explained, now_ns=0, covered={"uid-p"}) == []


def test_pods_alone_that_ask_the_same_are_of_one_kind_and_each_gang_is_of_its_own() -> None:
    alike = [pod(name, extended={TWO: "1"}) for name in "pq"]
    other = pod("o", extended={TWO: "1"}, cpu="2")
    assert len({want.kind for want in found(*alike, other)}) == 2
    gangs = [pod_group(name, 1) for name in "gh"]
    assert len({want.kind for want in found(*gangs, *(pod(f"m{n}", group=n, extended={TWO: "1"}) for n in "gh"))}) == 2
