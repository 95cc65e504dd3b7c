"""Pods that ask otherwise on some nodes: each node is charged what is asked there (docs/dialects.md)."""

from __future__ import annotations

from typing import Any

import pytest

from gpu.request import Ask, FractionAsk, WholeAsk
from gpu.translation import Place, Translation
from scheduler.core.model.plan import Alone, Explain, Placement, Retire
from scheduler.core.model.verdict import Code, NodeReason, Verdict
from tests.scheduler.core.decided import decided
from tests.scheduler.core.model.test_records import request, said
from tests.scheduler.core.objects import NANO, cluster, node, pod, recorded, reservation
from wire import names

HALF, QUARTER = NANO // 2, NANO // 4
OTHERS = Place(other_than=((("pool", "a"),),))
POOL = Place(labels=(("pool", "a"),), unit=2)
IN_POOL = {"pool": "a"}


def _asking(
    first: tuple[Ask, ...] = (FractionAsk(QUARTER),), then: tuple[Ask, ...] = (FractionAsk(HALF),)
) -> Translation:
    return said(first, alternatives=(request(then),), places=(OTHERS, POOL))


def _decided(*objects: Any) -> tuple[dict[str, Placement], list[Verdict]]:
    placed, explained = decided(*objects)
    return placed, [entry.verdict for entry in explained]


@pytest.mark.parametrize(
    ("nodes", "chosen", "nano", "number"),
    [
        ([node("plain", 1), node("pool", 1, labels=IN_POOL)], "plain", QUARTER, 0),
        ([node("pool", 1, labels=IN_POOL)], "pool", HALF, 1),
        ([node("other", 1, labels={"pool": "b"})], "other", QUARTER, 0),
        (
            [node("plain", 1), node("pool", 1, labels=IN_POOL), reservation("g", "plain", book={"x": NANO})],
            "pool",
            HALF,
            1,
        ),
    ],
)
def test_the_charge_is_what_is_asked_on_the_node_that_is_chosen(
    nodes: list[Any], chosen: str, nano: int, number: int
) -> None:
    placed, _ = _decided(*nodes, recorded(_asking()))
    found = placed["p"]
    assert (found.node, [device.nano for device in found.devices], found.alternative) == (chosen, [nano], number)


def test_as_many_share_a_card_as_its_node_has_replicas() -> None:
    nodes = [node("plain", 1), node("pool", 1, labels=IN_POOL)]
    placed, verdicts = _decided(*nodes, *(recorded(_asking(), f"p{n}") for n in range(8)))
    assert sorted(each.node for each in placed.values()) == ["plain"] * 4 + ["pool"] * 2
    assert [verdict.code for verdict in verdicts] == [Code.NO_NODE_FITS]


def test_each_node_counts_once_among_the_reasons_by_what_is_asked_there() -> None:
    only_pool = said((FractionAsk(HALF),), places=(POOL,))
    _, (verdict,) = _decided(
        node("a"), node("b", ready=False), node("c", ready=False, labels=IN_POOL), recorded(only_pool)
    )
    assert verdict.node_reasons == (NodeReason("not-ready", "", 2), NodeReason("place", "", 1))
    full = [reservation("g", "a", book={"x": NANO}), reservation("h", "b", book={"x": 2 * QUARTER + 1})]
    nodes = [node("a", 1), node("b", 1, labels=IN_POOL), node("c", ready=False), node("d", 0)]
    _, (verdict,) = _decided(*nodes, *full, recorded(_asking()))
    assert {(reason.kind, reason.resource): reason.nodes for reason in verdict.node_reasons} == {
        ("insufficient", "gpu-share"): 3,
        ("not-ready", ""): 1,
    }


def test_a_node_of_no_kind_that_the_pod_can_be_served_on_is_said() -> None:
    neither = (Place(labels=(("pool", "a"),)), Place(labels=(("pool", "b"),)))
    asked = said((FractionAsk(QUARTER),), alternatives=(request((FractionAsk(HALF),)),), places=neither)
    _, (verdict,) = _decided(node("x"), node("y"), recorded(asked))
    assert verdict.node_reasons == (NodeReason("place", "", 2),)


def test_a_node_that_changes_its_kind_is_judged_anew() -> None:
    made = cluster(node("n", 1), recorded(said((FractionAsk(HALF),), places=(POOL,))))
    assert isinstance(made.decide(0).entries[0], Explain)
    made.upsert_node(node("n", 1, labels=IN_POOL))
    assert isinstance(made.decide(0).entries[0], Alone)


def test_what_is_a_part_of_a_card_on_some_nodes_may_be_one_of_a_slice_on_others() -> None:
    cut = node("pool", 0, labels=IN_POOL, extended={"nvidia.com/mig-3g.20gb": "1"})
    asked = _asking(then=(FractionAsk(HALF, profile="3g.20gb"),))
    placed, _ = _decided(node("plain", 0), cut, recorded(asked))
    assert (placed["p"].node, placed["p"].devices[0].resource) == ("pool", "nvidia.com/mig-3g.20gb")
    placed, _ = _decided(node("plain", 1), cut, recorded(asked))
    assert (placed["p"].node, placed["p"].devices[0].resource) == ("plain", names.GPU_RESOURCE)


def test_no_idle_reservation_is_removed_for_whole_gpus_where_the_pod_may_not_be() -> None:
    whole = said((WholeAsk(),), places=(POOL,))
    idle = reservation("g", "plain", book={})
    nodes = [node("plain", 1), node("pool", 0, labels=IN_POOL)]
    limits = {"containers": [{"name": "c0", "resources": {"limits": {names.GPU_RESOURCE: "1"}}}]}
    made = cluster(*nodes, idle, recorded(whole, spec=limits))
    assert [type(entry) for entry in made.decide(0).entries] == [Explain]
    made = cluster(node("pool", 1, labels=IN_POOL), reservation("g", "pool", book={}), recorded(whole, spec=limits))
    assert [type(entry) for entry in made.decide(0).entries] == [Retire, Explain]


def test_pods_of_whole_gpus_know_nothing_of_this() -> None:
    placed, _ = _decided(node("n", labels=IN_POOL), pod(gpus=1))
    assert placed["p"].node == "n"
