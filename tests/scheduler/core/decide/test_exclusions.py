"""An exclusion chooses between devices, and opens none that the pod would not open without it."""

from __future__ import annotations

from typing import Any

import pytest

from gpu.request import FractionAsk
from gpu.translation import Cards
from scheduler.core.model.plan import Alone, Explain
from scheduler.core.model.settings import Settings, Strategy
from tests.scheduler.core.model.test_records import said
from tests.scheduler.core.objects import NANO, cluster, node, pod, recorded, reservation
from wire import names

TINY, HALF, FULL = NANO // 1_000, NANO // 2, NANO - 10


def _excluding(*uuids: str, nano: int = TINY, count: int = 1, **more: Any) -> Any:
    return recorded(said(*[(FractionAsk(nano),)] * count, cards=Cards(not_uuids=uuids), **more))


def _used(uuid: str, on: str = "n1", nano: int = HALF) -> Any:
    return reservation(f"g-{uuid}", on, book={f"tenant-{uuid}": nano} if nano else {}, uuid=f"GPU-{uuid}")


def _outcome(*objects: Any, settings: Settings | None = None) -> str:
    """Groups that the one waiting pod gets, "new" for those it opens; or the kinds of its reasons."""
    made = cluster(*objects, settings=settings)
    (entry,) = made.decide(0).entries
    if isinstance(entry, Explain):
        return "waits: " + "+".join(reason.kind for reason in entry.verdict.node_reasons)
    assert isinstance(entry, Alone)
    known = {"g-a", "g-b", "g-c"}
    groups = (device.group for device in entry.placement.devices)
    return "+".join(sorted(group if group in known else "new" for group in groups))


TWO = [node("n1", gpus=2), node("n2", gpus=2)]


@pytest.mark.parametrize(
    ("objects", "outcome"),
    [
        # Nothing is in use: an exclusion says which device is opened.
        ([node(gpus=2), _excluding("GPU-a")], "new"),
        # All that are in use and have room are excluded, on this node or on another.
        ([node(gpus=2), _used("a"), _excluding("GPU-a")], "waits: exclusion"),
        ([*TWO, _used("a"), _excluding("GPU-a")], "waits: exclusion"),
        ([*TWO, _used("a"), _used("b", "n2"), _excluding("GPU-a", "GPU-b")], "waits: exclusion"),
        # One that is in use and not excluded serves it, wherever it is.
        ([node(gpus=3), _used("a"), _used("b"), _excluding("GPU-a")], "g-b"),
        ([*TWO, _used("a"), _used("b", "n2", nano=TINY), _excluding("GPU-a")], "g-b"),
        # One on a node where the pod may not be serves it as little.
        ([node("n1", gpus=2), node("n2", gpus=2, cordoned=True), _used("b", "n2"), _excluding("GPU-a")], "new"),
        # The excluded one could not serve it anyhow.
        ([node(gpus=2), _used("a", nano=FULL), _excluding("GPU-a")], "new"),
        # It could, with just what it has left.
        ([node(gpus=2), _used("a", nano=NANO - 1), _excluding("GPU-a", nano=1)], "waits: exclusion"),
        # One that nobody uses is no reason to wait: a search may have opened it.
        ([node(gpus=2), _used("a", nano=0), _excluding("GPU-a")], "new"),
        # Several devices: no more are opened than without the exclusion.
        ([node(gpus=3), _used("a"), _used("b"), _excluding("GPU-a", count=2)], "waits: exclusion"),
        ([node(gpus=3), _used("a"), _excluding("GPU-x", count=2)], "g-a+new"),
    ],
)
def test_an_exclusion_opens_no_device(objects: list[Any], outcome: str) -> None:
    assert _outcome(*objects) == outcome


@pytest.mark.parametrize("by_pod", [False, True])
def test_a_pod_that_spreads_and_excludes_shares_what_is_left(by_pod: bool) -> None:
    wanted = _excluding("GPU-a", strategy="spread") if by_pod else _excluding("GPU-a")
    settings = Settings() if by_pod else Settings(gpu_strategy=Strategy.SPREAD)
    assert _outcome(node(gpus=4), _used("a"), _used("b"), wanted, settings=settings) == "g-b"


def test_a_pod_that_waits_for_its_exclusion_starts_when_nothing_in_use_could_serve_it() -> None:
    made = cluster(node(gpus=2), _used("a"), _excluding("GPU-a"))
    assert [type(entry) for entry in made.decide(0).entries] == [Explain]
    made.upsert_pod(_used("a", nano=FULL))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Alone)


@pytest.mark.parametrize(("used", "outcome"), [(8, "n1"), (3, "n1"), (0, "n1")])
def test_a_pod_of_the_smallest_share_of_eight_devices_takes_those_in_use_first(used: int, outcome: str) -> None:
    held = [
        reservation(f"h{index}", "n1", book={f"t{index}": HALF}, uuid=f"GPU-{index}", uid=f"r{index}")
        for index in range(used)
    ]
    made = cluster(node("n1"), node("n2"), *held, pod(fraction="0.001", devices=8))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Alone)
    groups = {device.group for device in entry.placement.devices}
    assert entry.placement.node == outcome
    assert len(groups & {f"h{index}" for index in range(used)}) == used
    assert len(groups) == 8


def test_the_exclusion_of_a_product_is_no_exclusion_of_devices() -> None:
    """It says on which nodes the pod may be, and a node without devices in use serves it as well as any."""
    labels = {names.NODE_GPU_PRODUCT: "NVIDIA-T4"}
    other = node("n2", gpus=2, labels={names.NODE_GPU_PRODUCT: "NVIDIA-A100"})
    wanted = recorded(said((FractionAsk(TINY),), cards=Cards(not_products=("t4",))))
    assert _outcome(node("n1", gpus=2, labels=labels), other, _used("a"), wanted) == "new"
