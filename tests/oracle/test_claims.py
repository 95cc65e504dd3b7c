"""Where kube-scheduler's allocator finds devices for claims, Moorage does: random clusters, each node.

``make test-all`` compares 1,000 snapshots, ``make nightly`` 4,000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.oracle.claims import ours, run
from tests.whole import IS_WHOLE
from tools.kubeoracle.program import Oracle, Question

pytestmark = pytest.mark.oracle
_SLICE = 1_000
_SLICES = 4 if IS_WHOLE else 1
#: A rule that is left out is found within this number of snapshots, looked at some at a time.
_FOUND_WITHIN, _AT_A_TIME = 400, 50
_GPU, _NIC = "gpu.example.com", "nic.example.com"


@pytest.mark.parametrize("number", range(_SLICES))
def test_moorage_and_kube_scheduler_find_devices_on_the_same_nodes(oracle: Oracle, number: int) -> None:
    found = run(oracle, range(number * _SLICE, (number + 1) * _SLICE))
    assert not found.differences
    assert found.one_sided() == []
    assert 0.2 < found.let_in[""] / (found.let_in[""] + found.kept_out[""]) < 0.8
    assert found.went_on < 10


def _changed(change: Callable[[dict[str, Any]], None]) -> Callable[[Question], dict[str, str]]:
    """Our answer to a question that was changed first."""

    def answer(question: Question) -> dict[str, str]:
        copy = msgspec.json.decode(msgspec.json.encode(question))
        change(copy["devices"])
        return ours(copy)

    return answer


def _without(*fields: str) -> Callable[[dict[str, Any]], None]:
    """Leave these fields out, wherever they are."""

    def drop(value: Any) -> None:
        if isinstance(value, dict):
            for name in fields:
                value.pop(name, None)
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            drop(each)

    return drop


def _nothing_allocated(devices: dict[str, Any]) -> None:
    devices["allocated"] = []


def _no_rule(devices: dict[str, Any]) -> None:
    devices["rules"] = []


def _rules_without_selector(devices: dict[str, Any]) -> None:
    for each in devices["rules"]:
        each["spec"].pop("deviceSelector", None)


def _last_way_only(devices: dict[str, Any]) -> None:
    for claim in devices["claims"]:
        for request in claim["spec"]["devices"]["requests"]:
            if "firstAvailable" in request:
                request["firstAvailable"] = request["firstAvailable"][1:]


def _one_generation(devices: dict[str, Any]) -> None:
    for each in devices["slices"]:
        each["spec"]["pool"]["generation"] = 1


_LEFT_OUT = {
    **{
        name: _without(name)
        for name in (
            "taints",
            "tolerations",
            "constraints",
            "selectors",
            "consumesCounters",
            "adminAccess",
            "allowMultipleAllocations",
            "requestPolicy",
            "nodeSelector",
            "allocationMode",
        )
    },
    "allocated": _nothing_allocated,
    "taint rules": _no_rule,
    "selectors of taint rules": _rules_without_selector,
    "firstAvailable": _last_way_only,
    "generation": _one_generation,
}


@pytest.mark.parametrize("rule", _LEFT_OUT)
def test_a_rule_that_is_left_out_is_found(oracle: Oracle, rule: str) -> None:
    parts = (range(first, first + _AT_A_TIME) for first in range(0, _FOUND_WITHIN, _AT_A_TIME))
    assert any(run(oracle, part, answer=_changed(_LEFT_OUT[rule])).differences for part in parts)


# --- on purpose not as kube-scheduler --------------------------------------------------------------------------------
def _slice(name: str, *devices: dict[str, Any], driver: str = _GPU, pool: str = "n", **more: Any) -> dict[str, Any]:
    named = {"name": pool, "generation": 1, "resourceSliceCount": more.pop("count", 1)}
    return {
        "metadata": {"name": name},
        "spec": {"driver": driver, "pool": named, "nodeName": "n", "devices": devices, **more},
    }


def _device(name: str, value: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": name, "attributes": {"numa": {"int": value}}, **more}


def _drawing(name: str) -> dict[str, Any]:
    return _device(name, consumesCounters=[{"counterSet": "card", "counters": {"slices": {"value": "2"}}}])


def _counters(name: str, driver: str, has: str) -> dict[str, Any]:
    sets = [{"name": "card", "counters": {"slices": {"value": has}}}]
    return _slice(name, driver=driver, count=2, sharedCounters=sets)


def _ask(name: str = "r", **more: Any) -> dict[str, Any]:
    return {"name": name, "deviceClassName": "any", "allocationMode": "ExactCount", "count": 1, **more}


def _exactly(**more: Any) -> dict[str, Any]:
    asked = _ask(**more)
    return {"name": asked.pop("name"), "exactly": asked}


def _question(slices: list[Any], requests: list[Any], rules: list[Any]) -> Question:
    spec = {"devices": {"requests": requests, "constraints": rules}}
    return {
        "nodes": [{"metadata": {"name": "n", "labels": {"a": "b"}}}],
        "devices": {
            "slices": slices,
            "classes": [{"metadata": {"name": "any"}, "spec": {}}],
            "rules": [],
            "allocated": [],
            "claims": [{"metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "spec": spec}],
        },
    }


_DIFFERENT = [_device("a", 0), _device("b", 1)]
#: The first driver's pool has too little for two of its devices, the second one's enough.
_TWO_DRIVERS = [
    _counters("gpu-counters", _GPU, "1"),
    _slice("gpu", _drawing("x"), driver=_GPU, count=2),
    _counters("nic-counters", _NIC, "4"),
    _slice("nic", _drawing("x"), _drawing("y"), driver=_NIC, count=2),
]


def test_devices_of_one_request_all_differ(oracle: Oracle) -> None:
    """There, each request is remembered by its last device: the third need not differ from the first."""
    listed = [_device("a", 0), _device("b", 1), _device("c", 0)]
    question = _question([_slice("s", *listed)], [_exactly(count=3)], [{"distinctAttribute": f"{_GPU}/numa"}])
    (theirs,) = oracle.ask([question])
    assert (theirs.feasible, ours(question)) == (("n",), {"n": "NO_DEVICES "})


def test_where_all_devices_break_a_constraint_another_way_is_tried(oracle: Oracle) -> None:
    """There, the attempt ends with an error."""
    either = {"name": "r", "firstAvailable": [_ask("all", allocationMode="All", count=0), _ask("one")]}
    question = _question([_slice("s", *_DIFFERENT)], [either], [{"matchAttribute": f"{_GPU}/numa"}])
    (theirs,) = oracle.ask([question])
    assert (theirs.feasible, ours(question)) == ((), {"n": ""})


def test_counters_of_two_drivers_whose_pools_have_one_name_are_kept_apart(oracle: Oracle) -> None:
    """There, what is left is kept by the pool's name alone: whichever pool comes first decides for both."""
    question = _question(_TWO_DRIVERS, [_exactly(count=2)], [])
    assert ours(question) == {"n": ""}
    # Pools come in random order there, so that some answers are right.
    assert {answer.feasible for answer in oracle.ask([question] * 16)} & {()}


def test_a_pool_that_a_node_does_not_reach_is_none_of_its_pools(oracle: Oracle) -> None:
    """There, a slice with counters makes its pool one of every node, which "all" waits for while the pool changes."""
    elsewhere = _counters("other-counters", _NIC, "4")
    elsewhere["spec"]["nodeName"] = "m"
    question = _question([_slice("s", *_DIFFERENT), elsewhere], [_exactly(allocationMode="All", count=0)], [])
    (theirs,) = oracle.ask([question])
    assert (theirs.feasible, ours(question)) == ((), {"n": ""})
