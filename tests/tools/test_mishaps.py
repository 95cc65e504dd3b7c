from __future__ import annotations

import random

import pytest

from simulator.apiserver.faults import NOTHING, Fault
from tools.faultyproxy import Deck, Kind, catalogue


def deck(seed: int = 1) -> Deck:
    rng = random.Random(seed)
    return Deck(catalogue(rng), rng)


def dealt(from_deck: Deck, kind: Kind, times: int) -> list[Fault]:
    return [from_deck.deal(kind) for _ in range(times)]


@pytest.mark.parametrize("kind", Kind)
def test_a_fault_is_dealt_until_it_has_struck(kind: Kind) -> None:
    full = deck()
    expected = {fault.name for fault in catalogue(random.Random(1))[kind]}
    assert {fault.name for fault in dealt(full, kind, 100)} == {*expected, NOTHING.name}
    for fault in dealt(full, kind, 100):
        full.struck(fault)
    assert set(dealt(full, kind, 100)) == {NOTHING}
    assert not any(name.startswith(kind.value) for name in full.left())
    assert full.left()


def test_the_order_follows_from_the_seed() -> None:
    assert dealt(deck(), Kind.WATCH, 50) == dealt(deck(), Kind.WATCH, 50)
    assert dealt(deck(), Kind.WATCH, 50) != dealt(deck(2), Kind.WATCH, 50)


def test_a_calm_deck_deals_nothing() -> None:
    calm = deck()
    calm.calm()
    assert set(dealt(calm, Kind.READ, 50)) == {NOTHING}
