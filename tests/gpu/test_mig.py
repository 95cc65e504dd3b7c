"""MIG slices: the cheapest cut of a card, what is reported of cuts, and what NVIDIA's plugin hands out."""

from __future__ import annotations

import itertools
import random
from typing import Any

import msgspec
import pytest

from gpu import node_resources
from gpu.mig import Cut, GpuPartitioning, Place, Profile, Slice, Stage, cut, partitionings
from wire.crds.gpunode import GpuNode

# Slices are cut where the driver allows it, beside those in use, and no better cut exists.

#: Of an A100, H100 or H200 as NVIDIA's guide has them.
PROFILES = {
    "1g": Profile(tuple(Place(at, 1) for at in range(7)), 7),
    "1g.double": Profile(tuple(Place(at, 2) for at in (0, 2, 4, 6)), 4),
    "1g.me": Profile(tuple(Place(at, 1) for at in range(7)), 1),
    "2g": Profile(tuple(Place(at, 2) for at in (0, 2, 4)), 3),
    "3g": Profile(tuple(Place(at, 4) for at in (0, 4)), 2),
    "4g": Profile((Place(0, 4),), 1),
    "7g": Profile((Place(0, 8),), 1),
}


def used(profile: str, start: int) -> Slice:
    return _slice(profile, start, in_use=True)


def free(profile: str, start: int) -> Slice:
    return _slice(profile, start, in_use=False)


def _slice(profile: str, start: int, *, in_use: bool) -> Slice:
    place = next(place for place in PROFILES[profile].places if place.start == start)
    return Slice(profile, place, in_use)


def made(found: Cut | None) -> list[tuple[str, int]] | None:
    return None if found is None else [(profile, place.start) for profile, place in found.new]


@pytest.mark.parametrize(
    ("there", "missing", "new", "gone"),
    [
        pytest.param([], ["7g"], [("7g", 0)], 0, id="an empty card as a whole"),
        pytest.param([], ["1g"], [("1g", 6)], 0, id="a small one where it costs the large ones least"),
        pytest.param([used("3g", 0)], ["3g"], [("3g", 4)], 0, id="beside one in use"),
        pytest.param([used("1g", 5)], ["4g"], [("4g", 0)], 0, id="the half that is free"),
        pytest.param([used("1g", 0)], ["7g"], None, 0, id="one in use is never destroyed"),
        pytest.param([free("1g", 0)], ["7g"], [("7g", 0)], 1, id="a free one is in the way"),
        pytest.param([free("1g", 0)], ["3g"], [("3g", 4)], 0, id="a free one stays if it can"),
        pytest.param([used("1g.me", 6)], ["1g.me"], None, 0, id="a card has one of this profile"),
        pytest.param([free("1g.me", 6)], ["1g.me", "7g"], None, 0, id="two that can't be together"),
        pytest.param([], ["3g", "3g", "1g"], None, 0, id="more than a card has"),
        pytest.param([], ["4g", "3g"], [("3g", 4), ("4g", 0)], 0, id="several at once"),
        pytest.param([], ["5g"], None, 0, id="a profile that the card doesn't have"),
        pytest.param([], [], [], 0, id="nothing"),
    ],
)
def test_a_cut_is_the_cheapest_that_there_is(
    there: list[Slice], missing: list[str], new: list[tuple[str, int]] | None, gone: int
) -> None:
    found = cut(there, PROFILES, missing)
    assert made(found) == new
    assert found is None or len(found.gone) == gone


@pytest.mark.parametrize(
    "there",
    [
        pytest.param([used("2g", 0), used("1g", 1)], id="slices that overlap"),
        pytest.param([Slice("1g", Place(-1, 1), in_use=True)], id="a place before the first"),
        pytest.param([Slice("1g", Place(1 << 40, 1), in_use=True)], id="a place far behind the last"),
        pytest.param([Slice("1g", Place(0, 0), in_use=True)], id="a slice of nothing"),
    ],
)
def test_a_card_that_cannot_be_is_not_cut(there: list[Slice]) -> None:
    assert cut(there, PROFILES, ["1g"]) is None


def _random_card(luck: random.Random) -> list[Slice]:
    there: list[Slice] = []
    for profile in luck.choices(list(PROFILES), k=luck.randrange(6)):
        place = luck.choice(PROFILES[profile].places)
        taken = any(place.bits & each.place.bits for each in there)
        if not taken and sum(each.profile == profile for each in there) < PROFILES[profile].most:
            there.append(Slice(profile, place, luck.random() < 0.5))
    return there


def _all_cuts(there: list[Slice], missing: list[str]) -> list[tuple[int, int]]:
    """What each way costs, by trying all: destroyed slices, and free memory slices that a profile can't have."""
    costs = []
    for places in itertools.product(*(PROFILES[profile].places for profile in missing)):
        cells = [cell for place in places for cell in range(place.start, place.start + place.size)]
        gone = [each for each in there if any(each.place.bits >> cell & 1 for cell in cells)]
        left = [each for each in there if each not in gone]
        names = [each.profile for each in left] + missing
        if len(cells) != len(set(cells)) or any(each.in_use for each in gone):
            continue
        if any(names.count(profile) > PROFILES[profile].most for profile in missing):
            continue
        full = {*cells, *(cell for each in left for cell in range(8) if each.place.bits >> cell & 1)}
        lost = 0
        for profile in PROFILES.values():
            ranges = [set(range(place.start, place.start + place.size)) for place in profile.places]
            reached = set().union(*(cells for cells in ranges if not cells & full))
            lost += len(set(range(8)) - full - reached)
        costs.append((len(gone), lost))
    return costs


@pytest.mark.thorough
def test_no_way_is_better_on_random_cards() -> None:
    luck, cuts = random.Random(24), 0
    for _ in range(2_000):
        there = _random_card(luck)
        missing = luck.choices(list(PROFILES), k=luck.randrange(1, 4))
        found, costs = cut(there, PROFILES, missing), _all_cuts(there, missing)
        assert (found is None) == (not costs)
        if found is not None:
            cuts += 1
            assert (len(found.gone), found.lost) == min(costs)
            assert not any(each.in_use for each in found.gone)
    assert 600 < cuts < 1_800


def test_profiles_of_anybodys_making_cost_little() -> None:
    many = {f"p{number}": Profile(tuple(Place(at, 1) for at in range(8)), 8) for number in range(8)}
    found = cut([], many, list(many))
    assert found is not None
    assert found.lost == 0
    assert cut([], many, ["p0"] * 1_000) is None


LAYOUT = [{"profile": "3g.40gb", "start": 4}, {"profile": "2g.20gb", "start": 0}]
PLACES = ("2g.20gb at 0", "3g.40gb at 4")


def report(partitioning: dict[str, Any] | None, *, attempt: str = "a", uuid: str = "GPU-a") -> GpuNode:
    card = {"uuid": "GPU-a", "index": 1, "mig": True, "partitioning": partitioning}
    spec = {"mig": [{"uuid": uuid, "layout": LAYOUT, "attempt": attempt}]}
    return msgspec.convert({"spec": spec, "status": {"cards": [card]}}, GpuNode)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (GpuNode(), ()),
        (report(None), (GpuPartitioning("GPU-a", 1, Stage.ASKED, PLACES),)),
        (report({"attempt": "b", "state": "done"}), (GpuPartitioning("GPU-a", 1, Stage.ASKED, PLACES),)),
        (report({"attempt": "a", "state": "underway"}), (GpuPartitioning("GPU-a", 1, Stage.UNDER_WAY, PLACES),)),
        (
            report({"attempt": "a", "state": "failed", "why": "x"}),
            (GpuPartitioning("GPU-a", 1, Stage.FAILED, PLACES, "x"),),
        ),
        (report({"attempt": "a", "state": "done"}), ()),
        (report({"attempt": "a", "state": "refused"}), ()),
        (report(None, uuid="GPU-gone"), (GpuPartitioning("GPU-gone", -1, Stage.ASKED, PLACES),)),
    ],
)
def test_what_has_not_come_about_is_shown_with_how_far_it_came(
    found: GpuNode, expected: tuple[GpuPartitioning, ...]
) -> None:
    assert partitionings(found) == expected


def test_what_others_wrote_is_bounded() -> None:
    long = "x" * 1_000_000
    places = [{"profile": long, "start": 0}] * 1000
    many = [{"uuid": f"{number}{long}", "layout": places, "attempt": "a"} for number in range(100)]
    found = partitionings(msgspec.convert({"spec": {"mig": many}}, GpuNode))
    assert len(found) == 64
    assert all(len(one.layout) == 8 and len(one.uuid) == 120 for one in found)
    assert max(len(text) for text in found[0].layout) < 130


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.5gb", True),
        ("nvidia.com/mig-1c.3g.20gb", True),
        ("nvidia.com/mig-1g.10gb.me", True),
        ("nvidia.com/gpu.shared", False),
        ("nvidia.com/mig-1g", False),
        ("nvidia.com/mig-1g.10gb ", False),
        ("nvidia.com/mig-\N{ARABIC-INDIC DIGIT ONE}g.10gb", False),
        ("cpu", False),
    ],
)
def test_what_nvidias_plugin_hands_out(name: str, is_one: bool) -> None:
    assert node_resources.is_device_resource(name) is is_one


@pytest.mark.parametrize(
    ("product", "profile"),
    [
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "1g.5gb"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb+me", "1g.5gb.me"),
        ("NVIDIA-A100-SXM4-40GB", ""),
        ("NVIDIA-A100-SXM4-40GB-MIG-INVALID", ""),
        ("", ""),
    ],
)
def test_the_product_names_the_profile_where_slices_are_called_gpus(product: str, profile: str) -> None:
    assert node_resources.single_profile(product) == profile


def test_a_plus_in_a_profile_is_a_dot_in_its_resource() -> None:
    assert node_resources.slice_resource("1g.10gb+me") == "nvidia.com/mig-1g.10gb.me"
