from __future__ import annotations

from typing import Any

import pytest

from nodeagent.core.plugin.resources import Offer, offer
from nodeagent.core.plugin.settings import Mistake, PluginSettings
from nodeagent.core.plugin.settings_file import read
from tests.nodeagent.core import files
from tests.nodeagent.core.machine import card, part, uuid

TWO = [card(0), card(1)]
FIRST, SECOND = uuid(0), uuid(1)


def settings(text: str) -> PluginSettings:
    found = read(text, {})
    assert isinstance(found, PluginSettings), found
    return found


def sharing(*entries: str) -> str:
    return (
        "sharing: {timeSlicing: {resources: ["
        + ", ".join("{name: nvidia.com/gpu, " + one + "}" for one in entries)
        + "]}}"
    )


def offered(text: str, cards: Any = TWO, slices: Any = ()) -> dict[str, list[tuple[str, int]]]:
    found = offer(settings(text), cards, slices)
    assert isinstance(found, Offer), found
    return {one.name: [(device.uuid, device.replicas) for device in one.devices] for one in found.resources}


def refused(text: str, cards: Any = TWO, slices: Any = ()) -> list[str]:
    found = offer(settings(text), cards, slices)
    assert isinstance(found, tuple), found
    assert all(isinstance(one, Mistake) for one in found)
    return [one.path for one in found]


@pytest.mark.parametrize(
    ("text", "served"),
    [
        ("", {"nvidia.com/gpu": [(uuid(0), 0), (uuid(1), 0)]}),
        (files.CLEARML, {"nvidia.com/gpu-0": [(uuid(0), 8)], "nvidia.com/gpu-1": [(uuid(1), 8)]}),
        (files.CLEARML_OLD, {"nvidia.com/gpu": [(uuid(0), 8), (uuid(1), 8)]}),
        (files.NVIDIA_SHARED, {"nvidia.com/gpu.shared": [(uuid(0), 10), (uuid(1), 10)]}),
        (files.IKTOS, {"nvidia.com/gpu-mem-gb": [(uuid(0), 81), (uuid(1), 81)]}),
        (sharing("replicas: auto, rename: gb"), {"nvidia.com/gb": [(uuid(0), 79), (uuid(1), 79)]}),
        (
            sharing("replicas: 4, rename: s, devices: 1"),
            {"nvidia.com/gpu": [(uuid(1), 0)], "nvidia.com/s": [(uuid(0), 4)]},
        ),
        (
            sharing(f"replicas: 4, rename: s, devices: [{uuid(1)}]"),
            {"nvidia.com/gpu": [(uuid(0), 0)], "nvidia.com/s": [(uuid(1), 4)]},
        ),
        (
            sharing("replicas: 1, rename: big, devices: [1]"),
            {"nvidia.com/big": [(uuid(1), 0)], "nvidia.com/gpu": [(uuid(0), 0)]},
        ),
        (
            sharing("replicas: 2, rename: s, devices: [0]", "replicas: 3, rename: s, devices: [1]"),
            {"nvidia.com/s": [(uuid(0), 2), (uuid(1), 3)]},
        ),
        (f"moorage: {{gone: [{uuid(0)}]}}", {"nvidia.com/gpu": [(uuid(1), 0)]}),
    ],
)
def test_resources_of_a_node_with_two_gpus(text: str, served: dict[str, list[tuple[str, int]]]) -> None:
    assert offered(text) == served


# iktos' own sizes: one replica for each 1000 MiB.
@pytest.mark.parametrize(("mem_mib", "replicas"), [(15_109, 15), (40_536, 40), (143_771, 143)])
def test_iktos_counts_a_replica_for_each_1000_mib(mem_mib: int, replicas: int) -> None:
    assert offered(files.IKTOS, [card(0, mem_mib=mem_mib)]) == {"nvidia.com/gpu-mem-gb": [(uuid(0), replicas)]}


def test_cards_of_different_sizes_have_each_its_replicas_by_memory() -> None:
    served = offered(sharing("replicas: auto"), [card(0, mem_mib=16_384), card(1, mem_mib=24_576)])
    assert served == {"nvidia.com/gpu": [(uuid(0), 16), (uuid(1), 24)]}


def test_a_card_whose_memory_is_not_known_has_no_replicas_by_memory_and_the_offer_says_so() -> None:
    found = offer(settings(files.IKTOS), [card(0, mem_mib=None), card(1)], ())
    assert isinstance(found, Offer)
    assert [device.uuid for device in found.resources[0].devices] == [uuid(1)]
    assert "resourceConfig[0]" in found.notes[0]


def test_an_entry_for_a_card_that_a_node_does_not_have_is_noted() -> None:
    found = offer(settings(files.CLEARML), [card(0)], ())
    assert isinstance(found, Offer)
    assert [one.name for one in found.resources] == ["nvidia.com/gpu-0"]
    assert found.notes == ("sharing.timeSlicing.resources[1]: this node has no such device of nvidia.com/gpu",)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (sharing("replicas: 4, devices: [0]"), ["sharing.timeSlicing.resources[0]"]),
        (
            sharing("replicas: 2, rename: s", "replicas: 2, rename: t, devices: [1]"),
            ["sharing.timeSlicing.resources[1]"],
        ),
        (
            sharing("replicas: 2, rename: s, devices: [0]", "replicas: 1, rename: s, devices: [1]"),
            ["sharing.timeSlicing.resources[0]"],
        ),
        (sharing("replicas: 30001, rename: s"), ["sharing.timeSlicing.resources[0]"]),
    ],
)
def test_a_device_is_exclusive_or_replicated_and_a_resource_has_one_kind(text: str, paths: list[str]) -> None:
    assert refused(text) == paths


def test_sixty_thousand_ids_are_allowed() -> None:
    assert offered(sharing("replicas: 30000, rename: s")) == {"nvidia.com/s": [(uuid(0), 30_000), (uuid(1), 30_000)]}


MIG = [card(0), card(1, has_mig=True)]
SLICES = [part(1, 0, "1g.10gb"), part(1, 1, "3g.40gb"), part(1, 2, "1g.10gb+me")]


def test_mig_slices_have_names_of_their_own_with_mixed() -> None:
    assert offered("flags: {migStrategy: mixed}", MIG, SLICES) == {
        "nvidia.com/gpu": [(uuid(0), 0)],
        "nvidia.com/mig-1g.10gb": [(SLICES[0].uuid, 0)],
        "nvidia.com/mig-1g.10gb.me": [(SLICES[2].uuid, 0)],
        "nvidia.com/mig-3g.40gb": [(SLICES[1].uuid, 0)],
    }


def test_a_card_in_mig_mode_is_not_offered_whole() -> None:
    found = offer(settings(""), MIG, SLICES)
    assert isinstance(found, Offer)
    assert [[device.uuid for device in one.devices] for one in found.resources] == [[uuid(0)]]
    assert found.notes == (f"flags.migStrategy is none: {uuid(1)} is in MIG mode and is not offered",)


def test_slices_of_one_profile_are_offered_as_gpus_with_single_and_whole_cards_where_there_are_no_slices() -> None:
    slices = [part(1, 0, "1g.10gb"), part(1, 1, "1g.10gb")]
    single = "flags: {migStrategy: single}"
    assert offered(single, [card(1, has_mig=True)], slices) == {"nvidia.com/gpu": [(one.uuid, 0) for one in slices]}
    assert offered(single) == {"nvidia.com/gpu": [(uuid(0), 0), (uuid(1), 0)]}
    assert refused(single, MIG, slices) == ["flags.migStrategy"]
    for of_profiles in (SLICES, [part(1, 0, "1g.10gb"), part(1, 1, "3g.40gb")]):
        assert refused(single, [card(1, has_mig=True)], of_profiles) == ["flags.migStrategy"]


def test_slices_can_be_renamed_and_replicated() -> None:
    text = "flags: {migStrategy: mixed}\nresourceConfig: mig-3g.40gb:small:2,mig-1g.10gb:gpu:1"
    assert offered(text, MIG, SLICES) == {
        "nvidia.com/gpu": [(uuid(0), 0), (SLICES[0].uuid, 0)],
        "nvidia.com/mig-1g.10gb.me": [(SLICES[2].uuid, 0)],
        "nvidia.com/small": [(SLICES[1].uuid, 2)],
    }


def test_slices_are_named_by_the_index_of_their_card_and_their_own() -> None:
    entry = "{name: mig-1g.10gb, rename: small, replicas: 2, devices: [1:0]}"
    text = "flags: {migStrategy: mixed}\nsharing: {timeSlicing: {resources: [" + entry + "]}}"
    served = offered(text, MIG, [part(1, 0, "1g.10gb"), part(1, 1, "1g.10gb")])
    assert served["nvidia.com/small"] == [(uuid(16, "MIG"), 2)]
    assert served["nvidia.com/mig-1g.10gb"] == [(uuid(17, "MIG"), 0)]
