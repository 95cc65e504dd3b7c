"""What unbound claims ask, and what volumes and capacities offer, as it is written."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.convert import volumes
from scheduler.core.model.pod_class import Requirement, Term, VolumeNeed
from tests.scheduler.core.objects import claim, csi_capacity, csi_driver, free_volume, storage_class
from wire import names

_GIB = 1 << 30


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"size": "1Gi"}, {"size_bytes": _GIB}),
        # Rounded up: the claim asks no less.
        ({"size": "1500m"}, {"size_bytes": 2}),
        ({"modes": ["ReadWriteMany", "ReadOnlyMany"]}, {"access_modes": ("ReadOnlyMany", "ReadWriteMany")}),
        ({"volumeMode": "Block"}, {"mode": "Block"}),
        ({"volumeAttributesClassName": "gold"}, {"attributes_class": "gold"}),
        ({"node": "n"}, {"node": "n"}),
        (
            {"selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]}},
            {"selector": (Requirement("a", "In", ("b",)), Requirement("c", "Exists", ()))},
        ),
    ],
)
def test_a_claim_says_what_it_needs(written: dict[str, Any], expected: dict[str, Any]) -> None:
    plain = {"storage_class": "c", "size_bytes": _GIB, "access_modes": ("ReadWriteOnce",)}
    assert volumes.need(claim("data", **written), "c") == VolumeNeed(**{**plain, **expected})


@pytest.mark.parametrize(
    "written",
    [
        {"size": "much"},
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Unheard"}]}},
        {"selector": {"matchLabels": {f"k{n}": "v" for n in range(101)}}},
        {"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["v"] * 4000}]}},
    ],
)
def test_a_claim_that_nobody_can_read_says_nothing(written: dict[str, Any]) -> None:
    assert volumes.need(claim("data", **written), "c") is None


@pytest.mark.parametrize("phase", ["Bound", "Released", "Failed"])
def test_a_volume_that_is_bound_or_used_up_is_offered_to_nobody(phase: str) -> None:
    assert volumes.offer(free_volume("pv", phase=phase)) is None


def test_a_volume_whose_size_nobody_can_read_is_offered_to_nobody() -> None:
    assert volumes.offer(free_volume("pv", "much")) is None


def test_a_volume_that_names_a_claim_is_available_to_no_other() -> None:
    free, named = free_volume("pv"), free_volume("pv", claim_ref={"namespace": "ns", "name": "data", "uid": "u"})
    assert [(o.is_available, o.claim_uid) for o in map(volumes.offer, (free, named)) if o] == [
        (True, ""),
        (False, "u"),
    ]


def test_a_class_says_for_which_nodes_it_makes_volumes() -> None:
    assert volumes.topologies(storage_class("c", "")) is None
    zones = {"matchLabelExpressions": [{"key": names.ZONE_LABEL, "values": ["z1", "z2"]}]}
    written = storage_class("c", "", allowedTopologies=[zones, {}])
    zone = Term((Requirement(names.ZONE_LABEL, "In", ("z1", "z2")),), ())
    assert volumes.topologies(written) == (zone, Term((), ()))


def test_a_capacity_is_rounded_down_and_what_nobody_can_read_is_not_said() -> None:
    read = volumes.capacity_record(csi_capacity("c", "fast", None, free="2500m", most="much"))
    assert (read.topology, read.free_bytes, read.most_bytes, read.key) == (None, 2, None, ("csi", "c"))
    assert volumes.capacity_record(csi_capacity("c", "fast", {})).topology == ()
    assert volumes.driver_record(csi_driver("d")).tells_capacity
    assert volumes.driver_record(csi_driver("d")).key == "d"
