"""Numbers that follow from nodes: kept, and right after any change of nodes."""

from __future__ import annotations

import random
from collections.abc import Hashable

from scheduler.core.convert.nodes import node_record
from scheduler.core.model.records import NodeRecord
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.node_numbers import NodeNumbers
from tests.scheduler.core.objects import node

_SOFT = ("p", "", "PreferNoSchedule")


class _Label:
    """The number in a label; ``asked`` is its key."""

    kind = "label"

    def __init__(self) -> None:
        self.looked = 0

    def reads(self, node: NodeRecord, asked: str) -> Hashable:
        return node.labels.get(asked)

    def number(self, node: NodeRecord, asked: str) -> int:
        self.looked += 1
        return int(node.labels.get(asked, "0"))

    def effort(self, asked: str) -> int:
        del asked
        return 2


def _node(name: str, number: int, *, is_soft: bool = False) -> NodeRecord:
    return node_record(node(name, labels={"n": str(number)}, taints=[_SOFT] if is_soft else []))


def test_nodes_that_are_alike_are_judged_once_and_then_not_again() -> None:
    numbers, label, nodes = NodeNumbers(), _Label(), [_node("a", 7), None, _node("b", 7), _node("c", 3)]
    for _ in range(2):
        assert numbers.of(label, "n", nodes).tolist() == [7, 0, 7, 3]
    assert label.looked == 2
    assert numbers.effort_spent == 2 * len(nodes)


def test_after_any_change_numbers_are_those_of_the_nodes() -> None:
    rng, ledger, label = random.Random(1), Ledger(), _Label()
    for _ in range(300):
        name = f"n{rng.randrange(40)}"
        if name in ledger.row_of and rng.random() < 0.3:
            ledger.drop(name)
        else:
            ledger.put(_node(name, rng.randrange(5), is_soft=rng.random() < 0.2))
        nodes, numbers = ledger.nodes, ledger.numbers
        assert numbers.of(label, "n", nodes).tolist() == NodeNumbers().of(label, "n", nodes).tolist()
        assert numbers.soft_tainted == {row for row, each in enumerate(nodes) if each is not None and each.taints}
        assert ledger.copy().numbers.soft_tainted == numbers.soft_tainted


def test_a_change_of_a_node_costs_nothing_until_somebody_asks() -> None:
    ledger, label = Ledger(), _Label()
    for number in range(20):
        ledger.put(_node(f"n{number}", number))
    ledger.numbers.of(label, "n", ledger.nodes)
    spent, looked = ledger.numbers.effort_spent, label.looked
    for number in range(5):
        ledger.put(_node("n7", 100 + number))
    assert label.looked == looked
    assert ledger.numbers.of(label, "n", ledger.nodes)[ledger.row_of["n7"]] == 104
    assert ledger.numbers.effort_spent == spent + 5 * 2


def test_the_asks_that_were_last_are_kept() -> None:
    numbers, label, nodes = NodeNumbers(), _Label(), [_node("a", 7)]
    for other in range(1_000):
        numbers.of(label, "n", nodes)
        numbers.of(label, f"other-{other}", nodes)
    assert label.looked == 1 + 1_000
