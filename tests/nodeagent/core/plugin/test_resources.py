from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.plugin.health import Look, State
from nodeagent.core.plugin.offer import Fault, Given, Offering, Place, Refused, Remembered, allocate, preferred
from nodeagent.core.plugin.settings import (
    Delivery,
    Device,
    IdStrategy,
    Mistake,
    Offer,
    PluginSettings,
    Policy,
    Resource,
    by_id,
    ids,
    is_replica,
    listed,
    offer,
    uuid_of,
)
from nodeagent.core.plugin.settings_file import read
from tests.nodeagent.core import files
from tests.nodeagent.core.machine import card, part, uuid
from tests.values import of_kind

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
    found = of_kind(Offer, offer(settings(files.IKTOS), [card(0, mem_mib=None), card(1)], ()))
    assert [device.uuid for device in found.resources[0].devices] == [uuid(1)]
    assert "resourceConfig[0]" in found.notes[0]


def test_an_entry_for_a_card_that_a_node_does_not_have_is_noted() -> None:
    found = of_kind(Offer, offer(settings(files.CLEARML), [card(0)], ()))
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
    found = of_kind(Offer, offer(settings(""), MIG, SLICES))
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


def all_of(**replicas: int) -> Mapping[str, Device]:
    made = tuple(Device(uuid=uuid, card=uuid, index="0", replicas=count) for uuid, count in replicas.items())
    return by_id(Resource("nvidia.com/x", made))


FOUR = all_of(a=0, b=0, c=0, d=0)
PREFERRING_SHARED = all_of(a=4, b=4, c=4, d=4)


def free(**left: int) -> list[str]:
    """The last replicas of each GPU of SHARED."""
    return [f"{uuid}::{number}" for uuid, count in left.items() for number in range(4 - count, 4)]


# iktos: least shared first, distinct GPUs as far as they go, ties by the lowest UUID. NVIDIA: distributed and packed.
@pytest.mark.parametrize(
    ("left", "size", "policy", "gpus"),
    [
        (free(a=4, b=4, c=4, d=4), 1, Policy.DISTRIBUTED, ["a"]),
        (free(a=3, b=4, c=4, d=4), 1, Policy.DISTRIBUTED, ["b"]),
        (free(a=4, b=4, c=4, d=4), 4, Policy.DISTRIBUTED, ["a", "b", "c", "d"]),
        (free(a=4, b=4, c=4, d=4), 8, Policy.DISTRIBUTED, ["a", "b", "c", "d", "a", "b", "c", "d"]),
        (free(a=1, b=2, c=3, d=4), 2, Policy.DISTRIBUTED, ["d", "c"]),
        (free(a=1), 1, Policy.DISTRIBUTED, ["a"]),
        (free(a=1, b=1), 2, Policy.DISTRIBUTED, ["a", "b"]),
        (free(a=1, b=1), 3, Policy.DISTRIBUTED, ["a", "b"]),
        (free(a=4, b=3, c=2, d=1), 1, Policy.PACKED, ["d"]),
        (free(a=4, b=3, c=2, d=1), 2, Policy.PACKED, ["d", "c"]),
        (free(a=4, b=4), 1, Policy.PACKED, ["a"]),
    ],
)
def test_replicas(left: Sequence[str], size: int, policy: Policy, gpus: list[str]) -> None:
    chosen = preferred(left, [], size, devices=PREFERRING_SHARED, policy=policy)
    assert [uuid_of(one) for one in chosen] == gpus
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(left)


def test_what_has_to_be_included_comes_first_and_its_gpu_counts_as_taken() -> None:
    left = free(a=3, b=2)
    chosen = preferred(left, ["a::3"], 2, devices=PREFERRING_SHARED)
    assert chosen[0] == "a::3"
    assert uuid_of(chosen[1]) == "b"
    assert preferred(left, ["a::2", "a::3"], 2, devices=PREFERRING_SHARED) == ["a::2", "a::3"]
    assert preferred(left, ["a::2", "a::3"], 1, devices=PREFERRING_SHARED) == ["a::2", "a::3"]


ISLANDS: Mapping[str, Place] = {"a": (0, 0), "b": (0, 0), "c": (1, 1), "d": (1, 1)}


@pytest.mark.parametrize(
    ("left", "included", "size", "wanted", "chosen"),
    [
        ("abcd", "", 1, {"c"}, ["c"]),
        ("abcd", "", 2, {"c"}, ["c", "d"]),
        ("abcd", "", 1, (), ["a"]),
        ("abcd", "", 2, (), ["a", "b"]),
        ("acd", "", 1, (), ["a"]),
        ("acd", "", 2, (), ["c", "d"]),
        ("abc", "", 1, (), ["c"]),
        ("abcd", "c", 2, (), ["c", "d"]),
        ("abcd", "", 3, (), ["a", "b", "c"]),
        ("abcd", "", 4, (), ["a", "b", "c", "d"]),
        ("ab", "", 3, (), ["a", "b"]),
    ],
)
def test_exclusive_devices(left: str, included: str, size: int, wanted: Sequence[str], chosen: list[str]) -> None:
    found = preferred(list(left), list(included), size, devices=FOUR, wanted=wanted, places=ISLANDS)
    assert found == chosen


def test_the_rest_of_a_request_goes_to_the_smallest_island_that_has_enough_for_it() -> None:
    six = all_of(a=0, b=0, c=0, d=0, e=0, f=0)
    places = {each: (island, 0) for island, devices in enumerate(("abc", "de", "f")) for each in devices}
    assert preferred(list("abcdef"), [], 4, devices=six, places=places) == list("abcf")
    assert preferred(list("abcdef"), [], 5, devices=six, places=places) == list("abcde")


def test_within_an_island_one_numa_node_is_filled() -> None:
    places = {"a": (0, 0), "b": (0, 1), "c": (0, 1), "d": (0, 0)}
    assert preferred(list("abc"), [], 2, devices=FOUR, places=places) == ["b", "c"]
    assert preferred(list("abc"), [], 1, devices=FOUR, places=places) == ["a"]
    assert sorted(preferred(list("abcd"), [], 3, devices=FOUR, places=places)) in (
        list("abd"),
        list("acd"),
        list("abc"),
    )


def test_ids_that_are_not_ours_are_left_out() -> None:
    assert preferred(["x", "a"], ["y"], 2, devices=FOUR) == ["a"]


@given(
    st.lists(st.sampled_from(list(PREFERRING_SHARED))),
    st.lists(st.sampled_from(list(PREFERRING_SHARED))),
    st.integers(-1, 20),
    st.sampled_from(Policy),
)
def test_any_question_is_answered_from_what_is_free(
    left: list[str], included: list[str], size: int, policy: Policy
) -> None:
    chosen = preferred(left, included, size, devices=PREFERRING_SHARED, policy=policy)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(left) | set(included)
    assert set(included) <= set(chosen)
    assert len(chosen) == max(len(set(included)), min(size, len(set(left) | set(included))))


def test_sixty_thousand_ids_take_less_than_a_second() -> None:
    many = all_of(**{f"g{number}": 7_500 for number in range(8)})
    began = time.process_time()
    assert len(preferred(list(many), [], 60_000, devices=many)) == 60_000
    assert time.process_time() - began < 1


CDI = "k8s.device-plugin.nvidia.com/gpu="
DEVICES = {
    **by_id(Resource("x", (Device(uuid="GPU-a", card="GPU-a", index="0", minor=3, replicas=2),))),
    **by_id(Resource("x", (Device(uuid="GPU-b", card="GPU-b", index="1", minor=0),))),
    **by_id(Resource("x", (Device(uuid="MIG-c", card="GPU-b", index="1:0", minor=0),))),
}


def give(*chosen: str, present: tuple[str, ...] = (), **settings: Any) -> Given | Refused:
    return allocate(
        chosen,
        resource="nvidia.com/gpu",
        devices=DEVICES,
        settings=PluginSettings(**settings),
        present_files=present,
        number="7",
    )


@pytest.mark.parametrize(
    ("chosen", "deliveries", "strategy", "given"),
    [
        (["GPU-b"], "envvar", "uuid", Given(environment={"NVIDIA_VISIBLE_DEVICES": "GPU-b"})),
        (["GPU-b"], "envvar", "index", Given(environment={"NVIDIA_VISIBLE_DEVICES": "1"})),
        (["MIG-c"], "envvar", "index", Given(environment={"NVIDIA_VISIBLE_DEVICES": "1:0"})),
        (["GPU-b", "GPU-a::1"], "envvar", "uuid", Given(environment={"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"})),
        (["GPU-a::0", "GPU-a::1"], "envvar", "uuid", Given(environment={"NVIDIA_VISIBLE_DEVICES": "GPU-a"})),
        (
            ["GPU-b", "GPU-a::0"],
            "volume-mounts",
            "uuid",
            Given(
                environment={"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"},
                mounts={
                    "/var/run/nvidia-container-devices/GPU-a": "/dev/null",
                    "/var/run/nvidia-container-devices/GPU-b": "/dev/null",
                },
            ),
        ),
        (
            ["GPU-b"],
            "volume-mounts",
            "index",
            Given(
                environment={"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"},
                mounts={"/var/run/nvidia-container-devices/1": "/dev/null"},
            ),
        ),
        (["GPU-b"], "cdi-cri", "index", Given(cdi_devices=[f"{CDI}GPU-b"])),
        (
            ["GPU-b", "GPU-a::0"],
            "cdi-annotations",
            "uuid",
            Given(annotations={"cdi.k8s.io/nvidia-device-plugin_7": f"{CDI}GPU-a,{CDI}GPU-b"}),
        ),
        (
            ["GPU-b"],
            "envvar,cdi-cri",
            "uuid",
            Given(environment={"NVIDIA_VISIBLE_DEVICES": "GPU-b"}, cdi_devices=[f"{CDI}GPU-b"]),
        ),
    ],
)
def test_each_way_of_delivery(chosen: list[str], deliveries: str, strategy: str, given: Given) -> None:
    found = give(*chosen, deliveries=frozenset(map(Delivery, deliveries.split(","))), id_strategy=IdStrategy(strategy))
    assert found == given


def test_device_files_are_those_of_the_gpus_and_of_all_that_are_there() -> None:
    found = give("GPU-b", "MIG-c", "GPU-a::0", pass_device_specs=True, present=("/dev/nvidiactl", "/dev/nvidia-uvm"))
    assert isinstance(found, Given)
    assert found.files == {
        "/dev/nvidia3": "/dev/nvidia3",
        "/dev/nvidia0": "/dev/nvidia0",
        "/dev/nvidiactl": "/dev/nvidiactl",
        "/dev/nvidia-uvm": "/dev/nvidia-uvm",
    }


@pytest.mark.parametrize(
    ("roots", "host"), [({"driver_root": "/run/nvidia"}, "/run/nvidia"), ({"dev_root": "/x/"}, "/x")]
)
def test_device_files_are_below_the_root_of_the_driver(roots: dict[str, Any], host: str) -> None:
    found = of_kind(Given, give("GPU-b", pass_device_specs=True, **roots))
    assert found.files == {"/dev/nvidia0": f"{host}/dev/nvidia0"}


def test_an_annotation_has_the_prefix_of_the_file() -> None:
    found = give("GPU-b", deliveries=frozenset({Delivery.CDI_ANNOTATIONS}), cdi_annotation_prefix="nvidia.cdi/")
    assert isinstance(found, Given)
    assert list(found.annotations) == ["nvidia.cdi/nvidia-device-plugin_7"]


def test_several_replicas_are_refused_where_the_file_wants_it() -> None:
    found = give("GPU-a::0", "GPU-a::1", fail_requests_greater_than_one=True)
    assert found == Refused(
        "invalid request for 'nvidia.com/gpu': maximum request size for shared resources is 1; found 2"
    )
    assert isinstance(give("GPU-a::0", fail_requests_greater_than_one=True), Given)
    assert isinstance(give("GPU-b", "MIG-c", fail_requests_greater_than_one=True), Given)


def test_a_device_that_is_not_there_is_refused() -> None:
    assert give("GPU-b", "GPU-x" * 100) == Refused(
        "invalid allocation request for 'nvidia.com/gpu': unknown device: " + ("GPU-x" * 100)[:200]
    )


def device(uuid: str = "GPU-a", replicas: int = 0, *, card: str = "") -> Device:
    return Device(uuid=uuid, card=card or uuid, index="0", replicas=replicas, numa=1)


@pytest.mark.parametrize(
    ("replicas", "expected"), [(0, ["GPU-a"]), (1, ["GPU-a::0"]), (3, ["GPU-a::0", "GPU-a::1", "GPU-a::2"])]
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
