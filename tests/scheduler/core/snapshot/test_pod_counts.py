"""Counts of pods in a decision's working copy: they move with what is placed and evicted, and back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from scheduler.core.decide.placer import Placer
from scheduler.core.filters.pod_terms import TakenByAll
from scheduler.core.filters.registry import OK
from scheduler.core.model.pod_class import AntiTerm
from scheduler.core.snapshot.rule_columns import RuleColumns, columns_of
from scheduler.core.snapshot.statement import Statement
from tests.scheduler.core.filters.beside import HOST, affinity, anti_affinity, made, running, term, waiting
from tests.scheduler.core.filters.test_spread import spread
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
