"""GpuNodes are read with the GPUs that can be cut, and lists of anybody's making are bounded."""

from __future__ import annotations

from gpu.mig import Place, Profile
from scheduler.core.convert.nodes import mig_node
from scheduler.core.model.mig import MigCard, MigLayoutAsked, MigSlice
from wire.core import ObjectMeta
from wire.crds.gpunode import (
    CardHealth,
    CardStatus,
    CarvingStatus,
    GpuNode,
    GpuNodeSpec,
    GpuNodeStatus,
    MigLayout,
    MigProfile,
    SlicePlace,
    SliceStatus,
)

PROFILE = MigProfile(name="1g.10gb", size=1, starts=[1, 0], most=7)
SLICE = SliceStatus(profile="1g.10gb", start=1, size=1, uuid="MIG-x", in_use=True)


def read(*cards: CardStatus) -> tuple[MigCard, ...]:
    return mig_node(GpuNode(status=GpuNodeStatus(cards=list(cards)))).cards


def card(**fields: object) -> CardStatus:
    known: dict[str, object] = {"uuid": "GPU-a", "mig": True, "profiles": [PROFILE], "layout": [SLICE]}
    return CardStatus(**{**known, **fields})  # type: ignore[arg-type]  # fields of a table


def test_a_gpu_in_mig_mode_is_read_with_slices_and_profiles() -> None:
    (found,) = read(card(carving=CarvingStatus(attempt="a", state="done")))
    assert found.is_ready
    assert found.profiles == {"1g.10gb": Profile((Place(0, 1), Place(1, 1)), 7)}
    assert found.slices == (MigSlice("1g.10gb", 1, 1, True),)
    assert (found.attempt, found.state) == ("a", "done")


def test_gpus_that_cannot_be_cut_are_not_ready_or_not_kept() -> None:
    assert read(card(mig=False)) == ()
    unready = (
        card(layout=None),
        card(profiles=None),
        card(health=CardHealth(state="ill")),
        card(layout=[SLICE] * 9),
    )
    assert [one.is_ready for one in read(*unready)] == [False] * 4
    assert [one.is_ready for one in read(card(layout=[]), card(health=CardHealth(state="well")))] == [True, True]


def test_lists_are_bounded() -> None:
    many = MigProfile(name="1g.10gb", size=1, starts=list(range(1000)), most=7)
    (found,) = read(card(profiles=[MigProfile(name=f"p{number}") for number in range(1000)], layout=[SLICE] * 1000))
    assert (len(found.profiles), len(found.slices)) == (32, 8)
    (found,) = read(card(profiles=[many]))
    assert len(found.profiles["1g.10gb"].places) == 8


def test_what_is_asked_is_read() -> None:
    asked = MigLayout(uuid="GPU-a", layout=[SlicePlace(profile="1g.10gb", start=3)], attempt="a")
    found = mig_node(GpuNode(metadata=ObjectMeta(name="n1"), spec=GpuNodeSpec(mig=[asked])))
    assert found.asked_of("GPU-a") == MigLayoutAsked("GPU-a", "a", (("1g.10gb", 3),))
    assert (found.name, found.asked_of("GPU-b")) == ("n1", None)
