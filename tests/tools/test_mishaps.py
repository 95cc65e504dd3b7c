from __future__ import annotations

import random

import pytest

from tools.mishaps import NOTHING, Deck, Kind, Mishap, catalogue


def deck(seed: int = 1) -> Deck:
    rng = random.Random(seed)
    return Deck(catalogue(rng), rng)


def dealt(from_deck: Deck, kind: Kind, times: int) -> list[Mishap]:
    return [from_deck.deal(kind) for _ in range(times)]


@pytest.mark.parametrize("kind", Kind)
def test_a_mishap_is_dealt_until_it_has_struck(kind: Kind) -> None:
    full = deck()
    expected = {mishap.name for mishap in catalogue(random.Random(1))[kind]}
    assert {mishap.name for mishap in dealt(full, kind, 100)} == {*expected, NOTHING.name}
    for mishap in dealt(full, kind, 100):
        full.struck(mishap)
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


@pytest.mark.parametrize(("permille", "kept"), [(1, b"a"), (500, b"ab"), (999, b"abc")])
def test_what_is_cut_has_lost_something_and_not_all(permille: int, kept: bytes) -> None:
    assert Mishap(kept_permille=permille).cut(b"abcd") == kept
