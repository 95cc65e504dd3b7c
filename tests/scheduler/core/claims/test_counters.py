"""Counters of a pool, less what devices in use draw and what is chosen."""

from __future__ import annotations

from scheduler.core.claims.allocation import CountersLeft
from scheduler.core.claims.pools import make_pool
from tests.scheduler.core.claims.world import has, taken
from tests.scheduler.core.device_objects import DRIVER, device, devices


def _drawing(name: str, **amounts: str) -> dict[str, object]:
    counters = {counter: {"value": each} for counter, each in amounts.items()}
    return device(name, consumesCounters=[{"counterSet": "card", "counters": counters}])


_COUNTERS = [{"name": "card", "counters": {"slices": {"value": "4"}, "memory": {"value": "8Gi"}}}]
_POOL = make_pool(
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
    assert left.draw(_POOL, _POOL.draws["b"])
    assert not left.draw(_POOL, _POOL.draws["b"])
    assert left.draw(_POOL, _POOL.draws["a"])
    left.give_back(_POOL, _POOL.draws["b"])
    assert left.draw(_POOL, _POOL.draws["b"])


def test_devices_in_use_have_drawn_and_devices_that_are_gone_have_not() -> None:
    left = CountersLeft(taken(one=has("b"), other=has("gone")))
    assert not left.draw(_POOL, _POOL.draws["b"])
    assert left.draw(_POOL, _POOL.draws["a"])


def test_a_pool_that_is_overdrawn_gives_nothing() -> None:
    # Two claims have one device, say after two schedulers gave it.
    left = CountersLeft(taken(one=has("a", "b")))
    assert not left.draw(_POOL, _POOL.draws["b"])
