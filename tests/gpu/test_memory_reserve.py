"""Memory of a card that its driver needs: tenants get none of it."""

from __future__ import annotations

import pytest

from gpu.node_resources import cards_mib, is_readable, usable_mib
from gpu.reservation import read
from tests.scheduler.core.objects import changed, reservation
from wire import names

T4 = 15360


@pytest.mark.parametrize(
    ("card_mib", "written", "expected"),
    [
        (T4, "", T4),
        (T4, "450", T4 - 450),
        (T4, "0", T4),
        (T4, "3%", 14899),  # of 14899.2
        (T4, "2.5%", 14976),
        (T4, "2.05%", 15045),
        (T4, "0%", T4),
        (T4, "99999", 1),
        (1, "99.99%", 1),
        (0, "450", 0),
        # What can't be read reserves nothing.
        (T4, "3 %", T4),
        (T4, "-450", T4),
        (T4, "450Mi", T4),
        (T4, "100%", T4),
        (T4, "2.055%", T4),
    ],
)
def test_a_reserve_is_taken_off_each_card(card_mib: int, written: str, expected: int) -> None:
    assert usable_mib(card_mib, written) == expected


@pytest.mark.parametrize(("written", "expected"), [("450", True), ("3%", True), ("", False), ("some", False)])
def test_it_is_read_as_mib_or_per_cent(written: str, expected: bool) -> None:
    assert is_readable(written) is expected


def test_cards_of_a_node_count_without_it_and_slices_of_mig_whole() -> None:
    annotations = {names.GPU_MEMORY_RESERVE: "450"}
    labels = {names.NODE_GPU_MEMORY: str(T4)}
    assert cards_mib(labels, annotations) == (T4 - 450, T4 - 450)
    assert cards_mib(labels, {**annotations, names.NODE_CARDS: "1000,2000"}) == (550, 1550)
    assert cards_mib({**labels, names.NODE_MIG_STRATEGY: "single"}, annotations) == (T4, T4)


def test_a_reservation_keeps_what_was_reserved_when_its_device_was_opened() -> None:
    annotations = {names.DEVICE_MEMORY: str(T4), names.GPU_MEMORY_RESERVE: "3%"}
    assert read(changed(reservation("g"), annotations=annotations)).mem_mib == 14899
    del annotations[names.DEVICE_MEMORY]
    assert read(changed(reservation("g"), annotations=annotations)).mem_mib == 0
