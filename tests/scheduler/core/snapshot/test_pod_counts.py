"""Counts of pods in a decision's working copy: they move with what is placed and evicted, and back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from scheduler.core.decide.placer import Placer
from scheduler.core.filters.pod_rule import NO_DOMAIN, Domains, TakenByAll
from scheduler.core.filters.registry import OK
from scheduler.core.filters.spread import Staying
from scheduler.core.model.pod_class import AntiTerm, Requirement
from scheduler.core.model.records import PodRecord
from scheduler.core.snapshot.node_count import NodeMask, all_but, both, only
from scheduler.core.snapshot.pod_counts import Moves, NodeGroups, Tally, coarse
from scheduler.core.snapshot.rule_columns import RuleColumns, columns_of
from scheduler.core.snapshot.statement import Statement
from tests.scheduler.core.filters.beside import HOST, affinity, anti_affinity, made, running, term, waiting
from tests.scheduler.core.filters.test_beside_pods import spread
from tests.scheduler.core.objects import node

_ALL = TakenByAll((AntiTerm("", selector=(), namespaces=frozenset(("ns",))),), unknown=False)
_KINDS: tuple[dict[str, Any], ...] = (
    anti_affinity(term(HOST)),
    affinity(term()),
    spread(),
    {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]},
    {},
)


def _counts(statement: Statement) -> list[int]:
    return [int(count) for count in statement.counts.tally(_ALL, None).numbers]


def test_what_is_evicted_counts_no_more_until_it_is_taken_back() -> None:
    found = made(running("a", "p"), running("b", "p"), running("c", "q"))
    statement = Placer(found.snapshot()).statement
    before = statement.checkpoint()
    assert _counts(statement) == [2, 1, 0, 0]
    victims = [found.pod(f"uid-{name}") for name in "ac"]
    statement.evict(*(victim for victim in victims if victim is not None))
    assert _counts(statement) == [1, 0, 0, 0]
    statement.rollback(before)
    assert _counts(statement) == [2, 1, 0, 0]


@pytest.mark.parametrize("seed", range(30))
def test_after_any_placements_taken_back_every_rule_answers_as_before(seed: int) -> None:
    rng = random.Random(seed)
    there = [running(f"r{i}", rng.choice("pqrs"), rng.choice("ab")) for i in range(4)]
    found = made(*there, *(waiting(rng.choice(_KINDS), f"w{i}", rng.choice("ab")) for i in range(8)))
    snapshot = found.snapshot()
    placer, pods = Placer(snapshot), snapshot.waiting(map(snapshot.pods.records.__getitem__, snapshot.pods.unbound))
    columns = [made_of for pod in pods if (made_of := columns_of(placer.statement, pod.cls)) is not None]
    marks = [(placer.statement.checkpoint(), _answers(columns))]
    for _ in range(20):
        if rng.random() < 0.6 or len(marks) == 1:
            placer.place(rng.choice(pods))
            marks.append((placer.statement.checkpoint(), _answers(columns)))
        else:
            mark, answers = marks.pop(rng.randrange(1, len(marks)))
            del marks[next((i for i, (at, _) in enumerate(marks) if at > mark), len(marks)) :]
            placer.statement.rollback(mark)
            assert _answers(columns) == answers
    placer.statement.rollback(marks[0][0])
    again = [made_of for pod in pods if (made_of := columns_of(placer.statement, pod.cls)) is not None]
    assert _answers(columns) == marks[0][1] == _answers(again)


def _answers(columns: list[RuleColumns]) -> list[list[int]]:
    return [each.narrowed(np.full(len(each.open), OK, np.int8)).tolist() for each in columns]


def test_a_class_that_asks_nothing_of_others_has_no_columns() -> None:
    found = made(waiting({}))
    record = found.pod("uid-w")
    assert record is not None
    assert columns_of(Placer(found.snapshot()).statement, record.cls) is None


def test_a_selector_costs_by_its_size_when_pods_are_counted_and_with_each_that_is_placed() -> None:
    def spent(words: int) -> tuple[int, int]:
        many = {"matchExpressions": [{"key": f"k{i}", "operator": "DoesNotExist"} for i in range(words)]}
        pods = [running(f"r{i}", "p", app="b") for i in range(120)]
        found = made(*pods, waiting(spread(labelSelector=many)), waiting(spread(labelSelector=many), "v"))
        snapshot = found.snapshot()
        placer = Placer(snapshot)
        efforts = []
        for name in ("uid-w", "uid-v"):
            assert placer.place(snapshot.pods.records[name]) is not None
            efforts.append(placer.statement.counts.take_effort())
        return efforts[0], efforts[1]

    (first, then), (first_of_many, then_of_many) = spent(1), spent(600)
    assert first_of_many - first >= 120 * 599 // 12
    assert then_of_many - then >= 599 // 12


def test_what_is_counted_first_costs_effort_and_no_more_once_it_is_known() -> None:
    found = made(*(running(f"r{i}", "p") for i in range(200)), waiting(spread()))
    snapshot = found.snapshot()
    record = snapshot.pods.records["uid-w"]
    first = Placer(snapshot)
    assert first.place(record) is not None
    assert first.statement.counts.take_effort() > 50
    assert first.statement.counts.take_effort() == 0
    second = Placer(snapshot)
    assert second.place(record) is not None
    assert second.statement.counts.take_effort() == 1 + 10  # a look at the count, and one constraint that is asked


@pytest.mark.parametrize(
    "kind", [spread(HOST), spread(HOST, minDomains=13), anti_affinity(term(HOST)), affinity(term(HOST))]
)
def test_answers_that_change_on_many_nodes_at_once_are_those_of_a_first_look(kind: dict[str, Any]) -> None:
    nodes = tuple(node(f"n{i}", labels={} if i else {HOST: ""}) for i in range(12))
    found = made(*(waiting(kind, f"w{i}", "a") for i in range(26)), nodes=nodes)
    snapshot = found.snapshot()
    placer, pods = Placer(snapshot), [snapshot.pods.records[f"uid-w{i}"] for i in range(26)]
    columns = columns_of(placer.statement, pods[0].cls)
    assert columns is not None
    marks, opened = [], {int(columns.open.sum())}
    for pod in pods:
        marks.append(placer.statement.checkpoint())
        placer.place(pod)
        again = columns_of(placer.statement, pod.cls)
        assert again is not None
        assert _answers([columns]) == _answers([again])
        opened.add(int(columns.open.sum()))
    placer.statement.rollback(marks[0])
    again = columns_of(placer.statement, pods[0].cls)
    assert again is not None
    assert columns.open.tolist() == again.open.tolist()
    assert len(opened) > 1


# Moves of a decision: each matcher has those of the pods that it takes, and pays for each comparison once.


def _pod(app: str) -> PodRecord:
    found = made(running("r", "p", app)).pod("uid-r")
    assert found is not None
    return found


def _of(app: str) -> Staying:
    return Staying("ns", (Requirement("app", "In", (app,)),))


def test_a_matcher_has_the_moves_of_its_pods_in_order() -> None:
    moves = Moves(lambda _: None)
    moves.all += [(_pod("a"), 0, 1), (_pod("b"), 1, 1)]
    taken = moves.taken_by(_of("a"))
    assert taken.up_to_now() == [(0, 1)]
    moves.all += [(_pod("a"), 2, 1), (_pod("a"), 0, -1)]
    assert taken.up_to_now() == [(0, 1), (2, 1), (0, -1)]
    assert moves.taken_by(_of("b")).up_to_now() == [(1, 1)]


def test_equal_matchers_compare_each_pod_once() -> None:
    moves = Moves(lambda _: None)
    moves.all += [(_pod("a"), 0, 1), (_pod("b"), 1, 1)]
    for _ in range(3):
        assert moves.taken_by(_of("a")).up_to_now() == [(0, 1)]
    assert moves.compared == 2 * _of("a").effort()


# Nodes by their domains of coarse labels.


def _domains(rng: random.Random, nodes: int, count: int) -> Domains:
    return Domains(np.array([rng.choice((NO_DOMAIN, *range(count))) for _ in range(nodes)]), count)


@pytest.mark.parametrize("seed", range(20))
def test_the_nodes_of_a_group_are_those_with_the_same_domains(seed: int) -> None:
    rng = random.Random(seed)
    domains = {key: _domains(rng, 100, rng.randint(1, 5)) for key in "ab"[: rng.randint(0, 2)]}
    groups = NodeGroups(100, domains)
    kinds = [tuple(int(each.of[position]) for each in domains.values()) for position in range(100)]
    assert groups.count == len(set(kinds))
    order = range(100) if groups.order is None else groups.order.tolist()
    assert sorted(order) == list(range(100))
    for group in range(groups.count):
        members = list(order[groups.starts[group] : groups.starts[group + 1]])
        (kind,) = {kinds[position] for position in members}
        assert members == [position for position in range(100) if kinds[position] == kind]
        assert {int(groups.of[position]) for position in members} == {group}
        assert tuple(int(groups.domains(key)[group]) for key in domains) == kind
    for at, (key, each) in enumerate(domains.items()):
        for domain in range(each.count):
            among = {int(groups.of[position]) for position in range(100) if kinds[position][at] == domain}
            assert groups.in_domain(key, domain).tolist() == sorted(among)
    if groups.at is not None:
        assert [order[at] for at in groups.at.tolist()] == list(range(100))


@pytest.mark.parametrize(
    ("counts", "nodes", "expected"),
    [
        ({"zone": 3, "rack": 30, "host": 1_000}, 1_000, ("zone", "rack")),
        ({"zone": 3, "rack": 50}, 1_000, ("zone",)),
        ({"zone": 300}, 100_000, ()),  # more groups than there may be
        ({"a": 20, "b": 10, "c": 20}, 10_000, ("b", "a")),
        ({"zone": 3}, 90, ()),
        ({}, 90, ()),
    ],
)
def test_a_label_is_coarse_if_it_has_many_nodes_a_domain(
    counts: dict[str, int], nodes: int, expected: tuple[str, ...]
) -> None:
    domains = {key: Domains(np.zeros(nodes, np.int64), count) for key, count in counts.items()}
    assert coarse(domains, domains, nodes) == expected


# Masks of nodes, and what is left when two are joined.

_POSITIONS = {"a": 0, "b": 1, "c": 2}


def _names(mask: NodeMask) -> str:
    return "abc" if mask is None else "".join(name for name, at in _POSITIONS.items() if mask[at])


@pytest.mark.parametrize(
    ("out", "left"), [((), "abc"), (("a", "c"), "b"), (("gone",), "abc"), (("gone", "b"), "ac"), (("a", "b", "c"), "")]
)
def test_nodes_are_left_out_by_name(out: tuple[str, ...], left: str) -> None:
    assert _names(all_but(out, _POSITIONS)) == left


@pytest.mark.parametrize(("one", "other", "left"), [("", "", "abc"), ("a", "", "bc"), ("", "b", "ac"), ("a", "b", "c")])
def test_of_two_masks_only_nodes_are_left_that_both_let_through(one: str, other: str, left: str) -> None:
    first, second = all_but(one, _POSITIONS), all_but(other, _POSITIONS)
    assert _names(both(first, second)) == left
    assert (_names(first), _names(second)) == (_names(all_but(one, _POSITIONS)), _names(all_but(other, _POSITIONS)))


def test_only_nodes_that_are_there_are_let_through() -> None:
    assert only(["b", "gone"], {"a": 0, "b": 1, "c": 2}).tolist() == [False, True, False]
    assert only([], {"a": 0}).tolist() == [False]


# Pods by domain: after any moves as if they were added up again.


def _tally_pod() -> PodRecord:
    found = made(running("r", "p")).pod("uid-r")
    assert found is not None
    return found


def _moves() -> Moves:
    return Moves(lambda _: None)


@pytest.mark.parametrize("seed", range(20))
def test_numbers_total_and_the_fewest_are_those_of_a_new_sum(seed: int) -> None:
    rng = random.Random(seed)
    nodes, domains = rng.randint(1, 30), rng.randint(1, 6)
    of = np.array([rng.choice((NO_DOMAIN, *range(domains))) for _ in range(nodes)])
    counted = None if rng.random() < 0.3 else np.array([rng.random() < 0.8 for _ in range(nodes)])
    there = np.array([rng.random() < 0.7 for _ in range(domains)])
    there[rng.randrange(domains)] = True
    expected = np.zeros(domains, np.int64)
    moves, pod = _moves(), _tally_pod()
    tally = Tally(moves.taken_by(_ALL), expected.copy(), of, counted, taken=0)
    for _ in range(200):
        position, by = rng.randrange(nodes), rng.choice((1, 1, -1))
        moves.all.append((pod, position, by))
        tally.catch_up()
        if of[position] != NO_DOMAIN and (counted is None or counted[position]):
            expected[of[position]] += by
            assert tally.changed[-1] == of[position]
        assert tally.numbers.tolist() == expected.tolist()
        assert tally.total == expected.sum()
        assert tally.fewest(there) == expected[there].min()


def test_without_a_label_each_node_is_a_domain() -> None:
    moves, pod = _moves(), _tally_pod()
    tally = Tally(moves.taken_by(_ALL), np.zeros(3, np.int64), None, np.array([True, False, True]), taken=0)
    moves.all += [(pod, position, 1) for position in (0, 1, 2, 2)]
    tally.catch_up()
    assert tally.numbers.tolist() == [1, 0, 2]
    assert tally.changed == [0, 2, 2]
