"""Slices are made where the pod starts then, and where that costs least."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from typing_extensions import override

from scheduler.core.mig_partitioning.layouts import Cutter
from scheduler.core.mig_partitioning.node_choice import Chosen, Look, slice_wants
from scheduler.core.model.mig import MigNode
from tests.scheduler.core.mig_partitioning.cards import ONE, SEVEN, THREE, TWO, card, decided, mig_node, shown
from tests.scheduler.core.objects import bound, pod, pod_group
from wire.core import Node


def chosen(there: list[tuple[MigNode, Node]], *objects: object, busy: tuple[tuple[str, str], ...] = ()) -> Chosen:
    made, explained = decided(*(each for _, each in there), *objects)
    wants = slice_wants(made, explained, now_ns=0, covered=())
    before = made.validate()
    look = Look(made, {each.name: each for each, _ in there}, busy=busy, cutter=Cutter(), now_ns=0)
    for _ in look.steps(wants):
        pass
    found = look.chosen
    assert made.validate() == before == []
    return found


def on(*nodes: MigNode) -> list[tuple[MigNode, Node]]:
    return [(each, shown(each)) for each in nodes]


def places(found: Chosen) -> list[tuple[str, str, list[str]]]:
    return [
        (each.node, each.cut.uuid, [f"{profile[:2]}@{start}" for profile, start in each.cut.layout])
        for each in found.carves
    ]


EMPTY = mig_node("n1", card("GPU-a"))


def test_a_pod_gets_the_slice_that_it_waits_for() -> None:
    found = chosen(on(EMPTY), pod("p", extended={TWO: "1"}))
    assert places(found) == [("n1", "GPU-a", ["2g@0"])]
    assert (found.carves[0].uids, found.none) == (("uid-p",), ())


def test_two_pods_get_gpus_of_their_own_in_one_look() -> None:
    there = on(mig_node("n1", card("GPU-a"), card("GPU-b")))
    found = chosen(there, pod("p", extended={TWO: "1"}), pod("q", extended={THREE: "1"}))
    assert sorted(uuid for _, uuid, _ in places(found)) == ["GPU-a", "GPU-b"]


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        pytest.param({}, "not offered", id="no label"),
        pytest.param({"moorage.dev/mig": "dynamic"}, "not mixed", id="no strategy"),
        pytest.param({"moorage.dev/mig": "static", "nvidia.com/mig.strategy": "mixed"}, "static", id="another value"),
    ],
)
def test_nodes_that_do_not_offer_their_gpus_are_left_alone(labels: dict[str, str], why: str) -> None:
    del why
    found = chosen([(EMPTY, shown(EMPTY, labels=labels))], pod("p", extended={TWO: "1"}))
    assert (found.carves, found.none) == ((), ())


@pytest.mark.parametrize(
    ("there", "waiting"),
    [
        pytest.param(on(EMPTY), pod("p", extended={TWO: "1"}, cpu="65"), id="its node has not enough CPU"),
        pytest.param(
            on(EMPTY), pod("p", extended={TWO: "1"}, spec={"nodeSelector": {"zone": "z"}}), id="it may not be there"
        ),
        pytest.param(on(mig_node("n1", card("GPU-a", "1g@3!"))), pod("p", extended={SEVEN: "1"}), id="a slice in use"),
        pytest.param(on(mig_node("n1", card("GPU-a", is_ready=False))), pod("p", extended={TWO: "1"}), id="an ill GPU"),
        pytest.param(on(EMPTY), pod("p", extended={"nvidia.com/mig-9g.90gb": "1"}), id="no such profile"),
    ],
)
def test_nothing_is_cut_for_a_pod_that_would_not_start(there: list[tuple[MigNode, Node]], waiting: object) -> None:
    found = chosen(there, waiting)
    assert (found.carves, [want.uids for want in found.none]) == ((), [("uid-p",)])


def test_a_gpu_that_is_cut_or_rests_is_left_alone() -> None:
    assert chosen(on(EMPTY), pod("p", extended={TWO: "1"}), busy=(("n1", "GPU-a"),)).carves == ()
    assert chosen(on(EMPTY), pod("p", extended={TWO: "1"}), busy=(("n2", "GPU-a"),)).carves != ()


def test_the_node_where_the_fewest_slices_go_is_chosen() -> None:
    there = on(mig_node("n1", card("GPU-a", "1g@0", "1g@4")), mig_node("n2", card("GPU-b", "1g@4!")))
    assert places(chosen(there, pod("p", extended={THREE: "1"}))) == [("n2", "GPU-b", ["3g@0", "1g@4"])]


def test_a_slice_that_a_bound_pod_will_take_is_not_destroyed() -> None:
    there = on(mig_node("n1", card("GPU-a", "1g@0")))
    taken = bound(pod("b", extended={ONE: "1"}), "n1")
    found = chosen(there, taken, pod("p", extended={SEVEN: "1"}))
    assert found.carves == ()


def test_a_pod_that_lacks_one_of_two_slices_gets_one() -> None:
    there = on(mig_node("n1", card("GPU-a", "1g@0")))
    found = chosen(there, pod("p", extended={ONE: "2"}))
    assert [each.cut.new for each in found.carves] == [((ONE, 1),)]
    assert [each.cut.gone for each in found.carves] == [()]


def test_a_look_is_many_steps_and_each_looks_at_few_nodes() -> None:
    there = on(*(mig_node(f"n{number:03}", card(f"GPU-{number}", "7g@0!")) for number in range(200)))
    made, explained = decided(
        *(each for _, each in there),
        *(bound(pod(f"b{number}", extended={SEVEN: "1"}), f"n{number:03}") for number in range(200)),
        pod("p", extended={TWO: "1"}),
    )
    wants = slice_wants(made, explained, now_ns=0, covered=())
    nodes, read = {each.name: each for each, _ in there}, Counter[str]()

    class Counted(dict[str, MigNode]):
        @override
        def get(self, name: str, default: Any = None) -> Any:
            read[name] += 1
            return super().get(name, default)

    look = Look(made, Counted(nodes), busy=(), cutter=Cutter(), now_ns=0)
    steps = []
    for carves in look.steps(wants):
        steps.append((read.total(), carves))
        read.clear()
    assert sum(number for number, _ in steps) + read.total() == 200
    assert max(number for number, _ in steps) <= 64
    assert len(steps) >= 4


@pytest.mark.parametrize("after", ["the slice is used", "the node is not offered", "the node is gone"])
def test_what_has_changed_since_it_was_looked_at_is_not_chosen_and_looked_at_again(after: str) -> None:
    there = mig_node("n1", card("GPU-a"))
    made, explained = decided(shown(there), pod("p", extended={TWO: "1"}))
    nodes = {"n1": there}
    look = Look(made, nodes, busy=(), cutter=Cutter(), now_ns=0)
    steps = look.steps(slice_wants(made, explained, now_ns=0, covered=()))
    assert next(steps) == ()
    if after == "the slice is used":
        nodes["n1"] = mig_node("n1", card("GPU-a", "7g@0!"))
    elif after == "the node is not offered":
        made.upsert_node(shown(there, labels={}))
    else:
        made.remove_node("n1")
    assert [carves for carves in steps if carves] == []
    assert (look.chosen.none, [want.uids for want in look.chosen.rest]) == ((), [("uid-p",)])


def test_of_a_pod_that_was_bound_meanwhile_nothing_is_said() -> None:
    there = mig_node("n1", card("GPU-a"))
    made, explained = decided(shown(there), pod("p", extended={TWO: "1"}))
    look = Look(made, {"n1": there}, busy=(), cutter=Cutter(), now_ns=0)
    steps = look.steps(slice_wants(made, explained, now_ns=0, covered=()))
    next(steps)
    made.upsert_pod(bound(pod("p", extended={TWO: "1"}), "n1"))
    assert [carves for carves in steps if carves] == []
    assert look.chosen == Chosen((), (), ())


def test_a_gang_gets_slices_on_several_nodes_at_once() -> None:
    there = on(mig_node("n1", card("GPU-a")), mig_node("n2", card("GPU-b")))
    members = [pod(f"m{number}", group="g", extended={SEVEN: "1"}) for number in range(2)]
    found = chosen(there, pod_group("g", 2), *members)
    assert places(found) == [("n1", "GPU-a", ["7g@0"]), ("n2", "GPU-b", ["7g@0"])]


def test_a_gang_that_would_not_start_gets_nothing() -> None:
    members = [pod(f"m{number}", group="g", extended={SEVEN: "1"}) for number in range(2)]
    found = chosen(on(EMPTY), pod_group("g", 2), *members)
    assert (found.carves, len(found.none)) == ((), 1)


def test_pods_that_are_alike_are_tried_once_and_no_more_than_there_is_time_for() -> None:
    there = on(mig_node("n1", card("GPU-a")))
    alike = [pod(f"a{number}", extended={TWO: "1"}, cpu="65") for number in range(50)]
    others = [pod(f"b{number}", extended={TWO: "1"}, cpu=str(70 + number)) for number in range(10)]
    found = chosen(there, *alike, *others)
    assert found.carves == ()
    assert {want.uids[0][4] for want in found.none} >= {"a"}
    assert len(found.rest) == 10 - (len(found.none) - 50)
    assert len(found.rest) >= 6
