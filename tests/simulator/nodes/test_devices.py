from __future__ import annotations

import random

from simulator.nodes.device_manager import DeviceManager, Shortage, make_devices, shuffled
from simulator.nodes.shape import NodeShape

FOUR = NodeShape(name="node-0", cards_mib=(1024,) * 4)
CARDS = make_devices(FOUR, seed=1)
SLICE = "nvidia.com/mig-1g.10gb"


def test_identities_follow_from_seed_node_and_index() -> None:
    assert make_devices(FOUR, seed=1) == CARDS
    others = {
        device.uuid
        for node, seed in (("node-1", 1), ("node-0", 2))
        for device in make_devices(NodeShape(name=node, cards_mib=(1,) * 4), seed=seed)
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


MIXED = make_devices(NodeShape(name="node-0", cards_mib=(1024,), slices=("1g.10gb", "1g.10gb", "3g.40gb")), seed=1)


def test_slices_stand_behind_the_cards_with_what_their_profile_says() -> None:
    assert [(device.index, device.mem_mib, device.resource) for device in MIXED] == [
        (0, 1024, "nvidia.com/gpu"),
        (1, 10240, "nvidia.com/mig-1g.10gb"),
        (2, 10240, "nvidia.com/mig-1g.10gb"),
        (3, 40960, "nvidia.com/mig-3g.40gb"),
    ]
    assert [device.is_slice for device in MIXED] == [False, True, True, True]
    assert all(device.uuid.startswith("MIG-") for device in MIXED[1:])


def test_by_the_strategy_single_slices_are_handed_out_as_gpus() -> None:
    shape = NodeShape(name="node-0", slices=("1g.10gb",) * 2, is_single=True)
    assert [(d.resource, d.is_slice) for d in make_devices(shape, seed=1)] == [("nvidia.com/gpu", True)] * 2


def test_a_container_may_have_devices_of_several_kinds() -> None:
    manager = DeviceManager(MIXED)
    assert manager.allocate("p", "main", 1) == MIXED[:1]
    assert manager.allocate("p", "main", 2, resource=SLICE) == MIXED[1:3]
    assert manager.allocate("p", "main", 2, resource=SLICE) == MIXED[1:3]
    assert manager.held("p", "main") == MIXED[:3]
    assert manager.allocate("q", "main", 1, resource=SLICE, lent=MIXED[:1]) == Shortage(requested=1, available=0)
    assert manager.resources == ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb")
    manager.ill = {MIXED[1].uuid}
    assert manager.well(SLICE) == 1
