"""Pods of other dialects before the checker: what their records promise, by the checker's own reading of them."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from simulator.checks import facts, shares
from simulator.checks.shares import Share
from tests.simulator.made_up import A, B, C, Story, pod, reservation

CARDS = {card.uuid: card for card in (A, B, C)}
TWO = [{"name": "main"}, {"name": "side"}]
TOGETHER = [
    {"container": "c0", "name": "main", "memMib": 300, "seat": "a"},
    {"container": "c1", "name": "side", "memMib": 400, "seat": "a"},
]
APART = [{"container": "c0", "name": "main", "memMib": 300}, {"container": "c1", "name": "side", "memMib": 400}]


def given(
    name: str,
    asks: list[dict[str, Any]],
    shown: dict[str, str],
    nanos: dict[str, int],
    *,
    alternatives: tuple[list[dict[str, Any]], ...] = (),
    **more: Any,
) -> dict[str, Any]:
    """A pod of two containers with this record, whose Binding hands devices of group g to these containers."""
    record = {"version": 1, "dialect": "hami", "asks": asks, "alternatives": alternatives}
    devices = [{"group": f"g{uuid[-1]}", "reservation": "", "uuid": uuid, "nano": nano} for uuid, nano in nanos.items()]
    annotations = {
        "moorage.dev/gpu": json.dumps(record),
        "moorage.dev/grant": json.dumps({"attempt": "a", "devices": devices}),
        **{f"moorage.dev/visible-devices.{key}": uuids for key, uuids in shown.items()},
    }
    labels = {f"runai-gpu-group/{device['group']}": str(device["group"]) for device in devices}
    return pod(name, annotations=annotations, labels=labels, **{"containers": TWO, **more})


def running(*pods: dict[str, Any], seen: dict[str, tuple[str, ...]]) -> Story:
    """Reservations of the groups ga and gb hold GPU-a and GPU-b; the pods' containers see these devices."""
    story = Story()
    for letter in "ab":
        story.sees(reservation(f"r{letter}", f"g{letter}")).holds(f"r{letter}", f"GPU-{letter}")
    for raw in pods:
        story.sees(raw)
        for container, devices in seen.items():
            story.starts(raw["metadata"]["name"], *devices, container=container)
    return story


BOTH_ON_A = {"c0": "GPU-a", "c1": "GPU-a"}


def test_containers_of_one_seat_share_a_device() -> None:
    together = given("p", TOGETHER, BOTH_ON_A, {"GPU-a": 700_000_000})
    assert running(together, seen={"main": ("GPU-a",), "side": ("GPU-a",)}).broken() == set()


def test_devices_may_be_told_by_cdi_names() -> None:
    names = dict.fromkeys(("c0", "c1"), "k8s.device-plugin.nvidia.com/gpu=GPU-a")
    together = given("p", TOGETHER, names, {"GPU-a": 700_000_000})
    assert running(together, seen={"main": ("GPU-a",), "side": ("GPU-a",)}).broken() == set()


def test_two_such_pods_are_more_than_a_device() -> None:
    pods = [given(name, TOGETHER, BOTH_ON_A, {"GPU-a": 700_000_000}) for name in "pq"]
    assert running(*pods, seen={"main": ("GPU-a",), "side": ("GPU-a",)}).broken() == {"S1"}


@pytest.mark.parametrize(
    ("seen", "broken"),
    [
        ({"main": ("GPU-a",), "side": ("GPU-b",)}, set()),
        ({"main": ("GPU-b",), "side": ("GPU-a",)}, {"S3"}),
        ({"main": ("GPU-a",), "side": ("GPU-a",)}, {"S3"}),
        ({"main": ("GPU-a", "GPU-b"), "side": ("GPU-b",)}, {"S3"}),
        ({"main": (), "side": ("GPU-b",)}, {"S3"}),
    ],
)
def test_each_container_sees_what_it_asked_itself(seen: dict[str, tuple[str, ...]], broken: set[str]) -> None:
    raw = given("p", APART, {"c0": "GPU-a", "c1": "GPU-b"}, {"GPU-a": 300_000_000, "GPU-b": 400_000_000})
    assert running(raw, seen=seen).broken() == broken


def test_devices_that_no_way_of_the_record_asks_break_s3_and_s8() -> None:
    raw = given("p", TOGETHER, {"c0": "GPU-a", "c1": "GPU-b"}, {"GPU-a": 300_000_000, "GPU-b": 400_000_000})
    assert running(raw, seen={"main": ("GPU-a",), "side": ("GPU-b",)}).broken() == {"S3", "S8"}


def test_the_alternative_that_was_taken_is_found() -> None:
    shown, nanos = {"c0": "GPU-a", "c1": "GPU-b"}, {"GPU-a": 300_000_000, "GPU-b": 400_000_000}
    raw = given("p", TOGETHER, shown, nanos, alternatives=(APART,))
    assert running(raw, seen={"main": ("GPU-a",), "side": ("GPU-b",)}).broken() == set()


@pytest.mark.parametrize(("nano", "broken"), [(700_000_000, set()), (699_999_999, {"S8"})])
def test_a_device_is_charged_with_all_that_is_used_of_it_at_one_time(nano: int, broken: set[str]) -> None:
    raw = given("p", TOGETHER, BOTH_ON_A, {"GPU-a": nano})
    assert Story().sees(raw).broken() == broken


def test_unequal_shares_stand_in_the_order_of_the_asks() -> None:
    """M3: one device and a half."""
    asks = [{"container": "c0", "name": "main", "nano": 10**9}, {"container": "c0", "name": "main", "nano": 5 * 10**8}]
    raw = given("p", asks, {"c0": "GPU-b,GPU-a"}, {"GPU-b": 10**9, "GPU-a": 5 * 10**8})
    placed = shares.placed(facts.pod(raw), CARDS)
    assert placed is not None
    assert placed.of("main") == {"GPU-b": Share(Fraction(1)), "GPU-a": Share(Fraction(1, 2))}


def test_equal_devices_of_several_ways_are_told_apart_by_the_charge() -> None:
    """M5: 150 units cut as 100 + 50, or as 99 + 51."""
    first, second = ([{"container": "c0", "nano": n * 10**7} for n in cut] for cut in ((100, 50), (99, 51)))
    raw = given("p", first, {"c0": "GPU-a,GPU-b"}, {"GPU-a": 99 * 10**7, "GPU-b": 51 * 10**7}, alternatives=(second,))
    placed = shares.placed(facts.pod(raw), CARDS)
    assert placed is not None
    assert placed.charge("GPU-b") == Fraction(51, 100)


@pytest.mark.parametrize(("sidecar", "charge"), [(False, Fraction(7, 10)), (True, Fraction(9, 10))])
def test_init_containers_are_counted_when_they_run(sidecar: bool, charge: Fraction) -> None:
    policy = {"restartPolicy": "Always"} if sidecar else {}
    asks = [{"container": "i0", "memMib": 200, "seat": "a"}, *TOGETHER]
    raw = given("p", asks, {**BOTH_ON_A, "i0": "GPU-a"}, {"GPU-a": 9 * 10**8})
    raw["spec"]["initContainers"] = [{"name": "load", **policy}]
    placed = shares.placed(facts.pod(raw), CARDS)
    assert placed is not None
    assert placed.charge("GPU-a") == charge


@pytest.mark.parametrize(
    "record",
    ["", "{", "[]", '{"asks": [{}]}', '{"asks": [{"container": "c9", "nano": 5}]}', '{"asks": [{"container": "c0"}]}'],
)
def test_what_asks_for_no_part_that_can_be_read_has_no_ways(record: str) -> None:
    assert shares.ways(facts.pod(pod("p", annotations={"moorage.dev/gpu": record}))) == ()
