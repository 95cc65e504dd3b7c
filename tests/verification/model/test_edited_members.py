"""A direct gang's member that is edited on its way keeps its place, unless somebody else has taken it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kube import books
from verification.model.canonical import Canonical
from verification.model.config import BUILT, DIRECT, GANG, HALVES, Config, Rules
from verification.model.explorer import Model
from verification.model.state import Left, World

pytestmark = pytest.mark.thorough

#: One scheduler is at the gang; the other may let a third pod in, wherever it sees room.
RIVALLED = replace(GANG, schedulers=2, releases=False, left=Left(touches=1))
#: Nobody is there who could take the room.
ALONE = replace(RIVALLED, shares=HALVES, modes=DIRECT, schedulers=1)
#: A renewal that only moves an entry, and finds none when the collector was faster.
MOVING = replace(BUILT, rejoining=books.renewing)
#: Who decides has not seen the plan, and keeps no place for its members.
FORGETFUL = replace(BUILT, plan_keeps_places=False)


def _reachable(config: Config, rules: Rules) -> Iterator[World]:
    model, canonical = Model(config, rules), Canonical(config.classes)
    first, key = canonical(config.world())
    known, open_ = {key}, [first]
    for world in open_:
        yield world
        for _, after in model.steps(world):
            there, key = canonical(after)
            if key not in known:
                known.add(key)
                open_.append(there)


def _gives_back(world: World) -> bool:
    """Whether a member gives its place back after the other one was bound.

    Before that, a gang whose device is taken away as idle, since nobody has an entry any more, gives back whole.
    """
    is_begun = any(pod is not None and pod.grant for slot, pod in enumerate(world.pods) if slot in GANG.gang)
    leaving = [one for scheduler in world.schedulers for one in scheduler if one.plan and one.stage == "leave"]
    return is_begun and bool(leaving)


def _has_outsider(world: World) -> bool:
    """Whether the pod that is not of the gang is in a book."""
    outsider = next(pod for slot, pod in enumerate(world.pods) if slot not in GANG.gang)
    return outsider is not None and any(
        entry.uid == outsider.uid for held in world.resvs if held is not None for entry in held.book
    )


def test_a_member_whose_entry_the_collector_took_out_never_gives_its_place_back() -> None:
    assert not any(_gives_back(world) for world in _reachable(ALONE, BUILT))


def test_a_renewal_that_only_moves_an_entry_loses_the_place_to_the_collector() -> None:
    assert any(_gives_back(world) for world in _reachable(ALONE, MOVING))


def test_a_member_gives_back_only_when_somebody_else_has_the_room() -> None:
    given_back = [world for world in _reachable(RIVALLED, FORGETFUL) if _gives_back(world)]
    assert given_back
    assert all(_has_outsider(world) for world in given_back)


def test_a_scheduler_that_has_seen_the_plan_gives_its_room_to_nobody_else() -> None:
    assert not any(_gives_back(world) for world in _reachable(RIVALLED, BUILT))
