"""The hardware of a simulated node with GPUs in MIG mode."""

from __future__ import annotations

import pytest

from nodeagent.core.mig_partitioning import NotDone
from simulator.mig.hardware import SlicedMachine, SlicedNode, spot


def made(*slices: str, is_idle: bool = False, keeps_uuids: bool = True) -> tuple[SlicedMachine, str, list[str]]:
    node = SlicedNode(node="node-0", cards=(slices,), is_idle=is_idle, keeps_uuids=keeps_uuids)
    gone: list[str] = []
    machine = SlicedMachine(node, 1, lambda: {each.uuid for each in machine.devices()}, gone.append)
    return machine, next(iter(machine.cards)), gone


def uuids(machine: SlicedMachine) -> list[str]:
    return [each.uuid for each in machine.devices()]


def test_its_slices_are_devices_of_their_profiles() -> None:
    machine, _, _ = made("3g.40gb@4", "1g.10gb@0")
    found = [(each.resource, each.profile, each.mem_mib, each.is_slice) for each in machine.devices()]
    assert found == [
        ("nvidia.com/mig-1g.10gb", "1g.10gb", 10 * 1024, True),
        ("nvidia.com/mig-3g.40gb", "3g.40gb", 40 * 1024, True),
    ]


@pytest.mark.parametrize("keeps_uuids", [True, False])
def test_a_slice_that_is_made_again_has_its_uuid_again_or_another_one(keeps_uuids: bool) -> None:
    machine, card, gone = made("1g.10gb@0", keeps_uuids=keeps_uuids)
    before = uuids(machine)
    machine.destroy(card, spot("1g.10gb@0"))
    assert (uuids(machine), gone) == ([], before)
    machine.make(card, spot("1g.10gb@0"))
    assert (uuids(machine) == before) == keeps_uuids


def test_where_another_slice_is_none_is_made_and_what_is_not_there_can_not_go() -> None:
    machine, card, _ = made("1g.10gb@1")
    with pytest.raises(NotDone, match="no room"):
        machine.make(card, spot("2g.20gb@0"))
    with pytest.raises(NotDone, match="is there"):
        machine.destroy(card, spot("1g.10gb@0"))


def test_half_of_a_change_leaves_an_instance_that_nobody_can_have() -> None:
    machine, card, gone = made("1g.10gb@0")
    (before,) = uuids(machine)
    machine.destroy(card, spot("1g.10gb@0"), is_half=True)
    (present,) = machine.read()[card].present
    assert (uuids(machine), gone, present.uuids) == ([], [before], ())
    machine.make(card, spot("1g.10gb@0"))
    assert uuids(machine) == [before]


@pytest.mark.parametrize("is_idle", [True, False])
def test_the_driver_knows_of_programs_that_use_their_slices(is_idle: bool) -> None:
    machine, card, _ = made("1g.10gb@0", is_idle=is_idle)
    (present,) = machine.read()[card].present
    assert present.has_process == (not is_idle)
