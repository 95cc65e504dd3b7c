"""Binpack keeps KAI's outcomes (contract 4.4): its bands, its resource by kind of pod, equals by name."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Alone
from scheduler.core.model.settings import Settings
from tests.scheduler.core.objects import NANO, feed, node, pod, reservation


def _busy(name: str, on: str, **asked: Any) -> Any:
    return pod(name, bound_to=on, **asked)


def _used(group: str, on: str, tenths: int) -> Any:
    return reservation(group, on, book={f"of-{group}": tenths * NANO // 10}, uuid=f"GPU-{group}")


_TWO = (node("n1"), node("n2"))


@pytest.mark.parametrize(
    ("objects", "asked", "expected"),
    [
        # nodeplacement: GPU pods by GPUs alone, the fullest node, with any CPU left
        ([*_TWO, _busy("x", "n2", gpus=1), _busy("y", "n1", cpu="60")], {"gpus": 1, "cpu": "1"}, "n2"),
        ([node("n1", 8), node("n2", 4)], {"gpus": 1}, "n2"),
        # gpusharingorder: a device in use that the share fits, before the fullest node
        ([*_TWO, _used("a", "n1", 3), _busy("x", "n2", gpus=7)], {"fraction": "0.5"}, "n1"),
        ([*_TWO, _used("a", "n1", 6), _busy("x", "n2", gpus=7)], {"fraction": "0.5"}, "n2"),
        # gpupack: the device that is used most
        ([*_TWO, _used("a", "n1", 2), _used("b", "n2", 4)], {"fraction": "0.5"}, "n2"),
        # pods without GPUs by CPU alone, with any GPUs left ...
        ([*_TWO, _busy("x", "n2", cpu="8"), _busy("y", "n1", gpus=8)], {"cpu": "1"}, "n2"),
        # resourcetype: ... but on nodes without GPUs first
        ([*_TWO, node("n3", 0), _busy("x", "n2", cpu="8")], {"cpu": "1"}, "n3"),
        # equals by name
        ([node("n2"), node("n1"), node("n3")], {"gpus": 1}, "n1"),
        ([node("n2"), node("n1"), node("n3")], {"cpu": "1"}, "n1"),
    ],
)
def test_a_pod_goes_where_kai_puts_it(objects: list[Any], asked: dict[str, Any], expected: str) -> None:
    made = Cluster(Settings())
    feed(made, *objects, pod("p", **asked))
    assert [entry.placement.node for entry in made.decide(0).entries if isinstance(entry, Alone)] == [expected]
