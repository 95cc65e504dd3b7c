"""A look says who uses a slice; a layout that the driver can't make is named with its fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpu.mig import Place
from nodeagent.core.devices import Card, Lost, Machine
from nodeagent.core.mig_partitioning import Ask, Spot, mistake
from tests.nodeagent.core.mig.cards import PROFILES, ask, present, seen, spot

A, B, C = (Card(uuid=f"GPU-{name}", index=index) for index, name in enumerate("abc"))


@pytest.mark.parametrize(
    ("answering", "lost_at", "expected"),
    [
        ([A, B, C], [], []),
        ([A, C], [1], [B]),
        ([], [0, 1, 2], [A, B, C]),
        # The driver counts one less, and has numbered the others again: nobody can say which one is lost.
        ([A, Card(uuid="GPU-c", index=1)], [2], []),
        # Another one is in its place.
        ([A, Card(uuid="GPU-d", index=1), C], [], []),
        ([A, B, C], [3], []),
    ],
)
def test_a_lost_gpu_is_the_one_that_had_its_index_and_does_not_answer(
    answering: Sequence[Card], lost_at: Sequence[int], expected: Sequence[Card]
) -> None:
    machine = Machine(tuple(answering), {}, tuple(Lost(index, f"lost at {index}") for index in lost_at))
    assert machine.lost_of([A, B, C]) == {card.uuid: (card, f"lost at {card.index}") for card in expected}


@pytest.mark.parametrize(
    ("one", "look", "user"),
    [
        pytest.param(present("1g@0"), seen(), "", id="nobody"),
        pytest.param(present("1g@0"), seen(given=["MIG-1g@0"]), "kubelet gave", id="a pod"),
        pytest.param(present("1g@0"), seen(booked=["MIG-1g@0"]), "a reservation has", id="a book"),
        pytest.param(present("1g@0", has_process=True), seen(), "a process uses", id="a process"),
        pytest.param(present("1g@0"), seen(given=["MIG-1g@1"]), "", id="a pod of another slice"),
        pytest.param(
            present("2g@0", uuids=["a", "b"]),
            seen(),
            "2g.20gb at 0 has other compute instances",
            id="one that is cut otherwise",
        ),
    ],
)
def test_a_look_names_the_user_of_a_slice(one, look, user) -> None:  # type: ignore[no-untyped-def]  # a table of tests
    found = look.user_of(one)
    assert found.startswith(user)
    assert bool(found) == bool(user)


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        pytest.param(ask("1g@0", "2g@2", "3g@4"), "", id="one that fits"),
        pytest.param(ask(), "", id="no slices"),
        pytest.param(Ask("a", (Spot(0, "5g.60gb"),)), "the GPU has no profile 5g.60gb; it has 1g.10gb, ", id="profile"),
        pytest.param(
            Ask("a", (Spot(1, "2g.20gb"),)), "2g.20gb at 1 can't be made; the profile's places begin", id="place"
        ),
        pytest.param(ask("3g@0", "1g@3"), "1g.10gb at 3 overlaps another slice", id="overlap"),
        pytest.param(ask("1g@0", "1g@0"), "1g.10gb at 0 overlaps another slice", id="twice"),
    ],
)
def test_a_layout_that_cannot_be_made_is_named_with_its_fault(wanted: Ask, fault: str) -> None:
    found = mistake(wanted, PROFILES)
    assert found.startswith(fault)
    assert bool(found) == bool(fault)


def test_no_more_slices_of_a_profile_than_a_gpu_takes() -> None:
    few = PROFILES | {"1g.10gb": type(PROFILES["1g.10gb"])(PROFILES["1g.10gb"].places, 1)}
    assert mistake(ask("1g@0", "1g@1"), few) == "2 slices of 1g.10gb; the GPU takes 1"


def test_only_a_gpu_instance_with_one_whole_compute_instance_is_a_slice() -> None:
    look = seen("1g@0", present("2g@2", uuids=[]), present("3g@4", is_whole=False))
    assert look.spots == {spot("1g@0")}
    assert present("3g@4").place == Place(4, 4)
