"""Pools are as good as the slices of their newest generation."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.claims.pools import Pool, make_pool
from scheduler.core.model.devices import SliceRecord
from tests.scheduler.core.device_objects import DRIVER, device, devices, node


def _pool(*slices: SliceRecord) -> Pool:
    return make_pool((DRIVER, "p"), slices)


def _names(pool: Pool, at: str = "n1", **labels: str) -> list[str]:
    return [each.name for _, run in pool.reached(node(at, **labels)) for each in run]


def _drawing(name: str, counter_set: str = "card", counter: str = "slices") -> dict[str, Any]:
    return device(name, consumesCounters=[{"counterSet": counter_set, "counters": {counter: {"value": "1"}}}])


_COUNTERS = [{"name": "card", "counters": {"slices": {"value": "7"}}}]


def test_older_generations_are_left_out_although_they_have_more_slices() -> None:
    pool = _pool(
        devices("old-1", device("a"), generation=1, count=2),
        devices("old-2", device("b"), generation=1, count=2),
        devices("new", device("c"), generation=2, nodeName="n1"),
    )
    assert (_names(pool), pool.wrong) == (["c"], "")


@pytest.mark.parametrize(
    ("slices", "wrong", "is_incomplete"),
    [
        ([devices("a", count=1)], "", False),
        ([devices("a", count=2)], "1 of 2 slices are there", True),
        ([devices("a", count=1), devices("b", count=1)], "2 of 1 slices are there", True),
        ([devices("a", count=2), devices("b", count=3)], "2 of 2 or 3 slices are there", True),
        (
            [devices("a", count=2), devices("b", count=2, nodeSelector={"nodeSelectorTerms": [{}, {}]})],
            "slice b: nodeSelector: has several terms",
            False,
        ),
        (
            [devices("a", sharedCounters=_COUNTERS, count=2), devices("b", sharedCounters=_COUNTERS, count=2)],
            "counter set card is there 2 times",
            False,
        ),
        ([devices("a", sharedCounters=_COUNTERS, count=2), devices("b", _drawing("x"), count=2)], "", False),
        (
            [devices("a", sharedCounters=_COUNTERS, count=2), devices("b", _drawing("x", "other"), count=2)],
            "device x draws from a counter of other that is not there",
            False,
        ),
        (
            [devices("a", sharedCounters=_COUNTERS, count=2), devices("b", _drawing("x", counter="mem"), count=2)],
            "device x draws from a counter of card that is not there",
            False,
        ),
    ],
)
def test_a_pool_says_what_is_wrong_with_it(slices: list[SliceRecord], wrong: str, *, is_incomplete: bool) -> None:
    pool = _pool(*slices)
    assert (pool.wrong, pool.is_incomplete) == (wrong, is_incomplete)


def test_a_node_reaches_its_own_devices_and_those_for_its_labels_in_order() -> None:
    rack = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "Exists"}]}]}
    own = [
        device("a", nodeName="n1"),
        device("b", nodeSelector=rack),
        device("c", nodeName="n1"),
        device("d", nodeName="n2"),
    ]
    pool = _pool(
        devices("s1", *own, perDeviceNodeSelection=True, count=3),
        devices("s2", device("e"), allNodes=True, count=3),
        devices("s3", device("f"), allNodes=False, count=3),
    )
    assert _names(pool, "n1", rack="r1") == ["a", "b", "c", "e"]
    assert _names(pool, "n1") == ["a", "c", "e"]
    assert _names(pool, "n2") == ["d", "e"]
    assert _names(pool, "n3") == ["e"]


def test_names_that_several_devices_have_are_known() -> None:
    pool = _pool(devices("s1", device("a"), device("b"), count=2), devices("s2", device("a"), count=2))
    assert pool.repeated == {"a"}
