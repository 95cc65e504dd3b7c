"""Numbers of nodes, names and pods: kept, and right after any change."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from typing_extensions import override

from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.filters.pod_rule import Labels, Matcher, TakenByAll
from scheduler.core.filters.spread import Staying
from scheduler.core.model.pod_class import AntiTerm, Requirement
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.inter_pod_affinity import TermIndex
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.node_numbers import NodeNumbers
from scheduler.core.nodes.pod_places import NOBODY, NodeNames, PodColumns
from tests.scheduler.core.objects import node, pod
from tests.whole import seeds

# Numbers that follow from nodes: kept, and right after any change of nodes.

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


# Numbers of nodes' names.


def test_a_name_keeps_its_number_as_long_as_somebody_uses_it() -> None:
    names = NodeNames()
    (first,), both = names.enter(("a",)), names.enter(("a", "b"))
    assert both[0] == first
    names.leave(("a",))
    assert names.enter(("a",)) == (first,)
    assert [names.of(number) for number in both] == ["a", "b"]


def test_numbers_of_names_that_nobody_uses_are_given_away() -> None:
    names, rng, used = NodeNames(), random.Random(1), list[str]()
    for number in range(500):
        if len(used) > 10 or (used and rng.random() < 0.4):
            names.leave((used.pop(rng.randrange(len(used))),))
        name = f"node-{number}"
        names.enter((name,))
        used.append(name)
        order = {each: position for position, each in enumerate(sorted({*used, "unknown"}))}
        at = names.at_positions(order).tolist()
        assert [NOBODY if each == -1 else names.of(each) for each in at] == [
            each if each in used else NOBODY for each in order
        ]
    assert names.most <= 12


# Pods by columns: what a matcher takes of them is what it takes one by one.

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Unknown")


def _labels_of(namespace: str) -> Labels | None:
    return {"n0": {"team": "x"}, "n1": {"team": "y"}}.get(namespace)


def _record(rng: random.Random, number: int) -> PodRecord:
    labels = {key: rng.choice("abc") for key in "klm" if rng.random() < 0.7}
    found = pod_record(pod(f"p{number}", labels={**labels, "own": f"{number}"}), Settings())
    assert found is not None
    return replace(found, namespace=f"n{rng.randrange(4)}", deleting=rng.random() < 0.2)


def _selector(rng: random.Random) -> tuple[Requirement, ...]:
    wanted = (rng.choice(("k", "l", "m", "own", "none")) for _ in range(rng.randint(0, 3)))
    values = ("a", rng.choice("bc12"))
    return tuple(Requirement(key, rng.choice(_OPERATORS), values) for key in wanted)


def _matcher(rng: random.Random) -> Matcher:
    if rng.random() < 0.5:
        return Staying(f"n{rng.randrange(4)}", _selector(rng))
    by_labels = rng.choice((None, (), (Requirement("team", "In", ("x",)),)))
    terms = (AntiTerm("", _selector(rng), frozenset({"n2"}), by_labels) for _ in range(rng.randint(1, 2)))
    return TakenByAll(tuple(terms), unknown=rng.random() < 0.5)


@pytest.mark.parametrize("seed", seeds(40))
def test_taken_are_those_that_the_matcher_takes(seed: int) -> None:
    rng, columns, there = random.Random(seed), PodColumns(), dict[int, PodRecord]()
    seen = set()
    for number in range(400):
        if there and rng.random() < (0.3 if number < 300 else 0.95):
            columns.drop(slot := rng.choice(list(there)))
            del there[slot]
        else:
            record = _record(rng, number)
            there[columns.add(record)] = record
        if rng.random() < 0.1:
            matcher = _matcher(rng)
            keys = matcher.reads
            assert keys is not None
            taken = columns.taken(matcher, keys, _labels_of)
            expected = {slot for slot, record in there.items() if matcher.takes(record, _labels_of)}
            assert set(taken.nonzero()[0].tolist()) == expected
            seen.add(bool(expected))
        if rng.random() < 0.02:
            columns.forget_labels()
    assert seen == {True, False}


def test_pods_that_are_alike_in_what_is_read_are_judged_once() -> None:
    columns, matcher = PodColumns(), _Counting()
    for number in range(100):
        found = pod_record(pod(f"p{number}", labels={"app": "ab"[number % 2], "own": str(number)}), Settings())
        assert found is not None
        columns.add(found)
    assert columns.taken(matcher, ("app",), _labels_of).sum() == 50
    assert matcher.asked == 2
    assert columns.taken(matcher, ("app", "own"), _labels_of).sum() == 50
    assert matcher.asked == 102


class _Counting:
    """Takes pods of one app, and counts how often it is asked."""

    reads = ("app",)

    def __init__(self) -> None:
        self.asked = 0

    def effort(self) -> int:
        return 1

    def takes(self, pod: PodRecord, labels_of: object) -> bool:
        del labels_of
        self.asked += 1
        return pod.labels.get("app") == "a"


def test_namespaces_and_values_that_are_gone_do_not_make_columns_grow() -> None:
    rng, columns = random.Random(1), PodColumns()
    matcher = Staying("ns", (Requirement("own", "Exists", ()),))
    columns.add(replace(_record(rng, 0), namespace="ns"))
    for number in range(2_000):
        slot = columns.add(replace(_record(rng, number), namespace=f"ns-{number}"))
        if number % 10 == 0:
            columns.taken(matcher, ("own",), _labels_of)
        columns.drop(slot)
    before = columns.effort_spent
    assert columns.taken(matcher, ("own",), _labels_of).tolist() == [True, False]
    assert columns.effort_spent - before < 20


# Terms of pods, found by what they take.

if TYPE_CHECKING:
    from _collections_abc import dict_items


class _Watched(Counter[str]):
    """Keys, and how often somebody looked at all of them."""

    looks = 0

    @override
    def items(self) -> dict_items[str, int]:
        self.looks += 1
        return super().items()


def test_a_term_that_goes_takes_its_keys_along_and_looks_at_no_others() -> None:
    index = TermIndex()
    index.keys = watched = _Watched()
    terms = [_term("app", "tier"), _term("app", "app", "stage")]
    for term in terms:
        index.put(term, "n")
    assert index.keys == Counter(app=3, tier=1, stage=1)
    watched.looks = 0
    index.drop(terms[1], "n")
    assert watched.looks == 0
    assert dict(index.keys) == {"app": 1, "tier": 1}
    index.drop(terms[0], "n")
    assert not index.keys


def _term(*keys: str) -> AntiTerm:
    selector = tuple(Requirement(key, "Exists", ()) for key in keys)
    return AntiTerm("host", selector=selector, namespaces=frozenset({"ns"}))
