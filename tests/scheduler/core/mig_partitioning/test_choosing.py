"""Slices are made where the pod starts then, and where that costs least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest
from typing_extensions import override

from gpu.request import FractionAsk
from scheduler.core.mig_partitioning import node_choice
from scheduler.core.mig_partitioning.node_choice import CardCut, Chosen, Cutter, Look, SliceWant, slice_wants
from scheduler.core.model.mig import MigCard, MigNode, MigSlice
from tests.scheduler.core.mig_partitioning.cards import ONE, PROFILES, SEVEN, THREE, TWO, card, decided, mig_node, shown
from tests.scheduler.core.model.test_records import HALF, said
from tests.scheduler.core.objects import bound, pod, pod_group, recorded
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
        for each in found.partitions
    ]


EMPTY = mig_node("n1", card("GPU-a"))


def test_a_pod_gets_the_slice_that_it_waits_for() -> None:
    found = chosen(on(EMPTY), pod("p", extended={TWO: "1"}))
    assert places(found) == [("n1", "GPU-a", ["2g@0"])]
    assert (found.partitions[0].uids, found.none) == (("uid-p",), ())


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
    assert (found.partitions, found.none) == ((), ())


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
    assert (found.partitions, [want.uids for want in found.none]) == ((), [("uid-p",)])


def test_a_gpu_that_is_cut_or_rests_is_left_alone() -> None:
    assert chosen(on(EMPTY), pod("p", extended={TWO: "1"}), busy=(("n1", "GPU-a"),)).partitions == ()
    assert chosen(on(EMPTY), pod("p", extended={TWO: "1"}), busy=(("n2", "GPU-a"),)).partitions != ()


def test_the_node_where_the_fewest_slices_go_is_chosen() -> None:
    there = on(mig_node("n1", card("GPU-a", "1g@0", "1g@4")), mig_node("n2", card("GPU-b", "1g@4!")))
    assert places(chosen(there, pod("p", extended={THREE: "1"}))) == [("n2", "GPU-b", ["3g@0", "1g@4"])]


def test_a_slice_that_a_bound_pod_will_take_is_not_destroyed() -> None:
    there = on(mig_node("n1", card("GPU-a", "1g@0")))
    taken = bound(pod("b", extended={ONE: "1"}), "n1")
    found = chosen(there, taken, pod("p", extended={SEVEN: "1"}))
    assert found.partitions == ()


def test_a_pod_that_lacks_one_of_two_slices_gets_one() -> None:
    there = on(mig_node("n1", card("GPU-a", "1g@0")))
    found = chosen(there, pod("p", extended={ONE: "2"}))
    assert [each.cut.new for each in found.partitions] == [((ONE, 1),)]
    assert [each.cut.gone for each in found.partitions] == [()]


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
    for partitions in look.steps(wants):
        steps.append((read.total(), partitions))
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
    assert [partitions for partitions in steps if partitions] == []
    assert (look.chosen.none, [want.uids for want in look.chosen.rest]) == ((), [("uid-p",)])


def test_of_a_pod_that_was_bound_meanwhile_nothing_is_said() -> None:
    there = mig_node("n1", card("GPU-a"))
    made, explained = decided(shown(there), pod("p", extended={TWO: "1"}))
    look = Look(made, {"n1": there}, busy=(), cutter=Cutter(), now_ns=0)
    steps = look.steps(slice_wants(made, explained, now_ns=0, covered=()))
    next(steps)
    made.upsert_pod(bound(pod("p", extended={TWO: "1"}), "n1"))
    assert [partitions for partitions in steps if partitions] == []
    assert look.chosen == Chosen((), (), ())


def test_a_gang_gets_slices_on_several_nodes_at_once() -> None:
    there = on(mig_node("n1", card("GPU-a")), mig_node("n2", card("GPU-b")))
    members = [pod(f"m{number}", group="g", extended={SEVEN: "1"}) for number in range(2)]
    found = chosen(there, pod_group("g", 2), *members)
    assert places(found) == [("n1", "GPU-a", ["7g@0"]), ("n2", "GPU-b", ["7g@0"])]


def test_a_gang_that_would_not_start_gets_nothing() -> None:
    members = [pod(f"m{number}", group="g", extended={SEVEN: "1"}) for number in range(2)]
    found = chosen(on(EMPTY), pod_group("g", 2), *members)
    assert (found.partitions, len(found.none)) == ((), 1)


def test_pods_that_are_alike_are_tried_once_and_no_more_than_there_is_time_for() -> None:
    there = on(mig_node("n1", card("GPU-a")))
    alike = [pod(f"a{number}", extended={TWO: "1"}, cpu="65") for number in range(50)]
    others = [pod(f"b{number}", extended={TWO: "1"}, cpu=str(70 + number)) for number in range(10)]
    found = chosen(there, *alike, *others)
    assert found.partitions == ()
    assert {want.uids[0][4] for want in found.none} >= {"a"}
    assert len(found.rest) == 10 - (len(found.none) - 50)
    assert len(found.rest) >= 6


# A node's GPUs take as many of the missing slices as they can, where that destroys and loses least.


def cutter(most: int = 32) -> Cutter:
    made = Cutter()
    made.begin(most)
    return made


def cuts(
    made: Cutter, cards: Iterable[MigCard], missing: Mapping[str, int], spoken: Collection[str]
) -> tuple[list[CardCut], Counter[str]]:
    """All steps; each is one search."""
    steps, before = node_choice.cuts(made, cards, missing, spoken, may_search=True), made.left
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: tuple[list[CardCut], Counter[str]] = end.value
            return found
        assert made.left == before - 1
        before = made.left


def layouts(found: list[CardCut]) -> list[tuple[str, list[str]]]:
    return [(each.uuid, [f"{profile[:2]}@{start}" for profile, start in each.layout]) for each in found]


@pytest.mark.parametrize(
    ("cards", "missing", "expected", "left"),
    [
        pytest.param([card("a")], {TWO: 1}, [("a", ["2g@0"])], {}, id="an empty GPU"),
        pytest.param([card("a", "1g@0!")], {THREE: 1}, [("a", ["1g@0", "3g@4"])], {}, id="beside a slice in use"),
        pytest.param([card("a", "1g@0!")], {SEVEN: 1}, [], {SEVEN: 1}, id="a slice in use is in the way"),
        pytest.param([card("a", "1g@0")], {SEVEN: 1}, [("a", ["7g@0"])], {}, id="a free one goes"),
        pytest.param([card("a", "1g@0"), card("b")], {SEVEN: 1}, [("b", ["7g@0"])], {}, id="where none goes"),
        pytest.param([card("a"), card("b", "3g@0!")], {THREE: 1}, [("b", ["3g@0", "3g@4"])], {}, id="the fuller GPU"),
        pytest.param([card("a"), card("b")], {SEVEN: 2}, [("a", ["7g@0"]), ("b", ["7g@0"])], {}, id="two GPUs"),
        pytest.param([card("a")], {THREE: 3}, [("a", ["3g@0", "3g@4"])], {THREE: 1}, id="as many as it takes"),
        pytest.param([card("a")], {"nvidia.com/mig-9g.90gb": 1}, [], {"nvidia.com/mig-9g.90gb": 1}, id="no such one"),
        pytest.param([card("a")], {}, [], {}, id="nothing"),
    ],
)
def test_cuts_of_a_node(
    cards: list[MigCard], missing: dict[str, int], expected: list[tuple[str, list[str]]], left: dict[str, int]
) -> None:
    found, rest = cuts(cutter(), cards, Counter(missing), ())
    assert (layouts(found), rest) == (expected, left)


def test_what_goes_and_comes_is_counted() -> None:
    (found,), _ = cuts(cutter(), [card("a", "1g@0", "1g@1", "1g@2!")], Counter({TWO: 1, ONE: 1}), ())
    assert found.gone == ()
    (found,), _ = cuts(cutter(), [card("a", *(f"1g@{at}" for at in range(7)))], Counter({TWO: 1, THREE: 1}), ())
    assert sum(number for _, number in found.gone) >= 5
    assert found.new == ((TWO, 1), (THREE, 1))


def test_slices_that_pods_on_their_way_will_take_stay() -> None:
    assert cuts(cutter(), [card("a", "1g@0")], Counter({SEVEN: 1}), {ONE}) == ([], Counter({SEVEN: 1}))


def test_gpus_that_are_alike_are_searched_once_and_no_more_than_there_is_time_for() -> None:
    made = cutter(2)
    alike = [card(f"GPU-{number}") for number in range(100)]
    found, left = cuts(made, alike, Counter({SEVEN: 2}), ())
    # One search for two slices of which it takes one, one for the other.
    assert (len(found), left, made.left) == (2, Counter(), 0)
    assert cuts(made, [card("a", "1g@0!")], Counter({TWO: 1}), ()) == ([], Counter({TWO: 1}))
    made.begin(1)
    assert layouts(cuts(made, [card("a", "1g@0!")], Counter({TWO: 1}), ())[0]) == [("a", ["1g@0", "2g@2"])]


def test_without_a_search_only_what_is_known_is_found() -> None:
    made = cutter()
    known = node_choice.cuts(made, [card("a")], Counter({TWO: 1}), (), may_search=False)
    with pytest.raises(StopIteration) as nothing:
        next(known)
    assert (nothing.value.value, made.left) == (([], Counter({TWO: 1})), 32)
    found = cuts(made, [card("a")], Counter({TWO: 1}), ())
    with pytest.raises(StopIteration) as same:
        next(node_choice.cuts(made, [card("a")], Counter({TWO: 1}), (), may_search=False))
    assert (same.value.value, made.left) == (found, 31)


def test_gpus_are_of_one_kind_only_where_they_can_be_cut_alike() -> None:
    like = card("a", "1g@0!", "2g@2")
    assert like.kind == card("b", "1g@0!", "2g@2", attempt="moorage-1", state="done").kind
    assert like.unused == (TWO,)
    odd = MigSlice("1g.10gb", 0, 1, True, is_whole=False)
    # What an agent may call a profile, so that its GPU would be taken for another.
    forged = MigSlice('1g.10gb",0,1,true,true],["2g.20gb', 2, 2, False)
    others = [
        card("a", "1g@0", "2g@2"),
        card("a", "1g@1!", "2g@2"),
        card("a", "1g@0!"),
        MigCard(uuid="a", is_ready=True, profiles={}, slices=like.slices),
        MigCard(uuid="a", is_ready=True, profiles=PROFILES, slices=(odd, like.slices[1])),
        MigCard(uuid="a", is_ready=True, profiles=PROFILES, slices=(forged,)),
    ]
    assert len({like.kind, *(each.kind for each in others)}) == 1 + len(others)


def test_a_cut_that_is_known_is_found_for_another_gpu_without_a_search() -> None:
    made = Cutter()
    made.begin(1)
    nodes = [[card(f"{node}-{gpu}", "1g@0!") for gpu in range(8)] for node in range(100)]
    found = [layouts(cuts(made, cards, {TWO: 1}, ())[0]) for cards in nodes]
    assert found == [[(f"{node}-0", ["1g@0", "2g@2"])] for node in range(100)]
    assert made.left == 0


# Pods that wait for slices that no node has free are found, and nobody else.

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
