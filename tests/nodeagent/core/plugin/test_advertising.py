from __future__ import annotations

import pytest

from nodeagent.core.plugin.resources import Device, Resource, by_id, ids, is_replica, listed, uuid_of


def device(uuid: str = "GPU-a", replicas: int = 0, *, card: str = "") -> Device:
    return Device(uuid=uuid, card=card or uuid, index="0", replicas=replicas, numa=1)


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [(0, ["GPU-a"]), (1, ["GPU-a::0"]), (3, ["GPU-a::0", "GPU-a::1", "GPU-a::2"])],
)
def test_ids_are_those_of_nvidias_plugin(replicas: int, expected: list[str]) -> None:
    assert list(ids(device(replicas=replicas))) == expected
    assert {uuid_of(one) for one in expected} == {"GPU-a"}
    assert all(is_replica(one) is bool(replicas) for one in expected)


def test_all_replicas_of_a_card_change_together() -> None:
    resource = Resource("nvidia.com/s", (device("GPU-a", 2), device("GPU-b", 1)))
    assert list(listed(resource, {"GPU-a"})) == [("GPU-a::0", False, 1), ("GPU-a::1", False, 1), ("GPU-b::0", True, 1)]


def test_an_ill_slice_leaves_the_others_and_an_ill_card_takes_all_its_slices() -> None:
    resource = Resource("nvidia.com/gpu", (device("MIG-a", card="GPU-a"), device("MIG-b", card="GPU-a")))
    assert [is_well for _, is_well, _ in listed(resource, {"MIG-a"})] == [False, True]
    assert [is_well for _, is_well, _ in listed(resource, {"GPU-a"})] == [False, False]


def test_an_id_leads_to_its_device() -> None:
    shared = device("GPU-a", 2)
    assert by_id(Resource("nvidia.com/s", (shared,))) == {"GPU-a::0": shared, "GPU-a::1": shared}
