"""The recount behind S12 reads the objects of a node again when one of them changed, and only then."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from simulator.checks import facts, ledgers
from simulator.checks.checker import NODES
from simulator.checks.facts import PodFacts
from simulator.checks.ledgers import Ledger, Recount, Row
from tests.simulator.made_up import NODE, Story, granted, node, reservation, whole

GPU = "nvidia.com/gpu"
MIB = 16 * 1024


class Counted(dict[str, PodFacts]):
    """Pods by UID that count how often one was read."""

    reads = 0

    @override
    def __getitem__(self, uid: str) -> PodFacts:
        self.reads += 1
        return super().__getitem__(uid)


def row(gpus: int, *, pods: int = 8, **shared: int) -> Row:
    return Row(cpu_milli=4000, mem_mib=MIB, pods=pods, devices={GPU: gpus}, shared_nano=shared)


def one_node(*pods: dict[str, Any]) -> tuple[Recount, Counted]:
    live = Counted({raw["metadata"]["uid"]: facts.pod(raw) for raw in pods})
    return Recount(live, {NODE: dict.fromkeys(live)}, {NODE: ledgers.node(node(gpus=3))}), live


def test_a_node_is_counted_once_while_nothing_of_it_changes() -> None:
    recount, live = one_node(whole("a"), whole("b"))
    for _ in range(3):
        assert list(recount.differences(Ledger("scheduler", False, {NODE: row(1)}))) == []
    assert live.reads == 2


def test_a_row_that_changes_is_compared_though_no_object_changed() -> None:
    recount, _ = one_node(whole("a"))
    assert list(recount.differences(Ledger("scheduler", False, {NODE: row(2, pods=9)}))) == []
    wrong = Ledger("scheduler", False, {NODE: row(3, pods=9)})
    assert list(recount.differences(wrong)) == [f"{NODE}: 3 GPUs free, a recount gives 2"]
    assert list(recount.differences(wrong)) == [f"{NODE}: 3 GPUs free, a recount gives 2"]


def test_each_change_of_an_object_is_seen_by_the_next_comparison() -> None:
    story = Story().sees(node(gpus=3), kind=NODES)

    def agree(right: Row) -> bool:
        assert story.checker.ledger(Ledger("scheduler", False, {NODE: right}), story.now_s)
        return story.broken() == set()

    assert agree(row(3, pods=10))
    story.sees(whole("w"))
    assert agree(row(2, pods=9))
    story.sees(reservation("r", "g", {"uid-p": 500_000_000}))
    assert agree(row(1, g=500_000_000))
    story.sees(granted("p", "g"))
    assert agree(row(1, pods=7, g=500_000_000))
    story.sees({**whole("w"), "status": {"phase": "Succeeded"}})
    assert agree(row(2, g=500_000_000))
    story.sees(reservation("r", "g", {"uid-p": 750_000_000}))
    assert agree(row(2, g=250_000_000))
    story.sees(granted("p", "g"), event="DELETED").sees(reservation("r", "g"), event="DELETED")
    assert agree(row(3, pods=10))
    story.sees(node(gpus=4), kind=NODES)
    assert agree(row(4, pods=10))
    assert story.checker.comparisons == 8
    assert not agree(row(3, pods=10))
