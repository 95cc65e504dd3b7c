"""Pods with several GPUs, and nodes whose device plugin offers each GPU several times."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.model.settings import Settings
from tests.scheduler.core.nodes.mounting import places, reasons
from tests.scheduler.core.objects import cluster, feed, node, pod
from wire import names

_SLICED = node("sliced", gpus=8, labels={names.NODE_GPU_COUNT: "2"})
_TWO_CONTAINERS: Any = {
    "containers": [{"name": name, "resources": {"limits": {names.GPU_RESOURCE: "1"}}} for name in "ab"]
}


@pytest.mark.parametrize(
    ("asked", "is_set", "is_placed"),
    [
        ({"gpus": 2}, False, True),
        ({"gpus": 2}, True, False),
        ({"spec": _TWO_CONTAINERS}, True, False),
        ({"gpus": 1}, True, True),
    ],
)
def test_several_gpus_are_kept_off_time_slices_where_that_is_set(
    asked: dict[str, Any], is_set: bool, is_placed: bool
) -> None:
    settings = Settings(preemption=False, distinct_gpus=is_set)
    made = cluster(_SLICED, pod("p", **asked), settings=settings)
    assert places(made.decide(0)) == ({"p": "sliced"} if is_placed else {})
    if not is_placed:
        assert reasons(made) == {"time-slices": 1}
        feed(made, node("whole", gpus=2))
        assert places(made.decide(0)) == {"p": "whole"}
