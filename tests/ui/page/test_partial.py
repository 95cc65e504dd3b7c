"""A node of which some pods may not be read: nothing is said to be idle, left or lost that is only not seen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.core.objects import NANO, bind_request, bound, node, pod, reservation
from tests.ui.page.test_frames import drawn, put
from ui.page.objects import Objects
from ui.page.stream import UNKNOWN, Frames
from ui.page.values import NodeCard

HALF, QUARTER = NANO // 2, NANO // 4
NODE = node("n1", gpus=3, mem_mib=1024)
SHARE = pod("mine", namespace="ns", uid="mine", fraction="0.5")
MINE = bound(SHARE, "n1", ("g", HALF))
WHOLE = pod("whole", namespace="ns", uid="whole", gpus=1, bound_to="n1")
THEIRS = {"mine": HALF, "theirs": QUARTER}


def card(*objects: Any, namespace: str = "ns") -> NodeCard:
    store = Objects()
    store.namespaces = frozenset({namespace})
    for each in (NODE, *objects):
        put(store, each)
    (made,) = drawn(Frames(store, "e")).nodes
    return made


@pytest.mark.parametrize(
    ("objects", "kinds", "used"),
    [
        ((), [UNKNOWN, UNKNOWN, UNKNOWN], 0),
        ((WHOLE,), ["whole", UNKNOWN, UNKNOWN], NANO),
        ((MINE,), ["shared", UNKNOWN, UNKNOWN], HALF),
        ((MINE, reservation("g", "n1", book=THEIRS)), ["shared", UNKNOWN, UNKNOWN], HALF + QUARTER),
        ((SHARE, bind_request(SHARE, "n1", ("g", HALF))), ["shared", UNKNOWN, UNKNOWN], HALF),
    ],
    ids=["nobody", "whole", "share", "share-with-its-book", "on-its-way"],
)
def test_what_is_not_seen_is_not_known(objects: tuple[Any, ...], kinds: list[str], used: int) -> None:
    made = card(*objects)
    assert [device.kind for device in made.devices] == kinds
    assert (made.is_partly_known, made.used_nano, made.unknown_nano) == (True, used, 3 * NANO - used)
    assert (made.idle_nano, made.pieces_nano, made.stranded_nano, made.lost_gpus) == (0, 0, 0, 0)
    assert all(not device.free_nano for device in made.devices if device.kind == UNKNOWN)


def test_a_device_whose_reservation_is_not_seen_is_neither_closed_nor_has_it_room() -> None:
    (device, *_) = card(MINE).devices
    assert (device.closed, device.free_nano, device.is_partly_known) == ((), 0, True)


def test_of_a_device_with_a_book_all_is_known_and_of_others_pods_not_whether_they_have_come() -> None:
    """The book names the pod ns/p, which is not there: kept, for a reader of all pods of ns and nobody else."""
    for namespace, is_kept in (("ns", True), ("other", False)):
        (device, *_) = card(MINE, reservation("g", "n1", book=THEIRS), namespace=namespace).devices
        assert (device.free_nano, device.is_partly_known) == (QUARTER, False)
        (theirs,) = (tenant for tenant in device.tenants if tenant.nano == QUARTER)
        assert (theirs.is_kept, theirs.is_on_its_way, theirs.is_hidden) == (is_kept, False, not is_kept)


def test_of_all_namespaces_nothing_is_taken_back() -> None:
    store = Objects()
    for each in (NODE, MINE, reservation("g", "n1", book={"mine": HALF})):
        put(store, each)
    (made,) = drawn(Frames(store, "e")).nodes
    assert [device.kind for device in made.devices] == ["shared", "free", "free"]
    assert (made.is_partly_known, made.idle_nano) == (False, 2 * NANO)
