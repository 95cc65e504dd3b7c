"""Parts of MIG slices: where they come to, what is counted, and that nothing of another kind serves for them."""

from __future__ import annotations

from typing import Any

import pytest

from gpu.request import Ask, FractionAsk
from gpu.reservation import group_id
from scheduler.core.autoscale.scaling_pods import wants
from scheduler.core.model.plan import Alone, Attempt, Bind, Explain, Hold, Join, Placement, Retire
from scheduler.core.model.settings import Settings, Strategy
from tests.scheduler.core.model.test_records import HALF, TENTH, said
from tests.scheduler.core.objects import NANO, bind_request, bound, cluster, ended, node, pod, recorded, reservation
from wire import names
from wire.core import Node, Pod

SLICE, LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
HALF_SLICE = FractionAsk(HALF, profile="1g.10gb")


def cut(name: str = "n1", count: int = 2, *, resource: str = SLICE, **more: Any) -> Node:
    """A node of slices that are called by their profile."""
    return node(name, 0, extended={resource: str(count)}, **more)


def single(name: str = "n1", count: int = 2, profile: str = "1g.10gb") -> Node:
    """A node on which slices are called GPUs."""
    product = {names.NODE_MIG_STRATEGY: "single", names.NODE_GPU_PRODUCT: f"NVIDIA-H100-MIG-{profile}"}
    return node(name, count, labels=product)


def asking(*asks: Ask, name: str = "p", **more: Any) -> Pod:
    return recorded(said(asks or (HALF_SLICE,), **more), name=name)


def decided(*objects: Any, settings: Settings | None = None) -> tuple[dict[str, Placement], list[Any]]:
    """Decide on a cluster, whose ledger has to equal a recount: placements by pod, and all entries."""
    made = cluster(*objects, settings=settings)
    entries = made.decide(0).entries
    assert made.validate() == []
    return {e.placement.name: e.placement for e in entries if isinstance(e, Alone)}, list(entries)


@pytest.mark.parametrize(
    ("where", "resource"), [(cut(), SLICE), (single(), names.GPU_RESOURCE)], ids=["mixed", "single"]
)
def test_a_first_part_opens_a_slice_of_its_profile(where: Node, resource: str) -> None:
    placed, (entry,) = decided(where, asking())
    (device,) = placed["p"].devices
    assert isinstance(entry, Attempt)
    assert (device.nano, device.resource) == (HALF, resource)
    assert device.group == group_id("uid-n1", "uid-p", 0, resource)


@pytest.mark.parametrize(
    "where",
    [
        node("n1", 8),
        cut(resource=LARGE),
        cut(count=0),
        single(profile="3g.40gb"),
        cut(labels={"nvidia.com/mig-1g.10gb.replicas": "4"}),
        node("n1", 2, labels={names.NODE_MIG_STRATEGY: "single"}),
        node("n1", 2, labels={names.NODE_GPU_PRODUCT: "NVIDIA-H100-MIG-1g.10gb"}),
        node("n1", 2, labels={names.NODE_MIG_STRATEGY: "single", names.NODE_GPU_PRODUCT: "NVIDIA-MIG-1g.10gb-X"}),
    ],
    ids=[
        "cards",
        "another profile",
        "none",
        "single of another profile",
        "offered several times",
        "single of no profile",
        "cards by label",
        "no profile at the end",
    ],
)
def test_nothing_else_serves_for_a_slice(where: Node) -> None:
    placed, (entry,) = decided(where, asking())
    assert placed == {}
    assert [(r.kind, r.resource, r.nodes) for r in entry.verdict.node_reasons] == [("insufficient", SLICE, 1)]


@pytest.mark.parametrize("where", [cut(), single()], ids=["mixed", "single"])
def test_a_slice_serves_for_no_card(where: Node) -> None:
    placed, (entry,) = decided(where, pod(fraction="0.5"))
    assert placed == {}
    assert "mig" in [reason.kind for reason in entry.verdict.node_reasons]


def test_two_halves_share_a_slice_and_the_third_opens_another() -> None:
    made = [asking(name=f"p{number}") for number in range(5)]
    placed, entries = decided(cut(), *made)
    groups = [placed[f"p{number}"].devices[0].group for number in range(4)]
    assert groups[0] == groups[1] != groups[2] == groups[3]
    assert isinstance(entries[1], Hold)
    assert [entry.pods for entry in entries if isinstance(entry, Explain)] == [("uid-p4",)]


def test_a_further_part_of_a_known_slice_needs_no_binder() -> None:
    tenant = bound(pod("w"), "n1", ("g", TENTH), reservation="r-g", uuid="MIG-1", resource=SLICE)
    held = reservation("g", book={"uid-w": TENTH}, uuid="MIG-1", resource=SLICE)
    _, (entry,) = decided(cut(count=1), held, tenant, asking())
    assert isinstance(entry, Join)
    assert (entry.placement.devices[0].group, entry.placement.devices[0].resource) == ("g", SLICE)


@pytest.mark.parametrize("resource", [names.GPU_RESOURCE, LARGE])
def test_a_group_of_another_kind_is_never_joined(resource: str) -> None:
    both = node("n1", 1, extended={LARGE: "1", SLICE: "1"})
    placed, _ = decided(both, reservation("g", book={"x": TENTH}, resource=resource), asking())
    (device,) = placed["p"].devices
    assert device.group != "g"
    assert device.resource == SLICE


@pytest.mark.parametrize(
    ("objects", "whole"),
    [
        ([], 2),
        ([reservation("g", book={"x": TENTH}, resource=SLICE)], 1),
        ([reservation("g", resource=LARGE)], 2),
        ([bind_request(pod("q"), "n1", ("g", HALF), resource=SLICE), pod("q")], 1),
        ([bound(pod("q"), "n1", ("g", HALF), resource=SLICE)], 1),
        ([bound(pod("q", extended={SLICE: "1"}), "n1")], 1),
    ],
    ids=["nobody", "a reservation", "a reservation of another kind", "on its way", "a tenant that lost it", "a whole"],
)
def test_each_slice_is_counted_once(objects: list[Any], whole: int) -> None:
    where = node("n1", 0, extended={SLICE: "2", LARGE: "1"})
    waiting = [pod(f"w{number}", extended={SLICE: "1"}) for number in range(3)]
    placed, _ = decided(where, *objects, *waiting)
    assert len([name for name in placed if name.startswith("w")]) == whole


def test_slices_that_are_shared_are_no_whole_gpus_and_no_capacity_for_them() -> None:
    """An idle reservation of a slice is not given up for a pod that wants a card."""
    both = node("n1", 1, extended={SLICE: "1"})
    card = bound(pod("c", gpus=1), "n1")
    _, entries = decided(both, card, reservation("g", resource=SLICE), pod("w", gpus=1))
    assert not any(isinstance(entry, Retire | Bind) for entry in entries)


def test_for_a_whole_gpu_an_idle_card_is_given_up_and_no_slice() -> None:
    both = node("n1", 1, extended={SLICE: "1"})
    idle = [reservation("a", resource=SLICE), reservation("b", uuid="GPU-2")]
    _, entries = decided(both, *idle, pod("w", gpus=1))
    assert [entry.reservation_uid for entry in entries if isinstance(entry, Retire)] == ["r-b"]


def test_a_slice_that_the_node_does_not_offer_any_more_takes_nobody() -> None:
    held = reservation("g", book={"x": TENTH}, resource=SLICE)
    assert decided(node("n1", 0), held, asking())[0] == {}
    assert decided(node("n1", 0), held, cut("n2", count=1), asking())[0]["p"].node == "n2"


def test_parts_of_two_profiles_are_of_one_node() -> None:
    two = asking(HALF_SLICE, FractionAsk(TENTH, profile="3g.40gb"))
    placed, _ = decided(cut("a"), cut("b", resource=LARGE), node("c", 0, extended={SLICE: "1", LARGE: "1"}), two)
    assert placed["p"].node == "c"
    assert [(d.nano, d.resource) for d in placed["p"].devices] == [(HALF, SLICE), (TENTH, LARGE)]


def test_two_parts_of_one_pod_are_of_two_slices_and_an_alternative_takes_one() -> None:
    apart, whole = (HALF_SLICE, HALF_SLICE), FractionAsk(NANO, profile="1g.10gb")
    one_way = said(apart, alternatives=(said((whole,)).request,))
    assert len(decided(cut(count=2), recorded(one_way))[0]["p"].devices) == 2
    (device,) = decided(cut(count=1), recorded(one_way))[0]["p"].devices
    assert (device.nano, device.resource) == (NANO, SLICE)


@pytest.mark.parametrize(("strategy", "chosen"), [("binpack", "a"), ("spread", "b")])
def test_the_strategy_chooses_between_nodes_by_their_slices(strategy: str, chosen: str) -> None:
    held = reservation("g", "a", book={"x": TENTH}, resource=SLICE)
    placed, _ = decided(cut("a", 2), held, cut("b", 2), asking(strategy=strategy))
    assert placed["p"].node == chosen


def test_a_slice_needs_room_for_its_reservation_pod() -> None:
    settings = Settings(reservation_cpu_milli=2000)
    placed, _ = decided(cut("a", cpu="1"), cut("b", cpu="4"), asking(), settings=settings)
    assert placed["p"].node == "b"
    placed, (entry,) = decided(cut("a", cpu="1"), asking(), settings=settings)
    assert placed == {}
    assert [(reason.kind, reason.resource) for reason in entry.verdict.node_reasons] == [("insufficient", "cpu")]


def test_no_autoscaler_is_asked_for_slices() -> None:
    made = cluster(cut(count=0), asking())
    explained = [entry for entry in made.decide(0).entries if isinstance(entry, Explain)]
    assert explained
    assert wants(made, explained, now_ns=0, memory_to_fraction_ratio_nano=HALF) == []


def test_a_slice_that_is_named_is_taken_where_it_is_shared_and_never_looked_for() -> None:
    cards = said((HALF_SLICE,)).cards
    named = type(cards)(uuids=("MIG-2",))
    there = [reservation("a", uuid="MIG-1", resource=SLICE), reservation("b", uuid="MIG-2", resource=SLICE)]
    placed, _ = decided(cut(count=3), *there, recorded(said((HALF_SLICE,), cards=named)))
    assert placed["p"].devices[0].group == "b"
    assert decided(cut(count=3), there[0], recorded(said((HALF_SLICE,), cards=named)))[0] == {}


def test_profiles_that_nobody_waits_for_are_forgotten() -> None:
    made = cluster(cut(), asking())
    made.decide(0)
    assert made.ledger.slice_rows("1g.10gb").tolist()[made.ledger.row_of["n1"]] >= 0
    made.remove_pod("uid-p")
    made.decide(0)
    made.upsert_node(cut("n2"))
    made.remove_node("n1")
    assert made.ledger.slice_rows("1g.10gb")[made.ledger.row_of["n2"]] == made.refresh().table.resources.index(SLICE)


def legacy(name: str = "old", **more: Any) -> Pod:
    """A running pod that asks for a slice by annotation, as KAI once had it."""
    return pod(name, annotations={SLICE: "1"}, bound_to="n1", phase="Running", **more)


WHOLE_SLICE = pod("p", extended={SLICE: "1"})


@pytest.mark.parametrize(
    "wanted", [WHOLE_SLICE, asking(), pod("p", extended={LARGE: "1"})], ids=["whole", "part", "other"]
)
def test_where_a_pod_has_a_slice_by_annotation_no_slice_is_given(wanted: Pod) -> None:
    slices = {SLICE: "2", LARGE: "1"}
    near, far = node("n1", 0, extended=slices), node("n2", 0, extended=slices, cpu="1k")
    assert decided(near, legacy(), wanted)[0] == {}
    assert decided(near, far, legacy(), wanted)[0]["p"].node == "n2"
    assert decided(near, ended(legacy()), wanted)[0]["p"].node == "n1"


@pytest.mark.parametrize(
    "other",
    [legacy(scheduler="default-scheduler"), legacy(extended={SLICE: "1"}), pod("old", bound_to="n1", phase="Running")],
    ids=["not ours", "by resources as well", "none"],
)
def test_a_pod_without_a_slice_by_annotation_takes_what_it_asks(other: Pod) -> None:
    assert decided(cut(), other, WHOLE_SLICE)[0]["p"].node == "n1"


def test_a_pod_with_a_slice_by_annotation_takes_no_cards() -> None:
    assert decided(node("n1", 1), legacy(), pod("p", gpus=1))[0]["p"].node == "n1"


@pytest.mark.parametrize("book", [{"x": TENTH}, {"x": HALF}])
def test_parts_that_spread_go_where_most_of_such_slices_is_free(book: dict[str, int]) -> None:
    spread = Settings(gpu_strategy=Strategy.SPREAD)
    shared = reservation("g", "n1", resource=SLICE, book=book)
    placed, _ = decided(cut("n1", 1), cut("n2", 1), shared, asking(), settings=spread)
    assert placed["p"].node == "n2"
