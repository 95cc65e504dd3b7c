"""What is counted for an inspection is what the scheduler counts."""

from __future__ import annotations

from typing import Any

import pytest

from cli.inspection.counting import Count
from cli.inspection.surveying import Found, fed
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from tests.scheduler.core.objects import NANO, bind_request, bound, ended, node, pod, reservation
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest

NODES = (node("n1", gpus=4, mem_mib=24576), node("n2", gpus=2, mem_mib=81920, cordoned=True))
HALF = bound(pod("half", fraction="0.5"), "n1", ("g", NANO // 2), uuid="GPU-1")
WHOLE = bound(pod("whole", gpus=2), "n2")
HELD = reservation("g", book={"uid-half": NANO // 2, "uid-gone": NANO // 4})
WAITS = pod("w", fraction="0.5")
ORDER = bind_request(WAITS, "n1", ("new", NANO // 2))


def found(*objects: Any) -> Found:
    def of(kind: type) -> list[Any]:
        return [each for each in objects if isinstance(each, kind)]

    return Found(nodes=of(Node), pods=of(Pod), requests=of(BindRequest))


@pytest.mark.parametrize(
    "objects",
    [
        NODES,
        (*NODES, HELD, HALF, WHOLE),
        (*NODES, HELD, ended(HALF), ended(WHOLE)),
        (*NODES, reservation("g", book={"uid-half": NANO // 2}, phase="Succeeded"), HALF),
        (*NODES, reservation("g", book={"uid-half": NANO // 2}, deleting=True), HALF),
        (*NODES, HELD, HALF, WAITS, ORDER),
        (*NODES, ended(WAITS), ORDER),
        (*NODES, ORDER),
        (*NODES, bound(pod("legacy", gpus=1), "n2"), bound(pod("elsewhere", gpus=1), "n9")),
        (HELD, HALF, WAITS, ORDER),
    ],
    ids=[
        "nothing there", "shares and whole", "ended pods", "an ended reservation", "one that is deleted",
        "on its way", "on its way, and ended", "on its way, and not there", "on no node that is there", "no node",
    ],
)  # fmt: skip
def test_the_views_are_those_of_the_scheduler(objects: tuple[Any, ...]) -> None:
    these = found(*objects)
    ours, theirs = fed(Count(Settings()), these), fed(Cluster(Settings()), these)
    assert ours.node_names() == theirs.node_names()
    assert [ours.view(name) for name in ours.node_names()] == [theirs.view(name) for name in theirs.node_names()]
    assert ours.view("nowhere") is None


def test_a_hand_over_is_seen_before_its_pod_is_bound() -> None:
    """The cases above are no empty ones."""
    view = fed(Count(Settings()), found(*NODES, WAITS, ORDER)).view("n1")
    assert view is not None
    assert [tenant.name for device in view.devices for tenant in device.tenants] == ["w"]
