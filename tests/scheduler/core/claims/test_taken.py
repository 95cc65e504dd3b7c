"""Devices in use are counted once for each claim, and a fork changes apart from what it was made of."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from scheduler.core.claims.allocation import CountersLeft
from scheduler.core.claims.devices_in_use import Taken, clashes
from scheduler.core.claims.pools import make_pool
from scheduler.core.model.devices import DeviceResult
from tests.scheduler.core.claims.world import has, inventory, taken
from tests.scheduler.core.device_objects import DRIVER, device, devices
from wire.quantity import NANO

_POOL = (DRIVER, "n1")


def _part(device: str, nano: int) -> DeviceResult:
    return msgspec.structs.replace(has(device)[0], consumed=(("memory", nano),))


def _shown(used: Taken) -> dict[str, Any]:
    names = [f"d{number}" for number in range(4)]
    pool = used.pool(_POOL)
    return {name: (name in pool, pool.has_parts(name), dict(pool.sums(name))) for name in names} | {
        "all": sorted(pool.devices())
    }


def test_what_is_seen_of_a_claim_replaces_what_was_decided_for_it() -> None:
    used = taken(c=has("d0", "d1"))
    used.put("c", has("d0", "d1"))
    assert sorted(used.pool(_POOL).devices()) == ["d0", "d1"]
    used.put("c", has("d2"))
    assert (sorted(used.pool(_POOL).devices()), used.get("c")) == (["d2"], tuple(has("d2")))
    used.drop("c")
    used.drop("c")
    assert (list(used.pool(_POOL).devices()), used.get("c")) == ([], ())


def test_devices_in_use_are_listed_in_the_order_in_which_they_were_taken() -> None:
    """Who clashes by a counter is found in this order: it may not come from hashes."""
    named = [f"d{number}" for number in range(8)]
    assert list(taken(c=has(*named)).pool(_POOL).devices()) == named


def test_a_stamp_is_another_one_after_each_change_of_the_pool() -> None:
    used = taken(c=has("d0"), other=has("d0", pool="n2"))
    before = used.stamps([_POOL, (DRIVER, "n2"), (DRIVER, "n3")])
    fork = used.fork()
    fork.put("d", has("d1"))
    after = fork.stamps([_POOL, (DRIVER, "n2"), (DRIVER, "n3")])
    assert [one is other for one, other in zip(before, after, strict=True)] == [False, True, True]
    assert used.stamps([_POOL, (DRIVER, "n2"), (DRIVER, "n3")]) == before
    used.put("e", has("d0", pool="n3"))
    used.drop("e")
    assert used.stamps([(DRIVER, "n3")]) == before[2:]


def test_held_devices_count_as_in_use_for_a_while_and_leave_no_trace() -> None:
    base = taken(c=has("d0"), d=[_part("d1", 3)])
    used = base.fork()
    used.put("e", has("d2"))
    before = _shown(used), used.stamps([_POOL, (DRIVER, "n2")])
    held = [(DRIVER, "n1", "d0"), (DRIVER, "n1", "d3"), (DRIVER, "n2", "d3")]
    with used.with_whole(held):
        assert _shown(used)["d3"] == (True, False, {})
        assert _shown(used)["all"] == ["d0", "d1", "d2", "d3"]
        assert "d3" in used.pool((DRIVER, "n2"))
        assert _shown(base)["all"] == ["d0", "d1"]
    assert (_shown(used), used.stamps([_POOL, (DRIVER, "n2")])) == before
    used.drop("e")
    assert _shown(used) == _shown(base)


def test_admin_access_takes_nothing() -> None:
    used = taken(c=[msgspec.structs.replace(has("d0")[0], is_admin=True)])
    assert "d0" not in used.pool(_POOL)
    assert used.get("c") == ()


def test_a_device_that_two_claims_have_is_free_when_both_are_gone() -> None:
    used = taken(one=has("d0"), other=has("d0"))
    used.drop("one")
    assert "d0" in used.pool(_POOL)
    used.drop("other")
    assert "d0" not in used.pool(_POOL)


def test_parts_add_up() -> None:
    used = taken(one=[_part("d0", 2), _part("d0", 3)], other=[_part("d0", 4)])
    assert (used.pool(_POOL).sums("d0"), used.pool(_POOL).has_parts("d0"), "d0" in used.pool(_POOL)) == (
        {"memory": 9},
        True,
        False,
    )
    used.drop("one")
    assert used.pool(_POOL).sums("d0") == {"memory": 4}


def test_a_fork_stays_as_it_is_when_what_it_was_made_of_changes() -> None:
    used = taken(c=has("d0"))
    fork = used.fork()
    used.put("other", has("d1"))
    used.drop("c")
    assert (sorted(fork.pool(_POOL).devices()), sorted(used.pool(_POOL).devices())) == (["d0"], ["d1"])


@pytest.mark.parametrize("seed", range(20))
def test_forks_change_apart_and_taking_back_leaves_what_was(seed: int) -> None:
    chance = random.Random(seed)
    used = Taken()
    kept: list[tuple[Taken, dict[str, Any]]] = []
    for _ in range(80):
        owner = f"c{chance.randrange(5)}"
        if chance.random() < 0.2:
            kept.append((used, _shown(used)))
            used = used.fork()
        before = used.get(owner)
        now = [
            _part(f"d{chance.randrange(4)}", chance.randint(1, 3))
            if chance.random() < 0.5
            else has(f"d{chance.randrange(4)}")[0]
            for _ in range(chance.randrange(3))
        ]
        shown = _shown(used)
        used.put(owner, now)
        if chance.random() < 0.5:
            used.put(owner, before)
            assert _shown(used) == shown
    assert [_shown(each) for each, _ in kept] == [shown for _, shown in kept]
    assert len(kept) > 3


# Counters of a pool, less what devices in use draw and what is chosen.


def _drawing(name: str, **amounts: str) -> dict[str, object]:
    counters = {counter: {"value": each} for counter, each in amounts.items()}
    return device(name, consumesCounters=[{"counterSet": "card", "counters": counters}])


_COUNTERS = [{"name": "card", "counters": {"slices": {"value": "4"}, "memory": {"value": "8Gi"}}}]
_COUNTERS_POOL = make_pool(
    (DRIVER, "n1"),
    [
        devices("n1-counters", pool="n1", count=2, sharedCounters=_COUNTERS),
        devices(
            "n1", _drawing("a", slices="2", memory="1Gi"), _drawing("b", slices="1", memory="6Gi"), pool="n1", count=2
        ),
    ],
)


def test_a_draw_is_whole_or_not_at_all_and_can_be_given_back() -> None:
    left = CountersLeft(taken())
    assert left.draw(_COUNTERS_POOL, _COUNTERS_POOL.draws["b"])
    assert not left.draw(_COUNTERS_POOL, _COUNTERS_POOL.draws["b"])
    assert left.draw(_COUNTERS_POOL, _COUNTERS_POOL.draws["a"])
    left.give_back(_COUNTERS_POOL, _COUNTERS_POOL.draws["b"])
    assert left.draw(_COUNTERS_POOL, _COUNTERS_POOL.draws["b"])


def test_devices_in_use_have_drawn_and_devices_that_are_gone_have_not() -> None:
    left = CountersLeft(taken(one=has("b"), other=has("gone")))
    assert not left.draw(_COUNTERS_POOL, _COUNTERS_POOL.draws["b"])
    assert left.draw(_COUNTERS_POOL, _COUNTERS_POOL.draws["a"])


def test_a_pool_that_is_overdrawn_gives_nothing() -> None:
    # Two claims have one device, say after two schedulers gave it.
    left = CountersLeft(taken(one=has("a", "b")))
    assert not left.draw(_COUNTERS_POOL, _COUNTERS_POOL.draws["b"])


# Claims that two schedulers gave more than there is find each other, whichever of them looks.


def _clashes_drawing(name: str, count: str, counter: str = "slices") -> dict[str, Any]:
    return device(name, consumesCounters=[{"counterSet": "card", "counters": {counter: {"value": count}}}])


_CLASHES_COUNTERS = [{"name": "card", "counters": {"slices": {"value": "4"}, "other": {"value": "1"}}}]
_SHARED = device("shared", allowMultipleAllocations=True, capacity={"memory": {"value": "4"}, "cores": {"value": "8"}})
_MADE = inventory(
    devices("n1-counters", pool="n1", count=2, sharedCounters=_CLASHES_COUNTERS),
    devices(
        "n1",
        device("a"),
        _SHARED,
        _clashes_drawing("half", "2"),
        _clashes_drawing("other-half", "2"),
        _clashes_drawing("most", "3"),
        _clashes_drawing("x", "1", "other"),
        pool="n1",
        count=2,
    ),
)


def _clashes_part(nano: int) -> DeviceResult:
    return msgspec.structs.replace(has("shared")[0], consumed=(("memory", nano * NANO),))


@pytest.mark.parametrize(
    ("mine", "others", "clash"),
    [
        (has("a"), has("a"), True),
        (has("a"), has("half"), False),
        (has("a"), has("a", pool="n2"), False),
        # Parts of a shared device, as long as they fit; and the whole of it.
        ([_clashes_part(2)], [_clashes_part(2)], False),
        ([_clashes_part(2)], [_clashes_part(3)], True),
        ([_clashes_part(2)], has("shared"), True),
        # Devices that draw more from a counter than it has.
        (has("half"), has("most"), True),
        (has("half"), has("other-half"), False),
        (has("half"), has("x"), False),
        (has("most"), has("x"), False),
        # A pool that is gone, and a device that is.
        (has("a", pool="gone"), has("a", pool="gone"), True),
        (has("gone"), has("gone"), True),
        (
            [msgspec.structs.replace(has("gone")[0], consumed=())] * 2,
            [msgspec.structs.replace(has("gone")[0], consumed=())],
            False,
        ),
    ],
)
def test_claims_that_have_more_than_there_is_find_each_other(
    mine: list[DeviceResult], others: list[DeviceResult], *, clash: bool
) -> None:
    used = taken(me=mine, other=others)
    assert set(clashes("me", _MADE.view(), used)) == ({"other"} if clash else set())
    assert set(clashes("other", _MADE.view(), used)) == ({"me"} if clash else set())


def test_the_device_is_named_and_admin_access_clashes_with_nobody() -> None:
    used = taken(me=has("half", "a"), other=has("a"))
    assert clashes("me", _MADE.view(), used) == {"other": has("a")[0]}
    admin = [msgspec.structs.replace(has("a")[0], is_admin=True)]
    assert clashes("admin", _MADE.view(), taken(admin=admin, other=has("a"))) == {}
    assert clashes("nobody", _MADE.view(), Taken()) == {}


def test_a_claim_is_no_clash_with_itself() -> None:
    assert clashes("me", _MADE.view(), taken(me=has("half", "most"))) == {}
