"""Pods by domain: after any moves as if they were added up again."""

from __future__ import annotations

import random

import numpy as np
import pytest

from scheduler.core.filters.pod_rule import NO_DOMAIN
from scheduler.core.filters.pod_terms import TakenByAll
from scheduler.core.model.pod_class import AntiTerm
from scheduler.core.model.records import PodRecord
from scheduler.core.snapshot.pod_counts import Moves, Tally
from tests.scheduler.core.filters.beside import made, running

_ALL = TakenByAll((AntiTerm("", selector=(), namespaces=frozenset(("ns",))),), unknown=False)


def _pod() -> PodRecord:
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
    moves, pod = _moves(), _pod()
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
    moves, pod = _moves(), _pod()
    tally = Tally(moves.taken_by(_ALL), np.zeros(3, np.int64), None, np.array([True, False, True]), taken=0)
    moves.all += [(pod, position, 1) for position in (0, 1, 2, 2)]
    tally.catch_up()
    assert tally.numbers.tolist() == [1, 0, 2]
    assert tally.changed == [0, 2, 2]
