from __future__ import annotations

import random

from simulator.devices import DeviceManager, Shortage, make_devices, shuffled

CARDS = make_devices("node-0", [1024] * 4, seed=1)


def test_identities_follow_from_seed_node_and_index() -> None:
    assert make_devices("node-0", [1024] * 4, seed=1) == CARDS
    others = {
        device.uuid
        for node, seed in (("node-1", 1), ("node-0", 2))
        for device in make_devices(node, [1] * 4, seed=seed)
    }
    assert len(others | {device.uuid for device in CARDS}) == 12


def test_the_first_free_devices_are_given() -> None:
    manager = DeviceManager(CARDS)
    assert manager.allocate("p", "main", 2) == CARDS[:2]
    assert manager.allocate("q", "main", 1) == CARDS[2:3]
    manager.free("p")
    assert manager.allocate("r", "main", 3) == (CARDS[0], CARDS[1], CARDS[3])


def test_a_shortage_says_how_many_are_free_and_takes_none() -> None:
    manager = DeviceManager(CARDS)
    manager.allocate("p", "main", 3)
    assert manager.allocate("q", "main", 2) == Shortage(requested=2, available=1)
    assert manager.held_by_pod("q") == ()


def test_lent_devices_come_first_and_are_not_given_to_others() -> None:
    manager = DeviceManager(CARDS)
    lent = manager.allocate("p", "init", 2)
    assert isinstance(lent, tuple)
    assert manager.allocate("p", "main", 3, lent=lent) == CARDS[:3]
    assert manager.held_by_pod("p") == CARDS[:3]
    assert manager.allocate("q", "main", 2) == Shortage(requested=2, available=1)


def test_a_shuffled_order_is_the_same_for_the_same_seed() -> None:
    assert shuffled(CARDS, random.Random(5)) == shuffled(CARDS, random.Random(5))
    assert any(shuffled(CARDS, random.Random(seed)) != CARDS for seed in range(5))
