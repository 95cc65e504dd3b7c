from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.core.plugin.health import Look, State
from nodeagent.core.plugin.offer import Fault, Offering, Remembered
from tests.nodeagent.core import files
from tests.nodeagent.core.machine import card, part, uuid

S = 1_000_000_000
CARDS = [card(0), card(1)]
SHARED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}"
WELL = {one.uuid: Look(driver="1") for one in CARDS}


@pytest.fixture
def offering() -> Offering:
    made = Offering({}, Remembered())
    made.take_file("")
    made.take_machine(CARDS, ())
    return made


def healthy(offering: Offering, name: str = "nvidia.com/gpu") -> dict[str, bool]:
    return {each: well for each, well, _ in offering.listed(name)}


def test_nothing_is_offered_before_file_and_machine_were_read() -> None:
    offering = Offering({}, Remembered())
    assert offering.resources == {}
    offering.take_machine(CARDS, ())
    assert offering.resources == {}
    offering.take_file("")
    assert healthy(offering) == {uuid(0): True, uuid(1): True}


def test_a_bad_file_keeps_the_last_good_one(offering: Offering) -> None:
    offering.take_file(files.CLEARML)
    served = offering.resources
    for bad in ("flags: {a: 1}", "[", "sharing: {mps: {}}", SHARED.replace("replicas: 2", "replicas: 2, devices: [0]")):
        offering.take_file(bad)
        assert offering.mistakes
        assert offering.resources is served
    offering.take_file(files.CLEARML_OLD)
    assert offering.mistakes == ()
    assert list(offering.resources) == ["nvidia.com/gpu"]


def test_a_resource_that_did_not_change_is_the_same_object(offering: Offering) -> None:
    before = offering.resources["nvidia.com/gpu"]
    offering.take_file("moorage: {healingSeconds: 5}")
    assert offering.resources["nvidia.com/gpu"] is before


def test_a_card_that_is_listed_later_is_offered_and_the_same_list_changes_nothing(offering: Offering) -> None:
    offering.take_machine([*CARDS, card(2)], ())
    offered = offering.resources["nvidia.com/gpu"]
    assert set(healthy(offering)) == {uuid(0), uuid(1), uuid(2)}
    offering.take_machine([*CARDS, card(2)], ())
    assert offering.resources["nvidia.com/gpu"] is offered


def test_all_replicas_of_a_card_fall_ill_and_recover_together(offering: Offering) -> None:
    offering.take_file(SHARED)
    offering.take_fault(Fault(card=uuid(0), xid=94, driver="1"), 0)
    ids = {f"{uuid(0)}::0": False, f"{uuid(0)}::1": False, f"{uuid(1)}::0": True, f"{uuid(1)}::1": True}
    assert healthy(offering) == ids
    idle = {each: replace(look, processes=0) for each, look in WELL.items()}
    offering.take_looks(idle, 10 * S)
    assert healthy(offering) == ids
    offering.take_looks(idle, 70 * S)
    assert all(healthy(offering).values())
    assert offering.health[uuid(0)].ill_at_ns == (0,)


def test_an_event_of_a_slice_is_for_that_slice_alone_and_of_a_card_for_all_its_slices() -> None:
    offering = Offering({}, Remembered())
    slices = [part(0, 0, "1g.10gb"), part(0, 1, "1g.10gb")]
    offering.take_machine([card(0, has_mig=True)], slices)
    offering.take_file("flags: {migStrategy: single}")
    offering.take_fault(Fault(card=uuid(0), xid=48, gpu_instance=1, compute_instance=0), 0)
    assert list(healthy(offering).values()) == [False, True]
    offering.take_fault(Fault(card=uuid(0), xid=79), 0)
    assert list(healthy(offering).values()) == [False, False]


def test_an_event_of_a_card_that_nobody_knows_is_nothing(offering: Offering) -> None:
    offering.take_fault(Fault(card="GPU-x", xid=79), 0)
    offering.take_fault(Fault(card=uuid(0), xid=79, gpu_instance=3), 0)
    assert offering.ill == frozenset()


def test_a_card_that_the_driver_does_not_list_any_more_stays_as_ill_until_the_file_takes_it_out(
    offering: Offering,
) -> None:
    offering.take_machine(CARDS[:1], ())
    offering.take_looks({uuid(0): WELL[uuid(0)]}, 10 * S)
    assert healthy(offering) == {uuid(0): True, uuid(1): False}
    again = Offering({}, offering.remembered())
    again.take_file("")
    again.take_machine(CARDS[:1], ())
    assert healthy(again) == {uuid(0): True, uuid(1): False}
    again.take_file(f"moorage: {{gone: [{uuid(1)}]}}")
    assert healthy(again) == {uuid(0): True}
    assert [one.uuid for one in again.cards] == [uuid(0)]


def test_a_card_stays_in_its_resource_when_the_driver_numbers_cards_again(offering: Offering) -> None:
    offering.take_file(files.CLEARML)
    offering.take_machine([replace(CARDS[1], index=0)], ())
    offering.take_looks({uuid(1): WELL[uuid(1)]}, 10 * S)
    assert set(healthy(offering, "nvidia.com/gpu-0").values()) == {False}
    assert set(healthy(offering, "nvidia.com/gpu-1")) == {f"{uuid(1)}::{number}" for number in range(8)}
    again = Offering({}, offering.remembered())
    again.take_file(files.CLEARML)
    again.take_machine([replace(CARDS[1], index=0)], ())
    assert healthy(again, "nvidia.com/gpu-1") == healthy(offering, "nvidia.com/gpu-1")


def test_an_ill_card_is_ill_after_a_restart_and_a_card_that_is_out_waits_for_an_administrator(
    offering: Offering,
) -> None:
    offering.take_looks({**WELL, uuid(0): Look(remap_failed=True)}, S)
    again = Offering({}, offering.remembered())
    again.take_file("")
    again.take_machine(CARDS, ())
    again.take_looks(WELL, 1000 * S)
    assert again.health[uuid(0)].state is State.OUT
    again.take_cleared({uuid(0), "GPU-x"}, 1000 * S)
    again.take_looks(WELL, 1060 * S)
    assert again.ill == frozenset()


def test_xids_count_by_the_file_that_is_there_now(offering: Offering) -> None:
    offering.take_file("moorage: {ignoredXids: [48]}")
    offering.take_fault(Fault(card=uuid(0), xid=48), 0)
    assert offering.ill == frozenset()
    offering.take_fault(Fault(card=uuid(0), reason="DoubleBitEcc"), 0)
    assert offering.ill == {uuid(0)}
